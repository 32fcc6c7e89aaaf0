//! Lanes that are tried out with `semel doctor --notify`, pings of runs, and secrets that stay secret.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::support::{Home, SOON, Said, skipped, until};

/// A server that keeps what it is asked, and answers with this status; or never, if there is none.
struct Server {
    at: SocketAddr,
    requests: Arc<Mutex<Vec<String>>>,
}

impl Server {
    fn new(status: Option<&'static str>) -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = listener.local_addr().unwrap();
        let requests = Arc::new(Mutex::new(Vec::new()));
        let kept = requests.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (mut stream, kept) = (stream.unwrap(), kept.clone());
                std::thread::spawn(move || {
                    let request = read_request(&mut stream);
                    kept.lock().unwrap().push(request);
                    match status {
                        Some(status) => {
                            let head = format!("HTTP/1.1 {status}\r\ncontent-length: 0\r\n\r\n");
                            let _ = stream.write_all(head.as_bytes());
                        }
                        None => drop(stream.read(&mut [0; 1])),
                    }
                });
            }
        });
        Server { at, requests }
    }

    fn url(&self, rest: &str) -> String {
        format!("http://{}{rest}", self.at)
    }

    fn requests(&self) -> Vec<String> {
        self.requests.lock().unwrap().clone()
    }

    /// What was asked for, without the id of the run; which must be one and the same.
    #[track_caller]
    fn targets(&self) -> Vec<String> {
        let requests = self.requests();
        let targets: Vec<&str> =
            requests.iter().map(|request| request.split_whitespace().nth(1).unwrap()).collect();
        let rid = |target: &str| target.rsplit_once("rid=").unwrap().1.to_owned();
        for target in &targets {
            assert_eq!(rid(target), rid(targets[0]), "{targets:?}");
            let parts: Vec<usize> = rid(target).split('-').map(str::len).collect();
            assert_eq!(parts, [8, 4, 4, 4, 12], "{target}");
        }
        targets.iter().map(|target| target.replace(&rid(target), "")).collect()
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

#[track_caller]
fn ask(home: &Home, words: &str, vars: &[(&str, &str)]) -> Said {
    let mut command = home.semel(words.split_whitespace());
    home.launch(command.envs(vars.iter().copied())).end()
}

/// Neither in what was said nor in anything that was written.
#[track_caller]
fn nowhere(home: &Home, secrets: &[&str]) {
    let mut folders = vec![home.path("store"), home.path("state")];
    let mut files: Vec<_> =
        std::fs::read_dir(home.path(".")).unwrap().map(|file| file.unwrap().path()).collect();
    files.retain(|path| {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        name.starts_with("out.") || name.starts_with("err.")
    });
    while let Some(folder) = folders.pop() {
        for file in std::fs::read_dir(folder).into_iter().flatten() {
            let path = file.unwrap().path();
            if path.is_dir() { folders.push(path) } else { files.push(path) }
        }
    }
    assert!(files.iter().any(|path| path.ends_with("ledger.db")), "{files:?}");
    for path in files {
        let bytes = std::fs::read(&path).unwrap_or_default();
        for secret in secrets {
            let found = bytes.windows(secret.len()).any(|window| window == secret.as_bytes());
            assert!(!found, "{secret} is in {}: {}", path.display(), String::from_utf8_lossy(&bytes));
        }
    }
}

fn python(script: &str, words: &[&str]) -> Option<String> {
    let out = Command::new("python3").arg("-c").arg(script).args(words).output().ok()?;
    out.status.success().then(|| String::from_utf8_lossy(&out.stdout).trim().to_owned())
}

/// The signature of a request, by somebody else's hand.
const VERIFY: &str = r#"
import sys, hmac, hashlib, base64
head, body = sys.argv[2].split("\r\n\r\n", 1)
have = dict(line.lower().split(": ", 1) if not line.lower().startswith("webhook-signature")
            else ("webhook-signature", line.split(": ", 1)[1]) for line in head.split("\r\n")[1:])
key = base64.b64decode(sys.argv[1])
text = "%s.%s.%s" % (have["webhook-id"], have["webhook-timestamp"], body)
made = base64.b64encode(hmac.new(key, text.encode(), hashlib.sha256).digest()).decode()
print("yes" if have["webhook-signature"] == "v1," + made else "no")
"#;

#[test]
fn a_test_message_goes_through_every_lane() {
    let home = Home::new();
    let (good, bad) = (Server::new(Some("200 OK")), Server::new(Some("410 Gone")));
    home.write(
        "semel.toml",
        r#"
        [notify.desk]
        command = ["sh", "-c", "cat > 'told here'; pwd >> 'told here'; env | grep -c -e HOOK -e SECRET >> 'told here'; exit 0"]
        [notify.broken]
        command = "echo no route >&2; exit 3"
        [notify.gone]
        webhook = { env = "GONE_HOOK" }
        private-addresses = true
        [notify.ops]
        webhook = { env = "OPS_HOOK" }
        secret = { env = "OPS_SECRET" }
        private-addresses = true
        "#,
    );
    let (hook, gone) = (good.url("/services/hunter2"), bad.url("/services/hunter2"));
    let vars =
        [("OPS_HOOK", hook.as_str()), ("GONE_HOOK", gone.as_str()), ("OPS_SECRET", "whsec_aHVudGVyMw==")];
    let said = ask(&home, "doctor --notify", &vars).exits(1).text();
    for line in [
        "broken: the test message did not arrive: its command ended with 3: no route",
        "gone: the test message did not arrive: 127.0.0.1: it answered 410: there is nobody any more; take the lane out",
        "ops: the test message test_",
        "desk: the test message test_",
    ] {
        assert!(said.contains(line), "{line}: {said}");
    }
    let told = home.lines("told here");
    let message: serde_json::Value = serde_json::from_str(&told[0]).unwrap();
    assert_eq!((&message["kind"], &message["lane"]), (&"test".into(), &"desk".into()));
    assert_eq!(told[1], home.path("").canonicalize().unwrap().to_str().unwrap());
    assert_eq!(told[2], "0", "no command inherits what lanes keep secret");
    match python(VERIFY, &["aHVudGVyMw==", &good.requests()[0]]) {
        Some(answer) => assert_eq!(answer, "yes", "{:?}", good.requests()),
        None => skipped("a signature by somebody else's hand", "there is no python3"),
    }
    ask(&home, "doctor --notify ops", &vars).exits(0);
    assert_eq!(good.requests().len(), 2);
    let json = ask(&home, "doctor --notify ops --json", &vars).exits(0);
    assert_eq!(json.json()["wrong"], 0);
    ask(&home, "doctor --notify opz", &vars).exits(78).saying("did you mean \"ops\"?");
    ask(&home, "doctor --notify ops", &vars[1..]).exits(78).saying("OPS_HOOK is not set");
    let missing = ask(&home, "doctor --notify", &vars[1..]).exits(1).text();
    assert!(missing.contains("semel.toml:9: notify.ops: webhook is { env = \"OPS_HOOK\" }"), "{missing}");
    ask(&home, "run --job x --once -- true", &vars).exits(0);
    nowhere(&home, &["hunter2", "hunter3", "aHVudGVyMw", "services"]);
}

#[test]
fn lanes_that_cannot_be_are_said_before_anything_is_run() {
    let home = Home::new();
    home.write(
        "semel.toml",
        "[notify.ops]\ncommand = \"true\"\n[notify.hook]\nwebhook = { env = \"HOOK\" }\nsecret = { env = \"KEY\" }\n[jobs.a]\ncommand = [\"touch\", \"ran\"]\nonce = true\nnotify = [\"hook\"]\n",
    );
    let flags = |flags: &[&str], vars: &[(&str, &str)]| {
        let mut command = home.semel(["run", "--job", "x", "--once"]);
        command.args(flags).args(["--", "touch", "ran"]);
        home.launch(command.envs(vars.iter().copied())).end().exits(78)
    };
    flags(&["--notify", "opz"], &[])
        .saying("--notify opz: semel.toml has no such lane: did you mean \"ops\"?");
    flags(&["--notify", "nobody-at-all"], &[])
        .saying("there is no such command: write [notify.nobody-at-all]");
    flags(&["--notify", ""], &[]).saying("--notify is empty");
    flags(&["--notify", "http://h/hunter2"], &[]).saying("--notify: http: is for private addresses only");
    flags(&["--notify", "https://me:hunter2@h/"], &[]).saying("leave out what stands before the @");
    flags(&["--notify", "https://h/hunter2"], &[("SEMEL_WEBHOOK_SECRET", "whsec_?hunter2")])
        .saying("SEMEL_WEBHOOK_SECRET: what follows whsec_ is no base64");
    flags(&["--ping", "hunter2"], &[]).saying("--ping: it is no address");
    flags(&["--ping", "http://h/hunter2"], &[]).saying("--ping: http: is for private addresses only");
    assert!(!home.path("ran").exists());
    // what only the surroundings lack is said, and the job runs
    let job = |vars: &[(&str, &str)]| ask(&home, "run a", vars).exits(0).saying("lane hook is left out");
    job(&[]).saying("semel.toml:3: notify.hook: webhook is { env = \"HOOK\" }, and HOOK is not set");
    job(&[("HOOK", "hunter2"), ("KEY", "k")]).saying("semel.toml:3: notify.hook: webhook: it is no address");
    job(&[("HOOK", "http://h/hunter2"), ("KEY", "k")]).saying("webhook: http: is for private addresses only");
    job(&[("HOOK", "https://h/hunter2")])
        .saying("notify.hook: secret is { env = \"KEY\" }, and KEY is not set");
    job(&[("HOOK", "https://h/hunter2"), ("KEY", " ")]).saying("notify.hook: secret: it is empty");
    assert!(home.path("ran").exists());
    ask(&home, "run a --notify ./x", &[]).exits(0);
    ask(&home, "run --job x --once -- true", &[]).exits(0);
    nowhere(&home, &["hunter2"]);
}

#[test]
fn a_run_pings_when_it_begins_and_how_it_ends() {
    for (script, end) in [
        ("exit 0", "/p/abc?a=b&rid="),
        ("exit 7", "/p/abc/7?a=b&rid="),
        ("kill -9 $$", "/p/abc/fail?a=b&rid="),
    ] {
        let home = Home::new();
        let server = Server::new(Some("200 OK"));
        let ping = server.url("/p/abc?a=b");
        home.run(&format!("--job x --slot 2026-06-19 --ping {ping} --private-addresses"), script);
        assert_eq!(server.targets(), ["/p/abc/start?a=b&rid=", end], "{script}");
        let bodies: Vec<_> =
            server.requests().iter().map(|text| text.split_once("\r\n\r\n").unwrap().1.to_owned()).collect();
        assert_eq!(bodies[0], "x@2026-06-19 begins");
        assert!(
            bodies[1].starts_with("x@2026-06-19 ") && bodies[1].contains("(attempt 1, after "),
            "{bodies:?}"
        );
        assert!(server.requests().iter().all(|request| request.starts_with("POST ")));
    }
}

#[test]
fn what_is_not_run_is_not_pinged() {
    let home = Home::new();
    let server = Server::new(Some("200 OK"));
    let flags = format!("--job x --once --private-addresses --ping {}", server.url("/abc"));
    home.run(&format!("{flags} --rehearse"), "true").exits(0);
    assert_eq!(server.requests().len(), 0, "a rehearsal is no run");
    home.run(&flags, "true").exits(0).silent();
    assert_eq!(server.requests().len(), 2);
    home.run(&flags, "true").exits(0).silent();
    assert_eq!(server.requests().len(), 2, "a skip is no run");
    let timed = format!("--job y --once --timeout 100ms --private-addresses --ping {}", server.url("/abc"));
    home.run(&timed, "sleep 300").exits(124);
    let last = server.requests().pop().unwrap();
    assert!(last.starts_with("POST /abc/fail?rid="), "{last}");
}

#[test]
fn a_ping_that_does_not_arrive_fails_nothing_and_holds_up_nothing() {
    let home = Home::new();
    let broken = Server::new(Some("500 No"));
    let ping = |server: &Server| format!("--private-addresses --ping {}", server.url("/hunter2"));
    home.run(&format!("--job a --once {}", ping(&broken)), "true").exits(0).silent();
    assert_eq!(broken.requests().len(), 4, "one retry each");
    home.run(&format!("--job b --once -v {}", ping(&broken)), "exit 3")
        .exits(3)
        .saying("semel: the ping at the begin did not arrive: 127.0.0.1: it answered 500 (2 tries)")
        .saying("semel: the ping at the end did not arrive: ");
    let silent = Server::new(None);
    let mut slow = home.start(&format!("--job c --once {}", ping(&silent)), "date >> began");
    home.wait_lines("began", 1);
    assert!(!slow.has_ended(), "the command does not wait for the ping");
    let took = until("its end", SOON, || slow.has_ended());
    assert!(took < Duration::from_secs(20), "{took:?}");
    slow.end().exits(0).silent();
    home.run("--job d --once -v --ping https://127.0.0.1:1/hunter2", "true")
        .exits(0)
        .saying("127.0.0.1: it is at a private address, and was not asked");
    nowhere(&home, &["hunter2"]);
}

#[test]
fn a_job_pings_the_address_in_a_variable_and_its_command_does_not_see_it() {
    let home = Home::new();
    let server = Server::new(Some("200 OK"));
    home.write(
        "semel.toml",
        r#"
        [defaults]
        ping = { env = "PING_URL" }
        private-addresses = true
        [jobs.a]
        command = "echo ${PING_URL-none} ${SEMEL_WEBHOOK_SECRET-none} >> seen"
        once = true
        "#,
    );
    let url = server.url("/hunter2");
    ask(&home, "run a", &[("PING_URL", &url), ("SEMEL_WEBHOOK_SECRET", "hunter3")]).exits(0).silent();
    assert_eq!(home.lines("seen"), ["none none"]);
    assert_eq!(server.targets(), ["/hunter2/start?rid=", "/hunter2?rid="]);
    ask(&home, "why a", &[]).exits(0);
    ask(&home, "show a --json", &[]).exits(0);
    ask(&home, "run a --json", &[("PING_URL", &url)]).exits(0);
    nowhere(&home, &["hunter2", "hunter3"]);
}

#[test]
fn addresses_by_flag_are_on_record_as_digests() {
    let home = Home::new();
    let flags = ["--notify", "https://h/hunter2", "--notify", "mail -s hunter2 ops", "--notify", "true"];
    let mut command = home.semel(["run", "--job", "x", "--once"]);
    command.args(flags).args(["--ping", "https://127.0.0.1:1/hunter2", "--summary", "--", "true"]);
    home.launch(&mut command).end().exits(0);
    let shown = ask(&home, "show x --json", &[]).exits(0).text();
    assert!(shown.contains("webhook:") && shown.contains("command:"), "{shown}");
    nowhere(&home, &["hunter2"]);
}

#[test]
fn no_proxy_is_used() {
    let home = Home::new();
    let (server, proxy) = (Server::new(Some("200 OK")), Server::new(Some("200 OK")));
    let at = proxy.url("");
    let names = ["http_proxy", "HTTP_PROXY", "https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"];
    let mut command =
        home.work(&format!("--job x --once --private-addresses --ping {}", server.url("/abc")), "true");
    home.launch(command.envs(names.map(|name| (name, at.as_str())))).end().exits(0);
    assert_eq!((server.requests().len(), proxy.requests().len()), (2, 0));
}

/// A server with a certificate of its own. It hears a request out: who hangs up early is not heard either.
const TLS: &str = r#"
import os, ssl, socket, sys
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain(sys.argv[1], sys.argv[2])
listener = socket.create_server(("127.0.0.1", 0))
open(sys.argv[3] + ".new", "w").write(str(listener.getsockname()[1]))
os.rename(sys.argv[3] + ".new", sys.argv[3])
while True:
    stream, _ = listener.accept()
    try:
        with context.wrap_socket(stream, server_side=True) as tls:
            text = ""
            while "begins" not in text and "succeeded" not in text:
                text += tls.recv(65536).decode()
            open(sys.argv[4], "a").write(text.split("\r\n")[0] + "\n")
            tls.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")
    except (OSError, ssl.SSLError):
        pass
"#;

#[test]
fn a_certificate_must_be_trusted() {
    let home = Home::new();
    let made = Command::new("openssl")
        .args([
            "req",
            "-x509",
            "-newkey",
            "ec",
            "-pkeyopt",
            "ec_paramgen_curve:prime256v1",
            "-nodes",
            "-days",
            "2",
        ])
        .args(["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"])
        .args(["-addext", "basicConstraints=critical,CA:FALSE"])
        .arg("-keyout")
        .arg(home.path("key.pem"))
        .arg("-out")
        .arg(home.path("cert.pem"))
        .output();
    if !made.is_ok_and(|made| made.status.success()) || python("import ssl", &[]).is_none() {
        return skipped("a certificate must be trusted", "there is no openssl, or no python3");
    }
    let mut server = home.plain("/usr/bin/env");
    server.env("PATH", python("import os; print(os.environ['PATH'])", &[]).unwrap());
    server.args(["python3", "-c", TLS]);
    server.args(["cert.pem", "key.pem", "port", "asked"].map(|name| home.path(name)));
    let _server = home.launch(&mut server);
    until("the server's port", SOON, || home.path("port").exists());
    let url = format!("https://localhost:{}/abc", home.lines("port")[0]);
    let run = |job: &str, trusted: &str| {
        let mut command =
            home.work(&format!("--job {job} --once -v --private-addresses --ping {url}"), "true");
        home.launch(command.env("SSL_CERT_FILE", trusted)).end().exits(0)
    };
    let trusted = home.path("cert.pem");
    let said = run("a", trusted.to_str().unwrap());
    assert!(!said.err.contains("did not arrive"), "{}", said.err);
    assert_eq!(home.wait_lines("asked", 2).len(), 2);
    run("b", "").saying("did not arrive: localhost: no trust in it: ");
    assert_eq!(home.lines("asked").len(), 2, "nothing was said to who is not trusted");
    run("c", "/none.pem").saying("SSL_CERT_FILE /none.pem: ");
}

fn batch(home: &Home, flags: &[&str], script: &str) -> Command {
    let mut command = home.semel(["batch", "-", "--job", "posts", "--format", "lines"]);
    command.args(flags).args(["--", "sh", "-c", script, "sh", "{line}"]);
    command.stdin(Stdio::piped());
    command
}

#[track_caller]
fn with_items(home: &Home, flags: &[&str], items: &str, script: &str) -> Said {
    let mut run = home.launch(&mut batch(home, flags, script));
    run.take_stdin().write_all(items.as_bytes()).unwrap();
    run.end()
}

#[test]
fn a_batch_pings_when_it_begins_and_how_it_ends() {
    for (script, end, code) in [("true", "/abc?rid=", 0), ("[ $1 != b ]", "/abc/1?rid=", 1)] {
        let home = Home::new();
        let server = Server::new(Some("200 OK"));
        let ping = server.url("/abc");
        with_items(&home, &["--ping", &ping, "--private-addresses"], "a\nb\n", script).exits(code);
        assert_eq!(server.targets(), ["/abc/start?rid=", end], "{script}");
        let last = server.requests().pop().unwrap();
        assert!(last.contains("posts ended: done "), "{last}");
    }
    // one that stands down begins nothing; one that is stopped has failed
    let home = Home::new();
    let server = Server::new(Some("200 OK"));
    home.write("semel.toml", format!("[defaults]\nping = \"{}\"\nprivate-addresses = true\n[batches.posts]\nitems = \"items\"\nformat = \"lines\"\ncommand = [\"sh\", \"-c\", \"echo x >> begun; exec sleep 600\"]\n", server.url("/abc")));
    home.write("items", "a\n");
    let running = home.launch(&mut home.semel(["batch", "posts"]));
    home.wait_lines("begun", 1);
    home.ask("batch posts").exits(0).silent();
    until("the first ping", SOON, || !server.requests().is_empty());
    assert_eq!(server.targets(), ["/abc/start?rid="]);
    running.signal(libc::SIGTERM);
    running.end().exits(143);
    assert_eq!(server.targets(), ["/abc/start?rid=", "/abc/fail?rid="]);
}

/// The notices that were told, each as its event and its kind; one that was told again is the same.
fn told(home: &Home) -> Vec<(String, String)> {
    let (mut ids, mut told) = (Vec::new(), Vec::new());
    for line in home.lines("told") {
        let notice: serde_json::Value = serde_json::from_str(&line).unwrap();
        let word = |name: &str| notice[name].as_str().unwrap().to_owned();
        if !ids.contains(&word("id")) {
            ids.push(word("id"));
            told.push((word("event"), word("anomaly")));
        }
    }
    told
}

#[test]
fn a_batch_tells_of_the_first_item_that_needs_a_person_while_it_goes_on() {
    let home = Home::new();
    let raised = ("raised".to_owned(), "quarantined".to_owned());
    let flags = ["--max-failures", "1", "--notify", "cat >> told"];
    let script = "echo $1 >> begun; ! grep -qx -- $1 bad";
    home.write("bad", "b\nc\n");
    // an input that never ends, and a runner that is killed
    let mut run = home.launch(&mut batch(&home, &flags, script));
    let mut input = run.take_stdin();
    input.write_all(b"a\nb\nc\n").unwrap();
    home.wait_lines("told", 1);
    assert_eq!(told(&home), std::slice::from_ref(&raised));
    assert!(home.lines("told")[0].contains("posts;line=b failed too often and needs a person"));
    run.kill_9();
    drop(input);
    // an input without them: they need a person all the same
    with_items(&home, &flags, "a\nd\n", script).exits(0);
    with_items(&home, &flags, "b\n", script).exits(79);
    assert_eq!(told(&home), std::slice::from_ref(&raised), "first of a kind, then silence");
    home.write("bad", "");
    home.ask("retry posts --quarantined").exits(0);
    with_items(&home, &flags, "a\nb\nc\n", script).exits(0);
    assert_eq!(told(&home), [raised, ("recovered".to_owned(), "quarantined".to_owned())]);
}
