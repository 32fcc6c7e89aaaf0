//! What a story says, and what comes next.
#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

use super::*;
use crate::entry::{DoneBy, Output};
use crate::lease::{Hold, Lease, SeenLease};
use crate::policy::OnLost;
use crate::record::{Seen, Standing, Version};
use testing::{attempt, entry, grant, name, owner, running};

pub(crate) mod testing {
    use crate::entry::{Attempt, Ending, Entry, State, Terms};
    use crate::name::Name;
    use crate::owner::Owner;
    use crate::policy::OnLost;
    use crate::token::{Grant, Nonce, Token};
    use crate::work::Work;

    pub(crate) fn name(text: &str) -> Name {
        Name::new(text).unwrap()
    }

    pub(crate) fn owner(pid: i32) -> Owner {
        Owner { host: "web1".into(), boot: "b".into(), pidns: 1, pid, start: 3 }
    }

    pub(crate) fn grant(token: u64) -> Grant {
        Grant {
            token: Token::new(token).unwrap(),
            nonce: Nonce::from_bytes([u8::try_from(token).unwrap(); 16]),
        }
    }

    pub(crate) fn running() -> State {
        State::Running { resource: name("site"), grant: grant(2) }
    }

    pub(crate) fn attempt(n: u32, at_ms: u64, ending: Ending) -> Attempt {
        let ended_ms = (!matches!(ending, Ending::None | Ending::Vanished)).then_some(at_ms + 2_000);
        let Grant { token, nonce } = grant(u64::from(n));
        let (resource, owner) = (name("site"), owner(7));
        Attempt {
            n,
            token,
            nonce,
            resource,
            owner,
            started_ms: at_ms,
            ended_ms,
            missed_renewals: 0,
            unrenewed_ms: 0,
            ending,
            command: None,
            definition: None,
        }
    }

    pub(crate) fn entry(state: State) -> Entry {
        let terms = Terms { on_lost: OnLost::Retry, max_failures: 3, keep_ms: 1_000, remember_ms: None };
        Entry {
            work: Work::once(name("publish")),
            state,
            attempts: 0,
            failures: 0,
            log: Vec::new(),
            verdicts: Vec::new(),
            changed_ms: 0,
            payload: None,
            command: None,
            plan: None,
            definition: None,
            proven: None,
            forgotten: None,
            result: None,
            output: None,
            terms,
        }
    }
}

fn with_log(state: State, endings: Vec<Ending>) -> Entry {
    let mut entry = entry(state);
    entry.log = (1..).zip(endings).map(|(n, ending)| attempt(n, u64::from(n) * 10_000, ending)).collect();
    entry.attempts = u32::try_from(entry.log.len()).unwrap();
    entry
}

fn lease(token: u64, held: bool, standing: Standing) -> SeenLease {
    let hold = Hold {
        owner: owner(7),
        what: "publish".into(),
        since_ms: 0,
        ttl_ms: 60_000,
        lock_delay_ms: 0,
        resting: false,
    };
    let value = Lease { grant: grant(token), hold: held.then_some(hold) };
    SeenLease { record: Seen { value, version: Version::new("1") }, standing, owner_gone: false }
}

fn view(entry: Option<Entry>, lease: Option<SeenLease>) -> View {
    let entry = entry.map(|value| Seen { value, version: Version::new("1") });
    let leases = vec![(name("site"), lease.clone()), (name("publish"), lease)];
    View { entry, leases, ..View::default() }
}

fn words() -> Words<'static> {
    Words { when: &|ms| format!("@{ms}"), span: &|ms| format!("{ms}ms") }
}

fn would(entry: Option<Entry>, lease: Option<SeenLease>) -> Next {
    next(&view(entry, lease), &crate::work::Work::once(name("publish")), &owner(9), 99).unwrap()
}

const LIVE: Standing = Standing::Live { left_ms: 40_000 };
const LAPSED: Standing = Standing::Lapsed { for_ms: 5 };

fn texts(entry: &Entry, condition: Condition, suppressed: &Suppressed) -> Vec<String> {
    let lines = story(entry, condition, suppressed, words());
    lines
        .into_iter()
        .map(|Line { at_ms, text }| format!("{}: {text}", at_ms.map_or("-".into(), |ms| ms.to_string())))
        .collect()
}

