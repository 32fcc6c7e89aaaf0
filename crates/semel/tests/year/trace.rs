//! What the schedulers do, drawn before anything runs: firings that are late, doubled, forgotten and spurious, on
//! machines whose clocks are wrong, that sleep and lose their power.

use std::ops::Range;
use std::time::Duration;

use crate::jobs::{DAY_MS, HOUR_MS, Job, MINUTE_MS, SECOND_MS, ms};
use crate::machine::Fortune;
use crate::rng::Rng;
use crate::store::Luck;

/// The most that a clock is ahead.
pub(crate) const AHEAD_MS: u64 = 90 * SECOND_MS;

/// One firing of a job.
#[derive(Clone, Debug)]
pub(crate) struct Firing {
    pub(crate) at_ms: u64,
    pub(crate) job: usize,
    pub(crate) machine: usize,
    pub(crate) seed: u64,
    pub(crate) luck: Luck,
    /// Killed after so long.
    pub(crate) killed_after: Option<Duration>,
    /// Nothing befalls it, and its command is quick.
    pub(crate) is_quiet: bool,
}

impl Firing {
    pub(crate) fn quiet(at_ms: u64, job: usize, seed: u64) -> Firing {
        let luck = Luck::default();
        Firing { at_ms, job, machine: 0, seed, luck, killed_after: None, is_quiet: true }
    }
}

/// A year.
pub(crate) struct Trace {
    pub(crate) fortunes: [Fortune; 2],
    pub(crate) outages: Vec<Range<u64>>,
    /// By time.
    pub(crate) firings: Vec<Firing>,
}

/// What is drawn, from when to when.
pub(crate) struct Span {
    pub(crate) from_ms: u64,
    pub(crate) to_ms: u64,
    /// Machines sleep and lose their power in the middle of a run: the store must count their time.
    pub(crate) is_hard: bool,
}

impl Span {
    fn somewhen(&self, rng: &mut Rng) -> u64 {
        rng.within(self.from_ms + HOUR_MS..self.to_ms)
    }

    fn somewhile(&self, rng: &mut Rng, length_ms: Range<u64>) -> Range<u64> {
        let start = self.somewhen(rng);
        // all is well at the end
        start..(start + rng.within(length_ms)).min(self.to_ms)
    }

    /// So many of them in a year, and at least one.
    fn yearly(&self, count: u64) -> u64 {
        (count * (self.to_ms - self.from_ms) / (365 * DAY_MS)).max(1)
    }

    fn fortune(&self, rng: &mut Rng, together: &[Range<u64>]) -> Fortune {
        let mut offsets = vec![(0, rng.within(0..AHEAD_MS).cast_signed() - 45_000)];
        for _ in 0..self.yearly(20) {
            // now and then it is set back by up to two hours, until somebody sees it
            let offset = match rng.permille(200) {
                true => -rng.within(MINUTE_MS..2 * HOUR_MS).cast_signed(),
                false => rng.within(0..AHEAD_MS + 45_000).cast_signed() - 45_000,
            };
            offsets.push((self.somewhen(rng), offset));
        }
        offsets.sort_by_key(|(from, _)| *from);
        offsets.push((self.to_ms, 0));
        let alone = (0..self.yearly(8)).map(|_| self.somewhile(rng, HOUR_MS..6 * DAY_MS));
        let mut sleeps: Vec<Range<u64>> = alone.chain(together.iter().cloned()).collect();
        let mut cuts: Vec<u64> = (0..self.yearly(25)).map(|_| self.somewhen(rng)).collect();
        cuts.sort_unstable();
        sleeps.sort_by_key(|sleep| sleep.start);
        let cuts = if self.is_hard { cuts } else { Vec::new() };
        Fortune { offsets, sleeps, cuts }
    }

    fn luck(&self, rng: &mut Rng) -> (Luck, Option<Duration>) {
        let mut luck = Luck { fails_permille: 2, ..Luck::default() };
        let mut killed_after = None;
        match rng.within(0..1000) {
            0..30 => luck.killed_at = Some((rng.within(1..10) as u32, rng.permille(500))),
            30..50 => {
                let most = rng.pick(&[SECOND_MS, MINUTE_MS, 20 * MINUTE_MS]);
                killed_after = Some(Duration::from_millis(rng.within(1..most)));
            }
            50..65 if self.is_hard => {
                let most = rng.pick(&[11 * MINUTE_MS, 3 * HOUR_MS, 2 * DAY_MS]);
                luck.stopped_at = Some((rng.within(1..8) as u32, rng.within(MINUTE_MS..most)));
            }
            65..90 => luck.fails_permille = 150,
            _ => {}
        }
        (luck, killed_after)
    }
}

