//! Each state against each policy.

use semel_core::calendar::Reason;
use semel_core::claim::{After, Decision, First, Guard, Refusal, Write, conclude, verdict};
use semel_core::entry::{DoneBy, Ending, Entry, Say, Stale, State, Verdict};
use semel_core::lease::{Before, SeenLease};
use semel_core::payload::Fingerprint;
use semel_core::plan::Plan;
use semel_core::policy::{OnLost, Policy};
use semel_core::record::{Expect, Seen, Version};
use semel_core::token::Token;
use semel_core::work::Work;
use serde_json::json;

use super::desk::{
    Asking, LAPSED, LIVE, entry, free, grant, held, name, nonce, policy, running, settle, view,
};

fn claim(entry: Entry, lease: Option<SeenLease>, policy: Policy) -> Decision {
    Asking::under(policy).claim(&view(Some(entry), &[("r", lease)]))
}

fn after_release(state: State, policy: Policy) -> Decision {
    claim(entry(state), Some(free(grant(1, 1))), policy)
}

/// What a decision comes to, in a word.
fn word(decision: &Decision) -> &'static str {
    match decision {
        Decision::LookAt(_) => "look",
        Decision::Claim(claim) if claim.first == First::Probe => "probe",
        Decision::Claim(claim) if claim.after_lost => "again",
        Decision::Claim(_) => "run",
        Decision::Claimed => "claimed",
        Decision::Done(_) => "done",
        Decision::Busy(busy) if busy.same_work => "busy with it",
        Decision::Busy(_) => "busy",
        Decision::Person(_) => "person",
        Decision::Doubt { entry, .. } => entry.state.word(),
        Decision::Mismatch { .. } => "mismatch",
        Decision::UsedUp(_) => "used up",
        Decision::NoResource => "nowhere",
    }
}

const POLICIES: [OnLost; 3] = [OnLost::Retry, OnLost::Hold, OnLost::Probe];

#[test]
fn every_settled_state_answers_by_the_policy() {
    let done = |by| State::Done { by };
    let rows = [
        (done(DoneBy::Run), ["done"; 3]),
        (done(DoneBy::Probe), ["done"; 3]),
        (done(DoneBy::Person), ["done"; 3]),
        (State::Quarantined, ["person"; 3]),
        (State::InDoubt { why: "?".into() }, ["person"; 3]),
        (State::Open { torn: false }, ["run"; 3]),
        (State::Missed { reason: Reason::Busy, detail: None }, ["run"; 3]),
        (State::Failed { torn: false }, ["run"; 3]),
        (State::Open { torn: true }, ["again", "in_doubt", "probe"]),
        (State::Failed { torn: true }, ["again", "in_doubt", "probe"]),
    ];
    for (state, expected) in rows {
        let answers = POLICIES.map(|on_lost| word(&after_release(state.clone(), policy(on_lost, 3))));
        assert_eq!(answers, expected, "{state:?}");
    }
}

#[test]
fn a_run_is_alive_exactly_while_its_lease_is_live_and_carries_its_grant() {
    let mut gone = held(grant(1, 1), LIVE);
    gone.owner_gone = true;
    let mut resting = held(grant(1, 1), LIVE);
    resting.record.value.hold.as_mut().unwrap().resting = true;
    let rows = [
        (Some(held(grant(1, 1), LIVE)), ["busy with it"; 3]),
        (Some(held(grant(1, 1), LAPSED)), ["again", "in_doubt", "probe"]),
        (Some(gone), ["again", "in_doubt", "probe"]),
        (Some(free(grant(1, 1))), ["again", "in_doubt", "probe"]),
        (None, ["again", "in_doubt", "probe"]),
        // another has the resource: lost, but only a verdict of the policy needs no lease
        (Some(held(grant(2, 2), LIVE)), ["busy", "in_doubt", "busy"]),
        (Some(held(grant(1, 2), LIVE)), ["busy", "in_doubt", "busy"]),
        (Some(resting), ["busy", "in_doubt", "busy"]),
    ];
    for (lease, expected) in rows {
        let answers = POLICIES.map(|on_lost| word(&claim(running(), lease.clone(), policy(on_lost, 3))));
        assert_eq!(answers, expected, "{lease:?}");
    }
}

