//! Items that name a resource of their own.

use semel_core::claim::{Guard, View, Write};
use semel_core::entry::{self, Ending, Entry, State, Terms};
use semel_core::item::{
    Glance, ItemAsk, ItemClaim, ItemDecision, Mark, Own, Under, claim, glance, is_awaited, own_nonce,
};
use semel_core::lease::{Hold, Lease, SeenLease};
use semel_core::policy::{IfBusy, Policy};
use semel_core::record::{self, Expect, RecordKey, Seen, Version};
use semel_core::token::Grant;
use semel_core::work::{Fields, Work};

use super::desk::{LAPSED, LIVE, free, grant, held, name, owner, settle, view, work};

fn item(id: u64) -> Work {
    work().for_item(Fields::from([("id".to_owned(), id.into())])).unwrap()
}

/// What the runner that holds `r` under this grant may do with item 7, which names `site`.
fn ask(view: &View, site: &str, runner: Grant) -> ItemDecision {
    let (resource, lease, owner, site) = (name("r"), Version::from(7), owner(9), name(site));
    let (work, terms) = (item(7), Terms::of(&Policy::default()));
    let ask = ItemAsk {
        work: &work,
        runner: Under { resource: &resource, grant: &runner, lease: &lease, owner: &owner },
        own: Some(Own { resource: &site, ttl_ms: 30, lock_delay_ms: 0 }),
        terms: &terms,
        payload: None,
        command: None,
        definition: None,
        now_ms: 5,
    };
    claim(view, &ask)
}

fn claimed(decision: ItemDecision) -> ItemClaim {
    match decision {
        ItemDecision::Claim(claim) => claim,
        other => panic!("not claimed: {other:?}"),
    }
}

fn fresh(lease: Option<SeenLease>) -> View {
    view(None, &[("site", lease)])
}

/// As its claim would leave it.
fn taken(claim: &ItemClaim) -> SeenLease {
    let lease = claim.lease.as_ref().unwrap().lease.lease.clone();
    SeenLease { record: Seen { value: lease, version: Version::from(8) }, standing: LIVE, owner_gone: false }
}

#[test]
fn the_lease_is_taken_before_the_intent_and_under_the_runners_guard() {
    let claim = claimed(ask(&fresh(Some(free(grant(4, 4)))), "site", grant(2, 2)));
    let writes = claim.writes();
    let guard = Guard { resource: name("r"), expect: Expect::Live(Version::from(7)) };
    assert_eq!(writes[0], Write::Guard(guard));
    assert!(matches!(&writes[1], Write::Lease { resource, ttl_ms: Some(30), expect, .. }
        if *resource == name("site") && *expect == Expect::Version(Version::from(4))));
    assert!(matches!(&writes[2], Write::Entry { .. }));
    assert_eq!(writes.len(), 3);
    let lease = &claim.lease.as_ref().unwrap().lease.lease;
    assert_eq!(lease.grant.token.value(), 5);
    assert_eq!(claim.entry.state, State::Running { resource: name("site"), grant: lease.grant });
    let last = claim.entry.last_attempt().unwrap();
    assert_eq!((&last.resource, last.token), (&name("site"), lease.grant.token));
    assert_eq!(lease.hold.as_ref().unwrap().what, "job;id:=7");
}

#[test]
fn a_resource_that_is_held_keeps_its_item_and_a_gone_holder_does_not() {
    let mut theirs = held(grant(4, 4), LIVE);
    assert!(matches!(
        ask(&fresh(Some(theirs.clone())), "site", grant(2, 2)),
        ItemDecision::Held { held, .. } if held.wait_ms == 40
    ));
    theirs.owner_gone = true;
    assert_eq!(claimed(ask(&fresh(Some(theirs)), "site", grant(2, 2))).entry.attempts, 1);
    claimed(ask(&fresh(Some(held(grant(4, 4), LAPSED))), "site", grant(2, 2)));
    claimed(ask(&fresh(None), "site", grant(2, 2)));
    assert!(
        matches!(ask(&view(None, &[]), "site", grant(2, 2)), ItemDecision::LookAt(site) if site == name("site"))
    );
}

#[test]
fn what_the_batch_itself_holds_cannot_be_named() {
    assert!(
        matches!(ask(&fresh(None), "r", grant(2, 2)), ItemDecision::Wrong(why) if why.contains("which the batch itself holds"))
    );
}

#[test]
fn an_item_is_alive_while_its_own_lease_is_and_not_its_runners() {
    let theirs = claimed(ask(&fresh(None), "site", grant(1, 1)));
    let (entry, lease) = (theirs.entry.clone(), taken(&theirs));
    // whatever became of the other runner's lease
    let seen = view(Some(entry.clone()), &[("site", Some(lease.clone()))]);
    assert!(
        matches!(ask(&seen, "site", grant(2, 2)), ItemDecision::Busy { resource } if resource == name("site"))
    );
    let lapsed = SeenLease { standing: LAPSED, ..lease };
    let seen = view(Some(entry), &[("site", Some(lapsed))]);
    let again = claimed(ask(&seen, "site", grant(2, 2)));
    assert!(again.after_lost);
    assert_eq!(again.guards.len(), 1, "the lease that is taken is checked by its own write");
    assert!(again.lease.unwrap().lease.lease.grant.token.value() > 1);
}

