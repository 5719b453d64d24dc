//! Classes of messages in the configuration file: `[classes.NAME]`.
//!
//! ```toml
//! [classes.alarm]
//! weight = 8                    # share of each of its publishers in a queue; high has 4, normal 2, low 1
//! topics = ["alarm/#"]          # all that is given must be met: a topic of these,
//! users = ["panel"]             # from a user of these,
//! clients = ["panel-*"]         # from a client of these
//! addresses = ["10.1.0.0/16"]   # from one of these addresses
//! role = "service"              # at the smart space: before customers, which is what everybody else is
//! claimants = ["desk"]          # users who may have it for what they ask of the smart space (pace-class); "*" is any user
//! on_full = "drop_longest"      # or "drop_newest", "drop_oldest", "latest" (only the newest of each topic waits),
//!                               # "refuse" (QoS 1 and 2 are not taken, MQTT 5 is told 0x97, before it is not read)
//! max_bytes = "64KiB"           # of it may wait in one queue, then on_full decides; without, as much as fits
//! max_delay = "5s"              # it waits for its receiver at most; without, as long as it lives
//! rate = "5/s"                  # each of its publishers may send so much; by clients, users or addresses, not by topics
//! ```

use tidegate_core::classes::{AddressRange, CLASS_BYTES_MIN, CLASS_DELAY_MIN, Class};
use tidegate_core::glob::Glob;

use super::backoff::RateSetting;
use super::setting::{Setting, Size, Span, WholeNumber};
use super::words::{OnFullWord, RoleWord};
use super::{ConfigEntry, ConfigProblem, ConfigValue, Fields, Origin, read_fields};

/// Every field with its meaning.
pub const FIELDS: Fields = &[
    ("weight", "Share of each of its publishers where there is not enough: 1 to 256; high has 4, normal 2, low 1."),
    ("topics", "A list of topic filters, one of which must match."),
    ("users", "A list of users, one of whom must have sent it."),
    (
        "clients",
        "A list of client identifiers, one of which must have sent it; `*` stands for anything. At the smart space: SSAP nodes, \
         and what clients call themselves (`pace-client`); with users only together with `users` or `addresses`.",
    ),
    ("addresses", "A list of addresses such as `192.168.1.7` or `10.1.0.0/16`, from one of which it must come."),
    (
        "role",
        "At the smart space: `service` comes first, `customer` gets what services leave, and a sixteenth always. Unset: \
         `customer`.",
    ),
    (
        "claimants",
        "Users who may claim this class for what they ask of the smart space (`pace-class`); `*` is every user. A lesser class \
         than its own may be claimed by anybody.",
    ),
    (
        "on_full",
        "Who goes when a queue is full: `drop_longest`, `drop_oldest`, `drop_newest`, `latest` (of each topic only the \
         newest waits) or `refuse` (QoS 1 and 2 are not taken).",
    ),
    ("max_bytes", "So much of it may wait in one queue, at least 1 KiB; then on_full decides. Unset: as much as fits."),
    ("max_delay", "It waits for its receiver at most so long, at least 10 ms. Unset: as long as it lives."),
    (
        "rate",
        "Messages that each of its publishers may send, such as \"5/s\", in place of `limits.rate`; what is beyond waits. For \
         classes by clients, users or addresses, without topics.",
    ),
];

type Weight = WholeNumber<1, 256>;
type Bytes = Size<{ CLASS_BYTES_MIN as u64 }, { 1 << 40 }>;
type Delay = Span<{ CLASS_DELAY_MIN.as_millis() as u64 }>;

/// Reads the fields of one class; what is wrong goes to `problems`.
pub fn read(name: &str, at: &Origin, fields: &[ConfigEntry], problems: &mut Vec<ConfigProblem>) -> Option<Class> {
    let before = problems.len();
    let mut class = Class::new(name, 0);
    read_fields(&format!("classes.{name}"), FIELDS, fields, problems, |field, value| {
        set(&mut class, field, value).map_err(|expected| value.unfit(&expected))
    });
    if !fields.iter().any(|field| field.path == "weight") {
        problems.push(ConfigProblem::of_key(at, &format!("classes.{name}"), "a class needs \"weight\""));
    }
    (problems.len() == before).then_some(class)
}

/// Or what was expected.
fn set(class: &mut Class, field: &str, value: &ConfigValue) -> Result<(), String> {
    match field {
        "weight" => {
            class.weight =
                Weight::read(value, None).map(|WholeNumber(weight)| weight as u32).ok_or_else(Weight::expected)?;
        }
        "on_full" => {
            class.on_full =
                OnFullWord::read(value, None).map(|OnFullWord(word)| word).ok_or_else(OnFullWord::expected)?;
        }
        "max_bytes" => {
            let bytes = Bytes::read(value, None).ok_or_else(Bytes::expected)?;
            class.max_bytes = Some(usize::try_from(bytes.0).unwrap_or(usize::MAX));
        }
        "max_delay" => class.max_delay = Some(Delay::read(value, None).ok_or_else(Delay::expected)?.0),
        "rate" => class.rate = Some(RateSetting::read(value, None).ok_or_else(RateSetting::expected)?.rate(None)),
        "topics" => class.topics = list(value)?.iter().map(|text| text.as_str().into()).collect(),
        "users" => class.users = list(value)?.iter().map(|text| text.as_str().into()).collect(),
        "claimants" => class.claimants = list(value)?.iter().map(|text| text.as_str().into()).collect(),
        "addresses" => class.addresses = addresses(value)?,
        "role" => {
            class.role = RoleWord::read(value, None).map(|RoleWord(word)| word).ok_or_else(RoleWord::expected)?;
        }
        _ => class.clients = list(value)?.iter().map(|text| Glob::new(text)).collect(),
    }
    Ok(())
}

