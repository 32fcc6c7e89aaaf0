//! Each state of an item against each policy, and an item over any history of runners.

use proptest::collection::vec;
use proptest::prelude::*;
use semel_core::claim::{First, Guard, View, Write};
use semel_core::entry::{self, DoneBy, Ending, Entry, State, Terms};
use semel_core::item::{Glance, ItemAsk, ItemClaim, ItemDecision, Mark, Under, claim, give_back, glance};
use semel_core::lease::SeenLease;
use semel_core::name::Name;
use semel_core::payload::Fingerprint;
use semel_core::policy::OnLost;
use semel_core::record::{self, Expect, RecordKey, Version};
use semel_core::token::Grant;
use semel_core::work::{Fields, Work};

use super::desk::{LAPSED, LIVE, free, grant, held, name, nonce, owner, settle, view, work};

const POLICIES: [OnLost; 3] = [OnLost::Retry, OnLost::Hold, OnLost::Probe];

fn item() -> Work {
    work().for_item(Fields::from([("id".to_owned(), 7.into())])).unwrap()
}

fn terms(on_lost: OnLost, max_failures: u32) -> Terms {
    Terms { on_lost, max_failures, keep_ms: 4, remember_ms: None }
}

/// What a runner that holds `resource` under this grant, at version 7, may do with the item.
fn ask(
    view: &View,
    resource: &str,
    grant: Grant,
    terms: &Terms,
    payload: Option<&Fingerprint>,
) -> ItemDecision {
    let (resource, lease, owner) = (name(resource), Version::from(7), owner(9));
    let runner = Under { resource: &resource, grant: &grant, lease: &lease, owner: &owner };
    let work = item();
    let (command, definition, now_ms) = (None, None, 5);
    claim(view, &ItemAsk { work: &work, runner, own: None, terms, payload, command, definition, now_ms })
}

/// The same under `r` and grant (2, 2), with a cap of 3.
fn asked(entry: Option<Entry>, leases: &[(&str, Option<SeenLease>)], on_lost: OnLost) -> ItemDecision {
    ask(&view(entry, leases), "r", grant(2, 2), &terms(on_lost, 3), None)
}

fn claimed(decision: ItemDecision) -> ItemClaim {
    match decision {
        ItemDecision::Claim(claim) => claim,
        other => panic!("not claimed: {other:?}"),
    }
}

/// An item that runs under `resource` and this grant, as its claim would write it.
fn running(resource: &str, grant: Grant) -> Entry {
    claimed(ask(&view(None, &[]), resource, grant, &terms(OnLost::Retry, 3), None)).entry
}

/// One whose last attempt was another runner's.
fn standing(state: State) -> Entry {
    Entry { state, ..running("r", grant(1, 1)) }
}

fn word(decision: &ItemDecision) -> &'static str {
    match decision {
        ItemDecision::LookAt(_) => "look",
        ItemDecision::Claim(claim) if claim.first == First::Probe => "probe",
        ItemDecision::Claim(claim) if claim.after_lost => "again",
        ItemDecision::Claim(_) => "run",
        ItemDecision::Mine(_) => "mine",
        ItemDecision::Repeated(_) => "repeated",
        ItemDecision::Done(_) => "done",
        ItemDecision::Busy { .. } => "busy",
        ItemDecision::Held { .. } => "held",
        ItemDecision::Wrong(_) => "wrong",
        ItemDecision::Person(_) => "person",
        ItemDecision::Doubt { entry, .. } => entry.state.word(),
        ItemDecision::Mismatch { .. } => "mismatch",
    }
}

fn own() -> Guard {
    Guard { resource: name("r"), expect: Expect::Live(Version::from(7)) }
}

fn states(under: Grant) -> Vec<State> {
    vec![
        State::Done { by: DoneBy::Run },
        State::Done { by: DoneBy::Person },
        State::Quarantined,
        State::InDoubt { why: "?".into() },
        State::Open { torn: false },
        State::Open { torn: true },
        State::Failed { torn: false },
        State::Failed { torn: true },
        State::Running { resource: name("r"), grant: under },
    ]
}

