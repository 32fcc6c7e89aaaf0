//! From what was typed to what is run: resolved, checked, immutable.

use std::borrow::Cow;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use jiff::{Span, SpanRelativeTo};
use semel::clock::SystemClock;
use semel::engine::{Engine, RunPlan, Scheduled};
use semel::store::{self, Address, Settings, Store};
use semel_core::entry::CommandMark;
use semel_core::name::{Name, Slot};
use semel_core::owner::Owner;
use semel_core::policy::{IfBusy, OnLost, Policy, PolicyError};
use semel_core::work::{Fields, Work, parse_params};

use crate::args::{Common, OnLostArg, PolicyArgs, RunArgs, WhatArgs};
use crate::definition;
use crate::neighbours::ThisHost;
use crate::notify::{self, Notify};
use crate::payload::{payload, volatile_alone};
use crate::planner::{self, Fill, Planner};
use crate::site::Site;
use crate::slot::{self, Due};
use crate::trouble::Trouble;

pub(crate) use crate::surroundings::Surroundings;

/// Where the ledger is.
pub(crate) fn store_url(common: &Common, around: &Surroundings) -> Result<String, Trouble> {
    if let Some(url) = common.store.as_deref().or_else(|| around.text("SEMEL_STORE")) {
        return Ok(url.to_owned());
    }
    // another ledger than the one that was meant would know nothing of what is done
    if around.get("SEMEL_STORE").is_some_and(|url| url.to_str().is_none()) {
        return Err(Trouble::config("SEMEL_STORE is not UTF-8: use another path"));
    }
    // a crontab and a shell must mean the same ledger, so this holds for every command
    if let Some(config) = around.config(common)? {
        config.check_store()?;
        if let Some(store) = &config.store {
            let url = around.resolve(&format!("store in {}", config.path.display()), store)?;
            return url.to_str().filter(|url| !url.is_empty()).map(str::to_owned).ok_or_else(|| {
                Trouble::config(format!("store in {} is empty or not UTF-8", config.path.display()))
            });
        }
    }
    let path = around.state_dir()?.join("ledger.db");
    let path = path
        .to_str()
        .ok_or_else(|| Trouble::config("the state directory is not UTF-8: say --store sqlite:PATH"))?;
    Ok(format!("sqlite:{path}"))
}

/// What the ledger's address means.
pub(crate) fn address(common: &Common, around: &Surroundings) -> Result<Address, Trouble> {
    read_address(&store_url(common, around)?)
}

/// What an address means.
pub(crate) fn read_address(url: &str) -> Result<Address, Trouble> {
    Address::parse(url).map_err(|why| Trouble::config(format!("--store: {why}")))
}

/// Where the private files of runs are: in the state directory, or beside the ledger where there is no home (a
/// service of the system's has none).
pub(crate) fn private_dir(common: &Common, around: &Surroundings) -> Result<PathBuf, Trouble> {
    around.state_dir().or_else(|no_home| {
        let address = address(common, around)?;
        address.path().and_then(|ledger| ledger.parent()).map(Path::to_owned).ok_or(no_home)
    })
}

/// The store of the ledger's address.
pub(crate) fn open(common: &Common, around: &Surroundings) -> Result<Arc<dyn Store>, Trouble> {
    open_at(&store_url(common, around)?, around)
}

/// The store of this address.
pub(crate) fn open_at(url: &str, around: &Surroundings) -> Result<Arc<dyn Store>, Trouble> {
    let variables = Settings::VARIABLES
        .iter()
        .filter_map(|name| Some(((*name).to_owned(), around.text(name)?.to_owned())))
        .collect();
    // one thread, which waits for the store anyway
    let settings = Settings { variables, in_place: true, ..Settings::default() };
    read_address(url)?;
    Ok(store::open(url, &settings)?)
}

/// The engine on the store of this address.
pub(crate) fn engine(common: &Common, around: &Surroundings) -> Result<Engine, Trouble> {
    #[cfg_attr(not(feature = "crash-points"), allow(unused_mut))]
    let mut engine = engine_on(open(common, around)?);
    #[cfg(feature = "crash-points")]
    if around.get("SEMEL_NOW").is_some() {
        engine.clock = Arc::new(crate::clock::Set(around.now()?));
    }
    Ok(engine)
}

