//! A person's verdict, written under the guards of the rule that allows it.

use semel_core::claim::{self, Refusal, Write};
use semel_core::entry::{Entry, Say, State, Verdict};
use semel_core::lease::SeenLease;
use semel_core::name::Name;
use semel_core::work::Work;
use serde_json::Value;

use super::Engine;
use super::view::{LookError, changes};
use crate::store::{Durability, StoreError};

/// How often a verdict is tried against a ledger that keeps changing.
const TRIES: u32 = 100;

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
            let was = seen.value.state.word().to_owned();
            let Saying { said, by, because, result } = saying.clone();
            let verdict = Verdict { said, by, at_ms, because, was };
            // our own write, whose reply was lost
            let is_ours = |last: &Verdict| {
                Verdict { was: String::new(), ..last.clone() }
                    == Verdict { was: String::new(), ..verdict.clone() }
            };
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
