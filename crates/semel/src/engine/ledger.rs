//! Reading the ledger: one entry by what people call it, or all of them, page by page.
//!
//! A page is looked at once and its leases once more, so a list is not one moment of the ledger; but an entry is
//! called *lost* only if it and its lease, loaded together, say so. A record that cannot be read is told, and
//! never hides the others.

use std::collections::BTreeMap;

use semel_core::claim::View;
use semel_core::entry::{Ending, Entry, State};
use semel_core::item::brief;
use semel_core::lease::SeenLease;
use semel_core::name::Name;
use semel_core::record::{RecordError, RecordKey, Seen};
use semel_core::story::{self, Condition, Next, Suppressed};
use semel_core::work::Work;

use super::Engine;
use super::journal::{self, SkipReason};
use super::view::{LookError, seen_entry};
use crate::store::Record;

/// The fewest digits of a key that name an entry.
pub const DIGITS_LEAST: usize = 8;
/// Entries in a page: each may hold a result.
pub(super) const PAGE: usize = 128;
/// Notes and leases in a page: they are small.
pub(super) const SMALL_PAGE: usize = 512;
/// How many entries an ambiguous prefix names.
const MANY: usize = 20;

/// What people call an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// The readable form of a work.
    pub work: Option<Work>,
    /// A key, or the first digits of one.
    pub digits: Option<String>,
}

/// Why a text names no entry.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct NotAName(String);

impl Wanted {
    /// A text may be both: a job may be called `deadbeef`. The readable form is looked for first.
    pub fn parse(text: &str) -> Result<Wanted, NotAName> {
        let is_digits =
            text.len() >= DIGITS_LEAST && text.len() <= 64 && text.bytes().all(|b| b.is_ascii_hexdigit());
        let digits = is_digits.then(|| text.to_ascii_lowercase());
        match Work::parse_readable(text) {
            Ok(work) => Ok(Wanted { work: Some(work), digits }),
            Err(_) if digits.is_some() => Ok(Wanted { work: None, digits }),
            Err(why) => Err(NotAName(why.to_string())),
        }
    }
}

/// What a name led to.
#[derive(Clone, Debug)]
#[allow(clippy::large_enum_variant)] // one per command
pub enum Found {
    /// This work, with or without an entry.
    Work(Work),
    /// Nothing has such a key.
    Nothing,
    /// Several have: the first of them, and how many there are.
    Many(Vec<Work>, usize),
}

/// What stands there for a work, and what comes next.
#[derive(Clone, Debug)]
pub struct Outlook {
    /// The entry and the leases that matter for it, as of one moment.
    pub view: View,
    /// Where it stands, if it is on record.
    pub condition: Option<Condition>,
    /// What the next run would do, with the terms of the last.
    pub next: Next,
}

impl Outlook {
    /// The entry, if it is on record.
    pub fn entry(&self) -> Option<&Entry> {
        self.view.entry.as_ref().map(|seen| &seen.value)
    }
}

/// An entry of a list.
#[derive(Clone, Debug)]
pub struct Listed {
    /// The entry.
    pub seen: Seen<Entry>,
    /// Where it stands.
    pub condition: Condition,
    /// The lease that it runs under, or ran under when it was lost.
    pub lease: Option<SeenLease>,
}

/// Some entries of the ledger.
#[derive(Debug)]
pub struct Page {
    /// In the order of their records.
    pub entries: Vec<Listed>,
    /// What could not be read.
    pub unreadable: Vec<RecordError>,
    /// Where the next page begins; `None` after the last one.
    pub next: Option<RecordKey>,
}

/// The record after which the next page begins, if there may be one.
pub(super) fn after(records: &[Record], limit: usize) -> Option<RecordKey> {
    records.last().filter(|_| records.len() >= limit).map(|record| record.key.clone())
}

/// The key at the end of a record's name.
fn key_of(record: &RecordKey) -> &str {
    record.as_str().rsplit('/').next().unwrap_or_default()
}

