//! The control: the same firings without Semel, as many scripts do it. It runs when fired; the slot is what the clock
//! says at that moment; a marker is written when it has ended.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use crate::jobs::{HOUR_MS, Job, MINUTE_MS, moment};
use crate::rng::Rng;
use crate::trace::Trace;

/// What came of it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Naive {
    pub(crate) slots: usize,
    /// Effects beyond the first of a slot.
    pub(crate) duplicates: usize,
    /// Slots without an effect, of which nothing is on record.
    pub(crate) gaps: usize,
}

/// What a script takes for its slot at this time.
fn slot_of(job: &Job, wall_ms: u64) -> String {
    match job.period_ms / HOUR_MS {
        0 => (wall_ms / (20 * MINUTE_MS)).to_string(),
        1 => (wall_ms / HOUR_MS).to_string(),
        _ => job.zone.to_datetime(moment(wall_ms)).date().to_string(),
    }
}

pub(crate) fn run(trace: &Trace, jobs: &[Job], until_ms: u64) -> Naive {
    let mut naive = Naive::default();
    for job in jobs {
        let mut marked: HashMap<String, u64> = HashMap::new();
        let mut effects: BTreeMap<String, usize> = BTreeMap::new();
        for firing in trace.firings.iter().filter(|firing| firing.job == job.index) {
            let offset = trace.fortunes[firing.machine].offset_ms(firing.at_ms);
            let slot = slot_of(job, firing.at_ms.saturating_add_signed(offset));
            if marked.get(&slot).is_some_and(|at_ms| *at_ms <= firing.at_ms) {
                continue;
            }
            let doing = job.doing(&mut Rng::new(firing.seed), firing.is_quiet);
            let killed_ms = match (firing.killed_after, firing.luck.killed_at) {
                (Some(after), _) => after.as_millis() as u64,
                (None, Some((_, false))) => 0,
                (None, Some((_, true))) => doing.takes_ms - 1,
                (None, None) => u64::MAX,
            };
            if doing.effect_ms.is_some_and(|at_ms| at_ms <= killed_ms) {
                *effects.entry(slot.clone()).or_default() += 1;
            }
            if doing.effect_ms.is_some() && doing.takes_ms <= killed_ms {
                marked.entry(slot).or_insert(firing.at_ms + doing.takes_ms);
            }
        }
        let first = trace.firings.iter().find(|firing| firing.job == job.index).unwrap().at_ms;
        let due: BTreeSet<String> =
            job.ticks(first, until_ms).iter().map(|tick| slot_of(job, crate::jobs::ms(tick.at))).collect();
        naive.slots += due.len();
        naive.duplicates += effects.values().map(|count| count - 1).sum::<usize>();
        naive.gaps += due.iter().filter(|slot| !effects.contains_key(*slot)).count();
    }
    naive
}