/// The engine on this store.
pub(crate) fn engine_on(store: Arc<dyn Store>) -> Engine {
    Engine { store, clock: Arc::new(SystemClock), neighbours: Arc::new(ThisHost), me: me() }
}

/// This process, as an owner.
pub(crate) fn me() -> Owner {
    use semel_supervise::process;
    match process::me() {
        Ok(process::Identity { host, boot, pidns, process }) => {
            Owner { host, boot, pidns, pid: process.pid, start: process.start }
        }
        // nobody can conclude anything about an owner without a boot id: only the clock decides
        Err(_) => Owner {
            host: "unknown".into(),
            boot: String::new(),
            pidns: 0,
            pid: i32::try_from(std::process::id()).unwrap_or(0),
            start: 0,
        },
    }
}

/// What was given, in quotes, and not longer than anybody reads.
pub(crate) fn quoted(text: &str) -> String {
    const SHOWN: usize = 80;
    match text.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{:?}…", text.get(..end).unwrap_or_default()),
        None => format!("{text:?}"),
    }
}

/// A length of time as people write it: 90s, 1h30m, 500ms, 7d.
pub(crate) fn duration_ms(flag: &str, text: &str) -> Result<u64, Trouble> {
    let wrong = || {
        let given = quoted(text);
        Trouble::config(format!("{flag} {given} is not a length of time: write 500ms, 90s, 1h30m or 7d"))
    };
    if text.starts_with(['-', 'P', 'p']) || text.trim() != text {
        return Err(wrong());
    }
    let span: Span = text.parse().map_err(|_| wrong())?;
    let length = span.to_duration(SpanRelativeTo::days_are_24_hours()).map_err(|_| wrong())?;
    u64::try_from(length.as_millis()).map_err(|_| wrong())
}

/// A number of bytes as people write it: 512, 64KiB, 16MiB, 1G.
pub(crate) fn size(flag: &str, text: &str) -> Result<u64, Trouble> {
    let wrong = || {
        let given = quoted(text);
        Trouble::config(format!("{flag} {given} is not a size: write 4096, 64KiB, 16MiB or 1GiB"))
    };
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (digits, unit) = text.split_at(end);
    let shift = match unit {
        "" | "B" => 0,
        "K" | "KB" | "KiB" => 10,
        "M" | "MB" | "MiB" => 20,
        "G" | "GB" | "GiB" => 30,
        _ => return Err(wrong()),
    };
    let number: u64 = digits.parse().map_err(|_| wrong())?;
    number.checked_mul(1 << shift).filter(|bytes| *bytes <= 1 << 33).ok_or_else(wrong)
}

fn optional_ms(flag: &str, text: Option<&String>) -> Result<Option<u64>, Trouble> {
    text.map(|text| duration_ms(flag, text)).transpose()
}

/// The longest reason: it is kept.
const BECAUSE_LIMIT: usize = 2_000;

/// A person's reason, as it was typed.
pub(crate) fn because(text: &str) -> Result<&str, Trouble> {
    let because = text.trim();
    if because.is_empty() {
        return Err(Trouble::config("--because is empty: say why, for those who read it later"));
    }
    if because.chars().count() > BECAUSE_LIMIT {
        return Err(Trouble::config(format!(
            "--because is longer than {BECAUSE_LIMIT} characters: say it in fewer"
        )));
    }
    Ok(because)
}

/// A name as it was typed.
pub(crate) fn name(flag: &str, text: &str) -> Result<Name, Trouble> {
    Name::new(text).map_err(|why| Trouble::config(format!("{flag} {}: {why}", quoted(text))))
}

/// A run, ready.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) plan: RunPlan,
    pub(crate) command: Program,
    pub(crate) probe: Option<Probe>,
    pub(crate) skip_code: u8,
    pub(crate) due: Option<Due>,
    /// How its plan is made, if it has one.
    pub(crate) planner: Option<Planner>,
    /// The placeholders in its arguments, if they are to be filled.
    pub(crate) fill: Option<Fill>,
    /// Who is told.
    pub(crate) notify: Notify,
}

/// A program that exists, with its arguments.
#[derive(Clone, Debug)]
pub(crate) struct Program {
    pub(crate) path: PathBuf,
    pub(crate) argv: Vec<OsString>,
    pub(crate) site: Site,
}

