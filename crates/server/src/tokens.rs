//! The keys of tokens while the broker runs: from a file at each reload, or from a web server, again and again on a thread of
//! its own.
//!
//! Keys that were fetched hold while their server is away, for a day at most; without keys nobody comes in by a token. A token
//! with an unknown key makes the thread look for new ones, at most every half minute however many such tokens come, and its
//! client is told to come back.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError, SyncSender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use tidegate_admin::{TokenOverview, TokenWish};
use tidegate_auth::limits::{CLAIMS_MAX, KEY_SET_BYTES_MAX};
use tidegate_auth::{KeySet, RevokedTokens, TokenFault, TokenRules, TokenSource, claims_of};
use tidegate_broker::ExtraMetric;
use tracing::{info, warn};

use crate::config::keys::{JwtSection, Options};
use crate::config::proofs::KeyPlace;
use crate::config::rule::RuleTarget;
use crate::config::setting::Span;
use crate::config::{ConfigProblem, Loaded};
use crate::fetch::{WebAddress, WebClient};
use crate::user_file;

/// The file of the data folder that says whose tokens were taken back.
pub const REVOKED: &str = "revoked-tokens";

/// For the whole of one fetch: a server that takes longer has trouble.
const FETCH_TIMEOUT: Duration = Duration::from_secs(10);
/// Between two fetches for unknown keys.
const FETCH_INTERVAL_MIN: Duration = Duration::from_secs(30);
/// After the first fetch that failed; then twice as long each time, up to the interval above.
const FETCH_RETRY: Duration = Duration::from_secs(1);
/// How long keys hold whose server is away: a key that was taken back there must not be one here for ever.
const KEYS_HOLD: Duration = Duration::from_secs(24 * 3600);

/// The keys of now.
#[derive(Debug)]
pub struct TokenKeys {
    /// Where they are fetched from, and by whom; none if they are in a file.
    source: Option<(WebAddress, WebClient)>,
    secret: Option<Vec<u8>>,
    refresh: Duration,
    state: Mutex<KeyState>,
    counts: TokenCounts,
}

#[derive(Debug, Default)]
struct KeyState {
    keys: Option<Arc<KeySet>>,
    fetched_at: Option<Instant>,
    /// Wakes the thread that fetches; none before it is started.
    wake: Option<SyncSender<()>>,
}

/// What became of one fetch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum KeyFetch {
    Fetched,
    Failed,
}

/// What became of tokens and of fetches, over all reloads.
#[derive(Debug, Default)]
struct TokenCounts {
    refused: [AtomicU64; TokenFault::ALL.len()],
    fetched: AtomicU64,
    failed: AtomicU64,
}

/// What is asked of tokens; none if there are none here.
pub fn rules(loaded: &Loaded) -> Option<TokenRules> {
    let JwtSection { keys, secret_file, issuer, audience, user_claim, roles_claim, leeway, token_bytes_max, .. } =
        &loaded.options.jwt;
    if keys.clone().value().is_none() && secret_file.is_none() {
        return None;
    }
    Some(TokenRules {
        issuer: issuer.0.clone(),
        audience: audience.0.clone(),
        user_claim: user_claim.0.clone(),
        roles_claim: roles_claim.0.clone(),
        claims: wanted_claims(loaded),
        leeway_s: leeway.0.as_secs(),
        bytes_max: usize::try_from(token_bytes_max.0).unwrap_or(usize::MAX),
        revoked: RevokedTokens::default(),
    })
}

/// Claims that rules of access speak of, each once.
fn wanted_claims(loaded: &Loaded) -> Vec<String> {
    let topics = loaded.rules.iter().filter_map(|rule| match &rule.target {
        RuleTarget::Topic(topic) => Some(topic.as_str()),
        RuleTarget::Graph(_) => None,
    });
    let names: BTreeSet<&str> = topics.flat_map(claims_of).collect();
    names.into_iter().map(str::to_owned).collect()
}

/// The same with those that were taken back. A file that cannot be read is a problem: it may have let somebody out.
pub fn rules_now(loaded: &Loaded, problems: &mut Vec<ConfigProblem>) -> Option<TokenRules> {
    let rules = rules(loaded)?;
    if rules.claims.len() > CLAIMS_MAX {
        problems.push(ConfigProblem::general(format!("rules speak of more than {CLAIMS_MAX} claims of tokens")));
    }
    match read_revoked(&loaded.options) {
        Ok(revoked) => Some(TokenRules { revoked, ..rules }),
        Err(why) => {
            problems.push(ConfigProblem::general(why));
            None
        }
    }
}

