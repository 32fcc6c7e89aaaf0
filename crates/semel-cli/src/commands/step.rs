//! `semel step`: one effect of a run, done once, its output replayed on a retry.

use std::ffi::OsString;
use std::io;
use std::path::Path;
use std::time::Duration;

use clap::Args;
use semel::engine::Probed;
use semel::engine::socket::{Address, Answer, Ask, Client, Kind, Wrote};
use semel_core::claim::First;
use semel_core::entry::{Ending, Output};
use semel_core::name::Name;
use semel_core::policy::{OnLost, PolicyError};
use semel_core::work::Key;
use semel_supervise::{Capture, Exit, Finished, SpawnError, Stream, capture, pass_on};
use serde_json::json;

use crate::args::{Common, OnLostArg};
use crate::neighbours::RUN_VAR;
use crate::nested;
use crate::out::{Voice, when};
use crate::plan::{Probe, Surroundings, duration_ms, mark, name, size};
use crate::script;
use crate::spill::{Spill, Spilled, play};
use crate::task::ask_probe;
use crate::trouble::Trouble;
use crate::{exit, runtime};

/// `semel step`
#[derive(Debug, Args)]
#[command(override_usage = "semel step NAME [OPTIONS] -- CMD...")]
pub(crate) struct StepArgs {
    /// What the step is called: unique in the run, the same on every retry
    pub(crate) name: String,
    /// Which use of the name this is, where one name is used several times
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) nth: u32,
    /// The last attempt vanished: hold (ask a person), retry or probe [default: hold; probe if --probe is given]
    #[arg(long, value_name = "WHAT")]
    pub(crate) on_lost: Option<OnLostArg>,
    /// It may safely happen twice: the same as --on-lost retry
    #[arg(long, conflicts_with_all = ["on_lost", "probe"])]
    pub(crate) idempotent: bool,
    /// A command that tells whether it happened: exit 0 yes, 1 no, else in doubt
    #[arg(long, value_name = "CMD")]
    pub(crate) probe: Option<OsString>,
    /// Longest probe [default: 30s]
    #[arg(long, value_name = "DUR")]
    pub(crate) probe_timeout: Option<String>,
    /// How much output is kept for a replay; past it the step still succeeds, and nothing is kept [default: 16MiB]
    #[arg(long, value_name = "SIZE")]
    pub(crate) output_limit: Option<String>,
    /// The command and its arguments
    #[arg(last = true, value_name = "CMD")]
    pub(crate) command: Vec<OsString>,
}

/// The most output that is kept unless told otherwise.
const OUTPUT_LIMIT: u64 = 16 << 20;

/// A step, resolved.
struct Step<'a> {
    name: Name,
    nth: u32,
    on_lost: OnLost,
    probe: Option<Probe>,
    limit: u64,
    argv: Vec<OsString>,
    voice: Voice,
    around: &'a Surroundings,
}

pub(crate) fn run(common: &Common, args: &StepArgs, around: &Surroundings) -> Result<u8, Trouble> {
    let step = resolve(common, args, around)?;
    let Some(mut client) = nested::connect(around)? else {
        return Err(Trouble::config(format!(
            "semel step {} is not inside a run: it belongs into a script that is started by semel run",
            step.name
        )));
    };
    let ask = Ask::Step {
        name: step.name.clone(),
        nth: step.nth,
        on_lost: step.on_lost,
        command: Some(mark(&step.argv)),
    };
    let answer = match client.ask(&ask, &[]) {
        Ok((Answer::Refused { kind: Kind::Twice, why }, _)) => {
            return Err(Trouble::config(twice(&step.name, why)));
        }
        answered => nested::accepted(answered)?.0,
    };
    let (outcome, code) = match answer {
        Answer::Replay { output, attempt, at_ms } => {
            let name = &step.name;
            step.voice.detail(|| {
                format!("step {name} is done (attempt {attempt}, {}): not run again", when(at_ms))
            });
            ("replayed", step.replay(&mut client, output)?)
        }
        Answer::Would { what } => {
            step.voice.say(&format!("rehearsal: the step {} would {what}", step.name));
            ("rehearsed", 0)
        }
        // the run says so, once, when it ends
        Answer::Person { step: what, state } => {
            step.voice.detail(|| format!("step {what} is not run: it is {state}"));
            ("needs_person", exit::PERSON)
        }
        Answer::Run { key, attempt, first } => step.begin(&mut client, &key, attempt, first)?,
        other => return Err(nested::strange(&other)),
    };
    step.voice.outcome(|| {
        json!({ "kind": "step", "step": step.name, "nth": step.nth, "outcome": outcome, "exit_code": code })
    });
    Ok(code)
}

