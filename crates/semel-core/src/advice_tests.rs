//! Advice, by table.
#![allow(clippy::unwrap_used)]

use proptest::prelude::*;

use super::*;
use crate::story::testing::attempt;

fn took(minutes: u64) -> Measured {
    Measured {
        came: Came::Succeeded,
        took_ms: Some(minutes * MINUTE),
        late_ms: None,
        missed_renewals: 0,
        unrenewed_ms: 0,
    }
}

fn runs(minutes: impl IntoIterator<Item = u64>) -> Vec<Measured> {
    minutes.into_iter().map(took).collect()
}

fn set(timeout_ms: Option<u64>, ttl_ms: u64) -> Set {
    let kill_after_ms = Policy::default_kill_after_ms(ttl_ms);
    Set { policy: Policy { timeout_ms, ttl_ms, kill_after_ms, ..Policy::default() }, grace_ms: None }
}

fn item(all: &[Measured], set: &Set, key: &str) -> Option<Item> {
    advise(&Figures::of(all), set)?.into_iter().find(|item| item.key == key)
}

#[track_caller]
fn says(all: &[Measured], set: &Set, key: &str) -> (u64, bool, String) {
    let item = item(all, set, key).unwrap();
    (item.ms, item.changes(), item.why)
}

#[test]
fn nothing_is_advised_from_too_little() {
    assert_eq!(advise(&Figures::of(&runs([1, 2, 3, 4])), &set(None, MINUTE)), None);
    assert_eq!(advise(&Figures::of(&[]), &set(None, MINUTE)), None);
    let failed: Vec<_> = runs([1; 9]).into_iter().map(|one| Measured { came: Came::Failed, ..one }).collect();
    assert_eq!(advise(&Figures::of(&failed), &set(None, MINUTE)), None, "none of them succeeded");
    assert!(advise(&Figures::of(&runs([1, 2, 3, 4, 5])), &set(None, MINUTE)).is_some());
}

#[test]
fn a_timeout_leaves_room_above_the_slowest() {
    let all = runs((0..30).map(|_| 12).chain([28]));
    let (ms, changes, why) = says(&all, &set(None, MINUTE), "timeout");
    assert_eq!((ms, changes), (45 * MINUTE, true));
    assert_eq!(why, "the slowest of 31 successful runs took 28m: half as much again");
    let (ms, _, why) = says(&runs([28; 31]), &set(None, MINUTE), "timeout");
    assert_eq!(ms, HOUR);
    assert_eq!(why, "19 of 20 of 31 successful runs took 28m or less: twice that");
    let (ms, _, why) = says(&runs([0; 5]), &set(None, MINUTE), "timeout");
    assert_eq!(
        (ms, why.as_str()),
        (MINUTE, "the slowest of 5 successful runs took 0ms: the least that is worth it")
    );
}

#[test]
fn a_timeout_that_is_near_enough_stays() {
    let all = runs((0..30).map(|_| 12).chain([28]));
    for (set_ms, stays) in [(30 * MINUTE, false), (36 * MINUTE, true), (2 * HOUR, true), (3 * HOUR, false)] {
        let (ms, changes, _) = says(&all, &set(Some(set_ms), MINUTE), "timeout");
        assert_eq!((ms == set_ms, !changes), (stays, stays), "{set_ms}");
    }
}

#[test]
fn runs_that_were_stopped_near_the_limit_need_more() {
    let stopped = Measured { came: Came::TimedOut, ..took(30) };
    let near = [runs([20, 22, 25, 28, 29]), vec![stopped, stopped]].concat();
    let (ms, changes, why) = says(&near, &set(Some(30 * MINUTE), MINUTE), "timeout");
    assert_eq!((ms, changes), (HOUR, true));
    assert_eq!(
        why,
        "the slowest of 5 successful runs took 29m, and 2 were stopped after 30m: how long they needed is not known, so twice that"
    );
    assert!(!says(&near, &set(Some(2 * HOUR), MINUTE), "timeout").1, "it was raised since");
    let hung = [runs([8; 5]), vec![stopped]].concat();
    let (_, changes, why) = says(&hung, &set(Some(30 * MINUTE), MINUTE), "timeout");
    assert!(!changes);
    assert_eq!(
        why,
        "the slowest of 5 successful runs took 8m: it leaves room; 1 was stopped by it, far from what a run needs"
    );
}

