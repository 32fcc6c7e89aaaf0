//! Webhooks against real servers on loopback.

#![allow(clippy::unwrap_used, clippy::panic)]
// a test owns what it starts, and looks at the clock
#![allow(clippy::disallowed_methods)]

use std::cell::Cell;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use super::tests::{SOON, lane, message};
use super::*;

/// A server that does with its n-th connection (from 0) what it is told to.
struct Server {
    at: SocketAddr,
    connections: Arc<AtomicUsize>,
    requests: Arc<Mutex<Vec<String>>>,
}

impl Server {
    fn new(act: impl Fn(usize, &mut TcpStream) + Send + Sync + 'static) -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = listener.local_addr().unwrap();
        let (connections, requests) = (Arc::new(AtomicUsize::new(0)), Arc::new(Mutex::new(Vec::new())));
        let (count, kept, act) = (connections.clone(), requests.clone(), Arc::new(act));
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (mut stream, n) = (stream.unwrap(), count.fetch_add(1, Ordering::SeqCst));
                let (kept, act) = (kept.clone(), act.clone());
                std::thread::spawn(move || {
                    let request = read_request(&mut stream);
                    kept.lock().unwrap().push(request);
                    act(n, &mut stream);
                });
            }
        });
        Server { at, connections, requests }
    }

    /// Answers with these statuses in turn, the last of them for ever.
    fn answering(statuses: &'static [&'static str]) -> Server {
        Server::new(move |n, stream| {
            let status = statuses[n.min(statuses.len() - 1)];
            let _ = stream.write_all(format!("HTTP/1.1 {status}\r\ncontent-length: 0\r\n\r\n").as_bytes());
        })
    }

    fn url(&self) -> String {
        format!("http://{}/services/hunter2?key=hunter3", self.at)
    }

    fn count(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }
}

fn read_request(stream: &mut TcpStream) -> String {
    let (mut bytes, mut chunk) = (Vec::new(), [0; 4096]);
    loop {
        let n = stream.read(&mut chunk).unwrap_or(0);
        bytes.extend_from_slice(&chunk[..n]);
        let text = String::from_utf8_lossy(&bytes).into_owned();
        let length =
            text.lines().find_map(|line| line.to_lowercase().strip_prefix("content-length: ")?.parse().ok());
        let body = text.split_once("\r\n\r\n").map(|(_, body)| body.len());
        if n == 0 || body.is_some_and(|body| body >= length.unwrap_or(0)) {
            return text;
        }
    }
}

fn exchange(url: &str) -> Post {
    Post {
        url: Endpoint::parse(url).unwrap(),
        private: true,
        headers: sign::headers("msg_1", 1_614_265_330, "{}", None),
        body: b"{}".to_vec(),
        retries: RETRIES,
        timeout: SOON,
        in_all: SOON,
        authorities: None,
    }
}

/// Nobody who reads why learns more than the host.
#[track_caller]
fn undelivered(answer: Result<(), Undelivered>) -> Undelivered {
    let undelivered = answer.unwrap_err();
    for secret in ["hunter", "services", "key="] {
        assert!(!undelivered.why.contains(secret), "{undelivered:?}");
    }
    undelivered
}

#[track_caller]
fn sent(post: &Post) -> Result<(), Undelivered> {
    http::post(post, &http::look_up)
}

#[test]
fn a_message_arrives_as_it_was_written() {
    let server = Server::answering(&["204 No Content"]);
    sent(&exchange(&server.url())).unwrap();
    let request = server.requests.lock().unwrap()[0].clone();
    let lower = request.to_lowercase();
    assert!(request.starts_with("POST /services/hunter2?key=hunter3 HTTP/1.1\r\n"), "{request}");
    for line in [
        &format!("host: {}", server.at),
        "content-type: application/json",
        "content-length: 2",
        "webhook-id: msg_1",
        "webhook-timestamp: 1614265330",
    ] {
        assert!(lower.lines().any(|have| have == line), "{line}: {request}");
    }
    assert!(!lower.contains("webhook-signature") && request.ends_with("\r\n\r\n{}"), "{request}");
}

