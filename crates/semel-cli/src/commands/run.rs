//! `semel run`: claim, do, record.

use semel::engine::{Engine, Event, Ran, Report, RunPlan};
use semel_core::calendar::{CatchUp, Reason};
use semel_core::claim::Busy;
use semel_core::entry::{Ending, Entry, Forgotten, State};
use semel_core::lease::Before;
use semel_core::payload::Change;
use semel_core::story::{Next, ended};
use serde_json::{Value, json};

use super::find;
use super::row::{self, Row};
use crate::args::{Common, RunArgs};
use crate::away::Away;
use crate::out::{Voice, span, when};
use crate::plan::{self, Surroundings};
use crate::slot::{self, Due};
use crate::task::{CommandTask, ProcessSignals};
use crate::trouble::Trouble;
use crate::{exit, runtime};

/// Run it.
pub(crate) fn run(common: &Common, args: &RunArgs, around: &Surroundings) -> Result<u8, Trouble> {
    if let Some(place) = &args.crash_at {
        semel::crash::arm(place);
    }
    let args = &*plan::with_file(common, args, around)?;
    let voice = Voice::new(common);
    if args.rehearse {
        return rehearse(common, plan::run(common, args, around)?, around, voice);
    }
    let away = args.what.every.as_ref().and_then(|_| Away::of(common, around));
    let ran = go(common, args, around, away.as_ref(), voice);
    if let (Some(away), Err(trouble)) = (&away, &ran) {
        excuse(away, args, around, trouble);
    }
    ran
}

/// A slot that came to nothing before the ledger knew of it: it has its reason when it is found missed.
fn excuse(away: &Away, args: &RunArgs, around: &Surroundings, trouble: &Trouble) {
    let job = args.job.as_deref().and_then(|job| plan::name("--job", job).ok());
    let due = slot::due(&args.what, around).ok().flatten();
    let work = job.zip(due).and_then(|(job, due)| plan::work(&job, &args.what, Some(&due)).ok());
    if let Some(work) = work {
        let reason = if trouble.code == exit::STORE { Reason::StoreDown } else { Reason::Refused };
        away.note(&work, reason, &trouble.line);
    }
}

fn go(
    common: &Common,
    args: &RunArgs,
    around: &Surroundings,
    away: Option<&Away>,
    voice: Voice,
) -> Result<u8, Trouble> {
    let mut run = plan::run(common, args, around)?;
    if let (Some(scheduled), Some(away)) = (&mut run.plan.scheduled, away) {
        scheduled.excuses = away.excuses();
    }
    if let Some(due) = &run.due {
        voice.detail(|| format!("slot {} fell due at {}", due.tick.slot, due.when()));
    }
    let engine = plan::engine(common, around)?;
    let mut row = Row::new(common, around, &engine, args.what.keep_going, away)?;
    let done = in_order(common, args, around, run, &mut row);
    // also after a trouble: what is kept is given back
    let code = row.end();
    engine.store.leave();
    done.map(|()| code)
}

/// What is owed, and then what is due.
fn in_order(
    common: &Common,
    args: &RunArgs,
    around: &Surroundings,
    run: plan::Run,
    row: &mut Row<'_>,
) -> Result<(), Trouble> {
    if let Some(Due { catch_up: CatchUp::All { within_ms }, .. }) = run.due {
        for slot in row.owed(&run.plan, within_ms)? {
            row.run(plan::run_in(common, args, around, &slot)?, true)?;
            if row.is_over() {
                row.leave_out(&run.plan);
                return Ok(());
            }
        }
    }
    row.run(run, false)
}

