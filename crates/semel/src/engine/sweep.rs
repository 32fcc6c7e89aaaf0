//! Retention: remove what is past its time, page by page. What may go is [`semel_core::retention`]'s to say.
//!
//! A removal needs no sync: what a power cut brings back, the next sweep removes again.

use std::collections::{BTreeMap, BTreeSet};

use semel_core::claim::Write;
use semel_core::entry::Entry;
use semel_core::record::{Expect, RecordKey};
use semel_core::retention::{self, Fate};
use semel_core::token::Nonce;

use super::Engine;
use super::ledger::{SMALL_PAGE, after};
use super::view::{LookError, changes, seen_entry};
use crate::store::{Change, Durability, Record, StoreError};

const PAGE: usize = 128;
/// Pieces of output are large.
const PIECES_PAGE: usize = 16;

/// What a sweep looked at and removed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Swept {
    /// Records looked at.
    pub looked_at: u64,
    /// Notes of the journal that went.
    pub notes: u64,
    /// Attempts that went from logs.
    pub attempts: u64,
    /// Done entries that went: their work may run again.
    pub forgotten: u64,
    /// What was left of such entries, and went.
    pub traces: u64,
    /// Pieces of what steps wrote that went.
    pub outputs: u64,
    /// What could not be read, and stays.
    pub unreadable: u64,
}

impl Engine {
    /// Remove what is past its time, or only count it. `tell` hears how far it is, page by page.
    pub async fn sweep(&self, dry_run: bool, tell: &mut dyn FnMut(&Swept)) -> Result<Swept, LookError> {
        let mut swept = Swept::default();
        // the journal first: how long a note is kept, its entry says
        self.sweep_journal(dry_run, &mut swept, tell).await?;
        self.sweep_entries(&RecordKey::entries_of(None), dry_run, &mut swept, tell).await?;
        self.sweep_entries(&RecordKey::items_of_job(None), dry_run, &mut swept, tell).await?;
        self.sweep_outputs(dry_run, &mut swept, tell).await?;
        if !dry_run {
            self.sweep_alarms(&mut swept).await?;
        }
        Ok(swept)
    }

    /// Alarms in which nothing is wrong any more and nothing waits.
    async fn sweep_alarms(&self, swept: &mut Swept) -> Result<(), LookError> {
        let mut from = None;
        loop {
            let (alarms, next) = self.alarms(from.as_ref()).await?;
            swept.looked_at += alarms.len() as u64;
            let empty = alarms.into_iter().filter(|(_, seen)| seen.value.is_empty());
            let removals: Vec<Change> = empty
                .map(|(key, seen)| Change::Remove { key, expect: Expect::Version(seen.version) })
                .collect();
            if !removals.is_empty() {
                self.apply(removals).await?;
            }
            from = next;
            if from.is_none() {
                return Ok(());
            }
        }
    }

    async fn sweep_journal(
        &self,
        dry_run: bool,
        swept: &mut Swept,
        tell: &mut dyn FnMut(&Swept),
    ) -> Result<(), LookError> {
        let now_ms = self.clock.wall_ms();
        let mut from = None;
        loop {
            let records = self.store.scan(&RecordKey::journals_of(None), from.as_ref(), SMALL_PAGE).await?;
            from = after(&records, SMALL_PAGE);
            let keeps = self.keeps(&records).await?;
            let is_past = |record: &&Record| {
                let Some((path, at_ms)) = note_parts(&record.key) else { return false };
                retention::note_is_past(at_ms, keeps.get(path).copied(), now_ms)
            };
            let removals: Vec<Change> = records.iter().filter(is_past).map(removal).collect();
            swept.looked_at += records.len() as u64;
            swept.notes += if dry_run { removals.len() as u64 } else { self.apply(removals).await? };
            tell(swept);
            if from.is_none() {
                return Ok(());
            }
        }
    }

    /// How long the entries of these notes want them kept.
    async fn keeps(&self, notes: &[Record]) -> Result<BTreeMap<String, u64>, LookError> {
        let paths: BTreeSet<&str> =
            notes.iter().filter_map(|note| note_parts(&note.key)).map(|(path, _)| path).collect();
        let keys: Vec<RecordKey> =
            paths.iter().map(|path| RecordKey::from_stored(format!("entry/{path}"))).collect();
        let loaded = self.store.load(&keys).await?;
        let entries = paths.iter().zip(loaded.records);
        Ok(entries
            .filter_map(|(path, record)| match record.map(|record| seen_entry(&record)) {
                Some(Ok(seen)) => Some(((*path).to_owned(), seen.value.terms.keep_ms)),
                // what an entry that cannot be read wants is not known: its notes stay
                Some(Err(_)) => Some(((*path).to_owned(), u64::MAX)),
                None => None,
            })
            .collect())
    }

    async fn sweep_entries(
        &self,
        prefix: &str,
        dry_run: bool,
        swept: &mut Swept,
        tell: &mut dyn FnMut(&Swept),
    ) -> Result<(), LookError> {
        let now_ms = self.clock.wall_ms();
        let mut from = None;
        loop {
            let records = self.store.scan(prefix, from.as_ref(), PAGE).await?;
            from = after(&records, PAGE);
            swept.looked_at += records.len() as u64;
            for record in &records {
                let Ok(seen) = seen_entry(record) else {
                    swept.unreadable += 1;
                    continue;
                };
                match retention::fate(&seen.value, now_ms) {
                    Fate::Keep => {}
                    Fate::Trim { entry, dropped } => {
                        let change = rewrite(entry, Expect::Version(seen.version))?;
                        let made = if dry_run { 1 } else { self.apply(change).await? };
                        swept.attempts += made * dropped as u64;
                    }
                    Fate::Remove => {
                        swept.traces += if dry_run { 1 } else { self.apply(vec![removal(record)]).await? };
                    }
                    Fate::Forget { trace } => {
                        if !dry_run {
                            // first: a run that is done again must not find the steps of its earlier life
                            self.remove_all(&RecordKey::outputs_of(&seen.value.work), PIECES_PAGE).await?;
                            self.remove_all(&RecordKey::steps_of(Some(&seen.value.work)), PAGE).await?;
                        }
                        let change = rewrite(trace, Expect::Version(seen.version))?;
                        swept.forgotten += if dry_run { 1 } else { self.apply(change).await? };
                    }
                }
            }
            tell(swept);
            if from.is_none() {
                return Ok(());
            }
        }
    }

