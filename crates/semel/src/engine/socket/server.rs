//! The run's side: one task accepts, one task per connection answers from the desk that it asks for.

use std::collections::HashMap;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use semel_core::entry::{Ending, Entry, Output};
use semel_core::token::Nonce;
use serde::Serialize;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::{JoinHandle, JoinSet};

use super::super::desk::{Desk, Shut, StepBegin, StepEnd, StepPlan, StepRefusal, Ticket};
use super::super::draw_nonce;
use super::super::settle::Unsettled;
use super::wire::{LENGTHS, Request, VERSION, Wrote, frame, lengths};
use super::{Address, Answer, Ask, Kind, short};

/// The most nested commands of one run or item at once; the others wait to be let in.
const CONNECTIONS: usize = 1_024;
/// How long a client may take for its first word, or for the rest of any.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long the connections of an ended run are waited for.
const FAREWELL: Duration = Duration::from_secs(2);

/// The socket of one run, served.
#[derive(Debug)]
pub(in super::super) struct Service {
    door: Door,
    guest: Guest,
}

impl Service {
    /// Open the socket of this desk in this folder, and serve it.
    pub(in super::super) fn open(desk: &Arc<Desk>, folder: &Path) -> io::Result<Service> {
        let door = Door::open(desk.begin().grant.nonce, folder, CONNECTIONS, false)?;
        let guest = door.admit(desk)?;
        Ok(Service { door, guest })
    }

    /// Serve nobody any more; what vanished in the middle of a step is recorded first.
    pub(in super::super) async fn close(self) {
        let Service { door, guest } = self;
        // gone by name before anything else: whoever comes now is told at once that nobody is there
        door.shut();
        guest.leave().await;
    }
}

/// A socket behind which are the desks of everything that is under way in one process under one grant: of a run, or
/// of all items of a runner. Each is reached by a capability of its own.
#[derive(Debug)]
pub(in super::super) struct Door {
    nonce: Nonce,
    path: PathBuf,
    guests: Arc<Guests>,
    task: JoinHandle<()>,
}

impl Door {
    /// Open the socket of the items of a runner with this grant in this folder.
    pub(in super::super) fn of_items(nonce: Nonce, folder: &Path, workers: usize) -> io::Result<Door> {
        Door::open(nonce, folder, CONNECTIONS.saturating_mul(workers), true)
    }

    fn open(nonce: Nonce, folder: &Path, places: usize, come_and_go: bool) -> io::Result<Door> {
        let path = folder.join(format!("{nonce}.sock"));
        let listener = match bind(&path) {
            Err(why) if why.kind() == io::ErrorKind::NotFound => {
                std::fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
                bind(&path)?
            }
            bound => bound?,
        };
        let guests = Arc::new(Guests { seats: Mutex::default(), come_and_go });
        let task = tokio::spawn(serve(listener, Arc::clone(&guests), places));
        Ok(Door { nonce, path, guests, task })
    }

    /// From now on this desk can be reached.
    pub(in super::super) fn admit(&self, desk: &Arc<Desk>) -> io::Result<Guest> {
        let capability = draw_nonce().map_err(io::Error::other)?;
        desk.is_at(Address { nonce: self.nonce, capability, path: self.path.clone() });
        let seat = Arc::new(Seat { desk: Arc::clone(desk), talks: Mutex::new(Some(JoinSet::new())) });
        locked(&self.guests.seats).insert(capability, seat);
        Ok(Guest { capability, guests: Arc::clone(&self.guests) })
    }

    fn shut(self) {}
}

impl Drop for Door {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
        self.task.abort();
    }
}

/// The desks behind a door, by their capabilities.
#[derive(Debug)]
struct Guests {
    seats: Mutex<HashMap<Nonce, Arc<Seat>>>,
    /// They are items.
    come_and_go: bool,
}

struct Seat {
    desk: Arc<Desk>,
    /// The connections to it; none once it has left.
    talks: Mutex<Option<JoinSet<()>>>,
}

impl std::fmt::Debug for Seat {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Seat").finish_non_exhaustive()
    }
}