#[test]
fn an_answer_that_was_lost_is_recognised_by_its_nonce() {
    let mine = Asking { nonce: nonce(1), ..Asking::new() };
    let alive = view(Some(running()), &[("r", Some(held(grant(1, 1), LIVE)))]);
    assert_eq!(word(&mine.claim(&alive)), "claimed");
    let lapsed = view(Some(running()), &[("r", Some(held(grant(1, 1), LAPSED)))]);
    assert_eq!(word(&mine.claim(&lapsed)), "again");
}

#[test]
fn our_own_lease_without_the_intent_is_written_again_with_a_fresh_clock() {
    let mine = Asking { nonce: nonce(1), ..Asking::new() };
    let Decision::Claim(claim) = mine.claim(&view(None, &[("r", Some(held(grant(1, 1), LIVE)))])) else {
        panic!()
    };
    assert_eq!((claim.lease.before, claim.grant()), (Before::Ours, grant(1, 1)));
    let [Write::Lease { expect, ttl_ms: Some(60_000), .. }, Write::Entry { .. }] = &claim.writes()[..] else {
        panic!()
    };
    assert_eq!(*expect, Expect::Live(Version::from(3)));
}

#[test]
fn a_lowered_cap_quarantines_what_has_failed_as_often() {
    for state in [State::Failed { torn: false }, State::Failed { torn: true }] {
        let failed = Entry { failures: 2, ..entry(state) };
        let asked = |max| word(&claim(failed.clone(), Some(free(grant(1, 1))), policy(OnLost::Retry, max)));
        assert_eq!([asked(3), asked(2), asked(1)][1..], ["quarantined"; 2]);
        assert!(["run", "again"].contains(&asked(3)));
        assert!(["run", "again"].contains(&asked(0)), "a cap of 0 is none");
    }
}

#[test]
fn another_payload_is_refused_whatever_the_state() {
    let of = |value| Fingerprint::of_json(&value, &[]).unwrap();
    for state in [State::Done { by: DoneBy::Run }, State::Open { torn: false }, State::Quarantined] {
        let bound = Entry { payload: Some(of(json!({"a": 1}))), ..entry(state) };
        let offered =
            |payload| Asking { payload, ..Asking::new() }.claim(&view(Some(bound.clone()), &[("r", None)]));
        assert_eq!(word(&offered(Some(of(json!({"a": 2}))))), "mismatch");
        assert_ne!(word(&offered(Some(of(json!({"a": 1}))))), "mismatch");
        assert_ne!(word(&offered(None)), "mismatch");
    }
}

#[test]
fn the_first_free_resource_is_taken_and_the_soonest_is_waited_for() {
    let either = Asking { resources: vec![name("r"), name("s")], ..Asking::new() };
    let soon = held(grant(7, 7), semel_core::record::Standing::Live { left_ms: 1 });
    let taken = Some(held(grant(5, 5), LIVE));
    let Decision::Claim(claim) =
        either.claim(&view(None, &[("r", taken.clone()), ("s", Some(free(grant(7, 7))))]))
    else {
        panic!()
    };
    assert_eq!((claim.resource.as_str(), claim.grant().token.value()), ("s", 8));
    let Decision::Busy(busy) = either.claim(&view(None, &[("r", taken), ("s", Some(soon))])) else {
        panic!()
    };
    assert_eq!((busy.resource.as_str(), busy.held.wait_ms, busy.same_work), ("s", 1, false));
    assert_eq!(word(&Asking { resources: vec![], ..Asking::new() }.claim(&view(None, &[]))), "nowhere");
}

#[test]
fn what_was_lost_under_another_resource_is_guarded_by_that_lease() {
    let elsewhere = Asking { resources: vec![name("s")], ..Asking::new() };
    let guards = |lease: Option<SeenLease>| match elsewhere
        .claim(&view(Some(running()), &[("r", lease), ("s", None)]))
    {
        Decision::Claim(claim) => claim.guards,
        other => panic!("{other:?}"),
    };
    let guard = |expect| vec![Guard { resource: name("r"), expect }];
    assert_eq!(guards(Some(held(grant(1, 1), LAPSED))), guard(Expect::Lapsed(Version::from(3))));
    assert_eq!(guards(Some(held(grant(2, 2), LIVE))), guard(Expect::Version(Version::from(3))));
    assert_eq!(guards(Some(free(grant(1, 1)))), guard(Expect::Version(Version::from(4))));
    assert_eq!(guards(None), guard(Expect::Absent));
    // the lease that is taken is checked by its own write
    let Decision::Claim(same) = claim(running(), Some(held(grant(1, 1), LAPSED)), Policy::default()) else {
        panic!()
    };
    assert_eq!((same.guards, same.lease.expect), (vec![], Expect::Lapsed(Version::from(3))));
}