/// Where it is kept whose tokens were taken back.
pub(crate) fn revoked_file(options: &Options) -> PathBuf {
    options.server.data.join(REVOKED)
}

fn read_revoked(options: &Options) -> Result<RevokedTokens, String> {
    let path = revoked_file(options);
    match std::fs::read_to_string(&path) {
        Ok(text) => RevokedTokens::parse(&text)
            .map_err(|line| format!("{}:{line}: expected seconds and a user", path.display())),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(RevokedTokens::default()),
        Err(error) => Err(format!("{} cannot be read: {error}", path.display())),
    }
}

/// What the admin API shows of tokens.
pub fn overview(loaded: &Loaded, keys: Option<&TokenKeys>) -> TokenOverview {
    let Some(rules) = rules(loaded) else { return TokenOverview::default() };
    let refused = |keys: &TokenKeys| {
        let counted =
            TokenFault::ALL.map(|fault| (fault.name(), keys.counts.refused[fault as usize].load(Ordering::Relaxed)));
        counted.into_iter().filter(|(_, count)| *count > 0).collect()
    };
    let revoked = read_revoked(&loaded.options).unwrap_or_default();
    TokenOverview {
        are_taken: true,
        keys: keys.and_then(TokenSource::keys).map_or(0, |keys| keys.len()),
        can_make: keys.is_some_and(|keys| keys.secret.is_some()),
        issuer: rules.issuer,
        audience: rules.audience,
        roles_claim: rules.roles_claim,
        refused: keys.map(refused).unwrap_or_default(),
        revoked: revoked.iter().map(|(user, until)| (user.to_owned(), until)).collect(),
    }
}

/// Makes a token of this user, which is told once and kept nowhere.
pub fn make(loaded: &Loaded, keys: Option<&TokenKeys>, wish: &TokenWish) -> Result<String, String> {
    let secret = keys.and_then(|keys| keys.secret.as_deref());
    let secret = secret.ok_or("there is no secret to sign tokens with: jwt.secret_file names a file with one")?;
    let rules = rules(loaded).ok_or("there are no tokens here")?;
    let rules = TokenRules { revoked: read_revoked(&loaded.options)?, ..rules };
    let life_s = wish.life.as_secs();
    rules.make(secret, &wish.user, &wish.roles, now_s(), life_s).map_err(|fault| fault.to_string())
}

/// Takes all tokens of this user back that were made until now, and puts that in force.
pub fn revoke(loaded: &Loaded, user: &str, put_in_force: impl FnOnce() -> Result<(), String>) -> Result<(), String> {
    // Two at once would be one.
    static CHANGES: Mutex<()> = Mutex::new(());
    let _alone = CHANGES.lock().unwrap_or_else(PoisonError::into_inner);
    rules(loaded).ok_or("there are no tokens here")?;
    let mut revoked = read_revoked(&loaded.options)?;
    // A token that was made right after the last time is from a second later.
    let until = now_s().max(revoked.until(user).map_or(0, |until| until.saturating_add(1)));
    revoked.revoke(user, until).map_err(|_| "tokens of too many users were taken back already".to_owned())?;
    let text = revoked.to_text();
    // A name with a line break would be several lines.
    if RevokedTokens::parse(&text).as_ref() != Ok(&revoked) {
        return Err("no user can be called so".to_owned());
    }
    let path = revoked_file(&loaded.options);
    user_file::replace(&path, &text).map_err(|error| format!("{} cannot be written: {error:#}", path.display()))?;
    put_in_force()
}

fn now_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(u64::MAX, |now| now.as_secs())
}

