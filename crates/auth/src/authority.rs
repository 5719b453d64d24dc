//! What an authority elsewhere has said about clients, and whether it is worth asking: a memory and a breaker. Pure: time is an
//! argument, counted from any beginning.
//!
//! ```text
//! asked before     a yes holds for `cache`, a no for 5 s at most
//! it fails         three times in a row, and it is not asked for 1, 2, 4 … 30 s; then about one client, whose answer decides
//! it is unclear    it is there, and has said nothing about this client: that closes no door to others
//! while it fails   a yes of the last `hold` holds, and nobody else comes in
//! ```
//! It opens nothing by being away: without an answer of its own, or one that is remembered, the answer is "come back".

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tidegate_broker::authenticate::LoginRefusal;

use crate::limits::AUTHORITY_KNOWN_MAX;

/// Failures in a row after which it is left alone.
const FAILURES_MAX: u32 = 3;
/// The first time that it is left alone; then twice as long.
const PAUSE: Duration = Duration::from_secs(1);
const PAUSE_MAX: Duration = Duration::from_secs(30);
/// A no that is asked for again at once is the same no; who was given a right since does not wait for long.
const NO_HOLDS: Duration = Duration::from_secs(5);

/// Somebody that the authority lets in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuthorityGrant {
    /// Who it is.
    pub user: Arc<str>,
    /// Its roles, for rules of access.
    pub roles: Arc<[Arc<str>]>,
    /// How long that is so; none: for as long as the client stays.
    pub valid_for: Option<Duration>,
}

/// What the authority says.
pub type AuthorityVerdict = Result<AuthorityGrant, LoginRefusal>;

/// What to do about a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AuthorityStep {
    /// It is known what the authority says.
    Known(AuthorityVerdict),
    /// Ask, and say [`AuthorityMemory::on_answer`], [`AuthorityMemory::on_unclear`] or [`AuthorityMemory::on_failure`].
    Ask,
}

/// How long answers hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AuthorityTimes {
    /// A yes, before it is asked for again.
    pub cache: Duration,
    /// A yes, while the authority cannot be asked.
    pub hold: Duration,
    /// The longest that it may take for an answer.
    pub timeout: Duration,
}

/// What a client has shown, so that nobody can tell what it was.
pub type CredentialPrint = [u8; 32];

/// What the authority has said, and whether it is asked.
#[derive(Debug)]
pub struct AuthorityMemory {
    times: AuthorityTimes,
    known: BTreeMap<CredentialPrint, Remembered>,
    failures: u32,
    /// It is left alone until then.
    open_until: Option<Duration>,
}

#[derive(Clone, Debug)]
struct Remembered {
    verdict: AuthorityVerdict,
    at: Duration,
}

impl Remembered {
    /// The verdict, if it is not older than this.
    fn within(&self, age_max: Duration, now: Duration) -> Option<AuthorityVerdict> {
        let age = now.saturating_sub(self.at);
        if age > age_max {
            return None;
        }
        match &self.verdict {
            Err(refusal) => (age <= NO_HOLDS).then_some(Err(*refusal)),
            Ok(grant) => {
                let left = grant.valid_for.map(|valid_for| valid_for.saturating_sub(age));
                // What has ended meanwhile is no yes.
                let has_ended = left.is_some_and(|left| left.is_zero());
                (!has_ended).then(|| Ok(AuthorityGrant { valid_for: left, ..grant.clone() }))
            }
        }
    }
}

impl AuthorityMemory {
    /// Nobody is known.
    pub fn new(times: AuthorityTimes) -> Self {
        Self { times, known: BTreeMap::new(), failures: 0, open_until: None }
    }

    /// The times may change with a reload; who is known stays so.
    pub fn set_times(&mut self, times: AuthorityTimes) {
        self.times = times;
    }

    /// What to do about a client that has shown this.
    pub fn consult(&mut self, print: &CredentialPrint, now: Duration) -> AuthorityStep {
        if let Some(verdict) = self.remembered(print, self.times.cache, now) {
            return AuthorityStep::Known(verdict);
        }
        match self.open_until {
            Some(until) if now < until => AuthorityStep::Known(self.without(print, now)),
            Some(_) => {
                // One asks, and nobody else before that has come to something.
                self.open_until = Some(now + self.pause().max(self.times.timeout));
                AuthorityStep::Ask
            }
            None => AuthorityStep::Ask,
        }
    }

    /// What is known of a client that has shown this, without asking; none if it would be asked.
    pub fn recall(&self, print: &CredentialPrint, now: Duration) -> Option<AuthorityVerdict> {
        let known = self.remembered(print, self.times.cache, now);
        let is_left_alone = self.open_until.is_some_and(|until| now < until);
        known.or_else(|| is_left_alone.then(|| self.without(print, now)))
    }

    /// The verdict while the authority cannot be asked. Never a yes that it has not said.
    fn without(&self, print: &CredentialPrint, now: Duration) -> AuthorityVerdict {
        let age_max = self.times.hold.max(self.times.cache);
        self.remembered(print, age_max, now).unwrap_or(Err(LoginRefusal::Unavailable))
    }

