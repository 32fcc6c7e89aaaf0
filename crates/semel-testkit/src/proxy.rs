//! A proxy on loopback between a client and its server, which can be told to misbehave.
//!
//! | told | a client meets |
//! |---|---|
//! | [`pass`](Proxy::pass) | its server |
//! | [`delay`](Proxy::delay) | its server, later |
//! | [`lose_replies`](Proxy::lose_replies) | a connection that breaks after its request was forwarded and answered |
//! | [`cut`](Proxy::cut) | broken connections, and none new |
//! | [`swallow`](Proxy::swallow) | connections that take everything and answer nothing |
//! | [`answer`](Proxy::answer) | its server, which answers so many times and is silent then |
//!
//! It counts round trips: how often a client spoke after its server did, or first. Whoever speaks need not wait for an answer:
//! that one does not is shown by answering no more. And it counts what met its misbehaviour: a fault that nobody was there
//! to meet is none.
//!
//! One [with the client's port](Proxy::with_port) connects to the server from that port, on another address of this machine.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use socket2::{Domain, Socket, Type};

#[derive(Clone, Debug, PartialEq, Eq)]
enum Mode {
    Pass,
    Delay(Duration),
    Lose { left: u32, containing: Vec<u8> },
    Cut,
    Swallow,
    Answer { left: u32 },
}

#[derive(Debug)]
struct State {
    mode: Mutex<Mode>,
    ends: AtomicBool,
    connections: AtomicU64,
    round_trips: AtomicU64,
    lost: AtomicU64,
    /// Connections that are open now.
    live: AtomicU64,
    /// Connections, requests and replies that were broken, refused, delayed or swallowed.
    met: AtomicU64,
    open: Mutex<Vec<(TcpStream, TcpStream)>>,
}

/// A proxy, gone with the test.
#[derive(Debug)]
pub struct Proxy {
    address: SocketAddr,
    state: Arc<State>,
}

impl Proxy {
    /// Before this server.
    pub fn before(server: SocketAddr) -> Proxy {
        Proxy::start(server, false)
    }

    /// Before a server that looks at the port of its clients: it finds the client's, at 127.0.0.2.
    pub fn with_port(server: SocketAddr) -> Proxy {
        Proxy::start(server, true)
    }

    fn start(server: SocketAddr, same_port: bool) -> Proxy {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let state = Arc::new(State {
            mode: Mutex::new(Mode::Pass),
            ends: AtomicBool::new(false),
            connections: AtomicU64::new(0),
            round_trips: AtomicU64::new(0),
            lost: AtomicU64::new(0),
            live: AtomicU64::new(0),
            met: AtomicU64::new(0),
            open: Mutex::new(Vec::new()),
        });
        let shared = Arc::clone(&state);
        std::thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                if shared.ends.load(Ordering::SeqCst) {
                    break;
                }
                let Ok(to) = shared.connect(&client, server, same_port) else { continue };
                serve(client, to, &shared);
            }
        });
        Proxy { address, state }
    }

    /// Where clients connect.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Where clients connect.
    pub fn port(&self) -> u16 {
        self.address.port()
    }

    /// Hand everything on, from now on.
    pub fn pass(&self) {
        self.set(Mode::Pass);
    }

    /// Hand everything on, each piece so much later.
    pub fn delay(&self, by: Duration) {
        self.set(Mode::Delay(by));
    }

    /// Forward requests; break the connection instead of handing on the next replies, so many times.
    pub fn lose_replies(&self, times: u32) {
        self.lose_replies_to(b"", times);
    }

    /// As [`lose_replies`](Proxy::lose_replies), but only to requests that hold these bytes.
    pub fn lose_replies_to(&self, containing: &[u8], times: u32) {
        self.set(Mode::Lose { left: times, containing: containing.to_vec() });
    }

    /// Break every connection and take no new one.
    pub fn cut(&self) {
        self.set(Mode::Cut);
        self.state.met.fetch_add(self.state.live.load(Ordering::SeqCst), Ordering::SeqCst);
        self.break_all();
    }

    /// Break every connection; new ones are as before.
    pub fn break_all(&self) {
        for (client, server) in self.state.open.lock().unwrap().drain(..) {
            let _ = (client.shutdown(Shutdown::Both), server.shutdown(Shutdown::Both));
        }
    }

    /// Take everything and answer nothing: half-open connections.
    pub fn swallow(&self) {
        self.set(Mode::Swallow);
    }

    /// Hand on everything that clients say, and so many answers. What comes after them is kept from the client.
    pub fn answer(&self, times: u32) {
        self.set(Mode::Answer { left: times });
    }

    /// How many connections clients made.
    pub fn connections(&self) -> u64 {
        self.state.connections.load(Ordering::SeqCst)
    }

    /// How often a client spoke after its server did, or first.
    pub fn round_trips(&self) -> u64 {
        self.state.round_trips.load(Ordering::SeqCst)
    }

    /// How many replies were lost.
    pub fn lost(&self) -> u64 {
        self.state.lost.load(Ordering::SeqCst)
    }

    /// How many connections, requests and replies met a fault: broken, refused, delayed, swallowed or lost.
    pub fn met(&self) -> u64 {
        self.state.met.load(Ordering::SeqCst) + self.lost()
    }

    fn set(&self, mode: Mode) {
        *self.state.mode.lock().unwrap() = mode;
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.state.ends.store(true, Ordering::SeqCst);
        self.break_all();
        let _ = TcpStream::connect(self.address);
    }
}

