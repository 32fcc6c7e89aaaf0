//! Three weeks of two unreliable schedulers, with real processes: they fire at once, late, not at all, and are killed -9
//! in the middle, over a change of the clocks. The whole year, simulated, is `crates/semel/tests/year`.
//!
//! `SEMEL_YEAR_SEED=N` replays another one.

use std::collections::{BTreeMap, BTreeSet};

use jiff::civil::date;
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp, ToSpan};

use crate::support::{Home, Running, SOON, until};

/// Its effect is a line; `ILL` says what befalls it.
const SCRIPT: &str = r#"
[ "$ILL" = early ] && { echo "$SEMEL_JOB@$SEMEL_SLOT" > "$SICK"; exec sleep 600; }
[ "$ILL" = fails ] && exit 3
echo "$SEMEL_JOB@$SEMEL_SLOT" >> effects
[ "$ILL" = late ] && { echo "$SEMEL_JOB@$SEMEL_SLOT" > "$SICK"; exec sleep 600; }
exit 0
"#;

/// What many scripts do instead.
const NAIVE: &str = r#"
[ -e "$SLOT" ] && exit
[ "$ILL" = early ] || [ "$ILL" = fails ] && exit
echo "$SLOT" >> effects
[ "$ILL" = late ] && exit
touch "$SLOT"
"#;

struct Rng(u64);

impl Rng {
    fn next(&mut self) -> u64 {
        // xorshift
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, most: u64) -> u64 {
        (self.next() >> 11) % most
    }
}

struct Job {
    name: &'static str,
    every: &'static str,
    tz: &'static str,
    more: &'static [&'static str],
    /// Its slots, by plain dates and hours, each with the moment it falls due.
    slots: Vec<(String, Timestamp)>,
}

fn midnight(tz: &str, day: jiff::civil::Date) -> Timestamp {
    day.to_zoned(TimeZone::get(tz).unwrap()).unwrap().timestamp()
}

fn days(tz: &str) -> Vec<(String, Timestamp)> {
    let all = (0..21).map(|n| date(2026, 3, 16).checked_add(n.days()).unwrap());
    all.map(|day| (day.to_string(), midnight(tz, day))).collect()
}

/// Half past two in Berlin; on the day that has none, when the clock jumps to three.
fn half_past_two() -> Vec<(String, Timestamp)> {
    let at = |n: i32| {
        let day = date(2026, 3, 16).checked_add(n.days()).unwrap();
        let in_utc = match day.cmp(&date(2026, 3, 29)) {
            std::cmp::Ordering::Less => day.at(1, 30, 0, 0),
            std::cmp::Ordering::Equal => day.at(1, 0, 0, 0),
            std::cmp::Ordering::Greater => day.at(0, 30, 0, 0),
        };
        in_utc.to_zoned(TimeZone::UTC).unwrap().timestamp()
    };
    (0..21).map(at).map(|at| (at.to_string(), at)).collect()
}

fn hours() -> Vec<(String, Timestamp)> {
    let first: Timestamp = "2026-03-28T12:00:00Z".parse().unwrap();
    let all = (0..72).map(|n| first.checked_add(SignedDuration::from_hours(n)).unwrap());
    all.map(|at| (at.to_string(), at)).collect()
}

fn jobs() -> Vec<Job> {
    let berlin = "Europe/Berlin";
    let howe = "Australia/Lord_Howe";
    vec![
        Job { name: "day", every: "day", tz: berlin, more: &["--catch-up", "all=3d"], slots: days(berlin) },
        Job { name: "line", every: "30 2 * * *", tz: berlin, more: &[], slots: half_past_two() },
        Job {
            name: "howe",
            every: "day",
            tz: howe,
            more: &["--on-lost", "hold", "--grace", "6h", "--catch-up", "none"],
            slots: days(howe),
        },
        Job { name: "hour", every: "hour", tz: "UTC", more: &[], slots: hours() },
    ]
}

/// One firing: when, by whose clock, and what befalls it.
#[derive(Clone, Copy)]
struct Firing {
    now: Timestamp,
    ill: &'static str,
}

fn draw(rng: &mut Rng, job: &Job) -> Vec<Vec<Firing>> {
    let period = if job.name == "hour" { 3600 } else { 86_400 };
    let mut all = Vec::new();
    for (n, (_, at)) in job.slots.iter().enumerate() {
        let count = match rng.below(100) {
            // the first install is a quiet one
            _ if n == 0 => 1,
            0..15 => 0,
            15..50 => 1,
            _ => 2,
        };
        let late = match rng.below(10) {
            0 => rng.below(period + period / 4),
            _ => rng.below(600),
        };
        let one = |rng: &mut Rng| {
            let off = rng.below(60).cast_signed() - 30;
            let ill = match rng.below(100) {
                0..8 => "early",
                8..16 => "late",
                16..24 => "fails",
                _ => "",
            };
            let late = late.cast_signed() + off;
            match n {
                0 => Firing { now: at.checked_add(SignedDuration::from_secs(60)).unwrap(), ill: "" },
                _ => Firing { now: at.checked_add(SignedDuration::from_secs(late)).unwrap(), ill },
            }
        };
        all.push((0..count).map(|_| one(rng)).collect());
    }
    all
}

/// What the test itself did, to count by.
#[derive(Default)]
struct Deeds {
    firings: usize,
    /// Killed after its effect, by work.
    killed_late: BTreeMap<String, usize>,
    killed: usize,
}

fn launch(home: &Home, job: &Job, firing: Firing, sick: &str) -> Running {
    let mut command = home.semel(["run", "--job", job.name, "--every", job.every, "--tz", job.tz]);
    command.args(job.more).env("SEMEL_NOW", firing.now.to_string()).env("ILL", firing.ill);
    command.env("SICK", home.path(sick)).args(["--", "sh", "-c", SCRIPT]);
    home.launch(&mut command)
}

