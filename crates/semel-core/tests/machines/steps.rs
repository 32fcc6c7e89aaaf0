//! Each state of a step against each policy, and a step over any history.

use proptest::collection::vec;
use proptest::prelude::*;
use semel_core::claim::{First, Guard, Stands, View, Write, verdict};
use semel_core::entry::{self, DoneBy, Ending, Entry, Output, Say, Stale, State, Terms, Verdict};
use semel_core::lease::SeenLease;
use semel_core::name::Name;
use semel_core::policy::OnLost;
use semel_core::record::{Expect, Seen, Version};
use semel_core::step::{RunsUnder, StepAsk, StepClaim, StepDecision, claim};
use semel_core::token::Grant;
use semel_core::work::Work;

use super::desk::{LAPSED, LIVE, free, grant, held, name, nonce, owner, settle, view, work};

const POLICIES: [OnLost; 3] = [OnLost::Retry, OnLost::Hold, OnLost::Probe];

fn step() -> Work {
    work().at_step(name("mail"), 1).unwrap()
}

/// What a run that holds `resource` under this grant, at version 7, may do with its step.
fn ask(view: &View, resource: &str, grant: Grant, on_lost: OnLost) -> StepDecision {
    let (resource, lease, owner) = (name(resource), Version::from(7), owner(9));
    let of = work();
    let run = RunsUnder {
        work: &of,
        resource: &resource,
        grant: &grant,
        lease: &lease,
        entry: &Version::from(8),
        owner: &owner,
    };
    claim(view, &StepAsk { work: &step(), run, on_lost, keep_ms: 4, command: None, now_ms: 5 })
}

/// The same under `r` and grant (2, 2).
fn asked(entry: Option<Entry>, leases: &[(&str, Option<SeenLease>)], on_lost: OnLost) -> StepDecision {
    ask(&view(entry, leases), "r", grant(2, 2), on_lost)
}

fn claimed(decision: StepDecision) -> StepClaim {
    match decision {
        StepDecision::Claim(claim) => claim,
        other => panic!("not claimed: {other:?}"),
    }
}

/// A step that runs under `resource` and grant (1, 1), as its claim would write it.
fn running(resource: &str) -> Entry {
    claimed(ask(&view(None, &[]), resource, grant(1, 1), OnLost::Hold)).entry
}

fn standing(state: State) -> Entry {
    Entry { state, ..running("r") }
}

/// What a decision comes to, in a word.
fn word(decision: &StepDecision) -> &'static str {
    match decision {
        StepDecision::LookAt(_) => "look",
        StepDecision::Claim(claim) if claim.first == First::Probe => "probe",
        StepDecision::Claim(claim) if claim.after_lost => "again",
        StepDecision::Claim(_) => "run",
        StepDecision::UnderWay(_) => "under way",
        StepDecision::Done(_) => "done",
        StepDecision::Person(_) => "person",
        StepDecision::Doubt { entry, .. } => entry.state.word(),
        StepDecision::Elsewhere { .. } => "elsewhere",
    }
}

fn own() -> Guard {
    Guard { resource: name("r"), expect: Expect::Live(Version::from(7)) }
}

fn say(said: Say) -> Verdict {
    Verdict { said, by: "p".into(), at_ms: 1, because: "b".into(), was: "w".into() }
}

#[test]
fn every_state_answers_by_the_policy() {
    let lost = ["again", "in_doubt", "probe"];
    let done = |by| State::Done { by };
    let under = |grant| State::Running { resource: name("r"), grant };
    let rows = [
        (done(DoneBy::Run), ["done"; 3]),
        (done(DoneBy::Probe), ["done"; 3]),
        (done(DoneBy::Person), ["done"; 3]),
        (State::Quarantined, ["person"; 3]),
        (State::InDoubt { why: "?".into() }, ["person"; 3]),
        (State::Open { torn: false }, ["run"; 3]),
        (State::Failed { torn: false }, ["run"; 3]),
        (State::Open { torn: true }, lost),
        (State::Failed { torn: true }, lost),
        (under(grant(2, 2)), ["under way"; 3]),
        (under(grant(1, 1)), lost),
        // one token, another nonce: not ours
        (under(grant(2, 1)), lost),
        // we are the zombie: the write is refused by the guard
        (under(grant(3, 3)), lost),
    ];
    for (state, expected) in rows {
        let answers = POLICIES.map(|on_lost| word(&asked(Some(standing(state.clone())), &[], on_lost)));
        assert_eq!(answers, expected, "{state:?}");
    }
    assert_eq!(POLICIES.map(|on_lost| word(&asked(None, &[], on_lost))), ["run"; 3]);
}

