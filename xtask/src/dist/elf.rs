//! Whether a program is static: one that is not names, among its segments, the loader that has to start it.

use std::path::Path;

use super::Failure;

/// The kind of segment that names the loader (`PT_INTERP`).
const NAMES_LOADER: u64 = 3;

/// The loader that a program of 64 bits, little end first, needs; None if it is static.
pub(super) fn loader(program: &Path) -> Result<Option<String>, Failure> {
    let bytes = std::fs::read(program).map_err(|error| format!("{}: {error}", program.display()))?;
    read(&bytes).map_err(|NoProgram| format!("{} is no program of 64 bits", program.display()))
}

/// These bytes are no such program.
#[derive(Debug, PartialEq, Eq)]
struct NoProgram;

fn read(bytes: &[u8]) -> Result<Option<String>, NoProgram> {
    if !bytes.starts_with(b"\x7fELF\x02\x01") {
        return Err(NoProgram);
    }
    let (first, size, count) = (number(bytes, 0x20, 8)?, number(bytes, 0x36, 2)?, number(bytes, 0x38, 2)?);
    for segment in 0..count {
        let at = place(first.checked_add(segment * size).ok_or(NoProgram)?)?;
        if number(bytes, at, 4)? == NAMES_LOADER {
            let from = place(number(bytes, at.saturating_add(8), 8)?)?;
            let name = bytes.get(from..).and_then(|rest| rest.split(|&byte| byte == 0).next()).ok_or(NoProgram)?;
            return Ok(Some(String::from_utf8_lossy(name).into_owned()));
        }
    }
    Ok(None)
}

fn place(at: u64) -> Result<usize, NoProgram> {
    usize::try_from(at).map_err(|_| NoProgram)
}

fn number(bytes: &[u8], at: usize, length: usize) -> Result<u64, NoProgram> {
    let bytes = bytes.get(at..at.saturating_add(length)).ok_or(NoProgram)?;
    Ok(bytes.iter().rev().fold(0, |number, &byte| number << 8 | u64::from(byte)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A head with one segment of this kind, and a name behind it.
    fn program(kind: u8) -> Vec<u8> {
        let mut bytes = vec![0; 0x40 + 0x38];
        bytes[..6].copy_from_slice(b"\x7fELF\x02\x01");
        (bytes[0x20], bytes[0x36], bytes[0x38]) = (0x40, 0x38, 1);
        (bytes[0x40], bytes[0x48]) = (kind, 0x78);
        bytes.extend(b"/lib/ld.so\0rest");
        bytes
    }

    #[test]
    fn a_program_with_a_loader_is_not_static() {
        assert_eq!(read(&program(3)), Ok(Some("/lib/ld.so".to_owned())));
        assert_eq!(read(&program(1)), Ok(None));
    }

    #[test]
    fn what_is_cut_off_is_no_program() {
        let whole = program(3);
        for length in 0..0x78 {
            assert_eq!(read(&whole[..length]), Err(NoProgram), "{length}");
        }
        assert_eq!(read(b"#!/bin/sh\n"), Err(NoProgram));
    }
}
