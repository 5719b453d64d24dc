//! Settings of tokens and certificates with a meaning of their own: where keys are, names of claims, fingerprints.

use std::path::{Path, PathBuf};

use tidegate_broker::Fingerprint;

use super::ConfigValue;
use super::setting::Setting;
use crate::fetch::WebAddress;

/// Where a set of keys is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeyPlace {
    File(PathBuf),
    Web(WebAddress),
}

impl Setting for KeyPlace {
    fn read(value: &ConfigValue, folder: Option<&Path>) -> Option<Self> {
        let text = value.text()?.trim();
        if text.contains("://") {
            return WebAddress::parse(text).filter(WebAddress::is_safe).map(Self::Web);
        }
        PathBuf::read(value, folder).filter(|path| !path.as_os_str().is_empty()).map(Self::File)
    }

    fn expected() -> String {
        "a file, or \"https://HOST/PATH\" (\"http://\" on this machine only: on the way from another one keys could be replaced)"
            .to_owned()
    }

    fn show(&self) -> String {
        match self {
            Self::File(path) => path.show(),
            Self::Web(at) => format!("\"{at}\""),
        }
    }
}

/// A web server that knows users. Passwords are sent there: over TLS, or not beyond this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuthorityPlace(pub WebAddress);

impl Setting for AuthorityPlace {
    fn read(value: &ConfigValue, _: Option<&Path>) -> Option<Self> {
        WebAddress::parse(value.text()?.trim()).filter(WebAddress::is_safe).map(Self)
    }

    fn expected() -> String {
        "\"https://HOST/PATH\" (\"http://\" on this machine only: passwords could be read on the way to another one)"
            .to_owned()
    }

    fn show(&self) -> String {
        format!("\"{}\"", self.0)
    }
}

/// A text that may be absent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OptionalText(pub Option<String>);

impl Setting for OptionalText {
    fn read(value: &ConfigValue, _: Option<&Path>) -> Option<Self> {
        value.text().filter(|text| !text.is_empty()).map(|text| Self(Some(text.to_owned())))
    }

    fn expected() -> String {
        "text in quotes".to_owned()
    }

    fn show(&self) -> String {
        self.0.as_ref().map_or_else(|| "unset".to_owned(), |text| format!("{text:?}"))
    }
}

/// A text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlainText(pub String);

impl Setting for PlainText {
    fn read(value: &ConfigValue, _: Option<&Path>) -> Option<Self> {
        value.text().filter(|text| !text.is_empty()).map(|text| Self(text.to_owned()))
    }

    fn expected() -> String {
        "text in quotes".to_owned()
    }

    fn show(&self) -> String {
        format!("{:?}", self.0)
    }
}

/// Some texts, or one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TextList(pub Vec<String>);

impl Setting for TextList {
    fn read(value: &ConfigValue, _: Option<&Path>) -> Option<Self> {
        let list = match value {
            ConfigValue::List(list) => list.clone(),
            ConfigValue::Text(text) => vec![text.clone()],
            ConfigValue::Bare(text) => text.split(',').map(|one| one.trim().to_owned()).collect(),
            _ => return None,
        };
        list.iter().all(|text| !text.is_empty()).then_some(Self(list))
    }

    fn expected() -> String {
        "text in quotes, or a list of texts such as [\"a\", \"b\"]".to_owned()
    }

    fn show(&self) -> String {
        format!("{:?}", self.0)
    }
}

/// Certificates by their fingerprints.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PinList(pub Vec<Fingerprint>);

impl Setting for PinList {
    fn read(value: &ConfigValue, folder: Option<&Path>) -> Option<Self> {
        let TextList(list) = TextList::read(value, folder)?;
        list.iter().map(|text| text.parse().ok()).collect::<Option<_>>().map(Self)
    }

    fn expected() -> String {
        "a list of SHA-256 fingerprints of certificates, 64 hexadecimal digits each".to_owned()
    }

    fn show(&self) -> String {
        format!("{:?}", self.0.iter().map(ToString::to_string).collect::<Vec<_>>())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_come_from_a_file_or_from_where_nobody_can_replace_them() {
        let read = |text: &str| KeyPlace::read(&ConfigValue::Text(text.to_owned()), Some(Path::new("/etc/tidegate")));
        assert_eq!(read("keys.json"), Some(KeyPlace::File("/etc/tidegate/keys.json".into())));
        assert!(matches!(read("https://id.example/jwks"), Some(KeyPlace::Web(_))));
        assert!(matches!(read("http://localhost:8080/jwks"), Some(KeyPlace::Web(_))));
        assert_eq!((read("http://id.example/jwks"), read("ftp://x/")), (None, None));
    }
}
