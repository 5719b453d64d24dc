//! `tidegate init`: from nothing to a broker for other machines, without a question: a configuration, a first user and, if
//! wanted, a certificate.
//!
//! Nothing that is there is changed. The configuration is written last: a folder where something went wrong has none, and
//! the command can be repeated.

use std::fmt::Write;
use std::fs::OpenOptions;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail};
use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair};

use crate::arguments::InitArgs;
use crate::user;
use tidegate_program::out;
use tidegate_server::config::absolute;

/// Letters of a password that is made up: 32 that nobody confuses, so each is worth five bits.
const LETTERS: &[u8; 32] = b"abcdefghijkmnpqrstuvwxyz23456789";
/// Four groups of five are 100 bits.
const GROUPS: usize = 4;

/// The first user may do everything: at the operator's door, and read what the broker says of itself.
const FIRST_ROLES: [&str; 2] = ["admin", tidegate_auth::MONITOR];

/// The files of a new broker.
struct NewFiles {
    folder: PathBuf,
    config: PathBuf,
    users: PathBuf,
    cert: PathBuf,
    key: PathBuf,
}

impl NewFiles {
    /// What `serve` must be told to find it: nothing, in the folder itself.
    fn as_flag(&self) -> String {
        if std::env::current_dir().is_ok_and(|here| here == self.folder) {
            return String::new();
        }
        format!(" -c {}", crate::arguments::in_shell(&self.config.display().to_string()))
    }

    fn new(folder: &Path) -> Self {
        // `.` would stay in the path.
        let folder = absolute(folder).components().collect::<PathBuf>();
        let data = folder.join("tidegate-data");
        let at = |name: &str| data.join(name);
        Self {
            config: folder.join("tidegate.toml"),
            users: at("users"),
            cert: at("cert.pem"),
            key: at("key.pem"),
            folder,
        }
    }
}

/// Makes the files and says what to do next.
pub(crate) fn run(args: &InitArgs) -> Result<()> {
    let place = NewFiles::new(&args.folder);
    for path in
        [Some(&place.config), args.tls.then_some(&place.cert), args.tls.then_some(&place.key)].into_iter().flatten()
    {
        if path.exists() {
            bail!("{} is there already, and nothing was changed; edit it, or choose another --folder", path.display());
        }
    }
    let (password, is_made_up) = match &args.password_file {
        Some(path) => (first_line_of(path)?, false),
        None if args.password_stdin => (user::first_line()?, false),
        None => (made_up_password()?, true),
    };
    user::add_new(&place.users, &args.user, &password, &FIRST_ROLES)?;
    if args.tls {
        let (cert, key) = certificate(&names(args))?;
        write_new(&place.key, &key, 0o600)?;
        write_new(&place.cert, &cert, 0o644)?;
    }
    write_new(&place.config, &config(args.tls), 0o644)?;
    out(&report(args, &place, is_made_up.then_some(password.as_str())));
    Ok(())
}

fn first_line_of(path: &Path) -> Result<String> {
    let text = std::fs::read_to_string(path).with_context(|| format!("--password-file {}", path.display()))?;
    Ok(text.lines().next().unwrap_or_default().to_owned())
}

pub(crate) fn made_up_password() -> Result<String> {
    let mut bytes = [0_u8; 5 * GROUPS];
    let random = rustls::crypto::ring::default_provider().secure_random;
    random.fill(&mut bytes).ok().context("the operating system gives no random numbers")?;
    let letter = |byte: &u8| char::from(LETTERS[usize::from(byte % 32)]);
    let groups: Vec<String> = bytes.chunks(5).map(|group| group.iter().map(letter).collect()).collect();
    Ok(groups.join("-"))
}

fn write_new(path: &Path, text: &str, mode: u32) -> Result<()> {
    let write = || -> std::io::Result<()> {
        std::fs::create_dir_all(path.parent().unwrap_or(Path::new(".")))?;
        let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(path)?;
        std::io::Write::write_all(&mut file, text.as_bytes())
    };
    write().with_context(|| format!("{} cannot be written", path.display()))
}

/// Without TLS passwords travel in the open: with it, what is not encrypted stays on this machine.
fn config(tls: bool) -> String {
    let plain = if tls { "127.0.0.1" } else { "0.0.0.0" };
    let mut text = format!(
        "# Made by `tidegate init`. `tidegate config show` lists all settings with their meanings and defaults;\n\
         # `tidegate check` finds mistakes.\n\n[server]\ndata = \"tidegate-data\"        # users are in its file \"users\"\n\n\
         [listeners]\nmqtt = \"{plain}:1883\"\nws = \"{plain}:8083\"            # WebSocket, at /mqtt\n"
    );
    if tls {
        text.push_str(
            "mqtts = \"0.0.0.0:8883\"\nwss = \"0.0.0.0:8084\"\n\n[tls]\ncert = \"tidegate-data/cert.pem\"\n\
             key = \"tidegate-data/key.pem\"\n",
        );
    }
    text.push_str(
        "\n# Every user may do everything until there is a rule; then only what rules allow (docs/security.md):\n# [[security.rule]]\n# user = \"alice\"\n\
         # allow = \"readwrite\"           # publish, subscribe, receive, read, write, readwrite\n# topic = \"home/#\"\n",
    );
    text
}

