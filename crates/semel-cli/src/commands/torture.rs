//! `semel torture git`: does the fence hold on this very remote, and what happens there without it?
//!
//! Every round is played twice on branches of its own: through the sink behind `semel push`, and through the loop
//! that most scripts have (fetch, look whether the work is there, commit, push; when that is rejected put the commit
//! on top and push again). Even rounds have a stale holder, which stalls before the check, between the check and
//! the push, or inside the push, at the same place in both ways, until a newer holder has taken over. Odd rounds are races of pushers that all hold the
//! same grant for the same work. What happened is counted in the remote's log, never in what pushes answered.
//!
//! It touches refs of its own alone: branches below a prefix that is new for every run, and one ref below
//! `refs/fence/`, where `semel push` keeps its fences. They are removed at the end, after Ctrl-C too.

mod arena;
mod attack;
mod tally;

use clap::{Args, Subcommand};
use serde_json::json;

use self::arena::{Arena, Fault};
use self::attack::{Attack, Way};
use self::tally::{Tally, Told};
use crate::args::Common;
use crate::chance::{self, Chance};
use crate::out::{Ticker, Voice, print, print_json};
use crate::plan::Surroundings;
use crate::trouble::Trouble;
use crate::{exit, interrupt};

/// `semel torture`
#[derive(Debug, Subcommand)]
pub(crate) enum TortureCommand {
    /// Stale pushes and races on a git remote, with the fence of semel push and without it
    Git(GitArgs),
}

/// `semel torture git`
#[derive(Debug, Args)]
#[command(
    after_help = "Really pushes to URL: only to branches below --ref-prefix with a name that is new for every run, and \
to one ref below refs/fence/. All of them are removed at the end. Builds that start for every branch would start: \
use a remote without them, or one that ignores semel-torture/.\n\
\n\
Exit codes: 0 the fence held in all rounds; 1 it did not; 69 the remote cannot be reached; 78 wrong usage, or a remote \
that cannot be written or fenced; 128+n ended by signal n."
)]
pub(crate) struct GitArgs {
    /// The remote: an address, or a name that this repository has for it
    #[arg(value_name = "URL")]
    url: String,
    /// How many rounds, each once with the fence and once without
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=5000))]
    rounds: u32,
    /// Where holders stall and how many race; the same seed makes the same choices [default: a new one, which is said]
    #[arg(long, value_name = "S")]
    seed: Option<u64>,
    /// Branches are made below this, in a folder that is new for every run
    #[arg(long, value_name = "REF", default_value = "refs/heads/semel-torture/")]
    ref_prefix: String,
}

pub(crate) fn run(common: &Common, command: &TortureCommand, around: &Surroundings) -> Result<u8, Trouble> {
    match command {
        TortureCommand::Git(args) => git(common, args, around),
    }
}

fn git(common: &Common, args: &GitArgs, around: &Surroundings) -> Result<u8, Trouble> {
    let here = |why: std::io::Error| Trouble::config(format!("there is no place to do it: {why}"));
    let seed = args.seed.map_or_else(chance::seed, Ok).map_err(here)?;
    let voice = Voice::new(common);
    let arena = Arena::new(&args.url, &args.ref_prefix, around)?;
    interrupt::watch();
    let played = arena.open().map(|()| play(&arena, args.rounds, seed, voice));
    let left = arena.clean_up();
    if !left.is_empty() {
        let (left, shown) = (left.join(" "), &arena.shown);
        voice.say(&format!(
            "could not be removed from {shown}: remove with: git push {shown} --delete {left}"
        ));
    }
    let (tally, fault) = played?;
    if let (Some(signo), Some(_)) = (interrupt::caught(), &fault) {
        voice.say("interrupted in the middle of a round: nothing is told of any");
        return Ok(exit::by_signal(signo));
    }
    tell(common, &arena, &tally, &left);
    let code = match (tally.held(), interrupt::caught(), fault) {
        (false, ..) => exit::FOUND,
        (true, Some(signo), _) => exit::by_signal(signo),
        (true, None, Some(fault)) => {
            return Err(fault.trouble(&format!("{}, after {} rounds", arena.shown, tally.rounds)));
        }
        (true, None, None) => 0,
    };
    Ok(code)
}

/// All rounds, or as many as could be played; and what the remote has of them.
fn play(arena: &Arena, rounds: u32, seed: u64, voice: Voice) -> (Tally, Option<Fault>) {
    let mut chance = Chance::new(seed);
    let mut told = Told::default();
    let mut ticker = Ticker::new(voice);
    let mut fault = None;
    for round in 0..rounds {
        let attack = Attack::draw(round, &mut chance);
        ticker.tell(|| format!("round {} of {rounds}: {attack:?}", round + 1));
        let fenced = attack.play(arena, round, Way::Fenced);
        match fenced.and_then(|fenced| Ok((fenced, attack.play(arena, round, Way::Plain)?))) {
            Ok((fenced, plain)) => told.note(attack, fenced, plain),
            Err(why) => {
                fault = Some(why);
                break;
            }
        }
        if interrupt::caught().is_some() {
            break;
        }
    }
    ticker.end();
    match arena.landed() {
        Ok(landed) => (Tally::new(seed, &told, &landed), fault),
        Err(why) => (Tally::new(seed, &Told::default(), &[]), fault.or(Some(why))),
    }
}

fn tell(common: &Common, arena: &Arena, tally: &Tally, left: &[String]) {
    let Tally { seed, rounds, stale, races, .. } = *tally;
    if common.json {
        let way = |way: &tally::Way| {
            json!({
                "stale_tried": stale, "stale_refused": way.refused, "stale_found": way.found,
                "stale_accepted": way.accepted,
                "rounds_with_duplicates": way.doubled, "duplicates": way.extra, "lost": way.lost,
            })
        };
        return print_json(json!({
            "kind": "torture", "remote": arena.shown, "prefix": arena.folder(), "seed": seed, "rounds": rounds,
            "races": races, "stalls": tally.stalls, "held": tally.held(), "bound": tally.bound(),
            "fenced": way(&tally.fenced), "plain": way(&tally.plain), "left": left,
        }));
    }
    if rounds == 0 {
        return;
    }
    print(&format!("{}: {rounds} rounds ({stale} stale holders, {races} races), seed {seed}", arena.shown));
    let line = |a: &str, b: String, c: String| print(&format!("  {a:<28} {b:>16}  {c:>18}"));
    line("", "with the fence".into(), "check, then push".into());
    let (fenced, plain) = (&tally.fenced, &tally.plain);
    let of = |n: u32, all: u32| format!("{n} of {all}");
    line("stale pushes refused", of(fenced.refused, stale), of(plain.refused, stale));
    line("stale, saw the work in time", of(fenced.found, stale), of(plain.found, stale));
    line("stale pushes that landed", of(fenced.accepted, stale), of(plain.accepted, stale));
    line("rounds with duplicates", of(fenced.doubled, rounds), of(plain.doubled, rounds));
    line("commits too many", fenced.extra.to_string(), plain.extra.to_string());
    line("work lost", fenced.lost.to_string(), plain.lost.to_string());
    let repeat = format!("repeat with --seed {seed}");
    print(&match tally.held() {
        true => format!(
            "The fence held in all rounds. None of {rounds} means: the true rate is below 3/{rounds} = {:.1} % (95 %). \
             Counted in the remote's log; {repeat}",
            tally.bound() * 100.0
        ),
        false => format!("THE FENCE DID NOT HOLD: do not rely on semel push with this remote; {repeat}"),
    });
}