/// What is wrong, and on which lines of the script.
fn twice(name: &Name, why: String) -> String {
    script::lines_of(name.as_str()).map(|lines| format!("{why}; see {lines}")).unwrap_or(why)
}

fn resolve<'a>(common: &Common, args: &StepArgs, around: &'a Surroundings) -> Result<Step<'a>, Trouble> {
    let on_lost = match (args.on_lost, &args.probe) {
        _ if args.idempotent => OnLost::Retry,
        (Some(OnLostArg::Probe), None) => return Err(Trouble::config(PolicyError::NoProbe.to_string())),
        (Some(OnLostArg::Retry | OnLostArg::Hold), Some(_)) => {
            return Err(Trouble::config(
                "--probe is never asked with --on-lost retry or hold: leave one of them out",
            ));
        }
        (_, Some(_)) => OnLost::Probe,
        (Some(OnLostArg::Retry), None) => OnLost::Retry,
        (Some(OnLostArg::Hold) | None, None) => OnLost::Hold,
    };
    if args.nth == 0 {
        return Err(Trouble::config("--nth counts from 1"));
    }
    let name = name("NAME", &args.name)?;
    if args.command.is_empty() {
        return Err(Trouble::config(format!(
            "no command: write it after --, as in: semel step {name} -- ./{name}.sh"
        )));
    }
    let timeout_ms =
        args.probe_timeout.as_deref().map_or(Ok(30_000), |text| duration_ms("--probe-timeout", text))?;
    Ok(Step {
        name,
        nth: args.nth,
        on_lost,
        probe: args
            .probe
            .clone()
            .map(|command| Probe { command, timeout: Duration::from_millis(timeout_ms) }),
        limit: args.output_limit.as_deref().map_or(Ok(OUTPUT_LIMIT), |text| size("--output-limit", text))?,
        argv: args.command.clone(),
        voice: Voice::new(common),
        around,
    })
}

