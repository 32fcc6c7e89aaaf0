//! Looks at many items at once, and reads the input ahead of them.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use semel_core::claim::View;
use semel_core::entry::{Entry, State};
use semel_core::item::{self, Glance, Mark};
use semel_core::lease::SeenLease;
use semel_core::name::Name;
use semel_core::record::{RecordError, RecordKey, Seen};
use semel_core::token::Grant;
use semel_core::work::Work;
use tokio::sync::mpsc;

use super::super::Engine;
use super::super::run::without_waiting;
use super::super::view::{LookError, seen_entry};
use super::{BYTES_LIMIT, Bad, Item, ItemIn, ItemSource};
use crate::clock::Moment;
use crate::store::Record;

/// Items that are looked at together.
pub(super) const PAGE: usize = 256;
/// And their bytes: fewer items if they are large.
const PAGE_BYTES: usize = BYTES_LIMIT / 8;

/// Before a store that is away is asked again.
pub(super) const PAUSE: Duration = Duration::from_millis(50);

/// The leases of other runners and those that items name, as they were seen with a page; and the least token that the
/// store allows.
#[derive(Default)]
pub(super) struct Leases {
    pub(super) all: Vec<(Name, Option<SeenLease>)>,
    token_floor: u64,
}

/// An item that may be run, as far as it was looked at.
pub(super) struct Candidate<D> {
    pub(super) item: Item<D>,
    pub(super) record: RecordKey,
    pub(super) seen: Option<Seen<Entry>>,
    pub(super) leases: Arc<Leases>,
    /// A claim of it was sent then and not answered: if it stands there, it is that one.
    pub(super) unanswered: Option<Moment>,
    /// It was met before, when another runner was at it.
    pub(super) met: bool,
    /// It was met in a second pass over the input: only what is still to be done of it counts.
    pub(super) again: bool,
    /// The look is fresh: nothing else was waited for since.
    pub(super) fresh: bool,
}

impl<D> Candidate<D> {
    pub(super) fn view(&self) -> View {
        let Leases { all, token_floor } = &*self.leases;
        let runs_under = match self.seen.as_ref().map(|seen| &seen.value.state) {
            Some(State::Running { resource, .. }) => Some(resource),
            _ => None,
        };
        let wanted = |name: &Name| Some(name) == runs_under || Some(name) == self.item.resource.as_ref();
        let leases = all.iter().filter(|(name, _)| wanted(name)).cloned().collect();
        View { entry: self.seen.clone(), leases, token_floor: *token_floor, ..View::default() }
    }
}

/// What a look at an item found.
#[allow(clippy::large_enum_variant)] // most are candidates
pub(super) enum Found<D> {
    /// It is done.
    Done(Item<D>, Known),
    /// It must be decided about.
    Look(Candidate<D>),
}

/// What is known of an item that is done.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Known {
    /// By this very runner.
    pub(super) ours: bool,
    /// It was met before.
    pub(super) met: bool,
    /// In a second pass.
    pub(super) again: bool,
}

/// What the reader hands over.
pub(super) enum Read<D> {
    /// Some items of the input.
    Page { found: Vec<Found<D>>, bad: Vec<Bad>, again: bool },
    /// The input has ended.
    End,
    /// It cannot be begun again.
    NoMore,
    /// A record that cannot be read.
    Failed(RecordError),
}

/// An item on its way to being looked at.
pub(super) struct Unseen<D> {
    pub(super) item: Item<D>,
    pub(super) record: RecordKey,
    pub(super) unanswered: Option<Moment>,
    pub(super) met: bool,
    pub(super) again: bool,
}

impl<D> From<Candidate<D>> for Unseen<D> {
    fn from(candidate: Candidate<D>) -> Unseen<D> {
        let Candidate { item, record, unanswered, met, again, .. } = candidate;
        Unseen { item, record, unanswered, met, again }
    }
}

