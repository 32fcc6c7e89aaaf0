//! The connection: made when a verb needs one, shared by all verbs, made again once it is broken.
//!
//! It speaks RESP3, so that hints for those who wait arrive on the same connection, and a second one is never needed. A
//! verb whose future is dropped leaves its answer to the connection, which throws it away: the next verb reads its own.

use std::collections::HashMap;
use std::io;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use redis::aio::MultiplexedConnection;
use redis::{
    AsyncConnectionConfig, ProtocolVersion, PushInfo, PushKind, RedisConnectionInfo, RedisError, Value,
};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::task::AbortHandle;
use tokio_rustls::TlsConnector;

use super::address::Place;
use crate::store::outbox::{Outbox, Told};

/// Why there is no connection.
#[derive(Debug)]
pub(super) enum NoLink {
    /// Nobody answers there.
    Connect(io::Error),
    /// Somebody does, and the two cannot agree on TLS.
    Tls(io::Error),
    /// The server refused the greeting: its password, its version, its database.
    Greeting(RedisError),
}

/// One connection.
pub(super) struct Link {
    /// Where to.
    pub(super) place: Place,
    connection: MultiplexedConnection,
    driver: AbortHandle,
    outbox: Arc<Outbox>,
    /// Its sender lives as long as the task that reads and writes.
    lives: watch::Receiver<()>,
    hints: Arc<Hints>,
    /// The channels that may be subscribed to on this connection, and whether they surely are: one who asks for a change
    /// may be dropped before it is answered. Held while that changes, so that nobody's subscription is undone by another's.
    subscribed: tokio::sync::Mutex<HashMap<String, bool>>,
}

impl Link {
    /// Connect, agree on TLS, greet.
    pub(super) async fn make(place: &Place, hints: Arc<Hints>) -> Result<Link, NoLink> {
        let stream = TcpStream::connect((place.host.as_str(), place.port)).await.map_err(NoLink::Connect)?;
        stream.set_nodelay(true).map_err(NoLink::Connect)?;
        let greeting = greeting(place);
        let heard = Arc::clone(&hints);
        let config = AsyncConnectionConfig::new()
            .set_response_timeout(None) // every verb has a deadline of its own
            .set_push_sender(move |push: PushInfo| {
                heard.tell(push);
                Ok::<(), ()>(())
            });
        let (held, lives) = watch::channel(());
        let outbox = Arc::new(Outbox::default());
        let stream = Told::new(stream, Arc::clone(&outbox));
        let (connection, driver) = match &place.tls {
            Some((how, name)) => {
                let tls = TlsConnector::from(Arc::clone(how)).connect(name.clone(), stream);
                let tls = Box::pin(tls.await.map_err(NoLink::Tls)?);
                let made = MultiplexedConnection::new_with_config(&greeting, tls, config).await;
                let (connection, work) = made.map_err(NoLink::Greeting)?;
                (connection, tokio::spawn(driven(Arc::clone(&outbox), work, held)).abort_handle())
            }
            None => {
                let made = MultiplexedConnection::new_with_config(&greeting, stream, config).await;
                let (connection, work) = made.map_err(NoLink::Greeting)?;
                (connection, tokio::spawn(driven(Arc::clone(&outbox), work, held)).abort_handle())
            }
        };
        let place = place.clone();
        Ok(Link {
            place,
            connection,
            driver,
            outbox,
            lives,
            hints,
            subscribed: tokio::sync::Mutex::default(),
        })
    }

    /// Is it of use still?
    pub(super) fn is_alive(&self) -> bool {
        self.lives.has_changed().is_ok()
    }

    /// Wait until it is broken.
    pub(super) async fn broken(&self) {
        // nothing is ever sent: it ends with the sender
        while self.lives.clone().changed().await.is_ok() {}
    }

    /// Something to ask through.
    pub(super) fn connection(&self) -> MultiplexedConnection {
        self.connection.clone()
    }

