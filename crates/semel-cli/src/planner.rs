//! What a run is to decide, decided before its first attempt: by the key, by the job's history, by a file, by the
//! user's own command. And how it gets into the command's arguments.
//!
//! A plan is made only if the work may be claimed and none is pinned. Whatever is wrong with it is said before
//! anything is claimed (65); only a plan that was pinned earlier can lack a name that the arguments use by now, and
//! then the command is not started (78).

use std::ffi::{OsStr, OsString};
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use semel::engine::{Engine, PlanAsk, Unplanned};
use semel_core::canonical;
use semel_core::fill::{Template, TemplateError, scripts_in};
use semel_core::plan::{self, Choice, PLAN_LIMIT, Plan, Recent};
use semel_core::work::Work;
use semel_supervise::{Exit, Output, Spec, Stdin, Tree};
use serde_json::{Map, Value};
use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe;

use crate::args::RunArgs;
use crate::plan::{Program, Surroundings, quoted, read_bounded};
use crate::site::Site;
use crate::trouble::Trouble;

/// How long a command may take to make a plan.
const COMMAND_TIME: Duration = Duration::from_secs(60);
/// How long after that it is ended even if nobody is there to end it.
const COMMAND_MARGIN: Duration = Duration::from_secs(2);

/// What is to be decided, as typed.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct PlanArgs {
    /// Choose one of these by the work's key: NAME=a,b,c, or NAME:=["a","b"]; may be repeated
    #[arg(long, value_name = "NAME=a,b,c", help_heading = "Plan (made once, the same for every attempt)")]
    pub(crate) choose: Vec<String>,
    /// A field of the results of the job's last N works that are done: NAME=N:FIELD; may be repeated
    #[arg(long, value_name = "NAME=N:FIELD", help_heading = "Plan (made once, the same for every attempt)")]
    pub(crate) recent: Vec<String>,
    /// A file with a JSON object
    #[arg(long, value_name = "FILE", help_heading = "Plan (made once, the same for every attempt)")]
    pub(crate) plan: Option<PathBuf>,
    /// A command that prints a JSON object, within 60s
    #[arg(long, value_name = "CMD", help_heading = "Plan (made once, the same for every attempt)")]
    pub(crate) plan_cmd: Option<OsString>,
}

impl PlanArgs {
    /// The flags that were given.
    fn said(&self) -> Vec<&'static str> {
        let flags = [
            ("--choose", !self.choose.is_empty()),
            ("--recent", !self.recent.is_empty()),
            ("--plan", self.plan.is_some()),
        ];
        flags.into_iter().filter(|(_, said)| *said).map(|(flag, _)| flag).collect()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.choose.is_empty() && self.recent.is_empty() && self.plan.is_none() && self.plan_cmd.is_none()
    }
}

/// How a plan is made, checked.
#[derive(Clone, Debug)]
pub(crate) struct Planner {
    ask: PlanAsk,
    site: Site,
    command: Option<OsString>,
}

impl Planner {
    /// As far as it can be known before the command has spoken.
    pub(crate) fn resolve(args: &PlanArgs, work: &Work) -> Result<Planner, Trouble> {
        if work.is_always() {
            return Err(Trouble::config(
                "a plan is pinned to a work that can be done, and --always has none: use --every, --slot, --with, --key or --once",
            ));
        }
        let choose = all("--choose", &args.choose, Choice::parse)?;
        let recent = all("--recent", &args.recent, Recent::parse)?;
        let given = args.plan.as_ref().map(|path| {
            let wrong =
                |why: String| Trouble::input(format!("--plan {}: {why}; nothing was run", path.display()));
            let unread = |why| wrong(format!("{why}: write the path of a file that can be read"));
            let no_object = |why| wrong(format!("{why}; write a JSON object, as in {{\"topic\": \"rust\"}}"));
            object(&read_bounded(path, PLAN_LIMIT as u64).map_err(unread)?).map_err(no_object)
        });
        let ask = PlanAsk { choose, recent, given: given.transpose()?.unwrap_or_default() };
        ask.check().map_err(|why| Trouble::config(format!("{}: {why}", args.said().join(", "))))?;
        Ok(Planner { ask, command: args.plan_cmd.clone(), site: Site::default() })
    }

    /// Its command runs where the job's does.
    pub(crate) fn at(self, site: Site) -> Planner {
        Planner { site, ..self }
    }