/// What would be done, and the command run as if.
fn rehearse(common: &Common, run: plan::Run, around: &Surroundings, voice: Voice) -> Result<u8, Trouble> {
    let state_dir = plan::private_dir(common, around)?;
    let engine = find::ledger(common, around)?;
    let plan::Run { plan, command, probe, skip_code, planner, fill, .. } = run;
    let Some(work) = &plan.work else { return Err(Trouble::config("there is nothing to rehearse")) };
    let mut task = CommandTask::new(command, probe, around, &state_dir, voice).planned(planner, fill);
    runtime()?.block_on(async {
        let next = engine.outlook(work).await?.next;
        voice.say(&format!("rehearsal: a run of {work} would {}", next.words(find::words())));
        let attempt = match &next {
            Next::Run { attempt, .. } | Next::Probe { attempt, .. } => *attempt,
            Next::Person(_) => return Ok(exit::PERSON),
            Next::Refuse(_) => return Ok(exit::CONFIG),
            _ => return Ok(skip_code),
        };
        let signals = semel_supervise::Signals::install();
        let signals = signals.map_err(|why| Trouble::config(format!("cannot watch for signals: {why}")))?;
        let ended = engine.rehearse(&plan, attempt, &mut task, &mut ProcessSignals(signals)).await;
        match ended {
            Ok(end) => {
                let code = exit::of_task(end);
                voice.say(&format!("rehearsal: its command ended with {code}; nothing is on record"));
                Ok(code)
            }
            Err(why) => Err(Trouble::with_code(u8::try_from(why.code).unwrap_or(126), why.why)),
        }
    })
}

/// A slot that nobody began in time: that is an anomaly, and never silent.
pub(crate) fn speak_late(voice: &Voice, what: &str, due: &Due, code: u8) {
    let why = due.too_late();
    voice.outcome(|| {
        json!({
            "kind": "outcome", "work": what, "exit_code": code, "outcome": "too_late",
            "slot": due.tick.slot, "due": due.tick.at.to_string(), "why": why,
        })
    });
    if !voice.json {
        voice.say(&format!("{what} not run: {why}"));
    }
}

/// The plan through the engine, with the signals of this process.
pub(crate) async fn supervise(
    engine: &Engine,
    plan: &RunPlan,
    task: &mut CommandTask<'_>,
    voice: Voice,
) -> Result<Report, Trouble> {
    let signals = semel_supervise::Signals::install();
    let signals = signals.map_err(|why| Trouble::config(format!("cannot watch for signals: {why}")))?;
    let mut tell = |event: Event<'_>| tell(&voice, &event);
    Ok(engine.run(plan, task, &mut ProcessSignals(signals), &mut tell).await)
}

/// A run that yields to a run which it is itself a part of would never have its turn: that is no right skip.
pub(crate) fn waits_for_itself<'a>(report: &'a Report, around: &Surroundings) -> Option<&'a Busy> {
    let (Report::Yielded(busy) | Report::Busy(busy)) = report else { return None };
    let ours = |(resource, token): &(String, u64)| {
        *resource == busy.resource.as_str() && *token == busy.held.token.value()
    };
    around.held().iter().any(ours).then_some(busy)
}