#[test]
fn a_lease_that_was_not_looked_at_is_asked_for() {
    let Decision::LookAt(resource) = Asking::new().claim(&view(Some(running()), &[])) else { panic!() };
    assert_eq!(resource, name("r"));
    let elsewhere = Asking { resources: vec![name("s")], ..Asking::new() };
    let lapsed = Some(held(grant(1, 1), LAPSED));
    let Decision::LookAt(resource) = elsewhere.claim(&view(Some(running()), &[("r", lapsed)])) else {
        panic!()
    };
    assert_eq!(resource, name("s"));
}

#[test]
fn a_work_for_always_is_never_done_and_never_held() {
    let always = Work::always(name("job"));
    let running = Entry { work: always.clone(), ..running() };
    let done = semel_core::entry::settle(&running, &settle(&grant(1, 1), Ending::Succeeded)).unwrap();
    assert_eq!(done.state, State::Open { torn: false });
    let failed = semel_core::entry::settle(&running, &settle(&grant(1, 1), Ending::TimedOut)).unwrap();
    assert_eq!((failed.state, failed.failures), (State::Open { torn: false }, 1));
    for on_lost in POLICIES {
        let asking = Asking { work: always.clone(), ..Asking::under(policy(on_lost, 1)) };
        let lost = Entry { failures: 9, ..running.clone() };
        assert_eq!(word(&asking.claim(&view(Some(lost), &[("r", None)]))), "again");
    }
}

#[test]
fn the_tokens_end_is_said() {
    let last = grant(semel_core::token::TOKEN_MAX, 1);
    assert_eq!(word(&Asking::new().claim(&view(None, &[("r", Some(free(last)))]))), "used up");
}

fn concluded(lease: Option<&SeenLease>) -> (State, Vec<&'static str>) {
    let seen = Seen { value: running(), version: Version::from(2) };
    let conclusion =
        conclude(&seen, lease, &settle(&grant(1, 1), Ending::Succeeded), After::Release { rest_ms: 0 })
            .unwrap();
    let writes = conclusion.writes(&name("r"));
    let kinds = writes.iter().map(|write| match write {
        Write::Guard(_) => "guard",
        Write::Lease { .. } => "lease",
        Write::Entry { .. } => "entry",
        Write::Stands(_) => "stands",
        Write::Calendar { .. } => "calendar",
        Write::Alarm { .. } => "alarm",
    });
    (conclusion.entry.state, kinds.collect())
}

#[test]
fn an_outcome_is_accepted_whatever_became_of_the_lease_and_only_our_own_is_released() {
    let done = State::Done { by: DoneBy::Run };
    let ours = [held(grant(1, 1), LIVE), held(grant(1, 1), LAPSED)];
    for lease in ours {
        assert_eq!(concluded(Some(&lease)), (done.clone(), vec!["entry", "lease"]));
    }
    let others =
        [held(grant(2, 2), LIVE), held(grant(2, 2), LAPSED), held(grant(1, 2), LIVE), free(grant(1, 1))];
    for lease in others.iter().map(Some).chain([None]) {
        assert_eq!(concluded(lease), (done.clone(), vec!["entry"]));
    }
}

#[test]
fn an_outcome_under_another_grant_is_refused() {
    for other in [grant(2, 1), grant(1, 2)] {
        let refused = semel_core::entry::settle(&running(), &settle(&other, Ending::Succeeded));
        assert_eq!(refused, Err(Stale::MovedOn { state: "running" }));
    }
}

#[test]
fn an_outcome_on_record_is_recognised_even_after_the_next_claim() {
    let mine = grant(1, 1);
    let failed = semel_core::entry::settle(&running(), &settle(&mine, Ending::Failed { code: 1 })).unwrap();
    let Decision::Claim(next) = claim(failed, Some(free(mine)), Policy::default()) else { panic!() };
    let next = next.intent.unwrap().entry;
    let again = |ending| semel_core::entry::settle(&next, &settle(&mine, ending));
    assert_eq!(again(Ending::Failed { code: 1 }), Err(Stale::AlreadySettled));
    assert_eq!(again(Ending::Succeeded), Err(Stale::MovedOn { state: "running" }));
}

