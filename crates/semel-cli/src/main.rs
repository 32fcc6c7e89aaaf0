//! `semel`: arguments → plan → command → exit code.

#![cfg_attr(not(test), no_main)]

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
mod start;
mod surroundings;
mod table;
mod task;
mod trouble;

use std::ffi::OsString;
use std::sync::OnceLock;

use clap::error::ErrorKind;
use tokio::runtime::Runtime;

use crate::args::{Cli, Command};
use crate::out::Voice;
use crate::plan::Surroundings;
use crate::trouble::Trouble;

/// The entry that the linker looks for. Rust's own start-up, which this takes the place of, reads `/proc/self/maps` and
/// makes a stack for a handler that says "stack overflow": a process that lives for milliseconds has no use for that. What
/// else it does is done here.
#[cfg(not(test))]
#[unsafe(no_mangle)]
extern "C" fn main(argc: i32, argv: *const *const std::ffi::c_char) -> i32 {
    start::prepare();
    start::warm();
    // SAFETY: what C's start-up was given by the kernel.
    let words = unsafe { start::words(argc, argv) };
    // nothing may unwind into C; the released build does not unwind at all
    let code = std::panic::catch_unwind(|| semel(words)).unwrap_or(start::PANICKED);
    // standard output goes by lines, and the last may have no end
    let _ = std::io::Write::flush(&mut std::io::stdout());
    i32::from(code)
}

#[cfg(test)]
fn main() {
    start::prepare();
    start::warm();
    // SAFETY: there are no words.
    semel(unsafe { start::words(0, std::ptr::null()) });
    let _ = start::PANICKED;
}

fn semel(words: Vec<OsString>) -> u8 {
    semel_supervise::outlive_file_limit();
    let cli = match Cli::read(words) {
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
        Ok(code) => code,
        Err(Trouble { code, line, more }) => {
            let voice = Voice::new(&common);
            if common.json {
                voice.outcome(|| serde_json::json!({ "kind": "outcome", "outcome": "error", "exit_code": code, "why": line, "more": more }));
            } else {
                voice.say(&line);
                more.iter().for_each(|line| voice.say(line));
            }
            code
        }
    }
}

/// Help and version are answers; anything else on a command line that cannot be read is wrong configuration.
fn usage(why: &clap::Error) -> u8 {
    // a closed terminal is no reason to fail
    let _ = why.print();
    match why.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => 0,
        _ => exit::CONFIG,
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
