//! What came out of a run: a table, what is wrong with it, and the rows that are kept.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::{Value, json};

use super::book::Book;
use super::contender::{Contender, Wrong};
use super::page;
use super::round::Outcome;

/// A control must do wrong in more than one of so many rounds, or the attack shows nothing.
const CONTROL_ONE_IN: u64 = 20;
/// From so many rounds on it is judged.
const JUDGED: u64 = 100;

/// One contender on one store.
#[derive(Clone, Debug, Default)]
struct Row {
    rounds: u64,
    faulted: u64,
    faults: BTreeMap<&'static str, u64>,
    expected: u64,
    wrong: BTreeMap<&'static str, u64>,
    doubts: u64,
    wrong_rounds: u64,
}

/// All rows of a run.
#[derive(Debug)]
pub(crate) struct Report {
    seed: u64,
    rows: BTreeMap<(String, Contender), Row>,
    /// How many rounds there were on each store, controls too, and how long they took.
    pace: BTreeMap<String, (u64, f64)>,
    /// The command that makes the rows of a store again; `-`: those of controls that have none.
    commands: BTreeMap<String, String>,
}

/// What stands for the store of those that have none.
const NO_STORE: &str = "-";

fn place(store: &str, contender: Contender) -> String {
    (if contender.has_store() { store } else { NO_STORE }).to_owned()
}

impl Report {
    /// Of a run with this seed, that this command makes again.
    pub(crate) fn new(seed: u64, command: String) -> Report {
        let commands = [(NO_STORE.to_owned(), command)].into();
        Report { seed, rows: BTreeMap::new(), pace: BTreeMap::new(), commands }
    }

    /// These are to be attacked on this store, and this command attacks them again.
    pub(crate) fn expect(&mut self, store: &str, contenders: &[Contender], command: String) {
        self.commands.insert(store.to_owned(), command);
        for contender in contenders {
            self.rows.entry((place(store, *contender), *contender)).or_default();
        }
    }

    pub(crate) fn add(&mut self, store: &str, contender: Contender, outcome: &Outcome, elapsed: f64) {
        let row = self.rows.entry((place(store, contender), contender)).or_default();
        row.rounds += 1;
        row.faulted += u64::from(!outcome.faults.is_empty());
        for fault in &outcome.faults {
            *row.faults.entry(fault.name()).or_default() += 1;
        }
        row.expected += contender.expected();
        for wrong in Wrong::ALL {
            *row.wrong.entry(wrong.name()).or_default() += outcome.many(wrong);
        }
        row.doubts += outcome.doubts;
        row.wrong_rounds += u64::from(!outcome.is_clean());
        let pace = self.pace.entry(store.to_owned()).or_default();
        *pace = (pace.0 + 1, elapsed);
    }

    /// Rounds in which Semel did wrong.
    pub(crate) fn wrong(&self) -> u64 {
        let of_semel = self.rows.iter().filter(|((_, contender), _)| !contender.is_control());
        of_semel.map(|(_, row)| row.wrong_rounds).sum()
    }

    /// Rounds in which controls did.
    pub(crate) fn wrong_controls(&self) -> u64 {
        let of_controls = self.rows.iter().filter(|((_, contender), _)| contender.is_control());
        of_controls.map(|(_, row)| row.wrong_rounds).sum()
    }

    pub(crate) fn rounds_on(&self, store: &str) -> u64 {
        self.pace.get(store).map_or(0, |(rounds, _)| *rounds)
    }

    /// What is wrong with it, one line each. `is_whole`: not one round alone, so that all must have had their turn.
    pub(crate) fn judge(&self, is_whole: bool) -> Vec<String> {
        self.rows
            .iter()
            .filter_map(|((store, contender), row)| judged(store, *contender, row, is_whole))
            .collect()
    }

    fn json_rows(&self) -> Vec<Value> {
        let row = |((store, contender), row): (&(String, Contender), &Row)| {
            let mut value = json!({
                "contender": contender.name(), "store": store, "is_control": contender.is_control(),
                "rounds": row.rounds, "faulted": row.faulted, "faults": row.faults, "expected": row.expected,
                "doubts": row.doubts, "wrong_rounds": row.wrong_rounds, "seed": self.seed,
                "seconds": self.pace.get(store).map_or(0.0, |(_, seconds)| seconds.round()),
                "command": self.commands.get(store),
            });
            for wrong in Wrong::ALL.into_iter().filter(|wrong| contender.shows(*wrong)) {
                value[wrong.name()] = row.wrong.get(wrong.name()).copied().unwrap_or(0).into();
            }
            value
        };
        self.rows.iter().map(row).collect()
    }

    pub(crate) fn print(&self) {
        println!("\n{}", page::terminal(&self.json_rows()));
        for (store, (rounds, seconds)) in &self.pace {
            println!("{store}: {rounds} rounds in {seconds:.0} s, {:.1}/s", *rounds as f64 / seconds);
        }
        println!("seed {}", self.seed);
    }

    /// Write the JSON, in which the rows of other runs stay, and the page that is made from it.
    pub(crate) fn keep(&self, json: Option<&Path>, results: Option<&Path>) -> Result<(), String> {
        let mut book = Book::read(json)?;
        let rows = self.json_rows().into_iter().filter(|row| row["rounds"] != 0);
        book.put_rows(rows.collect());
        book.write(json, results)
    }
}

