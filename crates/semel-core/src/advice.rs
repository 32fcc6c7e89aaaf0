//! How long a run may take, how long its lease lives, how late a slot may be done: from what was measured.
//!
//! | what | from what | rule |
//! |---|---|---|
//! | `timeout` | successful runs | half as much again as the slowest, or twice the 95th percentile, if that is longer |
//! | `ttl` | the longest that a lease went without a renewal | the usual one, doubled until it would have survived |
//! | `grace` | how late slots were begun, and how long they took | both 95th percentiles and a quarter on top |
//!
//! Lengths are rounded up to what people write. What is set and near enough is left alone: a job should not be
//! changed for a few seconds.
//!
//! What this does not know: how long a run that was stopped would have taken. And it measures attempts: one with
//! retries inside is as long as all its tries, so that a timeout, which is for one try, comes out too long rather
//! than too short. Times are by the wall clocks of those who ran.

use jiff::Timestamp;
use jiff::civil::Time;
use jiff::tz::TimeZone;

use crate::entry::{Attempt, Ending};
use crate::name::Slot;
use crate::policy::{Policy, TTL_MAX_MS};
use crate::schedule::Schedule;

/// Below so many successful runs nothing is advised.
pub const RUNS_LEAST: usize = 5;
/// So many of the newest attempts are enough.
pub const RUNS_KEPT: usize = 4096;

const SECOND: u64 = 1_000;
const MINUTE: u64 = 60 * SECOND;
const HOUR: u64 = 60 * MINUTE;
const DAY: u64 = 24 * HOUR;

/// A timeout shorter than this is met by any busy machine.
const TIMEOUT_LEAST_MS: u64 = MINUTE;
/// A slot is not called late for less than this.
const GRACE_MARGIN_LEAST_MS: u64 = MINUTE;
/// A lease that went without a renewal for longer was on a machine that slept: no ttl is made for that.
const SLEPT_MS: u64 = 15 * MINUTE;

/// How an attempt came out, as far as advice goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Came {
    /// It did what it was to do.
    Succeeded,
    /// It came to its own end, without success.
    Failed,
    /// It was stopped because it took too long.
    TimedOut,
    /// It vanished.
    Vanished,
    /// Its lease was lost under it.
    LeaseLost,
}

/// An attempt, as far as advice goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Measured {
    /// How it came out.
    pub came: Came,
    /// How long it took, where both ends are on record.
    pub took_ms: Option<u64>,
    /// How long after its slot fell due it began: of first attempts only.
    pub late_ms: Option<u64>,
    /// Renewals that failed.
    pub missed_renewals: u32,
    /// The longest that its lease went without one.
    pub unrenewed_ms: u64,
}

impl Measured {
    /// This attempt; `due_ms` is when its slot fell due, if that is known. None if it says nothing of lengths: it is
    /// under way, was interrupted, never started or only asked a probe.
    pub fn of(attempt: &Attempt, due_ms: Option<u64>) -> Option<Measured> {
        let came = match &attempt.ending {
            Ending::Succeeded => Came::Succeeded,
            Ending::Failed { .. } | Ending::Killed { .. } | Ending::Blocked { .. } => Came::Failed,
            Ending::TimedOut => Came::TimedOut,
            Ending::Vanished => Came::Vanished,
            Ending::LeaseLost => Came::LeaseLost,
            Ending::None
            | Ending::Interrupted { .. }
            | Ending::NotStarted { .. }
            | Ending::ProbedDone
            | Ending::ProbedUnknown { .. } => return None,
        };
        Some(Measured {
            came,
            took_ms: attempt.ended_ms.and_then(|ended_ms| ended_ms.checked_sub(attempt.started_ms)),
            late_ms: due_ms
                .filter(|_| attempt.n == 1)
                .and_then(|due_ms| attempt.started_ms.checked_sub(due_ms)),
            missed_renewals: attempt.missed_renewals,
            unrenewed_ms: attempt.unrenewed_ms,
        })
    }
}

