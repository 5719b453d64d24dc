//! Tokens that are valid, and every way in which one is not.

use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair, KeyPair};
use serde_json::json;

use super::*;

const NOW: u64 = 1_800_000_000;
const SECRET: &[u8; 32] = b"0123456789abcdef0123456789abcdef";

/// A key of RSA that was made for this test, and a token of ann's that it signed.
const RSA_N: &str = "p5gZHnCpaYCED9SQTLDU2JmC9hPnkrozgSy7NHTHnJMDUcobFOteHjRSY3AJOyqLuSc88MPNH0QP3JF0Vx-raf9A_lhRJXpW2Kgm2vF7N-IBsqf1y2vkrHbgK9JGPJClFC857UsmsaKy6N2_R4G0ho9wqJEOAx4HSdHrXjsAUiQRAOhOrh5ko1_4JhbY1C8Y9CNWL8Aelcm9MCwTbQmOPRog9KUACry2nnPRGnf8NpuwZKxtk_YZuEtckwpLBBXjq_dW28iqEkE1He5BWaf4PejReR69LgpLnZHPQcPYW98xeUOLrIRN50GsMKXGx8_YPggYru_Xsd0YXa9FXMgDnQ";
const RSA_TOKEN: &str = "eyJhbGciOiJSUzI1NiIsImtpZCI6InIifQ.eyJzdWIiOiJhbm4iLCJleHAiOjQxMDI0NDQ4MDB9.n9dVgHoSUhaJZHxprG-muCUDlhS9dz1_3dgCpmapkPnNaM9MqmppQBldTlqxWFvZVpBa3nSe9LS9P35CMs_cekOyC52DiCzTHX8WoGWGTxUvLwZ_2khdNC9HfMxfrJ6IVk3Y4c88bFgUf_o1Hp5adVyaZOBuChajxOWEOg8vDiVWWnhNSarBGDK33KOjvL6lTtPEtvpdtFTBvHaZSVoIdol69G54y26jIKtb7acqyYGK9CbIgtt1-szb814u58PAyGaClrIApfsvHMnxGxxeUpe4R1TUOkSZoq_6R7ZCyttRk_qrTs8pYB4GFN_i-qK-1Xwivb8GizQLv2Q-Yn3vXQ";

/// Who makes tokens.
struct Mint {
    ed: Ed25519KeyPair,
    ec: EcdsaKeyPair,
    random: SystemRandom,
}

impl Mint {
    fn new() -> Self {
        let random = SystemRandom::new();
        let ed = Ed25519KeyPair::generate_pkcs8(&random).unwrap();
        let ec = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &random).unwrap();
        let ec = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, ec.as_ref(), &random).unwrap();
        Self { ed: Ed25519KeyPair::from_pkcs8(ed.as_ref()).unwrap(), ec, random }
    }

    fn set(&self) -> String {
        let point = self.ec.public_key().as_ref();
        json!({ "keys": [
            { "kty": "OKP", "crv": "Ed25519", "kid": "e", "use": "sig", "x": text(self.ed.public_key().as_ref()) },
            { "kty": "EC", "crv": "P-256", "kid": "p", "x": text(&point[1..33]), "y": text(&point[33..]) },
            { "kty": "RSA", "kid": "r", "alg": "RS256", "n": RSA_N, "e": "AQAB" },
            { "kty": "oct", "kid": "o", "k": text(SECRET) },
            { "kty": "RSA", "kid": "other", "use": "enc", "n": RSA_N, "e": "AQAB" },
        ]})
        .to_string()
    }

    fn keys(&self) -> KeySet {
        KeySet::parse(&self.set()).unwrap()
    }

    /// Signed by the algorithm that its header names, with these bytes as they are.
    fn sign(&self, header: &str, payload: &str) -> String {
        let signed = format!("{}.{}", text(header.as_bytes()), text(payload.as_bytes()));
        let alg = serde_json::from_str::<serde_json::Value>(header).unwrap()["alg"].as_str().unwrap().to_owned();
        let made = match alg.as_str() {
            "EdDSA" => self.ed.sign(signed.as_bytes()).as_ref().to_vec(),
            "ES256" => self.ec.sign(&self.random, signed.as_bytes()).unwrap().as_ref().to_vec(),
            "HS256" => hs256(SECRET, &signed),
            _ => Vec::new(),
        };
        format!("{signed}.{}", text(&made))
    }

    fn token(&self, claims: &serde_json::Value) -> String {
        self.sign(r#"{"alg":"EdDSA","kid":"e"}"#, &claims.to_string())
    }
}

fn text(bytes: &[u8]) -> String {
    Base64UrlUnpadded::encode_string(bytes)
}

