//! The rule of notices: first of a kind, then silence, then one recovery.
//!
//! ```text
//! anomaly ──raise──▶ open, one notice in the outbox ──raise again──▶ open, counted, silence
//! open ──recover, was told──▶ closed, one notice "recovered"
//! open ──recover, not told yet──▶ closed; the notice that waits tells both
//! open ──a person's verdict──▶ closed, silence
//! ```
//!
//! Each job has one alarm, a record of the ledger. What waits to be told lies in its outbox, so that a crash
//! between an anomaly and its delivery loses nothing: whoever runs next reads it there.
//!
//! Failed, lost, missed and overdue are *of the job*: one is open at a time, and any success closes it. Quarantined
//! and in doubt are *of a work*: each work has its own, and only that work's success or a verdict closes it.
//!
//! What this does not promise: that a notice is told once. A delivery whose answer was lost is tried again under
//! the same id, so receivers tell them apart by it. A notice that learns of a recovery while it waits gets a new
//! id: whoever heard the old one in that very moment still hears of the recovery. Past [`OUTBOX_LIMIT`] the oldest
//! notices are dropped, and past [`OPEN_LIMIT`] works of one job that need a person no further one is told.

mod outbox;
pub mod spot;
mod tell;

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

pub use self::outbox::{Broken, broken, delivered, due, forget_lane, undelivered};
pub use self::tell::{body, look, words};
use crate::canonical::hex;
use crate::name::{Name, is_plain};
use crate::token::Nonce;
use crate::work::Work;

/// The most notices that an outbox keeps.
pub const OUTBOX_LIMIT: usize = 32;
/// The most anomalies of one job that are open at a time.
pub const OPEN_LIMIT: usize = 64;
/// The most lanes that a notice is told on; more must be refused where they are configured.
pub const LANES_LIMIT: usize = 8;
/// The most findings of a check that are told apart.
pub const FINDINGS_LIMIT: usize = 1024;
/// How long a notice is tried, three times at least, before it is given up.
pub const GIVE_UP_MS: u64 = 7 * 24 * 3_600_000;

const WHY_LIMIT: usize = 500;
const LANE_WHY_LIMIT: usize = 200;
const WORK_LIMIT: usize = 256;

/// What kind of anomaly it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// An attempt failed.
    Failed,
    /// A work failed too often.
    Quarantined,
    /// Nobody can know whether a work happened.
    InDoubt,
    /// An attempt vanished or lost its lease.
    Lost,
    /// A slot was never run.
    Missed,
    /// A run should have ended, or begun, by now.
    Overdue,
}

impl Kind {
    /// All of them.
    pub const ALL: [Kind; 6] =
        [Kind::Failed, Kind::Quarantined, Kind::InDoubt, Kind::Lost, Kind::Missed, Kind::Overdue];

    /// The one word for it, as in JSON.
    pub fn word(self) -> &'static str {
        match self {
            Kind::Failed => "failed",
            Kind::Quarantined => "quarantined",
            Kind::InDoubt => "in_doubt",
            Kind::Lost => "lost",
            Kind::Missed => "missed",
            Kind::Overdue => "overdue",
        }
    }

    /// Does each work have its own? The others are of the job.
    pub fn is_of_work(self) -> bool {
        matches!(self, Kind::Quarantined | Kind::InDoubt)
    }
}

/// Something that should not be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Anomaly {
    /// What kind.
    pub kind: Kind,
    /// Of which work, in the readable form.
    pub work: String,
    /// When, by the wall clock of whoever saw it.
    pub at_ms: u64,
    /// Why, for a person.
    pub why: String,
    /// How many slots, where several were missed at once; else 1.
    pub slots: u32,
}

/// The alarm of a job, or of `semel check`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Alarm {
    /// Whose; none for `semel check`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<Name>,
    /// What is wrong and was noticed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub open: Vec<Open>,
    /// What is to be told, the oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub outbox: Vec<Notice>,
}

/// An anomaly that was noticed and has not passed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Open {
    /// What kind.
    pub kind: Kind,
    /// Of which work, where each work has its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub work: Option<String>,
    /// Since when.
    pub since_ms: u64,
    /// How often it was met since.
    pub count: u32,
    /// The notice that tells it; none if there was nobody to tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub notice: Option<Nonce>,
    /// The lanes on which it was told: those hear of the recovery.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub told: Vec<String>,
    /// The findings of a check that were told, each by its digest.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub findings: BTreeSet<String>,
}