/// When this slot fell due. None if it is none of this schedule's: a person may name slots as they like.
pub fn due_ms(schedule: &Schedule, zone: &TimeZone, slot: &Slot) -> Option<u64> {
    let text = slot.as_str();
    let within = match text.parse::<Timestamp>() {
        Ok(at) => at,
        Err(_) => {
            let date: jiff::civil::Date = text.parse().ok()?;
            let end = date.to_datetime(Time::constant(23, 59, 59, 0));
            zone.to_ambiguous_zoned(end).compatible().ok()?.timestamp()
        }
    };
    let tick = schedule.tick_at_or_before(zone, within).filter(|tick| tick.slot == *slot)?;
    u64::try_from(tick.at.as_millisecond()).ok()
}

/// The middle, what 95 of 100 stay within, and the most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spread {
    /// How many there are.
    pub count: usize,
    /// Half are not above.
    pub p50_ms: u64,
    /// 95 of 100 are not above.
    pub p95_ms: u64,
    /// None is above.
    pub max_ms: u64,
}

impl Spread {
    /// Of these; none of nothing.
    pub fn of(mut all: Vec<u64>) -> Option<Spread> {
        all.sort_unstable();
        // the nearest rank: always one that was measured
        let at = |percent: usize| all.get((all.len() * percent).div_ceil(100).saturating_sub(1)).copied();
        Some(Spread { count: all.len(), p50_ms: at(50)?, p95_ms: at(95)?, max_ms: *all.last()? })
    }
}

/// What was measured of a job.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    /// How long successful runs took.
    pub took: Option<Spread>,
    /// How late slots were begun.
    pub late: Option<Spread>,
    /// Runs that failed by themselves.
    pub failed: usize,
    /// Runs that were stopped because they took too long.
    pub timed_out: usize,
    /// The shortest of those.
    pub timed_out_after_ms: Option<u64>,
    /// Runs that vanished.
    pub vanished: usize,
    /// Runs that lost their lease.
    pub lease_lost: usize,
    /// Renewals that failed, in all runs.
    pub missed_renewals: u64,
    /// The longest that a lease went without a renewal, but for machines that slept.
    pub unrenewed_ms: u64,
    /// The longest of those that were lost by it.
    pub lost_after_ms: u64,
    /// Leases that went without one for so long that the machine must have slept.
    pub slept: usize,
}

impl Figures {
    /// Of these attempts.
    pub fn of(all: &[Measured]) -> Figures {
        let count = |came: Came| all.iter().filter(|one| one.came == came).count();
        let took = |came: Came| all.iter().filter(move |one| one.came == came).filter_map(|one| one.took_ms);
        let gaps = || all.iter().map(|one| one.unrenewed_ms);
        let awake = |one: &&Measured| one.unrenewed_ms <= SLEPT_MS;
        let lost = all.iter().filter(awake).filter(|one| one.came == Came::LeaseLost);
        Figures {
            took: Spread::of(took(Came::Succeeded).collect()),
            late: Spread::of(all.iter().filter_map(|one| one.late_ms).collect()),
            failed: count(Came::Failed),
            timed_out: count(Came::TimedOut),
            timed_out_after_ms: took(Came::TimedOut).min(),
            vanished: count(Came::Vanished),
            lease_lost: count(Came::LeaseLost),
            missed_renewals: all.iter().map(|one| u64::from(one.missed_renewals)).sum(),
            unrenewed_ms: all.iter().filter(awake).map(|one| one.unrenewed_ms).max().unwrap_or(0),
            lost_after_ms: lost.map(|one| one.unrenewed_ms).max().unwrap_or(0),
            slept: gaps().filter(|gap_ms| *gap_ms > SLEPT_MS).count(),
        }
    }

    /// Successful runs.
    pub fn runs(&self) -> usize {
        self.took.map_or(0, |took| took.count)
    }
}

/// What is set now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Set {
    /// With its ttl, timeout and the time between TERM and KILL.
    pub policy: Policy,
    /// How long after it fell due a slot may be done.
    pub grace_ms: Option<u64>,
}

/// One suggestion.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Item {
    /// The key in `semel.toml`, and the flag.
    pub key: &'static str,
    /// What is set now.
    pub set_ms: Option<u64>,
    /// What to set.
    pub ms: u64,
    /// In one sentence.
    pub why: String,
}

impl Item {
    /// Should anything be changed?
    pub fn changes(&self) -> bool {
        self.set_ms != Some(self.ms)
    }
}