#[test]
fn what_ran_under_another_resource_is_lost_exactly_when_its_lease_is_gone() {
    let lost = ["again", "in_doubt", "probe"];
    let mut gone = held(grant(1, 1), LIVE);
    gone.owner_gone = true;
    let mut resting = held(grant(1, 1), LIVE);
    resting.record.value.hold.as_mut().unwrap().resting = true;
    let rows = [
        (Some(held(grant(1, 1), LIVE)), ["elsewhere"; 3], None),
        (Some(held(grant(1, 1), LAPSED)), lost, Some(Expect::Lapsed(Version::from(3)))),
        (Some(held(grant(5, 5), LIVE)), lost, Some(Expect::Version(Version::from(3)))),
        (Some(held(grant(1, 2), LIVE)), lost, Some(Expect::Version(Version::from(3)))),
        (Some(free(grant(1, 1))), lost, Some(Expect::Version(Version::from(4)))),
        (Some(gone), lost, Some(Expect::Version(Version::from(3)))),
        (Some(resting), lost, Some(Expect::Version(Version::from(3)))),
        (None, lost, Some(Expect::Absent)),
    ];
    for (lease, expected, guard) in rows {
        let leases = [("s", lease)];
        let answers = POLICIES.map(|on_lost| asked(Some(running("s")), &leases, on_lost));
        assert_eq!(answers.each_ref().map(word), expected, "{leases:?}");
        for answer in answers {
            let guards = match answer {
                StepDecision::Claim(claim) => claim.guards,
                StepDecision::Doubt { guards, .. } => guards,
                _ => continue,
            };
            let theirs = guard.clone().map(|expect| Guard { resource: name("s"), expect });
            assert_eq!(guards, [Some(own()), theirs].into_iter().flatten().collect::<Vec<_>>());
        }
    }
    assert_eq!(word(&asked(Some(running("s")), &[], OnLost::Hold)), "look");
    // of our own resource no lease needs to be looked at: the guard is about it
    assert_eq!(word(&asked(Some(running("r")), &[], OnLost::Hold)), "in_doubt");
}

