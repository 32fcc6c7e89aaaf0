//! Workflows for GitHub Actions.
//!
//! GitHub fires in UTC and often late. A job in a zone gets the UTC times of both sides of a change of its clocks; the
//! firing that is too early finds the slot before it done, and is a skip.

use std::path::Path;

use jiff::tz::TimeZone;
use semel_core::trigger::{Line, Untellable, on_clock, slug};

use super::{Job, Made, Site, Unit, quoted, shell_word};
use crate::trouble::Trouble;

/// The shortest interval that GitHub takes.
const LEAST_SECONDS: u64 = 300;
/// The longest run of a hosted runner.
const MOST_MINUTES: u64 = 360;

pub(super) fn units(site: &Site<'_>) -> Result<Made, Trouble> {
    let config = in_repository(&site.config);
    if config.contains("${{") {
        return Err(Trouble::config(format!("{}: GitHub would read its name as an expression", site.config)));
    }
    let mut made = Made::default();
    for job in &site.jobs {
        match lines(site, job) {
            Ok(lines) => {
                let name = slug(&job.name, 60);
                let text = workflow(site, job, &name, &config, &lines);
                made.units.push(Unit { file: format!("semel-{name}.yml"), text });
            }
            Err(why) => made.untold.push(job.untold(why)),
        }
    }
    let absent: String = site.without_lines().map(|line| format!("# {line}\n")).collect();
    if let Some(first) = made.units.first_mut() {
        first.text.insert_str(0, &absent);
    }
    Ok(made)
}

fn lines(site: &Site<'_>, job: &Job) -> Result<Vec<Line>, Untellable> {
    if job.schedule.period().shortest.as_secs() < LEAST_SECONDS {
        return Err(Untellable::TooShort("5m"));
    }
    let zone = job.zone(&TimeZone::UTC);
    on_clock(&job.wish(), &site.clocks(&zone, &TimeZone::UTC, true))
}

/// The file, as it is called from the folder that is checked out.
fn in_repository(config: &str) -> String {
    let path = Path::new(config);
    let root = path.ancestors().skip(1).find(|folder| folder.join(".git").exists());
    let inside = root.and_then(|root| path.strip_prefix(root).ok()).and_then(Path::to_str);
    let name = path.file_name().and_then(|name| name.to_str());
    inside.or(name).unwrap_or(config).to_owned()
}

fn workflow(site: &Site<'_>, job: &Job, name: &str, config: &str, lines: &[Line]) -> String {
    let minutes = job.policy.timeout_ms.map_or(MOST_MINUTES, |timeout_ms| {
        (timeout_ms.saturating_add(job.policy.kill_after_ms))
            .div_ceil(60_000)
            .saturating_add(10)
            .min(MOST_MINUTES)
    });
    let zone = match &job.tz {
        Some(tz) if job.schedule.is_zoned() => format!(
            "    # every {}, {tz}. GitHub fires in UTC: these times are right on both sides of a change of the clocks,\n    # and a firing that is too early or a second one is a skip\n",
            job.schedule
        ),
        _ => format!("    # every {}, in UTC\n", job.schedule),
    };
    let crons: String =
        lines.iter().map(|line| format!("    - cron: {}\n", quoted(&line.crontab()))).collect();
    let late = match job.max_late {
        Some(_) => "# GitHub fires minutes to hours late: is the job's max-late long enough for that?\n",
        None => "",
    };
    let mut env: String =
        job.variables.iter().map(|name| format!("          {name}: ${{{{ secrets.{name} }}}}\n")).collect();
    if site.no_store {
        env.push_str("          SEMEL_STORE: ${{ secrets.SEMEL_STORE }}\n");
    }
    let env = if env.is_empty() { env } else { format!("        env:\n{env}") };
    format!(
        "# .github/workflows/semel-{name}.yml\n\
         # The ledger must be one that all runners share: a runner's own disk is gone after the run, and with it what was done.\n\
         {late}name: {title}\n\
         on:\n  schedule:\n{zone}{crons}  workflow_dispatch:\n\
         permissions:\n  contents: read\n\
         # one run at a time; one that is under way is never cancelled for the next\n\
         concurrency:\n  group: semel-{name}\n  cancel-in-progress: false\n\
         jobs:\n  run:\n    runs-on: ubuntu-latest\n    timeout-minutes: {minutes}\n    steps:\n\
         \x20     - uses: actions/checkout@v4\n\
         \x20     # Install semel here: put the binary of a release that you have checked on the PATH\n\
         \x20     - name: {title}\n\
         \x20       run: {run}\n{env}",
        title = quoted(&format!("semel {}", job.name)),
        run = quoted(&format!("semel run {} --config {}", shell_word(&job.name), shell_word(config))),
    )
}