#[test]
fn a_story_is_told_in_order_with_what_people_said_in_between() {
    let mut entry = with_log(
        State::Done { by: DoneBy::Run },
        vec![Ending::Failed { code: 2 }, Ending::Vanished, Ending::Succeeded],
    );
    let verdict = |at_ms, said| Verdict {
        said,
        by: "ana".into(),
        at_ms,
        because: "disk full".into(),
        was: "quarantined".into(),
    };
    entry.verdicts = vec![verdict(25_000, Say::Retry), verdict(90_000, Say::Done)];
    let suppressed = Suppressed { done: 7, running: 2, busy: 0, last_ms: Some(5) };
    assert_eq!(
        texts(&entry, Condition::Done, &suppressed),
        [
            "10000: first asked, by pid 7 on web1",
            "10000: attempt 1 (token 1 of site, pid 7 on web1) failed with exit code 2 after 2000ms",
            "20000: attempt 2 (token 2 of site, pid 7 on web1) vanished: its lease was found gone",
            "25000: ana said retry (it was quarantined), because: disk full",
            "30000: attempt 3 (token 3 of site, pid 7 on web1) succeeded after 2000ms",
            "90000: ana said done (it was quarantined), because: disk full",
            "-: 9 duplicates suppressed: 7 because it was done, 2 because it was running (the last at @5)",
        ]
    );
}

#[test]
fn tries_inside_one_invocation_and_attempts_that_are_gone_are_told() {
    let mut entry = with_log(State::Failed { torn: false }, vec![Ending::Failed { code: 1 }; 2]);
    entry.log[1].n = 4;
    let lines = texts(&entry, Condition::Failed, &Suppressed::default());
    assert!(lines[2].contains("attempts 2 to 4 (token 2"), "{lines:?}");
    entry.log.remove(0);
    let lines = texts(&entry, Condition::Failed, &Suppressed::default());
    assert_eq!(lines[0], "-: what came before attempt 4 is not kept one by one");
    assert!(lines[1].contains(": attempt 4 (token 2"), "{lines:?}");
}

#[test]
fn what_runs_what_is_lost_and_what_waits_for_a_person_is_said() {
    let entry = with_log(running(), vec![Ending::Vanished, Ending::None]);
    assert!(texts(&entry, Condition::Running, &Suppressed::default())[2].ends_with("is under way"));
    let lost = texts(&entry, Condition::Lost, &Suppressed::default());
    assert!(
        lost[2].ends_with("its end is not on record") && lost[3].contains("no longer carries token 2"),
        "{lost:?}"
    );
    let mut entry = with_log(State::Quarantined, vec![Ending::Failed { code: 1 }]);
    entry.failures = 1;
    assert!(
        texts(&entry, Condition::Quarantined, &Suppressed::default())[2]
            .ends_with("after 1 failure in a row")
    );
    entry.state = State::InDoubt { why: "killed".into() };
    assert!(texts(&entry, Condition::InDoubt, &Suppressed::default())[2].ends_with("in doubt: killed"));
}

#[test]
fn suppressed_duplicates_are_counted_by_why() {
    let count = |done, running, busy| Suppressed { done, running, busy, last_ms: None }.words();
    assert_eq!(count(0, 0, 0), None);
    assert_eq!(count(1, 0, 0).as_deref(), Some("1 duplicate suppressed, because it was done"));
    assert_eq!(count(0, 3, 0).as_deref(), Some("3 duplicates suppressed, because it was running"));
    let all = count(1, 1, 1).unwrap();
    assert!(
        all.starts_with("3 duplicates suppressed: 1 because it was done, 1 because it was running, 1 "),
        "{all}"
    );
}

