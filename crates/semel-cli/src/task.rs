//! A command as the engine's task: started in a tree of its own, with what it is told in its environment.

use std::ffi::OsString;
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use semel::clock::Moment;
use semel::engine::desk::Desk;
use semel::engine::socket::Address;
use semel::engine::{Begin, Caught, Engine, NotStarted, Probed, Task, TaskEnd, Unplanned};
use semel_core::canonical;
use semel_core::entry::RESULT_LIMIT;
use semel_core::plan::{Plan, seed};
use semel_core::token::Nonce;
use semel_core::work::{Key, Work};
use semel_supervise::{Contain, Ended, Exit, Keepers, Output, Ready, SpawnError, Spec, Stdin, Tree};
use serde_json::Value;

use crate::batch::files::{ItemFile, ItemFiles};
use crate::exit;
use crate::neighbours::RUN_VAR;
use crate::out::Voice;
use crate::plan::{Probe, Program, Surroundings, read_bounded};
use crate::planner::{Fill, Planner};

/// How long after its time a probe is ended even if nobody is there to end it.
const PROBE_MARGIN: Duration = Duration::from_secs(2);

/// What is behind a run's nonce in the name of the file for its result.
pub(crate) const RESULT_SUFFIX: &str = ".json";
/// And of the file with its plan.
pub(crate) const PLAN_SUFFIX: &str = ".plan";
/// And of the file with its item.
pub(crate) const ITEM_SUFFIX: &str = ".item";
/// How much of an item's key is in the names of its files.
const ITEM_DIGITS: usize = 32;

/// The command of a run.
pub(crate) struct CommandTask<'a> {
    command: Program,
    probe: Option<Probe>,
    around: &'a Surroundings,
    /// Where this run's private files are made.
    runs: PathBuf,
    voice: Voice,
    /// What runs, or has ended and is still to be cleared.
    /// A keeper that waits for the first try.
    ready: Option<Ready>,
    tree: Option<Tree>,
    /// Its keeper was killed before it said whether it started.
    is_lost: bool,
    /// Nothing may go on after that, whatever happens to this process.
    deadline: Option<Duration>,
    result: Option<RunFile>,
    plan: Option<RunFile>,
    planner: Option<Planner>,
    fill: Option<Fill>,
    /// How the commands inside the run reach it.
    address: Option<OsString>,
    /// Nothing is held: no token is told.
    rehearsal: bool,
    /// The item of a batch, if it is one.
    item: Option<ItemText>,
    item_file: Option<ItemFile>,
}

/// An item of a batch, as its command is told.
struct ItemText {
    /// What its files are called, besides the nonce that all items of a runner share.
    name: String,
    text: Vec<u8>,
    stdin: bool,
    keepers: Keepers,
    files: ItemFiles,
}

/// A private file of a run, removed when this is dropped: in which its result is looked for (it is the command that
/// makes it), or which holds its plan.
#[derive(Debug)]
pub(crate) struct RunFile {
    path: PathBuf,
    /// Nothing can be there: nobody has been told of it, or it was looked at and nobody is left who could make it.
    is_absent: bool,
}

impl RunFile {
    /// In the directory for the files of all runs, which is made if there is none.
    fn new(runs: &Path, nonce: &Nonce, suffix: &str) -> std::io::Result<RunFile> {
        match std::fs::DirBuilder::new().mode(0o700).create(runs) {
            Err(why) if why.kind() == std::io::ErrorKind::NotFound => make_folder(runs)?,
            Err(why) if why.kind() == std::io::ErrorKind::AlreadyExists => {}
            made => made?,
        }
        Ok(RunFile::named(runs, nonce, suffix))
    }

