//! The input of a batch as the engine takes it, and what does an item.

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use semel::clock::Moment;
use semel::engine::batch::{Bad, Doer, Item as Known, ItemIn, ItemSource};
use semel::engine::desk::Desk;
use semel::engine::{Begin, Caught, NotStarted, Probed, Task, TaskEnd};
use semel_core::work::Work;
use semel_supervise::Keepers;
use serde_json::{Value, json};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};

use super::files::ItemFiles;
use super::fill::ItemFill;
use super::input::{From, Items, Mark, Next, Reading};
use super::item::{At, Fault, Item, Keys};
use super::joblog::Joblog;
use crate::exit;
use crate::out::Voice;
use crate::plan::{Probe, Program, Surroundings};
use crate::task::CommandTask;

/// How many items are read ahead, and how many bytes of them.
const AHEAD: usize = 256;
const AHEAD_BYTES: u32 = 4 * 1024 * 1024;

type Ready = Result<ItemIn<Item>, Bad>;

/// The items of an input, read by a thread of its own: a pipe that has nothing to say for an hour must not keep the
/// heartbeat, the signals and the outcomes of what is under way. The thread ends with the input, or with the process.
pub(crate) struct Source {
    ahead: Ahead,
    from: From,
    reading: Reading,
    /// What is asked of each item: one that lacks it is no item of this batch.
    wanted: Wanted,
    /// A file that can be read twice: a pipe that is opened again is empty, or waits for a writer.
    file: Option<Mark>,
}

impl Source {
    pub(crate) fn new(
        items: Items,
        from: From,
        reading: Reading,
        batch: Work,
        fill: ItemFill,
    ) -> std::io::Result<Source> {
        let wanted = Wanted { batch, fill };
        let file = items.mark.filter(|_| matches!(from, From::File(_)));
        Ok(Source { ahead: read_ahead(items, wanted.clone())?, from, reading, wanted, file })
    }
}

/// The work that all items belong to, and the command.
#[derive(Clone)]
pub(super) struct Wanted {
    batch: Work,
    fill: ItemFill,
}

impl Wanted {
    pub(super) fn new(batch: Work, fill: ItemFill) -> Wanted {
        Wanted { batch, fill }
    }
}

type Ahead = mpsc::Receiver<(Ready, OwnedSemaphorePermit)>;

fn read_ahead(mut items: Items, wanted: Wanted) -> std::io::Result<Ahead> {
    let (to, ahead) = mpsc::channel(AHEAD);
    // a thread of its own may wait where it likes: it has a runtime for nothing else
    let waiting = tokio::runtime::Builder::new_current_thread().build()?;
    let room = Arc::new(Semaphore::new(AHEAD_BYTES as usize));
    std::thread::Builder::new().name("input".to_owned()).spawn(move || {
        while let Some(next) = items.next() {
            let ready = ready(next, items.keys(), &wanted);
            let bytes = ready.as_ref().map_or(256, |item| item.bytes);
            let bytes = u32::try_from(bytes).unwrap_or(AHEAD_BYTES).min(AHEAD_BYTES);
            let sent = waiting.block_on(async {
                let permit = tokio::select! {
                    permit = Arc::clone(&room).acquire_many_owned(bytes) => permit.ok()?,
                    // nobody wants more
                    () = to.closed() => return None,
                };
                to.send((ready, permit)).await.ok()
            });
            if sent.is_none() {
                return;
            }
        }
    })?;
    Ok(ahead)
}

pub(super) fn ready(next: Next, keys: &Keys, wanted: &Wanted) -> Ready {
    match next {
        Next::Item(item) => {
            let (fill, batch) = (&wanted.fill, &wanted.batch);
            let checked = fill.check_item(batch, &item).and_then(|()| fill.resource(batch, &item));
            match checked.and_then(|resource| Ok((resource, item.payload(keys)?))) {
                Ok((resource, payload)) => Ok(ItemIn {
                    fields: item.key.clone(),
                    payload,
                    resource,
                    line: line(item.at),
                    bytes: weight(&item),
                    data: item,
                }),
                Err(fault) => Err(bad(&fault, false)),
            }
        }
        Next::Bad(fault) => Err(bad(&fault, false)),
        Next::Broken(fault) => Err(bad(&fault, true)),
    }
}

/// What an item takes in memory, roughly: as it stood, and its fields beside it.
fn weight(item: &Item) -> usize {
    item.raw.len().saturating_mul(2).saturating_add(256)
}

fn line(at: At) -> Option<u64> {
    match at {
        At::Line(n) | At::Record(n) => Some(n),
    }
}

fn bad(fault: &Fault, is_last: bool) -> Bad {
    Bad { line: line(fault.at), why: fault.why.to_string(), is_last }
}

