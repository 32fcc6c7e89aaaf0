//! `cargo xtask bench steps`: steps of the library and of the command line.

use std::fs;
use std::path::Path;
use std::process::Command;

use super::report::{Goal, LONG, Report};
use super::{Options, Stage, line, lines};
use crate::stats::{Ratio, median};
use crate::tools::call;

/// Commands of each contestant per turn, so that the clock is asked seldom: each look at it is a process.
const BATCH: usize = 20;
const TURNS: usize = 10;
const MANY: usize = 10_000;
const PART: usize = 1_000;

/// How many times as long as two commits of the store a step in the library may take, and how many times as long as the
/// first the last of many.
const IN_PROCESS: f64 = 1.1;
const GROWTH: f64 = 1.3;

impl Stage {
    /// Durable steps: in this process, then by `semel step`.
    pub(super) fn steps(&self, options: &Options, report: &mut Report) -> Result<(), String> {
        let told = lines(Command::new(self.example("bench_steps")?).arg(&self.dir))?;
        report.told(&told, LONG, "", |what| match what {
            "a step, one after the other" => Goal::AtMost(IN_PROCESS),
            last if last.starts_with("the last") => Goal::AtMost(GROWTH),
            _ => Goal::None,
        });
        self.step_commands(options, report)?;
        self.many_step_commands(report)
    }

    /// `semel step` in a shell's loop inside one run, in turns with bare commands of the same loop.
    fn step_commands(&self, options: &Options, report: &mut Report) -> Result<(), String> {
        let turns = options.rounds(TURNS);
        let (semel, floor) = (self.released.display(), self.built.join("floor"));
        let (times, log) = (self.path("step-times"), self.path("step-floor.log"));
        let script = format!(
            "i=0
            many() {{
                n=0; while [ $n -lt {BATCH} ]; do n=$((n+1)); i=$((i+1)); $1 >/dev/null; done
            }}
            step() {{ '{semel}' step s$i -- /bin/true; }}
            bare() {{ /bin/true; }}
            synced() {{ '{}' '{log}' /bin/true; }}
            round=0
            while [ $round -lt {} ]; do
                round=$((round+1))
                a=$(date +%s%N); many step; b=$(date +%s%N); many bare; c=$(date +%s%N); many synced; d=$(date +%s%N)
                echo $((b-a)) $((c-b)) $((d-c)) >>'{times}'
            done",
            floor.display(),
            turns + 1
        );
        self.in_a_run("steps", &script)?;
        let rows = numbers(Path::new(&times))?;
        let per_command = |at: usize| -> Vec<f64> {
            // the first turn only warms up
            rows.iter().skip(1).filter_map(|row| row.get(at)).map(|ns| ns / 1e9 / BATCH as f64).collect()
        };
        let (step, bare, synced) = (per_command(0), per_command(1), per_command(2));
        println!("a shell's loop inside one run, {} of each", turns * BATCH);
        line("semel step -- /bin/true", &step);
        line("floor: /bin/true", &bare);
        line("floor: append, fdatasync, run, append, fdatasync", &synced);
        report.long("semel step -- true", "true", &Ratio::new(&step, &bare), Goal::None);
        report.long(
            "semel step -- true",
            "`true` between two syncs",
            &Ratio::new(&step, &synced),
            Goal::None,
        );
        println!("  a step costs {:.2} ms more than the command", (median(&step) - median(&bare)) * 1e3);
        Ok(())
    }

    /// The cost of a step must not grow with their number. Every hundred is followed by twenty of the floor, so that
    /// the disk's own moods can be taken out.
    fn many_step_commands(&self, report: &mut Report) -> Result<(), String> {
        let (semel, times) = (self.released.display(), self.path("many-times"));
        let (floor, log) = (self.built.join("floor"), self.path("many-floor.log"));
        let script = format!(
            "i=0; a=$(date +%s%N)
            while [ $i -lt {MANY} ]; do
                i=$((i+1)); '{semel}' step s$i -- /bin/true >/dev/null
                if [ $((i % 100)) = 0 ]; then
                    b=$(date +%s%N)
                    n=0; while [ $n -lt {BATCH} ]; do n=$((n+1)); '{}' '{log}' /bin/true; done
                    c=$(date +%s%N); echo $((b-a)) $((c-b)) >>'{times}'; a=$c
                fi
            done",
            floor.display()
        );
        self.in_a_run("many", &script)?;
        let rows = numbers(Path::new(&times))?;
        let part = PART / 100;
        let column = |rows: &[Vec<f64>], at: usize, of: usize| -> Vec<f64> {
            rows.iter().filter_map(|row| row.get(at)).map(|ns| ns / 1e9 / of as f64).collect()
        };
        let (Some(first), Some(last)) =
            (rows.get(..part), rows.len().checked_sub(part).and_then(|from| rows.get(from..)))
        else {
            return Err(format!("{} of {} times were taken", rows.len(), MANY / 100));
        };
        let [first, last] = [first, last].map(|rows| (column(rows, 0, 100), column(rows, 1, BATCH)));
        println!("{MANY} semel steps in one run, by hundreds");
        line("the first 1,000", &first.0);
        line("floor beside them: command between two syncs", &first.1);
        line("the last 1,000", &last.0);
        line("floor beside them: command between two syncs", &last.1);
        let [first, last] = [first, last].map(|(steps, floors)| -> Vec<f64> {
            steps.iter().zip(&floors).map(|(step, floor)| step / floor).collect()
        });
        let growth = Ratio::new(&last, &first);
        let (what, against) = ("the last 1,000 of 10,000 semel steps", "the first 1,000, each by its floor");
        report.long(what, against, &growth, Goal::AtMost(GROWTH));
        Ok(())
    }

    fn in_a_run(&self, key: &str, script: &str) -> Result<(), String> {
        call(&mut self.semel(&format!("{key}.db"), key, &["/bin/sh", "-c", script]))
    }
}

/// Rows of numbers.
fn numbers(file: &Path) -> Result<Vec<Vec<f64>>, String> {
    let text = fs::read_to_string(file).map_err(|why| format!("{}: {why}", file.display()))?;
    Ok(text.lines().map(|row| row.split(' ').filter_map(|word| word.parse().ok()).collect()).collect())
}
