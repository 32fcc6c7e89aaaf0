//! The nested command's side: blocking, because a stalled run must stall it.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;

use super::wire::{LENGTHS, Request, VERSION, frame, lengths};
use super::{Address, Answer, Ask, short};

/// The run is gone, or does not speak our language: nothing may be done in its name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the run it belongs to is gone: {0}")]
pub struct Gone(String);

/// A connection to the run that this process belongs to.
#[derive(Debug)]
pub struct Client {
    stream: UnixStream,
    address: Address,
}

impl Client {
    /// Connect. Waits while the run is stalled.
    pub fn connect(address: Address) -> Result<Client, Gone> {
        let connected = short(&address.path).and_then(|(path, _folder)| UnixStream::connect(path));
        let stream = connected.map_err(|why| Gone(why.to_string()))?;
        Ok(Client { stream, address })
    }

    /// Ask, and wait for the answer. Waits while the run is stalled; ends at once when it dies.
    pub fn ask(&mut self, ask: &Ask, body: &[u8]) -> Result<(Answer, Vec<u8>), Gone> {
        let request = Request { v: VERSION, capability: self.address.capability, ask: ask.clone() };
        let frame = frame(&request, body).ok_or_else(|| Gone("the question is too long for it".into()))?;
        self.exchange(&frame).map_err(|why| {
            let ended = why.kind() == std::io::ErrorKind::UnexpectedEof;
            Gone(if ended { "it ended without an answer".into() } else { why.to_string() })
        })
    }

    fn exchange(&mut self, frame: &[u8]) -> std::io::Result<(Answer, Vec<u8>)> {
        let strange = |why: &str| std::io::Error::new(std::io::ErrorKind::InvalidData, why.to_owned());
        self.stream.write_all(frame)?;
        let mut size = [0; LENGTHS];
        self.stream.read_exact(&mut size)?;
        let (head_length, body_length) = lengths(size).ok_or_else(|| strange("its answer is too long"))?;
        let mut head = vec![0; head_length];
        self.stream.read_exact(&mut head)?;
        let mut body = vec![0; body_length];
        self.stream.read_exact(&mut body)?;
        let answer = serde_json::from_slice(&head)
            .map_err(|_| strange("its answer makes no sense; is it another version of semel?"))?;
        Ok((answer, body))
    }
}
