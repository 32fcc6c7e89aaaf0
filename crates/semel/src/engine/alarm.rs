//! Anomalies, put on record in the very write of the outcome that they come from; and what became of telling them.
//!
//! So a crash between an anomaly and its notice loses nothing: what is to be told lies in the ledger, and whoever runs
//! next, or `semel check`, finds it there. The rules are [`semel_core::alarm`]'s. Nothing is sent from here.

use semel_core::alarm::{self, Alarm, Anomaly};
use semel_core::claim::{View, Write};
use semel_core::name::Name;
use semel_core::record::{Expect, RecordKey, Seen};
use semel_core::token::Nonce;
use semel_core::work::Work;

use super::ledger::{SMALL_PAGE, after};
use super::view::{LookError, changes, seen};
use super::{Engine, RunPlan, draw_nonce};
use crate::crash;
use crate::store::{Durability, StoreError};

/// How often others may be faster before it is left to the next one.
const TRIES: u32 = 8;

/// The alarm of a job whose anomalies are to be told, as it was last seen.
#[derive(Clone, Debug)]
pub(super) struct Watched {
    job: Name,
    lanes: Vec<String>,
    seen: Option<Seen<Alarm>>,
}

impl Watched {
    /// Of the job of this plan, if anybody is to be told.
    pub(super) fn of(plan: &RunPlan, view: &View) -> Option<Watched> {
        let work = plan.work.as_ref().filter(|_| !plan.lanes.is_empty())?;
        Some(Watched { job: work.job().clone(), lanes: plan.lanes.clone(), seen: view.alarm.clone() })
    }

    /// As it was seen.
    pub(super) fn new(job: &Name, lanes: &[String], seen: Option<Seen<Alarm>>) -> Watched {
        Watched { job: job.clone(), lanes: lanes.to_vec(), seen }
    }

    /// Is anything waiting to be told?
    pub(super) fn waits(&self) -> bool {
        self.seen.as_ref().is_some_and(|seen| !seen.value.outbox.is_empty())
    }

    /// What to write with an outcome that is one of these.
    pub(super) fn raise(&self, anomalies: &[Anomaly]) -> Option<Write> {
        let stands = self.seen.as_ref().map(|seen| &seen.value);
        self.write(alarm::raise(stands, &self.job, anomalies, &self.lanes, draw_id)?)
    }

    /// What to write with a success of this work.
    pub(super) fn recover(&self, work: &Work, now_ms: u64) -> Option<Write> {
        let stands = &self.seen.as_ref()?.value;
        self.write(alarm::recover(stands, &work.to_string(), now_ms, &self.lanes, draw_id)?)
    }

    fn write(&self, alarm: Alarm) -> Option<Write> {
        Some(Write::Alarm { alarm, expect: expect(self.seen.as_ref()) })
    }
}

fn expect(seen: Option<&Seen<Alarm>>) -> Expect {
    seen.map_or(Expect::Absent, |seen| Expect::Version(seen.version.clone()))
}

fn draw_id() -> Nonce {
    // a machine without random bytes draws no nonce for a claim either, so it never comes to this
    draw_nonce().unwrap_or(Nonce::from_bytes([0; 16]))
}

/// How a try to tell something came out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Telling {
    /// It was told.
    Delivered,
    /// It was not.
    Undelivered {
        /// Why.
        why: String,
        /// No further try will help.
        permanent: bool,
    },
}

impl Engine {
    /// The alarm under this name, if there is one.
    pub async fn alarm(&self, key: &RecordKey) -> Result<Option<Seen<Alarm>>, LookError> {
        let record = self.store.load(std::slice::from_ref(key)).await?.records.pop().flatten();
        Ok(record.map(|record| seen(&record)).transpose()?)
    }

    /// Look again at an alarm that somebody else has changed.
    pub(super) async fn look_at_alarm(&self, watched: &mut Option<Watched>) -> Result<(), LookError> {
        if let Some(watched) = watched {
            watched.seen = self.alarm(&RecordKey::alarm(&watched.job)).await?;
        }
        Ok(())
    }

    /// What to write of the alarm of this work's job when a person has judged it.
    pub(super) async fn judged_alarm(&self, work: &Work) -> Result<Option<Write>, LookError> {
        let seen = self.alarm(&RecordKey::alarm(work.job())).await?;
        let closed = seen.as_ref().and_then(|seen| alarm::closed_by_person(&seen.value, &work.to_string()));
        Ok(closed.map(|alarm| Write::Alarm { alarm, expect: expect(seen.as_ref()) }))
    }