    /// Where that directory is made when the first file is written.
    pub(crate) fn named(runs: &Path, nonce: &Nonce, suffix: &str) -> RunFile {
        RunFile { path: runs.join(format!("{nonce}{suffix}")), is_absent: false }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Make it, with this in it.
    pub(crate) fn write(&mut self, text: &[u8]) -> std::io::Result<std::fs::File> {
        let mut options = std::fs::OpenOptions::new();
        options.write(true).create_new(true).mode(0o600);
        let opened = options.open(&self.path).or_else(|why| {
            match why.kind() {
                std::io::ErrorKind::NotFound => make_folder(self.path.parent().unwrap_or(Path::new("/")))?,
                _ => self.clear()?,
            }
            options.open(&self.path)
        });
        self.is_absent = false;
        let mut file = opened?;
        file.write_all(text).map(|()| file)
    }

    /// Before every try: what a failed one left behind is not the result of the next.
    fn clear(&self) -> std::io::Result<()> {
        let removed = std::fs::remove_file(&self.path).or_else(|why| match why.kind() {
            // a command may make anything there, a directory too
            std::io::ErrorKind::IsADirectory => std::fs::remove_dir_all(&self.path),
            _ => Err(why),
        });
        match removed {
            Err(why) if why.kind() == std::io::ErrorKind::NotFound => Ok(()),
            removed => removed,
        }
    }
}

fn make_folder(runs: &Path) -> std::io::Result<()> {
    std::fs::DirBuilder::new().mode(0o700).recursive(true).create(runs)
}

impl Drop for RunFile {
    fn drop(&mut self) {
        if !self.is_absent {
            // left for `gc` if it cannot be removed now
            let _ = self.clear();
        }
    }
}

impl<'a> CommandTask<'a> {
    pub(crate) fn new(
        command: Program,
        probe: Option<Probe>,
        around: &'a Surroundings,
        state_dir: &Path,
        voice: Voice,
    ) -> CommandTask<'a> {
        let runs = state_dir.join("run");
        CommandTask {
            command,
            probe,
            around,
            runs,
            voice,
            ready: None,
            tree: None,
            is_lost: false,
            deadline: None,
            result: None,
            plan: None,
            planner: None,
            fill: None,
            address: None,
            rehearsal: false,
            item: None,
            item_file: None,
        }
    }

    /// Say what went wrong with it.
    pub(crate) fn say(&self, why: &str) {
        self.voice.say(why);
    }