#[test]
fn what_may_pass_is_tried_again_and_what_may_not_is_not() {
    let cases: [(&[&str], bool, usize, &str); 9] = [
        (&["200 OK"], true, 1, ""),
        (&["503 No", "500 No", "202 Yes"], true, 3, ""),
        (&["429 Slow", "200 OK"], true, 2, ""),
        (&["503 No"], false, 3, "127.0.0.1: it answered 503 (3 tries)"),
        (&["404 No"], false, 1, "127.0.0.1: it answered 404: check the address"),
        (&["401 No"], false, 1, "127.0.0.1: it answered 401: check the secret"),
        (&["400 No"], false, 1, "127.0.0.1: it answered 400"),
        (&["410 Gone"], false, 1, "127.0.0.1: it answered 410: there is nobody any more"),
        (
            &["304 Same"],
            false,
            1,
            "127.0.0.1: it answered 304, a redirect, and none is followed: write the address that it leads to",
        ),
    ];
    for (statuses, arrives, tries, why) in cases {
        let server = Server::answering(statuses);
        let answer = sent(&exchange(&server.url()));
        assert_eq!((answer.is_ok(), server.count()), (arrives, tries), "{statuses:?}: {answer:?}");
        if !arrives {
            let answer = undelivered(answer);
            assert_eq!((answer.why.as_str(), answer.permanent), (why, why.contains("410")));
        }
    }
}

#[test]
fn a_redirect_is_refused_and_nothing_goes_where_it_leads() {
    for status in [301, 302, 303, 307, 308] {
        let other = Server::answering(&["200 OK"]);
        let to = other.url();
        let server = Server::new(move |_, stream| {
            let head = format!("HTTP/1.1 {status} Moved\r\nlocation: {to}\r\ncontent-length: 0\r\n\r\n");
            let _ = stream.write_all(head.as_bytes());
        });
        let answer = undelivered(sent(&exchange(&server.url())));
        assert!(answer.why.contains("none is followed") && !answer.permanent, "{answer:?}");
        assert_eq!((server.count(), other.count()), (1, 0), "{status}");
    }
}

#[test]
fn a_private_address_is_refused_and_not_connected_to() {
    let server = Server::answering(&["200 OK"]);
    let names = [
        server.url(),
        server.url().replace("127.0.0.1", "localhost"),
        server.url().replace("127.0.0.1", "[::ffff:127.0.0.1]"),
        server.url().replace("127.0.0.1", "2130706433"),
        server.url().replace("127.0.0.1", "0x7f.1"),
    ];
    for url in names.iter().flat_map(|url| [url.clone(), url.replace("http:", "https:")]) {
        let answer = undelivered(sent(&Post { private: false, ..exchange(&url) }));
        assert!(!answer.permanent, "{answer:?}");
        assert!(
            answer.why.contains("private address") || answer.why.contains("cannot be looked up"),
            "{url}: {answer:?}"
        );
    }
    assert_eq!(server.count(), 0);
    sent(&exchange(&server.url())).unwrap();
    assert_eq!(server.count(), 1, "it was there all the time");
}

#[test]
fn one_private_address_among_public_ones_is_one_too_many() {
    let server = Server::answering(&["200 OK"]);
    let public: SocketAddr = "1.1.1.1:443".parse().unwrap();
    let both = |_: &str, _: u16| Ok(vec![public, server.at]);
    let secure = exchange("https://hooks.example.org/hunter2");
    let answer = undelivered(http::post(&Post { private: false, ..secure }, &both));
    assert!(answer.why.starts_with("hooks.example.org: it is at a private address"), "{answer:?}");
    let plain = exchange("http://hooks.example.org/hunter2");
    let answer = undelivered(http::post(&plain, &both));
    assert!(answer.why.contains("http: is for private ones only"), "{answer:?}");
    assert_eq!(server.count(), 0);
}

#[test]
fn a_name_is_looked_up_once_and_means_that_for_all_tries() {
    let (server, other) =
        (Server::answering(&["503 No", "503 No", "200 OK"]), Server::answering(&["200 OK"]));
    let asked = Cell::new(0);
    let rebinding = |host: &str, _: u16| {
        assert_eq!(host, "hooks.example.org");
        asked.set(asked.get() + 1);
        Ok(vec![if asked.get() == 1 { server.at } else { other.at }])
    };
    http::post(&exchange("http://hooks.example.org/hunter2"), &rebinding).unwrap();
    assert_eq!((asked.get(), server.count(), other.count()), (1, 3, 0));
    let host = server.requests.lock().unwrap()[2].to_lowercase();
    assert!(host.contains("host: hooks.example.org"), "{host}");
    let nobody = |_: &str, _: u16| Ok(Vec::new());
    let answer = undelivered(http::post(&exchange("http://hooks.example.org/hunter2"), &nobody));
    assert_eq!(answer.why, "hooks.example.org: it has no address");
}

#[test]
fn servers_that_take_their_time_are_not_waited_for() {
    let silent = Server::new(|_, stream| drop(stream.read(&mut [0; 1])));
    let trickling = Server::new(|_, stream| {
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nx: ");
        while stream.write_all(b"x").is_ok() {
            std::thread::sleep(Duration::from_millis(5));
        }
    });
    for server in [silent, trickling] {
        let started = Instant::now();
        let short = Post {
            timeout: Duration::from_millis(150),
            in_all: Duration::from_millis(400),
            ..exchange(&server.url())
        };
        let answer = undelivered(sent(&short));
        assert!(
            (answer.why.contains("within 150ms") || answer.why.contains("within 400ms")) && !answer.permanent,
            "{answer:?}"
        );
        assert!(started.elapsed() < Duration::from_secs(5), "{:?}", started.elapsed());
        assert!((1..=3).contains(&server.count()), "{}", server.count());
    }
}

