//! Object stores for tests: moto for S3, Azurite for Azure, and proxies before them that keep no conditions.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use crate::server::{Recipe, Server, needed};

/// The bucket that every server has.
pub const BUCKET: &str = "semel";

/// What is served by moto: its own server lets two of a race win now and then, because it looks and writes in two steps.
/// Here one request is served at a time.
const MOTO: &str = r#"
import sys, threading
from werkzeug.serving import run_simple, WSGIRequestHandler
from moto.server import DomainDispatcherApplication, create_backend_app

app, turn = DomainDispatcherApplication(create_backend_app), threading.Lock()

def one_at_a_time(environ, start_response):
    with turn:
        return list(app(environ, start_response))

class Quiet(WSGIRequestHandler):
    def log_request(self, *_):
        pass

run_simple("127.0.0.1", int(sys.argv[1]), one_at_a_time, threaded=True, request_handler=Quiet)
"#;

/// A server that speaks S3. All that it knows is in its memory.
#[derive(Debug)]
pub struct Moto(pub Server);

impl Moto {
    /// Anybody may do anything.
    pub fn start() -> Moto {
        Moto::start_with(&[])
    }

    /// Only who has a key may do anything, and nobody has one.
    pub fn start_closed() -> Moto {
        // the first request makes the bucket
        Moto::start_with(&[("INITIAL_NO_AUTH_ACTION_COUNT", "1")])
    }

    fn start_with(env: &[(&str, &str)]) -> Moto {
        // its python knows where it is installed
        let python = needed("moto_server").with_file_name("python3");
        let env: Vec<(String, String)> =
            env.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        let server = Server::start(
            "moto",
            1,
            |_, ports| {
                let words =
                    [python.as_os_str().to_owned(), "-c".into(), MOTO.into(), ports[0].to_string().into()];
                Recipe { env: env.clone(), ..Recipe::new(words) }
            },
            Server::listens,
        );
        assert_eq!(put(server.address(0), &format!("/{BUCKET}")), 200, "{}", server.log());
        Moto(server)
    }

    /// The address of a ledger there, or behind a proxy at this address.
    pub fn url_at(at: SocketAddr, prefix: &str) -> String {
        format!("s3://{BUCKET}/{prefix}?endpoint=http://{at}&region=us-east-1")
    }

    /// The address of a ledger there.
    pub fn url(&self, prefix: &str) -> String {
        Moto::url_at(self.0.address(0), prefix)
    }

    /// What a client needs beside the address.
    pub const VARIABLES: [(&'static str, &'static str); 2] =
        [("AWS_ACCESS_KEY_ID", "test-access-key"), ("AWS_SECRET_ACCESS_KEY", "test-secret-key")];
}

/// A server that speaks as Azure's blobs do, with its files in its folder.
#[derive(Debug)]
pub struct Azurite(pub Server);

/// The account that every Azurite has, and the key that is written in its manual.
const ACCOUNT: &str = "devstoreaccount1";
const ACCOUNT_KEY: &str =
    "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==";
/// A permission that is signed with that key, until 2099.
const SIGNED: &str = "sv=2020-08-04&ss=b&srt=sco&sp=rwdlac&se=2099-01-01T00%3A00%3A00Z&spr=https%2Chttp&sig=lP4358Cnz1iq8XYqBFoRARKlOuXCuZxE4Uf0d7qFrYE%3D";

impl Azurite {
    /// With a container, and nothing in it.
    pub fn start() -> Azurite {
        let server = Azurite::start_with(&[]);
        let path = format!("/{ACCOUNT}/{BUCKET}?restype=container&{SIGNED}");
        assert_eq!(put(server.address(0), &path), 201, "{}", server.log());
        Azurite(server)
    }