/// What a notice says has happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Event {
    /// Something is wrong.
    Raised,
    /// It no longer is.
    Recovered,
}

impl Event {
    /// The one word for it, as in JSON.
    pub fn word(self) -> &'static str {
        match self {
            Event::Raised => "raised",
            Event::Recovered => "recovered",
        }
    }
}

/// Something to be told, and on which lanes it was.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Notice {
    /// Its own: a receiver that meets it again knows it.
    pub id: Nonce,
    /// What happened.
    pub event: Event,
    /// To what kind of anomaly; of several that recovered, the one that had been open longest.
    pub kind: Kind,
    /// The others that recovered with it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub also: Vec<Kind>,
    /// Which work it happened to, or which one's success is the recovery; none for a check.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub work: Option<String>,
    /// When.
    pub at_ms: u64,
    /// Why, in one line.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub why: String,
    /// How often, all in all.
    pub count: u32,
    /// For a recovery: since when it had been wrong.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since_ms: Option<u64>,
    /// It recovered before it was told: this notice tells both.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recovered_ms: Option<u64>,
    /// Where it is to be told.
    pub lanes: Vec<Lane>,
}

/// How far a notice has come on one lane.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lane {
    /// Which lane.
    pub name: String,
    /// How far.
    #[serde(flatten)]
    pub state: LaneState,
}

/// How far.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum LaneState {
    /// It is still to be told.
    Pending {
        /// Failed tries so far.
        #[serde(default)]
        tries: u32,
        /// When the last one failed.
        #[serde(default)]
        last_ms: u64,
        /// And why.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        why: String,
    },
    /// It was told.
    Delivered {
        /// When.
        at_ms: u64,
    },
    /// It is no longer tried.
    GivenUp {
        /// Why the last try failed.
        why: String,
        /// When.
        at_ms: u64,
    },
}

impl LaneState {
    fn is_pending(&self) -> bool {
        matches!(self, LaneState::Pending { .. })
    }
}

impl Alarm {
    /// Nothing is wrong and nothing is to be told: the record may go.
    pub fn is_empty(&self) -> bool {
        self.open.is_empty() && self.outbox.is_empty()
    }

    fn send(&mut self, notice: Notice) {
        self.outbox.push(notice);
        while self.outbox.len() > OUTBOX_LIMIT {
            let settled = self.outbox.iter().position(|notice| !notice.is_pending());
            self.outbox.remove(settled.unwrap_or(0));
        }
    }
}

impl Notice {
    /// Is there a lane on which it is still to be told?
    pub fn is_pending(&self) -> bool {
        self.lanes.iter().any(|lane| lane.state.is_pending())
    }
}

/// These anomalies were met by a job. None if there is nothing to write.
pub fn raise(
    alarm: Option<&Alarm>,
    job: &Name,
    anomalies: &[Anomaly],
    lanes: &[String],
    mut ids: impl FnMut() -> Nonce,
) -> Option<Alarm> {
    let fresh = || Alarm { job: Some(job.clone()), ..Alarm::default() };
    let mut next = alarm.cloned().unwrap_or_else(fresh);
    let mut changed = false;
    for anomaly in anomalies {
        changed |= raise_one(&mut next, anomaly, lanes, &mut ids);
    }
    changed.then_some(next)
}

fn raise_one(
    alarm: &mut Alarm,
    anomaly: &Anomaly,
    lanes: &[String],
    ids: &mut impl FnMut() -> Nonce,
) -> bool {
    let name = known_as(&anomaly.work);
    let of_work = anomaly.kind.is_of_work();
    let same =
        |open: &&mut Open| open.kind == anomaly.kind && (!of_work || open.work.as_ref() == Some(&name));
    let times = anomaly.slots.max(1);
    if let Some(open) = alarm.open.iter_mut().find(same) {
        // a work that needs a person is met by every run until one comes: not worth a write each
        if of_work {
            return false;
        }
        open.count = open.count.saturating_add(times);
        return true;
    }
    // those of the job are few, and always fit
    if of_work && alarm.open.iter().filter(|open| open.kind.is_of_work()).count() >= OPEN_LIMIT {
        return false;
    }
    let lanes = fresh_lanes(lanes);
    let notice = (!lanes.is_empty()).then(|| Notice {
        id: ids(),
        event: Event::Raised,
        kind: anomaly.kind,
        also: Vec::new(),
        work: Some(name.clone()),
        at_ms: anomaly.at_ms,
        why: one_line(&anomaly.why, WHY_LIMIT),
        count: times,
        since_ms: None,
        recovered_ms: None,
        lanes,
    });
    alarm.open.push(Open {
        kind: anomaly.kind,
        work: of_work.then_some(name),
        since_ms: anomaly.at_ms,
        count: times,
        notice: notice.as_ref().map(|notice| notice.id),
        told: Vec::new(),
        findings: BTreeSet::new(),
    });
    if let Some(notice) = notice {
        alarm.send(notice);
    }
    true
}