    /// Of an item of a batch, whose items have these keepers and files in turn.
    pub(crate) fn for_item(
        self,
        key: &Key,
        text: Vec<u8>,
        stdin: bool,
        (keepers, files): (Keepers, ItemFiles),
    ) -> CommandTask<'a> {
        let name = key.to_string().chars().take(ITEM_DIGITS).collect();
        CommandTask { item: Some(ItemText { name, text, stdin, keepers, files }), ..self }
    }

    /// How a private file of this run ends.
    fn ending(&self, suffix: &str) -> String {
        self.item.as_ref().map_or_else(|| suffix.to_owned(), |item| format!("-{}{suffix}", item.name))
    }

    /// The file with the item, anew for every try.
    fn lay_out_item(&mut self, begin: &Begin) -> std::io::Result<()> {
        let Some(item) = &self.item else { return Ok(()) };
        self.item_file = Some(match self.item_file.take() {
            Some(file) => file.again(&item.text)?,
            None => item.files.lay_out(&self.runs, &begin.grant.nonce, &item.text)?,
        });
        Ok(())
    }

    /// What the command reads.
    fn stdin(&self) -> std::io::Result<Stdin> {
        match (&self.item, &self.item_file) {
            (None, _) => Ok(Stdin::Auto),
            (Some(item), Some(file)) if item.stdin => Ok(Stdin::Fd(std::fs::File::open(file.path())?.into())),
            // the input of the batch is not the items' to read
            (Some(_), _) => Ok(Stdin::Null),
        }
    }

    /// With a plan, and its arguments filled.
    pub(crate) fn planned(self, planner: Option<Planner>, fill: Option<Fill>) -> CommandTask<'a> {
        CommandTask { planner, fill, ..self }
    }

    /// The file with the plan, anew for every try: what one wrote into it is not the plan of the next.
    fn lay_out_plan(&mut self, begin: &Begin) -> std::io::Result<()> {
        let Some(plan) = &begin.plan else { return Ok(()) };
        let mut file = match self.plan.take() {
            Some(file) => file,
            None => RunFile::new(&self.runs, &begin.grant.nonce, &self.ending(PLAN_SUFFIX))?,
        };
        file.write(format!("{plan}\n").as_bytes())?;
        self.plan = Some(file);
        Ok(())
    }

    /// The words of the command, their placeholders filled.
    fn argv(&self, begin: &Begin) -> Result<Vec<OsString>, NotStarted> {
        let (Some(fill), Some(work)) = (&self.fill, &begin.work) else {
            return Ok(self.command.argv.clone());
        };
        fill.argv(&self.command, work, begin.plan.as_ref()).map_err(|why| NotStarted {
            code: exit::CONFIG.into(),
            why: format!("{why}: it was pinned with the first claim, and stays as it is"),
            of_machine: false,
        })
    }

    /// What the command is told, on top of what it inherits.
    fn environment(&self, begin: &Begin) -> Vec<(OsString, OsString)> {
        let mut vars: Vec<_> = self.around.inheritable().cloned().collect();
        let own = &self.command.site.env;
        vars.retain(|(name, _)| own.iter().all(|(own, _)| own != name));
        vars.extend_from_slice(own);
        let mut held: Vec<String> = self.around.held().iter().map(|(r, t)| format!("{r}={t}")).collect();
        if !self.rehearsal {
            held.extend(begin.within.iter().map(|(around, grant)| format!("{around}={}", grant.token)));
            held.push(format!("{}={}", begin.resource, begin.grant.token));
        }
        vars.retain(|(name, _)| name != "SEMEL_HELD");
        let mut set = |name: &str, value: String| vars.push((name.into(), value.into()));
        set("SEMEL_RESOURCE", begin.resource.to_string());
        if self.rehearsal {
            set("SEMEL_REHEARSAL", "1".to_owned());
        } else {
            set("SEMEL_TOKEN", begin.grant.token.to_string());
            set("SEMEL_NONCE", begin.grant.nonce.to_string());
        }
        set("SEMEL_HELD", held.join(","));
        if let Some(work) = &begin.work {
            set("SEMEL_KEY", work.key().to_string());
            set("SEMEL_JOB", work.job().to_string());
            set("SEMEL_SLOT", work.slot().map(ToString::to_string).unwrap_or_default());
            set("SEMEL_ATTEMPT", begin.attempt.to_string());
            let pinned = begin.plan.as_ref().and_then(Plan::seed);
            set("SEMEL_SEED", pinned.unwrap_or_else(|| seed(&work.key())).to_string());
        }
        let run = self.address.clone().unwrap_or_else(|| begin.grant.nonce.to_string().into());
        vars.push((RUN_VAR.into(), run));
        if let Some(result) = &self.result {
            vars.push(("SEMEL_RESULT".into(), result.path.clone().into()));
        }
        if let Some(plan) = &self.plan {
            vars.push(("SEMEL_PLAN".into(), plan.path.clone().into()));
        }
        if let Some(item) = &self.item_file {
            vars.push(("SEMEL_ITEM".into(), item.path().into()));
        }
        vars
    }

    fn tree(&mut self) -> Option<&mut Tree> {
        self.tree.as_mut()
    }
}

/// What a command left as its result; none if there is no such file. Only a regular file is read: a pipe would keep us waiting for ever.
fn read_result(path: &Path) -> Result<Option<Vec<u8>>, String> {
    if std::fs::symlink_metadata(path).is_err_and(|why| why.kind() == std::io::ErrorKind::NotFound) {
        return Ok(None);
    }
    let found = std::fs::metadata(path).map_err(|why| why.to_string())?;
    if !found.is_file() {
        return Err(if found.is_dir() { "it is a directory" } else { "it is no regular file" }.into());
    }
    read_bounded(path, RESULT_LIMIT as u64).map(Some)
}

fn end(ended: Ended) -> TaskEnd {
    match ended.exit {
        Some(Exit::Code(code)) => TaskEnd::Exited(code),
        Some(Exit::Signal(signal)) => TaskEnd::Killed(signal),
        // the keeper died and took the answer with it: the command was killed, and nothing else is known
        None => TaskEnd::Killed(libc::SIGKILL),
    }
}

fn not_started(why: &SpawnError) -> NotStarted {
    let of_machine = match why {
        // a word that no command can be given, a folder that is not there
        SpawnError::System { call, .. } => !matches!(*call, "arguments" | "chdir"),
        SpawnError::CannotExecute { source, .. } => source.raw_os_error().is_some_and(is_short),
        SpawnError::TooLate => true,
        SpawnError::NotFound { .. } | SpawnError::KeeperDied => false,
    };
    NotStarted { code: why.exit_code().map_or(126, i32::from), why: why.to_string(), of_machine }
}