impl TokenKeys {
    /// Reads the files that are named. Nothing is fetched yet.
    pub fn load(loaded: &Loaded, problems: &mut Vec<ConfigProblem>) -> Option<Arc<Self>> {
        rules(loaded)?;
        let JwtSection { keys, secret_file, ca, audience, refresh: Span(refresh), .. } = &loaded.options.jwt;
        let before = problems.len();
        let mut wrong = |key: &str, message: String| {
            problems.push(ConfigProblem::of_key(loaded.origin(key), key, message));
        };
        let mut secret = None;
        if let Some(path) = secret_file {
            match std::fs::read(path)
                .map_err(|error| format!("cannot be read: {error}"))
                .and_then(|bytes| checked_secret(&bytes))
            {
                Ok(bytes) => secret = Some(bytes),
                Err(why) => wrong("jwt.secret_file", format!("{} {why}", path.display())),
            }
        }
        let (mut keys_now, mut source) = (None, None);
        match keys.clone().value() {
            None => keys_now = Some(KeySet::default()),
            Some(KeyPlace::File(path)) => {
                let text = std::fs::read_to_string(&path).map_err(|error| format!("cannot be read: {error}"));
                match text.and_then(|text| KeySet::parse(&text).map_err(|fault| fault.to_string())) {
                    Ok(keys) => keys_now = Some(keys),
                    Err(why) => wrong("jwt.keys", format!("{} {why}", path.display())),
                }
            }
            Some(KeyPlace::Web(at)) if audience.0.is_empty() => wrong(
                "jwt.audience",
                format!(
                    "is missing: {at} signs tokens for others, too, and without an audience each of those would let its \
                     owner in here; name the one of the tokens that are for this broker"
                ),
            ),
            Some(KeyPlace::Web(at)) => match WebClient::new(ca.as_deref(), FETCH_TIMEOUT, KEY_SET_BYTES_MAX) {
                Ok(client) => source = Some((at, client)),
                Err(error) => wrong("jwt.ca", format!("cannot be used: {error}")),
            },
        }
        if problems.len() > before {
            return None;
        }
        let state = Mutex::default();
        let tokens = Self { source, secret, refresh: *refresh, state, counts: TokenCounts::default() };
        lock(&tokens.state).keys = match keys_now {
            Some(keys) => tokens.with_secret(keys),
            None => tokens.unfetched(),
        };
        Some(Arc::new(tokens))
    }

    /// The set, and the secret if there is one.
    fn with_secret(&self, keys: KeySet) -> Option<Arc<KeySet>> {
        match &self.secret {
            Some(secret) => keys.with_secret(secret).ok().map(Arc::new),
            None => Some(Arc::new(keys)),
        }
    }

    /// What there is while nothing is fetched: the secret, which is nobody's but ours.
    fn unfetched(&self) -> Option<Arc<KeySet>> {
        self.secret.is_some().then(|| self.with_secret(KeySet::default())).flatten()
    }

    /// Goes on from what was before a reload: keys that were fetched from the same place, and what was counted.
    pub fn inherit(&self, before: &Self) {
        self.counts.add(&before.counts);
        let place = |tokens: &Self| tokens.source.as_ref().map(|(at, _)| at.clone());
        if self.source.is_some() && place(self) == place(before) && self.secret == before.secret {
            let (keys, fetched_at) = {
                let state = lock(&before.state);
                (state.keys.clone(), state.fetched_at)
            };
            let mut state = lock(&self.state);
            (state.keys, state.fetched_at) = (keys, fetched_at);
        }
    }

    /// Begins to fetch, if there is something to be fetched; until nobody has the keys any more.
    pub fn start(self: &Arc<Self>) -> std::io::Result<()> {
        if self.source.is_none() || lock(&self.state).wake.is_some() {
            return Ok(());
        }
        let (wake, woken) = mpsc::sync_channel(1);
        lock(&self.state).wake = Some(wake);
        let tokens = Arc::downgrade(self);
        std::thread::Builder::new().name("token-keys".to_owned()).spawn(move || keep_fresh(&tokens, &woken)).map(drop)
    }

    /// Fetches once.
    fn fetch(&self) -> KeyFetch {
        let Some((at, client)) = &self.source else { return KeyFetch::Fetched };
        let fetched = client.get(at).map_err(|error| error.to_string()).and_then(|bytes| {
            let text = String::from_utf8(bytes).map_err(|_| "the answer is no text".to_owned())?;
            KeySet::parse(&text).map_err(|fault| format!("the answer {fault}"))
        });
        let mut state = lock(&self.state);
        match fetched {
            Ok(keys) => {
                self.counts.fetched.fetch_add(1, Ordering::Relaxed);
                if state.fetched_at.is_none() {
                    info!(event = "token_keys", %at, keys = keys.len(), "the keys of tokens are here");
                }
                (state.keys, state.fetched_at) = (self.with_secret(keys), Some(Instant::now()));
                KeyFetch::Fetched
            }
            Err(error) => {
                self.counts.failed.fetch_add(1, Ordering::Relaxed);
                let age = state.fetched_at.map(|then| then.elapsed());
                if age.is_none_or(|age| age >= KEYS_HOLD) {
                    (state.keys, state.fetched_at) = (self.unfetched(), None);
                }
                let holds = state.fetched_at.is_some();
                warn!(event = "token_keys_failed", %at, error, holds, "the keys of tokens cannot be fetched");
                KeyFetch::Failed
            }
        }
    }