/// What happens on the way.
pub(crate) fn tell(voice: &Voice, event: &Event<'_>) {
    match event {
        Event::Waiting(busy) => voice.detail(|| format!("waiting: {}", held(busy))),
        Event::Missed(missed) => {
            if let Some(line) = row::missed_line(missed) {
                voice.say(&line);
            }
        }
        Event::Claimed { begin, before, after_lost, forgotten } => {
            let how = match before {
                Before::Nothing | Before::Free | Before::Ours => "",
                Before::Lapsed => ", taken over from a holder whose lease lapsed",
                Before::OwnerGone => ", taken over from a holder that is gone",
            };
            let lost = if *after_lost { ", after an attempt that was lost" } else { "" };
            let (resource, token, n) = (&begin.resource, begin.grant.token, begin.attempt);
            voice.detail(|| format!("attempt {n} holds {resource} with token {token}{how}{lost}"));
            if let (Some(Forgotten { done_ms, at_ms, remember_ms }), Some(work)) = (forgotten, &begin.work) {
                voice.mention(|| {
                    format!(
                        "{work} is done again: it was done at {}, and gc forgot that at {} (--remember {})",
                        when(*done_ms),
                        when(*at_ms),
                        span(*remember_ms)
                    )
                });
            }
        }
        Event::Probed(answer) => voice.detail(|| format!("probe: {answer:?}")),
        Event::Renewed => voice.detail(|| "lease renewed".to_owned()),
        Event::RenewalFailed(why) => {
            voice.say(&format!("the lease could not be renewed, trying again: {why}"))
        }
        Event::Retrying { ending, pause_ms } => {
            voice.say(&format!("{}; trying again in {}", ended(ending), span(*pause_ms)));
        }
        Event::LeftBehind(count) => {
            voice.detail(|| format!("{count} processes that the command left behind were ended"))
        }
        Event::Unreachable(why) => {
            voice.say(&format!("commands inside this run (step, gate, write, push) cannot reach it: {why}"))
        }
        // who has lanes sends them when the run has ended
        Event::Notices => {}
        Event::JournalFailed(why) => voice.detail(|| format!("the skip is not in the journal: {why}")),
    }
}

/// Who is at it, since when, until when.
pub(crate) fn held(busy: &Busy) -> String {
    let Busy { resource, held, same_work } = busy;
    let hold = &held.hold;
    let what =
        if *same_work { "it is running".to_owned() } else { format!("{resource} is held for {}", hold.what) };
    let until = if held.draining {
        format!("its lease lapsed, the lock delay ends in {}", span(held.wait_ms))
    } else {
        format!("its lease ends in {} unless renewed", span(held.wait_ms))
    };
    format!("{what} by {} since {} (token {}); {until}", hold.owner, when(hold.since_ms), held.token)
}

/// The exact words that settle an entry.
pub(crate) fn how_to_resolve(work: &str) -> String {
    let quoted = shell_quote(work);
    format!(
        "look with: semel why {quoted}; settle with: semel resolve {quoted} --done|--not-done|--retry --because TEXT"
    )
}

/// A word that a shell takes as it is.
pub(crate) fn shell_quote(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "@._-/:=%+,".contains(c);
    if !text.is_empty() && text.chars().all(plain) {
        text.to_owned()
    } else {
        format!("'{}'", text.replace('\'', r"'\''"))
    }
}

fn who_did_it(entry: &Entry) -> String {
    let by = match &entry.state {
        State::Done { by: semel_core::entry::DoneBy::Person } => {
            let verdict = entry.verdicts.last();
            return verdict.map_or("by a person".into(), |v| format!("said {} on {}", v.by, when(v.at_ms)));
        }
        State::Done { by: semel_core::entry::DoneBy::Probe } => ", found by the probe",
        _ => "",
    };
    match entry.last_attempt() {
        Some(a) => {
            format!("attempt {} by {} at {}{by}", a.n, a.owner, when(a.ended_ms.unwrap_or(entry.changed_ms)))
        }
        None => format!("at {}", when(entry.changed_ms)),
    }
}

/// In one line how a run came out, whatever it is; where that was said already, it is not said again.
pub(crate) fn summarize(voice: &Voice, what: &str, report: &Report, code: u8) {
    if voice.json {
        return;
    }
    let watched = voice.terminal || voice.verbose;
    let line = match report {
        Report::Ran { ran, .. } if ran.ending.is_success() => {
            let (n, token) = (ran.begin.attempt, ran.begin.grant.token);
            let tries = if ran.tries > 1 { format!(", {} tries", ran.tries) } else { String::new() };
            format!(
                "{what} done in {} (attempt {n}{tries}, token {token} of {})",
                took(ran),
                ran.begin.resource
            )
        }
        Report::AlreadyDone(entry) if !watched => format!("{what} is done ({}): skipped", who_did_it(entry)),
        Report::Yielded(busy) if !watched => format!("{what} skipped: {}", held(busy)),
        // an anomaly is said as always
        _ => return,
    };
    voice.say(&format!("{line}; exit {code}"));
}