impl Engine {
    /// The entry that people mean. A prefix of a key reads the names of all entries.
    pub async fn find(&self, wanted: &Wanted) -> Result<Found, LookError> {
        if let Some(work) = &wanted.work {
            let on_record = self.look(Some(work), &[]).await?.entry.is_some();
            if on_record || wanted.digits.is_none() {
                return Ok(Found::Work(work.clone()));
            }
        }
        let Some(digits) = &wanted.digits else { return Ok(Found::Nothing) };
        let (mut found, mut count) = (Vec::new(), 0);
        for prefix in [RecordKey::entries_of(None), RecordKey::steps_of(None), RecordKey::items_of_job(None)]
        {
            let mut from = None;
            loop {
                let records = self.store.scan(&prefix, from.as_ref(), PAGE).await?;
                from = after(&records, PAGE);
                let meant = |record: &&Record| key_of(&record.key).starts_with(digits.as_str());
                for record in records.iter().filter(meant) {
                    count += 1;
                    if found.len() < MANY {
                        found.push(seen_entry(record)?.value.work);
                    }
                }
                if from.is_none() {
                    break;
                }
            }
        }
        Ok(match (found.pop(), count) {
            (Some(work), 1) => Found::Work(work),
            (Some(last), _) => {
                found.push(last);
                Found::Many(found, count)
            }
            (None, _) => Found::Nothing,
        })
    }

    /// What stands there for this work, and what the next run would do.
    pub async fn outlook(&self, work: &Work) -> Result<Outlook, LookError> {
        let mut resources = Vec::new();
        loop {
            let view = self.look(Some(work), &resources).await?;
            let next = story::next(&view, work, &self.me, self.clock.wall_ms());
            let condition = view.entry.as_ref().map(|seen| story::condition(&view, &seen.value)).transpose();
            match (next, condition) {
                (Ok(next), Ok(condition)) => return Ok(Outlook { view, condition, next }),
                // the rules never ask for what they were given
                (Err(resource), _) | (_, Err(resource)) => resources.push(resource),
            }
        }
    }

    /// A page of the entries of a job, or of all jobs. A step is listed if it needs a person and its run has said so.
    /// Items follow where a job is named, and only there: a batch may have millions.
    pub async fn page(&self, job: Option<&Name>, from: Option<&RecordKey>) -> Result<Page, LookError> {
        let items = job.map(|job| RecordKey::items_of_job(Some(job)));
        if let Some(items) = &items
            && from.is_some_and(|from| from.as_str().starts_with(items.as_str()))
        {
            return self.page_of(items, from).await;
        }
        let mut page = self.page_of(&RecordKey::entries_of(job), from).await?;
        if let (Some(items), None) = (items, &page.next) {
            let Page { entries, unreadable, next } = self.page_of(&items, None).await?;
            page.entries.extend(entries);
            page.unreadable.extend(unreadable);
            page.next = next;
        }
        let is_blocked = |listed: &&Listed| {
            let last = listed.seen.value.last_attempt();
            matches!(listed.seen.value.state, State::Open { .. })
                && last.is_some_and(|last| matches!(last.ending, Ending::Blocked { .. }))
        };
        let blocked: Vec<Work> =
            page.entries.iter().filter(is_blocked).map(|listed| listed.seen.value.work.clone()).collect();
        for work in blocked {
            let mut from = None;
            loop {
                let steps = self.steps(&work, from.as_ref()).await?;
                page.entries.extend(steps.entries.into_iter().filter(|step| step.condition.needs_a_person()));
                page.unreadable.extend(steps.unreadable);
                from = steps.next;
                if from.is_none() {
                    break;
                }
            }
        }
        Ok(page)
    }

    /// A page of the items of all jobs.
    pub async fn items(&self, from: Option<&RecordKey>) -> Result<Page, LookError> {
        self.page_of(&RecordKey::items_of_job(None), from).await
    }

    /// How many items each job has in each state, as the records say: one whose runner died is still running there.
    /// Read in pages, and of each record only what is counted.
    pub async fn count_items(&self) -> Result<BTreeMap<Name, BTreeMap<String, u64>>, LookError> {
        let mut counts: BTreeMap<Name, BTreeMap<String, u64>> = BTreeMap::new();
        let mut from = None;
        loop {
            let records = self.store.scan(&RecordKey::items_of_job(None), from.as_ref(), PAGE).await?;
            for (job, state) in records.iter().filter_map(|record| brief(&record.value)) {
                let of_job = counts.entry(job).or_default();
                match of_job.get_mut(state) {
                    Some(count) => *count += 1,
                    None => drop(of_job.insert(state.to_owned(), 1)),
                }
            }
            from = after(&records, PAGE);
            if from.is_none() {
                return Ok(counts);
            }
        }
    }

    /// A page of the steps of a work.
    pub async fn steps(&self, work: &Work, from: Option<&RecordKey>) -> Result<Page, LookError> {
        self.page_of(&RecordKey::steps_of(Some(work)), from).await
    }