/// How to ask the world.
#[derive(Clone, Debug)]
pub(crate) struct Probe {
    pub(crate) command: OsString,
    pub(crate) timeout: Duration,
}

/// The program that these words name.
pub(crate) fn program(words: &[OsString], around: &Surroundings) -> Result<Program, Trouble> {
    program_at(words, around, Site::default())
}

pub(crate) fn program_at(words: &[OsString], around: &Surroundings, site: Site) -> Result<Program, Trouble> {
    let Some(first) = words.first() else {
        return Err(Trouble::config(
            "no command: write it after --, as in: semel run --job backup --once -- ./backup.sh",
        ));
    };
    let path =
        semel_supervise::resolve(first, site.path(around), site.directory.as_deref()).map_err(|why| {
            Trouble::with_code(
                why.exit_code().unwrap_or(126),
                format!("{why}; nothing was run and nothing is on record"),
            )
        })?;
    Ok(Program { path, argv: words.to_vec(), site })
}

/// The mark of a command: its name and a digest, never its arguments.
pub(crate) fn mark(argv: &[OsString]) -> CommandMark {
    let name = Path::new(argv.first().map_or(OsStr::new(""), OsString::as_os_str));
    let name = name.file_name().unwrap_or(name.as_os_str()).to_string_lossy();
    CommandMark::of(&name, argv.iter().map(|argument| argument.as_bytes()))
}

/// What was typed, with the job of `semel.toml` beneath it if one is named.
pub(crate) fn with_file<'a>(
    common: &Common,
    args: &'a RunArgs,
    around: &Surroundings,
) -> Result<Cow<'a, RunArgs>, Trouble> {
    let Some(name) = &args.named else { return Ok(Cow::Borrowed(args)) };
    if !args.command.is_empty() {
        return Err(Trouble::config(format!(
            "job {name} has its command in semel.toml: leave out what follows --, or say --job {name} and everything else by flags"
        )));
    }
    match around.config(common)? {
        Some(config) => Ok(Cow::Owned(config.job(name, args)?)),
        None => Err(Trouble::config(format!("there is no job {name}: {}", around.places(common).words()))),
    }
}

/// Can these arguments of a job go together? Without looking at anything but them.
pub(crate) fn check(args: &RunArgs) -> Result<(), Trouble> {
    let job = name("--job", args.job.as_deref().unwrap_or_default())?;
    // which slot is due, the run finds out
    let is_scheduled = slot::schedule(&args.what)?.is_some();
    let what = WhatArgs {
        slot: is_scheduled.then(|| "due".to_owned()).or_else(|| args.what.slot.clone()),
        ..args.what.clone()
    };
    if what.is_said() {
        planner::check(args, &work(&job, &what, None)?)?;
    }
    let resource = args.resource.as_deref().map_or(Ok(job), |text| name("--resource", text))?;
    resources(resource, &args.or)?;
    let (policy, _) = policy(&args.policy)?;
    slot::check_remember(&args.what, policy.remember_ms)?;
    notify::check(args)?;
    match (&args.payload, args.volatile.is_empty()) {
        (None, false) => Err(volatile_alone()),
        _ => Ok(()),
    }
}

/// `semel run`, resolved; of arguments that have all that the file says.
pub(crate) fn run(common: &Common, args: &RunArgs, around: &Surroundings) -> Result<Run, Trouble> {
    run_at(common, args, around, slot::due(&args.what, around)?)
}

/// The same in another slot than the one that is due.
pub(crate) fn run_in(
    common: &Common,
    args: &RunArgs,
    around: &Surroundings,
    slot: &Slot,
) -> Result<Run, Trouble> {
    let mut other = args.clone();
    other.what =
        WhatArgs { slot: Some(slot.to_string()), with: args.what.with.clone(), ..WhatArgs::default() };
    // what it is for is no part of how it is defined
    let mut run = run_at(common, &other, around, None)?;
    run.plan.definition = definition::of(
        args,
        &name("--job", args.job.as_deref().unwrap_or_default())?,
        &run.plan.resources,
        &run.plan.policy,
        &mark(&run.command.argv),
    );
    Ok(run)
}