#[test]
fn every_state_that_another_runner_left_answers_by_the_policy() {
    let lost = ["again", "in_doubt", "probe"];
    let expected =
        [["done"; 3], ["done"; 3], ["person"; 3], ["person"; 3], ["run"; 3], lost, ["run"; 3], lost, lost];
    for (state, expected) in states(grant(1, 1)).into_iter().zip(expected) {
        let answers = POLICIES.map(|on_lost| word(&asked(Some(standing(state.clone())), &[], on_lost)));
        assert_eq!(answers, expected, "{state:?}");
    }
    assert_eq!(POLICIES.map(|on_lost| word(&asked(None, &[], on_lost))), ["run"; 3]);
    // one token, another nonce: not ours
    let zombie = standing(State::Running { resource: name("r"), grant: grant(2, 1) });
    assert_eq!(word(&asked(Some(zombie), &[], OnLost::Hold)), "in_doubt");
}

#[test]
fn what_this_runner_has_met_it_does_not_do_again() {
    for state in states(grant(2, 2)) {
        let entry = Entry { state: state.clone(), ..running("r", grant(2, 2)) };
        let expected = if matches!(state, State::Running { .. }) { "mine" } else { "repeated" };
        let answers = POLICIES.map(|on_lost| word(&asked(Some(entry.clone()), &[], on_lost)));
        assert_eq!(answers, [expected; 3], "{state:?}");
    }
}

#[test]
fn another_runners_item_is_lost_exactly_when_its_lease_is_gone() {
    let lost = ["again", "in_doubt", "probe"];
    let mut gone = held(grant(1, 1), LIVE);
    gone.owner_gone = true;
    let rows = [
        (Some(held(grant(1, 1), LIVE)), ["busy"; 3], None),
        (Some(held(grant(1, 1), LAPSED)), lost, Some(Expect::Lapsed(Version::from(3)))),
        (Some(held(grant(5, 5), LIVE)), lost, Some(Expect::Version(Version::from(3)))),
        (Some(held(grant(1, 2), LIVE)), lost, Some(Expect::Version(Version::from(3)))),
        (Some(free(grant(1, 1))), lost, Some(Expect::Version(Version::from(4)))),
        (Some(gone), lost, Some(Expect::Version(Version::from(3)))),
        (None, lost, Some(Expect::Absent)),
    ];
    for (lease, expected, guard) in rows {
        let leases = [("s", lease)];
        let answers = POLICIES.map(|on_lost| asked(Some(running("s", grant(1, 1))), &leases, on_lost));
        assert_eq!(answers.each_ref().map(word), expected, "{leases:?}");
        for answer in answers {
            let guards = match answer {
                ItemDecision::Claim(claim) => claim.guards,
                ItemDecision::Doubt { guards, .. } => guards,
                _ => continue,
            };
            let theirs = guard.clone().map(|expect| Guard { resource: name("s"), expect });
            assert_eq!(guards, [Some(own()), theirs].into_iter().flatten().collect::<Vec<_>>());
        }
    }
    assert_eq!(word(&asked(Some(running("s", grant(1, 1))), &[], OnLost::Retry)), "look");
}

#[test]
fn a_claim_is_guarded_by_the_runners_lease_and_records_its_terms() {
    let first = claimed(asked(None, &[], OnLost::Probe));
    let [Write::Guard(guard), Write::Entry { entry, expect: Expect::Absent }] = &first.writes()[..] else {
        panic!()
    };
    assert_eq!((guard, entry), (&own(), &first.entry));
    assert_eq!(entry.state, State::Running { resource: name("r"), grant: grant(2, 2) });
    assert_eq!((&entry.terms, &entry.work), (&terms(OnLost::Probe, 3), &item()));
}

#[test]
fn the_cap_quarantines_whatever_came_before_and_a_cap_of_none_does_not() {
    for state in [State::Failed { torn: false }, State::Failed { torn: true }, State::Open { torn: true }] {
        for on_lost in POLICIES {
            let entry = Entry { failures: 3, ..standing(state.clone()) };
            assert_eq!(word(&asked(Some(entry.clone()), &[], on_lost)), "quarantined");
            let free = ask(&view(Some(entry), &[]), "r", grant(2, 2), &terms(on_lost, 0), None);
            assert_ne!(word(&free), "quarantined");
        }
    }
}

