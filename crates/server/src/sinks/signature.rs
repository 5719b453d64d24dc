//! The signature of a request, as the Standard Webhooks specification has it: HMAC-SHA256 over its number, its time and its body.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use ring::hmac;

/// What a secret begins with that is written in base64.
const CODED: &str = "whsec_";

/// The key that a secret stands for.
pub(super) fn key_of(secret: &str) -> hmac::Key {
    let coded = secret.strip_prefix(CODED).and_then(|text| STANDARD.decode(text).ok());
    hmac::Key::new(hmac::HMAC_SHA256, &coded.unwrap_or_else(|| secret.as_bytes().to_vec()))
}

/// The field `webhook-signature`.
pub(super) fn sign(key: &hmac::Key, id: &str, seconds: u64, body: &[u8]) -> String {
    let mut context = hmac::Context::with_key(key);
    context.update(format!("{id}.{seconds}.").as_bytes());
    context.update(body);
    format!("v1,{}", STANDARD.encode(context.sign()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signature_is_what_the_specification_shows() {
        // The example of the specification.
        let key = key_of("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw");
        let signature = sign(&key, "msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, br#"{"test": 2432232314}"#);
        assert_eq!(signature, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
    }

    #[test]
    fn a_plain_secret_is_its_letters() {
        let signature = sign(&key_of("plain"), "a", 1, b"");
        assert_ne!(signature, sign(&key_of("whsec_cGxhaW4x"), "a", 1, b""));
        assert_eq!(signature, sign(&key_of("whsec_cGxhaW4="), "a", 1, b""));
    }
}
