//! `semel doctor`: try the store and this machine, and say what is wrong and how to mend it.

use std::borrow::Cow;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anstyle::AnsiColor;
use clap::Args;
use semel::engine::Engine;
use semel::engine::proof::Proof;
use semel::store::sqlite::Sqlite;
use semel::store::{Address, Finding, Grade};
use semel_supervise::{Contain, Containment, Output, Spec, Stdin, Tree};
use serde_json::json;

use super::doctor_git;
use super::doctor_notify;
use super::ls::each;
use crate::args::Common;
use crate::out::{print, print_json};
use crate::plan::{self, Surroundings};
use crate::table::{clean, colour, styled};
use crate::trouble::Trouble;
use crate::{exit, runtime};

/// A log longer than this costs every run time when it opens the database.
const WAL_LONG: u64 = 64 << 20;
/// A commit slower than this is felt: a run waits for two.
const COMMIT_SLOW: Duration = Duration::from_millis(100);

/// `semel doctor`
#[derive(Debug, Args)]
pub(crate) struct DoctorArgs {
    /// Check a git remote instead: prove with a stale push, on refs made for it, that it refuses one
    #[arg(long, value_name = "URL")]
    git: Option<String>,
    /// Send a test message through every lane of semel.toml instead, or through this one
    #[arg(long, value_name = "NAME", num_args = 0..=1, default_missing_value = "", conflicts_with = "git")]
    notify: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Level {
    Good,
    /// It works, and a person should know.
    Note,
    Wrong,
}

/// What was found, and what to do about it.
pub(super) struct Check {
    name: &'static str,
    level: Level,
    what: String,
    mend: Cow<'static, str>,
}

impl From<Finding> for Check {
    fn from(finding: Finding) -> Check {
        let level = match finding.grade {
            Grade::Good => Level::Good,
            Grade::Note => Level::Note,
            Grade::Wrong => Level::Wrong,
        };
        Check { name: finding.name, level, what: finding.what, mend: finding.mend.into() }
    }
}

pub(super) fn good(name: &'static str, what: impl Into<String>) -> Check {
    Check { name, level: Level::Good, what: what.into(), mend: "".into() }
}

pub(super) fn note(name: &'static str, what: impl Into<String>, mend: &'static str) -> Check {
    Check { name, level: Level::Note, what: what.into(), mend: mend.into() }
}

pub(super) fn wrong(name: &'static str, what: impl Into<String>, mend: &'static str) -> Check {
    Check { name, level: Level::Wrong, what: what.into(), mend: mend.into() }
}

pub(crate) fn run(common: &Common, args: &DoctorArgs, around: &Surroundings) -> Result<u8, Trouble> {
    if let Some(address) = &args.git {
        let mut report = Report { json: common.json, wrong: 0 };
        doctor_git::examine(address, around).into_iter().for_each(|check| report.add(check));
        return Ok(report.end());
    }
    if let Some(name) = &args.notify {
        let mut report = Report { json: common.json, wrong: 0 };
        let name = Some(name.as_str()).filter(|name| !name.is_empty());
        doctor_notify::examine(common, name, around)?.into_iter().for_each(|check| report.add(check));
        return Ok(report.end());
    }
    let address = plan::address(common, around)?;
    let mut report = Report { json: common.json, wrong: 0 };
    let runtime = runtime()?;
    let opened = match &address {
        Address::Sqlite(path) => match Sqlite::open_in_place(path) {
            Ok(store) => {
                let store = Arc::new(store);
                runtime.block_on(examine(&store, &plan::engine_on(store.clone()), &mut report));
                Ok(())
            }
            Err(why) => {
                report.add(wrong("store", format!("{} cannot be opened: {why}", path.display()), ""));
                Err(())
            }
        },
        _ => {
            let engine = plan::engine_on(plan::open(common, around)?);
            runtime.block_on(examine_service(&engine, &mut report))
        }
    };
    machine(around).into_iter().for_each(|check| report.add(check));
    runtime.block_on(async { report.add(containment().await) });
    let code = report.end();
    Ok(match opened {
        Err(()) => exit::STORE,
        Ok(()) => code,
    })
}

struct Report {
    json: bool,
    wrong: u32,
}

impl Report {
    /// The last word, and the exit code.
    fn end(&self) -> u8 {
        if self.json {
            print_json(json!({ "kind": "doctor", "wrong": self.wrong }));
        }
        u8::from(self.wrong > 0)
    }