/// Does the system say that it has none left of something?
fn is_short(errno: i32) -> bool {
    matches!(errno, libc::EAGAIN | libc::ENOMEM | libc::EMFILE | libc::ENFILE | libc::EIO)
}

/// What the command needs cannot be laid out for it.
fn no_room(what: &str) -> impl Fn(std::io::Error) -> NotStarted {
    move |why| NotStarted { code: 126, why: format!("cannot {what}: {why}"), of_machine: true }
}

impl Task for CommandTask<'_> {
    async fn plan(&mut self, engine: &Engine, work: &Work) -> Result<Option<Plan>, Unplanned> {
        let Some(planner) = &self.planner else { return Ok(None) };
        let plan = planner.make(engine, work, self.around).await?;
        if let Some(fill) = &self.fill {
            // before anything is claimed
            let filled = fill.argv(&self.command, work, Some(&plan));
            filled.map_err(|why| Unplanned::Wrong(format!("--fill: {why}")))?;
        }
        Ok(Some(plan))
    }

    fn make_ready(&mut self, nonce: &Nonce) {
        // items have keepers that stay
        if self.ready.is_none() && self.item.is_none() {
            let mut blank = Spec::new("", Vec::new());
            blank.tag = nonce.to_string();
            // one that could not be made is made with the command, and what is wrong is said then
            self.ready = Ready::new(blank).ok();
        }
    }

    async fn start(&mut self, begin: &Begin, desk: &Arc<Desk>) -> Result<(), NotStarted> {
        self.address = desk.address().map(Address::to_text);
        self.rehearsal = desk.is_rehearsal();
        if let Some(result) = &self.result {
            // if it cannot be removed, it is looked at: what it says is said
            let _ = result.clear();
        } else if begin.work.is_some() {
            let (nonce, ending) = (&begin.grant.nonce, self.ending(RESULT_SUFFIX));
            let result = match self.item {
                // the item is laid out beside it
                Some(_) => Ok(RunFile::named(&self.runs, nonce, &ending)),
                None => RunFile::new(&self.runs, nonce, &ending),
            };
            self.result = Some(result.map_err(no_room(&format!("make {}", self.runs.display())))?);
        }
        self.lay_out_plan(begin).map_err(no_room("write the plan"))?;
        self.lay_out_item(begin).map_err(no_room("write the item"))?;
        let mut spec = Spec::new(&self.command.path, self.argv(begin)?);
        spec.stdin = self.stdin().map_err(no_room("read the item"))?;
        spec.env = self.environment(begin);
        spec.cwd.clone_from(&self.command.site.directory);
        spec.tag = begin.grant.nonce.to_string();
        spec.deadline = self.deadline;
        let tree = match &self.item {
            // others are under way meanwhile
            Some(item) => item.keepers.start(spec).await,
            None => match self.ready.take() {
                Some(ready) => ready.spawn(spec),
                None => Tree::spawn(spec),
            },
        };
        // nobody knows whether it ran: that is no start that failed, but a command that was killed
        self.is_lost = matches!(tree, Err(SpawnError::KeeperDied));
        if self.is_lost {
            return Ok(());
        }
        let tree = tree.map_err(|why| not_started(&why))?;
        self.voice.detail(|| {
            format!("pid {} started, its tree held by {}", tree.pid(), tree.containment().as_str())
        });
        self.tree = Some(tree);
        Ok(())
    }

    fn trust_until(&mut self, moment: Moment) {
        self.deadline = Some(moment.as_since_boot());
        if let Some(tree) = &self.tree {
            // a keeper that is gone is found out by `ended`
            let _ = tree.set_deadline(self.deadline);
        }
    }

    async fn ended(&mut self) -> TaskEnd {
        match self.tree.as_mut() {
            Some(tree) => end(tree.wait().await),
            None if self.is_lost => TaskEnd::Killed(libc::SIGKILL),
            None => std::future::pending().await,
        }
    }

    fn signal(&mut self, caught: Caught) {
        if let Some(tree) = self.tree() {
            // what the terminal sent to the whole foreground group has reached the command already
            if !(caught.from_terminal && tree.shares_terminal()) {
                let _ = tree.signal(caught.signal);
            }
        }
    }

    async fn stop(&mut self, grace: Duration) -> TaskEnd {
        match self.tree() {
            Some(tree) => end(tree.stop(grace).await),
            None => TaskEnd::Killed(libc::SIGKILL),
        }
    }

    async fn clear(&mut self, grace: Duration) -> usize {
        match self.tree.take() {
            Some(tree) => usize::try_from(tree.finish(grace).await.count).unwrap_or(usize::MAX),
            None => 0,
        }
    }

    fn result(&mut self) -> Option<Value> {
        let file = self.result.as_mut()?;
        let kept = read_result(&file.path).and_then(|bytes| match bytes {
            None => {
                // the tree is gone: nobody makes it any more
                file.is_absent = true;
                Ok(None)
            }
            Some(bytes) if bytes.is_empty() => Ok(None),
            Some(bytes) => {
                let text = std::str::from_utf8(&bytes).map_err(|_| "it is not UTF-8".to_owned())?;
                canonical::parse(text).map(Some).map_err(|why| format!("it is not JSON: {why}"))
            }
        });
        kept.unwrap_or_else(|why| {
            self.voice.say(&format!("SEMEL_RESULT was not kept: {why}; the work itself is done"));
            None
        })
    }

    async fn probe(&mut self, begin: &Begin) -> Probed {
        if let Err(why) = self.lay_out_plan(begin) {
            return Probed::NotAsked(format!("the probe was not asked: cannot write the plan: {why}"));
        }
        if let Err(why) = self.lay_out_item(begin) {
            return Probed::NotAsked(format!("the probe was not asked: cannot write the item: {why}"));
        }
        match &self.probe {
            Some(probe) => {
                let directory = self.command.site.directory.as_deref();
                ask_probe(probe, directory, self.environment(begin), &begin.grant.nonce.to_string()).await
            }
            None => Probed::Unknown("there is no probe".into()),
        }
    }
}