    /// The plan, as it would be made now.
    pub(crate) async fn make(
        &self,
        engine: &Engine,
        work: &Work,
        around: &Surroundings,
    ) -> Result<Plan, Unplanned> {
        let mut plan = engine.make_plan(work, &self.ask).await?;
        if let Some(command) = &self.command {
            let mut env = environment(work, around);
            env.retain(|(name, _)| self.site.env.iter().all(|(own, _)| own != name));
            env.extend(self.site.env.iter().cloned());
            let said = ask_command(command, env, self.site.directory.clone(), COMMAND_TIME).await;
            let members = said.map_err(|why| {
                Unplanned::Wrong(format!(
                    "--plan-cmd: {why}; write one that prints a JSON object and ends with 0"
                ))
            })?;
            for (name, value) in members {
                plan = plan.with(&name, value)?;
            }
        }
        Ok(plan)
    }

    /// Whether a plan of this kind will have this name; of what a command says nothing is known.
    fn may_have(&self, name: &str) -> bool {
        let seeds = ["seed", "seed_hex"];
        self.command.is_some() || seeds.contains(&name) || self.ask.names().any(|known| known == name)
    }
}

/// Can what is said of the plan and of placeholders be had, as far as it is known without the plan's file?
pub(crate) fn check(args: &RunArgs, work: &Work) -> Result<(), Trouble> {
    let known = PlanArgs { plan: None, ..args.plan.clone() };
    let program = Program { path: PathBuf::new(), argv: args.command.clone(), site: Site::default() };
    let fill = args.fill.then(|| Fill::parse(&program, work)).transpose()?;
    let needs_a_plan = fill.as_ref().is_some_and(Fill::needs_a_plan);
    if args.plan.is_empty() && !needs_a_plan {
        return Ok(());
    }
    let planner = Planner::resolve(&known, work)?;
    match fill.filter(|_| args.plan.plan.is_none()) {
        Some(fill) => fill.check(&planner),
        None => Ok(()),
    }
}

fn all<T, E: std::fmt::Display>(
    flag: &str,
    texts: &[String],
    parse: fn(&str) -> Result<T, E>,
) -> Result<Vec<T>, Trouble> {
    let wrong = |text: &str, why: E| Trouble::config(format!("{flag} {}: {why}", quoted(text)));
    texts.iter().map(|text| parse(text).map_err(|why| wrong(text, why))).collect()
}

fn object(bytes: &[u8]) -> Result<Map<String, Value>, String> {
    let text = std::str::from_utf8(bytes).map_err(|_| "it is not UTF-8".to_owned())?;
    match canonical::parse(text) {
        Ok(Value::Object(members)) => Ok(members),
        Ok(_) => Err("it is JSON, but no object".to_owned()),
        Err(why) => Err(format!("it is not JSON: {}", why.to_string().trim_start_matches("JSON: "))),
    }
}

/// What the command that makes a plan is told.
fn environment(work: &Work, around: &Surroundings) -> Vec<(OsString, OsString)> {
    let mut vars: Vec<_> = around.inheritable().cloned().collect();
    let mut set = |name: &str, value: String| vars.push((name.into(), value.into()));
    set("SEMEL_KEY", work.key().to_string());
    set("SEMEL_JOB", work.job().to_string());
    set("SEMEL_SLOT", work.slot().map(ToString::to_string).unwrap_or_default());
    set("SEMEL_SEED", plan::seed(&work.key()).to_string());
    vars
}

/// What the user's own command says. Its stderr is the user's.
async fn ask_command(
    command: &OsStr,
    env: Vec<(OsString, OsString)>,
    directory: Option<PathBuf>,
    within: Duration,
) -> Result<Map<String, Value>, String> {
    let (reader, writer) = std::io::pipe().map_err(|why| why.to_string())?;
    let mut spec = Spec::new("/bin/sh", vec!["sh".into(), "-c".into(), command.to_owned()]);
    spec.env = env;
    spec.cwd = directory;
    spec.stdin = Stdin::Null;
    spec.stdout = Output::Fd(writer.into());
    spec.deadline = semel_supervise::boottime().checked_add(within + COMMAND_MARGIN);
    let mut reader = pipe::Receiver::from_owned_fd(reader.into()).map_err(|why| why.to_string())?;
    let mut tree = Tree::spawn(spec).map_err(|why| why.to_string())?;
    let too_large = || format!("it prints more than {PLAN_LIMIT} bytes");
    let mut said = Vec::new();
    let listening = async {
        let (mut chunk, mut open) = ([0; 4096], true);
        loop {
            tokio::select! {
                read = reader.read(&mut chunk), if open => match read {
                    Ok(0) | Err(_) => open = false,
                    Ok(n) => said.extend_from_slice(chunk.get(..n).unwrap_or_default()),
                },
                ended = tree.wait() => return Ok(ended.exit),
            }
            if said.len() > PLAN_LIMIT {
                return Err(too_large());
            }
        }
    };
    let ended = tokio::time::timeout(within, listening).await;
    if !matches!(ended, Ok(Ok(_))) {
        tree.stop(Duration::from_secs(1)).await;
    }
    tree.finish(Duration::ZERO).await;
    match ended.map_err(|_| format!("no answer within {} ms", within.as_millis()))?? {
        Some(Exit::Code(0)) => {}
        Some(Exit::Code(code)) => return Err(format!("it ended with {code}")),
        Some(Exit::Signal(signal)) => return Err(format!("it was ended by signal {signal}")),
        None => return Err("it vanished".to_owned()),
    }
    // What it wrote just before its end is still in the pipe. Whoever escaped may hold the other end, so nobody waits
    // for that to close; and the runtime may not have heard of those bytes yet, so they are read without it.
    let rest = reader.into_nonblocking_fd().map_err(|why| why.to_string())?;
    let room = (PLAN_LIMIT + 1).saturating_sub(said.len()) as u64;
    match std::fs::File::from(rest).take(room).read_to_end(&mut said) {
        Err(why) if why.kind() != std::io::ErrorKind::WouldBlock => return Err(why.to_string()),
        _ if said.len() > PLAN_LIMIT => return Err(too_large()),
        _ => {}
    }
    object(&said)
}

