//! What a firing was answered: the history of calls that a round is judged by.

use serde_json::Value;

/// How a firing ended, in its own words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Said {
    /// It is done: by this one, or its probe says so.
    Done,
    /// It was done before.
    WasDone,
    /// Another is at it.
    Yielded,
    /// A person is needed.
    Doubt,
    /// Not done: its lease ended before the command did.
    Lost,
    /// Not done, and it says so.
    Failed,
    /// It was killed before it could say anything.
    Unknown,
}

/// The answer of a firing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) said: Said,
    /// The items of a batch that it calls done.
    pub(crate) items: Vec<String>,
    /// In one word, for the history.
    pub(crate) word: String,
}

impl Answer {
    /// From its exit code and what it wrote with `--json`.
    pub(crate) fn of_semel(code: i32, lines: &[String]) -> Answer {
        let objects = || lines.iter().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let done = |object: &Value| {
            object["kind"] == "item" && matches!(object["outcome"].as_str(), Some("done" | "skipped"))
        };
        let items = objects().filter(done).filter_map(|object| item(object["work"].as_str()?)).collect();
        let last = objects().rfind(|object| object["kind"] == "outcome" || object["kind"] == "batch");
        let (said, word) = match &last {
            Some(object) => judged(object),
            // it says that all is well, in the only way that is left to it
            None if code == 0 => (Said::Done, "0".to_owned()),
            None if code == 79 => (Said::Doubt, "79".to_owned()),
            None if code < 128 => (Said::Failed, code.to_string()),
            None => (Said::Unknown, "unknown".to_owned()),
        };
        Answer { said, items, word }
    }

    /// A way without Semel has its exit code alone.
    pub(crate) fn of_control(code: i32) -> Answer {
        let (said, word) = match code {
            0 => (Said::Done, "done"),
            1..128 => (Said::Failed, "failed"),
            _ => (Said::Unknown, "unknown"),
        };
        Answer { said, items: Vec::new(), word: word.to_owned() }
    }

    pub(crate) fn says_done(&self) -> bool {
        matches!(self.said, Said::Done | Said::WasDone)
    }
}

fn judged(object: &Value) -> (Said, String) {
    let number = |name: &str| object[name].as_u64().unwrap_or(0);
    if object["kind"] == "batch" {
        let said = match number("exit_code") {
            0 if number("held") > 0 => Said::Yielded,
            0 => Said::Done,
            79 => Said::Doubt,
            75 => Said::Lost,
            _ => Said::Failed,
        };
        return (said, format!("{said:?}").to_lowercase());
    }
    let outcome = object["outcome"].as_str().unwrap_or_default();
    let said = match outcome {
        "done" => Said::Done,
        "skipped" if object["why"] == "done" => Said::WasDone,
        "skipped" => Said::Yielded,
        "in_doubt" | "quarantined" | "blocked" => Said::Doubt,
        "lease_lost" => Said::Lost,
        _ => Said::Failed,
    };
    let why = if outcome == "skipped" { object["why"].as_str().unwrap_or_default() } else { "" };
    (said, format!("{outcome} {why}").trim_end().to_owned())
}

/// The item of a work `JOB/…=item-3`.
pub(crate) fn item(work: &str) -> Option<String> {
    let name = work.rsplit('=').next()?;
    name.starts_with("item-").then(|| name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(code: i32, lines: &[&str]) -> Said {
        let lines: Vec<String> = lines.iter().map(|line| (*line).to_owned()).collect();
        Answer::of_semel(code, &lines).said
    }

    #[test]
    fn an_answer_is_what_it_says_and_not_its_code_alone() {
        assert_eq!(said(0, &["x", r#"{"kind":"outcome","outcome":"done"}"#]), Said::Done);
        assert_eq!(said(0, &[r#"{"kind":"outcome","outcome":"skipped","why":"done"}"#]), Said::WasDone);
        assert_eq!(said(0, &[r#"{"kind":"outcome","outcome":"skipped","why":"running"}"#]), Said::Yielded);
        assert_eq!(said(79, &[r#"{"kind":"outcome","outcome":"in_doubt"}"#]), Said::Doubt);
        assert_eq!(said(75, &[r#"{"kind":"outcome","outcome":"unrecorded"}"#]), Said::Failed);
        assert_eq!(said(75, &[r#"{"kind":"outcome","outcome":"lease_lost"}"#]), Said::Lost);
        assert_eq!(said(137, &[]), Said::Unknown);
        assert_eq!(said(0, &[]), Said::Done, "nothing but 0 is a claim too");
        assert_eq!(said(0, &[r#"{"kind":"batch","exit_code":0,"held":0}"#]), Said::Done);
        assert_eq!(said(0, &[r#"{"kind":"batch","exit_code":0,"held":2}"#]), Said::Yielded);
    }

    #[test]
    fn the_items_that_are_called_done_are_known() {
        let lines = [
            r#"{"kind":"item","outcome":"done","work":"t7/line=item-3"}"#,
            r#"{"kind":"item","outcome":"skipped","work":"t7/line=item-4"}"#,
            r#"{"kind":"item","outcome":"failed","work":"t7/line=item-5"}"#,
        ];
        let answer = Answer::of_semel(137, &lines.map(str::to_owned));
        assert_eq!(answer.items, ["item-3", "item-4"]);
        assert_eq!(answer.said, Said::Unknown);
    }
}