    /// With these words more, and no container.
    pub fn start_with(more: &[&str]) -> Server {
        let program = needed("azurite-blob");
        Server::start(
            "azurite",
            1,
            |dir, ports| {
                let mut recipe = Recipe::new([program.as_os_str()]);
                recipe.words.extend(["--blobHost", "127.0.0.1", "--blobPort"].map(Into::into));
                recipe.words.push(ports[0].to_string().into());
                recipe.words.extend(["--location".into(), dir.join("blobs").into_os_string()]);
                recipe
                    .words
                    .extend(["--skipApiVersionCheck", "--disableTelemetry", "--silent"].map(Into::into));
                recipe.words.extend(more.iter().map(Into::into));
                recipe
            },
            Server::listens,
        )
    }

    /// The address of a ledger there, or behind a proxy at this address.
    pub fn url_at(at: SocketAddr, prefix: &str) -> String {
        format!("az://{BUCKET}/{prefix}?endpoint=http://{at}/{ACCOUNT}")
    }

    /// The address of a ledger there.
    pub fn url(&self, prefix: &str) -> String {
        Azurite::url_at(self.0.address(0), prefix)
    }

    /// What a client needs beside the address.
    pub const VARIABLES: [(&'static str, &'static str); 2] =
        [("AZURE_STORAGE_ACCOUNT_NAME", ACCOUNT), ("AZURE_STORAGE_ACCOUNT_KEY", ACCOUNT_KEY)];
}

/// A server from npm that takes conditions and heeds none of them.
#[derive(Debug)]
pub struct S3rver(pub Server);

impl S3rver {
    /// With a bucket, and nothing in it.
    pub fn start() -> S3rver {
        let program = needed("s3rver");
        S3rver(Server::start(
            "s3rver",
            1,
            |dir, ports| {
                let objects = dir.join("objects");
                std::fs::create_dir_all(&objects).unwrap();
                let mut recipe = Recipe::new([program.as_os_str()]);
                recipe
                    .words
                    .extend(["--silent", "--no-vhost-buckets", "--address", "127.0.0.1"].map(Into::into));
                recipe.words.extend(["--configure-bucket", BUCKET, "--port"].map(Into::into));
                recipe.words.push(ports[0].to_string().into());
                recipe.words.extend(["--directory".into(), objects.into_os_string()]);
                recipe
            },
            Server::listens,
        ))
    }

    /// The address of a ledger there.
    pub fn url(&self, prefix: &str) -> String {
        Moto::url_at(self.0.address(0), prefix)
    }

    /// What a client needs beside the address.
    pub const VARIABLES: [(&'static str, &'static str); 2] =
        [("AWS_ACCESS_KEY_ID", "S3RVER"), ("AWS_SECRET_ACCESS_KEY", "S3RVER")];
}

/// A server of our own, which speaks as S3 and as GCS do and has on disk what it answered: it may be killed.
#[derive(Debug)]
pub struct OnDisk(pub Server);

impl OnDisk {
    /// With nothing in it.
    pub fn start() -> OnDisk {
        OnDisk::start_with(&[])
    }

    /// One that looks at a condition and writes in two steps, so that several of a race win.
    pub fn start_racy() -> OnDisk {
        OnDisk::start_with(&["racy"])
    }

    fn start_with(more: &[&str]) -> OnDisk {
        let python = needed("python3");
        OnDisk(Server::start(
            "objects",
            1,
            |dir, ports| {
                let mut recipe = Recipe::new([python.as_os_str()]);
                recipe.words.extend(["-c", include_str!("objects.py")].map(Into::into));
                recipe.words.extend([ports[0].to_string().into(), dir.join("objects").into_os_string()]);
                recipe.words.extend(more.iter().map(Into::into));
                recipe
            },
            Server::listens,
        ))
    }

    /// Set its clock ahead of this machine's, by so much.
    pub fn set_ahead(&self, by: Duration) {
        let (new, file) = (self.0.folder().join("ahead.new"), self.0.folder().join("objects.ahead"));
        std::fs::write(&new, by.as_secs().to_string()).unwrap();
        std::fs::rename(new, file).unwrap();
    }

    /// How many objects it has.
    pub fn count(&self) -> usize {
        std::fs::read_dir(self.0.folder().join("objects")).unwrap().count()
    }

