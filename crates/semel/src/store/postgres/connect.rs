//! One connection for all verbs, made by the first and made again after it broke.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::{Mutex, oneshot};
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep, timeout};
use tokio_postgres::config::{Host, TargetSessionAttrs};
use tokio_postgres::tls::MakeTlsConnect;
use tokio_postgres::{Client, Config, Connection, SimpleQueryMessage};
use tokio_postgres_rustls::MakeRustlsConnect;

use super::super::StoreError;
use super::super::outbox::{Outbox, Told};
use super::address::Address;
use super::error::{self, NotMade};
use super::socket::{Receiver, Socket, Spot, spots};

/// What is read and written below TLS.
type Line = Told<Socket>;
/// The same above it.
type Secret = <MakeRustlsConnect as MakeTlsConnect<Line>>::Stream;

/// The oldest server that the schema's functions are meant for.
const OLDEST: u32 = 12;

/// How soon a server that has no room is asked again: first, and at last.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LAST_PAUSE: Duration = Duration::from_secs(1);

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
    outbox: Arc<Outbox>,
    /// The port from which we speak; none on a socket of this machine.
    pub(super) port: Option<u16>,
    receiver: Receiver,
    /// It was given a note whose answer nobody waits for.
    owes: AtomicBool,
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

    /// Wait until what was asked last has left this process; nobody will wait for its answer. False: it broke.
    pub(super) async fn posted(&self) -> bool {
        self.owes.store(true, Ordering::Relaxed);
        self.outbox.left().await
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        if *self.owes.get_mut() {
            self.receiver.hang_up();
        }
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

    /// The connection, made now if there is none; a server that has no room is asked again until then.
    pub(super) async fn wire(&self, end: Instant) -> Result<Arc<Wire>, StoreError> {
        let mut slot = self.slot.lock().await;
        if let Some(wire) = slot.as_ref().filter(|wire| wire.works()) {
            return Ok(Arc::clone(wire));
        }
        *slot = None;
        let Made { client, connection, port, receiver, outbox } = connect(&self.address, end).await?;
        let (used, mut unused) = oneshot::channel::<()>();
        let driven = Arc::clone(&outbox).driven(connection);
        let task = tokio::spawn(async move {
            let mut driven = pin!(driven);
            tokio::select! {
                _ = &mut driven => {}
                _ = &mut unused => drop(timeout(GOODBYE, driven).await),
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
            outbox,
            port,
            receiver,
            owes: AtomicBool::new(false),
            _used: used,
        });
        *slot = Some(Arc::clone(&wire));
        Ok(wire)
    }
}

/// A connection that was made, and its socket.
pub(super) struct Made {
    pub(super) client: Client,
    pub(super) connection: Connection<Line, Secret>,
    port: Option<u16>,
    receiver: Receiver,
    outbox: Arc<Outbox>,
}

/// A new connection to the first host that takes one, beginning with the one that did so last; to a server that is not too
/// old. A host that swallows what it is sent must not keep from the next. Where all connections are taken, or the server is
/// starting, it is asked again until the end, each time later and not when everybody else does.
pub(super) async fn connect(address: &Address, end: Instant) -> Result<Made, StoreError> {
    let mut pause = FIRST_PAUSE;
    loop {
        match connect_once(address).await {
            Err((_, is_passing)) if is_passing && Instant::now() + pause < end => {
                sleep(pause.mul_f64(share())).await;
                pause = (pause * 2).min(LAST_PAUSE);
            }
            Err((why, _)) => return Err(StoreError::Unavailable(why)),
            Ok(made) => return Ok(made),
        }
    }
}

/// Between a half and the whole, by chance.
fn share() -> f64 {
    let drawn = getrandom::u32().unwrap_or(0);
    0.5 + f64::from(drawn) / f64::from(u32::MAX) / 2.0
}

/// Else why not, and whether that may pass soon.
async fn connect_once(address: &Address) -> Result<Made, (String, bool)> {
    let Address { hosts, patience, tls, place, user, database, last, .. } = address;
    let first = last.load(Ordering::Relaxed).min(hosts.len().saturating_sub(1));
    let (mut why, mut is_passing) = (None, false);
    for (i, host) in hosts.iter().enumerate().cycle().skip(first).take(hosts.len()) {
        match timeout(*patience, somewhere(host, tls)).await {
            Ok(Ok(made)) => {
                last.store(i, Ordering::Relaxed);
                return young_enough(made, place).map_err(|why| (why, false));
            }
            Ok(Err(refused)) => {
                is_passing |= refused.is_passing();
                why = Some(error::refused(&refused, place, user, database));
            }
            // what another host said tells more
            Err(_) => drop(why.get_or_insert_with(|| format!("PostgreSQL at {place} does not answer"))),
        }
    }
    Err((why.unwrap_or_else(|| format!("PostgreSQL at {place} has no host")), is_passing))
}

/// At the first of its addresses that works.
async fn somewhere(host: &Config, tls: &MakeRustlsConnect) -> Result<Made, NotMade> {
    let mut last = NotMade::Nowhere;
    for spot in spots(host).await? {
        match at(&spot, host, tls).await {
            Ok(made) => return Ok(made),
            Err(why) => last = why,
        }
    }
    Err(last)
}

async fn at(spot: &Spot, host: &Config, tls: &MakeRustlsConnect) -> Result<Made, NotMade> {
    let socket = Socket::connect(spot, host).await?;
    let (port, receiver, outbox) = (socket.port(), socket.receiver()?, Arc::new(Outbox::default()));
    // the name that its certificate must have
    let name = match host.get_hosts().first() {
        Some(Host::Tcp(name)) => name.as_str(),
        _ => "",
    };
    let Ok(tls) = MakeTlsConnect::<Line>::make_tls_connect(&mut tls.clone(), name);
    let line = Told::new(socket, Arc::clone(&outbox));
    let (client, mut connection) = host.connect_raw(line, tls).await?;
    let wanted = host.get_target_session_attrs();
    if wanted != TargetSessionAttrs::Any {
        let said = tokio::select! {
            said = client.simple_query("SHOW transaction_read_only") => said?,
            // its own error tells more than the end of the question
            over = &mut connection => return Err(over.map_or_else(NotMade::from, |()| NotMade::Nowhere)),
        };
        let is_read_only = said
            .iter()
            .any(|message| matches!(message, SimpleQueryMessage::Row(row) if row.get(0) == Some("on")));
        if is_read_only != (wanted == TargetSessionAttrs::ReadOnly) {
            return Err(NotMade::NotAsWanted { is_read_only });
        }
    }
    Ok(Made { client, connection, port, receiver, outbox })
}

fn young_enough(made: Made, place: &str) -> Result<Made, String> {
    let version = made.connection.parameter("server_version").unwrap_or_default();
    let major =
        version.split(|c: char| !c.is_ascii_digit()).next().and_then(|major| major.parse::<u32>().ok());
    match major {
        Some(major) if major < OLDEST => Err(format!(
            "PostgreSQL at {place} is version {version}, which is too old: {OLDEST} or later is needed"
        )),
        _ => Ok(made),
    }
}