    fn remembered(&self, print: &CredentialPrint, age_max: Duration, now: Duration) -> Option<AuthorityVerdict> {
        self.known.get(print).and_then(|remembered| remembered.within(age_max, now))
    }

    /// It has answered.
    pub fn on_answer(&mut self, print: CredentialPrint, verdict: AuthorityVerdict, now: Duration) {
        (self.failures, self.open_until) = (0, None);
        if self.known.len() >= AUTHORITY_KNOWN_MAX && !self.known.contains_key(&print) {
            let age_max = self.times.hold.max(self.times.cache);
            self.known.retain(|_, remembered| remembered.within(age_max, now).is_some());
            if self.known.len() >= AUTHORITY_KNOWN_MAX && !self.make_room(verdict.is_ok()) {
                return;
            }
        }
        self.known.insert(print, Remembered { verdict, at: now });
    }

    /// Forgets somebody, a no before a yes: whoever guesses drives out nobody who was let in. False: no place for a no.
    fn make_room(&mut self, is_yes: bool) -> bool {
        let no = self.known.iter().find(|(_, remembered)| remembered.verdict.is_err()).map(|(print, _)| *print);
        match no {
            Some(print) => self.known.remove(&print).is_some(),
            // The prints are as good as random, and so is the first of them.
            None => is_yes && self.known.pop_first().is_some(),
        }
    }

    /// It is there, and what it says is no answer about this client: whoever it is may have brought that about, and it is nobody
    /// else's fault. The verdict for whoever asked.
    pub fn on_unclear(&mut self, print: &CredentialPrint, now: Duration) -> AuthorityVerdict {
        (self.failures, self.open_until) = (0, None);
        self.without(print, now)
    }

    /// It is not there, too slow, or out of order; the verdict for whoever asked.
    pub fn on_failure(&mut self, print: &CredentialPrint, now: Duration) -> AuthorityVerdict {
        self.failures = self.failures.saturating_add(1);
        if self.failures >= FAILURES_MAX {
            self.open_until = Some(now + self.pause());
        }
        self.without(print, now)
    }

    fn pause(&self) -> Duration {
        let doublings = self.failures.saturating_sub(FAILURES_MAX).min(8);
        PAUSE.saturating_mul(1 << doublings).min(PAUSE_MAX)
    }

