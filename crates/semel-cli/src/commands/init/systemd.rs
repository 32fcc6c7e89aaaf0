//! A service and a timer per job.
//!
//! - `Delegate=yes`: Semel puts the command's tree into a cgroup below its own.
//! - `KillMode=mixed`: TERM goes to Semel alone. It stops the tree, records that, and gives the lease back; with
//!   `control-group` the command would get TERM from both. What is left after `TimeoutStopSec` is killed.
//! - `Persistent=true`: a time that passed while the machine was off is fired when it is on again.
//! - No sandbox: it would be the command's too, and only its author knows what that needs.

use std::collections::BTreeSet;
use std::time::Duration;

use jiff::tz::TimeZone;
use semel_core::trigger::{Untellable, interval_calendar, on_clock, slug};

use super::{Job, Made, Scope, Site, Unit};
use crate::trouble::Trouble;

/// The longest part of a unit's name that a job has.
const NAME_LIMIT: usize = 200;

pub(super) fn units(site: &Site<'_>) -> Result<Made, Trouble> {
    // SAFETY: it cannot fail and touches no memory.
    let root = unsafe { libc::geteuid() } == 0;
    let scope = match site.args.scope {
        Some(scope) => scope,
        None if site.args.user.is_some() || root => Scope::System,
        None => Scope::User,
    };
    let user = match (scope, &site.args.user) {
        (Scope::User, _) => None,
        (Scope::System, Some(user)) => Some(user.as_str()),
        (Scope::System, None) if root => Some("root"),
        (Scope::System, None) => {
            return Err(Trouble::config("--scope system: say with --user NAME as whom the jobs run"));
        }
    };
    let mut made = Made::default();
    for job in &site.jobs {
        match calendar(site, job) {
            Ok(lines) => {
                let name = format!("semel@{}", unit_name(&job.name));
                made.units
                    .push(Unit { text: service(site, job, user, scope), file: format!("{name}.service") });
                made.units.push(Unit { text: timer(job, &name, &lines), file: format!("{name}.timer") });
            }
            Err(why) => made.untold.push(job.untold(why)),
        }
    }
    made.units.extend(check(site, user));
    let absent: String = site.without_lines().map(|line| format!("# {line}\n")).collect();
    if let Some(first) = made.units.first_mut() {
        first.text.insert_str(0, &absent);
    }
    Ok(made)
}

/// The `OnCalendar=` of a job, each with its zone.
fn calendar(site: &Site<'_>, job: &Job) -> Result<Vec<String>, Untellable> {
    let wish = job.wish();
    if let Some(seconds) = wish.odd_seconds() {
        return Ok(interval_calendar(seconds).into_iter().map(|line| format!("{line} UTC")).collect());
    }
    let zone = job.zone(&site.here);
    // systemd leaves out the second of two hours that are called the same
    let (fires, suffix) = match &job.tz {
        _ if wish.is_steady() => (TimeZone::UTC, " UTC".to_owned()),
        Some(name) => (zone.clone(), format!(" {name}")),
        None => (zone.clone(), String::new()),
    };
    let lines = on_clock(&wish, &site.clocks(&zone, &fires, true))?;
    Ok(lines.iter().flat_map(|line| line.on_calendar()).map(|line| format!("{line}{suffix}")).collect())
}

fn service(site: &Site<'_>, job: &Job, user: Option<&str>, scope: Scope) -> String {
    let name = format!("semel@{}", unit_name(&job.name));
    let (folder, control) = match scope {
        Scope::System => ("/etc/systemd/system", "systemctl"),
        Scope::User => ("~/.config/systemd/user", "systemctl --user"),
    };
    let mut text = format!(
        "# {name}.service: put it and its timer into {folder}, then\n\
         #   {control} daemon-reload && {control} enable --now '{name}.timer'\n"
    );
    if scope == Scope::User {
        text.push_str("# So that it runs while you are not logged in: loginctl enable-linger\n");
    }
    if site.no_store {
        text.push_str("# semel.toml names no store: the ledger is in this user's XDG state directory\n");
    }
    text.push_str(&format!("[Unit]\nDescription=Semel job {}\n", job.name));
    if scope == Scope::System {
        text.push_str("Wants=network-online.target\nAfter=network-online.target\n");
    }
    text.push_str("\n[Service]\nType=oneshot\n");
    if let Some(user) = user {
        text.push_str(&format!("User={user}\n"));
    }
    text.push_str(&needs(&job.variables));
    text.push_str(&format!(
        "WorkingDirectory={}\nExecStart={}\n\
         # Semel makes a cgroup below its own for the command's tree\n\
         Delegate=yes\n\
         # TERM is for Semel, which stops the tree and records it; what is left after the timeout is killed\n\
         KillMode=mixed\nTimeoutStopSec={}s\n\
         # how long a run may take is the job's timeout\n\
         TimeoutStartSec=infinity\n",
        site.folder.replace('%', "%%"),
        command(&site.words(job)),
        job.stop_seconds()
    ));
    text
}

