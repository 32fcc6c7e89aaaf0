//! What waits in an alarm's outbox, told on the lanes that are known here.

use semel::engine::Engine;
use semel::engine::alarm::Telling;
use semel::engine::view::LookError;
use semel_core::alarm;
use semel_core::record::RecordKey;

use super::{Lane, Message, deliver};
use crate::out::Voice;
use crate::plan::Surroundings;

/// Tell it. A lane that does not deliver is said, and left for the next time; nothing fails by it.
pub(crate) async fn send(
    engine: &Engine,
    key: &RecordKey,
    lanes: &[Lane],
    around: &Surroundings,
    voice: Voice,
) -> Result<(), LookError> {
    let Some(seen) = engine.alarm(key).await? else { return Ok(()) };
    let mut broken: Vec<&str> = Vec::new();
    for (notice, name) in alarm::due(&seen.value, engine.clock.wall_ms()) {
        let Some(lane) = lanes.iter().find(|lane| lane.name == name) else { continue };
        // what comes after it is told after it
        if broken.contains(&name) {
            continue;
        }
        let body = alarm::body(seen.value.job.as_ref(), notice);
        let message = Message { id: notice.id.to_string(), at_ms: notice.at_ms, body };
        let telling = match deliver(lane, &message, around).await {
            Ok(()) => Telling::Delivered,
            Err(undelivered) => {
                voice.say(&format!(
                    "lane {name} did not deliver: {}; it is tried again later",
                    undelivered.why
                ));
                broken.push(name);
                Telling::Undelivered { why: undelivered.why, permanent: undelivered.permanent }
            }
        };
        engine.told(key, &notice.id, name, &telling).await?;
    }
    Ok(())
}