    /// Remove every record under this prefix.
    async fn remove_all(&self, prefix: &str, page: usize) -> Result<(), LookError> {
        let mut from = None;
        loop {
            let records = self.store.scan(prefix, from.as_ref(), page).await?;
            from = after(&records, page);
            if !records.is_empty() {
                self.apply(records.iter().map(removal).collect()).await?;
            }
            if from.is_none() {
                return Ok(());
            }
        }
    }

    async fn sweep_outputs(
        &self,
        dry_run: bool,
        swept: &mut Swept,
        tell: &mut dyn FnMut(&Swept),
    ) -> Result<(), LookError> {
        let now_ms = self.clock.wall_ms();
        let mut from = None;
        loop {
            let records = self.store.scan(RecordKey::outputs(), from.as_ref(), PIECES_PAGE).await?;
            from = after(&records, PIECES_PAGE);
            let of: Vec<_> = records.iter().map(|record| record.key.step_of_output()).collect();
            let steps: BTreeSet<RecordKey> = of.iter().flatten().map(|(step, _)| step.clone()).collect();
            let steps: Vec<RecordKey> = steps.into_iter().collect();
            let loaded = self.store.load(&steps).await?.records;
            let entries: BTreeMap<RecordKey, _> = steps
                .into_iter()
                .zip(loaded)
                .map(|(key, record)| (key, record.map(|record| seen_entry(&record))))
                .collect();
            let is_past = |step: &Option<(RecordKey, Nonce)>| {
                let Some((step, of)) = step else { return false };
                match entries.get(step) {
                    Some(Some(Ok(seen))) => retention::output_is_past(Some(&seen.value), of, now_ms),
                    // what an entry that cannot be read wants is not known
                    Some(Some(Err(_))) => false,
                    Some(None) | None => retention::output_is_past(None, of, now_ms),
                }
            };
            let past = records.iter().zip(&of).filter(|(_, step)| is_past(step));
            let removals: Vec<Change> = past.map(|(record, _)| removal(record)).collect();
            swept.looked_at += records.len() as u64;
            swept.outputs += match removals.is_empty() || dry_run {
                true => removals.len() as u64,
                false => self.apply(removals).await?,
            };
            tell(swept);
            if from.is_none() {
                return Ok(());
            }
        }
    }

    /// Make these changes, each if its record still is as it was; together if nothing is in the way. Answers how
    /// many were made.
    async fn apply(&self, changes: Vec<Change>) -> Result<u64, LookError> {
        let mut made = 0;
        for part in self.store.most().parts(&changes) {
            made += self.apply_part(part).await?;
        }
        Ok(made)
    }

    async fn apply_part(&self, changes: &[Change]) -> Result<u64, LookError> {
        match self.store.swap(changes, Durability::Relaxed).await {
            Ok(_) => return Ok(changes.len() as u64),
            Err(StoreError::Refused(_)) => {}
            Err(why) => return Err(why.into()),
        }
        let mut made = 0;
        for change in changes {
            match self.store.swap(std::slice::from_ref(change), Durability::Relaxed).await {
                Ok(_) => made += 1,
                // somebody changed it since: the next sweep decides
                Err(StoreError::Refused(_)) => {}
                Err(why) => return Err(why.into()),
            }
        }
        Ok(made)
    }
}

fn removal(record: &Record) -> Change {
    Change::Remove { key: record.key.clone(), expect: Expect::Version(record.version.clone()) }
}

fn rewrite(entry: Entry, expect: Expect) -> Result<Vec<Change>, LookError> {
    Ok(changes(&[Write::Entry { entry, expect }])?)
}

/// The path of a note's work, which its entry shares, and when it was written.
fn note_parts(key: &RecordKey) -> Option<(&str, u64)> {
    let (path, note) = key.as_str().strip_prefix("journal/")?.rsplit_once('/')?;
    let (time, _) = note.split_once('-')?;
    Some((path, u64::from_str_radix(time, 16).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use semel_core::name::{Name, Slot};
    use semel_core::work::Work;

    #[test]
    fn a_note_names_its_entry_and_its_time() {
        let works = Name::new("a/b").ok().zip(Slot::new("2026-06-19 x").ok());
        let Some((job, slot)) = works else { unreachable!() };
        let Ok(in_slot) = Work::in_slot(job.clone(), slot, Default::default()) else { unreachable!() };
        for work in [Work::once(job), in_slot] {
            let note = RecordKey::journal(&work, 0x12_3456, &Nonce::from_bytes([1; 16]));
            let Some((path, at_ms)) = note_parts(&note) else { unreachable!() };
            assert_eq!((format!("entry/{path}"), at_ms), (RecordKey::entry(&work).to_string(), 0x12_3456));
        }
        assert_eq!(note_parts(&RecordKey::from_stored("journal/x".into())), None);
    }
}
