//! What became of the notices of an alarm, lane by lane.

use std::collections::BTreeSet;

use super::{Alarm, Event, GIVE_UP_MS, Kind, LANE_WHY_LIMIT, LANES_LIMIT, LaneState, Notice, one_line};
use crate::token::Nonce;

/// The pause after the first failed try; doubled after each further one.
const PAUSE_MS: u64 = 60_000;
const PAUSE_MAX_MS: u64 = 3_600_000;
/// A lane with so many failed tries of one notice is shown as broken.
const BROKEN_TRIES: u32 = 3;

/// This notice was told on this lane. None if there is nothing to write.
pub fn delivered(alarm: &Alarm, id: &Nonce, lane: &str, at_ms: u64) -> Option<Alarm> {
    let mut next = alarm.clone();
    let waits = |notice: &Notice| notice.id == *id && notice.event == Event::Raised;
    // a check has one anomaly, whichever of its notices is heard; and the outbox may have had no room for a notice
    let of_check = alarm.job.is_none() && alarm.outbox.iter().any(waits);
    for open in next.open.iter_mut().filter(|open| of_check || open.notice == Some(*id)) {
        if !open.told.iter().any(|told| told == lane) {
            open.told.push(lane.to_owned());
            open.told.drain(..open.told.len().saturating_sub(LANES_LIMIT));
        }
    }
    if let Some(at) = next.outbox.iter().position(|notice| notice.id == *id) {
        for found in next.outbox[at].lanes.iter_mut().filter(|found| found.name == lane) {
            if !matches!(found.state, LaneState::Delivered { .. }) {
                found.state = LaneState::Delivered { at_ms };
            }
        }
        // a lane that delivers is not broken, whatever it refused before
        for notice in next.outbox.iter_mut().take(at) {
            notice.lanes.retain(|old| old.name != lane || !matches!(old.state, LaneState::GivenUp { .. }));
        }
    }
    clear_told(&mut next);
    (next != *alarm).then_some(next)
}

/// This notice could not be told on this lane. None if there is nothing to write.
pub fn undelivered(
    alarm: &Alarm,
    id: &Nonce,
    lane: &str,
    at_ms: u64,
    why: &str,
    permanent: bool,
) -> Option<Alarm> {
    let mut next = alarm.clone();
    let notice = next.outbox.iter_mut().find(|notice| notice.id == *id)?;
    let too_old = at_ms.saturating_sub(notice.at_ms) > GIVE_UP_MS;
    let found = notice.lanes.iter_mut().find(|found| found.name == lane)?;
    let LaneState::Pending { tries, .. } = found.state else { return None };
    let tries = tries.saturating_add(1);
    let why = one_line(why, LANE_WHY_LIMIT);
    // one that is old because nobody was awake to tell it has been tried as little as a new one
    found.state = if permanent || (too_old && tries >= BROKEN_TRIES) {
        LaneState::GivenUp { why, at_ms }
    } else {
        LaneState::Pending { tries, last_ms: at_ms, why }
    };
    Some(next)
}

/// What is to be told now, and on which lane, the oldest first.
///
/// A lane is told things in their order: while the oldest of a lane waits for its next try, nothing else of that
/// lane is due. So whoever fails to tell one leaves the rest of that lane for the next time.
pub fn due(alarm: &Alarm, now_ms: u64) -> Vec<(&Notice, &str)> {
    let mut all = Vec::new();
    let mut waiting: BTreeSet<&str> = BTreeSet::new();
    for notice in &alarm.outbox {
        for lane in &notice.lanes {
            let LaneState::Pending { tries, last_ms, .. } = lane.state else { continue };
            if waiting.contains(lane.name.as_str()) {
                continue;
            }
            if is_due(tries, last_ms, now_ms) {
                all.push((notice, lane.name.as_str()));
            } else {
                waiting.insert(&lane.name);
            }
        }
    }
    all
}

fn is_due(tries: u32, last_ms: u64, now_ms: u64) -> bool {
    let doubled = PAUSE_MS.saturating_mul(1u64.checked_shl(tries.saturating_sub(1)).unwrap_or(u64::MAX));
    // a last try in the future is a clock that was set back: it must not silence a lane
    tries == 0 || now_ms < last_ms || now_ms - last_ms >= doubled.min(PAUSE_MAX_MS)
}

/// A lane that does not deliver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Broken<'a> {
    /// Which lane.
    pub lane: &'a str,
    /// Notices that were given up on it.
    pub given_up: u32,
    /// Notices that are still tried.
    pub waiting: u32,
    /// What kind the last of them is of.
    pub kind: Kind,
    /// When the last try failed.
    pub at_ms: u64,
    /// And why.
    pub why: &'a str,
}

/// The lanes that have given up, or failed three times in a row with one notice.
pub fn broken(alarm: &Alarm) -> Vec<Broken<'_>> {
    let mut all: Vec<Broken<'_>> = Vec::new();
    for notice in &alarm.outbox {
        for lane in &notice.lanes {
            let (given_up, waiting, at_ms, why) = match &lane.state {
                LaneState::GivenUp { why, at_ms } => (1, 0, *at_ms, why),
                LaneState::Pending { tries, last_ms, why } if *tries >= BROKEN_TRIES => (0, 1, *last_ms, why),
                _ => continue,
            };
            match all.iter_mut().find(|known| known.lane == lane.name) {
                Some(known) => {
                    known.given_up += given_up;
                    known.waiting += waiting;
                    if at_ms >= known.at_ms {
                        (known.kind, known.at_ms, known.why) = (notice.kind, at_ms, why);
                    }
                }
                None => {
                    all.push(Broken { lane: &lane.name, given_up, waiting, kind: notice.kind, at_ms, why });
                }
            }
        }
    }
    all
}

/// This lane is no longer configured: nothing is owed to it. None if there is nothing to write.
///
/// Only whoever knows every configuration may say so: another machine's may still have the lane.
pub fn forget_lane(alarm: &Alarm, lane: &str) -> Option<Alarm> {
    let mut next = alarm.clone();
    next.outbox.iter_mut().for_each(|notice| notice.lanes.retain(|found| found.name != lane));
    next.open.iter_mut().for_each(|open| open.told.retain(|told| told != lane));
    clear_told(&mut next);
    (next != *alarm).then_some(next)
}

/// What was told on all its lanes leaves the outbox.
pub(super) fn clear_told(alarm: &mut Alarm) {
    alarm
        .outbox
        .retain(|notice| notice.lanes.iter().any(|lane| !matches!(lane.state, LaneState::Delivered { .. })));
}
