//! Changes in their order, as few round trips as that allows.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_nats::HeaderMap;
use futures_util::future::join_all;
use semel_core::record::{Expect, Version};

use super::bucket::{
    Bucket, EXPECTED, EXPECTED_ID, ID, OPERATION, TTL, VERSION, WRONG_LAST_ID, WRONG_LAST_SEQUENCE, parts,
    version,
};
use super::held::Lease;
use super::link::Fault;
use super::{Failure, Looked, Nats, Sent, drawn, look};
use crate::clock::boottime;
use crate::store::{Change, StoreError, Written, meets};

/// How many writes are sent together.
const TOGETHER: usize = 256;
/// After so many refusals of a write that still fits, others are let through.
const PATIENCE: u32 = 8;

/// Where removals were written, whose space can be given back.
pub(super) type Marks = Mutex<Vec<(String, u64)>>;

/// A swap under way.
struct Swap<'a> {
    nats: &'a Nats,
    bucket: Arc<Bucket>,
    changes: &'a [Change],
    subjects: Vec<String>,
    /// Which message each write replaces.
    aims: Vec<u64>,
    versions: Vec<Version>,
    sent: &'a Sent,
    has_written: bool,
    refusals: u32,
}

/// What is sent of a write.
type Message = (HeaderMap, Vec<u8>);

/// A write that is ready to be sent.
struct Draft {
    index: usize,
    nonce: String,
}

/// Is nothing written for it?
fn only_looks(change: &Change) -> bool {
    match change {
        Change::Guard { .. } => true,
        Change::Remove { expect, .. } => *expect == Expect::Absent,
        Change::Put { .. } => false,
    }
}

/// Is it a record without a clock where none is?
pub(super) fn is_new(change: &Change) -> bool {
    matches!(change, Change::Put { expect: Expect::Absent, ttl: None, .. })
}

impl Nats {
    /// Send each as a message of its own that asks for no answer, and wait until all have left this process. The server
    /// does what it has read, whether the one who sent it is there or not.
    pub(super) async fn post_now(&self, changes: &[Change], sent: &Sent) -> Result<(), Failure> {
        let bucket = self.bucket().await?;
        for change in changes {
            let Change::Put { key, value, .. } = change else { continue };
            let mut headers = HeaderMap::new();
            headers.insert(EXPECTED, "0");
            headers.insert(VERSION, format!("{:032x}", drawn()?).as_str());
            let subject = self.subject(key)?;
            sent.now();
            bucket.link.send(subject, headers, value.clone()).await.map_err(|why| match why {
                Fault::NotSent(why) => Failure::Gone(why),
                why => Failure::of_read(why),
            })?;
        }
        let left = bucket.link.left().await;
        left.map_err(|why| Failure::Said(StoreError::Unknown(why)))
    }

    pub(super) async fn swap_now(&self, changes: &[Change], sent: &Sent) -> Result<Vec<Version>, Failure> {
        if changes.is_empty() {
            return Ok(Vec::new());
        }
        let mut swap = Swap {
            nats: self,
            subjects: self.subjects_of(changes.iter().map(Change::key))?,
            bucket: self.bucket().await?,
            changes,
            aims: vec![0; changes.len()],
            versions: Vec::with_capacity(changes.len()),
            sent,
            has_written: false,
            refusals: 0,
        };
        swap.prepare().await?;
        swap.make().await?;
        Ok(swap.versions)
    }

    /// The message that a write of this expectation replaces, if that is known without a look.
    fn aim(&self, change: &Change) -> Option<u64> {
        let held = self.held();
        match change.expect() {
            Expect::Absent => Some(0),
            Expect::Version(version) => match held.get(change.key(), version) {
                Some(lease) => Some(lease.seq),
                None => parts(version).map(|(_, first)| first),
            },
            Expect::Live(version) => {
                held.get(change.key(), version).filter(|lease| lease.is_live()).map(|lease| lease.seq)
            }
            Expect::Lapsed(_) => None,
        }
    }

