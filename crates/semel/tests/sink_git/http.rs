//! Smart http: git's own backend behind a web server that is just enough for it.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A server on a free port, for the repositories below `root`. It ends when dropped.
pub(crate) struct Server {
    pub(crate) port: u16,
    stop: Arc<AtomicBool>,
}

impl Server {
    pub(crate) fn start(root: PathBuf) -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                if stopped.load(Ordering::Relaxed) {
                    return;
                }
                let root = root.clone();
                std::thread::spawn(move || answer(stream, &root));
            }
        });
        Server { port, stop }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let _ = TcpStream::connect(("127.0.0.1", self.port));
    }
}

/// One request, one answer. A client that goes away is its own affair.
fn answer(stream: TcpStream, root: &Path) -> Option<()> {
    let mut reader = BufReader::new(stream.try_clone().ok()?);
    let mut line = String::new();
    reader.read_line(&mut line).ok()?;
    let mut words = line.split_whitespace();
    let (method, target) = (words.next()?.to_owned(), words.next()?.to_owned());
    let mut headers = Vec::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        let Some((name, value)) = line.trim_end().split_once(':') else { break };
        headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
    }
    let header =
        |name: &str| headers.iter().find(|(found, _)| found == name).map(|(_, value)| value.as_str());
    let body = match header("content-length") {
        Some(length) => {
            let mut body = vec![0; length.parse().ok()?];
            reader.read_exact(&mut body).ok()?;
            body
        }
        None if header("transfer-encoding").is_some() => chunks(&mut reader)?,
        None => Vec::new(),
    };
    let (path, query) = target.split_once('?').unwrap_or((&target, ""));
    let mut backend = Command::new("git");
    backend.arg("http-backend").env("GIT_PROJECT_ROOT", root).env("GIT_HTTP_EXPORT_ALL", "1");
    backend.env("GIT_CONFIG_NOSYSTEM", "1").env("GIT_CONFIG_GLOBAL", "/dev/null");
    backend.env("REQUEST_METHOD", method).env("PATH_INFO", path).env("QUERY_STRING", query);
    backend.env("CONTENT_TYPE", header("content-type").unwrap_or_default());
    backend.env("CONTENT_LENGTH", body.len().to_string());
    backend.env("HTTP_CONTENT_ENCODING", header("content-encoding").unwrap_or_default());
    backend.env("GIT_PROTOCOL", header("git-protocol").unwrap_or_default());
    backend.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = backend.spawn().ok()?;
    let mut stdin = child.stdin.take()?;
    let feeder = std::thread::spawn(move || stdin.write_all(&body));
    let said = child.wait_with_output().ok()?.stdout;
    let _ = feeder.join();
    let end = said.windows(4).position(|four| four == b"\r\n\r\n")?;
    let (head, body) = (String::from_utf8_lossy(&said[..end]).into_owned(), &said[end + 4..]);
    let status = head.lines().find_map(|line| line.strip_prefix("Status: ")).unwrap_or("200 OK");
    let mut out = format!("HTTP/1.1 {status}\r\nConnection: close\r\nContent-Length: {}\r\n", body.len());
    for line in head.lines().filter(|line| !line.starts_with("Status:")) {
        out.push_str(&format!("{line}\r\n"));
    }
    let mut stream = stream;
    stream.write_all(format!("{out}\r\n").as_bytes()).ok()?;
    stream.write_all(body).ok()
}

fn chunks(reader: &mut impl BufRead) -> Option<Vec<u8>> {
    let mut body = Vec::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        let length = usize::from_str_radix(line.trim(), 16).ok()?;
        let mut chunk = vec![0; length + 2];
        reader.read_exact(&mut chunk).ok()?;
        if length == 0 {
            return Some(body);
        }
        body.extend_from_slice(&chunk[..length]);
    }
}