    /// Send this, and wait until it has left this process. An answer that comes sooner is handed back.
    pub(super) async fn post(&self, command: &redis::Cmd) -> Result<Option<Value>, RedisError> {
        let mut connection = self.connection();
        // alive until it has left: the driver sends nothing that nobody wants the answer of
        let mut asked = pin!(command.query_async::<Value>(&mut connection));
        tokio::select! {
            biased;
            answer = &mut asked => return answer.map(Some),
            // given to the driver by that first look at it
            () = std::future::ready(()) => {}
        }
        match self.outbox.left().await {
            true => Ok(None),
            // its end is the answer
            false => asked.await.map(Some),
        }
    }

    /// Hear what is published on this channel, from when this is answered. Channels that nobody waits on any more are
    /// left on the way.
    pub(super) async fn listen(&self, channel: &str) -> Result<Waiter, RedisError> {
        let waiter = Hints::enter(&self.hints, channel);
        let mut subscribed = self.subscribed.lock().await;
        let left: Vec<String> =
            subscribed.keys().filter(|channel| !self.hints.awaits(channel)).cloned().collect();
        if !left.is_empty() {
            subscribed.extend(left.iter().map(|channel| (channel.clone(), false)));
            self.connection().unsubscribe(&left).await?;
            subscribed.retain(|channel, _| !left.contains(channel));
        }
        if subscribed.get(channel) != Some(&true) {
            subscribed.insert(channel.to_owned(), false);
            self.connection().subscribe(channel).await?;
            subscribed.insert(channel.to_owned(), true);
        }
        Ok(waiter)
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

async fn driven(outbox: Arc<Outbox>, work: impl Future<Output = ()>, held: watch::Sender<()>) {
    outbox.driven(work).await;
    drop(held);
}

fn greeting(place: &Place) -> RedisConnectionInfo {
    let mut greeting = RedisConnectionInfo::default()
        .set_protocol(ProtocolVersion::RESP3)
        .set_db(place.database)
        .set_skip_set_lib_name();
    if let Some(user) = &place.user {
        greeting = greeting.set_username(user);
    }
    if let Some(password) = &place.password {
        greeting = greeting.set_password(password);
    }
    greeting
}

/// Who waits for what was published. A topic lives as long as somebody waits on it, and keeps the last word only.
#[derive(Default)]
pub(super) struct Hints(Mutex<HashMap<String, Topic>>);

struct Topic {
    waiters: usize,
    /// The version that was published last; empty for a removal.
    last: watch::Sender<Option<String>>,
}

/// One who waits on a channel.
pub(super) struct Waiter {
    hints: Arc<Hints>,
    channel: String,
    last: watch::Receiver<Option<String>>,
}

impl Hints {
    fn topics(&self) -> MutexGuard<'_, HashMap<String, Topic>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn enter(hints: &Arc<Hints>, channel: &str) -> Waiter {
        let mut topics = hints.topics();
        let topic = topics
            .entry(channel.to_owned())
            .or_insert_with(|| Topic { waiters: 0, last: watch::Sender::new(None) });
        topic.waiters += 1;
        let last = topic.last.subscribe();
        drop(topics);
        Waiter { hints: Arc::clone(hints), channel: channel.to_owned(), last }
    }

    fn awaits(&self, channel: &str) -> bool {
        self.topics().contains_key(channel)
    }

    fn tell(&self, push: PushInfo) {
        let (PushKind::Message, [Value::BulkString(channel), Value::BulkString(version)]) =
            (&push.kind, push.data.as_slice())
        else {
            return;
        };
        let (Ok(channel), Ok(version)) = (std::str::from_utf8(channel), std::str::from_utf8(version)) else {
            return;
        };
        if let Some(topic) = self.topics().get(channel) {
            topic.last.send_replace(Some(version.to_owned()));
        }
    }
}

impl Waiter {
    /// Wait until another version than this is published; empty is the version of what is not there.
    pub(super) async fn other_than(&mut self, version: &str) {
        loop {
            if self.last.changed().await.is_err() {
                // the topic lives as long as its waiters do
                return;
            }
            if self.last.borrow_and_update().as_deref().is_some_and(|last| last != version) {
                return;
            }
        }
    }
}

impl Drop for Waiter {
    fn drop(&mut self) {
        let mut topics = self.hints.topics();
        if let Some(topic) = topics.get_mut(&self.channel) {
            topic.waiters -= 1;
            if topic.waiters == 0 {
                topics.remove(&self.channel);
            }
        }
    }
}
