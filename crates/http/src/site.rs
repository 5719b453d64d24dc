//! Names and pages that are ours. A name that anybody can point at this machine must not make a browser talk to us (DNS
//! rebinding), and a page of another site must not make it either.

use std::net::IpAddr;

use axum::http::{HeaderMap, header};

/// The `Host` of a request.
pub fn host(headers: &HeaderMap) -> Option<&str> {
    headers.get(header::HOST).and_then(|host| host.to_str().ok())
}

/// Whether a `Host` names this machine in a way that nobody else can arrange.
pub fn is_this_machine(host: &str) -> bool {
    let name = match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => host.split(':').next().unwrap_or_default(),
    };
    name.eq_ignore_ascii_case("localhost") || name.parse::<IpAddr>().is_ok()
}

/// Whether a page's address, or its origin, is of the host that the request was sent to.
pub fn is_page_of(page: &str, host: Option<&str>) -> bool {
    let from = page.strip_prefix("http://").or_else(|| page.strip_prefix("https://"));
    let from = from.map(|rest| rest.split('/').next().unwrap_or_default());
    from.zip(host).is_some_and(|(from, host)| from.eq_ignore_ascii_case(host))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn f086_only_names_that_nobody_else_can_arrange_are_this_machine() {
        for here in ["localhost", "LOCALHOST:18830", "127.0.0.1:18830", "[::1]:18830", "[::1]", "10.0.0.7:80"] {
            assert!(is_this_machine(here), "{here}");
        }
        for elsewhere in ["evil.example", "evil.example:18830", "localhost.evil.example", "127.0.0.1.nip.io", "", "[x]"]
        {
            assert!(!is_this_machine(elsewhere), "{elsewhere}");
        }
    }

    #[test]
    fn a_page_is_ours_if_it_is_of_the_host_that_was_asked() {
        let host = Some("127.0.0.1:7878");
        assert!(is_page_of("http://127.0.0.1:7878", host) && is_page_of("https://127.0.0.1:7878/page", host));
        for other in ["http://evil.example", "null", "http://127.0.0.1:7878.evil.example/", "127.0.0.1:7878", ""] {
            assert!(!is_page_of(other, host), "{other}");
        }
        assert!(!is_page_of("http://127.0.0.1:7878", None));
    }
}
