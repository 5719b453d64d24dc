//! What a value may be: one small type per kind of setting, each with the sentence that says what is expected.
//!
//! A type reads what was written (a TOML value, or bare text from the environment or a flag) and shows itself in the
//! same form. Ranges are part of the type, so the table of keys says everything about a key. Zero is a number like any
//! other: what may be without a limit says so with the word `unlimited`.

use std::marker::PhantomData;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::units;
use crate::value::ConfigValue;

/// A kind of setting.
pub trait Setting: Sized {
    /// Reads a value; `folder` is where relative paths start.
    fn read(value: &ConfigValue, folder: Option<&Path>) -> Option<Self>;
    /// What is expected, to follow the word "expected".
    fn expected() -> String;
    /// As it would be written in the file.
    fn show(&self) -> String;
}

impl Setting for bool {
    fn read(value: &ConfigValue, _: Option<&Path>) -> Option<Self> {
        value.boolean()
    }

    fn expected() -> String {
        "true or false".to_owned()
    }

    fn show(&self) -> String {
        self.to_string()
    }
}

/// A file or folder that need not be named.
impl Setting for Option<PathBuf> {
    fn read(value: &ConfigValue, folder: Option<&Path>) -> Option<Self> {
        PathBuf::read(value, folder).map(Some)
    }

    fn expected() -> String {
        PathBuf::expected()
    }

    fn show(&self) -> String {
        self.as_ref().map_or_else(|| "unset".to_owned(), Setting::show)
    }
}

impl Setting for PathBuf {
    fn read(value: &ConfigValue, folder: Option<&Path>) -> Option<Self> {
        let text = value.text().filter(|text| !text.is_empty())?;
        // `join` with an absolute path is that path.
        Some(folder.map_or_else(|| Self::from(text), |folder| folder.join(text)))
    }

    fn expected() -> String {
        "the path of a file or folder, in quotes".to_owned()
    }

    fn show(&self) -> String {
        format!("{:?}", self.display().to_string())
    }
}

/// A whole number from `MIN` to `MAX`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WholeNumber<const MIN: u64, const MAX: u64>(pub u64);

impl<const MIN: u64, const MAX: u64> Setting for WholeNumber<MIN, MAX> {
    fn read(value: &ConfigValue, _: Option<&Path>) -> Option<Self> {
        let number = u64::try_from(value.integer()?).ok()?;
        (MIN..=MAX).contains(&number).then_some(Self(number))
    }

    fn expected() -> String {
        format!("a whole number from {MIN} to {MAX}")
    }

    fn show(&self) -> String {
        self.0.to_string()
    }
}

/// A number of bytes from `MIN` to `MAX`, with a unit; a bare number is bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size<const MIN: u64, const MAX: u64>(pub u64);

impl<const MIN: u64, const MAX: u64> Setting for Size<MIN, MAX> {
    fn read(value: &ConfigValue, _: Option<&Path>) -> Option<Self> {
        let bytes = match value.integer() {
            Some(number) => u64::try_from(number).ok()?,
            None => units::parse_size(value.text()?)?,
        };
        (MIN..=MAX).contains(&bytes).then_some(Self(bytes))
    }

    fn expected() -> String {
        let (min, max) = (units::show_size(MIN), units::show_size(MAX));
        format!("a size such as \"64KiB\", \"16MiB\" or \"1MB\", from {min} to {max}")
    }

    fn show(&self) -> String {
        format!("\"{}\"", units::show_size(self.0))
    }
}

/// A duration from `MIN` to `MAX` milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span<const MIN: u64, const MAX: u64 = FOREVER_MS>(pub Duration);

/// The most seconds that MQTT 5 can say (136 years), which it reads as "for ever" (section 3.1.2.11.2).
pub const FOREVER: Duration = Duration::from_secs(u32::MAX as u64);
const FOREVER_MS: u64 = u32::MAX as u64 * 1000;

impl<const MIN: u64, const MAX: u64> Setting for Span<MIN, MAX> {
    fn read(value: &ConfigValue, _: Option<&Path>) -> Option<Self> {
        let duration = units::parse_duration(value.text()?)?;
        (Duration::from_millis(MIN)..=Duration::from_millis(MAX)).contains(&duration).then_some(Self(duration))
    }

