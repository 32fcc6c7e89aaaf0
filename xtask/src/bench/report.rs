//! What came out: every figure of all benches in one place, as a table, and as JSON that plots are made from.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use super::plot;
use crate::stats::{Ratio, median, quantile};

/// What a figure is counted in.
pub(super) const LONG: &str = "x as long";
pub(super) const FAST: &str = "x as fast";

/// What a figure should be.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Goal {
    AtMost(f64),
    AtLeast(f64),
    /// It is told, and nothing is promised.
    None,
}

impl Goal {
    fn reached(self, value: f64) -> Option<bool> {
        match self {
            Goal::AtMost(most) => Some(value <= most),
            Goal::AtLeast(least) => Some(value >= least),
            Goal::None => None,
        }
    }

    fn json(self) -> Value {
        match self {
            Goal::AtMost(most) => json!({ "at_most": most }),
            Goal::AtLeast(least) => json!({ "at_least": least }),
            Goal::None => Value::Null,
        }
    }
}

/// One point of a figure that grows with something.
#[derive(Clone, Copy, Debug)]
pub(super) struct Point {
    pub(super) at: f64,
    pub(super) ratio: Ratio,
}

/// All figures of a run.
pub(super) struct Report {
    /// The binary that is measured: `released`, or `plain`.
    build: &'static str,
    bench: &'static str,
    /// Benches that came to their end: what is known of them from before is gone.
    whole: BTreeSet<&'static str>,
    rows: Vec<Value>,
    missing: Vec<Value>,
}

impl Report {
    pub(super) fn new(build: &'static str) -> Report {
        Report { build, bench: "", whole: BTreeSet::new(), rows: Vec::new(), missing: Vec::new() }
    }

    /// What comes now is of this bench.
    pub(super) fn begin(&mut self, bench: &'static str) {
        self.bench = bench;
    }

    /// The bench came to its end.
    pub(super) fn end(&mut self) {
        self.whole.insert(self.bench);
    }

    /// How many times as long it takes.
    pub(super) fn long(&mut self, what: &str, against: &str, ratio: &Ratio, goal: Goal) {
        self.add(what, against, LONG, ratio, goal, &[]);
    }

    /// How many times as fast it is, or as many in the same time.
    pub(super) fn fast(&mut self, what: &str, against: &str, ratio: &Ratio, goal: Goal) {
        self.add(what, against, FAST, ratio, goal, &[]);
    }

    /// No ratio: what came out of each round, in this unit.
    pub(super) fn measured(&mut self, what: &str, unit: &str, rounds: &[f64], goal: Goal) {
        let all =
            Ratio { of_medians: median(rounds), low: quantile(rounds, 0.25), high: quantile(rounds, 0.75) };
        self.add(what, "", unit, &all, goal, &[]);
    }

    /// How it grows with what is counted in `what`: the goal is for the last point.
    pub(super) fn grows(&mut self, what: &str, against: &str, unit: &str, points: &[Point], goal: Goal) {
        if let Some(last) = points.last() {
            self.add(what, against, unit, &last.ratio, goal, points);
        }
    }

    /// Something that could not be installed, and so was not measured.
    pub(super) fn missing(&mut self, what: &str, why: &str) {
        println!("{what} cannot be had, its figures are missing: {why}");
        self.missing.push(json!({ "bench": self.bench, "what": what, "why": why }));
    }

    /// What another process told: lines of `WHAT / AGAINST: …, RATIO` become figures, all others are shown.
    pub(super) fn told(&mut self, lines: &[String], unit: &str, against: &str, goal: impl Fn(&str) -> Goal) {
        for line in lines {
            match Told::read(line) {
                Some(told) => {
                    println!("  {}", told.line);
                    let against = told.against.unwrap_or(against);
                    self.add(told.what, against, unit, &told.ratio, goal(told.what), &[]);
                }
                None => println!("{line}"),
            }
        }
    }

