//! What a request is about: topics are resources below `/topics`, and a stream of them is asked for by filters.

use crate::head::{Fault, fault};
use crate::limits::FILTERS_MAX;

/// The resource of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Resource {
    /// What there is.
    Welcome,
    /// All topics.
    Topics,
    /// One topic, or those of a filter.
    Topic(String),
    /// The server itself, or nothing that there is.
    Nothing,
}

/// What a request says behind the question mark.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Parameters {
    pub(crate) qos: Option<u8>,
    pub(crate) retain: Option<bool>,
    /// Seconds that the message may live.
    pub(crate) expiry: Option<u32>,
    pub(crate) filters: Vec<String>,
    /// While events have to wait, only the newest of each topic is wanted.
    pub(crate) wants_latest: bool,
    pub(crate) access_token: Option<String>,
    pub(crate) last_event_id: Option<String>,
}

/// Reads the target of a request.
pub(crate) fn read(target: &str) -> Result<(Resource, Parameters), Fault> {
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let resource = match path {
        "/" => Resource::Welcome,
        "/topics" | "/topics/" => Resource::Topics,
        _ => match path.strip_prefix("/topics/") {
            Some(topic) => Resource::Topic(decode(topic)?),
            None => Resource::Nothing,
        },
    };
    Ok((resource, parameters(query)?))
}

fn parameters(query: &str) -> Result<Parameters, Fault> {
    let mut all = Parameters::default();
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        let value = decode(value)?;
        match name {
            "filter" if all.filters.len() < FILTERS_MAX => all.filters.push(value),
            "filter" => return Err(fault(400, "a stream has 16 filters at most")),
            "qos" => set(&mut all.qos, Some(qos(&value)?))?,
            "retain" => set(&mut all.retain, Some(switch(&value)?))?,
            "latest" => all.wants_latest = switch(&value)?,
            "expiry" => {
                let seconds = value.parse().map_err(|_| fault(400, "expiry: a number of seconds"))?;
                set(&mut all.expiry, Some(seconds))?;
            }
            "access_token" => set(&mut all.access_token, Some(value))?,
            "last_event_id" => set(&mut all.last_event_id, Some(value))?,
            _ => {
                return Err(fault(
                    400,
                    "parameters are qos, retain, expiry, filter, latest, last_event_id, access_token",
                ));
            }
        }
    }
    Ok(all)
}

fn set<T>(field: &mut Option<T>, value: Option<T>) -> Result<(), Fault> {
    if field.is_some() {
        return Err(fault(400, "a parameter is there twice"));
    }
    *field = value;
    Ok(())
}

fn qos(value: &str) -> Result<u8, Fault> {
    match value {
        "0" => Ok(0),
        "1" => Ok(1),
        "2" => Err(fault(400, "qos: HTTP has nothing to recognise a repetition by, so there is 0 and 1")),
        _ => Err(fault(400, "qos: 0 or 1")),
    }
}

/// A parameter that is there says yes, unless it says no.
fn switch(value: &str) -> Result<bool, Fault> {
    match value {
        "" | "1" | "true" => Ok(true),
        "0" | "false" => Ok(false),
        _ => Err(fault(400, "retain and latest: 1 or 0")),
    }
}

/// Percent-encoding (RFC 3986, section 2.1). A plus is a plus: `filter=a/+/b` is what people type.
fn decode(text: &str) -> Result<String, Fault> {
    let bad = fault(400, "a percent sign is followed by two hexadecimal digits, and all of it is UTF-8");
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes().iter();
    while let Some(&byte) = rest.next() {
        bytes.push(match byte {
            b'%' => {
                let digit = |byte: Option<&u8>| byte.and_then(|byte| char::from(*byte).to_digit(16)).ok_or(bad);
                (digit(rest.next())? * 16 + digit(rest.next())?) as u8
            }
            _ => byte,
        });
    }
    String::from_utf8(bytes).map_err(|_| bad)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn paths_are_topics() {
        let resource = |target| read(target).map(|(resource, _)| resource);
        assert_eq!(resource("/"), Ok(Resource::Welcome));
        assert_eq!(resource("/topics"), Ok(Resource::Topics));
        assert_eq!(resource("/topics/a/b"), Ok(Resource::Topic("a/b".into())));
        assert_eq!(resource("/topics//a/"), Ok(Resource::Topic("/a/".into())), "levels may be empty");
        assert_eq!(resource("/topics/a%20b/%C3%A4/+/%23"), Ok(Resource::Topic("a b/ä/+/#".into())));
        assert_eq!(resource("/topic/a"), Ok(Resource::Nothing));
        assert_eq!(resource("*"), Ok(Resource::Nothing));
        for bad in ["/topics/%", "/topics/%4", "/topics/%zz", "/topics/%ff"] {
            assert_eq!(resource(bad).unwrap_err().status, 400, "{bad}");
        }
    }

    #[test]
    fn parameters_are_known_ones_once_each() {
        let (_, all) = read("/topics?filter=a/+/b&filter=c%2F%23&latest&last_event_id=x-1").unwrap();
        assert_eq!((all.filters, all.wants_latest), (vec!["a/+/b".to_owned(), "c/#".to_owned()], true));
        let (_, all) = read("/topics/a?qos=0&retain=1&expiry=60&access_token=t").unwrap();
        assert_eq!((all.qos, all.retain, all.expiry), (Some(0), Some(true), Some(60)));
        for bad in ["qos=2", "qos=x", "qos=1&qos=1", "retain=maybe", "expiry=-1", "expiry=4294967296", "colour=red"] {
            assert_eq!(read(&format!("/topics/a?{bad}")).unwrap_err().status, 400, "{bad}");
        }
        let many = "filter=a&".repeat(FILTERS_MAX + 1);
        assert_eq!(read(&format!("/topics?{many}")).unwrap_err().status, 400);
    }

    proptest! {
        #[test]
        fn what_is_encoded_is_decoded(topic in "[^\u{0}]{0,40}") {
            let encoded: Vec<String> = topic.bytes().map(|byte| format!("%{byte:02X}")).collect();
            prop_assert_eq!(decode(&encoded.concat()), Ok(topic));
        }

        #[test]
        fn no_target_makes_it_panic(target in "\\PC{0,80}") {
            let _ = read(&target);
        }
    }
}
