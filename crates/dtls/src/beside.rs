//! What dimpl asks of its surroundings, and cannot be told by an argument: whether a cookie is right, and which key somebody has.
//!
//! dimpl makes cookies with a secret of one session, so it knows no cookie that was given before there was one. It computes
//! them with the HMAC that it is handed, though, and while a hello is read nothing else is computed by that: so for as long
//! as a hello is read, the HMAC of this thread says what the cookie of that hello says, which was checked before. And the name of
//! somebody with a key is told only to whoever looks the key up: it is put down here, and taken up by the session it belongs to.

use std::cell::{Cell, RefCell};

use dimpl::CryptoError;
use dimpl::crypto::{CryptoProvider, HashAlgorithm, HmacProvider, rust_crypto};

use crate::hello::COOKIE_BYTES;

thread_local! {
    static COOKIE: Cell<Option<[u8; COOKIE_BYTES]>> = const { Cell::new(None) };
    static IDENTITY: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Reads a hello whose cookie was found right.
pub(crate) fn with_cookie<T>(cookie: [u8; COOKIE_BYTES], read: impl FnOnce() -> T) -> T {
    /// Whatever happens, the next to compute something gets an HMAC.
    struct Unset;
    impl Drop for Unset {
        fn drop(&mut self) {
            COOKIE.set(None);
        }
    }
    COOKIE.set(Some(cookie));
    let _unset = Unset;
    read()
}

/// Whose key was looked up.
pub(crate) fn put_identity(name: &str) {
    IDENTITY.set(Some(name.to_owned()));
}

/// Whose key was looked up since somebody asked.
pub(crate) fn take_identity() -> Option<String> {
    IDENTITY.take()
}

/// RustCrypto's, with that HMAC.
pub(crate) fn provider() -> CryptoProvider {
    CryptoProvider { hmac_provider: &CookieHmac, ..rust_crypto::default_provider() }
}

#[derive(Debug)]
struct CookieHmac;

impl HmacProvider for CookieHmac {
    fn hmac(&self, hash: HashAlgorithm, key: &[u8], data: &[u8], out: &mut [u8]) -> Result<usize, CryptoError> {
        let room = out.first_chunk_mut::<COOKIE_BYTES>().filter(|_| hash == HashAlgorithm::SHA256);
        if let Some((cookie, room)) = COOKIE.get().zip(room) {
            *room = cookie;
            return Ok(COOKIE_BYTES);
        }
        rust_crypto::default_provider().hmac_provider.hmac(hash, key, data, out)
    }
}
