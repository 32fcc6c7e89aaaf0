//! A person's verdict, written under the guards of the rule that allows it.

use semel_core::claim::{self, Refusal, View, Write};
use semel_core::entry::{Entry, Say, State, Verdict};
use semel_core::lease::SeenLease;
use semel_core::name::Name;
use semel_core::record::Seen;
use semel_core::work::Work;
use serde_json::Value;

use super::Engine;
use super::view::{LookError, changes};
use crate::store::{Change, Durability, StoreError};

/// How often a verdict is tried against a ledger that keeps changing.
const TRIES: u32 = 100;
/// The most verdicts in one write.
const GROUP: usize = 256;

/// What a person says.
#[derive(Clone, Debug)]
pub struct Saying {
    /// What.
    pub said: Say,
    /// Who.
    pub by: String,
    /// Why.
    pub because: String,
    /// What came out, with [`Say::Done`].
    pub result: Option<Value>,
}

impl Saying {
    fn verdict(&self, of: &Entry, at_ms: u64) -> Verdict {
        let Saying { said, by, because, .. } = self.clone();
        Verdict { said, by, at_ms, because, was: of.state.word().to_owned() }
    }
}

/// Whatever it was said of.
fn is_same(one: &Verdict, other: &Verdict) -> bool {
    Verdict { was: String::new(), ..one.clone() } == Verdict { was: String::new(), ..other.clone() }
}

/// What came of a verdict.
#[derive(Clone, Debug)]
#[allow(clippy::large_enum_variant)] // one per command
pub enum Judged {
    /// It is on record.
    Changed {
        /// What stood there.
        before: Entry,
        /// What stands there now.
        after: Entry,
    },
    /// It stood so already, or is no longer what was meant.
    Already(Entry),
    /// It is under way.
    Running {
        /// On this resource.
        resource: Name,
        /// Under this lease.
        lease: Option<SeenLease>,
    },
    /// There is no such entry.
    Absent,
    /// A work of `--always` is never done.
    NeverDone,
}

impl Engine {
    /// Put a person's verdict on record.
    pub async fn judge(&self, work: &Work, saying: &Saying) -> Result<Judged, LookError> {
        self.judge_if(work, saying, &|_| true).await
    }

    /// The same verdict on many entries as they were seen: as many as the store takes in one write. Answers which of them it
    /// changed: what has gone on in the meantime, and is no longer in such a state, is left alone.
    pub async fn judge_all(
        &self,
        seen: &[Seen<Entry>],
        saying: &Saying,
        is_meant: &(dyn Fn(&State) -> bool + Sync),
    ) -> Result<Vec<bool>, LookError> {
        let mut changed = Vec::with_capacity(seen.len());
        // one change is left for the alarm
        let most = self.store.most().changes.saturating_sub(1).clamp(1, GROUP);
        for some in seen.chunks(most) {
            let at_ms = self.clock.wall_ms();
            if self.judge_together(some, saying, at_ms).await? {
                changed.extend(some.iter().map(|_| true));
                continue;
            }
            // somebody was faster with one of them, or nobody answered
            for one in some {
                changed.push(self.judge_after(&one.value.work, saying, at_ms, is_meant).await?);
            }
        }
        Ok(changed)
    }

    /// All of them in one write. `false`: it was not, or perhaps not, made.
    async fn judge_together(
        &self,
        some: &[Seen<Entry>],
        saying: &Saying,
        at_ms: u64,
    ) -> Result<bool, LookError> {
        let mut writes = Vec::with_capacity(some.len() + 1);
        for seen in some {
            let view = View { entry: Some(seen.clone()), ..View::default() };
            let verdict = saying.verdict(&seen.value, at_ms);
            let Ok((entry, expect, guards)) = claim::verdict(&view, seen, verdict, saying.result.clone())
            else {
                return Ok(false);
            };
            writes.extend(guards.into_iter().map(Write::Guard));
            writes.push(Write::Entry { entry, expect });
        }
        let works = some.iter().map(|seen| &seen.value.work);
        writes.extend(self.judged_alarms(works).await?);
        let changes = changes(&writes)?;
        let (most, bytes) = (self.store.most(), changes.iter().map(Change::size).sum::<usize>());
        if changes.len() > most.changes || bytes > most.bytes {
            return Ok(false);
        }
        match self.store.swap(&changes, Durability::Durable).await {
            Ok(_) => Ok(true),
            Err(StoreError::Refused(_) | StoreError::Unknown(_)) => Ok(false),
            Err(why) => Err(why.into()),
        }
    }

    /// One of several that were not all written, or perhaps were.
    async fn judge_after(
        &self,
        work: &Work,
        saying: &Saying,
        at_ms: u64,
        is_meant: &(dyn Fn(&State) -> bool + Sync),
    ) -> Result<bool, LookError> {
        if let Some(seen) = self.look(Some(work), &[]).await?.entry {
            let ours = saying.verdict(&seen.value, at_ms);
            if seen.value.verdicts.last().is_some_and(|last| is_same(last, &ours)) {
                return Ok(true);
            }
        }
        Ok(matches!(self.judge_if(work, saying, is_meant).await?, Judged::Changed { .. }))
    }

    /// The same, but only about an entry in such a state: what has gone on in the meantime is answered as it stands
    /// ([`Judged::Already`]). A verdict on many entries is about what they were when they were listed.
    pub async fn judge_if(
        &self,
        work: &Work,
        saying: &Saying,
        is_meant: &(dyn Fn(&State) -> bool + Sync),
    ) -> Result<Judged, LookError> {
        let at_ms = self.clock.wall_ms();
        let mut resources: Vec<Name> = Vec::new();
        let mut before = None;
        for _ in 0..TRIES {
            let view = self.look(Some(work), &resources).await?;
            let Some(seen) = &view.entry else { return Ok(Judged::Absent) };
            let result = saying.result.clone();
            let verdict = saying.verdict(&seen.value, at_ms);
            // our own write, whose reply was lost
            let is_ours = |last: &Verdict| is_same(last, &verdict);
            if let Some(before) = before.take().filter(|_| seen.value.verdicts.last().is_some_and(is_ours)) {
                return Ok(Judged::Changed { before, after: seen.value.clone() });
            }
            if !is_meant(&seen.value.state) {
                return Ok(Judged::Already(seen.value.clone()));
            }
            match claim::verdict(&view, seen, verdict, result) {
                Err(Refusal::LookAt(resource)) => resources.push(resource),
                Err(Refusal::NeverDone) => return Ok(Judged::NeverDone),
                Err(Refusal::Already) => return Ok(Judged::Already(seen.value.clone())),
                Err(Refusal::Running { resource }) => {
                    let lease = view.lease(&resource).flatten().cloned();
                    return Ok(Judged::Running { resource, lease });
                }
                Ok((after, expect, guards)) => {
                    let mut writes: Vec<Write> = guards.into_iter().map(Write::Guard).collect();
                    writes.push(Write::Entry { entry: after.clone(), expect });
                    writes.extend(self.judged_alarm(work).await?);
                    match self.store.swap(&changes(&writes)?, Durability::Durable).await {
                        Ok(_) => return Ok(Judged::Changed { before: seen.value.clone(), after }),
                        Err(StoreError::Refused(_)) => {}
                        Err(StoreError::Unknown(_)) => before = Some(seen.value.clone()),
                        Err(why) => return Err(why.into()),
                    }
                }
            }
        }
        Err(StoreError::Unavailable(format!(
            "{work} changed {TRIES} times in a row while its verdict was written"
        ))
        .into())
    }
}