    fn add(&mut self, check: Check) {
        let Check { name, level, what, mend } = check;
        let (word, sign, style) = match level {
            Level::Good => ("good", "✓", colour(AnsiColor::Green)),
            Level::Note => ("note", "!", colour(AnsiColor::Yellow)),
            Level::Wrong => ("wrong", "✗", colour(AnsiColor::Red).bold()),
        };
        self.wrong += u32::from(level == Level::Wrong);
        if self.json {
            print_json(json!({ "kind": "check", "name": name, "level": word, "what": what, "mend": mend }));
            return;
        }
        let mend = if mend.is_empty() { String::new() } else { format!("; {mend}") };
        print(&format!("{} {name:11} {}{mend}", styled(style, sign), clean(&what)));
    }
}

/// A store that is not embedded: what it says of itself, then what it is proven to do.
async fn examine_service(engine: &Engine, report: &mut Report) -> Result<(), ()> {
    match engine.store.examine().await {
        Err(why) => {
            report.add(wrong("store", why.to_string(), ""));
            return Err(());
        }
        Ok(findings) => findings.into_iter().for_each(|finding| report.add(Check::from(finding))),
    }
    let mend = "see what the store says of itself above, and its page in the docs";
    let mend_of_lost =
        "do not use this store: writes that it acknowledged are not there; see what it says of itself above";
    prove(engine, mend, mend_of_lost, report).await;
    Ok(())
}

async fn prove(engine: &Engine, mend: &'static str, mend_of_lost: &'static str, report: &mut Report) {
    match engine.prove().await {
        Err(why) => report.add(wrong("promises", format!("the store could not be tried out: {why}"), mend)),
        Ok(proof) => promises(&proof, mend_of_lost).into_iter().for_each(|check| report.add(check)),
    }
    report.add(records(engine).await);
}

async fn examine(store: &Sqlite, engine: &Engine, report: &mut Report) {
    match store.facts().await {
        Err(why) => report.add(wrong("store", why.to_string(), "")),
        Ok(facts) => {
            let (path, schema, sqlite) = (facts.path.display(), facts.schema, facts.sqlite);
            report.add(good("store", format!("{path}, schema {schema}, write-ahead log, SQLite {sqlite}")));
            report.add(modes(&facts.path));
            report.add(file_system(&facts.path));
            let what = format!("{} in the database, {} in its log", size(facts.bytes), size(facts.wal_bytes));
            report.add(if facts.wal_bytes > WAL_LONG {
                note("size", what, "semel gc copies the log back")
            } else {
                good("size", what)
            });
        }
    }
    match store.integrity().await {
        Err(why) => report.add(wrong("integrity", why.to_string(), "")),
        Ok(faults) if faults.is_empty() => report.add(good("integrity", "SQLite finds nothing wrong")),
        Ok(faults) => {
            let what = faults.iter().take(3).cloned().collect::<Vec<_>>().join("; ");
            report.add(wrong(
                "integrity",
                what,
                "move the file away with its -wal and -shm, and restore a backup",
            ));
        }
    }
    let mend_of_lost = "do not use this place: give a path on a local disk";
    prove(engine, "free the disk, or give another path", mend_of_lost, report).await;
}

fn promises(proof: &Proof, mend_of_lost: &'static str) -> [Check; 4] {
    let Proof { raced, lost, load, commit, clock_fault } = proof;
    let swap = match lost {
        0 => good("swap", format!("8 racing writers made {raced} conditional writes, none was lost")),
        lost => wrong(
            "swap",
            format!("of {raced} conditional writes by 8 racing writers {lost} were lost"),
            mend_of_lost,
        ),
    };
    let lease = match clock_fault {
        None => good("lease", "a short lease lapsed by the store's clock and could not be renewed"),
        Some(fault) => wrong("lease", fault.clone(), "do not use this store: its clock cannot be trusted"),
    };
    let what = format!("a durable commit takes {}; a run waits for two", short(*commit));
    let commit = match *commit > COMMIT_SLOW {
        true => note("commit", what, "a faster disk, or one that is less busy, would help"),
        false => good("commit", what),
    };
    [swap, lease, good("look", format!("a look takes {}", short(*load))), commit]
}

/// Can every record be read?
async fn records(engine: &Engine) -> Check {
    let mut entries = 0_u64;
    match each(engine, None, &mut |_| entries += 1).await {
        Err(why) => wrong("records", why.line, ""),
        Ok(unreadable) => match unreadable.first {
            None => good("records", format!("{entries} entries, all readable")),
            Some(first) => {
                let what =
                    format!("{} entries cannot be read ({entries} can), as in: {first}", unreadable.count);
                wrong("records", what, "upgrade semel if a newer one wrote them, else restore a backup")
            }
        },
    }
}

fn modes(path: &Path) -> Check {
    let mode = |path: &Path| std::fs::metadata(path).map(|found| found.permissions().mode() & 0o7777).ok();
    let beside = ["", "-wal", "-shm"].map(|suffix| {
        let mut name = path.as_os_str().to_owned();
        name.push(suffix);
        name
    });
    let open = beside
        .iter()
        .find_map(|name| mode(Path::new(name)).filter(|mode| mode & 0o077 != 0).map(|mode| (name, mode)));
    if let Some((name, mode)) = open {
        let what = format!("{} has mode {mode:04o}: others may read or write it", name.to_string_lossy());
        return wrong("mode", what, "chmod 600 it, its -wal and its -shm");
    }
    let folder = path.parent().unwrap_or(Path::new("/"));
    match mode(folder) {
        // sticky: others may add files, and not replace ours
        Some(mode) if mode & 0o022 != 0 && mode & 0o1000 == 0 => wrong(
            "mode",
            format!("{} has mode {mode:04o}: others may replace the ledger", folder.display()),
            "chmod go-w it",
        ),
        _ => good("mode", "the ledger is its owner's alone"),
    }
}

#[cfg(target_os = "linux")]
fn file_system(path: &Path) -> Check {
    use std::os::unix::ffi::OsStrExt;
    let Ok(name) = std::ffi::CString::new(path.as_os_str().as_bytes()) else {
        return wrong("file system", "the path holds a zero byte", "give another path");
    };
    let mut found = std::mem::MaybeUninit::<libc::statfs>::uninit();
    // SAFETY: the name ends with a nul, and `found` has room for the answer.
    if unsafe { libc::statfs(name.as_ptr(), found.as_mut_ptr()) } != 0 {
        return wrong(
            "file system",
            format!("cannot be asked: {}", std::io::Error::last_os_error()),
            "check the path",
        );
    }
    // SAFETY: the call has filled it.
    let found = unsafe { found.assume_init() };
    // their types differ between architectures
    #[allow(clippy::unnecessary_cast)]
    let (kind, free) =
        (found.f_type as u64 & 0xffff_ffff, (found.f_bavail as u64).saturating_mul(found.f_bsize as u64));
    let name = match kind {
        0xef53 => "ext",
        0x5846_5342 => "xfs",
        0x9123_683e => "btrfs",
        0x2fc1_2fc1 => "zfs",
        0xf2f5_2010 => "f2fs",
        0xca45_1a4e => "bcachefs",
        0x794c_7630 => "overlayfs",
        0x0102_1994 => "tmpfs",
        0x8584_58f6 => "ramfs",
        _ => "a local file system",
    };
    let what = format!("{name}, {} free", size(free));
    match name {
        "tmpfs" | "ramfs" => {
            note("file system", what, "in memory: a reboot forgets what was done; give a path on a disk")
        }
        "overlayfs" => note(
            "file system",
            what,
            "if this is a container, what was done is forgotten with it; give a path on a volume",
        ),
        _ if free < 16 << 20 => note("file system", what, "nearly full: free some space"),
        _ => good("file system", what),
    }
}

#[cfg(not(target_os = "linux"))]
fn file_system(path: &Path) -> Check {
    good("file system", format!("{} is on a local one", path.display()))
}

/// What the machine offers.
fn machine(around: &Surroundings) -> Vec<Check> {
    let mut checks = Vec::new();
    match semel_supervise::process::me() {
        Ok(me) => {
            let boot = me.boot.get(..8).unwrap_or(&me.boot).to_owned();
            let source =
                std::fs::read_to_string("/sys/devices/system/clocksource/clocksource0/current_clocksource");
            let source = source.map(|source| format!(", clock source {}", source.trim())).unwrap_or_default();
            checks.push(good("clock", format!("boot {boot}, up {}{source}", up())));
            checks.push(match me.host.as_str() {
                "" | "localhost" | "(none)" => note(
                    "host",
                    format!("its name is {:?}", me.host),
                    "give every machine a name of its own: people read it in messages",
                ),
                host => good("host", host.to_owned()),
            });
        }
        Err(why) => checks.push(wrong(
            "clock",
            format!("this process cannot be told from others: {why}"),
            "mount /proc: without it a dead holder is only known by its lease's end",
        )),
    }
    checks.push(match around.state_dir() {
        Err(why) => wrong("state", why.line, ""),
        Ok(path) => match std::fs::metadata(&path) {
            Ok(found) if found.permissions().mode() & 0o022 != 0 => {
                wrong("state", format!("{} may be written by others", path.display()), "chmod go-w it")
            }
            Ok(_) => good("state", format!("runs keep their files in {}", path.join("run").display())),
            Err(why) if why.kind() == std::io::ErrorKind::NotFound => {
                good("state", format!("{} is made by the first run", path.display()))
            }
            Err(why) => wrong(
                "state",
                format!("{}: {why}", path.display()),
                "check its owner and mode: no run can start",
            ),
        },
    });
    checks
}

fn up() -> String {
    crate::out::span(u64::try_from(semel_supervise::boottime().as_millis()).unwrap_or(u64::MAX))
}

/// How a command's tree is held together here: tried with a command that does nothing.
async fn containment() -> Check {
    let mut spec = Spec::new("/bin/sh", vec!["sh".into(), "-c".into(), ":".into()]);
    spec.stdin = Stdin::Null;
    spec.stdout = Output::Null;
    spec.stderr = Output::Null;
    spec.contain = Contain::Auto;
    let mut tree = match Tree::spawn(spec) {
        Ok(tree) => tree,
        Err(why) => {
            return wrong(
                "processes",
                format!("a command could not be started: {why}"),
                "check /bin/sh and the limit on processes",
            );
        }
    };
    let held = tree.containment();
    tree.wait().await;
    tree.finish(Duration::from_secs(1)).await;
    match held {
        Containment::Cgroup => good("processes", "a run's processes are held in a cgroup: ended all at once"),
        Containment::Subreaper => good(
            "processes",
            "a run's processes are held by a subreaper (no cgroup can be made here): ended by sweeps",
        ),
        Containment::Group => note(
            "processes",
            "a run's processes are held by their process group",
            "one that calls setsid escapes it",
        ),
    }
}

fn size(bytes: u64) -> String {
    match bytes {
        0..1024 => format!("{bytes} B"),
        1024..1_048_576 => format!("{} KiB", bytes >> 10),
        1_048_576..1_073_741_824 => format!("{} MiB", bytes >> 20),
        _ => format!("{} GiB", bytes >> 30),
    }
}

fn short(time: Duration) -> String {
    match time.as_micros() {
        us @ 0..1_000 => format!("{us} µs"),
        us => format!("{}.{} ms", us / 1_000, us % 1_000 / 100),
    }
}
