//! One connection for all verbs, made by the first and made again after it broke.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::{Mutex, oneshot};
use tokio::task::AbortHandle;
use tokio::time::timeout;
use tokio_postgres::tls::MakeTlsConnect;
use tokio_postgres::{Client, Connection, Socket};
use tokio_postgres_rustls::MakeRustlsConnect;

use super::super::StoreError;
use super::address::Address;
use super::error;

/// What is read and written, with TLS or without.
type Stream = <MakeRustlsConnect as MakeTlsConnect<Socket>>::Stream;

/// The oldest server that the schema's functions are meant for.
const OLDEST: u32 = 12;

/// How long a connection that nobody uses any more may take to say goodbye.
const GOODBYE: Duration = Duration::from_secs(5);

/// A connection that several verbs use at once, each answered in its turn.
pub(super) struct Wire {
    pub(super) client: Client,
    pub(super) place: String,
    pub(super) user: String,
    pub(super) schema: String,
    broken: AtomicBool,
    task: AbortHandle,
    /// Gone with this: then the task has so long to end.
    _used: oneshot::Sender<()>,
}

impl Wire {
    fn works(&self) -> bool {
        !self.broken.load(Ordering::Relaxed) && !self.client.is_closed()
    }

    /// Nobody shall use it any more: it owes an answer that nobody waits for.
    pub(super) fn discard(&self) {
        self.broken.store(true, Ordering::Relaxed);
        self.task.abort();
    }
}

/// Where the connection is kept.
pub(super) struct Link {
    pub(super) address: Address,
    slot: Mutex<Option<Arc<Wire>>>,
}

impl Link {
    pub(super) fn new(address: Address) -> Link {
        Link { address, slot: Mutex::new(None) }
    }

    /// The connection, made now if there is none.
    pub(super) async fn wire(&self) -> Result<Arc<Wire>, StoreError> {
        let mut slot = self.slot.lock().await;
        if let Some(wire) = slot.as_ref().filter(|wire| wire.works()) {
            return Ok(Arc::clone(wire));
        }
        *slot = None;
        let (client, connection) = connect(&self.address).await?;
        let (used, mut unused) = oneshot::channel::<()>();
        let task = tokio::spawn(async move {
            let mut connection = connection;
            tokio::select! {
                _ = &mut connection => {}
                _ = &mut unused => drop(timeout(GOODBYE, &mut connection).await),
            }
        });
        let Address { place, user, schema, .. } = &self.address;
        let wire = Arc::new(Wire {
            client,
            place: place.clone(),
            user: user.clone(),
            schema: schema.clone(),
            broken: AtomicBool::new(false),
            task: task.abort_handle(),
            _used: used,
        });
        *slot = Some(Arc::clone(&wire));
        Ok(wire)
    }
}

/// A new connection to the first host that takes one, beginning with the one that did so last; to a server that is not too
/// old. A host that swallows what it is sent must not keep from the next.
pub(super) async fn connect(address: &Address) -> Result<(Client, Connection<Socket, Stream>), StoreError> {
    let Address { hosts, patience, tls, place, user, database, last, .. } = address;
    let first = last.load(Ordering::Relaxed).min(hosts.len().saturating_sub(1));
    let mut why = None;
    for (i, host) in hosts.iter().enumerate().cycle().skip(first).take(hosts.len()) {
        match timeout(*patience, host.connect(tls.clone())).await {
            Ok(Ok((client, connection))) => {
                last.store(i, Ordering::Relaxed);
                return young_enough(client, connection, place);
            }
            Ok(Err(refused)) => why = Some(error::refused(&refused, place, user, database)),
            // what another host said tells more
            Err(_) => drop(why.get_or_insert_with(|| format!("PostgreSQL at {place} does not answer"))),
        }
    }
    Err(StoreError::Unavailable(why.unwrap_or_else(|| format!("PostgreSQL at {place} has no host"))))
}

fn young_enough(
    client: Client,
    connection: Connection<Socket, Stream>,
    place: &str,
) -> Result<(Client, Connection<Socket, Stream>), StoreError> {
    let version = connection.parameter("server_version").unwrap_or_default();
    let major =
        version.split(|c: char| !c.is_ascii_digit()).next().and_then(|major| major.parse::<u32>().ok());
    match major {
        Some(major) if major < OLDEST => Err(StoreError::Unavailable(format!(
            "PostgreSQL at {place} is version {version}, which is too old: {OLDEST} or later is needed"
        ))),
        _ => Ok((client, connection)),
    }
}