/// What the two directions of a connection know of each other.
#[derive(Debug, Default)]
struct Talk {
    /// The client was the last to speak.
    asked: AtomicBool,
    /// Its last request is one whose reply may be lost.
    meant: AtomicBool,
    /// The server's last answer is kept from it.
    kept: AtomicBool,
}

fn serve(client: TcpStream, server: TcpStream, state: &Arc<State>) {
    let _ = (client.set_nodelay(true), server.set_nodelay(true));
    let (Ok(from_client), Ok(from_server)) = (client.try_clone(), server.try_clone()) else { return };
    let (Ok(a), Ok(b)) = (client.try_clone(), server.try_clone()) else { return };
    state.open.lock().unwrap().push((a, b));
    let talk = Arc::new(Talk::default());
    let (state_up, talk_up) = (Arc::clone(state), Arc::clone(&talk));
    state.live.fetch_add(1, Ordering::SeqCst);
    std::thread::spawn(move || {
        pump(from_client, server, |bytes| request(bytes, &state_up, &talk_up));
        state_up.live.fetch_sub(1, Ordering::SeqCst);
    });
    let state = Arc::clone(state);
    std::thread::spawn(move || pump(from_server, client, |_| reply(&state, &talk)));
}

impl State {
    /// To the server, unless nobody may.
    fn connect(&self, client: &TcpStream, server: SocketAddr, same_port: bool) -> std::io::Result<TcpStream> {
        if *self.mode.lock().unwrap() == Mode::Cut {
            self.met.fetch_add(1, Ordering::SeqCst);
            return Err(std::io::ErrorKind::ConnectionRefused.into());
        }
        self.connections.fetch_add(1, Ordering::SeqCst);
        if !same_port {
            return TcpStream::connect(server);
        }
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
        socket.set_reuse_address(true)?;
        socket.bind(&SocketAddr::from(([127, 0, 0, 2], client.peer_addr()?.port())).into())?;
        socket.connect(&server.into())?;
        Ok(socket.into())
    }
}

/// What becomes of a piece.
enum Fate {
    HandOn,
    Forget,
    Break,
}

fn request(bytes: &[u8], state: &State, talk: &Talk) -> Fate {
    if !talk.asked.swap(true, Ordering::SeqCst) {
        state.round_trips.fetch_add(1, Ordering::SeqCst);
    }
    let mode = state.mode.lock().unwrap().clone();
    if matches!(mode, Mode::Delay(_) | Mode::Swallow) {
        state.met.fetch_add(1, Ordering::SeqCst);
    }
    match mode {
        Mode::Pass | Mode::Answer { .. } => Fate::HandOn,
        Mode::Delay(by) => {
            std::thread::sleep(by);
            Fate::HandOn
        }
        Mode::Lose { left, containing } => {
            let holds =
                containing.is_empty() || bytes.windows(containing.len()).any(|part| part == containing);
            if left > 0 && holds {
                talk.meant.store(true, Ordering::SeqCst);
            }
            Fate::HandOn
        }
        Mode::Cut => Fate::Break,
        Mode::Swallow => Fate::Forget,
    }
}

fn reply(state: &State, talk: &Talk) -> Fate {
    let is_first = talk.asked.swap(false, Ordering::SeqCst);
    let mut mode = state.mode.lock().unwrap();
    if matches!(*mode, Mode::Delay(_) | Mode::Swallow) {
        state.met.fetch_add(1, Ordering::SeqCst);
    }
    match &mut *mode {
        Mode::Pass => Fate::HandOn,
        Mode::Delay(by) => {
            let by = *by;
            drop(mode);
            std::thread::sleep(by);
            Fate::HandOn
        }
        Mode::Lose { left, .. } if *left > 0 && talk.meant.load(Ordering::SeqCst) => {
            *left -= 1;
            state.lost.fetch_add(1, Ordering::SeqCst);
            Fate::Break
        }
        Mode::Lose { .. } => Fate::HandOn,
        Mode::Answer { left } => {
            if is_first {
                talk.kept.store(*left == 0, Ordering::SeqCst);
                *left = left.saturating_sub(1);
            }
            if talk.kept.load(Ordering::SeqCst) { Fate::Forget } else { Fate::HandOn }
        }
        Mode::Cut => Fate::Break,
        Mode::Swallow => Fate::Forget,
    }
}