#[test]
fn tokens_of_two_resources_are_not_taken_for_one_another() {
    // lost under (r, 1), then run under (s, 1): only the nonce tells them apart
    let elsewhere = Asking { resources: vec![name("s")], ..Asking::new() };
    let seen = view(Some(running()), &[("r", Some(held(grant(1, 1), LAPSED))), ("s", None)]);
    let Decision::Claim(second) = elsewhere.claim(&seen) else { panic!() };
    assert_eq!(second.grant().token, Token::new(1).unwrap());
    let under_way = second.intent.unwrap().entry;
    let done = semel_core::entry::settle(&under_way, &settle(&grant(1, 9), Ending::Succeeded)).unwrap();
    let endings: Vec<_> = done.log.iter().map(|attempt| attempt.ending.clone()).collect();
    assert_eq!(endings, [Ending::Vanished, Ending::Succeeded]);
    let again = |mine| semel_core::entry::settle(&done, &settle(&mine, Ending::Succeeded));
    assert_eq!(again(grant(1, 9)), Err(Stale::AlreadySettled));
    assert_eq!(again(grant(1, 1)), Err(Stale::MovedOn { state: "done" }));
}

#[test]
fn a_verdict_is_refused_while_it_runs_and_guarded_when_it_is_lost() {
    let say = |said| Verdict { said, by: "p".into(), at_ms: 1, because: "b".into(), was: "w".into() };
    let given = |entry: Entry, lease: &[(&str, Option<SeenLease>)], said| {
        let view = view(Some(entry), lease);
        let seen = view.entry.clone().unwrap();
        verdict(&view, &seen, say(said), None).map(|(entry, _, guards)| (entry.state, guards))
    };
    let alive = [("r", Some(held(grant(1, 1), LIVE)))];
    assert_eq!(given(running(), &alive, Say::Done), Err(Refusal::Running { resource: name("r") }));
    assert_eq!(given(running(), &[], Say::Done), Err(Refusal::LookAt(name("r"))));
    let lapsed = [("r", Some(held(grant(1, 1), LAPSED)))];
    let guard = Guard { resource: name("r"), expect: Expect::Lapsed(Version::from(3)) };
    assert_eq!(given(running(), &lapsed, Say::Retry), Ok((State::Open { torn: false }, vec![guard])));
    let done = State::Done { by: DoneBy::Person };
    for state in [State::Quarantined, State::InDoubt { why: "?".into() }, State::Failed { torn: true }] {
        assert_eq!(given(entry(state), &[], Say::Done), Ok((done.clone(), vec![])));
    }
    assert_eq!(given(entry(done), &[], Say::Done), Err(Refusal::Already));
    assert_eq!(given(entry(State::Open { torn: false }), &[], Say::NotDone), Err(Refusal::Already));
    assert_eq!(
        given(entry(State::Open { torn: true }), &[], Say::NotDone),
        Ok((State::Open { torn: false }, vec![]))
    );
}

#[test]
fn a_plan_is_pinned_by_the_first_claim_that_offers_one() {
    let plan = |n: u64| -> Plan { serde_json::from_value(serde_json::json!({ "n": n })).unwrap() };
    let claimed = |entry: Option<Entry>, offered: Option<Plan>| {
        let asking = Asking { plan: offered, ..Asking::new() };
        match asking.claim(&view(entry, &[("r", None)])) {
            Decision::Claim(claim) => (claim.takes_a_plan(), claim.intent.unwrap().entry.plan),
            other => panic!("not claimed: {other:?}"),
        }
    };
    let failed = |plan: Option<Plan>| Entry { plan, ..entry(State::Failed { torn: false }) };
    assert_eq!(claimed(None, None), (true, None));
    assert_eq!(claimed(None, Some(plan(1))), (false, Some(plan(1))));
    assert_eq!(claimed(Some(failed(None)), Some(plan(2))), (false, Some(plan(2))), "a plan may come later");
    assert_eq!(claimed(Some(failed(Some(plan(1)))), Some(plan(2))), (false, Some(plan(1))));
    assert_eq!(
        claimed(Some(failed(Some(plan(1)))), None),
        (false, Some(plan(1))),
        "nobody needs to ask again"
    );
    let reopened = Entry { plan: Some(plan(1)), ..entry(State::Open { torn: false }) };
    assert_eq!(claimed(Some(reopened), Some(plan(2))).1, Some(plan(1)));
    let before = Entry { plan: Some(plan(1)), ..running() };
    let after = semel_core::entry::settle(&before, &settle(&grant(1, 1), Ending::Succeeded)).unwrap();
    assert_eq!(after.plan, Some(plan(1)), "what is done still shows it");
}
