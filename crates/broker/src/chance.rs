//! Random numbers from the operating system: seeds of hash tables, and identifiers for clients that have none.

use std::fmt::Write;

use ring::rand::{SecureRandom, SystemRandom};

/// A source of random numbers.
#[derive(Clone, Debug)]
pub(crate) struct Chance(SystemRandom);

impl Chance {
    pub(crate) fn new() -> Self {
        Self(SystemRandom::new())
    }

    /// A seed.
    pub(crate) fn seed(&self) -> u64 {
        u64::from_le_bytes(self.bytes())
    }

    /// A client identifier that nobody else has and nobody guesses: 88 random bits, in 23 characters of the set that
    /// every server must accept [MQTT-3.1.3-5].
    pub(crate) fn client_id(&self) -> String {
        let mut id = String::with_capacity(23);
        id.push('t');
        for byte in self.bytes::<11>() {
            let _ = write!(id, "{byte:02x}");
        }
        id
    }

    /// A key of our own.
    pub(crate) fn secret(&self) -> [u8; 32] {
        self.bytes()
    }

    fn bytes<const N: usize>(&self) -> [u8; N] {
        let mut bytes = [0; N];
        // The kernel's source does not fail once it is there; if it does, ids collide and the second client takes over.
        if self.0.fill(&mut bytes).is_err() {
            tracing::error!(event = "random_failed", "the system gives no random numbers");
        }
        bytes
    }
}
