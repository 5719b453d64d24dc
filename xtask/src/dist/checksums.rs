//! `SHA256SUMS`, as `sha256sum --check` reads it.

use std::fmt::Write;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use super::Failure;

/// Writes the sums of these files, which are all in that folder.
pub(super) fn write(out: &Path, files: &[PathBuf]) -> Result<PathBuf, Failure> {
    let mut text = String::new();
    for file in files {
        let bytes = std::fs::read(file).map_err(|error| format!("{}: {error}", file.display()))?;
        let name = file.file_name().unwrap_or_default().to_string_lossy();
        let _ = writeln!(text, "{}  {name}", hex(&Sha256::digest(bytes)));
    }
    let sums = out.join("SHA256SUMS");
    std::fs::write(&sums, text).map_err(|error| format!("{}: {error}", sums.display()))?;
    Ok(sums)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}
