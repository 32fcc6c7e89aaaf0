//! Who waits, and the connection that wakes them.
//!
//! Theory. A waiter leaves a word with the record; the swap that changes it sends that word with NOTIFY; one connection
//! of the process listens for all its waiters. It is there only while somebody waits. A word may be lost (a crash, a
//! pooler that hands sessions around), so it is only a hint: everybody looks again now and then, and often as long as
//! no connection hears. Whether one hears is tried out, by calling a word from the other connection.

use std::collections::HashMap;
use std::future::poll_fn;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use semel_core::record::RecordKey;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep, timeout};
use tokio_postgres::AsyncMessage;
use tokio_postgres::types::Type;

use super::connect::{Link, Made, connect};
use super::schema::channel;
use super::verbs::fresh_version;

/// How long the connection stays when nobody waits any more.
const LINGER: Duration = Duration::from_secs(3);
/// How soon a word must arrive for the connection to count as one that hears.
const HEARD: Duration = Duration::from_secs(1);
/// How long a connection that does not hear is not tried again, and one that cannot be made.
const DEAF: Duration = Duration::from_secs(60);
const DOWN: Duration = Duration::from_secs(5);
/// So many are woken together. Of more, one is: what is let go can be had by one alone, and two hundred who ask at once
/// are in each other's way. The others see it when they look anyway; they are many, so one of them looks soon.
const FEW: usize = 4;

/// The waiters of one store.
#[derive(Default)]
pub(super) struct Hints {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// By word: how many wait for it.
    waiting: HashMap<String, (usize, Arc<Notify>)>,
    /// A task is at work that listens, or tries to.
    busy: bool,
    /// Words do arrive.
    hears: bool,
    deaf_until: Option<Instant>,
}

/// One who waits for a word, until it is dropped.
pub(super) struct Waiter {
    hints: Arc<Hints>,
    word: String,
    pub(super) called: Arc<Notify>,
}

impl Hints {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Wait for this word from now on.
    pub(super) fn wait_for(self: &Arc<Self>, word: String) -> Waiter {
        let mut state = self.lock();
        let (many, called) = state.waiting.entry(word.clone()).or_default();
        *many += 1;
        let called = Arc::clone(called);
        drop(state);
        Waiter { hints: Arc::clone(self), word, called }
    }

    /// Do words arrive?
    pub(super) fn hears(&self) -> bool {
        self.lock().hears
    }

    fn call(&self, word: &str) {
        if let Some((many, called)) = self.lock().waiting.get(word) {
            if *many <= FEW {
                called.notify_waiters();
            } else {
                called.notify_one();
            }
        }
    }

    fn call_all(&self) {
        for (_, called) in self.lock().waiting.values() {
            called.notify_waiters();
        }
    }

    fn nobody_waits(&self) -> bool {
        self.lock().waiting.is_empty()
    }

    /// Begin to listen, unless somebody does or it is known to be of no use.
    pub(super) fn listen(self: &Arc<Self>, link: &Arc<Link>) {
        let mut state = self.lock();
        if state.busy || state.deaf_until.is_some_and(|until| Instant::now() < until) {
            return;
        }
        state.busy = true;
        drop(state);
        let busy = Busy(Arc::downgrade(self));
        let link = Arc::clone(link);
        tokio::spawn(async move { busy.work(&link).await });
    }
}

impl Drop for Waiter {
    fn drop(&mut self) {
        let mut state = self.hints.lock();
        if let Some((many, _)) = state.waiting.get_mut(&self.word) {
            *many -= 1;
            if *many == 0 {
                state.waiting.remove(&self.word);
            }
        }
    }
}

/// How the listening ended.
enum Ended {
    /// Words arrived.
    Heard,
    /// Connected, and no word arrived.
    Deaf,
    /// Not connected.
    Down,
}

/// The task that listens. However it ends, another may begin.
struct Busy(Weak<Hints>);

impl Drop for Busy {
    fn drop(&mut self) {
        if let Some(hints) = self.0.upgrade() {
            let mut state = hints.lock();
            (state.busy, state.hears) = (false, false);
            drop(state);
            // they look again, and listen again
            hints.call_all();
        }
    }
}

impl Busy {
    async fn work(&self, link: &Arc<Link>) {
        let rest = match self.listen(link).await {
            Ended::Heard => return,
            Ended::Deaf => DEAF,
            Ended::Down => DOWN,
        };
        if let Some(hints) = self.0.upgrade() {
            hints.lock().deaf_until = Some(Instant::now() + rest);
        }
    }

    /// Listen until nobody waits or the connection breaks.
    async fn listen(&self, link: &Arc<Link>) -> Ended {
        let Ok(Ok(Made { client, mut connection, .. })) =
            timeout(HEARD * 5, connect(&link.address, Instant::now())).await
        else {
            return Ended::Down;
        };
        let words = async {
            while let Some(Ok(message)) = poll_fn(|cx| connection.poll_message(cx)).await {
                if let (AsyncMessage::Notification(note), Some(hints)) = (message, self.0.upgrade()) {
                    hints.call(note.payload());
                }
            }
        };
        let channel = channel(&link.address.schema);
        let listening = async {
            let listen = format!("LISTEN {channel}");
            if !timeout(HEARD * 5, client.batch_execute(&listen)).await.is_ok_and(|said| said.is_ok()) {
                return Ended::Down;
            }
            if !self.tried_out(link, &channel).await {
                // a pooler may hand this session to others
                let _ = timeout(HEARD, client.batch_execute(&format!("UN{listen}"))).await;
                return Ended::Deaf;
            }
            if let Some(hints) = self.0.upgrade() {
                hints.lock().hears = true;
                // who looked before must leave a word now
                hints.call_all();
            }
            while self.0.upgrade().is_some_and(|hints| !hints.nobody_waits()) {
                sleep(LINGER).await;
            }
            Ended::Heard
        };
        tokio::select! {
            // broken: if it ever heard, whoever still waits listens again at once
            () = words => match self.0.upgrade() {
                Some(hints) if !hints.hears() => Ended::Down,
                _ => Ended::Heard,
            },
            ended = listening => ended,
        }
    }

    /// Does a word that the other connection calls arrive at this one?
    async fn tried_out(&self, link: &Link, channel: &str) -> bool {
        let Some(hints) = self.0.upgrade() else { return false };
        let Ok(word) = fresh_version() else { return false };
        let waiter = hints.wait_for(word.clone());
        let called = waiter.called.notified();
        tokio::pin!(called);
        called.as_mut().enable();
        let tried = async {
            let wire = link.wire(Instant::now()).await.ok()?;
            let sql = "SELECT pg_notify($1, $2)";
            wire.client.query_typed(sql, &[(&channel, Type::TEXT), (&word, Type::TEXT)]).await.ok()?;
            called.await;
            Some(())
        };
        timeout(HEARD, tried).await.ok().flatten().is_some()
    }
}

/// The word for a record: the same for everybody, and it tells nobody who listens along what the record is called.
pub(super) fn word(key: &RecordKey) -> String {
    // FNV-1a: a clash wakes somebody for nothing
    let hash = key.as_str().bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    format!("{hash:016x}")
}