/// The one line, or the one object, of the outcome.
pub(crate) fn speak(voice: &Voice, what: &str, report: &Report, code: u8) {
    voice.outcome(|| as_json(what, report, code));
    if voice.json {
        return;
    }
    match report {
        Report::AlreadyDone(entry) => {
            voice.mention(|| format!("{what} is done ({}): skipped", who_did_it(entry)))
        }
        Report::Yielded(busy) => voice.mention(|| format!("{what} skipped: {}", held(busy))),
        Report::Busy(busy) => voice.say(&format!("{what} not run: {}", held(busy))),
        Report::NeedsPerson { entry, ran } => {
            let why = match (&entry.state, ran) {
                (State::Quarantined, Some(ran)) => {
                    format!(
                        "{} for the {} time in a row and is quarantined",
                        ended(&ran.ending),
                        ordinal(entry.failures)
                    )
                }
                (State::Quarantined, None) => {
                    format!("not run: it is quarantined after {} failures in a row", entry.failures)
                }
                (State::InDoubt { why }, _) => format!("not run: it is in doubt: {why}"),
                (state, _) => format!("not run: it is {}", state.word()),
            };
            voice.say(&format!("{what} {why}; {}", how_to_resolve(what)));
        }
        Report::Mismatch { changes, entry } => {
            let fields: Vec<String> = changes
                .iter()
                .take(20)
                .map(|field| {
                    let how = match field.change {
                        Change::Changed => "changed",
                        Change::Added => "added",
                        Change::Removed => "removed",
                    };
                    let pointer = field.pointer.as_str();
                    format!("{} {how}", if pointer.is_empty() { "the payload" } else { pointer })
                })
                .collect();
            let more =
                if changes.len() > 20 { format!(" and {} more", changes.len() - 20) } else { String::new() };
            voice.say(&format!(
                "{what} not run: the key is bound to another payload ({}{more}); the first is {} ({}); give it another key, or name fields that may differ with --volatile",
                fields.join(", "), entry.state.word(), who_did_it(entry),
            ));
        }
        Report::Ran { ran, .. } => match (&ran.ending, &ran.not_started) {
            (Ending::Succeeded | Ending::ProbedDone, _) => {
                voice.detail(|| format!("{what} {} in {}", ended(&ran.ending), took(ran)))
            }
            (_, Some(why)) => voice.say(&format!("{what} not run: {}", why.why)),
            _ => voice.say(&format!(
                "{what} {} (attempt {}, after {})",
                ended(&ran.ending),
                ran.begin.attempt,
                took(ran)
            )),
        },
        Report::Blocked { ran, step } => {
            let step_name = step.work.to_string();
            let why = match &step.state {
                State::InDoubt { why } => format!("is in doubt: {why}"),
                state => format!("is {}", state.word()),
            };
            voice.say(&format!(
                "{what} is not done: its step {} {why} (attempt {} of the run, after {}); {}",
                step.work.step().map(ToString::to_string).unwrap_or_default(),
                ran.begin.attempt,
                took(ran),
                how_to_resolve(&step_name)
            ));
        }
        Report::LeaseLost { ran, why } => voice.say(&format!(
            "{what} lost its lease on {} (token {}): {why}; the command was stopped",
            ran.begin.resource, ran.begin.grant.token
        )),
        Report::Unrecorded { ran, why } => voice.say(&format!(
            "{what} {}, but that could not be recorded: {why}; the next run will take this attempt for lost",
            ended(&ran.ending)
        )),
        Report::TooLate => voice.say(&format!("{what} not run: it is too late for it")),
        Report::StoreDown(why) => voice.say(&format!("{what} not run: {why}")),
        Report::NoPlan(why) => voice.say(&format!("{what} not run: there is no plan for it: {why}")),
        Report::Interrupted(signal) => voice.say(&format!("{what} not run: interrupted by signal {signal}")),
        Report::Unusable(why) => voice.say(&format!("{what} not run: {why}")),
    }
}