    /// Give back the space of removed records. What fails is left to the next who finds it: nothing depends on it.
    pub(super) async fn purge(&self, marks: Vec<(String, u64)>) {
        const AT_MOST: Duration = Duration::from_secs(1);
        let Some(bucket) = self.living().filter(|_| !marks.is_empty()) else { return };
        let purge = async {
            for some in marks.chunks(TOGETHER) {
                drop(join_all(some.iter().map(|(subject, seq)| bucket.purge(subject, *seq))).await);
            }
        };
        let _ = tokio::time::timeout(AT_MOST, purge).await;
    }
}

impl Swap<'_> {
    /// Before anything is written: one look at every record that is to be looked at.
    async fn prepare(&mut self) -> Result<(), Failure> {
        let first_write = self.changes.iter().position(|change| !only_looks(change));
        let mut looks = Vec::new();
        for (i, change) in self.changes.iter().enumerate() {
            if only_looks(change) {
                if first_write.is_none_or(|first| i < first) {
                    looks.push(i);
                }
                continue;
            }
            match self.nats.aim(change) {
                Some(aim) => self.aims[i] = aim,
                None => looks.push(i),
            }
        }
        if looks.is_empty() {
            return Ok(());
        }
        let looked = self.look(&looks).await?;
        for (at, i) in looks.into_iter().enumerate() {
            self.check(i, &looked, at)?;
        }
        Ok(())
    }

    async fn look(&self, indices: &[usize]) -> Result<Looked, Failure> {
        let subjects: Vec<String> = indices.iter().map(|i| self.subjects[*i].clone()).collect();
        look(&self.bucket, &subjects).await.map_err(|why| match self.has_written {
            true => self.failure(why),
            false => Failure::of_read(why),
        })
    }

    /// Is a record as it is expected? Then this is the message to replace.
    fn check(&mut self, index: usize, looked: &Looked, at: usize) -> Result<Option<Version>, Failure> {
        let change = &self.changes[index];
        let stands = looked.record(at, change.key());
        if !meets(change.expect(), stands.as_ref().map(|record| (&record.version, record.standing))) {
            return Err(StoreError::refused(index, change.key().clone(), stands).into());
        }
        self.aims[index] = looked.seq(at);
        Ok(stands.map(|record| record.version))
    }

    async fn make(&mut self) -> Result<(), Failure> {
        let mut written = Written::default();
        let mut again = vec![false; self.changes.len()];
        for (change, again) in self.changes.iter().zip(&mut again) {
            *again = written.comes_again(change);
        }
        while self.versions.len() < self.changes.len() {
            let index = self.versions.len();
            let change = &self.changes[index];
            if again[index] {
                let stands = self.look(&[index]).await?.record(0, change.key());
                return Err(StoreError::refused(index, change.key().clone(), stands).into());
            }
            if only_looks(change) {
                self.guard(index).await?;
                continue;
            }
            let run = (index..self.changes.len())
                .take_while(|i| !again[*i] && !only_looks(&self.changes[*i]))
                .take(TOGETHER);
            self.write(index, run.count()).await?;
        }
        Ok(())
    }

    /// Look, at its place in the order.
    async fn guard(&mut self, index: usize) -> Result<(), Failure> {
        let version = if self.has_written {
            let looked = self.look(&[index]).await?;
            self.check(index, &looked, 0)?
        } else {
            // it was looked at before, and nothing was written since
            match self.changes[index].expect() {
                Expect::Absent => None,
                Expect::Version(version) | Expect::Live(version) | Expect::Lapsed(version) => {
                    Some(version.clone())
                }
            }
        };
        self.versions.push(version.unwrap_or_else(|| Version::new("")));
        Ok(())
    }

    /// Send so many writes together; what was made of them is in `versions`.
    async fn write(&mut self, from: usize, many: usize) -> Result<(), Failure> {
        let (drafts, messages): (Vec<Draft>, Vec<_>) = self.drafts(from, many)?.into_iter().unzip();
        let begun = boottime();
        self.sent.now();
        let (bucket, subjects) = (&self.bucket, &self.subjects);
        let sending = drafts
            .iter()
            .zip(messages)
            .map(|(draft, (headers, value))| bucket.publish(&subjects[draft.index], headers, value));
        let answers = join_all(sending).await;
        for (draft, answer) in drafts.into_iter().zip(answers) {
            match answer {
                Ok(seq) => self.made(draft, seq, begun),
                // another wrote in between: this one and the rest are sent anew
                Err(Fault::Rejected { code: WRONG_LAST_ID, .. }) if draft.index > from => return Ok(()),
                Err(Fault::Rejected { code: WRONG_LAST_SEQUENCE, .. }) => {
                    return self.again(draft.index).await;
                }
                Err(why) => return Err(self.failure(why)),
            }
        }
        Ok(())
    }

    fn drafts(&self, from: usize, many: usize) -> Result<Vec<(Draft, Message)>, StoreError> {
        let mut drafts: Vec<(Draft, Message)> = Vec::with_capacity(many);
        let drawn = drawn()?;
        for index in from..from + many {
            let nonce = format!("{:032x}", drawn.wrapping_add(index as u128));
            let mut headers = HeaderMap::new();
            headers.insert(EXPECTED, self.aims[index].to_string());
            if many > 1 {
                headers.insert(ID, nonce.as_str());
            }
            if let Some((before, _)) = drafts.last() {
                headers.insert(EXPECTED_ID, before.nonce.as_str());
            }
            let mut bytes = Vec::new();
            match &self.changes[index] {
                Change::Put { value, ttl, .. } => {
                    headers.insert(VERSION, nonce.as_str());
                    if let Some(ttl) = ttl {
                        headers.insert(TTL, micros(*ttl).to_string());
                    }
                    bytes.clone_from(value);
                }
                Change::Remove { .. } | Change::Guard { .. } => headers.insert(OPERATION, "DEL"),
            }
            drafts.push((Draft { index, nonce }, (headers, bytes)));
        }
        Ok(drafts)
    }

    fn made(&mut self, draft: Draft, seq: u64, begun: Duration) {
        self.has_written = true;
        let change = &self.changes[draft.index];
        let now = match change {
            Change::Put { .. } => version(&draft.nonce, seq),
            Change::Remove { expect, .. } | Change::Guard { expect, .. } => match expect {
                Expect::Version(version) | Expect::Live(version) | Expect::Lapsed(version) => version.clone(),
                Expect::Absent => Version::new(""),
            },
        };
        let mut held = self.nats.held();
        match change {
            Change::Put { key, ttl: Some(ttl), value, .. } => {
                let lease = Lease { version: now.clone(), seq, ttl: *ttl, value: value.clone(), begun };
                held.keep(key, lease);
            }
            other => held.forget(other.key()),
        }
        drop(held);
        self.versions.push(now);
    }

    /// Another message stands there. Is it the same record, touched, or none, removed? Then that one is replaced.
    async fn again(&mut self, index: usize) -> Result<(), Failure> {
        self.nats.held().forget(self.changes[index].key());
        if !self.has_written {
            self.sent.undone();
        }
        let looked = self.look(&[index]).await?;
        self.check(index, &looked, 0)?;
        self.refusals += 1;
        if self.refusals > PATIENCE {
            tokio::time::sleep(Duration::from_millis(u64::from(self.refusals))).await;
        }
        Ok(())
    }

    /// What a fault means for the whole: if a part of it stands, it is not known to be unmade.
    fn failure(&self, why: Fault) -> Failure {
        match why {
            why if self.has_written => Failure::Said(StoreError::Unknown(why.to_string())),
            Fault::NoAnswer(why) => Failure::Said(self.sent.unanswered(why)),
            Fault::NotSent(why) => {
                self.sent.undone();
                Failure::Gone(why)
            }
            Fault::Rejected { why, .. } => Failure::Said(StoreError::Unavailable(why)),
        }
    }
}

/// The server counts in what is left of it; less than one would be no clock at all.
pub(super) fn micros(ttl: Duration) -> u64 {
    u64::try_from(ttl.as_micros()).unwrap_or(u64::MAX).clamp(1, i64::MAX.unsigned_abs())
}