    fn expected() -> String {
        let bound = |millis| units::show_duration(Duration::from_millis(millis));
        let least = if MIN > 0 { format!(", at least {}", bound(MIN)) } else { String::new() };
        let most = if MAX < FOREVER_MS { format!(", at most {}", bound(MAX)) } else { String::new() };
        format!("a duration with its unit such as \"10s\", \"5m\" or \"1h30m\"{least}{most}")
    }

    fn show(&self) -> String {
        format!("\"{}\"", units::show_duration(self.0))
    }
}

/// A word that may stand instead of a value.
pub trait Word {
    /// As it is written.
    const NAME: &'static str;
}

macro_rules! words {
    ($($(#[$doc:meta])* $type:ident = $name:literal;)+) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub struct $type;

        impl Word for $type {
            const NAME: &'static str = $name;
        }
    )+};
}

words! {
    /// No limit.
    Unlimited = "unlimited";
    /// Not at all.
    Off = "off";
    /// As the rest of the configuration and the machine suggest.
    Auto = "auto";
}

/// A value, or the word that stands for none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Or<W, T> {
    /// The word.
    Word(PhantomData<W>),
    /// A value.
    Is(T),
}

impl<W, T> Or<W, T> {
    /// The word.
    pub const WORD: Self = Self::Word(PhantomData);

    /// The value, if it is not the word.
    pub fn value(self) -> Option<T> {
        match self {
            Self::Word(_) => None,
            Self::Is(value) => Some(value),
        }
    }
}

impl<W: Word, T: Setting> Setting for Or<W, T> {
    fn read(value: &ConfigValue, folder: Option<&Path>) -> Option<Self> {
        match value.text() {
            Some(text) if text == W::NAME => Some(Self::WORD),
            _ => T::read(value, folder).map(Self::Is),
        }
    }

    fn expected() -> String {
        format!("{}, or \"{}\"", T::expected(), W::NAME)
    }

    fn show(&self) -> String {
        match self {
            Self::Word(_) => format!("\"{}\"", W::NAME),
            Self::Is(value) => value.show(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Window = WholeNumber<1, 65_535>;

    #[test]
    fn numbers_are_numbers_and_inside_their_range() {
        assert_eq!(Window::read(&ConfigValue::Integer(64), None), Some(WholeNumber(64)));
        assert_eq!(Window::read(&ConfigValue::Bare("64".into()), None), Some(WholeNumber(64)));
        for bad in [
            ConfigValue::Integer(0),
            ConfigValue::Integer(-1),
            ConfigValue::Integer(65_536),
            ConfigValue::Text("64".into()),
        ] {
            assert_eq!(Window::read(&bad, None), None, "{bad}");
        }
    }

    #[test]
    fn zero_is_not_unlimited() {
        type Limit = Or<Unlimited, WholeNumber<0, 100>>;
        assert_eq!(Limit::read(&ConfigValue::Integer(0), None), Some(Or::Is(WholeNumber(0))));
        assert_eq!(Limit::read(&ConfigValue::Text("unlimited".into()), None), Some(Or::WORD));
        assert_eq!(Limit::expected(), "a whole number from 0 to 100, or \"unlimited\"");
    }

    #[test]
    fn a_duration_without_a_unit_is_refused() {
        assert_eq!(Span::<1>::read(&ConfigValue::Integer(10), None), None);
        assert_eq!(Span::<1>::read(&ConfigValue::Text("0s".into()), None), None);
        assert_eq!(Span::<0>::read(&ConfigValue::Text("0s".into()), None), Some(Span(Duration::ZERO)));
    }

    #[test]
    fn relative_paths_start_at_the_file_that_names_them() {
        let etc = Path::new("/etc/tidegate");
        let read = |text: &str, folder| PathBuf::read(&ConfigValue::Text(text.into()), folder);
        assert_eq!(read("users", Some(etc)), Some("/etc/tidegate/users".into()));
        assert_eq!(read("/srv/users", Some(etc)), Some("/srv/users".into()));
        assert_eq!(read("users", None), Some("users".into()));
    }

    #[test]
    fn what_is_shown_reads_back() {
        let shown = Size::<0, { u64::MAX }>(16 << 20).show();
        assert_eq!(shown, "\"16MiB\"");
        assert_eq!(Or::<Off, Span<1>>::WORD.show(), "\"off\"");
    }
}