fn timer(job: &Job, name: &str, lines: &[String]) -> String {
    let zone = job.tz.as_deref().map(|tz| format!(", {tz}")).unwrap_or_default();
    let chosen = if job.wish().is_chosen() { "; the minute is chosen by the job's name" } else { "" };
    let mut text = format!(
        "# {name}.timer: every {}{zone}{chosen}\n[Unit]\nDescription=Semel job {}, every {}\n\n[Timer]\n",
        job.schedule,
        job.name,
        job.schedule.as_str().replace('%', "%%")
    );
    lines.iter().for_each(|line| text.push_str(&format!("OnCalendar={line}\n")));
    text.push_str(&format!(
        "# a time that passed while the machine was off is fired when it is on\nPersistent=true\nAccuracySec=1s\nRandomizedDelaySec={}s\n",
        delay_seconds(job)
    ));
    text.push_str("\n[Install]\nWantedBy=timers.target\n");
    text
}

/// Never so long that a firing falls into the next slot, or comes too late for its own.
fn delay_seconds(job: &Job) -> u64 {
    let period = job.schedule.period().shortest;
    if period < Duration::from_secs(300) {
        return 0;
    }
    let most = job.max_late.map_or(60, |most| most.as_secs() / 10);
    (period.as_secs() / 20).min(60).min(most)
}

/// Which variables must be set for it.
fn needs(variables: &BTreeSet<String>) -> String {
    let names: Vec<&str> = variables.iter().map(String::as_str).collect();
    match names.is_empty() {
        true => String::new(),
        false => format!(
            "# it needs {}: set them in a file that only this user can read\n#EnvironmentFile=/etc/semel/job.env\n",
            names.join(", ")
        ),
    }
}

fn check(site: &Site<'_>, user: Option<&str>) -> [Unit; 2] {
    let needs = needs(&site.jobs.iter().flat_map(|job| job.variables.iter().cloned()).collect());
    let user = user.map(|user| format!("User={user}\n")).unwrap_or_default();
    let words = [site.bin.as_str(), "check", "--config", &site.config];
    let service = format!(
        "# semel-check.service: what is overdue, failed too often or in doubt\n[Unit]\nDescription=Semel check\n\n[Service]\nType=oneshot\n{user}{needs}WorkingDirectory={}\nExecStart={}\n",
        site.folder.replace('%', "%%"),
        command(&words)
    );
    let timer = "# semel-check.timer\n[Unit]\nDescription=Semel check, every 15m\n\n[Timer]\nOnCalendar=*-*-* *:00/15:00 UTC\nAccuracySec=1s\nRandomizedDelaySec=30s\n\n[Install]\nWantedBy=timers.target\n";
    [
        Unit { file: "semel-check.service".into(), text: service },
        Unit { file: "semel-check.timer".into(), text: timer.to_owned() },
    ]
}

/// A command line of systemd's. The program's own path is not searched for variables, its arguments are.
fn command(words: &[&str]) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-:=@+,".contains(c);
    let word = |(nth, word): (usize, &&str)| {
        if !word.is_empty() && word.chars().all(plain) {
            return (*word).to_owned();
        }
        let word = word.replace('\\', r"\\").replace('"', "\\\"").replace('%', "%%");
        format!("\"{}\"", if nth == 0 { word } else { word.replace('$', "$$") })
    };
    words.iter().enumerate().map(word).collect::<Vec<_>>().join(" ")
}

/// The name of a job inside the name of a unit, as systemd-escape has it.
fn unit_name(name: &str) -> String {
    let mut out = String::new();
    for (nth, byte) in name.bytes().enumerate() {
        match byte {
            b'/' => out.push('-'),
            b'.' if nth == 0 => out.push_str(r"\x2e"),
            b':' | b'_' | b'.' => out.push(char::from(byte)),
            _ if byte.is_ascii_alphanumeric() => out.push(char::from(byte)),
            _ => out.push_str(&format!(r"\x{byte:02x}")),
        }
    }
    if out.len() <= NAME_LIMIT { out } else { unit_name(&slug(name, 40)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As `systemd-escape` says.
    #[test]
    fn names_are_escaped_as_systemd_does() {
        for (name, unit) in [
            ("publish", "publish"),
            ("site/blog", "site-blog"),
            ("my-job", r"my\x2djob"),
            ("a:b_c.d", "a:b_c.d"),
            (":x", ":x"),
            ("a/.b", "a-.b"),
        ] {
            assert_eq!(unit_name(name), unit);
        }
        assert!(unit_name(&"-".repeat(128)).len() <= NAME_LIMIT);
    }

    #[test]
    fn words_are_quoted_for_systemd() {
        assert_eq!(command(&["/usr/bin/semel", "run", "a"]), "/usr/bin/semel run a");
        assert_eq!(command(&["/a $b/semel", "/x 50% \"$y\" \\"]), r#""/a $b/semel" "/x 50%% \"$$y\" \\""#);
    }
}