#[test]
fn a_run_is_lost_exactly_when_its_lease_no_longer_carries_its_grant() {
    let entry = entry(running());
    let stands = |lease| condition(&view(None, lease), &entry);
    assert_eq!(stands(Some(lease(2, true, LIVE))), Ok(Condition::Running));
    for gone in
        [None, Some(lease(2, true, LAPSED)), Some(lease(3, true, LIVE)), Some(lease(2, false, LAPSED))]
    {
        assert_eq!(stands(gone), Ok(Condition::Lost));
    }
    assert_eq!(condition(&View::default(), &entry), Err(name("site")));
    for condition in Condition::ALL {
        assert_eq!(condition.needs_a_person(), matches!(condition.word(), "quarantined" | "in_doubt"));
    }
}

#[test]
fn what_is_not_on_record_would_be_run_unless_its_resource_is_held() {
    let Next::Run { attempt: 1, resource, .. } = would(None, None) else { unreachable!() };
    assert_eq!(resource, name("publish"));
    let Next::Yield(busy) = would(None, Some(lease(2, true, LIVE))) else { unreachable!() };
    assert!(!busy.same_work);
    assert!(
        Next::Yield(busy).words(words()).contains("publish is held for publish by pid 7 on web1 (token 2)")
    );
}

#[test]
fn what_stands_there_decides_what_comes_next() {
    let done = State::Done { by: DoneBy::Run };
    assert_eq!(would(Some(entry(done.clone())), None), Next::Skip { remembered_until_ms: None });
    let mut short = entry(done);
    (short.changed_ms, short.terms.remember_ms) = (5, Some(10));
    let skip = would(Some(short), None);
    assert_eq!(skip, Next::Skip { remembered_until_ms: Some(15) });
    assert!(skip.words(words()).contains("until @15"));
    assert_eq!(would(Some(entry(State::Quarantined)), None).word(), "needs_person");
    let failed = with_log(State::Failed { torn: false }, vec![Ending::Failed { code: 1 }]);
    assert_eq!(
        would(Some(failed), None),
        Next::Run { resource: name("site"), attempt: 2, after_lost: false }
    );
    let running = with_log(running(), vec![Ending::Vanished, Ending::None]);
    let Next::Yield(busy) = would(Some(running.clone()), Some(lease(2, true, LIVE))) else { unreachable!() };
    assert!(busy.same_work);
    assert_eq!(
        would(Some(running), Some(lease(2, true, LAPSED))),
        Next::Run { resource: name("site"), attempt: 3, after_lost: true }
    );
}

#[test]
fn a_lost_run_is_treated_by_its_recorded_policy() {
    let lost = |on_lost| {
        let mut entry = with_log(running(), vec![Ending::Vanished, Ending::None]);
        entry.terms.on_lost = on_lost;
        would(Some(entry), Some(lease(2, true, LAPSED)))
    };
    assert_eq!(lost(OnLost::Retry).word(), "run");
    assert_eq!(lost(OnLost::Probe), Next::Probe { resource: name("site"), attempt: 3 });
    let Next::Person(state @ State::InDoubt { .. }) = lost(OnLost::Hold) else { unreachable!() };
    assert!(Next::Person(state).words(words()).contains("vanished"));
}

#[test]
fn the_recorded_cap_is_what_quarantines() {
    let mut failed = with_log(State::Failed { torn: false }, vec![Ending::Failed { code: 1 }]);
    (failed.failures, failed.terms.max_failures) = (2, 2);
    assert_eq!(would(Some(failed.clone()), None), Next::Person(State::Quarantined));
    failed.terms.max_failures = 0;
    assert_eq!(would(Some(failed), None).word(), "run");
}

#[test]
fn a_lease_that_was_not_looked_at_is_asked_for() {
    let running = with_log(State::Running { resource: name("a"), grant: grant(1) }, vec![Ending::None]);
    let ask = |view: &View| next(view, &running.work, &owner(9), 9);
    assert_eq!(ask(&view(Some(running.clone()), None)), Err(name("a")));
}

fn step() -> Work {
    Work::parse_readable("publish~notify").unwrap()
}

/// What the next run would do with a step that stands so: in a word, and in words.
fn would_do(entry: Option<Entry>, lease: Option<SeenLease>) -> (&'static str, String) {
    let entry = entry.map(|entry| Entry { work: step(), ..entry });
    let next = next(&view(entry, lease), &step(), &owner(9), 99).unwrap();
    (next.word(), next.words(words()))
}