/// This work of the job succeeded. None if there is nothing to write.
pub fn recover(
    alarm: &Alarm,
    work: &str,
    at_ms: u64,
    lanes: &[String],
    ids: impl FnMut() -> Nonce,
) -> Option<Alarm> {
    let name = known_as(work);
    let closes = |open: &Open| !open.kind.is_of_work() || open.work.as_ref() == Some(&name);
    close(alarm, closes, Some(&name), at_ms, lanes, ids)
}

/// The same, where this work may still need a person: only what is of the job is closed.
pub fn recover_job(
    alarm: &Alarm,
    work: &str,
    at_ms: u64,
    lanes: &[String],
    ids: impl FnMut() -> Nonce,
) -> Option<Alarm> {
    close(alarm, |open| !open.kind.is_of_work(), Some(&known_as(work)), at_ms, lanes, ids)
}

/// Was it noticed that this work needs a person?
pub fn needs_person(alarm: &Alarm, work: &str) -> bool {
    let name = known_as(work);
    alarm.open.iter().any(|open| open.kind.is_of_work() && open.work.as_ref() == Some(&name))
}

/// Close these; whoever was told hears of it, and what waits tells both.
fn close(
    alarm: &Alarm,
    closes: impl Fn(&Open) -> bool,
    work: Option<&String>,
    at_ms: u64,
    lanes: &[String],
    mut ids: impl FnMut() -> Nonce,
) -> Option<Alarm> {
    let mut next = alarm.clone();
    let (closed, open): (Vec<Open>, Vec<Open>) = next.open.into_iter().partition(|open| closes(open));
    if closed.is_empty() {
        return None;
    }
    next.open = open;
    let mut told: Vec<&Open> = Vec::new();
    let mut hear: BTreeSet<&String> = BTreeSet::new();
    for open in &closed {
        let waiting = tell_both(&mut next.outbox, open.notice, at_ms, &mut ids);
        let heard: Vec<&String> = open.told.iter().filter(|lane| !waiting.contains(*lane)).collect();
        if heard.iter().any(|lane| lanes.contains(*lane)) {
            told.push(open);
            hear.extend(heard);
        }
    }
    let lanes: Vec<String> = lanes.iter().filter(|lane| hear.contains(lane)).cloned().collect();
    told.sort_by_key(|open| (open.since_ms, open.kind));
    if let Some(first) = told.first() {
        let also = told.iter().map(|open| open.kind).filter(|kind| *kind != first.kind).collect();
        next.send(Notice {
            id: ids(),
            event: Event::Recovered,
            kind: first.kind,
            also,
            work: work.cloned(),
            at_ms,
            why: String::new(),
            count: told.iter().fold(0, |sum: u32, open| sum.saturating_add(open.count)),
            since_ms: Some(first.since_ms),
            recovered_ms: None,
            lanes: fresh_lanes(&lanes),
        });
    }
    Some(next)
}

/// A notice that still waits learns of the recovery, under a new id; its lanes that wait are handed back.
fn tell_both(
    outbox: &mut [Notice],
    id: Option<Nonce>,
    at_ms: u64,
    ids: &mut impl FnMut() -> Nonce,
) -> Vec<String> {
    let waits = |notice: &&mut Notice| Some(notice.id) == id && notice.is_pending();
    let Some(notice) = outbox.iter_mut().find(waits) else { return Vec::new() };
    notice.id = ids();
    notice.recovered_ms = Some(at_ms);
    // those that heard it without the recovery are told apart from it
    notice.lanes.retain(|lane| !matches!(lane.state, LaneState::Delivered { .. }));
    notice.lanes.iter().filter(|lane| lane.state.is_pending()).map(|lane| lane.name.clone()).collect()
}