impl Seat {
    /// One more connection. Whoever has left talks to nobody.
    fn talk(self: Arc<Self>, stream: UnixStream, first: First, place: OwnedSemaphorePermit) {
        let mut talks = locked(&self.talks);
        let Some(talks) = talks.as_mut() else { return };
        // what has ended is forgotten; and one after the other is how most scripts go, and needs nothing
        while talks.try_join_next().is_some() {}
        if !talks.is_empty() {
            self.desk.expect_many();
        }
        let desk = Arc::clone(&self.desk);
        talks.spawn(async move {
            talk(stream, first, &desk).await;
            drop(place);
        });
    }
}

/// A desk that can be reached. Dropped, it cannot, and those who were talking to it are cut off.
#[derive(Debug)]
pub(in super::super) struct Guest {
    capability: Nonce,
    guests: Arc<Guests>,
}

impl Guest {
    /// Nobody reaches it any more; what vanished in the middle of a step is recorded first.
    pub(in super::super) async fn leave(self) {
        let talks = self.cut();
        if let Some(mut talks) = talks.filter(|talks| !talks.is_empty()) {
            let _ =
                tokio::time::timeout(FAREWELL, async { while talks.join_next().await.is_some() {} }).await;
        }
    }

    fn cut(&self) -> Option<JoinSet<()>> {
        let seat = locked(&self.guests.seats).remove(&self.capability)?;
        locked(&seat.talks).take()
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        drop(self.cut());
    }
}

fn locked<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

fn bind(path: &Path) -> io::Result<UnixListener> {
    let (reachable, _folder) = short(path)?;
    UnixListener::bind(reachable)
}

async fn serve(listener: UnixListener, guests: Arc<Guests>, places: usize) {
    let places = Arc::new(Semaphore::new(places.min(Semaphore::MAX_PERMITS)));
    let mut greetings = JoinSet::new();
    loop {
        let accepted = tokio::select! {
            // what has ended is forgotten as it ends
            Some(_) = greetings.join_next(), if !greetings.is_empty() => continue,
            accepted = async {
                let place = Arc::clone(&places).acquire_owned().await;
                (listener.accept().await, place)
            } => accepted,
        };
        match accepted {
            (Ok((stream, _)), Ok(place)) => {
                greetings.spawn(greet(stream, Arc::clone(&guests), place));
            }
            // no descriptors left, say: those that are being served give some back
            _ => tokio::time::sleep(Duration::from_millis(20)).await,
        }
    }
}

/// Whether the process at the other end is ours, by the kernel's word.
fn is_ours(stream: &UnixStream) -> bool {
    // SAFETY: it cannot fail and touches no memory.
    let me = unsafe { libc::geteuid() };
    stream.peer_cred().is_ok_and(|peer| peer.uid() == me || peer.uid() == 0)
}

/// What a connection is about.
#[derive(Default)]
struct Talk {
    ticket: Option<Ticket>,
    replay: Option<Entry>,
}

/// The first question of a connection.
struct First {
    capability: Nonce,
    ask: Ask,
    body: Vec<u8>,
}

/// Hear whom a connection asks for, and lead it there.
async fn greet(mut stream: UnixStream, guests: Arc<Guests>, place: OwnedSemaphorePermit) {
    if !is_ours(&stream) {
        return;
    }
    let heard = match tokio::time::timeout(PATIENCE, hear(&mut stream)).await {
        Ok(heard) => heard,
        Err(_) => return,
    };
    match heard {
        Heard::Asked(capability, ask, body) => {
            let seat = locked(&guests.seats).get(&capability).map(Arc::clone);
            match seat {
                Some(seat) => seat.talk(stream, First { capability, ask, body }, place),
                // of an item that has ended: to it, nobody is there any more
                None if guests.come_and_go => {}
                None => {
                    let why = "a question without the capability of this run";
                    let _ = say(&mut stream, &refused(Kind::Wrong, why), &[]).await;
                }
            }
        }
        Heard::Rubbish(why) => drop(say(&mut stream, &refused(Kind::Wrong, why), &[]).await),
        Heard::Nothing => {}
    }
}