fn run_at(common: &Common, args: &RunArgs, around: &Surroundings, due: Option<Due>) -> Result<Run, Trouble> {
    let Some(job) = &args.job else {
        return Err(Trouble::config(
            "no job: name one of semel.toml, as in: semel run backup, or say --job, as in: semel run --job backup --once -- ./backup.sh",
        ));
    };
    let job = name("--job", job)?;
    let site = Site::new(job.as_str(), &args.place, around)?;
    let work = work(&job, &args.what, due.as_ref())?;
    let resource = args.resource.as_deref().map_or(Ok(job), |text| name("--resource", text))?;
    let resources = resources(resource, &args.or)?;
    let (policy, probe) = policy(&args.policy)?;
    slot::check_remember(&args.what, policy.remember_ms)?;
    let notify = notify::resolve(common, args, around)?;
    let payload = payload(args)?;
    let command = program_at(&args.command, around, site)?;
    let fill = args.fill.then(|| Fill::parse(&command, &work)).transpose()?;
    let planned = !args.plan.is_empty() || fill.as_ref().is_some_and(Fill::needs_a_plan);
    let planner = planned.then(|| Planner::resolve(&args.plan, &work)).transpose()?;
    let planner = planner.map(|planner| planner.at(command.site.clone()));
    if let (Some(fill), Some(planner)) = (&fill, &planner) {
        fill.check(planner)?;
    }
    let what = work.to_string();
    let definition = definition::of(args, work.job(), &resources, &policy, &mark(&command.argv));
    let plan = RunPlan {
        work: Some(work),
        what,
        resources,
        policy,
        payload,
        command: Some(mark(&command.argv)),
        definition,
        nested: Some(private_dir(common, around)?.join("run")),
        start_within_ms: due.as_ref().and_then(Due::start_within_ms),
        scheduled: due.as_ref().map(|due| Scheduled { occurrence: due.occurrence(), excuses: Vec::new() }),
        lanes: notify.lanes.iter().map(|lane| lane.name.clone()).collect(),
    };
    Ok(Run { plan, command, probe, skip_code: args.skip_code.unwrap_or(0), due, planner, fill, notify })
}

/// The resources in their order, each once.
pub(crate) fn resources(first: Name, or: &[String]) -> Result<Vec<Name>, Trouble> {
    let mut resources = vec![first];
    for text in or {
        let other = name("--or", text)?;
        if resources.contains(&other) {
            return Err(Trouble::config(format!("--or {text:?} is named twice: leave one out")));
        }
        resources.push(other);
    }
    Ok(resources)
}

/// What makes two runs the same work.
pub(crate) fn work(job: &Name, what: &WhatArgs, due: Option<&Due>) -> Result<Work, Trouble> {
    let WhatArgs { slot, with, key, once, always, .. } = what;
    let job = job.clone();
    let more = due.is_some() || what.is_more();
    if *always && (*once || more) {
        return Err(Trouble::config(
            "--always goes alone: leave out --once, --every, --slot, --with and --key",
        ));
    }
    if *once && more {
        return Err(Trouble::config(
            "--once goes alone: a schedule, a slot, parameters or a key say by themselves what is done once; leave out one or the other",
        ));
    }
    if *always {
        return Ok(Work::always(job));
    }
    if *once {
        return Ok(Work::once(job));
    }
    let slot = slot
        .as_deref()
        .map(|text| Slot::new(text).map_err(|why| Trouble::config(format!("--slot {}: {why}", quoted(text)))))
        .transpose()?
        .or_else(|| due.map(|due| due.tick.slot.clone()));
    let with = params(with)?;
    let made = match (slot, key) {
        (slot, Some(key)) => Work::keyed(job, key, slot, with),
        (Some(slot), None) => Work::in_slot(job, slot, with),
        (None, None) if with.is_empty() => {
            return Err(Trouble::config(
                "what makes two runs the same work? Say --every SCHEDULE (once per day, hour or cron tick), \
                 --once (never again), --slot ID (once per slot), --with K=V (once per parameters), --key K (once per \
                 key) or --always (every time, only never overlapping)",
            ));
        }
        (None, None) => Work::with(job, with),
    };
    made.map_err(|why| {
        let flag = match (why.pointer().as_str(), key) {
            ("/key", Some(key)) => format!("--key {}", quoted(key)),
            (pointer, _) if pointer.starts_with("/with") => "--with".to_owned(),
            _ => "the work".to_owned(),
        };
        Trouble::config(format!("{flag}: {}", why.what()))
    })
}