/// Ask the world, by the user's own command.
pub(crate) async fn ask_probe(
    probe: &Probe,
    directory: Option<&Path>,
    env: Vec<(OsString, OsString)>,
    tag: &str,
) -> Probed {
    let mut spec = Spec::new("/bin/sh", vec!["sh".into(), "-c".into(), probe.command.clone()]);
    spec.env = env;
    spec.cwd = directory.map(Path::to_owned);
    spec.tag = tag.to_owned();
    // a question may outlive a lease, but not its own time, even if this process stalls
    spec.deadline = semel_supervise::boottime().checked_add(probe.timeout + PROBE_MARGIN);
    spec.stdin = Stdin::Null;
    spec.stdout = Output::Null;
    spec.contain = Contain::Auto;
    let mut tree = match Tree::spawn(spec) {
        Ok(tree) => tree,
        Err(why) if not_started(&why).of_machine => {
            return Probed::NotAsked(format!("the probe did not start: {why}"));
        }
        Err(why) => return Probed::Unknown(format!("the probe did not start: {why}")),
    };
    let answer = tokio::time::timeout(probe.timeout, tree.wait()).await;
    if answer.is_err() {
        tree.stop(Duration::from_secs(1).min(probe.timeout)).await;
    }
    tree.finish(Duration::ZERO).await;
    match answer.map(|ended| ended.exit) {
        Ok(Some(Exit::Code(0))) => Probed::Happened,
        Ok(Some(Exit::Code(1))) => Probed::DidNot,
        Ok(Some(Exit::Code(code))) => Probed::Unknown(format!("the probe answered {code}")),
        Ok(Some(Exit::Signal(signal))) => Probed::Unknown(format!("the probe was ended by signal {signal}")),
        Ok(None) => Probed::Unknown("the probe vanished".into()),
        Err(_) => {
            Probed::Unknown(format!("the probe gave no answer within {} ms", probe.timeout.as_millis()))
        }
    }
}

/// The signals of this process, as the engine takes them.
pub(crate) struct ProcessSignals(pub(crate) semel_supervise::Signals);

impl semel::engine::Signals for ProcessSignals {
    async fn next(&mut self) -> Caught {
        let caught = self.0.next().await;
        Caught {
            signal: caught.signo,
            from_terminal: caught.from_terminal,
            ends: caught.signo == libc::SIGTERM,
        }
    }
}
