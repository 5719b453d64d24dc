//! Whom a ban is for, as text that the store keeps. NUL, which no name of MQTT has, stands between the parts.

use std::net::IpAddr;

use tidegate_core::Whom;

use super::records::TEXT_BYTES_MAX;
use crate::bans::Banned;
use crate::operator::OperatorSetting;

/// As text; none if it is too long to be kept, which takes names of more than 64 KiB.
pub(super) fn write(whom: &Banned) -> Option<String> {
    let text = match whom {
        Banned::Client(client) => format!("client\0{client}"),
        Banned::User(user) => format!("user\0{user}"),
        Banned::Network(ip, bits) => format!("network\0{ip}\0{bits}"),
        Banned::ClientAt(client, ip, bits) => format!("client-at\0{ip}\0{bits}\0{client}"),
        Banned::ClientOf(client, user) => format!("client-of\0{user}\0{client}"),
    };
    (text.len() <= TEXT_BYTES_MAX).then_some(text)
}

/// The reverse; none for what is no such text.
pub(super) fn read(text: &str) -> Option<Banned> {
    let mut parts = text.split('\0');
    let (kind, first) = (parts.next()?, parts.next()?);
    let mut network = || Some((first.parse::<IpAddr>().ok()?, parts.next()?.parse::<u8>().ok()?));
    let whom = match kind {
        "client" => Banned::Client(first.to_owned()),
        "user" => Banned::User(first.to_owned()),
        "network" => network().map(|(ip, bits)| Banned::Network(ip, bits))?,
        "client-at" => {
            let (ip, bits) = network()?;
            Banned::ClientAt(parts.next()?.to_owned(), ip, bits)
        }
        "client-of" => Banned::ClientOf(parts.next()?.to_owned(), first.to_owned()),
        _ => return None,
    };
    parts.next().is_none().then_some(whom)
}

/// What is set for whom, in the same way.
pub(super) fn write_rate(setting: OperatorSetting, whom: &Whom) -> Option<String> {
    let setting = match setting {
        OperatorSetting::Limit => "rate",
        OperatorSetting::Grant => "entitled",
    };
    let text = match whom {
        Whom::Client(client) => format!("{setting}\0client\0{client}"),
        Whom::User(user) => format!("{setting}\0user\0{user}"),
    };
    (text.len() <= TEXT_BYTES_MAX).then_some(text)
}

/// The reverse; none for what is no such text.
pub(super) fn read_rate(text: &str) -> Option<(OperatorSetting, Whom)> {
    let mut parts = text.split('\0');
    let (setting, kind, name) = (parts.next()?, parts.next()?, parts.next()?);
    let setting = match setting {
        "rate" => OperatorSetting::Limit,
        "entitled" => OperatorSetting::Grant,
        _ => return None,
    };
    let whom = match kind {
        "client" => Whom::Client(name.into()),
        "user" => Whom::User(name.into()),
        _ => return None,
    };
    parts.next().is_none().then_some((setting, whom))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_goes_there_and_back() {
        let ip: IpAddr = "2001:db8::".parse().unwrap();
        for whom in [
            Banned::Client("a b/client".into()),
            Banned::User(String::new()),
            Banned::Network(ip, 64),
            Banned::ClientAt("c".into(), ip, 64),
            Banned::ClientOf("c".into(), "u".into()),
        ] {
            assert_eq!(read(&write(&whom).unwrap()), Some(whom));
        }
    }

    #[test]
    fn what_is_set_for_whom_goes_there_and_back() {
        for setting in [OperatorSetting::Limit, OperatorSetting::Grant] {
            for whom in [Whom::Client("a b".into()), Whom::User("u".into())] {
                assert_eq!(read_rate(&write_rate(setting, &whom).unwrap()), Some((setting, whom)));
            }
        }
        for text in ["", "rate", "rate\0client", "rate\0king\0x", "tax\0client\0x", "rate\0client\0x\0y"] {
            assert_eq!(read_rate(text), None, "{text:?}");
        }
    }

    #[test]
    fn other_text_is_nobody() {
        for text in ["", "client", "king\0a", "network\0::1", "network\0::1\0x", "client\0a\0b"] {
            assert_eq!(read(text), None, "{text:?}");
        }
        assert_eq!(write(&Banned::User("u".repeat(TEXT_BYTES_MAX))), None);
    }
}