fn judged(store: &str, contender: Contender, row: &Row, is_whole: bool) -> Option<String> {
    let name = contender.name();
    let (rounds, faulted, wrong) = (row.rounds, row.faulted, row.wrong_rounds);
    if is_whole && rounds == 0 {
        return Some(format!("{name} on {store}: no round was played; give it more --rounds or --seconds"));
    }
    if is_whole && faulted == 0 {
        return Some(format!("{name} on {store}: no fault struck in {rounds} rounds: they show nothing"));
    }
    if !contender.is_control() {
        return (wrong > 0).then(|| format!("{name} on {store}: {wrong} of {rounds} rounds are wrong"));
    }
    let is_shown = wrong * CONTROL_ONE_IN > faulted;
    (is_whole && faulted >= JUDGED && !is_shown).then(|| {
        format!(
            "the control {name} did wrong in only {wrong} of {faulted} faulted rounds: the attack shows nothing"
        )
    })
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::super::nemesis::Fault;
    use super::*;

    fn outcome(doubled: u64) -> Outcome {
        Outcome { faults: vec![Fault::KillSemel], doubled, ..Outcome::default() }
    }

    fn report(seed: u64, contender: Contender, clean: u64, doubled: u64) -> Report {
        let mut report = Report::new(seed, "cargo xtask torture --store all".to_owned());
        report.expect("sqlite", &[contender], "cargo xtask torture --store sqlite".to_owned());
        for n in 0..clean + doubled {
            report.add("sqlite", contender, &outcome(u64::from(n < doubled)), 1.0);
        }
        report
    }

    #[test]
    fn semel_may_do_nothing_wrong_and_a_control_must() {
        assert!(report(7, Contender::Probe, 1_000, 0).judge(true).is_empty());
        assert_eq!(report(7, Contender::Probe, 1_000, 1).judge(true).len(), 1);
        for control in Contender::CONTROLS {
            assert_eq!(report(7, control, 95, 5).judge(true).len(), 1, "{control:?}");
            assert!(report(7, control, 94, 6).judge(true).is_empty(), "{control:?}");
            assert!(report(7, control, 50, 0).judge(true).is_empty(), "{control:?}: too few to be judged");
        }
    }

    #[test]
    fn every_kind_of_wrong_is_judged() {
        for wrong in Wrong::ALL {
            let mut outcome = outcome(0);
            match wrong {
                Wrong::Doubled => outcome.doubled = 1,
                Wrong::Lost => outcome.lost = 1,
                Wrong::Unreported => outcome.unreported = 1,
                Wrong::Stale => outcome.stale = 1,
                Wrong::Untrue => outcome.untrue = 1,
                Wrong::Stuck => outcome.stuck = true,
            }
            let mut report = report(7, Contender::Hold, 10, 0);
            report.add("sqlite", Contender::Hold, &outcome, 1.0);
            assert_eq!(report.judge(true).len(), 1, "{wrong:?}");
        }
    }

    #[test]
    fn who_was_not_attacked_shows_nothing() {
        let none = report(7, Contender::Probe, 0, 0).judge(true);
        assert!(none.len() == 1 && none[0].contains("no round was played"), "{none:?}");
        let mut spared = report(7, Contender::Probe, 0, 0);
        spared.add("sqlite", Contender::Probe, &Outcome::default(), 1.0);
        let spared = spared.judge(true);
        assert!(spared.len() == 1 && spared[0].contains("no fault struck"), "{spared:?}");
        let control = report(7, Contender::Flock, 0, 0).judge(true);
        assert_eq!(control.len(), 1, "{control:?}");
        assert!(report(7, Contender::Probe, 0, 0).judge(false).is_empty(), "one round alone is asked for");
    }

    #[test]
    fn rows_of_other_runs_stay_in_the_file_and_the_page_has_the_bound() {
        let dir = tempfile::tempdir().unwrap();
        let (json, page) = (dir.path().join("j"), dir.path().join("p"));
        report(7, Contender::Probe, 3_000, 0).keep(Some(&json), None).unwrap();
        report(8, Contender::Probe, 1_000, 0).keep(Some(&json), None).unwrap();
        report(8, Contender::Probe, 2_000, 0).keep(Some(&json), None).unwrap();
        report(7, Contender::Flock, 90, 10).keep(Some(&json), Some(&page)).unwrap();
        let page = fs::read_to_string(page).unwrap();
        let has = |line: &str| assert!(page.contains(line), "{line}\n{page}");
        has("| probe | sqlite | 3,000 | 3,000 | 3,000 | 0 | 0 | - | 0 | 0 | 0 | 0 | < 0.100 % | 7 |");
        has("| probe | sqlite | 2,000 | 2,000 | 2,000 | 0 | 0 | - | 0 | 0 | 0 | 0 | < 0.150 % | 8 |");
        has("| flock | - | 100 | 100 | 100 | 10 | 0 | - | - | - | 0 | 0 | 10.0 % | 7 |");
        has("| sqlite | 5,000 | 5,000 | 0 | < 0.060 % |");
        has("| 8 | probe on sqlite | `cargo xtask torture --store sqlite` |");
        has("| unreported | 0 | - | - |");
    }
}
