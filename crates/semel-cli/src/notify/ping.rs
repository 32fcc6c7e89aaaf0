//! Pings as Healthchecks and its kin take them: one when a run begins, one when it ends, so that a service can tell a
//! person about the run that never came. Best effort: a ping that does not arrive fails nothing.

use std::path::PathBuf;
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::time::Duration;

use semel_core::address::Endpoint;

use super::{Post, http, too_slow};

/// How long a ping may take, its retry included.
const IN_ALL: Duration = Duration::from_secs(5);
/// The longest text that goes with it.
const TEXT_LIMIT: usize = 1_024;

/// Whom to ping.
#[derive(Clone, Debug)]
pub(crate) struct Ping {
    pub(crate) url: Endpoint,
    /// It may be at a private address.
    pub(crate) private: bool,
    /// A file with the authorities to trust instead of those built in.
    pub(crate) authorities: Option<PathBuf>,
}

/// What a ping says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pinged {
    Start,
    Success,
    Fail,
    /// The command's own, which is not 0.
    ExitCode(u8),
}

/// A ping on its way.
#[derive(Debug)]
pub(crate) struct Pinging(Result<Receiver<Result<(), String>>, String>);

impl Ping {
    /// Send one, on a thread of its own: nothing waits for it until [`Pinging::arrived`]. The pings of one run have
    /// the same 16 bytes.
    pub(crate) fn send(&self, what: Pinged, run: [u8; 16], text: &str) -> Pinging {
        let segment = match what {
            Pinged::Start => "start".to_owned(),
            Pinged::Success => String::new(),
            Pinged::Fail => "fail".to_owned(),
            Pinged::ExitCode(code) => code.to_string(),
        };
        let post = Post {
            url: self.url.extended(&segment, &format!("rid={}", uuid(run))),
            private: self.private,
            headers: vec![("content-type", "text/plain; charset=utf-8".to_owned())],
            body: first(text, TEXT_LIMIT).as_bytes().to_vec(),
            retries: 1,
            timeout: IN_ALL,
            in_all: IN_ALL,
            authorities: self.authorities.clone(),
        };
        let (tell, told) = sync_channel(1);
        let thread = std::thread::Builder::new().name("semel-ping".into()).spawn(move || {
            let answer = http::post(&post, &http::look_up).map_err(|undelivered| undelivered.why);
            // nobody listens if it took too long
            let _ = tell.send(answer);
        });
        Pinging(thread.map(|_| told).map_err(|why| format!("no thread for it: {why}")))
    }
}

impl Pinging {
    /// Wait for it, at most as long as a ping may take; a name that nobody answers for is not waited for longer.
    pub(crate) fn arrived(self) -> Result<(), String> {
        match self.0?.recv_timeout(IN_ALL) {
            Ok(answer) => answer,
            Err(RecvTimeoutError::Timeout) => Err(too_slow(IN_ALL)),
            Err(RecvTimeoutError::Disconnected) => Err("it broke off".to_owned()),
        }
    }
}

/// These bytes as a random UUID.
fn uuid(bytes: [u8; 16]) -> String {
    const VERSION_AND_VARIANT: u128 = 0xf000_c000_0000_0000_0000;
    const RANDOM_UUID: u128 = 0x4000_8000_0000_0000_0000;
    let number = (u128::from_be_bytes(bytes) & !VERSION_AND_VARIANT) | RANDOM_UUID;
    let mut text = format!("{number:032x}");
    for at in [8, 13, 18, 23] {
        text.insert(at, '-');
    }
    text
}

/// As much of it as has so many bytes.
fn first(text: &str, most: usize) -> &str {
    let end = (0..=most.min(text.len())).rev().find(|end| text.is_char_boundary(*end));
    text.get(..end.unwrap_or(0)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_has_a_uuid() {
        assert_eq!(uuid([0; 16]), "00000000-0000-4000-8000-000000000000");
        assert_eq!(uuid([0xff; 16]), "ffffffff-ffff-4fff-bfff-ffffffffffff");
        let bytes = *b"\x12\x3e\x45\x67\xe8\x9b\x12\xd3\xa4\x56\x42\x66\x14\x17\x40\x00";
        assert_eq!(uuid(bytes), "123e4567-e89b-42d3-a456-426614174000");
    }

    #[test]
    fn a_text_is_cut_between_letters() {
        assert_eq!((first("abc", 9), first("abc", 2), first("\u{e4}\u{e4}", 3)), ("abc", "ab", "\u{e4}"));
    }
}