    /// Whether it is left alone.
    pub fn is_open(&self) -> bool {
        self.open_until.is_some()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const TIMES: AuthorityTimes = AuthorityTimes {
        cache: Duration::from_secs(60),
        hold: Duration::from_secs(600),
        timeout: Duration::from_secs(2),
    };

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[expect(clippy::unnecessary_wraps, reason = "it is compared with verdicts")]
    fn yes(valid_for: Option<u64>) -> AuthorityVerdict {
        Ok(AuthorityGrant { user: "ann".into(), roles: Arc::default(), valid_for: valid_for.map(at) })
    }

    const NO: AuthorityVerdict = Err(LoginRefusal::BadUserNameOrPassword);
    const AWAY: AuthorityVerdict = Err(LoginRefusal::Unavailable);

    #[test]
    fn a_yes_holds_for_its_time_and_a_no_for_a_moment() {
        let mut memory = AuthorityMemory::new(TIMES);
        let (ann, bob) = ([1; 32], [2; 32]);
        assert_eq!(memory.consult(&ann, at(0)), AuthorityStep::Ask);
        memory.on_answer(ann, yes(None), at(0));
        memory.on_answer(bob, NO, at(0));
        assert_eq!(memory.consult(&ann, at(60)), AuthorityStep::Known(yes(None)));
        assert_eq!(memory.consult(&ann, at(61)), AuthorityStep::Ask);
        assert_eq!(memory.consult(&bob, at(5)), AuthorityStep::Known(NO));
        assert_eq!(memory.consult(&bob, at(6)), AuthorityStep::Ask);
        memory.on_answer(ann, yes(Some(10)), at(100));
        assert_eq!(memory.consult(&ann, at(104)), AuthorityStep::Known(yes(Some(6))));
        assert_eq!(memory.consult(&ann, at(110)), AuthorityStep::Ask, "it has ended");
    }

    #[test]
    fn who_was_let_in_of_late_comes_back_while_it_is_away_and_nobody_else_comes_in() {
        let mut memory = AuthorityMemory::new(TIMES);
        let (ann, eve) = ([1; 32], [2; 32]);
        memory.on_answer(ann, yes(None), at(0));
        for second in [100, 101, 102] {
            assert_eq!(memory.consult(&eve, at(second)), AuthorityStep::Ask);
            assert_eq!(memory.on_failure(&eve, at(second)), AWAY);
        }
        assert!(memory.is_open());
        assert_eq!(memory.consult(&ann, at(102)), AuthorityStep::Known(yes(None)));
        assert_eq!(memory.consult(&eve, at(102)), AuthorityStep::Known(AWAY), "and it is not asked");
        assert_eq!(memory.consult(&eve, at(103)), AuthorityStep::Ask, "one tries");
        assert_eq!(memory.consult(&eve, at(103)), AuthorityStep::Known(AWAY), "the others do not");
        assert_eq!(memory.on_failure(&eve, at(103)), AWAY);
        assert_eq!(memory.consult(&eve, at(104)), AuthorityStep::Known(AWAY), "twice as long");
        assert_eq!(memory.consult(&ann, at(601)), AuthorityStep::Ask);
        assert_eq!(memory.on_failure(&ann, at(601)), AWAY, "too long ago");
        assert_eq!(memory.consult(&eve, at(700)), AuthorityStep::Ask);
        memory.on_answer(eve, NO, at(700));
        assert!(!memory.is_open());
    }

    #[test]
    fn one_is_asked_about_at_a_time_after_failures_however_slow_it_is() {
        let mut memory = AuthorityMemory::new(TIMES);
        for _ in 0..3 {
            assert_eq!(memory.on_failure(&[1; 32], at(0)), AWAY);
        }
        assert_eq!(memory.consult(&[1; 32], at(1)), AuthorityStep::Ask);
        assert_eq!(memory.consult(&[2; 32], at(2)), AuthorityStep::Known(AWAY), "the first may still be answered");
        assert_eq!(memory.consult(&[2; 32], at(3)), AuthorityStep::Ask);
    }

    #[test]
    fn what_is_unclear_about_one_closes_no_door_to_others() {
        let mut memory = AuthorityMemory::new(TIMES);
        let (ann, eve) = ([1; 32], [2; 32]);
        memory.on_answer(ann, yes(None), at(0));
        for _ in 0..10 {
            assert_eq!(memory.consult(&eve, at(100)), AuthorityStep::Ask);
            assert_eq!(memory.on_unclear(&eve, at(100)), AWAY);
        }
        assert!(!memory.is_open());
        assert_eq!(memory.consult(&ann, at(100)), AuthorityStep::Ask);
        assert_eq!(memory.on_unclear(&ann, at(100)), yes(None));
    }

    proptest! {
        /// Whatever happens: nobody comes in whom the authority has not let in with the same credentials within `hold`, and what is
        /// remembered is bounded.
        #[test]
        fn nobody_comes_in_without_a_yes(steps in prop::collection::vec((0..5_u8, 0..40_u64, 0..5_u8), 1..300)) {
            let mut memory = AuthorityMemory::new(TIMES);
            let (mut now, mut said) = (Duration::ZERO, [None; 5]);
            for (who, wait, answer) in steps {
                now += at(wait);
                let print = [who; 32];
                let (verdict, is_fresh) = match memory.consult(&print, now) {
                    AuthorityStep::Known(verdict) => (verdict, false),
                    AuthorityStep::Ask => match answer {
                        0 => {
                            said[usize::from(who)] = Some(now);
                            memory.on_answer(print, yes(None), now);
                            (yes(None), true)
                        }
                        1 => {
                            said[usize::from(who)] = None;
                            memory.on_answer(print, NO, now);
                            (NO, true)
                        }
                        2 => (memory.on_unclear(&print, now), false),
                        _ => (memory.on_failure(&print, now), false),
                    },
                };
                if verdict.is_ok() && !is_fresh {
                    let age = said[usize::from(who)].map(|then| now.saturating_sub(then));
                    prop_assert!(age.is_some_and(|age| age <= TIMES.hold), "{:?}", age);
                }
            }
            prop_assert!(memory.known.len() <= 5);
        }
    }

    fn numbered(number: usize) -> CredentialPrint {
        let mut print = [0; 32];
        print[..8].copy_from_slice(&(number as u64).to_be_bytes());
        print
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let mut memory = AuthorityMemory::new(TIMES);
        for number in 0..AUTHORITY_KNOWN_MAX + 10 {
            memory.on_answer(numbered(number), yes(None), at(0));
        }
        assert_eq!(memory.known.len(), AUTHORITY_KNOWN_MAX);
    }

    #[test]
    fn whoever_guesses_drives_out_nobody_who_was_let_in() {
        let mut memory = AuthorityMemory::new(TIMES);
        let yeses = |memory: &AuthorityMemory| memory.known.values().filter(|it| it.verdict.is_ok()).count();
        for number in 0..AUTHORITY_KNOWN_MAX - 5 {
            memory.on_answer(numbered(number), yes(None), at(0));
        }
        for number in AUTHORITY_KNOWN_MAX..AUTHORITY_KNOWN_MAX + 50 {
            memory.on_answer(numbered(number), NO, at(0));
        }
        assert_eq!((yeses(&memory), memory.known.len()), (AUTHORITY_KNOWN_MAX - 5, AUTHORITY_KNOWN_MAX));
        for number in 2 * AUTHORITY_KNOWN_MAX..2 * AUTHORITY_KNOWN_MAX + 5 {
            memory.on_answer(numbered(number), yes(None), at(0));
        }
        assert_eq!(yeses(&memory), AUTHORITY_KNOWN_MAX, "a yes takes the place of a no");
        memory.on_answer(numbered(3 * AUTHORITY_KNOWN_MAX), NO, at(0));
        assert_eq!((yeses(&memory), memory.known.len()), (AUTHORITY_KNOWN_MAX, AUTHORITY_KNOWN_MAX));
    }
}
