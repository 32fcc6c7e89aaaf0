//! `semel fence show`, `semel fence set`: the fence beside a file, for people.

use std::path::PathBuf;

use clap::Args;
use semel::sink::file::{Fence, FileSink, Setting};
use semel_core::token::Token;
use serde_json::{Value, json};

use super::write::trouble;
use crate::args::Common;
use crate::out::{print, print_json, when};
use crate::plan::{self, Surroundings, name};
use crate::table::clean;
use crate::trouble::Trouble;

/// `semel fence show`
#[derive(Debug, Args)]
pub(crate) struct ShowArgs {
    /// The file, not its fence
    #[arg(value_name = "TARGET")]
    target: PathBuf,
}

/// `semel fence set`
#[derive(Debug, Args)]
#[command(
    after_help = "A fence goes forward by itself and never back. Set it to give a file to another resource, whose \
tokens are counted apart; to shut out a holder; or, with --back, after a store was lost or restored from a backup, so \
that its tokens begin again at smaller ones. Whoever says --back vouches that no older holder lives: the fence cannot \
tell it from the new one. Who set it, when and why is kept in the fence."
)]
pub(crate) struct SetArgs {
    /// The file, not its fence
    #[arg(value_name = "TARGET")]
    target: PathBuf,
    /// To which resource the file belongs from now on
    #[arg(long, value_name = "NAME")]
    resource: String,
    /// The last token that counts as accepted: only larger ones pass; 0: every token passes
    #[arg(long, value_name = "N")]
    token: String,
    /// Why, for those who read it later
    #[arg(long, value_name = "TEXT")]
    because: String,
    /// Go back to a smaller token, or replace a damaged fence: older holders can write again
    #[arg(long)]
    back: bool,
}

pub(crate) fn show(common: &Common, args: &ShowArgs) -> Result<u8, Trouble> {
    let fence = FileSink::new(&args.target).fence().map_err(trouble)?;
    if common.json {
        print_json(
            json!({ "kind": "fence", "target": args.target.to_string_lossy(), "fence": fence.as_ref().map(as_json) }),
        );
        return Ok(0);
    }
    let line = match &fence {
        None => "no fence yet: the first semel write makes it".to_owned(),
        Some(fence) => words(fence),
    };
    print(&clean(&format!("{}: {line}", args.target.display())));
    Ok(0)
}

pub(crate) fn set(common: &Common, args: &SetArgs, around: &Surroundings) -> Result<u8, Trouble> {
    let because = plan::because(&args.because)?;
    let last = match args.token.as_str() {
        "0" => None,
        text => Some(
            text.parse::<Token>()
                .map_err(|why| Trouble::config(format!("--token {text:?}: {why}, or 0 for none yet")))?,
        ),
    };
    let setting = Setting {
        resource: name("--resource", &args.resource)?,
        last,
        by: around.person(),
        because: because.to_owned(),
        back: args.back,
    };
    let fence = FileSink::new(&args.target).set_fence(&setting).map_err(trouble)?;
    if common.json {
        print_json(
            json!({ "kind": "fence", "target": args.target.to_string_lossy(), "fence": as_json(&fence) }),
        );
    } else {
        print(&clean(&format!("{}: {}", args.target.display(), words(&fence))));
    }
    Ok(0)
}

/// A fence as JSON.
pub(super) fn as_json(fence: &Fence) -> Value {
    json!({
        "resource": fence.resource, "token": fence.last.map(|grant| grant.token),
        "nonce": fence.last.map(|grant| grant.nonce), "by_a_person": fence.is_persons(),
        "set": fence.set.as_ref().map(|set| json!({
            "token": set.to.map(|grant| grant.token), "by": set.by, "because": set.because, "at_ms": set.at_ms,
        })),
    })
}

fn words(fence: &Fence) -> String {
    let resource = &fence.resource;
    let set = fence.set.as_ref().map(|set| {
        let to = set.to.map_or("every token".to_owned(), |grant| format!("tokens above {}", grant.token));
        format!("let {to} pass on {}, because: {}", when(set.at_ms), set.because)
    });
    let by = fence.set.as_ref().map_or("", |set| &set.by);
    match (fence.last, set) {
        (Some(grant), None) => format!("belongs to {resource}; token {} wrote last", grant.token),
        (Some(grant), Some(set)) if !fence.is_persons() => {
            format!("belongs to {resource}; token {} wrote last; before that, {by} {set}", grant.token)
        }
        (_, Some(set)) => format!("belongs to {resource}; {by} {set}; nobody wrote since"),
        (None, None) => format!("belongs to {resource}; nobody wrote yet"),
    }
}