/// An item of this batch, whose items' records have names that begin so.
pub(super) fn unseen<D>(batch: &Work, prefix: &str, one: ItemIn<D>) -> Result<Unseen<D>, Bad> {
    let ItemIn { fields, payload, resource, line, bytes, data } = one;
    let work = batch.clone().for_item(fields);
    let work = work.map_err(|why| Bad { line, why: why.to_string(), is_last: false })?;
    let key = work.key();
    let record = RecordKey::from_stored(format!("{prefix}{key}"));
    let item = Item { work, key, payload, resource, line, bytes, data };
    Ok(Unseen { item, record, unanswered: None, met: false, again: false })
}

/// What a look at several came to; without an answer they are handed back.
pub(super) type Looked<D> = Result<Vec<Found<D>>, (Vec<Unseen<D>>, LookError)>;

/// Look at these items, and at the leases of the runners that are at them; with what they name themselves, if a claim
/// may follow. On error they are handed back.
pub(super) async fn look<D>(
    engine: &Engine,
    grant: &Grant,
    unseen: Vec<Unseen<D>>,
    for_claims: bool,
) -> Looked<D> {
    let named: BTreeSet<&Name> =
        unseen.iter().filter(|_| for_claims).filter_map(|unseen| unseen.item.resource.as_ref()).collect();
    let named: Vec<Name> = named.into_iter().cloned().collect();
    let keys = unseen.iter().map(|unseen| unseen.record.clone());
    let keys: Vec<RecordKey> = keys.chain(named.iter().map(RecordKey::lease)).collect();
    let mut loaded = match engine.store.load(&keys).await {
        Ok(loaded) => loaded,
        Err(why) => return Err((unseen, why.into())),
    };
    let own = loaded.records.split_off(unseen.len().min(loaded.records.len()));
    let seen = named
        .into_iter()
        .zip(own)
        .map(|(name, record)| Ok((name, record.map(|record| engine.seen_lease(&record)).transpose()?)));
    let mut all: Vec<(Name, Option<SeenLease>)> = match seen.collect::<Result<_, RecordError>>() {
        Ok(seen) => seen,
        Err(why) => return Err((unseen, why.into())),
    };
    let (stands, mut runners) = match glance(&unseen, loaded.records, grant) {
        Ok(found) => found,
        Err(why) => return Err((unseen, why.into())),
    };
    runners.retain(|runner| all.iter().all(|(name, _)| name != runner));
    if !runners.is_empty() {
        match engine.look(None, &runners).await {
            Ok(view) => all.extend(view.leases),
            Err(why) => return Err((unseen, why)),
        }
    }
    let leases = Arc::new(Leases { all, token_floor: loaded.token_floor });
    let found = unseen.into_iter().zip(stands).map(|(unseen, stands)| {
        let Unseen { item, record, unanswered, met, again } = unseen;
        match stands {
            Stands::Done { ours } => Found::Done(item, Known { ours, met, again }),
            Stands::Entry(seen) => {
                let (leases, fresh) = (Arc::clone(&leases), true);
                Found::Look(Candidate { item, record, seen, leases, unanswered, met, again, fresh })
            }
        }
    });
    Ok(found.collect())
}

#[allow(clippy::large_enum_variant)] // as many as a page has
enum Stands {
    Done { ours: bool },
    Entry(Option<Seen<Entry>>),
}

/// What the records say, and whose leases must be looked at too.
fn glance<D>(
    unseen: &[Unseen<D>],
    records: Vec<Option<Record>>,
    grant: &Grant,
) -> Result<(Vec<Stands>, Vec<Name>), RecordError> {
    let mut runners = BTreeSet::new();
    let mut stands = Vec::with_capacity(unseen.len());
    for (record, unseen) in records.into_iter().zip(unseen) {
        let Some(record) = record else {
            stands.push(Stands::Entry(None));
            continue;
        };
        let mark = Mark::of(grant, &unseen.item.key, unseen.item.resource.is_some());
        // one whose claim may have taken its lease is decided about, whatever became of it
        let took = unseen.unanswered.is_some() && unseen.item.resource.is_some();
        match item::glance(&record.value, unseen.item.payload.as_ref(), &mark) {
            Glance::Done | Glance::Repeated if took => stands.push(Stands::Entry(Some(seen_entry(&record)?))),
            Glance::Done => stands.push(Stands::Done { ours: false }),
            Glance::Repeated => stands.push(Stands::Done { ours: true }),
            Glance::Look => {
                let seen = seen_entry(&record)?;
                if let State::Running { resource, grant: running } = &seen.value.state
                    && running != grant
                {
                    runners.insert(resource.clone());
                }
                stands.push(Stands::Entry(Some(seen)));
            }
        }
    }
    Ok((stands, runners.into_iter().collect()))
}