#[test]
fn another_payload_is_a_mismatch_whatever_became_of_the_first() {
    let print = |text: &str| Fingerprint::of_json(&serde_json::json!({ "text": text }), &[]).unwrap();
    let (one, other) = (print("a"), print("b"));
    for state in states(grant(1, 1)).into_iter().chain(states(grant(2, 2))) {
        let entry = Entry { payload: Some(one.clone()), ..standing(state) };
        let with = |offered| {
            ask(&view(Some(entry.clone()), &[]), "r", grant(2, 2), &terms(OnLost::Retry, 3), offered)
        };
        assert_eq!(word(&with(Some(&other))), "mismatch");
        assert_ne!(word(&with(Some(&one))), "mismatch");
        assert_ne!(word(&with(None)), "mismatch");
    }
    let bound = claimed(ask(&view(None, &[]), "r", grant(2, 2), &terms(OnLost::Retry, 3), Some(&one)));
    assert_eq!(bound.entry.payload, Some(one));
}

#[test]
fn a_claim_that_was_not_begun_is_given_back_as_if_it_had_not_been_made() {
    let fresh = claimed(asked(None, &[], OnLost::Hold));
    let back = give_back(&fresh.entry, &grant(2, 2), fresh.after_lost, 9).unwrap();
    assert_eq!((&back.state, back.attempts, back.log.len()), (&State::Open { torn: false }, 0, 0));
    assert_eq!(word(&asked(Some(back), &[], OnLost::Hold)), "run");
    let failed = Entry { failures: 2, ..standing(State::Failed { torn: false }) };
    let again = claimed(asked(Some(failed), &[], OnLost::Hold));
    let back = give_back(&again.entry, &grant(2, 2), again.after_lost, 9).unwrap();
    assert_eq!((&back.state, back.attempts, back.failures), (&State::Failed { torn: false }, 1, 2));
    // one that was lost before is lost still
    let lost = claimed(asked(Some(standing(State::Open { torn: true })), &[], OnLost::Probe));
    let back = give_back(&lost.entry, &grant(2, 2), lost.after_lost, 9).unwrap();
    assert_eq!(word(&asked(Some(back), &[], OnLost::Hold)), "in_doubt");
    // another's is not ours to give back, and what has ended has begun
    assert_eq!(give_back(&fresh.entry, &grant(3, 3), false, 9), None);
    let done = entry::settle(&fresh.entry, &settle(&grant(2, 2), Ending::Succeeded)).unwrap();
    assert_eq!(give_back(&done, &grant(2, 2), false, 9), None);
}

fn endings() -> impl Strategy<Value = Ending> {
    prop_oneof![
        Just(Ending::Succeeded),
        (1..3).prop_map(|code| Ending::Failed { code }),
        Just(Ending::Killed { signal: 9 }),
        Just(Ending::TimedOut),
        Just(Ending::Interrupted { signal: 2 }),
        Just(Ending::ProbedDone),
        Just(Ending::ProbedUnknown { answer: "?".into() }),
    ]
}

