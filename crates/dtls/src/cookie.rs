//! The proof that somebody receives at the address that it sends from: a value that only we can make, for this address, this
//! hello and this minute. Nothing is remembered of whom it was given to.

use std::net::{IpAddr, SocketAddr};

use ring::hmac;
use tidegate_control::Timestamp;

use crate::hello::{COOKIE_BYTES, Hello};
use crate::limits::COOKIE_PERIOD;

/// What cookies are made with; drawn at each start.
#[derive(Debug)]
pub(crate) struct CookieKey(hmac::Key);

impl CookieKey {
    pub(crate) fn new(secret: &[u8; 32]) -> Self {
        Self(hmac::Key::new(hmac::HMAC_SHA256, secret))
    }

    /// A cookie for this hello.
    pub(crate) fn value(&self, hello: &Hello<'_>, from: SocketAddr, now: Timestamp) -> [u8; COOKIE_BYTES] {
        let mut cookie = [0; COOKIE_BYTES];
        cookie.copy_from_slice(hmac::sign(&self.0, &text(hello, from, period(now))).as_ref());
        cookie
    }

    /// The cookie of this hello, if it is one that its sender was given a moment ago.
    pub(crate) fn proof(&self, hello: &Hello<'_>, from: SocketAddr, now: Timestamp) -> Option<[u8; COOKIE_BYTES]> {
        let cookie = hello.cookie.try_into().ok()?;
        let is_of = |period: u64| hmac::verify(&self.0, &text(hello, from, period), hello.cookie).is_ok();
        let period = period(now);
        (is_of(period) || period.checked_sub(1).is_some_and(is_of)).then_some(cookie)
    }
}

fn text(hello: &Hello<'_>, from: SocketAddr, period: u64) -> Vec<u8> {
    let mut text = period.to_be_bytes().to_vec();
    match from.ip() {
        IpAddr::V4(ip) => text.extend_from_slice(&ip.octets()),
        IpAddr::V6(ip) => text.extend_from_slice(&ip.octets()),
    }
    text.extend_from_slice(&from.port().to_be_bytes());
    for part in hello.parameters() {
        text.extend_from_slice(part);
    }
    text
}

fn period(now: Timestamp) -> u64 {
    now.as_nanos() / COOKIE_PERIOD.as_nanos() as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hello::{Opening, read, tests::hello};
    use std::time::Duration;

    #[test]
    fn a_cookie_is_good_for_its_address_and_for_a_while() {
        let key = CookieKey::new(&[1; 32]);
        let (here, there) = ("192.0.2.1:5684".parse().unwrap(), "192.0.2.1:5685".parse().unwrap());
        let now = Timestamp::ZERO + Duration::from_secs(90);
        let first = hello(&[], 0);
        let Opening::Hello(first) = read(&first) else { panic!() };
        let cookie = key.value(&first, here, now);
        let again = hello(&cookie, 1);
        let Opening::Hello(again) = read(&again) else { panic!() };
        assert_eq!(key.proof(&again, here, now + Duration::from_secs(60)), Some(cookie));
        assert_eq!(key.proof(&again, there, now), None);
        assert_eq!(key.proof(&again, here, now + Duration::from_secs(120)), None, "too old");
        assert_eq!(CookieKey::new(&[2; 32]).proof(&again, here, now), None);
        assert_eq!(key.proof(&first, here, now), None);
    }
}