#[test]
fn everything_that_is_written_is_guarded_by_the_lease_of_the_run() {
    let first = claimed(asked(None, &[], OnLost::Hold));
    let [Write::Guard(guard), Write::Stands(stands), Write::Entry { entry, expect: Expect::Absent }] =
        &first.writes()[..]
    else {
        panic!()
    };
    assert_eq!(stands, &Stands { work: work(), expect: Expect::Version(Version::from(8)) });
    assert_eq!((guard, entry), (&own(), &first.entry));
    let again = claimed(asked(Some(running("r")), &[], OnLost::Retry));
    assert_eq!((again.guards, again.expect), (vec![own()], Expect::Version(Version::from(2))));
    match asked(Some(running("r")), &[], OnLost::Hold) {
        StepDecision::Doubt { guards, stands, expect, entry } => {
            assert!(stands.is_some());
            assert_eq!((guards, expect), (vec![own()], Expect::Version(Version::from(2))));
            assert_eq!(entry.last_attempt().unwrap().ending, Ending::Vanished);
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_claim_records_the_run_that_makes_it_and_its_own_terms() {
    let lost = Entry { failures: 3, ..running("r") };
    let entry = claimed(asked(Some(lost), &[], OnLost::Probe)).entry;
    assert_eq!(entry.state, State::Running { resource: name("r"), grant: grant(2, 2) });
    let attempts: Vec<_> = entry.log.iter().map(|one| (one.n, one.nonce, one.ending.clone())).collect();
    assert_eq!(attempts, [(1, nonce(1), Ending::Vanished), (2, nonce(2), Ending::None)]);
    // no cap: its run has one
    let terms = Terms { on_lost: OnLost::Probe, max_failures: 0, keep_ms: 4, remember_ms: None };
    assert_eq!((entry.terms, entry.failures, entry.work), (terms, 3, step()));
}

#[test]
fn an_ending_says_whether_the_next_run_may_begin_it_again() {
    let rows = [
        (Ending::Succeeded, "done"),
        (Ending::ProbedDone, "done"),
        (Ending::Failed { code: 1 }, "run"),
        (Ending::NotStarted { code: 127 }, "run"),
        (Ending::Killed { signal: 9 }, "in_doubt"),
        (Ending::TimedOut, "in_doubt"),
        (Ending::Interrupted { signal: 15 }, "in_doubt"),
        (Ending::LeaseLost, "in_doubt"),
        (Ending::Vanished, "in_doubt"),
        (Ending::ProbedUnknown { answer: "?".into() }, "person"),
    ];
    for (ending, next) in rows {
        let settled = entry::settle(&running("r"), &settle(&grant(1, 1), ending.clone())).unwrap();
        assert_eq!(word(&asked(Some(settled), &[], OnLost::Hold)), next, "{ending:?}");
    }
}

#[test]
fn a_run_that_waits_for_a_person_is_neither_done_nor_failed_nor_torn() {
    let ending = Ending::Blocked { step: step().to_string() };
    let run = entry::settle(&super::desk::running(), &settle(&grant(1, 1), ending)).unwrap();
    assert_eq!((run.state, run.failures), (State::Open { torn: false }, 0));
}

#[test]
fn a_step_is_settled_only_under_the_grant_that_runs_it() {
    let lost = running("r");
    let taken = claimed(asked(Some(lost.clone()), &[], OnLost::Retry)).entry;
    let stale = entry::settle(&taken, &settle(&grant(1, 1), Ending::Succeeded));
    assert_eq!(stale, Err(Stale::MovedOn { state: "running" }));
    let done = entry::settle(&taken, &settle(&grant(2, 2), Ending::Succeeded)).unwrap();
    assert_eq!(entry::settle(&done, &settle(&grant(2, 2), Ending::Succeeded)), Err(Stale::AlreadySettled));
    let output = Some(Output { of: nonce(4), pieces: 1, out_bytes: 3, err_bytes: 0, kept: true });
    let first = grant(1, 1);
    let kept = entry::Settle { output: output.clone(), ..settle(&first, Ending::Succeeded) };
    assert_eq!(entry::settle(&lost, &kept).unwrap().output, output);
}

#[test]
fn of_several_attempts_under_one_grant_the_last_one_is_settled() {
    let (mine, no) = (grant(2, 2), Ending::Failed { code: 1 });
    let once = claimed(asked(None, &[], OnLost::Hold)).entry;
    let failed = entry::settle(&once, &settle(&mine, no.clone())).unwrap();
    let twice = claimed(asked(Some(failed), &[], OnLost::Hold)).entry;
    let done = entry::settle(&twice, &settle(&mine, Ending::Succeeded)).unwrap();
    let endings: Vec<_> = done.log.iter().map(|attempt| attempt.ending.clone()).collect();
    assert_eq!(endings, [no.clone(), Ending::Succeeded]);
    assert_eq!(entry::settle(&done, &settle(&mine, no)), Err(Stale::MovedOn { state: "done" }));
}

#[test]
fn a_verdict_on_a_step_decides_what_the_next_run_does() {
    let doubted = standing(State::InDoubt { why: "?".into() });
    let output = Some(Output { of: nonce(4), pieces: 1, out_bytes: 3, err_bytes: 0, kept: true });
    for (said, next) in [(Say::Done, "done"), (Say::NotDone, "run"), (Say::Retry, "run")] {
        let seen =
            Seen { value: Entry { output: output.clone(), ..doubted.clone() }, version: Version::from(2) };
        let (judged, ..) = verdict(&View::default(), &seen, say(said), None).unwrap();
        assert_eq!(judged.output, None, "what an attempt in doubt wrote is not replayed");
        assert_eq!(word(&asked(Some(judged), &[], OnLost::Hold)), next);
    }
}

fn endings() -> impl Strategy<Value = Ending> {
    prop_oneof![
        Just(Ending::Succeeded),
        (1..3).prop_map(|code| Ending::Failed { code }),
        Just(Ending::Killed { signal: 9 }),
        Just(Ending::TimedOut),
        Just(Ending::Vanished),
        Just(Ending::ProbedDone),
        Just(Ending::ProbedUnknown { answer: "?".into() }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// Runs come and go, one after another; each claims the step or settles it, and now and then a person speaks.
    #[test]
    fn a_held_step_is_begun_again_only_after_a_clean_failure_or_a_verdict(
        moves in vec((0..6u8, endings(), any::<bool>()), 1..60),
    ) {
        let (mut stands, mut token): (Option<Entry>, u8) = (None, 1);
        // may the effect have happened, as far as somebody who sees everything knows?
        let mut unsure = false;
        for (what, ending, done) in moves {
            let mine = grant(token.into(), token);
            match (what, stands.clone()) {
                (0, _) => token += 1,
                (1..=3, was) => match ask(&view(was, &[]), "r", mine, OnLost::Hold) {
                    StepDecision::Claim(claim) => {
                        prop_assert!(!unsure);
                        prop_assert_eq!(&claim.guards, &[own()]);
                        unsure = true;
                        stands = Some(claim.entry);
                    }
                    StepDecision::Doubt { entry, guards, .. } => {
                        prop_assert!(unsure && entry.state.needs_a_person());
                        prop_assert_eq!(&guards, &[own()]);
                        stands = Some(entry);
                    }
                    StepDecision::LookAt(_) | StepDecision::Elsewhere { .. } => prop_assert!(false),
                    StepDecision::UnderWay(_) | StepDecision::Done(_) | StepDecision::Person(_) => {}
                },
                (4, Some(was)) => if let Ok(settled) = entry::settle(&was, &settle(&mine, ending.clone())) {
                    unsure = !matches!(ending, Ending::Failed { .. });
                    stands = Some(settled);
                },
                (_, Some(was)) if was.state.needs_a_person() => {
                    let seen = Seen { value: was, version: Version::from(2) };
                    let said = if done { Say::Done } else { Say::Retry };
                    stands = Some(verdict(&View::default(), &seen, say(said), None).unwrap().0);
                    unsure = done;
                }
                _ => {}
            }
        }
    }

    /// Whatever stands there, a step's claim never touches a lease, and its own guard comes first.
    #[test]
    fn the_guard_of_the_run_comes_first(torn: bool, other in "[rst]", lapsed: bool, n in 1..4u8) {
        let there = grant(n.into(), n);
        let resource = Name::new(&other).unwrap();
        let lease = Some(held(there, if lapsed { LAPSED } else { LIVE }));
        for state in [State::Open { torn }, State::Failed { torn }, State::Running { resource, grant: there }] {
            for on_lost in POLICIES {
                let writes = match asked(Some(standing(state.clone())), &[(&other, lease.clone())], on_lost) {
                    StepDecision::Claim(claim) => claim.writes(),
                    StepDecision::Doubt { entry, expect, guards, stands } => {
                        semel_core::step::guarded(&guards, stands.as_ref(), &entry, &expect)
                    }
                    _ => continue,
                };
                prop_assert_eq!(&writes[0], &Write::Guard(own()));
                let (last, before) = writes.split_last().unwrap();
                let is_entry = matches!(last, Write::Entry { .. });
                prop_assert!(is_entry);
                prop_assert!(before.iter().all(|write| matches!(write, Write::Guard(_) | Write::Stands(_))));
            }
        }
    }
}