#[test]
fn one_that_ran_under_another_resource_is_guarded_by_that() {
    let theirs = claimed(ask(&fresh(None), "site", grant(1, 1)));
    let lapsed = SeenLease { standing: LAPSED, ..taken(&theirs) };
    let seen = view(Some(theirs.entry), &[("site", Some(lapsed)), ("other", None)]);
    let again = claimed(ask(&seen, "other", grant(2, 2)));
    let guard = Guard { resource: name("site"), expect: Expect::Lapsed(Version::from(8)) };
    assert_eq!(again.guards[1..], [guard]);
}

#[test]
fn a_runner_knows_its_own_attempts_by_the_nonce_that_it_made() {
    let mine = claimed(ask(&fresh(None), "site", grant(2, 2)));
    let seen = view(Some(mine.entry.clone()), &[("site", Some(taken(&mine)))]);
    assert!(matches!(ask(&seen, "site", grant(2, 2)), ItemDecision::Mine(_)));
    // of a reply that was lost before the entry was written: the same grant, asked for again
    let again = claimed(ask(&view(None, &[("site", Some(taken(&mine)))]), "site", grant(2, 2)));
    assert_eq!(again.lease.unwrap().lease.lease.grant, mine.lease.as_ref().unwrap().lease.lease.grant);
    let own = mine.lease.as_ref().unwrap().lease.lease.grant;
    let failed = entry::settle(&mine.entry, &settle(&own, Ending::Failed { code: 1 })).unwrap();
    assert!(matches!(ask(&view(Some(failed.clone()), &[]), "site", grant(2, 2)), ItemDecision::Repeated(_)));
    assert!(
        entry::settle(&mine.entry, &settle(&grant(2, 2), Ending::Succeeded)).is_err(),
        "the runner's is another"
    );
    // the next runner tries it again
    let next = claimed(ask(&view(Some(failed), &[("site", Some(free(own)))]), "site", grant(3, 3)));
    assert_eq!(next.entry.attempts, 2);
}

#[test]
fn every_runner_and_every_item_has_a_nonce_of_its_own() {
    let (a, b) = (item(7).key(), item(8).key());
    let all = [
        own_nonce(&grant(1, 1).nonce, &a),
        own_nonce(&grant(1, 2).nonce, &a),
        own_nonce(&grant(1, 1).nonce, &b),
        grant(1, 1).nonce,
    ];
    for (n, one) in all.iter().enumerate() {
        assert!(all[n + 1..].iter().all(|other| other != one));
    }
}

#[test]
fn runners_have_names_of_their_own_also_where_the_job_has_a_long_one() {
    use semel_core::item::runner_names;
    for length in [1, 117, 118, 119, 128] {
        let names = runner_names(&name(&"j".repeat(length)), 64);
        let all: std::collections::BTreeSet<_> = names.iter().collect();
        assert_eq!(all.len(), 64, "{length}");
    }
    assert_eq!(runner_names(&name("posts"), 2), [name("posts/runner/1"), name("posts/runner/2")]);
    let (one, other) = (runner_names(&name(&"j".repeat(128)), 64), runner_names(&name(&"k".repeat(128)), 64));
    assert!(one.iter().all(|name| !other.contains(name)));
}

#[test]
fn the_job_and_the_state_are_read_without_the_rest() {
    let entry = claimed(ask(&fresh(None), "site", grant(2, 2))).entry;
    let bytes = record::encode(&RecordKey::entry(&item(7)), &entry).unwrap();
    assert_eq!(semel_core::item::brief(&bytes), Some((name("job"), "running")));
    assert_eq!(semel_core::item::brief(b"{"), None);
}

#[test]
fn a_glance_knows_them_too() {
    let mine = claimed(ask(&fresh(None), "site", grant(2, 2)));
    let own = mine.lease.unwrap().lease.lease.grant;
    let done: Entry = entry::settle(&mine.entry, &settle(&own, Ending::Succeeded)).unwrap();
    let bytes = record::encode(&RecordKey::entry(&item(7)), &done).unwrap();
    let seen = |runner| glance(&bytes, None, &Mark::of(&runner, &item(7).key(), true));
    assert_eq!((seen(grant(2, 2)), seen(grant(3, 3))), (Glance::Repeated, Glance::Done));
}

#[test]
fn those_of_the_same_batch_are_waited_for_and_others_as_the_policy_says() {
    let hold = |what: &str| {
        let Lease { hold, .. } = held(grant(1, 1), LIVE).record.value;
        Hold { what: what.to_owned(), ..hold.unwrap() }
    };
    let (fellow, other) = (hold("job;id=9"), hold("other;id=9"));
    for if_busy in [IfBusy::Skip, IfBusy::Fail, IfBusy::Wait { for_ms: 10 }] {
        assert!(is_awaited(&fellow, &work(), &if_busy, 1_000_000));
    }
    assert!(!is_awaited(&other, &work(), &IfBusy::Skip, 0));
    assert!(!is_awaited(&other, &work(), &IfBusy::Fail, 0));
    assert!(is_awaited(&other, &work(), &IfBusy::Wait { for_ms: 10 }, 9));
    assert!(!is_awaited(&other, &work(), &IfBusy::Wait { for_ms: 10 }, 10));
}
