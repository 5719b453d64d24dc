//! Text files, read without trust: bounded bytes, bounded lines, all errors together.
//!
//! Knows nothing of what the lines mean. [`read`] takes any reader, so that whoever opens the file (and decides about
//! links and owners) is somebody else. CRLF ends a line as LF does: a file edited elsewhere must not mean something else.

use std::io::Read;

use crate::fault::{FileError, FileFault};
use crate::limits::{ERRORS_MAX, FILE_BYTES_MAX, LINE_BYTES_MAX, NAME_BYTES_MAX};

/// Read a whole password or ACL file as text: at most [`FILE_BYTES_MAX`] bytes are taken from the reader, plus one to see
/// that there are more.
pub fn read(from: impl Read) -> Result<String, Vec<FileError>> {
    let mut bytes = Vec::new();
    if let Err(error) = from.take(FILE_BYTES_MAX as u64 + 1).read_to_end(&mut bytes) {
        return Err(vec![FileError { line: 0, what: FileFault::Unreadable(error.to_string()) }]);
    }
    if bytes.len() > FILE_BYTES_MAX {
        return Err(vec![FileError { line: 0, what: FileFault::FileTooLong }]);
    }
    String::from_utf8(bytes).map_err(|error| {
        let good = &error.as_bytes()[..error.utf8_error().valid_up_to()];
        let line = good.split(|&byte| byte == b'\n').count();
        vec![FileError { line, what: FileFault::NotUtf8 }]
    })
}

/// What is wrong with a file so far.
#[derive(Debug, Default)]
pub(crate) struct Errors(Vec<FileError>);

impl Errors {
    /// Take note; past [`ERRORS_MAX`] only that there are more.
    pub(crate) fn push(&mut self, line: usize, what: FileFault) {
        if self.0.len() < ERRORS_MAX {
            self.0.push(FileError { line, what });
        } else if self.0.len() == ERRORS_MAX {
            self.0.push(FileError { line, what: FileFault::AndMore });
        }
    }

    /// The value, if nothing was wrong.
    pub(crate) fn or<T>(self, value: T) -> Result<T, Vec<FileError>> {
        if self.0.is_empty() { Ok(value) } else { Err(self.0) }
    }
}

/// Hand each line with its number to `each`, without its end. Lines that are too long or hold control characters (a tab
/// is none) are noted as errors instead.
pub(crate) fn lines<'a>(
    text: &'a str,
    errors: &mut Errors,
    mut each: impl FnMut(usize, &'a str) -> Result<(), FileFault>,
) {
    if text.len() > FILE_BYTES_MAX {
        return errors.push(0, FileFault::FileTooLong);
    }
    // A byte order mark is what some editors put first; as part of the first name it would lock a user out silently.
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    for (index, line) in text.lines().enumerate() {
        let checked = if line.len() > LINE_BYTES_MAX {
            Err(FileFault::LineTooLong)
        } else if line.chars().any(|c| c.is_control() && c != '\t') {
            Err(FileFault::ControlCharacter)
        } else {
            each(index + 1, line)
        };
        if let Err(what) = checked {
            errors.push(index + 1, what);
        }
    }
}

/// True for what may be the name of a user or a role in a file: it survives being written and read.
pub(crate) fn is_name(name: &str) -> bool {
    is_principal(name) && !name.contains(':') && !name.starts_with('#') && name.trim() == name
}

/// True for what may be the name of a user at all, from a certificate for example, where colons are common.
pub(crate) fn is_principal(name: &str) -> bool {
    (1..=NAME_BYTES_MAX).contains(&name.len()) && !name.chars().any(char::is_control)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn f071_an_endless_file_is_refused_after_the_limit() {
        let errors = read(std::io::repeat(b'a')).unwrap_err();
        assert_eq!(errors, [FileError { line: 0, what: FileFault::FileTooLong }]);
    }

    #[test]
    fn f071_bytes_that_are_not_text_are_an_error_with_its_line() {
        let errors = read(&b"one\ntwo\nth\xffee\n"[..]).unwrap_err();
        assert_eq!(errors, [FileError { line: 3, what: FileFault::NotUtf8 }]);
    }

    #[test]
    fn f072_a_reader_that_fails_is_an_error_and_not_an_empty_file() {
        struct Broken;
        impl Read for Broken {
            fn read(&mut self, _: &mut [u8]) -> std::io::Result<usize> {
                Err(std::io::Error::other("is a directory"))
            }
        }
        assert_eq!(
            read(Broken).unwrap_err(),
            [FileError { line: 0, what: FileFault::Unreadable("is a directory".into()) }]
        );
    }

    #[test]
    fn errors_are_listed_up_to_a_limit() {
        let mut errors = Errors::default();
        for line in 1..1000 {
            errors.push(line, FileFault::NameMissing);
        }
        let errors = errors.or(()).unwrap_err();
        assert_eq!(errors.len(), ERRORS_MAX + 1);
        assert_eq!(errors[ERRORS_MAX].what, FileFault::AndMore);
    }
}