async fn talk(mut stream: UnixStream, first: First, desk: &Desk) {
    let mut talk = Talk::default();
    let First { capability, ask, body } = first;
    let mut next = (ask, body);
    loop {
        let (answer, body) = talk.answer(desk, next.0, next.1).await;
        if say(&mut stream, &answer, &body).await.is_err() {
            break;
        }
        // its command may run for hours
        match hear(&mut stream).await {
            Heard::Asked(again, ask, body) if again == capability => next = (ask, body),
            Heard::Asked(..) => {
                let why = "a question without the capability of this run";
                let _ = say(&mut stream, &refused(Kind::Wrong, why), &[]).await;
                break;
            }
            Heard::Rubbish(why) => {
                let _ = say(&mut stream, &refused(Kind::Wrong, why), &[]).await;
                break;
            }
            Heard::Nothing => break,
        }
    }
    if let Some(ticket) = talk.ticket.take() {
        desk.abandon(ticket).await;
    }
}

enum Heard {
    Asked(Nonce, Ask, Vec<u8>),
    Rubbish(&'static str),
    Nothing,
}

async fn hear(stream: &mut UnixStream) -> Heard {
    let mut size = [0; LENGTHS];
    if stream.read_exact(&mut size).await.is_err() {
        return Heard::Nothing;
    }
    let Some((head, body)) = lengths(size) else { return Heard::Rubbish("a frame that is too long") };
    let mut bytes = vec![0; head + body];
    match tokio::time::timeout(PATIENCE, stream.read_exact(&mut bytes)).await {
        Ok(Ok(_)) => {}
        _ => return Heard::Nothing,
    }
    let rest = bytes.split_off(head);
    let Ok(request) = serde_json::from_slice::<Request>(&bytes) else {
        return Heard::Rubbish("a question that makes no sense; is it another version of semel?");
    };
    if request.v != VERSION {
        return Heard::Rubbish("another version of semel; use one for a run and its steps");
    }
    Heard::Asked(request.capability, request.ask, rest)
}

async fn say<T: Serialize>(stream: &mut UnixStream, head: &T, body: &[u8]) -> io::Result<()> {
    let frame = frame(head, body).ok_or(io::ErrorKind::InvalidData)?;
    tokio::time::timeout(PATIENCE, stream.write_all(&frame)).await.map_err(|_| io::ErrorKind::TimedOut)?
}

fn refused(kind: Kind, why: impl Into<String>) -> Answer {
    Answer::Refused { kind, why: why.into() }
}

impl Talk {
    async fn answer(&mut self, desk: &Desk, ask: Ask, body: Vec<u8>) -> (Answer, Vec<u8>) {
        let answer = match ask {
            Ask::Step { name, nth, on_lost, command } => {
                if self.ticket.is_some() || self.replay.is_some() {
                    return (refused(Kind::Wrong, "one step per connection"), Vec::new());
                }
                self.step(desk, &StepPlan { name, nth, on_lost, command }).await
            }
            Ask::Keep { piece } => match &self.ticket {
                Some(ticket) => match desk.keep(ticket, piece, &body).await {
                    Ok(()) => Answer::Kept,
                    Err(why) => unsettled(&why),
                },
                None => refused(Kind::Wrong, "there is no step to keep output of"),
            },
            Ask::Settle { ending, output } => self.settle(desk, ending, output, body).await,
            Ask::Output { piece } => return self.output(desk, piece).await,
            Ask::Gate { .. } if desk.is_rehearsal() => {
                Answer::Would { what: "check the lease, and execute it at once".to_owned() }
            }
            Ask::Grant if desk.is_rehearsal() => {
                let begin = desk.begin();
                Answer::Rehearsal { resource: begin.resource.clone(), work: begin.work.clone() }
            }
            Ask::Gate { need_ms } => match desk.gate(Duration::from_millis(need_ms)).await {
                Ok(verified) => Answer::Open { left_ms: verified.left_ms },
                Err(Shut::Stale(why)) => refused(Kind::Stale, why),
                Err(why @ Shut::TooShort { .. }) => refused(Kind::Wrong, why.to_string()),
                Err(Shut::StoreDown(why)) => refused(Kind::StoreDown, why),
            },
            Ask::Grant => match desk.is_trusted() {
                Ok(()) => {
                    let begin = desk.begin();
                    Answer::Granted {
                        resource: begin.resource.clone(),
                        grant: begin.grant,
                        work: begin.work.clone(),
                    }
                }
                Err(why) => refused(Kind::Stale, why),
            },
            // what was pinned stays so, whoever holds the lease by now
            Ask::Plan => Answer::Plan { plan: desk.begin().plan.clone() },
        };
        (answer, Vec::new())
    }

