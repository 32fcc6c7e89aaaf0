//! `semel commit-trailer`: the trailer that marks a commit as the effect of a run.

use clap::Args;
use serde_json::json;

use super::push::{effect_id, text};
use crate::args::Common;
use crate::out::{try_print, try_print_json};
use crate::plan::Surroundings;
use crate::trouble::Trouble;

/// `semel commit-trailer`
#[derive(Debug, Args)]
#[command(after_help = "As in: git commit --trailer \"$(semel commit-trailer)\"\n\
or, for a message in a file: git interpret-trailers --in-place --trailer \"$(semel commit-trailer)\" FILE")]
pub(crate) struct CommitTrailerArgs {
    /// What the commit is known by [default: the step's or the run's key]
    #[arg(long, value_name = "ID")]
    effect_id: Option<String>,
}

pub(crate) fn run(common: &Common, args: &CommitTrailerArgs, around: &Surroundings) -> Result<u8, Trouble> {
    let from = |name: &'static str| text(around, name).map(|id| (name, id));
    let given = args.effect_id.as_deref().map(|id| ("--effect-id", id));
    let Some((from, id)) = given.or_else(|| from("SEMEL_IDEMPOTENCY_KEY")).or_else(|| from("SEMEL_KEY"))
    else {
        return Err(Trouble::config(
            "not inside a run: say --effect-id ID, the same that semel push is given",
        ));
    };
    let trailer = effect_id(from, id)?.trailer();
    let told = match common.json {
        true => try_print_json(json!({ "kind": "trailer", "trailer": trailer, "effect_id": id })),
        false => try_print(&trailer),
    };
    // a commit without it would be refused much later
    if told {
        Ok(0)
    } else {
        Err(Trouble::config("the trailer could not be printed: check where stdout goes"))
    }
}
