//! The named scenarios that come with the program.

use super::{Problem, Scenario};

macro_rules! book {
    ($($name:literal),+ $(,)?) => {
        /// Name and text, in the order of the report.
        pub const BOOK: &[(&str, &str)] = &[$(($name, include_str!(concat!("../../scenarios/", $name, ".toml")))),+];
    };
}

book!["e1-overload"];

/// A scenario of the book by its name.
pub fn named(name: &str) -> Option<Result<Scenario, Vec<Problem>>> {
    let (name, text) = BOOK.iter().find(|(known, _)| *known == name)?;
    Some(Scenario::read(name, text))
}