    async fn step(&mut self, desk: &Desk, plan: &StepPlan) -> Answer {
        match desk.claim(plan).await {
            Ok(StepBegin::Run(ticket)) => {
                let (key, attempt, first) = (ticket.work().key(), ticket.attempt(), ticket.first);
                self.ticket = Some(ticket);
                Answer::Run { key, attempt, first }
            }
            Ok(StepBegin::Replay(entry)) => {
                let (output, attempt, at_ms) = (entry.output.clone(), entry.attempts, entry.changed_ms);
                self.replay = Some(entry);
                Answer::Replay { output, attempt, at_ms }
            }
            Ok(StepBegin::Would(what)) => Answer::Would { what },
            Ok(StepBegin::Person(entry)) => {
                Answer::Person { step: entry.work.to_string(), state: entry.state.word().to_owned() }
            }
            Err(StepRefusal::Stale(why)) => refused(Kind::Stale, why),
            Err(StepRefusal::StoreDown(why)) => refused(Kind::StoreDown, why),
            Err(why @ StepRefusal::Twice { .. }) => refused(Kind::Twice, why.to_string()),
            Err(why) => refused(Kind::Wrong, why.to_string()),
        }
    }

    async fn settle(&mut self, desk: &Desk, ending: Ending, wrote: Option<Wrote>, body: Vec<u8>) -> Answer {
        let allowed = matches!(
            ending,
            Ending::Succeeded
                | Ending::Failed { .. }
                | Ending::Killed { .. }
                | Ending::Interrupted { .. }
                | Ending::NotStarted { .. }
                | Ending::ProbedDone
                | Ending::ProbedUnknown { .. }
        );
        if !allowed {
            return refused(Kind::Wrong, "a step cannot end so");
        }
        let Some(ticket) = self.ticket.take() else {
            return refused(Kind::Wrong, "there is no step to settle");
        };
        let output = wrote.map(|wrote| {
            let Wrote { pieces, out_bytes, err_bytes, kept } = wrote;
            Output { of: ticket.of, pieces, out_bytes, err_bytes, kept }
        });
        let last_piece = match wrote {
            Some(Wrote { pieces: 1.., .. }) if !body.is_empty() => {
                wrote.map(|wrote| (wrote.pieces.saturating_sub(1), body))
            }
            _ => None,
        };
        match desk.settle(ticket, StepEnd { ending, output, last_piece, result: None }).await {
            Ok(entry) => Answer::Settled { state: entry.state.word().to_owned() },
            Err(why) => unsettled(&why),
        }
    }

    async fn output(&self, desk: &Desk, piece: u32) -> (Answer, Vec<u8>) {
        let output = self.replay.as_ref().and_then(|entry| Some((&entry.work, entry.output.as_ref()?)));
        let Some((work, output)) = output else {
            return (refused(Kind::Wrong, "there is no output to replay"), Vec::new());
        };
        match desk.piece(work, &output.of, piece).await {
            Ok(Some(bytes)) => (Answer::Piece, bytes),
            Ok(None) => (Answer::Missing, Vec::new()),
            Err(why) => (refused(Kind::StoreDown, why.to_string()), Vec::new()),
        }
    }
}

fn unsettled(why: &Unsettled) -> Answer {
    match why {
        Unsettled::Stale(stale) => refused(Kind::Stale, stale.to_string()),
        Unsettled::StoreDown(why) => refused(Kind::StoreDown, why.clone()),
        Unsettled::Unusable(why) => refused(Kind::Wrong, why.clone()),
    }
}
