//! The private unix socket of a run, over which the commands inside it reach its [desk](super::desk).
//!
//! So a nested command needs neither the store's address nor its password; a run that is stalled stalls them
//! instead of letting them through; and when the run is dead they find out at once, because nobody is there.
//!
//! ```text
//! SEMEL_RUN = <nonce>:<capability>:<path of the socket>
//! frame     = head length (u32) · body length (u32) · head (JSON) · body (bytes), little-endian
//! ```
//!
//! Who may ask: a process of the same user (by the kernel's word) that knows the capability. A frame is limited in
//! length, the connections in number, and a stranger's first word in time; a client that vanishes in the middle of a
//! step leaves it recorded as such, and one that sends rubbish is told so and dropped.
//!
//! A step keeps its connection while its command runs: that is how its end is known even if it is killed.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use semel_core::token::Nonce;

mod client;
mod server;
mod wire;

pub use client::{Client, Gone};
pub(super) use server::{Door, Service};
pub use wire::{Answer, Ask, Kind, Wrote};

/// The longest path that fits a socket's address on every system.
const PATH_LIMIT: usize = 100;

/// Where a run is reached, and the word that opens it.
#[derive(Clone, PartialEq, Eq)]
pub struct Address {
    /// The nonce of the run's grant.
    pub nonce: Nonce,
    /// What a client must say.
    pub capability: Nonce,
    /// The socket.
    pub path: PathBuf,
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // the capability is a secret
        f.debug_struct("Address")
            .field("nonce", &self.nonce)
            .field("path", &self.path)
            .finish_non_exhaustive()
    }
}

impl Address {
    /// The value of `SEMEL_RUN`.
    pub fn to_text(&self) -> OsString {
        let mut text = format!("{}:{}:", self.nonce, self.capability).into_bytes();
        text.extend_from_slice(self.path.as_os_str().as_bytes());
        OsString::from_vec(text)
    }

    /// The path of the socket in a value of `SEMEL_RUN`.
    pub fn path_in(text: &OsStr) -> Option<&Path> {
        text.as_bytes().get(66..).map(|path| Path::new(OsStr::from_bytes(path)))
    }

    /// The address that a value of `SEMEL_RUN` holds.
    pub fn parse(text: &OsStr) -> Option<Address> {
        let bytes = text.as_bytes();
        let word = |from: usize| std::str::from_utf8(bytes.get(from..from + 32)?).ok()?.parse().ok();
        let path = bytes.get(66..).filter(|path| !path.is_empty())?;
        if bytes.get(32) != Some(&b':') || bytes.get(65) != Some(&b':') {
            return None;
        }
        Some(Address { nonce: word(0)?, capability: word(33)?, path: PathBuf::from(OsStr::from_bytes(path)) })
    }
}

/// A path that fits a socket's address: a long one is reached through a descriptor of its folder, which must stay
/// open as long as the path is used.
fn short(path: &Path) -> std::io::Result<(PathBuf, Option<std::fs::File>)> {
    use std::os::fd::AsRawFd;
    if path.as_os_str().len() <= PATH_LIMIT {
        return Ok((path.to_owned(), None));
    }
    let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else {
        return Ok((path.to_owned(), None));
    };
    let folder = std::fs::File::open(folder)?;
    let short = Path::new("/proc/self/fd").join(folder.as_raw_fd().to_string()).join(name);
    Ok((short, Some(folder)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_survives_the_environment_and_keeps_its_secret() {
        let address = Address {
            nonce: Nonce::from_bytes([1; 16]),
            capability: Nonce::from_bytes([0xab; 16]),
            path: PathBuf::from(OsString::from_vec(b"/run/\xff:x/y.sock".to_vec())),
        };
        assert_eq!(Address::parse(&address.to_text()), Some(address.clone()));
        assert!(!format!("{address:?}").contains("abab"));
        let text = format!("{}:{}:/p", address.nonce, address.capability);
        for bad in ["", "x", &text[..66], &text.replace(':', ";"), &"é".repeat(60)] {
            assert_eq!(Address::parse(OsStr::new(bad)), None, "{bad}");
        }
    }
}