/// What to set, or none if too little was measured.
pub fn advise(figures: &Figures, set: &Set) -> Option<Vec<Item>> {
    let took = figures.took.filter(|took| took.count >= RUNS_LEAST)?;
    let mut all = vec![timeout(figures, &took, set), ttl(figures, set)];
    all.extend(figures.late.filter(|late| late.count >= RUNS_LEAST).map(|late| grace(&took, &late, set)));
    Some(all)
}

fn timeout(figures: &Figures, took: &Spread, set: &Set) -> Item {
    let (by_max, by_p95) = (took.max_ms.saturating_add(took.max_ms / 2), took.p95_ms.saturating_mul(2));
    let set_ms = set.policy.timeout_ms;
    let item = |ms: u64, why: String| Item { key: "timeout", set_ms, ms, why };
    let slowest = format!("the slowest of {} took {}", successes(took.count), span(took.max_ms));
    // runs that came near the limit show that those it stopped would have needed more
    if let Some(after_ms) = figures.timed_out_after_ms.filter(|after_ms| took.max_ms >= after_ms / 5 * 4) {
        let ms = nice(after_ms.saturating_mul(2).max(by_max));
        let stopped = format!("{} stopped after {}", were(figures.timed_out), span(after_ms));
        return item(
            set_ms.unwrap_or(0).max(ms),
            format!("{slowest}, and {stopped}: how long they needed is not known, so twice that"),
        );
    }
    let ms = nice(by_max.max(by_p95).max(TIMEOUT_LEAST_MS));
    let hung = match figures.timed_out {
        0 => String::new(),
        count => format!("; {} stopped by it, far from what a run needs", were(count)),
    };
    match set_ms {
        Some(set_ms) if near(set_ms, ms) => item(set_ms, format!("{slowest}: it leaves room{hung}")),
        _ if by_max.max(by_p95) < TIMEOUT_LEAST_MS => {
            item(ms, format!("{slowest}: the least that is worth it{hung}"))
        }
        _ if by_p95 > by_max => item(
            ms,
            format!(
                "19 of 20 of {} took {} or less: twice that{hung}",
                successes(took.count),
                span(took.p95_ms)
            ),
        ),
        _ => item(ms, format!("{slowest}: half as much again{hung}")),
    }
}

fn ttl(figures: &Figures, set: &Set) -> Item {
    let (set_ms, usual_ms) = (set.policy.ttl_ms, Policy::default().ttl_ms);
    let item = |ms: u64, why: String| Item { key: "ttl", set_ms: Some(set_ms), ms, why };
    let slept = match figures.slept {
        0 => String::new(),
        count => format!("; {} on a machine that slept, which no ttl is made for", were(count)),
    };
    let lost = figures.lease_lost.saturating_sub(figures.slept);
    if figures.unrenewed_ms == 0 && lost == 0 {
        let quiet = "no renewal was missed and no lease lost";
        return match with_ttl(set, usual_ms) {
            Some(_) if set_ms > usual_ms => {
                item(usual_ms, format!("{quiet}: what is lost is taken over sooner{slept}"))
            }
            _ => item(set_ms, format!("{quiet}{slept}")),
        };
    }
    let gap_ms = figures.unrenewed_ms;
    let told = match (lost, gap_ms) {
        (0, _) => format!("a lease once went {} without a renewal", span(gap_ms)),
        (count, 0) => format!("{} lost", leases(count)),
        (count, _) => format!("{} lost, after up to {} without a renewal", leases(count), span(gap_ms)),
    };
    // how much longer it would have been is not known; before gaps were recorded, not even how long
    let lost_for_ms = match (lost, figures.lost_after_ms) {
        (0, _) => 0,
        (_, 0) => usual_ms,
        (_, after_ms) => after_ms.saturating_mul(2),
    };
    let survives = |ttl_ms: u64| {
        let stop_by_ms = with_ttl(set, ttl_ms).map_or(0, |policy| policy.stop_by_ms());
        stop_by_ms > (gap_ms.saturating_add(gap_ms / 4)).max(lost_for_ms)
    };
    let doubled = std::iter::successors(Some(set_ms), |ttl_ms| ttl_ms.checked_mul(2));
    match doubled.take_while(|ttl_ms| *ttl_ms <= TTL_MAX_MS).find(|ttl_ms| survives(*ttl_ms)) {
        Some(ms) if ms == set_ms => item(ms, format!("{told}, which it survives{slept}")),
        Some(ms) => item(ms, format!("{told}: doubled until it would survive that{slept}")),
        None => item(set_ms, format!("{told}, and no longer ttl is allowed{slept}")),
    }
}