#[test]
fn a_ttl_is_doubled_until_the_lease_would_have_lived() {
    let missed = |came, unrenewed_ms| Measured { came, unrenewed_ms, missed_renewals: 3, ..took(5) };
    let ttl = |one: Measured, set_ms| {
        let all = [runs([5; 5]), vec![one]].concat();
        let (ms, _, why) = says(&all, &set(None, set_ms), "ttl");
        (ms / SECOND, why)
    };
    let survived = |ms| missed(Came::Succeeded, ms);
    let lost = |ms| missed(Came::LeaseLost, ms);
    let said = |seconds: u64, why: &str| (seconds, why.to_owned());
    assert_eq!(ttl(took(5), MINUTE), said(60, "no renewal was missed and no lease lost"));
    assert_eq!(ttl(took(5), 10 * SECOND), said(10, "no renewal was missed and no lease lost"));
    assert_eq!(
        ttl(took(5), HOUR),
        said(60, "no renewal was missed and no lease lost: what is lost is taken over sooner")
    );
    assert_eq!(
        ttl(survived(30 * SECOND), MINUTE),
        said(60, "a lease once went 30s without a renewal, which it survives")
    );
    assert_eq!(
        ttl(survived(40 * SECOND), MINUTE),
        said(120, "a lease once went 40s without a renewal: doubled until it would survive that")
    );
    assert_eq!(
        ttl(lost(45 * SECOND), MINUTE),
        said(120, "1 lease was lost, after up to 45s without a renewal: doubled until it would survive that")
    );
    assert_eq!(
        ttl(lost(45 * SECOND), 2 * MINUTE),
        said(120, "1 lease was lost, after up to 45s without a renewal, which it survives")
    );
    assert_eq!(ttl(lost(0), MINUTE), said(120, "1 lease was lost: doubled until it would survive that"));
    assert_eq!(
        ttl(lost(8 * HOUR), MINUTE),
        said(
            60,
            "no renewal was missed and no lease lost; 1 was on a machine that slept, which no ttl is made for"
        )
    );
}

#[test]
fn a_grace_has_room_for_lateness_and_length() {
    let late = |seconds| Measured { late_ms: Some(seconds * SECOND), ..took(20) };
    let all: Vec<_> = [10, 20, 30, 40, 240].map(late).to_vec();
    let (ms, changes, why) = says(&all, &set(None, MINUTE), "grace");
    assert_eq!((ms, changes), (30 * MINUTE, true));
    assert_eq!(why, "19 of 20 slots were begun within 4m and took 20m or less: both, and a quarter on top");
    let kept = Set { grace_ms: Some(HOUR), ..set(None, MINUTE) };
    assert!(!item(&all, &kept, "grace").unwrap().changes());
    assert_eq!(item(&runs([20; 5]), &set(None, MINUTE), "grace"), None, "no schedule is known");
}

#[test]
fn attempts_say_what_they_can() {
    let of = |ending| Measured::of(&attempt(1, 10_000, ending), Some(4_000));
    let done = of(Ending::Succeeded).unwrap();
    assert_eq!((done.came, done.took_ms, done.late_ms), (Came::Succeeded, Some(2_000), Some(6_000)));
    assert_eq!(of(Ending::Vanished).unwrap().took_ms, None);
    for nothing in [
        Ending::None,
        Ending::Interrupted { signal: 2 },
        Ending::NotStarted { code: 127 },
        Ending::ProbedDone,
    ] {
        assert_eq!(of(nothing), None);
    }
    let again = Measured::of(&attempt(2, 10_000, Ending::Succeeded), Some(4_000)).unwrap();
    assert_eq!(again.late_ms, None, "a retry is late because of the first");
    let ahead = Measured::of(&attempt(1, 10_000, Ending::Succeeded), Some(11_000)).unwrap();
    assert_eq!(ahead.late_ms, None, "a clock that was set back");
}