#[test]
fn an_endless_answer_is_not_read() {
    let written = Arc::new(AtomicUsize::new(0));
    let total = written.clone();
    let body = Server::new(move |_, stream| {
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n");
        let chunk = [b'x'; 65_536];
        while stream.write_all(&chunk).is_ok() {
            total.fetch_add(chunk.len(), Ordering::SeqCst);
        }
        total.fetch_add(1 << 40, Ordering::SeqCst);
    });
    sent(&exchange(&body.url())).unwrap();
    let started = Instant::now();
    while written.load(Ordering::SeqCst) < 1 << 40 {
        assert!(started.elapsed() < SOON, "the connection is still open");
        std::thread::sleep(Duration::from_millis(5));
    }
    // what the kernel's buffers hold, and no more
    assert!(written.load(Ordering::SeqCst) - (1 << 40) < 64 << 20);
    let head = Server::new(|_, stream| {
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\n");
        while stream.write_all(b"x: hunter2\r\n").is_ok() {}
    });
    let answer = undelivered(sent(&exchange(&head.url())));
    assert!(answer.why.starts_with("127.0.0.1: "), "{answer:?}");
}

#[test]
fn nobody_there_and_nonsense_are_told_by_the_host_alone() {
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let answer = undelivered(sent(&exchange(&format!("http://{closed}/services/hunter2"))));
    assert!(answer.why.contains("refused") && answer.why.contains("3 tries"), "{answer:?}");
    let nonsense = Server::new(|_, stream| drop(stream.write_all(b"hunter2 hunter2\r\n\r\n")));
    let answer = undelivered(sent(&exchange(&nonsense.url())));
    assert!(answer.why.starts_with("127.0.0.1: "), "{answer:?}");
    let hasty = Server::new(|_, _| ());
    let answer = undelivered(sent(&exchange(&hasty.url())));
    assert!(answer.why.starts_with("127.0.0.1: ") && answer.why.contains("3 tries"), "{answer:?}");
    let no_tls = Server::answering(&["200 OK"]);
    let secure = no_tls.url().replace("http:", "https:");
    let answer = undelivered(sent(&Post { in_all: Duration::from_millis(300), ..exchange(&secure) }));
    assert!(answer.why.starts_with("127.0.0.1: "), "{answer:?}");
    let no_file = Post { authorities: Some("/none.pem".into()), ..exchange("https://127.0.0.1/hunter2") };
    assert!(undelivered(sent(&no_file)).why.starts_with("SSL_CERT_FILE /none.pem: "));
}

#[tokio::test(flavor = "current_thread")]
async fn a_lane_is_told_through_its_webhook() {
    let server = Server::answering(&["200 OK"]);
    let to = |secret| To::Webhook { url: Endpoint::parse(&server.url()).unwrap(), secret };
    let around = Surroundings::of(&[]);
    let signed = to(Some(sign::secret("whsec_aHVudGVyMg==").unwrap()));
    deliver(&lane(signed), &message(), &around).await.unwrap();
    deliver(&lane(to(None)), &message(), &around).await.unwrap();
    let requests = server.requests.lock().unwrap().clone();
    let body = r#"{"at_ms":5,"id":"msg_1","kind":"test","text":"a\nb"}"#;
    for request in &requests {
        let (_, sent) = request.split_once("\r\n\r\n").unwrap();
        let sent: Value = serde_json::from_str(sent).unwrap();
        assert_eq!(sent, serde_json::from_str::<Value>(body).unwrap());
    }
    let is_signed = |request: &String| request.to_lowercase().contains("webhook-signature: v1,");
    assert_eq!(requests.iter().map(is_signed).collect::<Vec<_>>(), [true, false]);
}

#[tokio::test(flavor = "current_thread")]
async fn a_webhook_gets_two_and_a_half_times_its_timeout() {
    let silent = Server::new(|_, stream| drop(stream.read(&mut [0; 1])));
    let to = To::Webhook { url: Endpoint::parse(&silent.url()).unwrap(), secret: None };
    let started = Instant::now();
    let short = Lane { timeout: Duration::from_millis(200), ..lane(to) };
    let answer = undelivered(deliver(&short, &message(), &Surroundings::of(&[])).await);
    assert!(answer.why.contains("no answer within"), "{answer:?}");
    assert!(started.elapsed() < Duration::from_secs(5));
}