    fn add(&mut self, what: &str, against: &str, unit: &str, all: &Ratio, goal: Goal, points: &[Point]) {
        let Ratio { of_medians: value, low, high } = *all;
        let points: Vec<Value> = points
            .iter()
            .map(|Point { at, ratio }| json!([at, ratio.of_medians, ratio.low, ratio.high]))
            .collect();
        let row = json!({
            "bench": self.bench, "what": what, "against": against, "unit": unit, "value": value, "low": low,
            "high": high, "target": goal.json(), "reached": goal.reached(value), "points": points,
            "build": self.build,
        });
        let name = if against.is_empty() { what.to_owned() } else { format!("{what} / {against}") };
        let [_, _, _, value, spread, target, verdict] = cells(&row);
        let target = if target.is_empty() { target } else { format!(", target {target}: {verdict}") };
        println!("  {name}: {value} (middle half of the rounds {spread}){target}");
        self.rows.push(row);
    }

    pub(super) fn print(&self) {
        println!("\n{}", table(&self.rows));
        for gone in &self.missing {
            let text = |name: &str| gone[name].as_str().unwrap_or_default().to_owned();
            println!("missing in {}: {}: {}", text("bench"), text("what"), text("why"));
        }
    }

    /// Write the JSON, in which the rows of other benches stay, and a plot for each bench of this run.
    pub(super) fn keep(&self, json: Option<&Path>, plots: Option<&Path>) -> Result<(), String> {
        let (mut rows, mut missing) = (self.rows.clone(), self.missing.clone());
        if let Some(json) = json {
            let old =
                fs::read_to_string(json).ok().and_then(|text| serde_json::from_str::<Value>(&text).ok());
            let old = old.unwrap_or_default();
            self.keep_old(&old["rows"], &mut rows);
            self.keep_old(&old["missing"], &mut missing);
            let all = json!({ "v": 1, "rows": rows, "missing": missing });
            let text = serde_json::to_string_pretty(&all).map_err(|why| why.to_string())?;
            fs::write(json, text + "\n").map_err(|why| format!("{}: {why}", json.display()))?;
        }
        let Some(folder) = plots else { return Ok(()) };
        fs::create_dir_all(folder).map_err(|why| format!("{}: {why}", folder.display()))?;
        let benches: BTreeSet<&str> = self.rows.iter().filter_map(|row| row["bench"].as_str()).collect();
        for bench in benches {
            let of_it: Vec<&Value> = rows.iter().filter(|row| row["bench"] == bench).collect();
            plot::draw(&folder.join(format!("{bench}.svg")), bench, &of_it)?;
        }
        Ok(())
    }

    /// Rows of benches that did not run to their end stay, unless there is a newer one of the same name.
    fn keep_old(&self, old: &Value, rows: &mut Vec<Value>) {
        let name = |row: &Value| ["bench", "what", "against"].map(|part| row[part].to_string());
        let is_new = |row: &Value| rows.iter().any(|new| name(new) == name(row));
        let is_whole = |row: &Value| self.whole.iter().any(|bench| row["bench"] == *bench);
        let old = old.as_array().into_iter().flatten();
        let kept: Vec<Value> = old.filter(|row| !is_whole(row) && !is_new(row)).cloned().collect();
        rows.extend(kept);
        // within a bench as it came
        rows.sort_by_key(|row| row["bench"].to_string());
    }
}

/// A line with a ratio.
pub(super) struct Told<'a> {
    /// Without it.
    line: &'a str,
    pub(super) what: &'a str,
    against: Option<&'a str>,
    pub(super) ratio: Ratio,
}

impl Told<'_> {
    pub(super) fn read(line: &str) -> Option<Told<'_>> {
        let at = line.rfind("ratio ")?;
        let ratio = line[at..].parse().ok()?;
        let (name, _) = line.split_once(": ")?;
        let (what, against) =
            name.split_once(" / ").map_or((name, None), |(what, against)| (what, Some(against)));
        Some(Told { line: line[..at].trim_end_matches([',', ' ', ':']), what, against, ratio })
    }
}