/// Its own failure, then another runner's attempt: whatever that came to, the key is a repetition to the first.
#[test]
fn a_runner_knows_its_own_failure_behind_another_s_attempt() {
    let mine = grant(2, 2);
    let failed = entry::settle(&running("r", mine), &settle(&mine, Ending::Failed { code: 1 })).unwrap();
    let other = grant(9, 9);
    let terms = terms(OnLost::Retry, 3);
    let taken = claimed(ask(&view(Some(failed), &[]), "s", other, &terms, None)).entry;
    let lapsed = [("s", Some(held(other, LAPSED)))];
    assert_eq!(word(&asked(Some(taken.clone()), &lapsed, OnLost::Retry)), "repeated");
    assert_eq!(word(&asked(Some(taken.clone()), &[("s", Some(held(other, LIVE)))], OnLost::Retry)), "busy");
    let done = entry::settle(&taken, &settle(&other, Ending::Succeeded)).unwrap();
    assert_eq!(word(&asked(Some(done.clone()), &[], OnLost::Retry)), "repeated");
    let bytes = record::encode(&RecordKey::entry(&item()), &done).unwrap();
    assert_eq!(glance(&bytes, None, &Mark::Runner(mine)), Glance::Repeated);
    // a claim that was taken over before it was answered was never begun
    let unanswered =
        claimed(ask(&view(Some(running("r", mine)), &[("r", None)]), "s", other, &terms, None)).entry;
    assert_eq!(word(&asked(Some(unanswered), &lapsed, OnLost::Retry)), "again");
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// Runners come and go, each under a grant of its own; each claims the item, settles it or gives it back.
    #[test]
    fn an_item_is_done_once_and_each_runner_begins_it_once(
        moves in vec((0..8u8, endings(), 0..3usize), 1..80),
    ) {
        let (mut stands, mut token): (Option<Entry>, u8) = (None, 1);
        let (mut effects, mut begun_by) = (0, None);
        for (what, ending, policy) in moves {
            let mine = grant(token.into(), token);
            match (what, stands.clone()) {
                (0, _) => token = token.saturating_add(1),
                (1..=4, was) => {
                    let failures = was.as_ref().map_or(0, |was| was.failures);
                    match ask(&view(was, &[]), "r", mine, &terms(POLICIES[policy], 3), None) {
                        ItemDecision::Claim(claim) => {
                            prop_assert_eq!(effects, 0, "done, and claimed again");
                            prop_assert!(failures < 3);
                            prop_assert_ne!(begun_by, Some(token));
                            prop_assert_eq!(&claim.guards, &[own()]);
                            stands = Some(claim.entry);
                        }
                        ItemDecision::Doubt { entry, guards, .. } => {
                            prop_assert!(entry.state.needs_a_person());
                            prop_assert_eq!(&guards, &[own()]);
                            stands = Some(entry);
                        }
                        ItemDecision::LookAt(_) | ItemDecision::Busy { .. } => prop_assert!(false),
                        _ => {}
                    }
                }
                (5, Some(was)) => if let Some(back) = give_back(&was, &mine, false, 9) {
                    stands = Some(back);
                },
                (_, Some(was)) => if let Ok(settled) = entry::settle(&was, &settle(&mine, ending.clone())) {
                    begun_by = Some(token);
                    effects += u32::from(ending.is_success());
                    stands = Some(settled);
                },
                _ => {}
            }
        }
        prop_assert!(effects <= 1);
    }

    /// A glance says what the rule says, or leaves it to the rule.
    #[test]
    fn a_glance_agrees_with_the_rule(n in 1..4u8, ours: bool, bound in 0..3u8, offered in 0..3u8) {
        let print = |n: u8| (n > 0).then(|| Fingerprint::of_json(&serde_json::json!({ "n": n }), &[]).unwrap());
        let by = if ours { grant(2, 2) } else { grant(n.into(), n) };
        let mine = grant(2, 2);
        for state in states(by) {
            let entry = Entry { state, payload: print(bound), ..running("r", by) };
            let bytes = record::encode(&RecordKey::entry(&item()), &entry).unwrap();
            let seen = glance(&bytes, print(offered).as_ref(), &Mark::Runner(mine));
            let full = ask(&view(Some(entry), &[]), "r", mine, &terms(OnLost::Retry, 3), print(offered).as_ref());
            match (seen, word(&full)) {
                (Glance::Done, "done") | (Glance::Repeated, "repeated") => {}
                (Glance::Look, word) => prop_assert_ne!(word, "done"),
                (seen, word) => prop_assert!(false, "{:?} {}", seen, word),
            }
        }
        prop_assert_eq!(glance(b"{", None, &Mark::Runner(mine)), Glance::Look);
        prop_assert_eq!(glance(br#"{"v":2,"state":"done"}"#, None, &Mark::Runner(mine)), Glance::Look);
    }

    /// The runner's own guard comes first and nothing but the entry is written.
    #[test]
    fn the_guard_of_the_runner_comes_first(torn: bool, other in "[rst]", lapsed: bool, n in 3..6u8) {
        let there = grant(n.into(), n);
        let resource = Name::new(&other).unwrap();
        let lease = Some(held(there, if lapsed { LAPSED } else { LIVE }));
        for state in [State::Open { torn }, State::Failed { torn }, State::Running { resource, grant: there }] {
            for on_lost in POLICIES {
                let guards = match asked(Some(standing(state.clone())), &[(&other, lease.clone())], on_lost) {
                    ItemDecision::Claim(claim) => claim.guards,
                    ItemDecision::Doubt { guards, .. } => guards,
                    _ => continue,
                };
                prop_assert_eq!(&guards[0], &own());
            }
        }
    }
}

#[test]
fn a_settle_of_a_zombie_is_refused_by_the_ledger() {
    let taken = claimed(asked(Some(running("r", grant(1, 1))), &[], OnLost::Retry)).entry;
    assert!(entry::settle(&taken, &settle(&grant(1, 1), Ending::Succeeded)).is_err());
    assert!(entry::settle(&taken, &settle(&grant(2, 2), Ending::Succeeded)).is_ok());
    assert_eq!(taken.last_attempt().unwrap().nonce, nonce(2));
}
