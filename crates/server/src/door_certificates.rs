//! The certificates of the doors with TLS beside MQTT's, of the smart space and of the admin API: the same files as those of the
//! MQTT listeners, read at the start and at a reload. Connections that exist keep what they began with.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use rustls::ServerConfig;
use tidegate_broker::config::TlsFiles;
use tidegate_broker::{certificate_name, load_certificates};
use tidegate_space::TlsSource;

/// What new connections are agreed on with.
#[derive(Debug)]
pub struct DoorCertificates(Mutex<Arc<ServerConfig>>);

impl DoorCertificates {
    /// Those of these files.
    pub fn load(files: &TlsFiles) -> io::Result<Self> {
        Ok(Self(Mutex::new(load_certificates(files)?)))
    }

    /// New connections get these from now on.
    pub fn replace(&self, config: Arc<ServerConfig>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = config;
    }
}

impl TlsSource for DoorCertificates {
    fn config(&self) -> Arc<ServerConfig> {
        Arc::clone(&self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn user_of(&self, certificate: &[u8]) -> Option<String> {
        certificate_name(certificate)
    }
}