/// Reads the input page by page, and looks at each page while the next one is read.
pub(super) struct Reader<'a> {
    pub(super) engine: &'a Engine,
    pub(super) batch: &'a Work,
    pub(super) grant: Grant,
    /// What the names of the items' records begin with.
    pub(super) prefix: String,
}

struct Page<D> {
    unseen: Vec<Unseen<D>>,
    bad: Vec<Bad>,
    ended: bool,
}

impl Reader<'_> {
    /// Hand over the whole input, as fast as it is taken; and again, as often as that is asked for.
    pub(super) async fn read<S: ItemSource>(
        &self,
        mut source: S,
        to: mpsc::Sender<Read<S::Data>>,
        mut again: mpsc::Receiver<()>,
    ) {
        let mut pass = 0;
        loop {
            if !self.pass(&mut source, &to, pass > 0).await {
                return;
            }
            if again.recv().await.is_none() {
                return;
            }
            if !source.restart() {
                let _ = to.send(Read::NoMore).await;
                return;
            }
            pass += 1;
        }
    }

    async fn pass<S: ItemSource>(
        &self,
        source: &mut S,
        to: &mpsc::Sender<Read<S::Data>>,
        again: bool,
    ) -> bool {
        let mut page = self.page(source).await;
        loop {
            let Page { unseen, bad, ended } = page;
            let next = async {
                match ended {
                    true => None,
                    false => Some(self.page(source).await),
                }
            };
            // what was looked at is handed over at once: the next item may be long in coming
            let hand_over = async {
                let (read, failed) = match self.look_until_answered(unseen).await {
                    Ok(found) => (Read::Page { found, bad, again }, false),
                    Err(why) => (Read::Failed(why), true),
                };
                to.send(read).await.is_ok() && !failed
            };
            let (is_taken, next) = tokio::join!(hand_over, next);
            if !is_taken {
                return false;
            }
            match next {
                Some(next) => page = next,
                None => return to.send(Read::End).await.is_ok(),
            }
        }
    }

    /// A store that is away is asked again: whoever waits for the answer gives up when its lease is no longer trusted.
    async fn look_until_answered<D>(&self, mut unseen: Vec<Unseen<D>>) -> Result<Vec<Found<D>>, RecordError> {
        loop {
            match look(self.engine, &self.grant, unseen, false).await {
                Ok(found) => return Ok(found),
                Err((_, LookError::Record(why))) => return Err(why),
                Err((back, LookError::Store(_))) => unseen = back,
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// As many items as are there, but at least one, if the input has not ended.
    async fn page<S: ItemSource>(&self, source: &mut S) -> Page<S::Data> {
        let mut page = Page { unseen: Vec::with_capacity(PAGE), bad: Vec::new(), ended: false };
        let mut bytes = 0;
        while page.unseen.len() + page.bad.len() < PAGE && bytes < PAGE_BYTES {
            let is_empty = page.unseen.is_empty() && page.bad.is_empty();
            let next = match is_empty {
                true => Some(source.next().await),
                false => without_waiting(source.next()).await,
            };
            match next {
                None => break,
                Some(None) => {
                    page.ended = true;
                    break;
                }
                Some(Some(Err(bad))) => page.bad.push(bad),
                Some(Some(Ok(one))) => match unseen(self.batch, &self.prefix, one) {
                    Err(bad) => page.bad.push(bad),
                    Ok(unseen) => {
                        bytes += unseen.item.bytes;
                        page.unseen.push(unseen);
                    }
                },
            }
        }
        page
    }
}