/// Both at once; who is ill is killed in the middle, if it comes so far.
fn fire(home: &Home, job: &Job, together: &[Firing], deeds: &mut Deeds) {
    let mut running = Vec::new();
    for firing in together {
        deeds.firings += 1;
        let sick = format!("sick-{}", deeds.firings);
        running.push((launch(home, job, *firing, &sick), *firing, sick));
    }
    for (mut one, firing, sick) in running {
        if ["early", "late"].contains(&firing.ill) {
            until("it is ill, or has yielded", SOON, || one.has_ended() || !home.lines(&sick).is_empty());
            if let Some(work) = home.lines(&sick).first() {
                one.signal(libc::SIGKILL);
                deeds.killed += 1;
                if firing.ill == "late" {
                    *deeds.killed_late.entry(work.clone()).or_default() += 1;
                }
            }
        }
        one.end();
    }
}

/// The same firings without Semel.
fn naive(home: &Home, job: &Job, together: &[Firing]) {
    let zone = TimeZone::get(job.tz).unwrap();
    let running: Vec<Running> = together
        .iter()
        .map(|firing| {
            let shown = firing.now.to_zoned(zone.clone());
            let slot = if job.name == "hour" { shown.strftime("%FT%H") } else { shown.strftime("%F") };
            let slot = format!("{}-{slot}", job.name);
            home.launch(home.script(NAIVE).env("SLOT", slot).env("ILL", firing.ill))
        })
        .collect();
    for one in running {
        one.end();
    }
}

/// What `semel ls --json` says, by work.
fn on_record(home: &Home) -> BTreeMap<String, serde_json::Value> {
    let said = home.ask("ls --json --limit 10000").exits(0);
    let entries = said.text();
    let entries = entries.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
    entries.map(|entry| (entry["work"].as_str().unwrap().to_owned(), entry)).collect()
}

fn counted(lines: &[String]) -> BTreeMap<&str, usize> {
    let mut counts = BTreeMap::new();
    for line in lines {
        *counts.entry(line.as_str()).or_default() += 1;
    }
    counts
}

#[test]
fn three_weeks_of_two_schedulers_over_a_change_of_the_clocks() {
    let asked = std::env::var("SEMEL_YEAR_SEED").ok().map(|text| text.parse::<u64>().unwrap());
    for seed in asked.map_or(1..=2, |seed| seed..=seed) {
        three_weeks(seed);
    }
}

fn three_weeks(seed: u64) {
    let mut rng = Rng(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
    let (home, control) = (Home::new(), Home::new());
    let mut deeds = Deeds::default();
    let jobs = jobs();
    for job in &jobs {
        for together in draw(&mut rng, job) {
            fire(&home, job, &together, &mut deeds);
            naive(&control, job, &together);
        }
        // a last quiet one; whoever was killed last may not be known to be gone yet
        let last = job.slots.last().unwrap().1.checked_add(SignedDuration::from_mins(10)).unwrap();
        let quiet = Firing { now: last, ill: "" };
        until("nobody is at it any more", SOON, || {
            let said = launch(&home, job, quiet, "none").end();
            !home.ask(&format!("lease show {}", job.name)).text().contains("held") && said.code != 69
        });
    }
    let entries = on_record(&home);
    let effects = home.lines("effects");
    let effects = counted(&effects);
    let mut tally: BTreeMap<String, usize> = BTreeMap::new();
    for job in &jobs {
        for (slot, _) in &job.slots {
            let work = format!("{}@{slot}", job.name);
            let entry = entries.get(&work);
            let entry = entry.unwrap_or_else(|| panic!("seed {seed}: nothing is on record of {work}"));
            let state = entry["entry"]["state"].as_str().unwrap();
            *tally.entry(state.to_owned()).or_default() += 1;
            let found = effects.get(work.as_str()).copied().unwrap_or(0);
            let killed = deeds.killed_late.get(&work).copied().unwrap_or(0);
            let allowed = match state {
                "done" => 1 + killed,
                _ => killed,
            };
            assert_eq!(found, allowed, "seed {seed}: effects of {work}, which is {state}: {entry}");
            let is_held = job.more.contains(&"hold");
            assert!(!is_held || found <= 1, "seed {seed}: {work} was repeated on a guess");
            if job.more.contains(&"all=3d") && job.slots.iter().rev().take(3).any(|(last, _)| last == slot) {
                assert!(["done", "quarantined"].contains(&state), "seed {seed}: {work} is {state}");
            }
        }
    }
    let due: BTreeSet<String> = jobs
        .iter()
        .flat_map(|job| job.slots.iter().map(|(slot, _)| format!("{}@{slot}", job.name)))
        .collect();
    // the last firing of a job may be so late that the slot after it is due
    let more: Vec<&String> = entries.keys().filter(|work| !due.contains(*work)).collect();
    assert!(more.len() <= jobs.len(), "seed {seed}: on record, and never due: {more:?}");
    home.assert_whole();

    let by_hand = control.lines("effects");
    let by_hand = counted(&by_hand);
    let duplicates: usize = by_hand.values().map(|count| count - 1).sum();
    let gaps = due.len() - by_hand.len().min(due.len());
    println!(
        "seed {seed}: {} firings, {} killed, {} slots: {tally:?}; without Semel: {duplicates} duplicates, {gaps} silent gaps",
        deeds.firings,
        deeds.killed,
        due.len()
    );
    assert!(deeds.killed > 0, "seed {seed}: nobody was killed");
    assert!(duplicates > 0 && gaps > 0, "seed {seed}: the control has no faults");
}