/// A person gave a verdict on this work: nobody needs to be told. None if there is nothing to write.
pub fn closed_by_person(alarm: &Alarm, work: &str) -> Option<Alarm> {
    let name = known_as(work);
    let mut next = alarm.clone();
    let judged = |open: &Open| open.kind.is_of_work() && open.work.as_ref() == Some(&name);
    let (closed, open): (Vec<Open>, Vec<Open>) = next.open.into_iter().partition(judged);
    if closed.is_empty() {
        return None;
    }
    next.open = open;
    for id in closed.iter().filter_map(|open| open.notice) {
        for notice in next.outbox.iter_mut().filter(|notice| notice.id == id) {
            notice.lanes.retain(|lane| !lane.state.is_pending());
        }
    }
    outbox::clear_told(&mut next);
    Some(next)
}

/// What a check found, each by what it is known by; `why` tells all of it. None if there is nothing to write.
///
/// A finding that was not there the last time is news, and one notice then tells all that stand. One that went
/// and comes back is news again.
pub fn raise_check(
    alarm: Option<&Alarm>,
    findings: &[String],
    why: &str,
    at_ms: u64,
    lanes: &[String],
    mut ids: impl FnMut() -> Nonce,
) -> Option<Alarm> {
    let mut next = alarm.cloned().unwrap_or_default();
    if findings.is_empty() {
        return close(&next, |_| true, None, at_ms, lanes, ids);
    }
    let found = digests(findings);
    let count = u32::try_from(findings.len()).unwrap_or(u32::MAX);
    let before = next.open.iter().position(|open| open.kind == Kind::Overdue);
    let before = before.map(|at| next.open.remove(at));
    if before.as_ref().is_some_and(|open| open.findings == found) {
        return None;
    }
    let told = before.as_ref().map(|open| open.told.clone()).unwrap_or_default();
    let since_ms = before.as_ref().map_or(at_ms, |open| open.since_ms);
    let mut notice = before.as_ref().and_then(|open| open.notice);
    let lanes = fresh_lanes(lanes);
    let news = before.is_none_or(|open| !found.is_subset(&open.findings));
    if news && !lanes.is_empty() {
        let id = ids();
        notice = Some(id);
        next.send(Notice {
            id,
            event: Event::Raised,
            kind: Kind::Overdue,
            also: Vec::new(),
            work: None,
            at_ms,
            why: one_line(why, WHY_LIMIT),
            count,
            since_ms: None,
            recovered_ms: None,
            lanes,
        });
    }
    next.open.push(Open { kind: Kind::Overdue, work: None, since_ms, count, notice, told, findings: found });
    Some(next)
}

fn digests(findings: &[String]) -> BTreeSet<String> {
    let mut all: BTreeSet<String> =
        findings.iter().map(|finding| hex(&Sha256::digest(finding.as_bytes())[..8])).collect();
    while all.len() > FINDINGS_LIMIT {
        all.pop_last();
    }
    all
}

fn fresh_lanes(lanes: &[String]) -> Vec<Lane> {
    let mut fresh: Vec<Lane> = Vec::new();
    for name in lanes {
        if fresh.len() < LANES_LIMIT && fresh.iter().all(|lane| lane.name != *name) {
            let state = LaneState::Pending { tries: 0, last_ms: 0, why: String::new() };
            fresh.push(Lane { name: name.clone(), state });
        }
    }
    fresh
}

/// A work as an alarm knows it: its readable form, or its key where that is long.
fn known_as(work: &str) -> String {
    if work.len() <= WORK_LIMIT {
        return work.to_owned();
    }
    let of_text = || hex(&Sha256::digest(work.as_bytes()));
    Work::parse_readable(work).map_or_else(|_| of_text(), |work| work.key().to_string())
}

/// In one line, of at most so many bytes, that can be shown as it is.
fn one_line(text: &str, limit: usize) -> String {
    let mut line = String::new();
    for word in text.split(|c: char| c == ' ' || !is_plain(c)).filter(|word| !word.is_empty()) {
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(word);
        if line.len() > limit {
            break;
        }
    }
    if line.len() > limit {
        let end = (0..=limit.saturating_sub('…'.len_utf8())).rev().find(|at| line.is_char_boundary(*at));
        line.truncate(end.unwrap_or(0));
        line.push('…');
    }
    line
}