/// Names that the certificate is for: this machine, and those that were given.
fn names(args: &InitArgs) -> Vec<String> {
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let mut names = vec!["localhost".to_owned(), "127.0.0.1".to_owned(), "::1".to_owned()];
    for name in args.name.iter().cloned().chain([host]).filter(|name| !name.is_empty()) {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names
}

/// A certificate that vouches for itself for two to three years, and its key.
fn certificate(names: &[String]) -> Result<(String, String)> {
    let mut params = CertificateParams::new(names).context("--name: not a name of a host")?;
    let year = year_of(SystemTime::now());
    params.not_before = rcgen::date_time_ymd(year, 1, 1);
    params.not_after = rcgen::date_time_ymd(year + 3, 1, 1);
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, "tidegate");
    let key = KeyPair::generate().context("no key could be made")?;
    let certificate = params.self_signed(&key).context("no certificate could be made")?;
    Ok((certificate.pem(), key.serialize_pem()))
}

/// The year by the calendar; 365.2425 days each are exact enough for a certificate's first of January.
fn year_of(time: SystemTime) -> i32 {
    let days = time.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs() / 86_400;
    1970 + i32::try_from(days * 10_000 / 3_652_425).unwrap_or(0)
}

fn report(args: &InitArgs, place: &NewFiles, made_up: Option<&str>) -> String {
    let InitArgs { user, tls, .. } = args;
    let program = crate::arguments::program();
    let mut text = format!("created {}\n        {}\n", place.config.display(), place.users.display());
    if *tls {
        let _ = writeln!(text, "        {} (signed by itself; clients trust it with --cafile)", place.cert.display());
        let _ =
            writeln!(text, "        valid for {}; for others make it anew, with --name HOST", names(args).join(", "));
    }
    match made_up {
        Some(password) => {
            let _ = writeln!(
                text,
                "user    {user}  password {password}   (shown once; a new one: {program} user add {user})"
            );
        }
        None => {
            let _ = writeln!(text, "user    {user}");
        }
    }
    // A name that the certificate is for; which one others reach this machine by is for them to know.
    let host = if *tls { args.name.first().map_or("NAME", String::as_str) } else { "HOST" };
    let (door, port, trust) =
        if *tls { ("mqtts 0.0.0.0:8883", " -p 8883", " --cafile cert.pem") } else { ("mqtt 0.0.0.0:1883", "", "") };
    let where_from = if *tls { " that has cert.pem and reaches this one by one of its names" } else { "" };
    let password = made_up.unwrap_or("PASSWORD");
    let _ = write!(
        text,
        "\nstart the broker ({door}):\n  {program}{}\nthen, from any machine{where_from}:\n  \
         tidegate sub -h {host}{port}{trust} -u {user} -P {password} -t 'test/#' -v\n",
        place.as_flag()
    );
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(folder: &Path, tls: bool) -> InitArgs {
        InitArgs {
            folder: folder.to_owned(),
            user: "admin".to_owned(),
            password_stdin: false,
            password_file: None,
            tls,
            name: vec!["broker.example".to_owned()],
        }
    }

    #[test]
    fn what_is_made_is_sound_and_open_to_users_only() {
        for tls in [false, true] {
            let folder = tempfile::tempdir().unwrap();
            run(&args(folder.path(), tls)).unwrap();
            let file = Some(folder.path().join("tidegate.toml"));
            let sources = tidegate_server::config::Sources { file, ..tidegate_server::config::Sources::default() };
            let ready = tidegate_server::serve::prepare(&sources).map_err(|problems| problems.to_string()).unwrap();
            assert!(ready.security.has_users && !ready.security.allow_anonymous);
            let beyond: Vec<_> = ready.config.listeners.iter().filter(|door| !door.bind.ip().is_loopback()).collect();
            assert_eq!(beyond.len(), 2);
            assert!(
                beyond.iter().all(|door| door.tls.is_some() == tls),
                "passwords are not sent in the open beside TLS"
            );
            let again = run(&args(folder.path(), tls)).unwrap_err().to_string();
            assert!(again.contains("is there already, and nothing was changed"), "{again}");
        }
    }

    #[test]
    fn made_up_passwords_are_long_and_differ() {
        let (one, other) = (made_up_password().unwrap(), made_up_password().unwrap());
        assert_eq!((one.len(), other.len()), (23, 23));
        assert_ne!(one, other);
    }

    #[test]
    fn a_password_from_a_file_is_not_shown() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("pw"), "secret\n").unwrap();
        let with_file = InitArgs { password_file: Some(folder.path().join("pw")), ..args(folder.path(), false) };
        run(&with_file).unwrap();
        let text = report(&with_file, &NewFiles::new(folder.path()), None);
        assert!(text.contains("user    admin\n") && !text.contains("secret"), "{text}");
        let users = std::fs::read_to_string(folder.path().join("tidegate-data/users")).unwrap();
        let users = tidegate_auth::Users::parse(&users).unwrap();
        assert_eq!(users.verify("admin", b"secret"), tidegate_auth::PasswordVerdict::Right);
        let may = tidegate_server::running::RoleTable::new(&users);
        assert_eq!(tidegate_admin::Roles::role(&may, "admin"), Some(tidegate_admin::Role::Admin));
        assert!(users.roles("admin").iter().any(|role| &**role == tidegate_auth::MONITOR));
    }

    #[test]
    fn years_follow_the_calendar() {
        let at = |seconds| year_of(UNIX_EPOCH + std::time::Duration::from_secs(seconds));
        assert_eq!((at(0), at(1_767_312_000), at(4_102_531_200)), (1970, 2026, 2100));
    }
}
