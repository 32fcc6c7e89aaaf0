//! What came out: a table, the same as JSON, and the page of results made from it.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use super::contender::Contender;
use super::nemesis::Fault;
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
    doubled: u64,
    lost: u64,
    unreported: u64,
    stale: u64,
    stuck: u64,
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
}

impl Report {
    pub(crate) fn new(seed: u64) -> Report {
        Report { seed, rows: BTreeMap::new(), pace: BTreeMap::new() }
    }

    pub(crate) fn add(&mut self, store: &str, contender: Contender, outcome: &Outcome, elapsed: f64) {
        // a control has no store
        let on = if contender.is_control() { "-" } else { store };
        let row = self.rows.entry((on.to_owned(), contender)).or_default();
        row.rounds += 1;
        row.faulted += u64::from(!outcome.faults.is_empty());
        for fault in &outcome.faults {
            *row.faults.entry(fault.name()).or_default() += 1;
        }
        row.expected += contender.expected();
        row.doubled += outcome.doubled;
        row.lost += outcome.lost;
        row.unreported += outcome.unreported;
        row.stale += outcome.stale;
        row.stuck += u64::from(outcome.stuck);
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

    /// What is wrong with it, one line each.
    pub(crate) fn judge(&self, is_whole: bool) -> Vec<String> {
        let mut faults = Vec::new();
        for ((store, contender), row) in &self.rows {
            if !contender.is_control() && row.wrong_rounds > 0 {
                faults.push(format!(
                    "{} on {store}: {} of {} rounds are wrong",
                    contender.name(),
                    row.wrong_rounds,
                    row.rounds
                ));
            }
        }
        for ((_, contender), row) in self.rows.iter().filter(|((_, contender), _)| contender.is_control()) {
            let (faulted, wrong) = (row.faulted, row.wrong_rounds);
            if is_whole && faulted >= JUDGED && wrong * CONTROL_ONE_IN <= faulted {
                faults.push(format!(
                    "the control {} did wrong in only {wrong} of {faulted} faulted rounds: the attack shows nothing",
                    contender.name()
                ));
            }
        }
        faults
    }

    fn json_rows(&self) -> Vec<Value> {
        let row = |((store, contender), row): (&(String, Contender), &Row)| {
            json!({
                "contender": contender.name(), "store": store, "is_control": contender.is_control(),
                "rounds": row.rounds, "faulted": row.faulted, "faults": row.faults, "expected": row.expected,
                "doubled": row.doubled, "lost": row.lost, "unreported": row.unreported, "stale": row.stale,
                "stuck": row.stuck, "doubts": row.doubts, "wrong_rounds": row.wrong_rounds, "seed": self.seed,
                "seconds": self.pace.get(store).map_or(0.0, |(_, seconds)| seconds.round()),
            })
        };
        self.rows.iter().map(row).collect()
    }

    pub(crate) fn print(&self) {
        println!("\n{}", table(&self.json_rows()));
        for (store, (rounds, seconds)) in &self.pace {
            println!("{store}: {rounds} rounds in {seconds:.0} s, {:.1}/s", *rounds as f64 / seconds);
        }
        println!("seed {}", self.seed);
    }

    /// Write the JSON, in which rows of other stores and contenders stay, and the page that is made from it.
    pub(crate) fn keep(&self, json: Option<&Path>, page: Option<&Path>) -> Result<(), String> {
        let Some(json) = json else {
            return match page {
                Some(page) => write(page, &results(&self.json_rows())),
                None => Ok(()),
            };
        };
        let mut rows = self.json_rows();
        let name = |row: &Value| (row["store"].to_string(), row["contender"].to_string());
        let old = fs::read_to_string(json).ok().and_then(|text| serde_json::from_str::<Value>(&text).ok());
        let old = old.and_then(|old| old["rows"].as_array().cloned()).unwrap_or_default();
        let kept: Vec<Value> =
            old.into_iter().filter(|old| !rows.iter().any(|new| name(new) == name(old))).collect();
        rows.extend(kept);
        rows.sort_by_key(name);
        let text =
            serde_json::to_string_pretty(&json!({ "v": 1, "rows": rows })).map_err(|why| why.to_string())?;
        write(json, &(text + "\n"))?;
        page.map_or(Ok(()), |page| write(page, &results(&rows)))
    }
}

fn write(path: &Path, text: &str) -> Result<(), String> {
    fs::write(path, text).map_err(|why| format!("{}: {why}", path.display()))
}

fn number(row: &Value, name: &str) -> u64 {
    row[name].as_u64().unwrap_or(0)
}

/// `3/N` where nothing was seen; else the share of rounds.
fn bound(row: &Value) -> String {
    let (faulted, wrong) = (number(row, "faulted"), number(row, "wrong_rounds"));
    match (faulted, wrong) {
        (0, _) => "-".to_owned(),
        (_, 0) => format!("< {:.3} %", (300.0 / faulted as f64).min(100.0)),
        _ => format!("{:.1} %", 100.0 * wrong as f64 / number(row, "rounds").max(1) as f64),
    }
}

const HEAD: [&str; 11] = [
    "contender",
    "store",
    "rounds",
    "faulted",
    "effects",
    "doubled",
    "lost",
    "unreported",
    "stale",
    "stuck",
    "wrong",
];

fn cells(row: &Value) -> Vec<String> {
    let text = |name: &str| row[name].as_str().unwrap_or_default().to_owned();
    let mut cells = vec![text("contender"), text("store")];
    let numbers = ["rounds", "faulted", "expected", "doubled", "lost", "unreported", "stale", "stuck"];
    cells.extend(numbers.map(|name| number(row, name).to_string()));
    cells.push(bound(row));
    cells
}

fn faults(row: &Value) -> String {
    let known =
        Fault::ALL.iter().map(|fault| (fault.name(), row["faults"][fault.name()].as_u64().unwrap_or(0)));
    let some: Vec<String> = known.filter(|(_, n)| *n > 0).map(|(name, n)| format!("{name} {n}")).collect();
    some.join(", ")
}

/// For a terminal.
fn table(rows: &[Value]) -> String {
    let mut all = vec![HEAD.map(str::to_owned).to_vec()];
    all.extend(rows.iter().map(cells));
    let widths: Vec<usize> =
        (0..HEAD.len()).map(|at| all.iter().map(|cells| cells[at].len()).max().unwrap_or(0)).collect();
    let mut text = String::new();
    for (index, cells) in all.iter().enumerate() {
        for (at, (cell, width)) in cells.iter().zip(&widths).enumerate() {
            let width = *width;
            let _ = if at < 2 { write!(text, "{cell:width$}  ") } else { write!(text, "{cell:>width$}  ") };
        }
        let _ = writeln!(text, "{}", if index == 0 { "faults".to_owned() } else { faults(&rows[index - 1]) });
    }
    text
}

/// The page of results.
fn results(rows: &[Value]) -> String {
    let mut text = String::from(
        "# Results\n\nMade by `cargo xtask torture --json docs/RESULTS.json --results docs/RESULTS.md`: do not edit. Real processes on \
         real private servers, two or three firings of one work at a time, faults from a seed while they are at it; \
         then peace, retries until it is done, and a count of effects outside of Semel.\n\n\
         *wrong*: the share of rounds with anything doubled, lost, unreported, stale or stuck; where there was none in \
         N faulted rounds, the bound 3/N (with 95 % confidence the true share is below it). *unreported*: an attempt with \
         an unknown outcome that was repeated without anybody being asked. *stale*: a token that went back. *stuck*: not \
         done after the faults had ended.\n\n",
    );
    let block = |text: &mut String, title: &str, is_control: bool| {
        let _ = writeln!(text, "## {title}\n\n| {} | seed |", HEAD.join(" | "));
        let _ = writeln!(text, "|---|---|{}---|", "--:|".repeat(HEAD.len() - 2));
        for row in rows.iter().filter(|row| row["is_control"] == is_control) {
            let _ = writeln!(text, "| {} | {} |", cells(row).join(" | "), number(row, "seed"));
        }
        text.push('\n');
    };
    block(&mut text, "Semel", false);
    block(&mut text, "Controls: the usual ways, under the same attack", true);
    text.push_str("## Who\n\n| | |\n|---|---|\n");
    for one in Contender::SEMEL.iter().chain(&Contender::CONTROLS) {
        let _ = writeln!(text, "| {} | {} |", one.name(), one.meaning());
    }
    text.push_str("\n## Faults\n\n| fault | times | |\n|---|--:|---|\n");
    for fault in Fault::ALL {
        let times: u64 = rows.iter().map(|row| row["faults"][fault.name()].as_u64().unwrap_or(0)).sum();
        let _ = writeln!(text, "| {} | {times} | {} |", fault.name(), fault.meaning());
    }
    text.push_str("\n| | faults |\n|---|---|\n");
    for row in rows {
        let cells = cells(row);
        let _ = writeln!(
            text,
            "| {} on {} | {} |",
            cells[0],
            row["store"].as_str().unwrap_or_default(),
            faults(row)
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(doubled: u64) -> Outcome {
        Outcome { faults: vec![Fault::KillSemel], doubled, ..Outcome::default() }
    }

    fn report(contender: Contender, clean: u64, doubled: u64) -> Report {
        let mut report = Report::new(7);
        for n in 0..clean + doubled {
            report.add("sqlite", contender, &outcome(u64::from(n < doubled)), 1.0);
        }
        report
    }

    #[test]
    fn semel_may_do_nothing_wrong_and_a_control_must() {
        assert!(report(Contender::Probe, 1_000, 0).judge(true).is_empty());
        assert_eq!(report(Contender::Probe, 1_000, 1).judge(true).len(), 1);
        assert_eq!(report(Contender::Flock, 95, 5).judge(true).len(), 1);
        assert!(report(Contender::Flock, 94, 6).judge(true).is_empty());
        assert!(report(Contender::Flock, 50, 0).judge(true).is_empty(), "too few to be judged");
    }

    #[test]
    fn rows_of_other_stores_stay_in_the_file_and_the_page_has_the_bound() {
        let dir = tempfile::tempdir().unwrap();
        let (json, page) = (dir.path().join("j"), dir.path().join("p"));
        report(Contender::Probe, 3_000, 0).keep(Some(&json), None).unwrap();
        report(Contender::Flock, 90, 10).keep(Some(&json), Some(&page)).unwrap();
        let page = fs::read_to_string(page).unwrap();
        assert!(
            page.contains("| probe | sqlite | 3000 | 3000 | 3000 | 0 | 0 | 0 | 0 | 0 | < 0.100 % | 7 |"),
            "{page}"
        );
        assert!(page.contains("| flock | - | 100 | 100 | 100 | 10 | 0 | 0 | 0 | 0 | 10.0 % | 7 |"), "{page}");
    }
}
