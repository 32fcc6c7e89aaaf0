//! Property lists for launchd.
//!
//! launchd has one clock, the machine's, and takes every single time. Intervals are times too, as far as they can be
//! said: `StartInterval` counts from when the job was loaded, so that now and then two firings would fall on both
//! sides of a slot. Where it must be used, it is half the interval.

use semel_core::trigger::{Fire, Untellable, on_clock, slug};

use super::{Job, Made, Site, Unit};

/// launchd starts a job at most that often.
const LEAST_SECONDS: u64 = 10;
/// Shorter intervals than that have too many times to name.
const NAMED_SECONDS: u64 = 300;

pub(super) fn units(site: &Site<'_>) -> Made {
    let mut made = Made::default();
    for job in &site.jobs {
        match start(site, job) {
            Ok(start) => {
                let label = format!("semel.{}", slug(&job.name, 60));
                let text = plist(site, job, &label, &start, made.units.is_empty());
                made.units.push(Unit { file: format!("{label}.plist"), text });
            }
            Err(why) => made.untold.push(job.untold(why)),
        }
    }
    made
}

/// What says when.
fn start(site: &Site<'_>, job: &Job) -> Result<String, Untellable> {
    let wish = job.wish();
    let seconds = job.schedule.period().shortest.as_secs();
    if !job.schedule.is_zoned() && (seconds < NAMED_SECONDS || wish.odd_seconds().is_some()) {
        if seconds < 2 * LEAST_SECONDS {
            return Err(Untellable::TooShort("20s"));
        }
        return Ok(format!("  <key>StartInterval</key>\n  <integer>{}</integer>\n", seconds / 2));
    }
    let zone = job.zone(&site.here);
    let lines = on_clock(&wish, &site.clocks(&zone, &site.here, true))?;
    let mut fires = Vec::new();
    for line in &lines {
        fires.extend(line.start_calendar()?);
    }
    let entries: String = fires.iter().map(entry).collect();
    Ok(format!("  <key>StartCalendarInterval</key>\n  <array>\n{entries}  </array>\n"))
}

fn entry(fire: &Fire) -> String {
    let Fire { month, day, weekday, hour, minute } = fire;
    let named = [("Month", month), ("Day", day), ("Weekday", weekday), ("Hour", hour), ("Minute", minute)];
    let keys: String = named
        .iter()
        .filter_map(|(name, value)| Some(format!("<key>{name}</key><integer>{}</integer>", (**value)?)))
        .collect();
    format!("    <dict>{keys}</dict>\n")
}

fn plist(site: &Site<'_>, job: &Job, label: &str, start: &str, first: bool) -> String {
    let (folder, user) = match &site.args.user {
        Some(user) => {
            ("/Library/LaunchDaemons", format!("  <key>UserName</key>\n  <string>{}</string>\n", xml(user)))
        }
        None => ("~/Library/LaunchAgents", String::new()),
    };
    let zone = job.tz.as_deref().map(|tz| format!(", {tz}")).unwrap_or_default();
    let mut notes = vec![
        format!("{label}.plist: put it into {folder}, then: launchctl load {folder}/{label}.plist"),
        format!(
            "every {}{zone}, on a clock in {}",
            job.schedule,
            site.here.iana_name().unwrap_or("the machine's zone")
        ),
    ];
    if !job.variables.is_empty() {
        let names: Vec<&str> = job.variables.iter().map(String::as_str).collect();
        notes.push(format!("it takes from its surroundings: {}", names.join(", ")));
    }
    if first {
        notes.extend(site.without_lines());
    }
    let notes: String = notes.iter().map(|note| format!("<!-- {} -->\n", comment(note))).collect();
    let words: String =
        site.words(job).iter().map(|word| format!("    <string>{}</string>\n", xml(word))).collect();
    format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n\
         <!DOCTYPE plist PUBLIC \"-//Apple//DTD PLIST 1.0//EN\" \"http://www.apple.com/DTDs/PropertyList-1.0.dtd\">\n\
         {notes}<plist version=\"1.0\">\n<dict>\n\
         \x20 <key>Label</key>\n  <string>{}</string>\n{user}\
         \x20 <key>ProgramArguments</key>\n  <array>\n{words}  </array>\n\
         \x20 <key>WorkingDirectory</key>\n  <string>{}</string>\n{start}\
         \x20 <key>ExitTimeOut</key>\n  <integer>{}</integer>\n\
         \x20 <key>ProcessType</key>\n  <string>Background</string>\n</dict>\n</plist>\n",
        xml(label),
        xml(&site.folder),
        job.stop_seconds()
    )
}

fn xml(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

/// Two dashes end a comment.
fn comment(text: &str) -> String {
    let mut text = xml(text);
    while text.contains("--") {
        text = text.replace("--", "- -");
    }
    text
}
