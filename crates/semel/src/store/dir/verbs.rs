//! The verbs, done by a thread that may wait.

use std::time::Duration;

use semel_core::record::{Expect, RecordKey, Version};

use super::super::{Change, Durability, Loaded, Record, StoreError, Written, meets};
use super::fault::Fault;
use super::lane::Ask;
use super::page::{Kind, Page};
use super::place::nonce;
use super::records::{Appended, Records, Seen, State};

/// What a change writes.
enum Write<'a> {
    Put { value: &'a [u8], ttl: Option<Duration> },
    Touch,
    Remove,
}

/// The version that is answered for an absent record.
fn no_version() -> Version {
    Version::new("")
}

fn version_of(seen: &Seen) -> Version {
    seen.head().map_or_else(no_version, |head| Version::new(head.page.version.as_str()))
}

fn asks_the_clock(expect: &Expect) -> bool {
    matches!(expect, Expect::Live(_) | Expect::Lapsed(_))
}

/// Does what was found meet the expectation at this moment? Without one, all but the clock is looked at.
fn fits(expect: &Expect, seen: &Seen, now: Option<Duration>) -> bool {
    let version = version_of(seen);
    let stands = |now: Duration| seen.head().map(|head| (&version, head.standing(now)));
    match (expect, now) {
        (Expect::Live(expected) | Expect::Lapsed(expected), None) => {
            let clocked = seen.head().is_some_and(|head| head.page.ttl.is_some());
            clocked && meets(&Expect::Version(expected.clone()), stands(Duration::ZERO))
        }
        (expect, now) => meets(expect, stands(now.unwrap_or(Duration::ZERO))),
    }
}

impl Records {
    /// The moment that a refusal speaks of.
    fn refused(&self, index: usize, key: &RecordKey, seen: &Seen) -> StoreError {
        match self.tell(key, seen) {
            Ok(stands) => StoreError::refused(index, key.clone(), stands),
            Err(why) => why.into(),
        }
    }

    fn tell(&self, key: &RecordKey, seen: &Seen) -> Result<Option<Record>, Fault> {
        let Some(head) = seen.head() else { return Ok(None) };
        let now = if head.page.ttl.is_some() { self.place.now()? } else { Duration::ZERO };
        Ok(Some(head.record(key, now)))
    }

    pub(super) fn load(&self, keys: &[RecordKey]) -> Result<Loaded, StoreError> {
        let seen = keys.iter().map(|key| self.look(key.as_str())).collect::<Result<Vec<_>, _>>()?;
        let clocked = seen.iter().filter_map(Seen::head).any(|head| head.page.ttl.is_some());
        // after the looks: what was live then and is told as lapsed is found out by the write
        let now = if clocked { self.place.now()? } else { Duration::ZERO };
        let records = keys.iter().zip(&seen).map(|(key, seen)| seen.head().map(|head| head.record(key, now)));
        Ok(Loaded { records: records.collect(), token_floor: 0 })
    }

    /// The version that stands there.
    pub(super) fn version(&self, key: &RecordKey) -> Result<Option<Version>, StoreError> {
        let seen = self.look(key.as_str())?;
        Ok(seen.head().is_some().then(|| version_of(&seen)))
    }

    pub(super) fn swap(
        &self,
        changes: &[Change],
        durability: Durability,
        ask: &Ask,
    ) -> Result<Vec<Version>, StoreError> {
        let seen = self.look_at_all(changes)?;
        let mut versions = Vec::with_capacity(changes.len());
        let mut wrote = false;
        for (index, (change, seen)) in changes.iter().zip(seen).enumerate() {
            let (key, expect) = (change.key(), change.expect());
            let made = match change {
                // looked at a moment ago, unless something was written since
                Change::Guard { .. } if !wrote => Ok(version_of(&seen)),
                Change::Guard { .. } => self.guard(index, key, expect),
                Change::Put { value, ttl, .. } => {
                    let write = Write::Put { value, ttl: *ttl };
                    self.write(index, key, expect, write, seen, durability, ask)
                }
                Change::Remove { .. } => self.write(index, key, expect, Write::Remove, seen, durability, ask),
            };
            versions.push(made.map_err(|why| match why {
                // those before it stand
                StoreError::Unavailable(why) if wrote => StoreError::Unknown(why),
                why => why,
            })?);
            wrote |= !matches!(change, Change::Guard { .. });
        }
        Ok(versions)
    }

    /// Look at every record before anything is written, so that a refusal that can be told now leaves nothing behind.
    fn look_at_all(&self, changes: &[Change]) -> Result<Vec<Seen>, StoreError> {
        let mut written = Written::default();
        let mut all = Vec::with_capacity(changes.len());
        for (index, change) in changes.iter().enumerate() {
            let seen = self.look(change.key().as_str())?;
            let now = asks_the_clock(change.expect()).then(|| self.place.now()).transpose()?;
            if written.comes_again(change) || !fits(change.expect(), &seen, now) {
                return Err(self.refused(index, change.key(), &seen));
            }
            all.push(seen);
        }
        Ok(all)
    }

