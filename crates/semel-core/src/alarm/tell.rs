//! A notice in words for a person, and in JSON for a program.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::{Event, Kind, Notice};
use crate::name::Name;

/// The version of the JSON that [`body`] makes.
const BODY_VERSION: u32 = 1;

/// The notice in one line: what happened, to what, why, and where to look. Times are UTC.
pub fn words(notice: &Notice) -> String {
    let look = look(notice);
    let said = match (notice.event, &notice.work) {
        (Event::Recovered, Some(work)) => format!("{work} succeeded: {}", passed(notice)),
        (Event::Recovered, None) => format!("semel check finds nothing any more{}", since(notice)),
        (Event::Raised, Some(work)) => raised(notice, work),
        (Event::Raised, None) => {
            format!("semel check found {}{}", times(notice.count, "thing"), because(notice))
        }
    };
    match notice.recovered_ms {
        Some(at_ms) => format!("{said}; recovered at {}; look: {look}", utc(at_ms)),
        None => format!("{said}; look: {look}"),
    }
}

fn raised(notice: &Notice, work: &str) -> String {
    let why = because(notice);
    match notice.kind {
        Kind::Failed => format!("{work} failed{why}"),
        Kind::Quarantined => format!("{work} is quarantined and will not run until a person says so{why}"),
        Kind::InDoubt => format!("{work} is in doubt: nobody can know whether it happened{why}"),
        Kind::Lost => format!("{work} was lost{why}"),
        Kind::Missed if notice.count > 1 => {
            format!("{} were missed, such as {work}{why}", times(notice.count, "slot"))
        }
        Kind::Missed => format!("{work} was missed{why}"),
        Kind::Overdue => format!("{work} is overdue{why}"),
    }
}

fn because(notice: &Notice) -> String {
    if notice.why.is_empty() { String::new() } else { format!(": {}", notice.why) }
}

fn passed(notice: &Notice) -> String {
    let mut kinds = vec![notice.kind];
    kinds.extend(&notice.also);
    let kinds: Vec<String> = kinds.iter().map(|kind| kind.word().replace('_', " ")).collect();
    format!("recovered from {}{}, {}", kinds.join(" and "), since(notice), times(notice.count, "time"))
}

fn since(notice: &Notice) -> String {
    notice.since_ms.map(|ms| format!(", since {}", utc(ms))).unwrap_or_default()
}

fn times(count: u32, what: &str) -> String {
    if count == 1 { format!("1 {what}") } else { format!("{count} {what}s") }
}

fn utc(ms: u64) -> String {
    let at = i64::try_from(ms).ok().and_then(|ms| Timestamp::from_millisecond(ms / 1000 * 1000).ok());
    at.map_or_else(|| format!("{ms} ms"), |at| at.to_string())
}

/// The command that tells more.
pub fn look(notice: &Notice) -> String {
    match &notice.work {
        Some(work) => format!("semel why '{}'", work.replace('\'', r"'\''")),
        None => "semel check".to_owned(),
    }
}

/// The notice as JSON. Members are added, never changed, within a version.
pub fn body(job: Option<&Name>, notice: &Notice) -> Value {
    let mut body = json!({
        "v": BODY_VERSION,
        "kind": "notice",
        "id": notice.id,
        "event": notice.event.word(),
        "anomaly": notice.kind.word(),
        "at_ms": notice.at_ms,
        "count": notice.count,
        "text": words(notice),
        "look": look(notice),
    });
    let also: Vec<&str> = notice.also.iter().map(|kind| kind.word()).collect();
    let further = [
        ("job", job.map(|job| json!(job))),
        ("work", notice.work.as_ref().map(|work| json!(work))),
        ("why", (!notice.why.is_empty()).then(|| json!(notice.why))),
        ("also", (!also.is_empty()).then(|| json!(also))),
        ("since_ms", notice.since_ms.map(Value::from)),
        ("recovered_ms", notice.recovered_ms.map(Value::from)),
    ];
    for (name, value) in further {
        if let Some(value) = value {
            body[name] = value;
        }
    }
    body
}