impl ItemSource for Source {
    type Data = Item;

    async fn next(&mut self) -> Option<Ready> {
        // the runtime's own turns would cut the pages short
        tokio::task::unconstrained(self.ahead.recv()).await.map(|(ready, _)| ready)
    }

    fn restart(&mut self) -> bool {
        let Some(file) = self.file else { return false };
        let Ok(items) = Items::open(&self.from, self.reading.clone()) else { return false };
        // another file of that name says nothing of the items of this one
        if !items.mark.is_some_and(|now| file.still_holds(&now)) {
            return false;
        }
        match read_ahead(items, self.wanted.clone()) {
            Ok(ahead) => {
                self.ahead = ahead;
                true
            }
            Err(_) => false,
        }
    }
}

/// What does the items of a batch.
pub(crate) struct Commands<'a> {
    pub(crate) program: Program,
    pub(crate) fill: ItemFill,
    pub(crate) probe: Option<Probe>,
    pub(crate) around: &'a Surroundings,
    pub(crate) state_dir: PathBuf,
    pub(crate) stdin: bool,
    pub(crate) joblog: Option<Joblog>,
    pub(crate) voice: Voice,
    pub(crate) keepers: Keepers,
    /// The files of items, in turn too.
    pub(crate) files: ItemFiles,
}

impl Commands<'_> {
    fn argv(&self, work: &Work, item: &Item) -> Result<Vec<OsString>, Fault> {
        let first = self.program.argv.first().cloned().unwrap_or_default();
        self.fill.argv(&first, work, item)
    }
}

impl<'a> Doer<Item> for Commands<'a> {
    type Task = ItemTask<'a>;

    fn task(&mut self, known: &Known<Item>) -> ItemTask<'a> {
        let argv = match self.argv(&known.work, &known.data) {
            Ok(argv) => argv,
            Err(fault) => return ItemTask::Not(fault.to_string()),
        };
        if let Some(row) = self.joblog.as_mut().and_then(|log| log.take(&argv)) {
            return ItemTask::Before(row);
        }
        let program = Program { argv, ..self.program.clone() };
        let task = CommandTask::new(program, self.probe.clone(), self.around, &self.state_dir, self.voice);
        let text = known.data.text().into_owned();
        ItemTask::Command(Box::new(task.for_item(
            &known.key,
            text,
            self.stdin,
            (self.keepers.clone(), self.files.clone()),
        )))
    }
}

/// One item.
pub(crate) enum ItemTask<'a> {
    Command(Box<CommandTask<'a>>),
    /// This row of a joblog says that it is done.
    Before(u64),
    /// Its command cannot be made.
    Not(String),
}

impl Task for ItemTask<'_> {
    async fn start(&mut self, begin: &Begin, desk: &Arc<Desk>) -> Result<(), NotStarted> {
        match self {
            ItemTask::Command(task) => {
                let started = task.start(begin, desk).await;
                if let Err(NotStarted { why, of_machine: false, .. }) = &started {
                    // the entry has only the code
                    task.say(why);
                }
                started
            }
            ItemTask::Before(_) => Ok(()),
            ItemTask::Not(why) => {
                Err(NotStarted { code: exit::INPUT.into(), why: why.clone(), of_machine: false })
            }
        }
    }

    fn trust_until(&mut self, moment: Moment) {
        if let ItemTask::Command(task) = self {
            task.trust_until(moment);
        }
    }

    async fn ended(&mut self) -> TaskEnd {
        match self {
            ItemTask::Command(task) => task.ended().await,
            ItemTask::Before(_) | ItemTask::Not(_) => TaskEnd::Exited(0),
        }
    }

    fn signal(&mut self, signal: Caught) {
        if let ItemTask::Command(task) = self {
            task.signal(signal);
        }
    }

    async fn stop(&mut self, grace: Duration) -> TaskEnd {
        match self {
            ItemTask::Command(task) => task.stop(grace).await,
            ItemTask::Before(_) | ItemTask::Not(_) => TaskEnd::Exited(0),
        }
    }

    async fn clear(&mut self, grace: Duration) -> usize {
        match self {
            ItemTask::Command(task) => task.clear(grace).await,
            ItemTask::Before(_) | ItemTask::Not(_) => 0,
        }
    }

    fn result(&mut self) -> Option<Value> {
        match self {
            ItemTask::Command(task) => task.result(),
            ItemTask::Before(row) => Some(json!({ "joblog_row": row })),
            ItemTask::Not(_) => None,
        }
    }

    async fn probe(&mut self, begin: &Begin) -> Probed {
        match self {
            ItemTask::Command(task) => task.probe(begin).await,
            ItemTask::Before(_) => Probed::Happened,
            ItemTask::Not(why) => Probed::Unknown(why.clone()),
        }
    }
}