#[test]
fn a_step_is_told_by_the_rule_of_steps_and_never_takes_a_lease() {
    // the lease of its job's name is held: that is for the run to wait for
    let held = || Some(lease(9, true, LIVE));
    let first = "run it for the first time, when it comes to this step";
    assert_eq!(would_do(None, held()), ("run", first.into()));
    let failed = with_log(State::Failed { torn: false }, vec![Ending::Failed { code: 1 }]);
    assert_eq!(
        would_do(Some(failed), held()),
        ("run", "run it (attempt 2), when it comes to this step".into())
    );
    // a step has no cap, whatever its failures
    let mut often = with_log(State::Failed { torn: false }, vec![Ending::Failed { code: 1 }]);
    (often.failures, often.terms.max_failures) = (9, 3);
    assert_eq!(would_do(Some(often), None).0, "run");
    let reopened = with_log(State::Open { torn: false }, vec![Ending::Vanished]);
    assert_eq!(would_do(Some(reopened), None).0, "run");
    assert_eq!(next(&View::default(), &step(), &owner(9), 99).unwrap().word(), "run");
}

#[test]
fn a_step_that_is_done_is_replayed() {
    let done = |kept: Option<bool>| {
        let output =
            kept.map(|kept| Output { of: grant(1).nonce, pieces: 1, out_bytes: 2, err_bytes: 0, kept });
        would_do(Some(Entry { output, ..entry(State::Done { by: DoneBy::Run }) }), None)
    };
    assert_eq!(done(None), ("replay", "replay it: it is done".into()));
    let again = "replay it: it is done, and what it wrote is written again as long as it is kept";
    assert_eq!(done(Some(true)), ("replay", again.into()));
    let not_kept = "replay it: it is done, but what it wrote was more than is kept";
    assert_eq!(done(Some(false)), ("replay", not_kept.into()));
}

#[test]
fn a_lost_step_is_treated_by_its_recorded_policy() {
    let torn = with_log(State::Open { torn: true }, vec![Ending::Vanished]);
    let lost = with_log(running(), vec![Ending::Failed { code: 1 }, Ending::None]);
    for (entry, attempt) in [(torn, 2), (lost, 3)] {
        let asked = |on_lost| {
            let mut entry = entry.clone();
            entry.terms.on_lost = on_lost;
            would_do(Some(entry), Some(lease(3, true, LIVE)))
        };
        let (word, words) = asked(OnLost::Retry);
        assert_eq!(word, "run");
        assert!(words.starts_with(&format!("run it again (attempt {attempt}), when it comes")), "{words}");
        let (word, words) = asked(OnLost::Probe);
        assert_eq!(word, "probe");
        assert!(words.contains(&format!("if not run it (attempt {attempt}), when it comes")), "{words}");
        let (word, words) = asked(OnLost::Hold);
        assert_eq!(word, "needs_person");
        assert!(
            words.starts_with("not run it, and ask a person (79): in doubt, its last attempt"),
            "{words}"
        );
    }
    let doubted = entry(State::InDoubt { why: "?".into() });
    assert_eq!(would_do(Some(doubted), None).0, "needs_person");
}

#[test]
fn a_step_whose_run_is_alive_is_left_to_it() {
    let under_way = with_log(running(), vec![Ending::Vanished, Ending::None]);
    let (word, words) = would_do(Some(under_way.clone()), Some(lease(2, true, LIVE)));
    assert_eq!(word, "yield");
    assert!(words.starts_with("yield: pid 7 on web1 is at it (token 2)"), "{words}");
    let blind = View { leases: Vec::new(), ..view(Some(Entry { work: step(), ..under_way }), None) };
    assert_eq!(next(&blind, &step(), &owner(9), 99), Err(name("site")));
}

#[test]
fn what_vanished_under_a_lease_that_lived_on_is_told_apart() {
    let mut entry = with_log(State::Open { torn: true }, vec![Ending::Vanished]);
    entry.log[0].ended_ms = Some(11_000);
    assert_eq!(
        texts(&entry, Condition::Open, &Suppressed::default())[1],
        "10000: attempt 1 (token 1 of site, pid 7 on web1) vanished after 1000ms: its process ended without saying how"
    );
}