/// As many digits as tell something.
pub(super) fn short(value: f64) -> String {
    match value.abs() {
        big if big >= 100.0 => format!("{value:.0}"),
        middle if middle >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

const HEAD: [&str; 7] = ["bench", "what", "against", "figure", "middle half", "target", ""];

fn cells(row: &Value) -> [String; 7] {
    let text = |name: &str| row[name].as_str().unwrap_or_default().to_owned();
    let number = |name: &str| short(row[name].as_f64().unwrap_or(f64::NAN));
    let goal = |name: &str, sign: &str| {
        row["target"][name].as_f64().map(|number| format!("{sign} {}", short(number)))
    };
    [
        text("bench"),
        text("what"),
        text("against"),
        format!("{} {}", number("value"), text("unit")),
        format!("{} to {}", number("low"), number("high")),
        goal("at_most", "≤").or_else(|| goal("at_least", "≥")).unwrap_or_default(),
        row["reached"].as_bool().map_or("", |reached| if reached { "reached" } else { "MISSED" }).to_owned(),
    ]
}

/// For a terminal.
fn table(rows: &[Value]) -> String {
    let mut all = vec![HEAD.map(str::to_owned)];
    all.extend(rows.iter().map(cells));
    let long = |text: &str| text.chars().count();
    let widths: Vec<usize> =
        (0..HEAD.len()).map(|at| all.iter().map(|cells| long(&cells[at])).max().unwrap_or(0)).collect();
    let mut text = String::new();
    for cells in &all {
        let padded = cells.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}"));
        let _ = writeln!(text, "{}", padded.collect::<Vec<_>>().join("  ").trim_end());
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ratio(value: f64) -> Ratio {
        Ratio { of_medians: value, low: value / 2.0, high: value * 2.0 }
    }

    fn report(bench: &'static str, what: &str, value: f64) -> Report {
        let mut report = Report::new("plain");
        report.begin(bench);
        report.long(what, "floor", &ratio(value), Goal::AtMost(1.25));
        report
    }

    fn kept(json: &Path) -> Vec<(String, f64)> {
        let text = fs::read_to_string(json).unwrap();
        let all: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(all["v"], 1);
        let row = |row: &Value| (row["what"].as_str().unwrap().to_owned(), row["value"].as_f64().unwrap());
        all["rows"].as_array().unwrap().iter().map(row).collect()
    }

    #[test]
    fn a_goal_has_a_direction() {
        let mut report = report("run", "fresh", 1.5);
        report.fast("item", "parallel", &ratio(4.0), Goal::AtLeast(4.0));
        report.measured("memory", "MiB", &[7.0], Goal::None);
        let reached: Vec<&Value> = report.rows.iter().map(|row| &row["reached"]).collect();
        assert_eq!(reached, [&json!(false), &json!(true), &Value::Null]);
        let table = table(&report.rows);
        assert!(table.contains("1.50 x as long  0.75 to 3.00  ≤ 1.25  MISSED"), "{table}");
        assert!(table.contains("4.00 x as fast  2.00 to 8.00  ≥ 4.00  reached"), "{table}");
    }

    #[test]
    fn rows_of_other_benches_stay_and_those_of_a_whole_one_go() {
        let dir = tempfile::tempdir().unwrap();
        let json = dir.path().join("j");
        report("steps", "old", 2.0).keep(Some(&json), None).unwrap();
        report("run", "old", 3.0).keep(Some(&json), None).unwrap();
        // broken off: the other row of this bench is still what is known
        report("run", "fresh", 1.0).keep(Some(&json), None).unwrap();
        assert_eq!(kept(&json), [("fresh".into(), 1.0), ("old".into(), 3.0), ("old".into(), 2.0)]);
        let mut whole = report("run", "fresh", 1.1);
        whole.end();
        whole.keep(Some(&json), None).unwrap();
        assert_eq!(kept(&json), [("fresh".into(), 1.1), ("old".into(), 2.0)]);
    }

    #[test]
    fn a_ratio_told_by_another_process_is_a_figure_and_a_plot_is_drawn() {
        let dir = tempfile::tempdir().unwrap();
        let mut report = Report::new("plain");
        report.begin("steps");
        let lines = [format!("a step / two commits: p50 1 ms, {}", ratio(1.05)), "a word".to_owned()];
        report.told(&lines, LONG, "", |what| if what == "a step" { Goal::AtMost(1.1) } else { Goal::None });
        let points = [1e3, 1e5, 1e7].map(|at| Point { at, ratio: ratio(at.log10() / 3.0) });
        report.grows("a claim", "among 1,000 entries", LONG, &points, Goal::AtMost(1.2));
        assert_eq!(report.rows.len(), 2);
        assert_eq!(
            (&report.rows[0]["against"], &report.rows[0]["reached"]),
            (&json!("two commits"), &json!(true))
        );
        report.keep(None, Some(dir.path())).unwrap();
        let plot = fs::read_to_string(dir.path().join("steps.svg")).unwrap();
        assert!(plot.starts_with("<svg") && plot.contains("a step") && plot.contains("polyline"), "{plot}");
    }
}
