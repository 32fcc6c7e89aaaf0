//! `semel`: arguments → plan → command → exit code.

mod args;
mod away;
mod batch;
mod chance;
#[cfg(feature = "crash-points")]
mod clock;
mod commands;
mod config;
mod definition;
mod exit;
mod heap;
mod interrupt;
mod neighbours;
mod nested;
mod notify;
mod out;
mod payload;
mod plan;
mod planner;
mod scratch;
mod script;
mod site;
mod slot;
mod spill;
mod surroundings;
mod table;
mod task;
mod trouble;

use std::process::ExitCode;
use std::sync::OnceLock;

use clap::error::ErrorKind;
use tokio::runtime::Runtime;

use crate::args::{Cli, Command};
use crate::out::Voice;
use crate::plan::Surroundings;
use crate::trouble::Trouble;

fn main() -> ExitCode {
    heap::warm();
    semel_supervise::outlive_file_limit();
    let cli = match Cli::read(std::env::args_os().collect()) {
        Ok(cli) => cli,
        Err(why) => return usage(&why),
    };
    let around = Surroundings::read();
    let Cli { common, command } = cli;
    let code = match &command {
        Command::Run(args) => commands::run::run(&common, args, &around),
        Command::Backfill(args) => commands::backfill::run(&common, args, &around),
        Command::Batch(args) => commands::batch::run(&common, args, &around),
        Command::Step(args) => commands::step::run(&common, args, &around),
        Command::Gate(args) => commands::gate::run(&common, args, &around),
        Command::Write(args) => commands::write::run(&common, args, &around),
        Command::Push(args) => commands::push::run(&common, args, &around),
        Command::Plan(args) => commands::plan::run(&common, args, &around),
        Command::CommitTrailer(args) => commands::commit_trailer::run(&common, args, &around),
        Command::Fence(command) => commands::fence::run(&common, command, &around),
        Command::Lease(command) => commands::lease::run(&common, command, &around),
        Command::Demo(args) => commands::demo::run(&common, args),
        Command::Torture(command) => commands::torture::run(&common, command, &around),
        Command::Chaos(args) => commands::chaos::run(&common, args, &around),
        Command::Jobs => commands::jobs::run(&common, &around),
        Command::Config(command) => commands::config::run(&common, command, &around),
        Command::Check(args) => commands::check::run(&common, args, &around),
        Command::Init(args) => commands::init::run(&common, args, &around),
        Command::Status => commands::status::run(&common, &around),
        Command::Ls(args) => commands::ls::run(&common, args, &around),
        Command::Show(args) => commands::show::run(&common, args, &around),
        Command::Why(args) => commands::why::run(&common, args, &around),
        Command::History(args) => commands::history::run(&common, args, &around),
        Command::Advise(args) => commands::advise::run(&common, args, &around),
        Command::Resolve(args) => commands::resolve::run(&common, args, &around),
        Command::Retry(args) => commands::retry::run(&common, args, &around),
        Command::Gc(args) => commands::gc::run(&common, args, &around),
        Command::Doctor(args) => commands::doctor::run(&common, args, &around),
        Command::Store(command) => commands::store::run(&common, command, &around),
        Command::Completions { shell } => Ok(commands::completions::run(*shell)),
        Command::Man => commands::man::run(),
    };
    match code {
        Ok(code) => ExitCode::from(code),
        Err(Trouble { code, line, more }) => {
            let voice = Voice::new(&common);
            if common.json {
                voice.outcome(|| serde_json::json!({ "kind": "outcome", "outcome": "error", "exit_code": code, "why": line, "more": more }));
            } else {
                voice.say(&line);
                more.iter().for_each(|line| voice.say(line));
            }
            ExitCode::from(code)
        }
    }
}

/// Help and version are answers; anything else on a command line that cannot be read is wrong configuration.
fn usage(why: &clap::Error) -> ExitCode {
    // a closed terminal is no reason to fail
    let _ = why.print();
    match why.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => ExitCode::SUCCESS,
        _ => ExitCode::from(exit::CONFIG),
    }
}

/// One thread: it also spawns the command, whose death signal would fire if the spawning thread ended. One for the whole
/// process: a store's connection lives in the runtime that made it.
pub(crate) fn runtime() -> Result<&'static Runtime, Trouble> {
    static RUNTIME: OnceLock<Runtime> = OnceLock::new();
    if let Some(runtime) = RUNTIME.get() {
        return Ok(runtime);
    }
    let built = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let built = built.map_err(|why| Trouble::config(format!("cannot start: {why}")))?;
    Ok(RUNTIME.get_or_init(|| built))
}