    fn guard(&self, index: usize, key: &RecordKey, expect: &Expect) -> Result<Version, StoreError> {
        let seen = self.look(key.as_str())?;
        let now = asks_the_clock(expect).then(|| self.place.now()).transpose()?;
        if fits(expect, &seen, now) { Ok(version_of(&seen)) } else { Err(self.refused(index, key, &seen)) }
    }

    pub(super) fn touch(&self, key: &RecordKey, version: &Version, ask: &Ask) -> Result<(), StoreError> {
        let seen = self.look(key.as_str())?;
        let expect = Expect::Live(version.clone());
        // kept as a durable write is: a file server that forgets a renewal would end the lease under its holder
        self.write(0, key, &expect, Write::Touch, seen, Durability::Durable, ask).map(drop)
    }

    /// Write a record if it is as expected, again and again while only its clock was restarted by others.
    #[allow(clippy::too_many_arguments)]
    fn write(
        &self,
        index: usize,
        key: &RecordKey,
        expect: &Expect,
        write: Write<'_>,
        mut seen: Seen,
        durability: Durability,
        ask: &Ask,
    ) -> Result<Version, StoreError> {
        loop {
            if !fits(expect, &seen, None) {
                return Err(self.refused(index, key, &seen));
            }
            if ask.is_over() {
                return Err(Fault::said(format!("{key} is written by too many at once: try again")).into());
            }
            let before = version_of(&seen);
            match (&seen.state, &write) {
                (State::Missing | State::Dead(_) | State::Bare(_), Write::Remove) => return Ok(before),
                (State::Dead(folder), _) => {
                    self.bury(folder, &seen.path)?;
                    self.make(&seen.path)?;
                }
                (State::Missing, _) => self.make(&seen.path)?,
                (State::Bare(_) | State::Stands(..), write) => {
                    match self.append_to(&seen, key, expect, write, durability, ask)? {
                        Some(_) if matches!(write, Write::Remove) => return Ok(before),
                        Some(version) => return Ok(version),
                        None => {}
                    }
                }
            }
            seen = self.look(key.as_str())?;
            // another version is told by what stands there; only the clock is left to be asked
            if fits(expect, &seen, None)
                && asks_the_clock(expect)
                && !fits(expect, &seen, Some(self.place.now()?))
            {
                return Err(self.refused(index, key, &seen));
            }
        }
    }

    /// One try. `None`: somebody else was faster, or the clock says no at the moment that the draft was stamped.
    fn append_to(
        &self,
        seen: &Seen,
        key: &RecordKey,
        expect: &Expect,
        write: &Write<'_>,
        durability: Durability,
        ask: &Ask,
    ) -> Result<Option<Version>, StoreError> {
        let (folder, head) = match &seen.state {
            State::Bare(folder) => (folder, None),
            State::Stands(folder, head) => (folder, Some(&**head)),
            State::Missing | State::Dead(_) => return Ok(None),
        };
        let durable = durability == Durability::Durable;
        let mut chain = head.is_some_and(|head| head.page.chain);
        if durable && !chain {
            self.secure(&seen.path)?;
            chain = true;
        }
        let page = self.page(key, head.map(|head| &head.page), write, chain)?;
        let draft = self.draft(&page)?;
        if asks_the_clock(expect) && !fits(expect, seen, Some(draft.at)) {
            return Ok(None);
        }
        if let Appended::Late = self.append(folder, head, &draft, ask)? {
            return Ok(None);
        }
        drop(draft);
        if let Write::Remove = write {
            // it is closed, and so removed, whatever happens to the rest
            self.end(folder).map_err(Fault::doubtful)?;
            let _ = self.clear(folder, &seen.path);
        } else if durable || head.is_some_and(Records::is_crowded) {
            folder.sync().map_err(self.fault("sync a record")).map_err(Fault::doubtful)?;
            if let Some(head) = head {
                self.collect_behind(folder, head);
            }
        }
        Ok(Some(Version::new(page.version)))
    }

    fn page(
        &self,
        key: &RecordKey,
        before: Option<&Page>,
        write: &Write<'_>,
        chain: bool,
    ) -> Result<Page, Fault> {
        let after = before.map(|before| before.write.clone());
        let new = |kind: Kind, value: &[u8], ttl: Option<Duration>| -> Result<Page, Fault> {
            Ok(Page {
                kind,
                write: nonce()?,
                after: after.clone(),
                version: nonce()?,
                ttl,
                chain,
                key: key.as_str().to_owned(),
                value: value.to_vec(),
            })
        };
        match (write, before) {
            (Write::Put { value, ttl }, _) => new(Kind::Put, value, *ttl),
            (Write::Touch, Some(before)) => Ok(Page { write: nonce()?, after, chain, ..before.clone() }),
            (Write::Touch | Write::Remove, _) => new(Kind::Closed, &[], None),
        }
    }
}