    /// What became of tokens, for `/metrics`.
    pub fn metrics(&self) -> Vec<ExtraMetric> {
        let refused = TokenFault::ALL.iter().map(|fault| ExtraMetric {
            family: "tokens_refused",
            help: "Tokens that were not valid, by reason.",
            is_counter: true,
            labels: vec![("reason", fault.name())],
            value: self.counts.refused[*fault as usize].load(Ordering::Relaxed),
        });
        let fetches = [("fetched", &self.counts.fetched), ("failed", &self.counts.failed)];
        let fetches = fetches.map(|(outcome, count)| ExtraMetric {
            family: "token_key_fetches",
            help: "Fetches of the keys of tokens, by outcome.",
            is_counter: true,
            labels: vec![("outcome", outcome)],
            value: count.load(Ordering::Relaxed),
        });
        let keys = lock(&self.state).keys.as_ref().map_or(0, |keys| keys.len() as u64);
        let help = "Keys that tokens may be signed with; 0: nobody comes in by a token.";
        let keys = ExtraMetric { family: "token_keys", help, is_counter: false, labels: Vec::new(), value: keys };
        refused.chain(fetches).chain([keys]).collect()
    }
}

/// Trimmed of the line's end that editors add, which nobody means.
fn checked_secret(bytes: &[u8]) -> Result<Vec<u8>, String> {
    let secret = bytes.trim_ascii_end().to_vec();
    KeySet::default().with_secret(&secret).map_err(|fault| fault.to_string())?;
    Ok(secret)
}