    /// The same of several works of one job, in one write.
    pub(super) async fn judged_alarms<'a>(
        &self,
        works: impl Iterator<Item = &'a Work>,
    ) -> Result<Option<Write>, LookError> {
        let mut works = works.peekable();
        let Some(first) = works.peek() else { return Ok(None) };
        let Some(seen) = self.alarm(&RecordKey::alarm(first.job())).await? else { return Ok(None) };
        let mut closed: Option<Alarm> = None;
        for work in works {
            let stands = closed.as_ref().unwrap_or(&seen.value);
            closed = alarm::closed_by_person(stands, &work.to_string()).or(closed);
        }
        Ok(closed.map(|alarm| Write::Alarm { alarm, expect: expect(Some(&seen)) }))
    }

    /// A page of all alarms, each with its record's name; what cannot be read is left out.
    pub async fn alarms(
        &self,
        from: Option<&RecordKey>,
    ) -> Result<(Vec<(RecordKey, Seen<Alarm>)>, Option<RecordKey>), LookError> {
        let records = self.store.scan(RecordKey::alarms(), from, SMALL_PAGE).await?;
        let next = after(&records, SMALL_PAGE);
        let read = |record: &crate::store::Record| Some((record.key.clone(), seen(record).ok()?));
        Ok((records.iter().filter_map(read).collect(), next))
    }

    /// Put on record how a try to tell a notice on a lane came out.
    ///
    /// It is told at least once: a crash before this is on record has it told again, under the same id.
    pub async fn told(
        &self,
        key: &RecordKey,
        id: &Nonce,
        lane: &str,
        telling: &Telling,
    ) -> Result<(), LookError> {
        crash::point("notice.told");
        self.change_alarm(key, Durability::Relaxed, |stands| {
            let now_ms = self.clock.wall_ms();
            match telling {
                Telling::Delivered => alarm::delivered(stands?, id, lane, now_ms),
                Telling::Undelivered { why, permanent } => {
                    alarm::undelivered(stands?, id, lane, now_ms, why, *permanent)
                }
            }
        })
        .await
    }

    /// What a check found that nobody was told of, each by what it is known by; none if all is well.
    pub async fn raise_check(
        &self,
        findings: &[String],
        why: &str,
        lanes: &[String],
    ) -> Result<(), LookError> {
        self.change_alarm(&RecordKey::check_alarm(), Durability::Durable, |stands| {
            alarm::raise_check(stands, findings, why, self.clock.wall_ms(), lanes, draw_id)
        })
        .await
    }

    /// Anomalies of a job that nobody runs now.
    pub async fn raise(&self, job: &Name, anomalies: &[Anomaly], lanes: &[String]) -> Result<(), LookError> {
        self.change_alarm(&RecordKey::alarm(job), Durability::Durable, |stands| {
            alarm::raise(stands, job, anomalies, lanes, draw_id)
        })
        .await
    }

    /// A success of this work, of a job that nobody runs now.
    pub async fn recover(&self, job: &Name, work: &Work, lanes: &[String]) -> Result<(), LookError> {
        self.change_alarm(&RecordKey::alarm(job), Durability::Durable, |stands| {
            alarm::recover(stands?, &work.to_string(), self.clock.wall_ms(), lanes, draw_id)
        })
        .await
    }

    /// The same, where that work may still need a person.
    pub async fn recover_job(&self, job: &Name, work: &Work, lanes: &[String]) -> Result<(), LookError> {
        self.change_alarm(&RecordKey::alarm(job), Durability::Durable, |stands| {
            alarm::recover_job(stands?, &work.to_string(), self.clock.wall_ms(), lanes, draw_id)
        })
        .await
    }

    async fn change_alarm(
        &self,
        key: &RecordKey,
        durability: Durability,
        next: impl Fn(Option<&Alarm>) -> Option<Alarm>,
    ) -> Result<(), LookError> {
        let mut tries = 0;
        loop {
            let seen = self.alarm(key).await?;
            let Some(alarm) = next(seen.as_ref().map(|seen| &seen.value)) else { return Ok(()) };
            let write = Write::Alarm { alarm, expect: expect(seen.as_ref()) };
            match self.store.swap(&changes(&[write])?, durability).await {
                Ok(_) => return Ok(()),
                Err(StoreError::Refused(_) | StoreError::Unknown(_)) if tries < TRIES => tries += 1,
                Err(why) => return Err(why.into()),
            }
        }
    }
}
