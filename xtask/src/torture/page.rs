//! The rows as tables: for a terminal, and as the page of results.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde_json::Value;

use super::book::Book;
use super::contender::{Contender, Wrong};
use super::nemesis::Fault;

fn number(row: &Value, name: &str) -> u64 {
    row[name].as_u64().unwrap_or(0)
}

fn text<'a>(row: &'a Value, name: &str) -> &'a str {
    row[name].as_str().unwrap_or_default()
}

fn contender(row: &Value) -> Option<Contender> {
    Contender::named(text(row, "contender"))
}

fn is_control(row: &Value) -> bool {
    row["is_control"] == true
}

/// `12,345`
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// `3/N` where nothing was seen in N rounds; else the share of all.
fn bound(faulted: u64, wrong: u64, rounds: u64) -> String {
    match (faulted, wrong) {
        (0, 0) => "-".to_owned(),
        (_, 0) => format!("< {:.3} %", (300.0 / faulted as f64).min(100.0)),
        _ => format!("{:.1} %", 100.0 * wrong as f64 / rounds.max(1) as f64),
    }
}

/// How many of these there were, if they can be seen of that contender and were looked for.
fn seen(row: &Value, wrong: Wrong) -> Option<u64> {
    row[wrong.name()].as_u64().filter(|_| contender(row).is_none_or(|one| one.shows(wrong)))
}

const HEAD: [&str; 13] = [
    "contender",
    "store",
    "rounds",
    "faulted",
    "effects",
    "doubled",
    "lost",
    "unreported",
    "stale",
    "untrue",
    "stuck",
    "doubts",
    "wrong",
];

fn cells(row: &Value) -> Vec<String> {
    let mut cells = vec![text(row, "contender").to_owned(), text(row, "store").to_owned()];
    cells.extend(["rounds", "faulted", "expected"].map(|name| grouped(number(row, name))));
    cells.extend(Wrong::ALL.map(|wrong| seen(row, wrong).map_or("-".to_owned(), grouped)));
    cells.push(grouped(number(row, "doubts")));
    cells.push(bound(number(row, "faulted"), number(row, "wrong_rounds"), number(row, "rounds")));
    cells
}

fn faults(row: &Value) -> String {
    let known = Fault::ALL.iter().map(|fault| (fault.name(), number(&row["faults"], fault.name())));
    let some: Vec<String> = known.filter(|(_, n)| *n > 0).map(|(name, n)| format!("{name} {n}")).collect();
    some.join(", ")
}

