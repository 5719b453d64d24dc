//! From which page a browser sends a request, as far as it says, and what a page from elsewhere is answered.
//!
//! A page on any site can make its visitor's browser send requests here: by an image, a form, a script. Whatever the
//! answer is to be read by nobody, the work is done. So a request that says that it comes from another site is refused,
//! whatever its method: by `Sec-Fetch-Site`, which every browser of today sends to addresses of its own machine and by
//! TLS; by `Origin`, which comes with forms, scripts and WebSockets; by `Referer`, where there is nothing else. What is
//! no browser sends none of them and is not concerned. Pages that are welcome are told so in the words of CORS.

use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use tidegate_http::is_page_of;

use crate::access_policy::AccessPolicy;

/// Where a request comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Site {
    /// No browser, a page of ours, or an address that somebody typed.
    Own,
    /// A page that the operator has listed.
    Welcome(HeaderValue),
    /// A page from elsewhere.
    Foreign,
}

/// What a listed page may send along, and what it may read.
const ALLOWED: &str = "authorization, content-type, accept, if-none-match, pace-deadline-ms, pace-want-ms, pace-version, \
                       pace-ticket, pace-accept, pace-client, pace-class, pace-delegate";
const EXPOSED: &str = "etag, retry-after, server-timing, pace-version, pace-dbr-ms, pace-stretch, pace-interval-ms, \
                       pace-retry-after-ms, pace-queued-ms, pace-spread-ms, pace-ticket, \
                       pace-delegate, pace-partial";
/// Seconds that a browser may remember what is allowed.
const REMEMBERED: &str = "600";

impl Site {
    pub(super) fn of(headers: &HeaderMap, host: Option<&str>, policy: &dyn AccessPolicy) -> Self {
        let text = |name: HeaderName| headers.get(name).map(|value| value.to_str().unwrap_or_default());
        let origin = text(header::ORIGIN);
        if let (Some(origin), Some(value)) = (origin, headers.get(header::ORIGIN))
            && policy.is_welcome(&origin.to_ascii_lowercase())
        {
            return Self::Welcome(value.clone());
        }
        // Two of them say nothing that can be judged.
        let is_one = headers.get_all(header::ORIGIN).iter().count() <= 1;
        let is_own = |page: &str| is_page_of(page, host);
        let says_own = match text(HeaderName::from_static("sec-fetch-site")) {
            Some(site) => matches!(site, "same-origin" | "none"),
            None => text(header::REFERER).is_none_or(is_own),
        };
        if is_one && says_own && origin.is_none_or(is_own) { Self::Own } else { Self::Foreign }
    }

    /// The answer to a browser that asks before it sends what its page wants; none if it does not ask.
    pub(super) fn preflight(&self, method: &Method, headers: &HeaderMap) -> Option<Response> {
        if *method != Method::OPTIONS || !headers.contains_key(header::ACCESS_CONTROL_REQUEST_METHOD) {
            return None;
        }
        let Self::Welcome(_) = self else { return None };
        let mut response = StatusCode::NO_CONTENT.into_response();
        let words = response.headers_mut();
        for (name, value) in [
            (header::ACCESS_CONTROL_ALLOW_METHODS, "GET, HEAD, POST, PUT, DELETE"),
            (header::ACCESS_CONTROL_ALLOW_HEADERS, ALLOWED),
            (header::ACCESS_CONTROL_MAX_AGE, REMEMBERED),
        ] {
            words.insert(name, HeaderValue::from_static(value));
        }
        if headers.contains_key("access-control-request-private-network") {
            words.insert("access-control-allow-private-network", HeaderValue::from_static("true"));
        }
        Some(response)
    }

    /// Tells a browser that a listed page may read the answer.
    pub(super) fn announce(self, response: &mut Response) {
        if let Self::Welcome(origin) = self {
            let headers = response.headers_mut();
            headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin);
            headers.insert(header::ACCESS_CONTROL_EXPOSE_HEADERS, HeaderValue::from_static(EXPOSED));
            headers.append(header::VARY, HeaderValue::from_static("origin"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access_policy::{AccessMode, Checked};

    #[derive(Debug)]
    struct Lists(&'static str);

    impl AccessPolicy for Lists {
        fn rule(&self) -> AccessMode {
            AccessMode::Open
        }

        fn generation(&self) -> u64 {
            0
        }

        fn check(&self, _: String, _: Vec<u8>, _: std::net::IpAddr, _: Box<dyn FnOnce(bool) + Send>) -> Checked {
            Checked::Busy
        }

        fn is_welcome(&self, origin: &str) -> bool {
            origin == self.0
        }
    }

    fn site(pairs: &[(&'static str, &'static str)]) -> Site {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(*name, HeaderValue::from_static(value));
        }
        Site::of(&headers, Some("127.0.0.1:7878"), &Lists("https://app.example"))
    }

    #[test]
    fn who_is_no_browser_and_pages_of_ours_are_our_own() {
        for own in [
            &[][..],
            &[("sec-fetch-site", "none")],
            &[("sec-fetch-site", "same-origin"), ("origin", "http://127.0.0.1:7878")],
            &[("origin", "https://127.0.0.1:7878")],
            &[("referer", "http://127.0.0.1:7878/")],
        ] {
            assert_eq!(site(own), Site::Own, "{own:?}");
        }
    }

    #[test]
    fn pages_from_elsewhere_are_foreign_however_they_ask() {
        for foreign in [
            // An image; a form; a script; a WebSocket; a page without an origin; another port of this machine.
            &[("sec-fetch-site", "cross-site"), ("sec-fetch-mode", "no-cors"), ("sec-fetch-dest", "image")][..],
            &[("origin", "http://evil.example"), ("sec-fetch-site", "cross-site"), ("sec-fetch-mode", "navigate")],
            &[("origin", "http://evil.example")],
            &[("origin", "null")],
            &[("sec-fetch-site", "same-site")],
            &[("sec-fetch-site", "same-origin"), ("origin", "http://evil.example")],
            &[("sec-fetch-site", "cross-site"), ("origin", "http://127.0.0.1:7878")],
            &[("origin", "http://127.0.0.1:7878"), ("origin", "http://evil.example")],
            &[("referer", "http://evil.example/page")],
            &[("referer", "http://127.0.0.1:7878.evil.example/")],
        ] {
            assert_eq!(site(foreign), Site::Foreign, "{foreign:?}");
        }
    }

    #[test]
    fn a_listed_page_may_say_all_that_a_client_may_say_about_pace() {
        for name in tidegate_control::hints::Asks::NAMES {
            assert!(ALLOWED.split(", ").any(|allowed| allowed == name), "{name}");
        }
    }

    #[test]
    fn listed_pages_are_welcome_and_told_so() {
        let listed = site(&[("origin", "https://app.example"), ("sec-fetch-site", "cross-site")]);
        assert_eq!(listed, Site::Welcome(HeaderValue::from_static("https://app.example")));
        let mut headers = HeaderMap::new();
        headers.insert(header::ACCESS_CONTROL_REQUEST_METHOD, HeaderValue::from_static("POST"));
        assert!(Site::Foreign.preflight(&Method::OPTIONS, &headers).is_none());
        let mut answer = listed.preflight(&Method::OPTIONS, &headers).unwrap();
        listed.announce(&mut answer);
        assert_eq!(answer.headers()[header::ACCESS_CONTROL_ALLOW_ORIGIN], "https://app.example");
        assert_eq!(answer.status(), StatusCode::NO_CONTENT);
    }
}
