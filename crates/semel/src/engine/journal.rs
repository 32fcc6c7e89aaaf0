//! The journal of what was *not* done: who came, when, and why they yielded.
//!
//! Each note is a record of its own, so that thirty runs that yield at once write without a conflict. It is
//! posted: it costs no sync, and where the store can no round trip; a power cut may forget the last of it.

use semel_core::owner::Owner;
use semel_core::record::{self, Expect, RecordError, RecordKey};
use semel_core::work::Work;
use serde::{Deserialize, Serialize};

use super::{Engine, Event, Tell, draw_nonce};
use crate::store::{Change, Record};

/// A run that yielded.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Skip {
    /// The work, in the readable form.
    pub work: String,
    /// When, by its wall clock.
    pub at_ms: u64,
    /// Who.
    pub by: Owner,
    /// Why.
    #[serde(flatten)]
    pub why: SkipReason,
}

/// Why a run yielded.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "reason", rename_all = "snake_case")]
pub enum SkipReason {
    /// The work was done.
    Done,
    /// This very work was under way.
    Running {
        /// Under which token.
        token: u64,
    },
    /// The resource was held for something else.
    Busy {
        /// Which.
        resource: String,
        /// For what.
        held_for: String,
    },
}

/// A note as it was written.
pub fn read(record: &Record) -> Result<Skip, RecordError> {
    record::decode(&record.key, &record.value)
}

impl Engine {
    /// Note that this run yields. A journal that cannot be written never fails the run.
    pub(crate) async fn note_skip(&self, work: &Work, why: SkipReason, tell: Tell<'_>) {
        if let Err(why) = self.write_skip(work, why).await {
            tell(Event::JournalFailed(&why));
        }
    }

    async fn write_skip(&self, work: &Work, why: SkipReason) -> Result<(), String> {
        let at_ms = self.clock.wall_ms();
        let key = RecordKey::journal(work, at_ms, &draw_nonce()?);
        let skip = Skip { work: work.to_string(), at_ms, by: self.me.clone(), why };
        let value = record::encode(&key, &skip).map_err(|why| why.to_string())?;
        let change = Change::Put { key, expect: Expect::Absent, value, ttl: None };
        self.store.post(&[change]).await.map_err(|why| why.to_string())
    }
}