/// For a terminal.
pub(crate) fn terminal(rows: &[Value]) -> String {
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

const FIRST: &str = "# Results

Made by the commands that are named below, with `--json docs/RESULTS.json --results docs/RESULTS.md`: do not edit. Rows of \
several runs stand beside each other, each with the seed of its own.

`cargo xtask torture`: real processes on real private servers, two or three firings of one work at a time, faults from a seed \
while they are at it; then peace, retries until it is done, and a count of effects outside of Semel. Every firing's answer is \
recorded, and one that says done is held against the effects that are there at that time.

*faulted*: rounds in which at least one fault was met. *wrong*: the share of rounds with anything wrong; where there was none \
in N faulted rounds, the bound 3/N (with 95 % confidence the true share is below it). `-`: it cannot be seen of that \
contender, or was not looked for. *doubts*: how often a person was asked, which is no wrong.

";

const LAST: &str = "
## What this does not show

- `s3` and `gs` are a server of our own with the conditional writes of both, on disk (`crates/semel-testkit/src/objects.py`), \
and `az` is Azurite, which is never killed, since it forgets. None is the service itself.
- Controls meet kills, stops and suspends. What happens to networks, servers, disks and clocks happens to stores, and they have \
none. *plain-write* and *plain-sql*, which run under Semel, meet all that *write* and *sql* do, drawn in the same way.
- A ttl is 1 s (3 s on object stores, twice that where the target checks no token). On a machine whose processes wait that long \
for a processor nobody can hold a lease: once the faults have ended, a firing that lost its lease is followed by one with \
twice its ttl, up to 32 times.
- A fault counts where something met it: a connection or request that the proxy broke, refused, delayed, swallowed or did not \
answer; a write that found the disk full; a binary that was seen to read the clock that is set. Rows with `-` under *untrue* are \
of runs before that: they count net-cut, net-delay, half-open and disk-full whenever these were on, took no answers down, and \
looked for repeated attempts alone under *unreported*.
- Where the target checks no token, nobody is suspended past the lease: there a holder that wakes may have its effect, which is not \
promised otherwise.
- A seed makes the same plans again. What the scheduler of the machine does with them is not in it.
";

/// The page of results.
pub(crate) fn page(book: &Book) -> String {
    let mut page = String::from(FIRST);
    totals(&mut page, &book.rows);
    kinds(&mut page, &book.rows);
    all_rows(&mut page, &book.rows);
    commands(&mut page, &book.rows);
    proofs(&mut page, &book.proofs);
    page.push_str("## Who\n\n| | |\n|---|---|\n");
    for one in Contender::SEMEL.iter().chain(&Contender::CONTROLS) {
        let _ = writeln!(page, "| {} | {} |", one.name(), one.meaning());
    }
    faults_met(&mut page, &book.rows);
    page.push_str(LAST);
    page
}

/// Rounds, faulted rounds and wrong rounds.
#[derive(Clone, Copy, Debug, Default)]
struct Sum(u64, u64, u64);

fn sums(rows: &[Value], key: impl Fn(&Value) -> Option<String>) -> BTreeMap<String, Sum> {
    let mut sums: BTreeMap<String, Sum> = BTreeMap::new();
    for row in rows {
        let Some(key) = key(row) else { continue };
        let sum = sums.entry(key).or_default();
        sum.0 += number(row, "rounds");
        sum.1 += number(row, "faulted");
        sum.2 += number(row, "wrong_rounds");
    }
    sums
}

fn sum_rows(page: &mut String, title: &str, sums: &BTreeMap<String, Sum>) {
    if sums.is_empty() {
        return;
    }
    let _ = writeln!(page, "| {title} | rounds | faulted | wrong | |\n|---|--:|--:|--:|--:|");
    for (name, Sum(rounds, faulted, wrong)) in sums {
        let bound = bound(*faulted, *wrong, *rounds);
        let _ = writeln!(
            page,
            "| {name} | {} | {} | {} | {bound} |",
            grouped(*rounds),
            grouped(*faulted),
            grouped(*wrong)
        );
    }
    page.push('\n');
}

fn totals(page: &mut String, rows: &[Value]) {
    page.push_str("## In all\n\n");
    let of_semel =
        |name: &'static str| move |row: &Value| (!is_control(row)).then(|| text(row, name).to_owned());
    sum_rows(page, "Semel, by store", &sums(rows, of_semel("store")));
    sum_rows(page, "Semel, by effect", &sums(rows, of_semel("contender")));
    let controls = |row: &Value| is_control(row).then(|| text(row, "contender").to_owned());
    sum_rows(page, "the usual ways", &sums(rows, controls));
}

/// What was looked for in Semel's rounds, and in how many faulted rounds it could have been seen.
fn kinds(page: &mut String, rows: &[Value]) {
    page.push_str("| Semel | could be seen in so many faulted rounds | found | |\n|---|--:|--:|--:|\n");
    for wrong in Wrong::ALL {
        let (mut faulted, mut found) = (0, 0);
        for row in rows.iter().filter(|row| !is_control(row)) {
            if let Some(many) = seen(row, wrong) {
                faulted += number(row, "faulted");
                found += many;
            }
        }
        let (many, share) = match faulted {
            0 => ("-".to_owned(), "-".to_owned()),
            _ => (grouped(found), bound(faulted, found, faulted)),
        };
        let _ = writeln!(page, "| {} | {} | {many} | {share} |", wrong.name(), grouped(faulted));
    }
    page.push('\n');
    for wrong in Wrong::ALL {
        let _ = writeln!(page, "- *{}*: {}.", wrong.name(), wrong.meaning());
    }
    page.push('\n');
}

fn all_rows(page: &mut String, rows: &[Value]) {
    let _ = writeln!(
        page,
        "## Each contender on each store, and the usual ways\n\n| {} | seed |",
        HEAD.join(" | ")
    );
    let _ = writeln!(page, "|---|---|{}---|", "--:|".repeat(HEAD.len() - 2));
    for row in rows {
        let _ = writeln!(page, "| {} | {} |", cells(row).join(" | "), number(row, "seed"));
    }
    page.push('\n');
}

/// Which command makes which rows again.
fn commands(page: &mut String, rows: &[Value]) {
    let mut made: BTreeMap<(u64, String), Vec<String>> = BTreeMap::new();
    for row in rows {
        let who = format!("{} on {}", text(row, "contender"), text(row, "store"));
        made.entry((number(row, "seed"), text(row, "command").to_owned())).or_default().push(who);
    }
    page.push_str("## The commands\n\n| seed | rows | |\n|---|---|---|\n");
    for ((seed, command), who) in made {
        let who = if who.len() > 12 {
            format!("{} rows, all others with this seed", who.len())
        } else {
            who.join(", ")
        };
        let command = match command.as_str() {
            "" => "the command was not kept".to_owned(),
            command => format!("`{command}`"),
        };
        let _ = writeln!(page, "| {seed} | {who} | {command} |");
    }
    page.push('\n');
}

/// The proofs of other kinds: those that were run.
fn proofs(page: &mut String, proofs: &[Value]) {
    if proofs.is_empty() {
        return;
    }
    page.push_str(
        "## Other proofs\n\nWhat other commands counted. Where every one there is was tried there is no bound to give; where they \
         were drawn by chance, it is 3/N.\n\n| proof | where | N | of | wrong | | seed | command |\n|---|---|--:|---|--:|--:|---|---|\n",
    );
    for row in proofs {
        let (many, wrong) = (number(row, "n"), number(row, "wrong"));
        let bound = if row["every"] == true { "every one".to_owned() } else { bound(many, wrong, many) };
        let seed = row["seed"].as_u64().map_or("-".to_owned(), |seed| seed.to_string());
        let _ = writeln!(
            page,
            "| {} | {} | {} | {} | {} | {bound} | {seed} | `{}` |",
            text(row, "proof"),
            text(row, "at"),
            grouped(many),
            text(row, "of"),
            grouped(wrong),
            text(row, "command"),
        );
    }
    page.push('\n');
}

fn faults_met(page: &mut String, rows: &[Value]) {
    page.push_str("\n## Faults\n\n| fault | times | |\n|---|--:|---|\n");
    for fault in Fault::ALL {
        let times: u64 = rows.iter().map(|row| number(&row["faults"], fault.name())).sum();
        let _ = writeln!(page, "| {} | {} | {} |", fault.name(), grouped(times), fault.meaning());
    }
    page.push_str("\n| | seed | faults |\n|---|---|---|\n");
    for row in rows {
        let (who, store) = (text(row, "contender"), text(row, "store"));
        let _ = writeln!(page, "| {who} on {store} | {} | {} |", number(row, "seed"), faults(row));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn numbers_are_readable() {
        assert_eq!(
            [0, 999, 1_000, 10_576, 1_234_567].map(grouped),
            ["0", "999", "1,000", "10,576", "1,234,567"]
        );
    }

    #[test]
    fn a_row_without_answers_does_not_say_that_all_were_true() {
        let old = json!({ "contender": "write", "store": "dir", "rounds": 9, "faulted": 6, "doubled": 0, "unreported": 0, "stale": 0 });
        assert_eq!(seen(&old, Wrong::Untrue), None);
        assert_eq!(seen(&old, Wrong::Doubled), None, "a file cannot double");
        assert_eq!(seen(&old, Wrong::Unreported), None, "nobody is asked");
        assert_eq!(seen(&old, Wrong::Stale), Some(0));
    }

    #[test]
    fn other_proofs_have_their_bound_or_are_whole() {
        let row = |every: bool| {
            json!({ "proof": "linear", "at": "redis", "n": 3000, "of": "calls", "wrong": 0, "seed": 4, "every": every,
                    "command": "cargo xtask torture linear" })
        };
        let table = |every| {
            let mut page = String::new();
            proofs(&mut page, &[row(every)]);
            page
        };
        assert!(table(false).contains(
            "| linear | redis | 3,000 | calls | 0 | < 0.100 % | 4 | `cargo xtask torture linear` |"
        ));
        assert!(table(true).contains("| every one |"));
        let mut page = String::new();
        proofs(&mut page, &[]);
        assert_eq!(page, "", "what was not run is not printed");
    }
}