#[test]
fn a_slot_is_due_when_its_schedule_says() {
    let due = |every: &str, zone: &str, slot: &str| {
        let (schedule, zone) = (Schedule::parse(every).unwrap(), TimeZone::get(zone).unwrap());
        let ms = due_ms(&schedule, &zone, &Slot::new(slot).unwrap())?;
        Some(Timestamp::from_millisecond(i64::try_from(ms).unwrap()).unwrap().to_string())
    };
    assert_eq!(due("day", "Europe/Berlin", "2026-06-19").as_deref(), Some("2026-06-18T22:00:00Z"));
    assert_eq!(due("day", "Europe/Berlin", "2026-03-29").as_deref(), Some("2026-03-28T23:00:00Z"));
    assert_eq!(due("week", "UTC", "2026-06-15").as_deref(), Some("2026-06-15T00:00:00Z"));
    assert_eq!(due("week", "UTC", "2026-06-16"), None, "no week begins on a Tuesday");
    assert_eq!(due("15m", "UTC", "2026-06-19T02:15:00Z").as_deref(), Some("2026-06-19T02:15:00Z"));
    assert_eq!(due("15m", "UTC", "2026-06-19T02:16:00Z"), None);
    assert_eq!(due("day", "UTC", "by hand"), None);
    assert_eq!(due("0 2 * * *", "UTC", "2026-06-19T02:00:00Z").as_deref(), Some("2026-06-19T02:00:00Z"));
}

#[test]
fn percentiles_are_of_what_was_measured() {
    let spread = |all: Vec<u64>| Spread::of(all).map(|it| (it.p50_ms, it.p95_ms, it.max_ms));
    assert_eq!(spread(vec![]), None);
    assert_eq!(spread(vec![7]), Some((7, 7, 7)));
    assert_eq!(spread(vec![4, 1, 3, 2]), Some((2, 4, 4)));
    assert_eq!(spread((1..=100).rev().collect()), Some((50, 95, 100)));
}

#[test]
fn a_nice_length_is_the_next_one_up() {
    for (ms, nicely) in [
        (0, SECOND),
        (MINUTE, MINUTE),
        (MINUTE + 1, 90 * SECOND),
        (42 * MINUTE, 45 * MINUTE),
        (13 * HOUR, DAY),
        (80 * HOUR, 4 * DAY),
    ] {
        assert_eq!(nice(ms), nicely);
    }
    assert!(nice(u64::MAX) >= u64::MAX - DAY);
}

fn comes() -> impl Strategy<Value = Came> {
    proptest::sample::select(vec![
        Came::Succeeded,
        Came::Failed,
        Came::TimedOut,
        Came::Vanished,
        Came::LeaseLost,
    ])
}

fn measured() -> impl Strategy<Value = Measured> {
    let lengths = || prop_oneof![0..HOUR, any::<u64>()];
    (comes(), proptest::option::of(lengths()), proptest::option::of(lengths()), any::<u32>(), lengths())
        .prop_map(|(came, took_ms, late_ms, missed_renewals, unrenewed_ms)| Measured {
            came,
            took_ms,
            late_ms,
            missed_renewals,
            unrenewed_ms,
        })
}

proptest! {
    #[test]
    fn what_is_advised_can_be_had_and_is_then_left_alone(
        all in proptest::collection::vec(measured(), 0..40),
        timeout_ms in proptest::option::of(1..DAY),
        ttl_ms in 1_000..=TTL_MAX_MS,
    ) {
        let before = set(timeout_ms, ttl_ms);
        let figures = Figures::of(&all);
        let Some(items) = advise(&figures, &before) else { return Ok(()) };
        let ms = |key: &str| items.iter().find(|item| item.key == key).map(|item| item.ms);
        let mut after = set(ms("timeout"), ms("ttl").unwrap());
        after.grace_ms = ms("grace");
        prop_assert_eq!(after.policy.check(), Ok(()));
        let longest = figures.took.unwrap().max_ms;
        prop_assert!(after.policy.timeout_ms.unwrap() >= longest.saturating_sub(longest / 100));
        let again = advise(&figures, &after).unwrap();
        prop_assert!(again.iter().all(|item| !item.changes()), "{again:?}");
    }
}
