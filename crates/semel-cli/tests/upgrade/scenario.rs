//! A ledger with every kind of record in every state, made by real processes.

use crate::support::{Home, Running, SOON, until};

/// The job of each state, by its readable form; `earlier` knows what must become of them.
pub(crate) const DONE: &str = "done@2026-06-19?series=landing";

const CONFIG: &str = "[notify.good]\ncommand = \"cat >> told\"\n[notify.bad]\ncommand = \"false\"\n\
    [jobs.alarmed]\ncommand = \"exit 3\"\nonce = true\nnotify = [\"good\", \"bad\"]\n\
    [jobs.daily]\ncommand = \"true\"\nevery = \"day\"\ntz = \"UTC\"\nwith = { shop = \"x\" }\n";

/// Make it. What is handed back runs on: its lease is held as long as it lives.
pub(crate) fn make(home: &Home) -> Running {
    home.write("semel.toml", CONFIG);
    home.write("payload.json", "{\"text\":\"a\",\"at\":1,\"n\":[1,2.5]}");
    done_and_open(home);
    failed(home);
    lost_and_in_doubt(home);
    steps(home);
    batch(home);
    scheduled(home);
    alarms(home);
    leases(home);
    // journal: done, running, busy
    home.run("--job once --once", "true").exits(0);
    let running = home.start("--job running --once --resource shared", "echo x >> begun; exec sleep 600");
    home.wait_lines("begun", 1);
    home.run("--job running --once --resource shared", "true").exits(0);
    home.run("--job other --once --resource shared", "true").exits(0);
    running
}

fn done_and_open(home: &Home) {
    home.run("--job once --once", "true").exits(0);
    let mut full = home.semel(["run", "--job", "done", "--slot", "2026-06-19", "--with", "series=landing"]);
    full.args([
        "--payload",
        "payload.json",
        "--volatile",
        "/at",
        "--choose",
        "topic=a,b",
        "--remember",
        "400d",
    ]);
    full.args(["--", "sh", "-c", "echo '{\"url\":\"x\",\"n\":1.5}' > $SEMEL_RESULT"]);
    home.launch(&mut full).end().exits(0);
    home.run("--job keyed --key a/b#c", "true").exits(0);
    home.run("--job always --always", "true").exits(0);
    home.run("--job forgotten --once --remember 1ms --keep 1ms", "true").exits(0);
    home.run("--job trace --once --remember 1ms --keep 1ms", "true").exits(0);
    until("both are past their time", SOON, || {
        home.ask("gc").exits(0);
        !home.ask("ls --job forgotten --state done").exits(0).text().contains("forgotten")
    });
    home.run("--job forgotten --once --remember 400d", "true").exits(0);
    let run = home.start("--job interrupted --once", "echo x >> interrupted; exec sleep 600");
    home.wait_lines("interrupted", 1);
    run.signal(libc::SIGTERM);
    run.end();
}

fn failed(home: &Home) {
    home.run("--job failed --once", "exit 3").exits(3);
    home.run("--job retried --once --retries 2 --backoff 1ms --max-failures 9", "exit 4").exits(4);
    home.run("--job quarantined --once --max-failures 1", "exit 3").exits(3);
    home.run("--job timed-out --once --timeout 100ms", "exec sleep 600").exits(124);
    home.run("--job killed --once", "kill -9 $$").exits(137);
    home.ask("run --job not-found --once -- no-such-program-here").exits(127);
}

/// A run that is killed -9 in the middle of its command.
fn lose(home: &Home, job: &str) {
    let run = home
        .start(&format!("--job {job} --once --ttl 10m"), &format!("echo x >> lost.{job}; exec sleep 600"));
    home.wait_lines(&format!("lost.{job}"), 1);
    run.kill_9();
}

fn lost_and_in_doubt(home: &Home) {
    // who comes while a dead one is cleared away waits for it
    lose(home, "lost");
    lose(home, "in-doubt");
    home.run("--job in-doubt --once --if-busy wait=30s --on-lost hold", "true").exits(79);
    lose(home, "again");
    home.run("--job again --once --if-busy wait=30s", "true").exits(0);
    home.executable("yes", "exit 0");
    home.executable("what", "exit 7");
    lose(home, "probed");
    home.run("--job probed --once --if-busy wait=30s --probe ./yes", "true").exits(0);
    lose(home, "probed-unknown");
    home.run("--job probed-unknown --once --if-busy wait=30s --probe ./what", "true").exits(79);
    lose(home, "judged");
    home.run("--job judged --once --if-busy wait=30s --on-lost hold", "true").exits(79);
    home.ask("resolve judged --done --because looked").exits(0);
    home.run("--job let-go --once --max-failures 1", "exit 3");
    home.ask("resolve let-go --retry --because mended").exits(0);
}

fn steps(home: &Home) {
    let script = "$SEMEL step a -- sh -c 'echo out; echo err >&2'; $SEMEL step b -- sh -c 'exit 5'; \
        $SEMEL step a --nth 2 -- true; exit 6";
    home.run("--job steps --once", script).exits(6);
    home.run("--job blocked --once", "$SEMEL step send -- sh -c 'kill -9 $$'; exit 1").exits(1);
    home.run("--job blocked --once", "$SEMEL step send -- true; exit $?").exits(79);
}

fn batch(home: &Home) {
    home.write("items", "{\"id\":1,\"t\":\"a\"}\n{\"id\":2,\"t\":\"b\"}\n{\"id\":3,\"t\":\"c\"}\n");
    let start = |script: &str, flags: &[&str]| {
        let mut command = home.semel(["batch", "items", "--job", "posts", "--key", "id"]);
        command.args(flags).args(["--", "sh", "-c", script, "sh", "{id}"]);
        home.launch(&mut command)
    };
    start("[ $1 != 2 ]", &[]).end().exits(1);
    start("[ $1 != 2 ]", &["--max-failures", "2"]).end().exits(79);
    home.write("items", "{\"id\":4}\n");
    let run = start("echo x >> item; exec sleep 600", &["--max-failures", "2", "--on-lost", "hold"]);
    home.wait_lines("item", 1);
    run.kill_9();
    until("the item is in doubt", SOON, || {
        start("true", &["--max-failures", "2", "--on-lost", "hold"]).end();
        home.ask("ls --job posts --state in_doubt").exits(0).text().contains("posts")
    });
}

fn scheduled(home: &Home) {
    for now in ["2026-06-15T05:00:00Z", "2026-06-19T05:00:00Z"] {
        home.launch(home.semel(["run", "daily"]).env("SEMEL_NOW", now)).end().exits(0);
    }
    for now in ["2026-06-15T05:00:00Z", "2026-06-15T20:00:00Z"] {
        let args = ["run", "--job", "often", "--every", "1s", "--tz", "UTC", "--", "true"];
        home.launch(home.semel(args).env("SEMEL_NOW", now)).end().exits(0);
    }
}

fn alarms(home: &Home) {
    home.ask("run alarmed").exits(3);
    home.launch(home.semel(["check", "--notify", "true"]).env("SEMEL_NOW", "2026-06-19T06:00:00Z")).end();
}

fn leases(home: &Home) {
    home.ask("lease acquire free --ttl 60s").exits(0);
    let token = home.ask("lease acquire given-back --ttl 60s").exits(0).text();
    home.ask(&format!("lease release given-back --token {token}")).exits(0);
    home.run("--job resting --once --hold-at-least 10m", "true").exits(0);
    home.run("--job delayed --once --lock-delay 5s", "true").exits(0);
}
