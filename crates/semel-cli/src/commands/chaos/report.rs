//! What the rounds came to, said boundary by boundary.

use serde::Serialize;
use serde_json::json;

use super::ChaosArgs;
use super::boundary::Boundary;
use crate::args::Common;
use crate::exit;
use crate::out::{Voice, print, print_json};

/// What a round came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Once,
    Doubled,
    Lost,
    /// A person is asked, and there is no more than one effect.
    InDoubt,
    /// It was fired again and again, and failed by itself.
    Unfinished,
    /// The command had ended before the crash, however early it came.
    Missed,
}

/// How the rounds of a boundary came out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(super) struct Counts {
    pub(super) once: u32,
    pub(super) doubled: u32,
    pub(super) lost: u32,
    pub(super) in_doubt: u32,
    pub(super) unfinished: u32,
    pub(super) missed: u32,
}

impl Counts {
    fn add(&mut self, verdict: Verdict) {
        *match verdict {
            Verdict::Once => &mut self.once,
            Verdict::Doubled => &mut self.doubled,
            Verdict::Lost => &mut self.lost,
            Verdict::InDoubt => &mut self.in_doubt,
            Verdict::Unfinished => &mut self.unfinished,
            Verdict::Missed => &mut self.missed,
        } += 1;
    }

    fn words(&self, doubled: &str) -> String {
        let all = [
            (self.once, "once"),
            (self.doubled, doubled),
            (self.lost, "lost"),
            (self.in_doubt, "in doubt"),
            (self.unfinished, "unfinished"),
            (self.missed, "missed"),
        ];
        let said: Vec<String> =
            all.iter().filter(|(n, _)| *n > 0).map(|(n, word)| format!("{n} {word}")).collect();
        if said.is_empty() { "-".to_owned() } else { said.join(", ") }
    }

    fn is_clean(&self) -> bool {
        self.doubled + self.lost + self.unfinished == 0
    }

    /// Where every round was missed nothing was shown.
    fn was_hit(&self) -> bool {
        let Counts { once, doubled, lost, in_doubt, unfinished, missed: _ } = self;
        once + doubled + lost + in_doubt + unfinished > 0
    }
}

/// What an undisturbed run told.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Found {
    /// How far one run moves the count.
    pub(super) unit: i64,
    /// How long the command takes.
    pub(super) took_ms: u64,
    /// The command's starts so far.
    pub(super) starts: usize,
}

struct Line {
    boundary: Boundary,
    semel: Counts,
    plain: Option<Counts>,
}

/// All of it.
pub(super) struct Report {
    seed: u64,
    rounds: u32,
    effects: bool,
    no_plain: bool,
    lines: Vec<Line>,
}

impl Report {
    pub(super) fn new(seed: u64, args: &ChaosArgs) -> Report {
        let effects = args.count.is_some();
        Report { seed, rounds: args.rounds, effects, no_plain: args.no_plain, lines: Vec::new() }
    }

    /// How often the command will be run: said before it is.
    pub(super) fn begin(&self, voice: &Voice, all: &[Boundary]) {
        // undisturbed once, with Semel and without it
        let starts = self.starts(all) + if self.no_plain { 1 } else { 2 };
        let Report { seed, rounds, .. } = self;
        voice.outcome(|| json!({ "kind": "begin", "starts": starts, "rounds": rounds, "seed": seed }));
        if !voice.json {
            voice.say(&format!(
                "the command is really run, with all its effects: up to {starts} times, more only where it fails by itself \
                 or ends before it is hit ({} boundaries, {rounds} rounds each, seed {seed})",
                all.len()
            ));
        }
    }

    /// It uses steps: how often it will be run for their boundaries.
    pub(super) fn more(&self, voice: &Voice, steps: &[Boundary]) {
        let starts = self.starts(steps);
        voice.outcome(|| json!({ "kind": "steps", "starts": starts }));
        if !voice.json {
            let many = steps.len();
            voice.say(&format!("the command uses steps: {many} more boundaries, up to {starts} more starts"));
        }
    }

    fn starts(&self, all: &[Boundary]) -> u32 {
        let starts = all.iter().map(|at| at.starts());
        let each = |(semel, plain)| if self.no_plain { semel } else { semel + plain };
        starts.map(each).sum::<u32>() * self.rounds
    }

    pub(super) fn open(&mut self, boundary: Boundary) {
        self.lines.push(Line { boundary, semel: Counts::default(), plain: None });
    }

    pub(super) fn note(&mut self, semel: Verdict, plain: Option<Verdict>) {
        if let Some(line) = self.lines.last_mut() {
            line.semel.add(semel);
            if let Some(plain) = plain {
                line.plain.get_or_insert_default().add(plain);
            }
        }
    }