impl Step<'_> {
    /// The intent is on record: ask the world if need be, do it, record how it ended.
    fn begin(
        &self,
        client: &mut Client,
        key: &Key,
        attempt: u32,
        first: First,
    ) -> Result<(&'static str, u8), Trouble> {
        let env = self.environment(key);
        if first == First::Probe {
            match self.ask_world(&env)? {
                Probed::DidNot => {}
                Probed::Happened => {
                    self.settle(client, Ending::ProbedDone, None, &[])?;
                    self.voice.detail(|| format!("step {}: the probe says that it happened", self.name));
                    return Ok(("probed_done", 0));
                }
                Probed::Unknown(answer) | Probed::NotAsked(answer) => {
                    self.settle(client, Ending::ProbedUnknown { answer }, None, &[])?;
                    return Ok(("needs_person", exit::PERSON));
                }
            }
        }
        let mut spill = Spill::new(self.scratch(), self.limit);
        semel::crash::point("step.begun");
        let finished = match self.execute(env, &mut spill) {
            Ok(finished) => finished,
            Err(why) => {
                let code = why.exit_code().unwrap_or(126);
                self.settle(client, Ending::NotStarted { code: code.into() }, None, &[])?;
                return Err(Trouble::with_code(code, format!("step {}: {why}", self.name)));
            }
        };
        semel::crash::point("step.ended");
        let ending = ending(&finished);
        let kept = self.record(client, ending, spill.end())?;
        semel::crash::point("step.settled");
        let code = u8::try_from(finished.exit.code() & 0xff).unwrap_or(1);
        self.voice.detail(|| format!("step {} ended with {code} (attempt {attempt})", self.name));
        match &finished.undelivered {
            Some(why) if code == 0 => Err(self.undelivered(why, kept)),
            _ => Ok(("ran", code)),
        }
    }

    /// The program is looked for only now: one that is gone is no reason not to replay what it did.
    fn execute(&self, env: Vec<(OsString, OsString)>, spill: &mut Spill) -> Result<Finished, SpawnError> {
        let first = self.argv.first().map(OsString::as_os_str).unwrap_or_default();
        let program = semel_supervise::resolve(first, self.around.get("PATH"), None)?;
        capture(Capture { program, argv: self.argv.clone(), env }, &mut |s, bytes| spill.push(s, bytes))
    }

    /// What reads its stdout would go on with a part of it.
    fn undelivered(&self, why: &io::Error, kept: bool) -> Trouble {
        let next = if kept { "; mend that and run it again: its output is replayed" } else { "" };
        let line =
            format!("step {} is done, but its output could not be written to stdout: {why}{next}", self.name);
        Trouble::with_code(1, line)
    }

    fn environment(&self, key: &Key) -> Vec<(OsString, OsString)> {
        let ours = ["SEMEL_IDEMPOTENCY_KEY", "SEMEL_STEP"];
        let inherited = self.around.all().iter().filter(|(name, _)| ours.iter().all(|our| name != our));
        let mut env: Vec<_> = inherited.cloned().collect();
        env.push((ours[0].into(), key.to_string().into()));
        env.push((ours[1].into(), self.name.to_string().into()));
        env
    }

    /// Where the run keeps its private files.
    fn scratch(&self) -> &Path {
        let address = self.around.get(RUN_VAR).and_then(Address::path_in);
        address.and_then(Path::parent).unwrap_or(Path::new("/tmp"))
    }

    fn ask_world(&self, env: &[(OsString, OsString)]) -> Result<Probed, Trouble> {
        let Some(probe) = &self.probe else { return Ok(Probed::Unknown("there is no probe".into())) };
        Ok(runtime()?.block_on(ask_probe(probe, None, env.to_vec(), "step")))
    }

    /// Keep what it wrote, and how it ended.
    fn record(&self, client: &mut Client, ending: Ending, mut spilled: Spilled) -> Result<bool, Trouble> {
        let sent = spilled.each(
            |piece, bytes| nested::ask(client, &Ask::Keep { piece }, bytes).map(drop),
            |why| Trouble::config(why.to_string()),
        );
        let lost = match (&spilled.lost, sent) {
            (Some(why), _) => Some(why.clone()),
            (None, Err(Trouble { code: exit::STALE, line, .. })) => {
                return Err(Trouble::with_code(exit::STALE, unrecorded(&self.name, &line)));
            }
            (None, Err(why)) => Some(why.line),
            (None, Ok(())) => None,
        };
        if let Some(why) = &lost {
            self.voice.say(&format!(
                "step {}: its output is not kept ({why}): a retry takes it for done and has nothing to replay",
                self.name
            ));
        }
        let kept = lost.is_none();
        let wrote = Wrote {
            pieces: if kept { spilled.pieces() } else { 0 },
            out_bytes: spilled.out_bytes,
            err_bytes: spilled.err_bytes,
            kept,
        };
        let last = if kept { spilled.last() } else { &[] };
        self.settle(client, ending, Some(wrote), last).map(|()| kept)
    }

    fn settle(
        &self,
        client: &mut Client,
        ending: Ending,
        output: Option<Wrote>,
        last: &[u8],
    ) -> Result<(), Trouble> {
        match nested::ask(client, &Ask::Settle { ending, output }, last) {
            Ok((Answer::Settled { .. }, _)) => Ok(()),
            Ok((other, _)) => Err(nested::strange(&other)),
            Err(why) => Err(Trouble::with_code(why.code, unrecorded(&self.name, &why.line))),
        }
    }

    /// Its output, byte for byte.
    fn replay(&self, client: &mut Client, output: Option<Output>) -> Result<u8, Trouble> {
        let not_kept = |why: &str| {
            self.voice.say(&format!("step {} is done, output {why}: there is nothing to replay", self.name));
            Ok(0)
        };
        let Some(output) = output else { return not_kept("not kept") };
        if !output.kept {
            return not_kept("not kept");
        }
        let mut failed = None;
        for piece in 0..output.pieces {
            match nested::ask(client, &Ask::Output { piece }, &[])? {
                (Answer::Piece, bytes) => {
                    let played = play(&bytes, |stream, bytes| match pass_on(stream, bytes) {
                        // a reader that went away is no reason to fail
                        Err(why) if stream == Stream::Out && why.kind() != io::ErrorKind::BrokenPipe => {
                            failed.get_or_insert(why);
                        }
                        _ => {}
                    });
                    if played.is_none() {
                        return not_kept("damaged");
                    }
                }
                (Answer::Missing, _) => return not_kept("expired"),
                (other, _) => return Err(nested::strange(&other)),
            }
        }
        failed.map_or(Ok(0), |why| Err(self.undelivered(&why, true)))
    }
}

fn unrecorded(name: &Name, why: &str) -> String {
    format!("step {name} has run, and how it ended could not be recorded: {why}")
}

fn ending(finished: &Finished) -> Ending {
    match (finished.exit, finished.asked_to_end) {
        (Exit::Code(0), _) => Ending::Succeeded,
        (_, Some(signal)) => Ending::Interrupted { signal },
        (Exit::Code(code), None) => Ending::Failed { code },
        (Exit::Signal(signal), None) => Ending::Killed { signal },
    }
}