/// Fetches now, and whenever it is time or somebody asks; not more often than is polite.
fn keep_fresh(tokens: &Weak<TokenKeys>, woken: &mpsc::Receiver<()>) {
    let mut retry = FETCH_RETRY;
    while let Some(here) = tokens.upgrade() {
        let (wait, polite) = match here.fetch() {
            KeyFetch::Fetched => {
                retry = FETCH_RETRY;
                (here.refresh, here.refresh.min(FETCH_INTERVAL_MIN))
            }
            KeyFetch::Failed => {
                let wait = retry;
                retry = (retry * 2).min(FETCH_INTERVAL_MIN);
                (wait, wait)
            }
        };
        drop(here);
        // Whoever asks meanwhile is one of those for whom the next fetch is.
        std::thread::sleep(polite);
        match woken.recv_timeout(wait.saturating_sub(polite)) {
            Ok(()) | Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
    }
}

impl TokenSource for TokenKeys {
    fn keys(&self) -> Option<Arc<KeySet>> {
        lock(&self.state).keys.clone()
    }

    fn now_s(&self) -> u64 {
        now_s()
    }

    fn refused(&self, fault: TokenFault) -> bool {
        self.counts.refused[fault as usize].fetch_add(1, Ordering::Relaxed);
        let may_come = matches!(fault, TokenFault::UnknownKey | TokenFault::NoKeys) && self.source.is_some();
        if may_come && let Some(wake) = &lock(&self.state).wake {
            // One is enough.
            let _ = wake.try_send(());
        }
        may_come
    }
}

impl TokenCounts {
    fn add(&self, before: &Self) {
        let all = self.refused.iter().chain([&self.fetched, &self.failed]);
        let old = before.refused.iter().chain([&before.fetched, &before.failed]);
        for (now, before) in all.zip(old) {
            now.fetch_add(before.load(Ordering::Relaxed), Ordering::Relaxed);
        }
    }
}

fn lock(state: &Mutex<KeyState>) -> MutexGuard<'_, KeyState> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpListener;

    use super::*;
    use crate::config::{ConfigEntry, Sources, load};

    const SET: &str =
        r#"{"keys":[{"kty":"OKP","crv":"Ed25519","kid":"a","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}]}"#;

    const OURS: (&str, &str) = ("jwt.audience", "tidegate");

    fn tokens(settings: &[(&str, &str)]) -> Result<Option<Arc<TokenKeys>>, Vec<String>> {
        let flags = settings.iter().map(|(key, value)| ConfigEntry::flag("--set", key, value)).collect();
        let loaded = load(&Sources { file: Some("/dev/null".into()), flags, ..Sources::default() }).unwrap();
        let mut problems = Vec::new();
        let tokens = TokenKeys::load(&loaded, &mut problems);
        if problems.is_empty() { Ok(tokens) } else { Err(problems.iter().map(ToString::to_string).collect()) }
    }

    #[test]
    fn keys_of_a_file_are_there_at_once_and_a_bad_file_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str, text: &str| {
            let path = folder.path().join(name);
            std::fs::write(&path, text).unwrap();
            path.display().to_string()
        };
        assert!(tokens(&[]).unwrap().is_none(), "no tokens unless somebody says so");
        let found = tokens(&[("jwt.keys", &file("a", SET))]).unwrap().unwrap();
        assert_eq!(found.keys().map(|keys| keys.len()), Some(1));
        let both = tokens(&[("jwt.keys", &file("a", SET)), ("jwt.secret_file", &file("s", &"x".repeat(32)))]);
        assert_eq!(both.unwrap().unwrap().keys().map(|keys| keys.len()), Some(2));
        for (key, path, words) in [
            ("jwt.keys", file("b", "{}"), "has no list \"keys\""),
            ("jwt.keys", "/nonexistent".to_owned(), "cannot be read"),
            ("jwt.secret_file", file("c", "short\n"), "too short for a secret"),
        ] {
            let problems = tokens(&[(key, &path)]).unwrap_err();
            assert!(problems[0].contains(key) && problems[0].contains(words), "{problems:?}");
        }
    }

    #[test]
    fn a_server_that_fails_opens_nothing_and_one_that_answers_gives_keys() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/jwks", listener.local_addr().unwrap());
        let found = tokens(&[("jwt.keys", &url), OURS]).unwrap().unwrap();
        let answer = |answer: &str| {
            let (mut stream, _) = listener.accept().unwrap();
            let _ = stream.read(&mut [0; 1024]).unwrap();
            stream.write_all(answer.as_bytes()).unwrap();
        };
        assert!(found.keys().is_none() && found.refused(TokenFault::NoKeys), "it is worth coming back");
        let fetched = std::thread::scope(|scope| {
            let fetch = scope.spawn(|| found.fetch());
            answer("HTTP/1.1 500 Down\r\n\r\n");
            fetch.join().unwrap()
        });
        assert_eq!((fetched, found.keys().is_none()), (KeyFetch::Failed, true));
        std::thread::scope(|scope| {
            let fetch = scope.spawn(|| found.fetch());
            answer(&format!("HTTP/1.1 200 OK\r\n\r\n{SET}"));
            fetch.join().unwrap();
        });
        assert_eq!(found.keys().map(|keys| keys.len()), Some(1));
        let after = tokens(&[("jwt.keys", &url), OURS]).unwrap().unwrap();
        after.inherit(&found);
        assert_eq!(after.keys().map(|keys| keys.len()), Some(1), "a reload does not forget them");
        let counted =
            |family: &str| after.metrics().iter().filter(|it| it.family == family).map(|it| it.value).sum::<u64>();
        assert_eq!((counted("tokens_refused"), counted("token_key_fetches"), counted("token_keys")), (1, 2, 1));
        let elsewhere = tokens(&[("jwt.keys", "http://localhost:1/other"), OURS]).unwrap().unwrap();
        elsewhere.inherit(&found);
        assert!(elsewhere.keys().is_none(), "the keys of another place are another's");
    }

    #[test]
    fn keys_from_a_server_of_others_need_an_audience() {
        let problems = tokens(&[("jwt.keys", "http://localhost:1/jwks")]).unwrap_err();
        assert!(problems[0].contains("jwt.audience") && problems[0].contains("for others, too"), "{problems:?}");
        assert!(tokens(&[("jwt.keys", "http://localhost:1/jwks"), OURS]).is_ok());
    }

    #[test]
    fn tokens_by_the_secret_are_taken_while_the_server_of_the_other_keys_is_away() {
        let folder = tempfile::tempdir().unwrap();
        let secret = folder.path().join("secret");
        std::fs::write(&secret, "x".repeat(32)).unwrap();
        let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let url = format!("http://{free}/jwks");
        let secret = secret.display().to_string();
        let found = tokens(&[("jwt.keys", &url), ("jwt.secret_file", &secret), OURS]).unwrap().unwrap();
        let count = || found.keys().map(|keys| keys.len());
        assert_eq!(count(), Some(1), "before the first fetch");
        assert_eq!((found.fetch(), count()), (KeyFetch::Failed, Some(1)), "after one that failed");
        assert!(found.refused(TokenFault::UnknownKey), "whoever has another key is told to come back");
    }
}