fn pump(mut from: TcpStream, mut to: TcpStream, fate: impl Fn(&[u8]) -> Fate) {
    let mut buffer = vec![0; 64 * 1024];
    while let Ok(read @ 1..) = from.read(&mut buffer) {
        match fate(&buffer[..read]) {
            Fate::HandOn if to.write_all(&buffer[..read]).is_ok() => {}
            Fate::Forget => {}
            _ => break,
        }
    }
    let _ = (from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both));
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A server that answers each line with itself.
    fn echo() -> SocketAddr {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        std::thread::spawn(move || {
            for mut client in listener.incoming().map_while(Result::ok) {
                std::thread::spawn(move || {
                    let mut buffer = [0; 64];
                    while let Ok(read @ 1..) = client.read(&mut buffer) {
                        client.write_all(&buffer[..read]).unwrap();
                    }
                });
            }
        });
        address
    }

    fn ask(stream: &mut TcpStream, word: &[u8]) -> Vec<u8> {
        let mut buffer = [0; 64];
        let _ = stream.write_all(word);
        let read = stream.read(&mut buffer).unwrap_or(0);
        buffer[..read].to_vec()
    }

    #[test]
    fn it_passes_counts_loses_and_cuts() {
        let proxy = Proxy::before(echo());
        let mut stream = TcpStream::connect(proxy.address()).unwrap();
        assert_eq!(ask(&mut stream, b"one"), b"one");
        assert_eq!(ask(&mut stream, b"two"), b"two");
        assert_eq!((proxy.connections(), proxy.round_trips()), (1, 2));
        proxy.lose_replies_to(b"write", 1);
        assert_eq!(ask(&mut stream, b"read"), b"read");
        assert_eq!(ask(&mut stream, b"write"), b"", "the reply is lost and the connection broken");
        assert_eq!(proxy.lost(), 1);
        let mut stream = TcpStream::connect(proxy.address()).unwrap();
        assert_eq!(ask(&mut stream, b"write"), b"write", "once was asked for");
        proxy.cut();
        assert_eq!(
            TcpStream::connect(proxy.address()).map(|mut stream| ask(&mut stream, b"x")).unwrap_or_default(),
            b""
        );
        proxy.pass();
        let mut stream = TcpStream::connect(proxy.address()).unwrap();
        assert_eq!(ask(&mut stream, b"again"), b"again");
        proxy.swallow();
        stream.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
        assert_eq!(ask(&mut stream, b"lost"), b"");
    }

    #[test]
    fn it_answers_as_often_as_it_is_told_and_speaks_from_the_clients_port() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let proxy = Proxy::with_port(listener.local_addr().unwrap());
        let mut client = TcpStream::connect(proxy.address()).unwrap();
        let (mut server, from) = listener.accept().unwrap();
        assert_eq!(from.port(), client.local_addr().unwrap().port());
        client.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
        proxy.answer(1);
        let mut talk = |word: &[u8]| {
            let mut heard = [0; 8];
            client.write_all(word).unwrap();
            let many = server.read(&mut heard).unwrap();
            server.write_all(&heard[..many]).unwrap();
            let answered = client.read(&mut [0; 8]).unwrap_or(0);
            (many, answered)
        };
        assert_eq!(talk(b"one"), (3, 3));
        assert_eq!(talk(b"three"), (5, 0), "it arrives, and its answer does not");
        assert_eq!(proxy.round_trips(), 2);
    }

    #[test]
    fn it_knows_whether_anybody_met_its_faults() {
        let proxy = Proxy::before(echo());
        proxy.delay(Duration::from_millis(1));
        proxy.swallow();
        proxy.cut();
        proxy.pass();
        assert_eq!(proxy.met(), 0, "nobody was there");
        let mut stream = TcpStream::connect(proxy.address()).unwrap();
        assert_eq!(ask(&mut stream, b"one"), b"one");
        assert_eq!(proxy.met(), 0, "nothing was wrong");
        proxy.delay(Duration::from_millis(1));
        assert_eq!(ask(&mut stream, b"two"), b"two");
        assert_eq!(proxy.met(), 2, "a request and its reply");
        proxy.swallow();
        stream.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
        assert_eq!(ask(&mut stream, b"three"), b"");
        assert_eq!(proxy.met(), 3);
        proxy.cut();
        assert_eq!(proxy.met(), 4, "the connection that was open");
        let refused = TcpStream::connect(proxy.address()).map(|mut stream| ask(&mut stream, b"x"));
        assert_eq!(refused.unwrap_or_default(), b"");
        assert_eq!(proxy.met(), 5, "one that was not taken");
    }
}