fn hs256(secret: &[u8], signed: &str) -> Vec<u8> {
    ring::hmac::sign(&ring::hmac::Key::new(ring::hmac::HMAC_SHA256, secret), signed.as_bytes()).as_ref().to_vec()
}

fn rules() -> TokenRules {
    TokenRules {
        issuer: Some("https://id.example".into()),
        audience: vec!["tidegate".into()],
        roles_claim: Some("realm.roles".into()),
        ..TokenRules::default()
    }
}

fn good() -> serde_json::Value {
    json!({ "sub": "ann", "iss": "https://id.example", "aud": ["other", "tidegate"], "exp": NOW + 60, "nbf": NOW,
            "realm": { "roles": ["sensor", "monitor"] } })
}

fn with(name: &str, value: serde_json::Value) -> serde_json::Value {
    let mut claims = good();
    claims[name] = value;
    claims
}

fn judged(mint: &Mint, token: &str) -> Result<TokenGrant, TokenFault> {
    verify(token.as_bytes(), None, &mint.keys(), &rules(), NOW)
}

#[test]
fn a_token_says_whose_it_is_what_it_may_and_for_how_long() {
    let mint = Mint::new();
    for header in [r#"{"alg":"EdDSA","kid":"e"}"#, r#"{"alg":"ES256","kid":"p"}"#, r#"{"alg":"EdDSA"}"#] {
        let grant = judged(&mint, &mint.sign(header, &good().to_string())).unwrap();
        let roles: Vec<&str> = grant.roles.iter().map(|role| &**role).collect();
        assert_eq!((&*grant.user, roles, grant.seconds_left), ("ann", vec!["sensor", "monitor"], 90), "{header}");
    }
    let plain = TokenRules::default();
    assert_eq!(&*verify(RSA_TOKEN.as_bytes(), Some(""), &mint.keys(), &plain, NOW).unwrap().user, "ann");
    let scope = TokenRules { roles_claim: Some("scope".into()), ..rules() };
    let token = mint.token(&with("scope", json!("read write")));
    assert_eq!(verify(token.as_bytes(), Some("ann"), &mint.keys(), &scope, NOW).unwrap().roles.len(), 2);
}

#[test]
fn claims_that_rules_speak_of_come_along_and_no_others() {
    let mint = Mint::new();
    let wants = ["site", "org.line", "missing", "list", "long", "nul"].map(str::to_owned).to_vec();
    let wanting = TokenRules { claims: wants, ..rules() };
    let mut claims = with("site", json!("north"));
    claims["org"] = json!({ "line": 7 });
    (claims["list"], claims["other"]) = (json!(["north", "south"]), json!("unasked"));
    (claims["long"], claims["nul"]) = (json!("x".repeat(257)), json!("a\u{0}b"));
    let grant = verify(mint.token(&claims).as_bytes(), None, &mint.keys(), &wanting, NOW).unwrap();
    let found: Vec<(String, String)> =
        grant.claims.unwrap().iter().map(|(name, value)| (name.to_string(), value.to_string())).collect();
    // What cannot be compared is there and is nothing, so that no denying rule takes it for missing.
    let expected = [("site", "north"), ("org.line", "7"), ("list", ""), ("long", ""), ("nul", "")];
    assert_eq!(found, expected.map(|(name, value)| (name.to_owned(), value.to_owned())));
    assert_eq!(judged(&mint, &mint.token(&claims)).unwrap().claims, None, "where no rule asks");
    // Somebody who writes another site into a token of its own has changed what was signed.
    let (head, rest) = mint.token(&claims).split_once('.').map(|(a, b)| (a.to_owned(), b.to_owned())).unwrap();
    let signature = rest.split_once('.').unwrap().1.to_owned();
    claims["site"] = json!("south");
    let forged = format!("{head}.{}.{signature}", text(claims.to_string().as_bytes()));
    assert_eq!(verify(forged.as_bytes(), None, &mint.keys(), &wanting, NOW), Err(TokenFault::Signature));
}

#[test]
fn an_unsigned_token_is_refused_however_none_is_written() {
    let mint = Mint::new();
    for alg in ["none", "None", "NONE", "", "HS512", "RS1"] {
        let token = mint.sign(&json!({ "alg": alg, "kid": "e" }).to_string(), &good().to_string());
        assert_eq!(judged(&mint, &token), Err(TokenFault::Algorithm), "{alg}");
        let bare = format!("{}.", token.rsplit_once('.').unwrap().0);
        assert_eq!(judged(&mint, &bare), Err(TokenFault::Algorithm), "{alg}");
    }
}