    async fn page_of(&self, prefix: &str, from: Option<&RecordKey>) -> Result<Page, LookError> {
        let records = self.store.scan(prefix, from, PAGE).await?;
        let next = after(&records, PAGE);
        let (mut seen, mut unreadable) = (Vec::new(), Vec::new());
        for record in &records {
            match seen_entry(record) {
                Ok(entry) if entry.value.is_trace() => {}
                Ok(entry) => seen.push(entry),
                Err(why) => unreadable.push(why),
            }
        }
        let mut resources: Vec<Name> = seen.iter().filter_map(|seen| runs_on(&seen.value)).cloned().collect();
        resources.sort();
        resources.dedup();
        let view = if resources.is_empty() { View::default() } else { self.look(None, &resources).await? };
        let mut entries = Vec::new();
        for seen in seen {
            match self.listed(&view, seen).await {
                Ok(listed) => entries.extend(listed),
                Err(LookError::Record(why)) => unreadable.push(why),
                Err(why) => return Err(why),
            }
        }
        Ok(Page { entries, unreadable, next })
    }

    /// Where an entry of a page stands; nothing if it was removed meanwhile.
    async fn listed(&self, view: &View, seen: Seen<Entry>) -> Result<Option<Listed>, LookError> {
        let lease_of = |view: &View, entry: &Entry| {
            runs_on(entry).and_then(|resource| view.lease(resource).flatten().cloned())
        };
        if let Ok(condition) = story::condition(view, &seen.value)
            && condition != Condition::Lost
        {
            let lease = lease_of(view, &seen.value);
            return Ok(Some(Listed { seen, condition, lease }));
        }
        // it may have ended between the look at it and the look at its lease: once more, both at one moment
        let Outlook { view, condition, .. } = self.outlook(&seen.value.work).await?;
        let entry = view.entry.clone();
        Ok(entry.zip(condition).map(|(seen, condition)| {
            let lease = lease_of(&view, &seen.value);
            Listed { seen, condition, lease }
        }))
    }

    /// The leases, page by page; what cannot be read is left out.
    pub async fn leases(
        &self,
        from: Option<&RecordKey>,
    ) -> Result<(Vec<(Name, SeenLease)>, Option<RecordKey>), LookError> {
        let records = self.store.scan(RecordKey::leases(), from, SMALL_PAGE).await?;
        let read = |record: &Record| {
            let name = semel_core::name::unescape(key_of(&record.key)).ok()?;
            Some((Name::new(&name).ok()?, self.seen_lease(record).ok()?))
        };
        Ok((records.iter().filter_map(read).collect(), after(&records, SMALL_PAGE)))
    }

    /// How many runs of this work came and did nothing, as far as the journal goes back.
    pub async fn suppressed(&self, work: &Work) -> Result<Suppressed, LookError> {
        self.count_notes(&RecordKey::journal_of(work)).await
    }

    /// How many runs of all works came and did nothing, as far as the journal goes back.
    pub async fn suppressed_in_all(&self) -> Result<Suppressed, LookError> {
        self.count_notes(&RecordKey::journals_of(None)).await
    }

    async fn count_notes(&self, prefix: &str) -> Result<Suppressed, LookError> {
        let (mut counts, mut from) = (Suppressed::default(), None);
        loop {
            let records = self.store.scan(prefix, from.as_ref(), SMALL_PAGE).await?;
            // a note that cannot be read counts for nothing: it is a courtesy, not a record that decides
            for note in records.iter().filter_map(|record| journal::read(record).ok()) {
                match note.why {
                    SkipReason::Done => counts.done += 1,
                    SkipReason::Running { .. } => counts.running += 1,
                    SkipReason::Busy { .. } => counts.busy += 1,
                }
                counts.last_ms = counts.last_ms.max(Some(note.at_ms));
            }
            from = after(&records, SMALL_PAGE);
            if from.is_none() {
                return Ok(counts);
            }
        }
    }
}

/// The resource that an entry runs under.
fn runs_on(entry: &Entry) -> Option<&Name> {
    match &entry.state {
        State::Running { resource, .. } => Some(resource),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_readable_form_a_key_and_its_first_digits_are_told_apart() {
        let parse =
            |text: &str| Wanted::parse(text).map(|wanted| (wanted.work.is_some(), wanted.digits.is_some()));
        for text in
            ["publish", "publish*", "publish@2026-06-19", "publish?series=landing", "deadbee", "beef/dead"]
        {
            assert_eq!(parse(text), Ok((true, false)), "{text}");
        }
        for text in ["deadbeef", "DEADBEEF", &"0".repeat(64)] {
            assert_eq!(parse(text), Ok((true, true)), "{text}");
        }
        assert_eq!(Wanted::parse("DEADBEEF").map(|wanted| wanted.digits), Ok(Some("deadbeef".into())));
        assert_eq!(parse(&"0".repeat(65)), Ok((true, false)));
        for text in ["", "-x", "a b", "@2026"] {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
