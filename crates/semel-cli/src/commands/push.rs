//! `semel push`: fenced, atomic git push.

use std::io::IsTerminal;

use clap::Args;
use semel::sink::git::{
    EffectId, GitProgram, GitSink, GitSinkError, Landed, Lease, PushOptions, Pushed, Refspec, Remote, mask,
    upstream,
};
use semel_core::work::Work;
use serde_json::{Value, json};

use crate::args::Common;
use crate::exit;
use crate::nested::{Authority, AuthorityArgs, authority};
use crate::out::Voice;
use crate::plan::Surroundings;
use crate::trouble::Trouble;

/// `semel push`
#[derive(Debug, Args)]
#[command(
    override_usage = "semel push [OPTIONS] [REMOTE [REFSPEC]...]",
    after_help = "A commit is known as this run's by its trailer. Make it with: git commit --trailer \"$(semel commit-trailer)\"\n\
\n\
Exit codes: 0 pushed, or there already from an earlier attempt; 75 overtaken again and again under the same lease, or a lock stayed on the remote; \
77 the token is stale, nothing was pushed; 78 wrong usage, no trailer, or a remote that cannot be fenced; \
79 the fence is damaged; 1 git, a hook or the remote refused it, or whether it arrived is unknown (push again: \
it will not land twice)."
)]
pub(crate) struct PushArgs {
    /// A remote's name, or an address [default: as for git push]
    #[arg(value_name = "REMOTE")]
    remote: Option<String>,
    /// BRANCH, TAG or SRC:DST; all of them or none [default: the current branch]
    #[arg(value_name = "REFSPEC")]
    refspecs: Vec<String>,
    /// What the pushed commits are known by [default: the step's or the run's key]
    #[arg(long, value_name = "ID")]
    effect_id: Option<String>,
    /// Let REF be rewritten, if it is OLD; may be repeated
    #[arg(long, value_name = "REF:OLD", num_args = 0..=1, require_equals = true, default_missing_value = "")]
    force_with_lease: Vec<String>,
    /// Passed on to the remote's hooks; may be repeated
    #[arg(short = 'o', long, value_name = "TEXT")]
    push_option: Vec<String>,
    /// Leave the pre-push hook out
    #[arg(long)]
    no_verify: bool,
    #[command(flatten)]
    authority: AuthorityArgs,
    #[command(flatten)]
    refused: RefusedArgs,
}

/// What `git push` takes and a fenced push cannot: named, so that the reason can be said.
#[derive(Debug, Args)]
struct RefusedArgs {
    /// Always so
    #[arg(long, hide = true)]
    atomic: bool,
    #[arg(short = 'f', long, hide = true)]
    force: bool,
    #[arg(long, hide = true)]
    no_atomic: bool,
    #[arg(long, hide = true)]
    mirror: bool,
    #[arg(long, hide = true)]
    prune: bool,
    #[arg(long, hide = true)]
    all: bool,
    #[arg(long, hide = true)]
    branches: bool,
    #[arg(long, hide = true)]
    tags: bool,
    #[arg(long, hide = true)]
    follow_tags: bool,
    #[arg(short = 'd', long, hide = true)]
    delete: bool,
    #[arg(long, hide = true)]
    no_force_with_lease: bool,
    #[arg(long, hide = true)]
    force_if_includes: bool,
}

impl RefusedArgs {
    fn check(&self) -> Result<(), Trouble> {
        let stale = "would let a stale push in: name the old value with --force-with-lease=REF:OLD";
        let named = "pushes refs that nobody named: name each of them";
        let reasons = [
            (self.force, "--force", stale),
            (self.force_if_includes, "--force-if-includes", stale),
            (
                self.no_force_with_lease,
                "--no-force-with-lease",
                "would take the fence's own lease away: leave it out",
            ),
            (self.no_atomic, "--no-atomic", "would let a stale push in: leave it out"),
            (self.mirror, "--mirror", named),
            (self.all, "--all", named),
            (self.branches, "--branches", named),
            (self.tags, "--tags", named),
            (self.follow_tags, "--follow-tags", named),
            (self.prune, "--prune", "deletes refs: use git push"),
            (self.delete, "--delete", "deletes refs, and leaves no commit to know it by: use git push"),
        ];
        match reasons.iter().find(|(given, ..)| *given) {
            Some((_, flag, why)) => Err(Trouble::config(format!("{flag} {why}; nothing was pushed"))),
            None => Ok(()),
        }
    }
}

/// The user's git, where they are.
pub(crate) fn program(around: &Surroundings) -> GitProgram {
    let protocols = around.get("GIT_ALLOW_PROTOCOL").map(|list| list.to_string_lossy().into_owned());
    // who says whether git may ask is obeyed; else it asks where somebody can answer
    let prompt = around.get("GIT_TERMINAL_PROMPT").is_some() || std::io::stdin().is_terminal();
    GitProgram { protocols, prompt, ..GitProgram::default() }
}

/// A text of the environment that is not empty.
pub(super) fn text<'a>(around: &'a Surroundings, name: &str) -> Option<&'a str> {
    around.get(name).and_then(|value| value.to_str()).filter(|value| !value.is_empty())
}

