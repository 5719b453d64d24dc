//! What an answer of a receiver means.

use std::time::Duration;

/// What became of a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SinkVerdict {
    /// It was taken.
    Taken {
        /// So many of its messages say nothing to this receiver, and were left out.
        unmapped: usize,
    },
    /// Not now: it goes again.
    Later {
        /// When, if the receiver says so.
        after: Option<Duration>,
        /// Why, for the operator.
        why: String,
    },
    /// Something in it is not wanted, and will not be.
    Refused {
        /// Why, for the operator.
        why: String,
    },
}

impl SinkVerdict {
    /// What a status of HTTP means. Only what is said about the content is the content's fault: a wrong address, a wrong password, a
    /// moved service lose no message, they wait until the operator has mended it.
    pub fn of_status(status: u16, retry_after: Option<Duration>, words: &str) -> Self {
        let words = first_words(words);
        let why =
            if words.is_empty() { format!("it answered {status}") } else { format!("it answered {status}: {words}") };
        match status {
            200..=299 => Self::Taken { unmapped: 0 },
            400 | 413 | 415 | 422 => Self::Refused { why },
            401 | 403 | 407 => Self::Later { after: None, why: format!("{why}; is the token or the secret right?") },
            404 | 405 | 410 => Self::Later { after: None, why: format!("{why}; is the url right?") },
            300..=399 => Self::Later {
                after: None,
                why: format!("{why}; it is elsewhere, and the url is followed to nowhere else"),
            },
            _ => Self::Later { after: retry_after, why },
        }
    }
}

/// The beginning of what a stranger says, on one line.
fn first_words(text: &str) -> String {
    let plain = |letter: char| if letter.is_control() { ' ' } else { letter };
    text.trim().chars().map(plain).take(160).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_said_about_the_content_loses_it() {
        let of = |status| SinkVerdict::of_status(status, Some(Duration::from_secs(3)), "no\r\nway");
        for status in [200, 201, 202, 204] {
            assert_eq!(of(status), SinkVerdict::Taken { unmapped: 0 });
        }
        for status in [400, 413, 415, 422] {
            assert_eq!(of(status), SinkVerdict::Refused { why: format!("it answered {status}: no  way") });
        }
        for status in [100, 301, 308, 401, 403, 404, 405, 407, 408, 410, 418, 425, 429, 451, 500, 502, 503, 504, 599] {
            assert!(matches!(of(status), SinkVerdict::Later { .. }), "{status}");
        }
        for status in [429, 503] {
            assert!(matches!(of(status), SinkVerdict::Later { after: Some(_), .. }), "{status}");
        }
    }
}