/// Arguments with placeholders.
#[derive(Clone, Debug)]
pub(crate) struct Fill {
    /// One per argument, the program's own name left out.
    arguments: Vec<Argument>,
}

#[derive(Clone, Debug)]
enum Argument {
    AsItIs(OsString),
    Template(Template),
}

impl Fill {
    /// The placeholders of these arguments, each known to be one, and known to the work.
    pub(crate) fn parse(program: &Program, work: &Work) -> Result<Fill, Trouble> {
        let scripts = scripts_in(program.argv.iter().map(|word| word.as_bytes()));
        let argument = |(at, word): (usize, &OsString)| {
            let wrong = |why: String| Trouble::config(format!("--fill: argument {at}: {why}"));
            if !word.as_bytes().iter().any(|byte| matches!(byte, b'{' | b'}')) {
                return Ok(Argument::AsItIs(word.clone()));
            }
            let text = word.to_str().ok_or_else(|| wrong("it has braces and is not UTF-8".to_owned()))?;
            let template = Template::parse(text).map_err(|why| wrong(why.to_string()))?;
            template.check(work).map_err(|why| wrong(why.to_string()))?;
            if template.has_placeholders() && scripts.contains(&at) {
                return Err(wrong(TemplateError::InScript.to_string()));
            }
            Ok(Argument::Template(template))
        };
        let arguments = program.argv.iter().enumerate().skip(1).map(argument).collect::<Result<_, _>>()?;
        Ok(Fill { arguments })
    }

    fn planned(&self) -> impl Iterator<Item = &str> {
        self.arguments.iter().flat_map(|argument| match argument {
            Argument::Template(template) => Some(template.planned()).into_iter().flatten(),
            Argument::AsItIs(_) => None.into_iter().flatten(),
        })
    }

    /// Does it need a plan?
    pub(crate) fn needs_a_plan(&self) -> bool {
        self.planned().next().is_some()
    }

    /// Whether the plan may have what is asked of it.
    pub(crate) fn check(&self, planner: &Planner) -> Result<(), Trouble> {
        match self.planned().find(|name| !planner.may_have(name)) {
            Some(name) => Err(Trouble::config(format!(
                "--fill: {{plan.{name}}}: the plan will have no {name}: give it with --choose, --recent, --plan or --plan-cmd"
            ))),
            None => Ok(()),
        }
    }

    /// The words of the command.
    pub(crate) fn argv(
        &self,
        program: &Program,
        work: &Work,
        plan: Option<&Plan>,
    ) -> Result<Vec<OsString>, TemplateError> {
        let mut argv: Vec<OsString> = program.argv.iter().take(1).cloned().collect();
        for argument in &self.arguments {
            argv.push(match argument {
                Argument::AsItIs(word) => word.clone(),
                Argument::Template(template) => template.fill(work, plan)?.into(),
            });
        }
        Ok(argv)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[tokio::test(flavor = "current_thread")]
    async fn a_command_that_does_not_answer_in_time_is_ended() {
        let asked = semel_supervise::boottime();
        let late = OsStr::new("trap '' TERM; echo '{}'; sleep 300");
        let answer = ask_command(late, Vec::new(), None, Duration::from_millis(200)).await;
        assert_eq!(answer.unwrap_err(), "no answer within 200 ms");
        assert!(semel_supervise::boottime() - asked < Duration::from_secs(20));
        let large = OsStr::new("head -c 65536 /dev/zero | tr '\\0' ' '; echo '{}'");
        assert!(ask_command(large, Vec::new(), None, COMMAND_TIME).await.unwrap_err().contains("more than"));
        let full = OsStr::new("head -c 65533 /dev/zero | tr '\\0' ' '; echo '{}'");
        assert_eq!(ask_command(full, Vec::new(), None, COMMAND_TIME).await, Ok(Map::new()));
    }
}