/// The parameters; or which of them is none, and why.
fn params(words: &[String]) -> Result<Fields, Trouble> {
    let read = |words: &[String]| parse_params(words.iter().map(String::as_str));
    read(words).map_err(|why| {
        // the first that cannot be had together with those before it
        let at = (1..=words.len()).find(|n| read(words.get(..*n).unwrap_or_default()).is_err());
        let given = at.and_then(|n| words.get(n - 1)).map(String::as_str).unwrap_or_default();
        let (given, place, what) = (quoted(given), why.pointer(), why.what());
        Trouble::config(format!("--with {given}: at {place}: {what}; write K=V, or K:=JSON"))
    })
}

/// The policies, checked.
pub(crate) fn policy(args: &PolicyArgs) -> Result<(Policy, Option<Probe>), Trouble> {
    let default = Policy::default();
    let ttl_ms = optional_ms("--ttl", args.ttl.as_ref())?.unwrap_or(default.ttl_ms);
    let kill_after_ms = optional_ms("--kill-after", args.kill_after.as_ref())?
        .unwrap_or_else(|| Policy::default_kill_after_ms(ttl_ms));
    let on_lost = match (args.on_lost, &args.probe) {
        (Some(OnLostArg::Probe), None) => return Err(Trouble::config(PolicyError::NoProbe.to_string())),
        (Some(OnLostArg::Retry | OnLostArg::Hold), Some(_)) => {
            return Err(Trouble::config(
                "--probe is never asked with --on-lost retry or hold: leave one of them out",
            ));
        }
        (Some(OnLostArg::Probe) | None, Some(_)) => OnLost::Probe,
        (Some(OnLostArg::Hold), None) => OnLost::Hold,
        (Some(OnLostArg::Retry) | None, None) => OnLost::Retry,
    };
    let policy = Policy {
        ttl_ms,
        kill_after_ms,
        timeout_ms: optional_ms("--timeout", args.timeout.as_ref())?,
        hold_at_least_ms: optional_ms("--hold-at-least", args.hold_at_least.as_ref())?.unwrap_or(0),
        lock_delay_ms: optional_ms("--lock-delay", args.lock_delay.as_ref())?.unwrap_or(0),
        if_busy: args.if_busy.as_deref().map_or(Ok(default.if_busy), if_busy)?,
        on_lost,
        max_failures: args.max_failures.unwrap_or(default.max_failures),
        retries: args.retries.unwrap_or(default.retries),
        backoff_ms: optional_ms("--backoff", args.backoff.as_ref())?.unwrap_or(default.backoff_ms),
        keep_ms: optional_ms("--keep", args.keep.as_ref())?.unwrap_or(default.keep_ms),
        remember_ms: optional_ms("--remember", args.remember.as_ref())?,
    };
    policy.check().map_err(|why| Trouble::config(why.to_string()))?;
    let timeout_ms = optional_ms("--probe-timeout", args.probe_timeout.as_ref())?.unwrap_or(30_000);
    let probe =
        args.probe.clone().map(|command| Probe { command, timeout: Duration::from_millis(timeout_ms) });
    Ok((policy, probe))
}

/// What to do when busy.
pub(crate) fn if_busy(text: &str) -> Result<IfBusy, Trouble> {
    let wrong = || {
        let given = quoted(text);
        Trouble::config(format!(
            "--if-busy {given}: write skip, wait=DUR (a length of time, as in wait=5m) or fail"
        ))
    };
    match text.split_once('=') {
        None if text == "skip" => Ok(IfBusy::Skip),
        None if text == "fail" => Ok(IfBusy::Fail),
        Some(("wait", length)) => {
            duration_ms("", length).map(|for_ms| IfBusy::Wait { for_ms }).map_err(|_| wrong())
        }
        _ => Err(wrong()),
    }
}

/// A file's content, if it is not larger than it may be.
pub(crate) fn read_bounded(path: &Path, limit: u64) -> Result<Vec<u8>, String> {
    use std::io::Read;
    let file = std::fs::File::open(path).map_err(|why| why.to_string())?;
    let mut bytes = Vec::new();
    file.take(limit + 1).read_to_end(&mut bytes).map_err(|why| why.to_string())?;
    if bytes.len() as u64 > limit { Err(format!("it is larger than {limit} bytes")) } else { Ok(bytes) }
}