/// The policies with another ttl, if they fit together.
fn with_ttl(set: &Set, ttl_ms: u64) -> Option<Policy> {
    let usual = set.policy.kill_after_ms == Policy::default_kill_after_ms(set.policy.ttl_ms);
    let kill_after_ms = if usual { Policy::default_kill_after_ms(ttl_ms) } else { set.policy.kill_after_ms };
    let policy = Policy { ttl_ms, kill_after_ms, ..set.policy.clone() };
    policy.check().is_ok().then_some(policy)
}

fn grace(took: &Spread, late: &Spread, set: &Set) -> Item {
    let both_ms = late.p95_ms.saturating_add(took.p95_ms);
    let ms = nice(both_ms.saturating_add((both_ms / 4).max(GRACE_MARGIN_LEAST_MS)));
    let told = format!(
        "19 of 20 slots were begun within {} and took {} or less",
        span(late.p95_ms),
        span(took.p95_ms)
    );
    match set.grace_ms {
        Some(set_ms) if near(set_ms, ms) => {
            Item { key: "grace", set_ms: Some(set_ms), ms: set_ms, why: format!("{told}: it leaves room") }
        }
        set_ms => Item { key: "grace", set_ms, ms, why: format!("{told}: both, and a quarter on top") },
    }
}

/// Is what is set near enough to what would be?
fn near(set_ms: u64, ms: u64) -> bool {
    (ms / 5 * 4..=ms.saturating_mul(3)).contains(&set_ms)
}

/// Rounded up to a length that people write.
pub fn nice(ms: u64) -> u64 {
    const STEPS: [u64; 29] = [
        SECOND,
        2 * SECOND,
        5 * SECOND,
        10 * SECOND,
        15 * SECOND,
        20 * SECOND,
        30 * SECOND,
        45 * SECOND,
        MINUTE,
        90 * SECOND,
        2 * MINUTE,
        3 * MINUTE,
        5 * MINUTE,
        10 * MINUTE,
        15 * MINUTE,
        20 * MINUTE,
        30 * MINUTE,
        45 * MINUTE,
        HOUR,
        90 * MINUTE,
        2 * HOUR,
        3 * HOUR,
        4 * HOUR,
        6 * HOUR,
        8 * HOUR,
        12 * HOUR,
        DAY,
        2 * DAY,
        3 * DAY,
    ];
    let step = STEPS.into_iter().find(|step| *step >= ms);
    step.unwrap_or_else(|| ms.div_ceil(DAY).saturating_mul(DAY))
}

fn were(count: usize) -> String {
    if count == 1 { "1 was".to_owned() } else { format!("{count} were") }
}

fn leases(count: usize) -> String {
    if count == 1 { "1 lease was".to_owned() } else { format!("{count} leases were") }
}

fn successes(count: usize) -> String {
    if count == 1 { "1 successful run".to_owned() } else { format!("{count} successful runs") }
}

/// A length of time, for people, in one or two units.
fn span(ms: u64) -> String {
    let two = |whole: u64, unit: &str, rest: u64, small: &str| match rest {
        0 => format!("{whole}{unit}"),
        _ => format!("{whole}{unit}{rest}{small}"),
    };
    match ms {
        0..SECOND => format!("{ms}ms"),
        SECOND..MINUTE => format!("{}s", ms.div_ceil(SECOND)),
        MINUTE..HOUR => two(ms / MINUTE, "m", ms % MINUTE / SECOND, "s"),
        HOUR..DAY => two(ms / HOUR, "h", ms % HOUR / MINUTE, "m"),
        _ => two(ms / DAY, "d", ms % DAY / HOUR, "h"),
    }
}

#[cfg(test)]
#[path = "advice_tests.rs"]
mod tests;