#[test]
fn a_public_key_is_never_a_secret() {
    let mint = Mint::new();
    let keys = mint.keys();
    let modulus = Base64UrlUnpadded::decode_vec(RSA_N).unwrap();
    let point = mint.ec.public_key().as_ref().to_vec();
    for (kid, secret) in
        [("r", modulus), ("r", RSA_N.into()), ("p", point), ("o", SECRET.to_vec()), ("r", mint.set().into())]
    {
        let signed = format!(
            "{}.{}",
            text(json!({ "alg": "HS256", "kid": kid }).to_string().as_bytes()),
            text(good().to_string().as_bytes())
        );
        let token = format!("{signed}.{}", text(&hs256(&secret, &signed)));
        assert_eq!(verify(token.as_bytes(), None, &keys, &rules(), NOW), Err(TokenFault::Algorithm), "{kid}");
        // Where there is a secret, it is the one that was configured.
        let other = keys.clone().with_secret(b"another secret of thirty-two bytes").unwrap();
        assert_eq!(verify(token.as_bytes(), None, &other, &rules(), NOW), Err(TokenFault::Signature), "{kid}");
    }
}

#[test]
fn a_secret_is_taken_where_it_is_configured_and_long_enough() {
    let mint = Mint::new();
    let token = mint.sign(r#"{"alg":"HS256"}"#, &good().to_string());
    let keys = KeySet::default().with_secret(SECRET).unwrap();
    assert!(verify(token.as_bytes(), None, &keys, &rules(), NOW).is_ok());
    assert_eq!(KeySet::default().with_secret(b"short").unwrap_err(), KeyFault::SecretTooShort);
    assert_eq!(judged(&mint, &token), Err(TokenFault::Algorithm), "one in a public set is none");
}

#[test]
fn what_a_key_did_not_sign_is_refused() {
    let (mint, other) = (Mint::new(), Mint::new());
    assert_eq!(judged(&mint, &other.token(&good())), Err(TokenFault::Signature));
    let (ours, theirs) = (mint.token(&good()), mint.token(&with("sub", json!("admin"))));
    let (head, made) = (theirs.rsplit_once('.').unwrap().0, ours.rsplit_once('.').unwrap().1);
    assert_eq!(judged(&mint, &format!("{head}.{made}")), Err(TokenFault::Signature), "another's claims");
    let swapped = mint.sign(r#"{"alg":"EdDSA","kid":"e"}"#, &good().to_string()).replacen(
        &text(br#"{"alg":"EdDSA","kid":"e"}"#),
        &text(br#"{"alg":"ES256","kid":"p"}"#),
        1,
    );
    assert_eq!(judged(&mint, &swapped), Err(TokenFault::Signature), "another algorithm");
    let zeros = format!("{head}.{}", text(&[0; 64]));
    assert_eq!(judged(&mint, &zeros), Err(TokenFault::Signature));
}

#[test]
fn claims_are_in_order_or_the_token_is_refused() {
    let mint = Mint::new();
    for (name, value, fault) in [
        ("exp", json!(NOW - 31), TokenFault::Expired),
        ("exp", json!("tomorrow"), TokenFault::Claim),
        ("exp", json!(-1), TokenFault::Claim),
        ("exp", serde_json::Value::Null, TokenFault::Claim),
        ("nbf", json!(NOW + 31), TokenFault::NotYet),
        ("iat", json!(NOW + 31), TokenFault::NotYet),
        ("iss", json!("https://id.example.evil"), TokenFault::Issuer),
        ("iss", json!(["https://id.example"]), TokenFault::Issuer),
        ("aud", json!("tidegate2"), TokenFault::Audience),
        ("aud", json!([]), TokenFault::Audience),
        ("aud", serde_json::Value::Null, TokenFault::Audience),
        ("sub", json!(""), TokenFault::User),
        ("sub", json!(7), TokenFault::User),
        ("sub", json!("a\u{0}b"), TokenFault::User),
        ("sub", json!("x".repeat(300)), TokenFault::User),
        ("realm", json!({ "roles": [7] }), TokenFault::Claim),
        ("realm", json!({ "roles": ["a,b"] }), TokenFault::Claim),
        ("realm", json!({ "roles": vec!["r"; 33] }), TokenFault::Claim),
    ] {
        assert_eq!(judged(&mint, &mint.token(&with(name, value.clone()))), Err(fault), "{name} {value}");
    }
    let mut endless = good();
    endless.as_object_mut().unwrap().remove("exp");
    assert_eq!(judged(&mint, &mint.token(&endless)), Err(TokenFault::Claim), "no end");
    assert!(judged(&mint, &mint.token(&with("exp", json!(NOW - 29)))).is_ok(), "clocks may differ by the leeway");
}

#[test]
fn the_name_of_the_client_is_that_of_the_token_or_none() {
    let mint = Mint::new();
    let token = mint.token(&good());
    let as_name = |name| verify(token.as_bytes(), name, &mint.keys(), &rules(), NOW).map(|grant| grant.user);
    assert_eq!(
        (as_name(None), as_name(Some("")), as_name(Some("ann"))),
        (Ok("ann".into()), Ok("ann".into()), Ok("ann".into()))
    );
    assert_eq!(as_name(Some("bob")), Err(TokenFault::User));
}

#[test]
fn an_unknown_key_is_told_from_a_wrong_signature() {
    let mint = Mint::new();
    let of = |header: &str| judged(&mint, &mint.sign(header, &good().to_string()));
    assert_eq!(of(r#"{"alg":"EdDSA","kid":"new"}"#), Err(TokenFault::UnknownKey));
    assert_eq!(of(r#"{"alg":"EdDSA","kid":7}"#), Err(TokenFault::Header));
    assert_eq!(of(r#"{"alg":"EdDSA","kid":"e","crit":["exp"]}"#), Err(TokenFault::Header));
}

#[test]
fn a_claim_that_stands_twice_is_refused_however_deep() {
    let mint = Mint::new();
    let twice = good().to_string().replacen('{', r#"{"sub":"admin","#, 1);
    assert_eq!(judged(&mint, &mint.sign(r#"{"alg":"EdDSA","kid":"e"}"#, &twice)), Err(TokenFault::Twice));
    let deep = good().to_string().replacen(r#""roles":"#, r#""roles":["admin"],"roles":"#, 1);
    assert_eq!(judged(&mint, &mint.sign(r#"{"alg":"EdDSA","kid":"e"}"#, &deep)), Err(TokenFault::Twice));
    let header = mint.sign(r#"{"alg":"EdDSA","kid":"e"}"#, &good().to_string());
    let doubled =
        header.replacen(&text(br#"{"alg":"EdDSA","kid":"e"}"#), &text(br#"{"alg":"none","alg":"EdDSA","kid":"e"}"#), 1);
    assert_eq!(judged(&mint, &doubled), Err(TokenFault::Twice));
}

#[test]
fn what_is_huge_or_no_token_costs_nothing() {
    let mint = Mint::new();
    let huge = mint.token(&with("more", json!("x".repeat(9000))));
    assert_eq!(judged(&mint, &huge), Err(TokenFault::TooLong));
    for token in
        ["", ".", "..", "a.b", "eyJ.eyJ.eyJ", "eyJ.é.x", "eyJhbGciOiJub25lIn0=.e30=.", "e30.e30.e30.e30", "W10.e30.e30"]
    {
        assert!(judged(&mint, token).is_err(), "{token}");
    }
    assert!(
        looks_like_token(mint.token(&good()).as_bytes())
            && !looks_like_token(b"eyJ secret")
            && !looks_like_token(b"a.b.c")
    );
    let deep = format!("{}1{}", "[".repeat(4000), "]".repeat(4000));
    let nested =
        mint.sign(r#"{"alg":"EdDSA","kid":"e"}"#, &good().to_string().replacen('{', &format!(r#"{{"x":{deep},"#), 1));
    let rules = TokenRules { bytes_max: 60_000, ..rules() };
    assert_eq!(verify(nested.as_bytes(), None, &mint.keys(), &rules, NOW), Err(TokenFault::NotAToken));
}

#[test]
fn a_set_of_keys_is_bounded_and_says_what_is_wrong() {
    let mint = Mint::new();
    assert_eq!(mint.keys().len(), 3, "neither the secret nor the key for encryption");
    let fault = |text: &str| KeySet::parse(text).unwrap_err();
    assert!(matches!(fault("{"), KeyFault::NotJson(_)));
    assert_eq!(fault("{}"), KeyFault::NoList);
    assert_eq!(fault(r#"{"keys":[{"kty":"oct","k":"AAAA"}]}"#), KeyFault::NoneUsable);
    assert_eq!(fault(&" ".repeat(crate::limits::KEY_SET_BYTES_MAX + 1)), KeyFault::TooLong);
    let one = format!(r#"{{"kty":"RSA","n":"{RSA_N}","e":"AQAB"}}"#);
    assert_eq!(fault(&format!(r#"{{"keys":[{}]}}"#, vec![one; 65].join(","))), KeyFault::TooMany);
    let short = format!(r#"{{"keys":[{{"kty":"RSA","n":"{}","e":"AQAB"}}]}}"#, text(&[0xff; 128]));
    assert_eq!(fault(&short), KeyFault::NoneUsable, "1024 bits");
}

proptest::proptest! {
    #[test]
    fn no_bytes_make_it_stumble(bytes in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..200)) {
        let keys = KeySet::default().with_secret(SECRET).unwrap();
        let _ = verify(&bytes, None, &keys, &rules(), NOW);
        let dressed = format!("eyJhbGciOiJIUzI1NiJ9.{}.{}", text(&bytes), text(&bytes));
        proptest::prop_assert!(verify(dressed.as_bytes(), None, &keys, &rules(), NOW).is_err());
    }
}
