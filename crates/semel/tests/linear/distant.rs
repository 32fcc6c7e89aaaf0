//! A handle whose verbs are called by a process of its own, `semel-store-probe`: it can be killed or stopped in the
//! middle of any of them, and is started again by the next.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use semel::core::record::{RecordKey, Version};
use semel::store::conformance::calls::{self, Call};
use semel::store::{Change, Durability, Loaded, Pending, Record, Store, StoreError, Swaps};
use tokio::sync::oneshot;

use crate::nemesis::{Card, wait};

/// How often it is started until it can open the store.
const STARTS: u32 = 50;

#[derive(Debug)]
pub(crate) struct Distant {
    orders: mpsc::Sender<(String, oneshot::Sender<String>)>,
    /// 0 while there is none.
    pid: Arc<AtomicI32>,
    swaps: Swaps,
}

impl Distant {
    pub(crate) fn on(url: String, swaps: Swaps) -> Arc<Distant> {
        let (orders, taken) = mpsc::channel::<(String, oneshot::Sender<String>)>();
        let pid = Arc::new(AtomicI32::new(0));
        let shared = Arc::clone(&pid);
        std::thread::spawn(move || {
            let mut running = None;
            for (order, answer) in taken {
                let probe = running.get_or_insert_with(|| Probe::start(&url, &shared));
                let line = probe.ask(&order);
                if line.is_empty() {
                    running = None;
                }
                // an answer that nobody waits for is that of a call that was dropped
                let _ = answer.send(line);
            }
        });
        Arc::new(Distant { orders, pid, swaps })
    }

    async fn ask(&self, call: Call) -> String {
        let (answer, answered) = oneshot::channel();
        self.orders.send((format!("call {}", call.line()), answer)).unwrap();
        answered.await.unwrap_or_default()
    }

    fn signal(&self, signal: i32) {
        let pid = self.pid.load(Ordering::SeqCst);
        if pid > 0 {
            // SAFETY: no memory is involved.
            unsafe { libc::kill(pid, signal) };
        }
    }
}

/// Killed when dropped.
struct Probe {
    child: Child,
    orders: ChildStdin,
    answers: BufReader<ChildStdout>,
    pid: Arc<AtomicI32>,
}

impl Probe {
    fn start(url: &str, pid: &Arc<AtomicI32>) -> Probe {
        // it may be killed while it opens the store, as at any other time
        for _ in 0..STARTS {
            let mut child = Command::new(env!("CARGO_BIN_EXE_semel-store-probe"))
                .arg(url)
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .stderr(Stdio::null())
                .spawn()
                .unwrap();
            pid.store(i32::try_from(child.id()).unwrap(), Ordering::SeqCst);
            let (orders, answers) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
            let mut probe = Probe { child, orders, answers: BufReader::new(answers), pid: Arc::clone(pid) };
            if probe.ask("open") == "ok open" {
                return probe;
            }
        }
        panic!("{url} cannot be opened by another process");
    }

    /// One line; empty if it is gone.
    fn ask(&mut self, order: &str) -> String {
        let mut line = String::new();
        if writeln!(self.orders, "{order}").is_ok() {
            let _ = self.answers.read_line(&mut line);
        }
        // half a line is the last word of one who was killed
        if line.ends_with('\n') { line.trim_end().to_owned() } else { String::new() }
    }
}

impl Drop for Probe {
    fn drop(&mut self) {
        // no longer its own, once it is waited for
        self.pid.store(0, Ordering::SeqCst);
        let _ = (self.child.kill(), self.child.wait());
    }
}

impl Store for Distant {
    fn load<'a>(&'a self, keys: &'a [RecordKey]) -> Pending<'a, Loaded> {
        Box::pin(async { calls::loaded(&self.ask(Call::load(keys)).await) })
    }

    fn swap<'a>(&'a self, changes: &'a [Change], _: Durability) -> Pending<'a, Vec<Version>> {
        Box::pin(async { calls::swapped(&self.ask(Call::swap(changes)).await) })
    }

    fn touch<'a>(&'a self, key: &'a RecordKey, version: &'a Version) -> Pending<'a, ()> {
        Box::pin(async { calls::touched(&self.ask(Call::touch(key, version)).await) })
    }

    fn scan<'a>(&'a self, _: &'a str, _: Option<&'a RecordKey>, _: usize) -> Pending<'a, Vec<Record>> {
        Box::pin(async { Err(StoreError::Unavailable("nobody asks".to_owned())) })
    }

    fn changed<'a>(&'a self, _: &'a RecordKey, _: Option<&'a Version>, _: Duration) -> Pending<'a, bool> {
        Box::pin(async { Err(StoreError::Unavailable("nobody asks".to_owned())) })
    }

    fn swaps(&self) -> Swaps {
        self.swaps
    }
}

/// What can happen to client processes.
pub(crate) fn processes(clients: &[Arc<Distant>]) -> Vec<Card> {
    let clients = Arc::new(clients.to_vec());
    let some = move |clients: &[Arc<Distant>], chance: &mut semel_testkit::Chance| {
        Arc::clone(&clients[usize::try_from(chance.below(clients.len() as u64)).unwrap()])
    };
    let (killed, stopped) = (Arc::clone(&clients), clients);
    vec![
        Card::new("client kills", 3, move |chance| some(&killed, chance).signal(libc::SIGKILL)),
        Card::new("client stops", 2, move |chance| {
            let client = some(&stopped, chance);
            client.signal(libc::SIGSTOP);
            wait(chance, 5, 60);
            client.signal(libc::SIGCONT);
        }),
    ]
}