fn took(ran: &Ran) -> String {
    span(u64::try_from(ran.took.as_millis()).unwrap_or(u64::MAX))
}

fn ordinal(n: u32) -> String {
    let suffix = match (n % 10, n % 100) {
        (_, 11..=13) => "th",
        (1, _) => "st",
        (2, _) => "nd",
        (3, _) => "rd",
        _ => "th",
    };
    format!("{n}{suffix}")
}

fn as_json(what: &str, report: &Report, code: u8) -> Value {
    let mut object = json!({ "kind": "outcome", "work": what, "exit_code": code });
    let (outcome, more) = match report {
        Report::AlreadyDone(entry) => ("skipped", json!({ "why": "done", "entry": entry })),
        Report::Yielded(busy) => ("skipped", busy_json(busy)),
        Report::Busy(busy) => ("busy", busy_json(busy)),
        Report::NeedsPerson { entry, ran } => {
            let ran = ran.as_ref().map(ran_json).unwrap_or_default();
            (entry.state.word(), json!({ "entry": entry, "ran": ran, "resolve": how_to_resolve(what) }))
        }
        Report::Mismatch { changes, entry } => ("mismatch", json!({ "fields": changes, "entry": entry })),
        Report::Ran { ran, entry } => {
            let outcome = match &ran.ending {
                Ending::Succeeded | Ending::ProbedDone => "done",
                Ending::TimedOut => "timed_out",
                Ending::Interrupted { .. } => "interrupted",
                Ending::NotStarted { .. } => "not_started",
                _ => "failed",
            };
            let result = entry.as_ref().and_then(|entry| entry.result.clone());
            let state = entry.as_ref().map(|entry| entry.state.word());
            (outcome, json!({ "ran": ran_json(ran), "state": state, "result": result }))
        }
        Report::Blocked { ran, step } => (
            "blocked",
            json!({ "ran": ran_json(ran), "step": step, "resolve": how_to_resolve(&step.work.to_string()) }),
        ),
        Report::LeaseLost { ran, why } => ("lease_lost", json!({ "ran": ran_json(ran), "why": why })),
        Report::Unrecorded { ran, why } => ("unrecorded", json!({ "ran": ran_json(ran), "why": why })),
        Report::TooLate => ("too_late", json!({})),
        Report::StoreDown(why) => ("store_down", json!({ "why": why })),
        Report::NoPlan(why) => ("no_plan", json!({ "why": why })),
        Report::Interrupted(signal) => ("interrupted", json!({ "signal": signal })),
        Report::Unusable(why) => ("unusable", json!({ "why": why })),
    };
    if let (Some(object), Value::Object(more)) = (object.as_object_mut(), more) {
        object.insert("outcome".into(), outcome.into());
        object.extend(more);
    }
    object
}

fn busy_json(busy: &Busy) -> Value {
    json!({
        "why": if busy.same_work { "running" } else { "busy" },
        "resource": busy.resource, "token": busy.held.token, "hold": busy.held.hold, "wait_ms": busy.held.wait_ms,
    })
}

fn ran_json(ran: &Ran) -> Value {
    json!({
        "resource": ran.begin.resource, "token": ran.begin.grant.token, "attempt": ran.begin.attempt,
        "key": ran.begin.work.as_ref().map(|work| work.key().to_string()),
        "plan": ran.begin.plan, "ending": ran.ending, "tries": ran.tries, "took_ms": u64::try_from(ran.took.as_millis()).unwrap_or(u64::MAX),
        "why": ran.not_started.as_ref().map(|why| &why.why),
    })
}
