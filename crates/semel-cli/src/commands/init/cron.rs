//! Lines of a crontab.
//!
//! A crontab has one clock, the machine's. Jobs in other zones get the times of that clock which are right without
//! `CRON_TZ`, because few crons know it; where there are none, `CRON_TZ` is written and said.

use semel_core::trigger::{Line, Untellable, on_clock};

use super::{Job, Made, Site, Unit, shell_word};

pub(super) fn units(site: &Site<'_>) -> Made {
    let mut made = Made::default();
    let mut text = head(site);
    let mut last = String::new();
    for job in &site.jobs {
        text.push_str(&about(job));
        let zone = job.zone(&site.here);
        match on_clock(&job.wish(), &site.clocks(&zone, &site.here, false)) {
            Ok(lines) => text.push_str(&entries(site, job, &lines)),
            Err(Untellable::Unmet) => match on_clock(&job.wish(), &site.clocks(&zone, &zone, false)) {
                Ok(lines) => {
                    let name = job.tz.as_deref().unwrap_or_default();
                    text.push_str("# on a clock of its own: below\n");
                    last.push_str(&format!(
                        "\n# {}: only some crons know CRON_TZ (cronie does, Debian's and busybox's do not)\nCRON_TZ={name}\n{}",
                        job.name,
                        entries(site, job, &lines)
                    ));
                }
                Err(why) => refuse(job, &why, &mut text, &mut made),
            },
            Err(why) => refuse(job, &why, &mut text, &mut made),
        }
    }
    text.push_str("\n# what is overdue, failed too often or in doubt\n");
    let check = [site.bin.as_str(), "check", "--config", &site.config];
    text.push_str(&entry(site, "*/15 * * * *", &check));
    text.push_str(&last);
    made.units.push(Unit { file: "semel".to_owned(), text });
    made
}

fn head(site: &Site<'_>) -> String {
    let place = match &site.args.user {
        Some(_) => "Put it into /etc/cron.d/semel (owner root, mode 0644).",
        None => "Add it with: crontab -e",
    };
    let zone = site.here.iana_name().unwrap_or("the machine's zone");
    let mut text = format!(
        "# The jobs of {}. {place}\n\
         # Times are for a cron whose clock is in {zone}. A second firing of a slot is a skip: exact times do not matter.\n\
         # Semel is silent on success, so mail means that something is wrong: MAILTO=you@example.org\n\
         # cron has a short PATH: write programs of jobs with their folders, or set PATH= above these lines.\n",
        site.config
    );
    if site.no_store {
        text.push_str("# The file names no store: the ledger is in this user's XDG state directory. Variables of your shell, such as SEMEL_STORE, are not here.\n");
    }
    for line in site.without_lines() {
        text.push_str(&format!("# {line}\n"));
    }
    text
}

fn about(job: &Job) -> String {
    let zone = job.tz.as_deref().map(|tz| format!(", {tz}")).unwrap_or_default();
    let chosen = if job.wish().is_chosen() { "; the minute is chosen by the job's name" } else { "" };
    let mut text = format!("\n# {}: every {}{zone}{chosen}\n", job.name, job.schedule);
    if !job.variables.is_empty() {
        let names: Vec<&str> = job.variables.iter().map(String::as_str).collect();
        text.push_str(&format!("# it takes from its surroundings: {}\n", names.join(", ")));
    }
    text
}

fn refuse(job: &Job, why: &Untellable, text: &mut String, made: &mut Made) {
    text.push_str(&format!("# not here: it {why}\n"));
    made.untold.push(job.untold(why));
}

fn entries(site: &Site<'_>, job: &Job, lines: &[Line]) -> String {
    match job.wish().as_written(lines) {
        Some(written) => entry(site, written, &site.words(job)),
        None => lines.iter().map(|line| entry(site, &line.crontab(), &site.words(job))).collect(),
    }
}

fn entry(site: &Site<'_>, times: &str, words: &[&str]) -> String {
    let user = site.args.user.as_deref().map(|user| format!("{user} ")).unwrap_or_default();
    let command = words.iter().map(|word| shell_word(word)).collect::<Vec<_>>().join(" ");
    // cron ends a command at a percent sign
    format!("{times} {user}{}\n", command.replace('%', "\\%"))
}