/// Draw it.
pub(crate) fn draw(seed: u64, span: &Span, jobs: &[Job]) -> Trace {
    let mut rng = Rng::new(seed);
    let together: Vec<Range<u64>> =
        (0..span.yearly(6)).map(|_| span.somewhile(&mut rng, 6 * HOUR_MS..5 * DAY_MS)).collect();
    let fortunes = [span.fortune(&mut rng, &together), span.fortune(&mut rng, &together)];
    let outages = (0..span.yearly(6)).map(|_| span.somewhile(&mut rng, 10 * MINUTE_MS..8 * HOUR_MS));
    let outages = outages.collect();
    let mut firings = Vec::new();
    for job in jobs {
        // all at once: of those that share a resource, one finds it busy
        firings.push(Firing::quiet(span.from_ms, job.index, rng.next()));
        for (machine, fortune) in fortunes.iter().enumerate() {
            let mut times = times(&mut rng, span, job, fortune, machine);
            times.retain(|at_ms| *at_ms > span.from_ms + 10 * MINUTE_MS && *at_ms < span.to_ms);
            for at_ms in times {
                let (luck, killed_after) = span.luck(&mut rng);
                let (seed, job) = (rng.next(), job.index);
                firings.push(Firing { at_ms, job, machine, seed, luck, killed_after, is_quiet: false });
            }
        }
    }
    firings.sort_by_key(|firing| (firing.at_ms, firing.job, firing.machine));
    Trace { fortunes, outages, firings }
}

/// When a machine fires a job.
fn times(rng: &mut Rng, span: &Span, job: &Job, fortune: &Fortune, machine: usize) -> Vec<u64> {
    let mut times = Vec::new();
    let share = if machine == 0 { 930 } else { 500 };
    for tick in job.ticks(span.from_ms, span.to_ms) {
        if !rng.permille(share) {
            continue;
        }
        let at_ms = by_its_clock(fortune, ms(tick.at)) + late_ms(rng, job);
        let at_ms = match fortune.asleep_until(at_ms) {
            // some schedulers make up for it
            Some(wakes_ms) if rng.permille(100) => wakes_ms + rng.within(0..MINUTE_MS),
            Some(_) => continue,
            None => at_ms,
        };
        times.push(at_ms);
        if rng.permille(50) {
            times.push(at_ms + rng.pick(&[0, 1, rng.clone().within(0..5 * SECOND_MS)]));
        }
    }
    for _ in 0..span.yearly(40) {
        let at_ms = span.somewhen(rng);
        if fortune.asleep_until(at_ms).is_none() {
            times.push(at_ms);
        }
    }
    times.extend(fortune.sleeps.iter().filter(|_| rng.permille(700)).map(|sleep| sleep.end + SECOND_MS));
    times.extend(fired_again(job, fortune));
    times
}

/// When this machine's clock shows that time.
fn by_its_clock(fortune: &Fortune, wall_ms: u64) -> u64 {
    wall_ms.saturating_add_signed(-fortune.offset_ms(wall_ms))
}

fn late_ms(rng: &mut Rng, job: &Job) -> u64 {
    match rng.within(0..100) {
        0..75 => rng.within(0..20 * SECOND_MS),
        75..95 => rng.within(0..10 * MINUTE_MS),
        _ => rng.within(0..(job.period_ms + job.period_ms / 2).min(8 * HOUR_MS)),
    }
}

/// A clock that was set back shows some times again, and its scheduler fires again.
fn fired_again(job: &Job, fortune: &Fortune) -> Vec<u64> {
    let mut times = Vec::new();
    for pair in fortune.offsets.windows(2) {
        let ((_, before), (at_ms, after)) = (pair[0], pair[1]);
        if after < before {
            let (shows, showed) = (at_ms.saturating_add_signed(after), at_ms.saturating_add_signed(before));
            times.extend(job.ticks(shows, showed).into_iter().map(|tick| at_ms + ms(tick.at) - shows));
        }
    }
    times
}