    fn doubled(&self) -> &'static str {
        if self.effects { "doubled" } else { "started twice" }
    }

    /// A boundary's line, when it is done: some take long.
    pub(super) fn close(&self, common: &Common, found: &Found) {
        let Some(Line { boundary, semel, plain }) = self.lines.last() else { return };
        if common.json {
            return print_json(json!({
                "kind": "boundary", "at": boundary.to_string(), "rounds": self.rounds, "semel": semel, "plain": plain,
            }));
        }
        let line = |a: &str, b: &str, c: &str| print(format!("  {a:<18} {b:<32} {c}").trim_end());
        if self.lines.len() == 1 {
            let counted = if self.effects { "effects" } else { "starts" };
            print(&format!("{counted} of the command, which takes {}:", crate::out::span(found.took_ms)));
            line("crash", "with Semel", "without");
        }
        let doubled = self.doubled();
        let plain = plain.map_or("-".to_owned(), |plain| plain.words(doubled));
        line(&boundary.to_string(), &semel.words(doubled), &plain);
    }

    /// Nothing was found, at boundaries that were all hit.
    fn is_clean(&self) -> bool {
        self.lines.iter().all(|line| line.semel.is_clean() && line.semel.was_hit())
    }

    /// What it comes to for a script.
    pub(super) fn code(&self) -> u8 {
        match self.lines.iter().all(|line| line.semel.is_clean()) {
            false => exit::FOUND,
            true if self.is_clean() => 0,
            true => exit::CONFIG,
        }
    }

    fn never_hit(&self) -> Vec<String> {
        let missed = self.lines.iter().filter(|line| !line.semel.was_hit());
        missed.map(|line| line.boundary.to_string()).collect()
    }

    pub(super) fn end(&self, common: &Common, found: &Found) {
        let named = |of: fn(&Counts) -> u32| {
            let at = self.lines.iter().filter(|line| of(&line.semel) > 0);
            at.map(|line| line.boundary.to_string()).collect::<Vec<_>>()
        };
        if common.json {
            return print_json(json!({
                "kind": "chaos", "seed": self.seed, "rounds": self.rounds,
                "counted": if self.effects { "effects" } else { "starts" },
                "unit": found.unit, "took_ms": found.took_ms, "starts": found.starts, "clean": self.is_clean(),
                "doubled": named(|counts| counts.doubled), "lost": named(|counts| counts.lost),
                "in_doubt": named(|counts| counts.in_doubt), "unfinished": named(|counts| counts.unfinished),
                "missed": named(|counts| counts.missed), "never_hit": self.never_hit(),
            }));
        }
        print("");
        for (what, at, advice) in self.remarks() {
            print(&format!("{what} at {}: {advice}", at.join(", ")));
        }
        if !self.effects {
            print(
                "Only starts of the command were counted: a second start is no second effect. Say --count CMD to count effects.",
            );
        }
        let rounds: u32 = self.lines.iter().map(|line| line.semel.once + line.semel.in_doubt).sum();
        if self.is_clean() && rounds > 0 {
            print(&format!(
                "Nothing doubled and nothing was lost in {rounds} crashes: the true rate is below 3/{rounds} = {:.1} % (95 %).",
                (300.0 / f64::from(rounds)).min(100.0)
            ));
        }
        let never = self.never_hit();
        if !never.is_empty() {
            print(&format!(
                "Nothing is known of {}: the command had always ended before the crash. Give it something that takes longer, or \
                 leave these out with --at.",
                never.join(", ")
            ));
        }
        print(&format!("The command was started {} times; repeat with --seed {}", found.starts, self.seed));
    }

    /// What came out, at which boundaries, and what to do about it.
    fn remarks(&self) -> Vec<(&'static str, Vec<String>, &'static str)> {
        const LOST: &str = "Semel says that it is done, and its effect is not there: a --probe that says yes too early, or a \
                            count that does not show it";
        const UNFINISHED: &str = "fired again after the crash, the command failed each time";
        const IN_DOUBT: &str =
            "no effect doubled; a person is asked each time (a --probe could answer instead)";
        const MISSED: &str =
            "the command had ended before the crash, which does not count; it is short, and hit by chance";
        let mut all: Vec<(&str, Vec<String>, &str)> = Vec::new();
        for Line { boundary, semel, .. } in &self.lines {
            // a second start is no surprise where the first was cut off
            let surprising = self.effects || boundary.starts().0 == 1;
            let said = [
                (semel.doubled > 0 && surprising, self.doubled(), boundary.advice()),
                (semel.lost > 0, "lost", LOST),
                (semel.unfinished > 0, "unfinished", UNFINISHED),
                (semel.in_doubt > 0, "in doubt", IN_DOUBT),
                (semel.missed > 0 && semel.was_hit(), "missed", MISSED),
            ];
            for (_, what, advice) in said.into_iter().filter(|(is_so, ..)| *is_so) {
                match all.iter_mut().find(|(other, _, same)| *other == what && *same == advice) {
                    Some((_, at, _)) => at.push(boundary.to_string()),
                    None => all.push((what, vec![boundary.to_string()], advice)),
                }
            }
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(verdicts: &[&[Verdict]]) -> u8 {
        let mut report = Report { seed: 1, rounds: 3, effects: true, no_plain: true, lines: Vec::new() };
        for at in verdicts {
            report.open(Boundary::Stall);
            at.iter().for_each(|verdict| report.note(*verdict, None));
        }
        report.code()
    }

    #[test]
    fn what_was_never_hit_is_not_clean() {
        use Verdict::{Doubled, InDoubt, Lost, Missed, Once, Unfinished};
        assert_eq!(code(&[&[Once, InDoubt, Missed], &[Once]]), 0);
        assert_eq!(code(&[&[Once, Once], &[Missed, Missed]]), exit::CONFIG);
        for found in [Doubled, Lost, Unfinished] {
            assert_eq!(code(&[&[Once, found], &[Missed]]), exit::FOUND);
        }
    }
}
