//! From recorded calls to what the checker is asked.
//!
//! A call whose answer is unknown costs a search most, so what can be said of it beforehand is said. A value that was
//! seen tells that its write was done: the call is then one that was answered, at the end of all. A put that nobody
//! saw, as an answer, a refusal or a load, may as well come last of all: whatever came after it on that record would
//! have told of it. So it is left out. A removal is kept as it is: absence has no name.

use std::collections::HashSet;

use crate::spec::{Act, Asked, NEVER, Part, Said, Step, Write};

/// A call as it was made.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub(crate) client: usize,
    pub(crate) begun: u64,
    pub(crate) ended: u64,
    pub(crate) asked: Asked,
    pub(crate) answer: Answer,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    Said(Said),
    Unavailable,
    /// Or the future was dropped.
    Unknown,
}

/// What a store promises of calls with several records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Promise {
    /// They are one.
    Whole,
    /// Each record has a moment of its own, the changes of a swap in their order.
    InOrder,
}

/// The steps that the checker is asked about.
pub(crate) fn steps(calls: &[Call], promise: Promise) -> Vec<Step> {
    let seen = seen(calls);
    let mut steps = Vec::new();
    for call in calls {
        match promise {
            Promise::Whole => whole(call, &seen, &mut steps),
            Promise::InOrder => in_order(call, &seen, &mut steps),
        }
    }
    steps
}

/// Every write that some answer told of.
fn seen(calls: &[Call]) -> HashSet<Write> {
    let mut seen = HashSet::new();
    for call in calls {
        match &call.answer {
            Answer::Said(Said::Saw(all)) => seen.extend(all.iter().flatten()),
            Answer::Said(Said::Refused { stands, .. }) => seen.extend(stands),
            _ => {}
        }
    }
    seen
}

fn writes(part: &Part, seen: &HashSet<Write>) -> bool {
    matches!(part.act, Act::Put(write) if seen.contains(&write))
}

fn removes(parts: &[Part]) -> bool {
    parts.iter().any(|part| part.act == Act::Remove)
}

fn whole(call: &Call, seen: &HashSet<Write>, steps: &mut Vec<Step>) {
    let (ended, said) = match (&call.answer, &call.asked) {
        (Answer::Said(said), _) => (call.ended, said.clone()),
        (Answer::Unknown, Asked::Swap(parts)) if parts.iter().any(|part| writes(part, seen)) => {
            (NEVER, Said::Done)
        }
        (Answer::Unknown, Asked::Swap(parts)) if removes(parts) => (NEVER, Said::Nothing),
        (Answer::Unknown | Answer::Unavailable, _) => return,
    };
    steps.push(Step { begun: call.begun, ended, asked: call.asked.clone(), said, after: None });
}

fn in_order(call: &Call, seen: &HashSet<Write>, steps: &mut Vec<Step>) {
    let mut one = |asked, said, ended, after| {
        steps.push(Step { begun: call.begun, ended, asked, said, after });
        steps.len() - 1
    };
    match (&call.asked, &call.answer) {
        (_, Answer::Unavailable) | (Asked::Load(_) | Asked::Touch(..), Answer::Unknown) => {}
        (Asked::Load(slots), Answer::Said(Said::Saw(all))) => {
            for (slot, saw) in slots.iter().zip(all) {
                one(Asked::Load(vec![*slot]), Said::Saw(vec![*saw]), call.ended, None);
            }
        }
        (Asked::Swap(parts), answer) => {
            // what was done for sure: all, those before the refused one as far as one was seen, or as far as one was seen
            let (sure, ended) = match answer {
                Answer::Said(Said::Done) => (parts.len(), call.ended),
                Answer::Said(Said::Refused { index, .. }) => (prefix(&parts[..*index], seen), call.ended),
                _ => (prefix(parts, seen), NEVER),
            };
            let mut after = None;
            for part in &parts[..sure] {
                after = Some(one(Asked::Swap(vec![*part]), Said::Done, ended, after));
            }
            if let Answer::Said(Said::Refused { index, stands }) = answer {
                let said = Said::Refused { index: 0, stands: *stands };
                one(Asked::Swap(vec![parts[*index]]), said, ended, None);
            } else if *answer == Answer::Unknown && sure == 0 && removes(parts) {
                assert_eq!(parts.len(), 1, "a removal is alone where swaps are made in order");
                one(call.asked.clone(), Said::Nothing, ended, None);
            }
        }
        (asked, Answer::Said(said)) => {
            one(asked.clone(), said.clone(), call.ended, None);
        }
    }
}

/// Up to the last that was seen: those before it were done as well.
fn prefix(parts: &[Part], seen: &HashSet<Write>) -> usize {
    parts.iter().rposition(|part| writes(part, seen)).map_or(0, |last| last + 1)
}

/// The calls of an island, for a person.
pub(crate) fn told(calls: &[Call]) -> String {
    let mut calls: Vec<&Call> = calls.iter().collect();
    calls.sort_by_key(|call| call.begun);
    let line = |call: &Call| {
        let ended = if call.ended == NEVER { "never".to_owned() } else { call.ended.to_string() };
        format!(
            "  {:>4}..{ended:<5} client {}: {} -> {}\n",
            call.begun,
            call.client,
            asked(&call.asked),
            answer(&call.answer)
        )
    };
    calls.into_iter().map(line).collect()
}

fn name(write: &Write) -> String {
    format!("w{}{}", write.number, if write.clocked { "t" } else { "" })
}

fn stood(stands: &Option<Write>) -> String {
    stands.as_ref().map_or("nothing".to_owned(), name)
}

fn asked(asked: &Asked) -> String {
    use crate::spec::Want;
    let part = |part: &Part| {
        let want = match part.want {
            Want::Absent => "absent".to_owned(),
            Want::At(write) => name(&write),
            Want::Live(write) => format!("live {}", name(&write)),
            Want::Lapsed(write) => format!("lapsed {}", name(&write)),
        };
        let act = match part.act {
            Act::Put(write) => format!("put {}", name(&write)),
            Act::Guard => "guard".to_owned(),
            Act::Remove => "remove".to_owned(),
        };
        format!("{} if {want} {act}", part.slot)
    };
    match asked {
        Asked::Load(slots) => format!("load {slots:?}"),
        Asked::Touch(slot, write) => format!("touch {slot} at {}", name(write)),
        Asked::Swap(parts) => format!("swap [{}]", parts.iter().map(part).collect::<Vec<_>>().join(", ")),
    }
}

fn answer(answer: &Answer) -> String {
    match answer {
        Answer::Said(Said::Saw(all)) => {
            format!("saw {}", all.iter().map(stood).collect::<Vec<_>>().join(", "))
        }
        Answer::Said(Said::Refused { index, stands }) => format!("refused at {index}: {}", stood(stands)),
        Answer::Said(said) => format!("{said:?}").to_lowercase(),
        Answer::Unavailable => "unavailable".to_owned(),
        Answer::Unknown => "unknown".to_owned(),
    }
}
