//! A proxy that reads HTTP/2 frames. On one such connection requests overlap, and both sides speak without being asked
//! (pings, windows); so what is a request and what is its reply is read from the frames.

use std::collections::HashSet;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

const DATA: u8 = 0;
const HEADERS: u8 = 1;
/// What a client says before its first frame.
const PREFACE: usize = 24;

#[derive(Debug, Default)]
struct State {
    requests: u64,
    flights: u64,
    /// A reply has come since the last request.
    answered: bool,
    lose: Option<(Vec<u8>, u32)>,
    lost: u32,
    connections: u64,
}

/// A proxy before an etcd.
#[derive(Debug)]
pub(crate) struct Tap {
    pub(crate) address: SocketAddr,
    state: Arc<Mutex<State>>,
}

impl Tap {
    pub(crate) fn before(server: SocketAddr) -> Tap {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let state = Arc::new(Mutex::new(State { answered: true, ..State::default() }));
        let shared = Arc::clone(&state);
        std::thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                serve(client, server, &shared);
            }
        });
        Tap { address, state }
    }

    pub(crate) fn url(&self, prefix: &str) -> String {
        format!("etcd://{}/{prefix}", self.address)
    }

    /// Break the connection instead of handing on the reply to a request that holds these bytes, so many times.
    pub(crate) fn lose_replies_to(&self, containing: &[u8], times: u32) {
        self.state.lock().unwrap().lose = Some((containing.to_vec(), times));
    }

    pub(crate) fn lost(&self) -> u32 {
        self.state.lock().unwrap().lost
    }

    pub(crate) fn connections(&self) -> u64 {
        self.state.lock().unwrap().connections
    }

    /// Requests since the last time this was asked, and flights: requests that were sent before a reply came.
    pub(crate) fn counted(&self) -> (u64, u64) {
        let mut state = self.state.lock().unwrap();
        state.answered = true;
        (std::mem::take(&mut state.requests), std::mem::take(&mut state.flights))
    }
}

fn serve(client: TcpStream, server: SocketAddr, state: &Arc<Mutex<State>>) {
    let Ok(server) = TcpStream::connect(server) else { return };
    let _ = (client.set_nodelay(true), server.set_nodelay(true));
    state.lock().unwrap().connections += 1;
    let meant: Arc<Mutex<HashSet<u32>>> = Arc::default();
    let (up, down) = ((client.try_clone().unwrap(), server.try_clone().unwrap()), (server, client));
    let (asked, state_up) = (Arc::clone(&meant), Arc::clone(state));
    std::thread::spawn(move || {
        pump(up.0, up.1, PREFACE, |kind, stream, body| {
            let mut state = state_up.lock().unwrap();
            match kind {
                HEADERS => {
                    state.requests += 1;
                    state.flights += u64::from(std::mem::replace(&mut state.answered, false));
                }
                DATA if state.lose.as_ref().is_some_and(|(bytes, left)| {
                    *left > 0 && body.windows(bytes.len()).any(|part| part == bytes)
                }) =>
                {
                    asked.lock().unwrap().insert(stream);
                }
                _ => {}
            }
            true
        });
    });
    let state = Arc::clone(state);
    std::thread::spawn(move || {
        pump(down.0, down.1, 0, |kind, stream, _| {
            let mut state = state.lock().unwrap();
            if kind != HEADERS {
                return true;
            }
            state.answered = true;
            if !meant.lock().unwrap().contains(&stream) {
                return true;
            }
            if let Some((_, left)) = &mut state.lose {
                *left = left.saturating_sub(1);
            }
            state.lost += 1;
            false
        });
    });
}

/// Hand on frame by frame, as long as `look` says so.
fn pump(mut from: TcpStream, mut to: TcpStream, skip: usize, mut look: impl FnMut(u8, u32, &[u8]) -> bool) {
    let mut frame = || -> std::io::Result<()> {
        let mut head = vec![0; skip];
        from.read_exact(&mut head)?;
        to.write_all(&head)?;
        loop {
            let mut head = [0; 9];
            from.read_exact(&mut head)?;
            let length = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
            let mut body = vec![0; length];
            from.read_exact(&mut body)?;
            let stream = u32::from_be_bytes([head[5], head[6], head[7], head[8]]) & 0x7fff_ffff;
            if !look(head[3], stream, &body) {
                return Ok(());
            }
            to.write_all(&[head.as_slice(), &body].concat())?;
        }
    };
    let _ = frame();
    let _ = (from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both));
}