fn addresses(value: &ConfigValue) -> Result<Vec<AddressRange>, String> {
    let read = |text: &String| text.parse().ok();
    list(value)
        .ok()
        .and_then(|list| list.iter().map(read).collect())
        .ok_or_else(|| "a list of addresses such as [\"192.168.1.7\", \"10.1.0.0/16\"]".to_owned())
}

fn list(value: &ConfigValue) -> Result<&[String], String> {
    match value {
        ConfigValue::List(list) if !list.is_empty() && list.iter().all(|text| !text.is_empty()) => Ok(list),
        _ => Err("a list of texts such as [\"a\", \"b\"]".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::time::Duration;

    use tidegate_core::classes::{ClassRole, OnFull};

    use super::*;
    use crate::config::file;

    fn classes(text: &str) -> (Vec<Class>, Vec<String>) {
        let contents = file::parse(Path::new("t.toml"), text);
        let mut problems = contents.problems;
        let read =
            |(head, fields): &(ConfigEntry, Vec<ConfigEntry>)| read(&head.path, &head.origin, fields, &mut problems);
        let found = contents.classes.iter().filter_map(read).collect();
        (found, problems.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn classes_come_in_the_order_of_the_file() {
        let text = "[classes.b]\nweight = 8\ntopics = [\"alarm/#\"]\nclients = [\"p-*\"]\non_full = \"latest\"\n\
                    [classes.a]\nweight = 1\nmax_bytes = \"64KiB\"\nmax_delay = \"1m30s\"\nrate = \"30/m\"\n";
        let (classes, problems) = classes(text);
        assert_eq!(problems, [""; 0]);
        assert_eq!(classes.iter().map(|class| &*class.name).collect::<Vec<_>>(), ["b", "a"]);
        assert_eq!((classes[0].weight, classes[0].on_full), (8, OnFull::Latest));
        assert_eq!((classes[0].max_bytes, classes[0].max_delay), (None, None));
        assert_eq!((classes[1].max_bytes, classes[1].max_delay), (Some(65_536), Some(Duration::from_secs(90))));
        assert_eq!(classes[0].clients, [Glob::new("p-*")]);
        assert_eq!(classes[1].rate.map(|rate| (rate.interval(), rate.burst())), Some((Duration::from_secs(2), 30)));
    }

    #[test]
    fn a_class_says_who_comes_first_at_the_smart_space() {
        let text = "[classes.agents]\nweight = 8\nrole = \"service\"\nusers = [\"agent\"]\naddresses = [\"10.1.0.0/16\", \"::1\"]\n\
                    claimants = [\"*\"]\n[classes.b]\nweight = 1\nrole = \"boss\"\naddresses = [\"10.0.0.0/33\"]\nclaimants = []\n";
        let (classes, problems) = classes(text);
        assert_eq!((classes.len(), classes[0].role, classes[0].addresses.len()), (1, ClassRole::Service, 2));
        assert_eq!(classes[0].claimants, ["*".into()]);
        for part in [
            "classes.b.role: \"boss\" does not fit: expected one of \"service\", \"customer\"",
            "classes.b.addresses: [\"10.0.0.0/33\"] does not fit: expected a list of addresses",
            "classes.b.claimants: [] does not fit: expected a list of texts",
        ] {
            assert!(problems.iter().any(|problem| problem.contains(part)), "{part} in {problems:?}");
        }
    }

    #[test]
    fn f146_every_fault_of_a_class_is_named() {
        let text = "[classes.a]\nwieght = 1\nweight = 300\ntopics = \"x\"\non_full = \"drop\"\n[classes]\nb = 1\n\
                    [classes.c]\nusers = [\"u\"]\nmax_bytes = 10\nmax_delay = \"0s\"\n[clases.d]\nweight = 1\n";
        let expected = [
            "t.toml:7:1: classes.b: expected a class; write [classes.NAME] and below it weight = 4",
            "t.toml:12:2: clases: unknown section; did you mean \"classes\"?",
            "t.toml:2:1: classes.a.wieght: unknown key; did you mean \"weight\"?",
            "t.toml:3:1: classes.a.weight: 300 does not fit: expected a whole number from 1 to 256",
            "t.toml:4:1: classes.a.topics: \"x\" does not fit: expected a list of texts such as [\"a\", \"b\"]",
            "t.toml:5:1: classes.a.on_full: \"drop\" does not fit: expected one of \"drop_longest\", \"drop_newest\", \
             \"drop_oldest\", \"latest\", \"refuse\"",
            "t.toml:8:10: classes.c: a class needs \"weight\"",
            "t.toml:10:1: classes.c.max_bytes: 10 does not fit: expected a size such as \"64KiB\", \"16MiB\" or \
             \"1MB\", from 1KiB to 1024GiB",
            "t.toml:11:1: classes.c.max_delay: \"0s\" does not fit: expected a duration with its unit such as \"10s\", \"5m\" or \
             \"1h30m\", at least 10ms",
        ];
        let mut found = classes(text).1;
        let mut expected = expected.map(ToOwned::to_owned).to_vec();
        found.sort();
        expected.sort();
        assert_eq!(found, expected);
    }
}