pub(super) fn effect_id(from: &str, text: &str) -> Result<EffectId, Trouble> {
    EffectId::new(text).map_err(|why| Trouble::config(format!("{from} {text:?}: {why}")))
}

fn effect(args: &PushArgs, work: Option<&Work>, around: &Surroundings) -> Result<EffectId, Trouble> {
    if let Some(id) = &args.effect_id {
        return effect_id("--effect-id", id);
    }
    if let Some(id) = text(around, "SEMEL_IDEMPOTENCY_KEY") {
        return effect_id("SEMEL_IDEMPOTENCY_KEY", id);
    }
    match work {
        // its key is the same every time: the second run would find the first one's effect
        Some(work) if work.is_always() => Err(Trouble::config(
            "a run with --always has no effect of its own to be known by: say --effect-id ID, here and to \
             semel commit-trailer, as in \"$SEMEL_KEY.$SEMEL_TOKEN\"",
        )),
        Some(work) => effect_id("the run's key", &work.key().to_string()),
        None => Err(Trouble::config(
            "what are the pushed commits known by? Say --effect-id ID, the same on every retry, and give it to \
             semel commit-trailer too",
        )),
    }
}

pub(crate) fn run(common: &Common, args: &PushArgs, around: &Surroundings) -> Result<u8, Trouble> {
    args.refused.check()?;
    let wrong = |text: &str, why| Trouble::config(format!("{text:?} {why}; nothing was pushed"));
    let parse = |text: &String| Refspec::parse(text).map_err(|why| wrong(text, why));
    let mut refspecs = args.refspecs.iter().map(parse).collect::<Result<Vec<_>, _>>()?;
    let lease =
        |text: &String| Lease::parse(text).map_err(|why| wrong(&format!("--force-with-lease={text}"), why));
    let leases = args.force_with_lease.iter().map(lease).collect::<Result<Vec<_>, _>>()?;
    let Authority { resource, grant, work } = authority(common, &args.authority, around)?;
    let effect = effect(args, work.as_ref(), around)?;
    let program = program(around);
    let remote = match (&args.remote, refspecs.is_empty()) {
        (Some(remote), false) => remote.clone(),
        (remote, _) => {
            let (remote, refspec) = upstream(&program, remote.as_deref()).map_err(trouble)?;
            refspecs = vec![refspec];
            remote
        }
    };
    let resolved = Remote::resolve(&program, &remote).map_err(trouble)?;
    let Some(grant) = grant else {
        let refs: Vec<String> = refspecs.iter().map(ToString::to_string).collect();
        let line =
            format!("rehearsal: {} would be pushed to {}, as {effect}", refs.join(", "), mask(&remote));
        Voice::new(common).say(&line);
        return Ok(0);
    };
    let sink = GitSink { program, remote: resolved, resource, grant, effect };
    let options = PushOptions { leases, push_options: args.push_option.clone(), no_verify: args.no_verify };
    let voice = Voice::new(common);
    let mut said = Vec::new();
    let pushed = sink.push(&refspecs, &options, &mut |line| said.push(line.trim_end().to_owned()));
    let heard = said.iter().filter(|line| !line.is_empty());
    match &pushed {
        Ok(_) => heard.for_each(|line| voice.mention(|| format!("git: {line}"))),
        Err(_) if !common.json => heard.for_each(|line| voice.say(&format!("git: {line}"))),
        Err(_) => {}
    }
    tell(&voice, &sink, &mask(&remote), &pushed.map_err(trouble)?);
    Ok(0)
}

fn trouble(why: GitSinkError) -> Trouble {
    Trouble::with_code(exit::of_push(&why), why.to_string())
}

fn tell(voice: &Voice, sink: &GitSink, remote: &str, pushed: &Pushed) {
    let list = |landed: &[Landed]| {
        let one = |landed: &Landed| format!("{} at {}", landed.name, short(&landed.commit));
        landed.iter().map(one).collect::<Vec<_>>().join(", ")
    };
    let (outcome, landed): (&str, &[Landed]) = match pushed {
        Pushed::Done(landed) => {
            voice.detail(|| format!("pushed to {remote} with token {}: {}", sink.grant.token, list(landed)));
            ("pushed", landed)
        }
        Pushed::AlreadyThere(landed) => {
            let there =
                || format!("{} is on {remote} already: {}; nothing was pushed", sink.effect, list(landed));
            voice.mention(there);
            ("already_there", landed)
        }
        Pushed::UpToDate => {
            voice.mention(|| format!("{remote} has all of it already: nothing was pushed"));
            ("up_to_date", &[])
        }
    };
    let refs: Vec<Value> =
        landed.iter().map(|landed| json!({ "ref": landed.name, "commit": landed.commit })).collect();
    voice.outcome(|| {
        json!({
            "kind": "outcome", "outcome": outcome, "exit_code": 0, "resource": sink.resource.as_str(),
            "token": sink.grant.token, "effect_id": sink.effect.as_str(), "remote": remote, "refs": refs,
        })
    });
}

fn short(oid: &str) -> &str {
    oid.get(..12).unwrap_or(oid)
}