    /// The address of a ledger there, spoken to as S3.
    pub fn s3_url(&self, prefix: &str) -> String {
        Moto::url_at(self.0.address(0), prefix)
    }

    /// The address of a ledger at such a server, spoken to as GCS.
    pub fn gs_url_at(at: SocketAddr, prefix: &str) -> String {
        format!("gs://{BUCKET}/{prefix}?endpoint=http://{at}")
    }
}

/// Put nothing there, and answer the status.
fn put(at: SocketAddr, path: &str) -> u16 {
    let mut stream = TcpStream::connect(at).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    write!(stream, "PUT {path} HTTP/1.1\r\nHost: {at}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
        .unwrap();
    let mut answer = String::new();
    let _ = stream.read_to_string(&mut answer);
    answer.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0)
}

/// How a service fails its clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// It never looks at a condition.
    Ignores,
    /// It does not look at every third condition: a race that is lost now and then.
    Sometimes,
    /// It compares the bare text of a tag, and refuses one in quotes.
    WantsBareTags,
}

/// A proxy before an object store that changes the conditions of its requests.
#[derive(Debug)]
pub struct Careless {
    address: SocketAddr,
    ends: Arc<AtomicBool>,
}

impl Careless {
    /// Before this server, with this fault.
    pub fn before(server: SocketAddr, fault: Fault) -> Careless {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let ends = Arc::new(AtomicBool::new(false));
        let (stop, count) = (Arc::clone(&ends), Arc::new(AtomicU64::new(0)));
        std::thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                if stop.load(Ordering::SeqCst) {
                    break;
                }
                let count = Arc::clone(&count);
                std::thread::spawn(move || serve(client, server, fault, &count));
            }
        });
        Careless { address, ends }
    }

    /// Where clients connect.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Careless {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::SeqCst);
        let _ = TcpStream::connect(self.address);
    }
}

/// One request, then the connection ends.
fn serve(mut client: TcpStream, server: SocketAddr, fault: Fault, count: &AtomicU64) -> Option<()> {
    let mut request = Vec::new();
    let mut buffer = [0; 16 * 1024];
    let head = loop {
        let read = client.read(&mut buffer).ok().filter(|read| *read > 0)?;
        request.extend_from_slice(&buffer[..read]);
        if let Some(end) = request.windows(4).position(|part| part == b"\r\n\r\n") {
            break end;
        }
    };
    let text = String::from_utf8_lossy(&request[..head]).into_owned();
    let mut lines = Vec::new();
    let mut length = 0;
    for line in text.split("\r\n") {
        let lower = line.to_ascii_lowercase();
        if let Some(value) = lower.strip_prefix("content-length:") {
            length = value.trim().parse().ok()?;
        }
        let condition = lower.starts_with("if-match:") || lower.starts_with("if-none-match:");
        match fault {
            _ if lower.starts_with("connection:") => {}
            Fault::Ignores if condition => {}
            Fault::Sometimes if condition && count.fetch_add(1, Ordering::SeqCst).is_multiple_of(3) => {}
            Fault::WantsBareTags if lower.starts_with("if-match:") => {
                let (name, tag) = line.split_once(':')?;
                let tag = tag.trim();
                let tag = if tag.starts_with('"') { "\"refused\"".to_owned() } else { format!("\"{tag}\"") };
                lines.push(format!("{name}: {tag}"));
            }
            _ => lines.push(line.to_owned()),
        }
    }
    while request.len() < head + 4 + length {
        let read = client.read(&mut buffer).ok().filter(|read| *read > 0)?;
        request.extend_from_slice(&buffer[..read]);
    }
    let mut server = TcpStream::connect(server).ok()?;
    lines.push("Connection: close".to_owned());
    server.write_all(format!("{}\r\n\r\n", lines.join("\r\n")).as_bytes()).ok()?;
    server.write_all(&request[head + 4..]).ok()?;
    let mut answer = Vec::new();
    server.read_to_end(&mut answer).ok()?;
    client.write_all(&answer).ok()
}
