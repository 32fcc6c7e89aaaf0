//! `semel doctor --notify`: does a message arrive?

use semel::clock::{Clock, SystemClock};
use serde_json::json;

use super::doctor::{Check, good, wrong};
use crate::args::Common;
use crate::notify::{self, Lane, Message};
use crate::out::when;
use crate::plan::Surroundings;
use crate::runtime;
use crate::trouble::Trouble;

/// Send a test message through every lane, or through this one. Answers what to say, in order.
pub(super) fn examine(
    common: &Common,
    name: Option<&str>,
    around: &Surroundings,
) -> Result<Vec<Check>, Trouble> {
    let Some(config) = around.config(common)? else {
        return Err(Trouble::config(format!("there are no lanes: {}", around.places(common).words())));
    };
    if let Some(name) = name {
        // of one that was named, whatever is wrong is wrong with the question
        let lane = notify::lane(config, name, around)?;
        return Ok(vec![runtime()?.block_on(send(&lane, around))]);
    }
    if config.lanes.is_empty() {
        let why = format!("{} has no lanes: write [notify.NAME]", config.path.display());
        return Err(config.check_store().err().unwrap_or_else(|| Trouble::config(why)));
    }
    let runtime = runtime()?;
    let mut checks = Vec::new();
    for table in &config.lanes {
        match notify::lane(config, &table.name, around) {
            Ok(lane) => checks.push(runtime.block_on(send(&lane, around))),
            Err(Trouble { line, more, .. }) => {
                checks.extend(std::iter::once(line).chain(more).map(|line| wrong("notify", line, "")));
            }
        }
    }
    Ok(checks)
}

async fn send(lane: &Lane, around: &Surroundings) -> Check {
    let at_ms = SystemClock.wall_ms();
    // a test need not be told from another but by its time
    let random = getrandom::u64().unwrap_or(at_ms);
    let message = Message {
        id: format!("test_{random:016x}"),
        at_ms,
        body: json!({
            "v": crate::out::JSON_VERSION, "kind": "test", "lane": lane.name,
            "text": format!("a test of the lane {}, sent by semel doctor at {}", lane.name, when(at_ms)),
        }),
    };
    match notify::deliver(lane, &message, around).await {
        Ok(()) => good("notify", format!("{}: the test message {} arrived", lane.name, message.id)),
        Err(undelivered) => {
            let what = format!("{}: the test message did not arrive: {}", lane.name, undelivered.why);
            let mend =
                if undelivered.permanent { "take the lane out, or give it another address" } else { "" };
            wrong("notify", what, mend)
        }
    }
}
