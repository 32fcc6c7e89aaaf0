//! First of a kind, then silence, then one recovery: case by case.

use semel_core::alarm::{
    Alarm, Anomaly, Event, Kind, LaneState, Notice, OPEN_LIMIT, OUTBOX_LIMIT, body, broken, closed_by_person,
    delivered, due, forget_lane, raise, raise_check, recover, undelivered, words,
};
use semel_core::name::Name;
use semel_core::record::{RecordKey, VALUE_LIMIT, decode, encode};
use semel_core::token::Nonce;
use serde_json::json;

const MINUTE: u64 = 60_000;
const DAY: u64 = 24 * 60 * MINUTE;
const NOON: u64 = 1_781_870_400_000; // 2026-06-19T12:00:00Z

fn job() -> Name {
    Name::new("publish").unwrap()
}

fn lanes(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

/// Ids that are never given twice in one test.
fn ids(from: u8) -> impl FnMut() -> Nonce {
    let mut n = 0;
    move || {
        n += 1;
        let mut bytes = [from; 16];
        bytes[15] = n;
        Nonce::from_bytes(bytes)
    }
}

fn met(kind: Kind, work: &str, at_ms: u64) -> Anomaly {
    Anomaly { kind, work: work.to_owned(), at_ms, why: "exit code 1".to_owned(), slots: 1 }
}

fn raised(alarm: Option<&Alarm>, kind: Kind, work: &str, to: &[&str]) -> Option<Alarm> {
    let n = alarm.map_or(0, |alarm| alarm.open.len() as u8);
    raise(alarm, &job(), &[met(kind, work, NOON)], &lanes(to), ids(0x10 + n))
}

fn all_delivered(alarm: &Alarm) -> Alarm {
    let mut alarm = alarm.clone();
    while let Some((id, lane)) =
        due(&alarm, NOON).first().map(|(notice, lane)| (notice.id, (*lane).to_owned()))
    {
        alarm = delivered(&alarm, &id, &lane, NOON).unwrap();
    }
    alarm
}

fn events(alarm: &Alarm) -> Vec<(Event, Kind)> {
    alarm.outbox.iter().map(|notice| (notice.event, notice.kind)).collect()
}

#[test]
fn the_first_is_told_and_the_rest_are_counted() {
    let first = raised(None, Kind::Failed, "publish@1", &["ops"]).unwrap();
    let told = all_delivered(&first);
    assert!(told.outbox.is_empty());
    let second = raised(Some(&told), Kind::Failed, "publish@2", &["ops"]).unwrap();
    assert!(second.outbox.is_empty());
    assert_eq!((second.open.len(), second.open[0].count, second.open[0].work.clone()), (1, 2, None));
}

#[test]
fn another_kind_is_a_notice_of_its_own() {
    let one = raised(None, Kind::Failed, "publish@1", &["ops"]).unwrap();
    let two = raised(Some(&one), Kind::Quarantined, "publish@1", &["ops"]).unwrap();
    assert_eq!(events(&two), [(Event::Raised, Kind::Failed), (Event::Raised, Kind::Quarantined)]);
}

#[test]
fn a_work_that_needs_a_person_is_told_once_and_each_work_apart() {
    let one = raised(None, Kind::Quarantined, "publish@1", &["ops"]).unwrap();
    assert_eq!(raised(Some(&one), Kind::Quarantined, "publish@1", &["ops"]), None, "not worth a write");
    let two = raised(Some(&one), Kind::Quarantined, "publish@2", &["ops"]).unwrap();
    assert_eq!(two.outbox.len(), 2);
}

#[test]
fn a_success_closes_what_is_of_the_job_and_what_is_of_its_work() {
    let mut alarm = raised(None, Kind::Failed, "publish@1", &["ops"]).unwrap();
    for (kind, work) in
        [(Kind::Missed, "publish@2"), (Kind::InDoubt, "publish@1"), (Kind::Quarantined, "publish@3")]
    {
        alarm = raised(Some(&alarm), kind, work, &["ops"]).unwrap();
    }
    let after =
        recover(&all_delivered(&alarm), "publish@1", NOON + MINUTE, &lanes(&["ops"]), ids(9)).unwrap();
    let left: Vec<Kind> = after.open.iter().map(|open| open.kind).collect();
    assert_eq!(left, [Kind::Quarantined]);
    let [told] = after.outbox.as_slice() else { panic!("{after:?}") };
    assert_eq!(
        (told.event, told.kind, told.also.clone()),
        (Event::Recovered, Kind::Failed, vec![Kind::InDoubt, Kind::Missed])
    );
    assert_eq!(
        words(told),
        "publish@1 succeeded: recovered from failed and in doubt and missed, since 2026-06-19T12:00:00Z, 3 times; look: semel why 'publish@1'"
    );
    assert_eq!(recover(&after, "publish@4", NOON, &lanes(&["ops"]), ids(9)), None);
}

#[test]
fn what_was_not_told_yet_is_told_together_with_its_recovery() {
    let one = raised(None, Kind::Failed, "publish@1", &["ops"]).unwrap();
    let id = one.outbox[0].id;
    let after = recover(&one, "publish@1", NOON + MINUTE, &lanes(&["ops"]), ids(9)).unwrap();
    let [both] = after.outbox.as_slice() else { panic!("{after:?}") };
    assert_eq!((both.event, both.recovered_ms), (Event::Raised, Some(NOON + MINUTE)));
    assert_eq!(
        words(both),
        "publish@1 failed: exit code 1; recovered at 2026-06-19T12:01:00Z; look: semel why 'publish@1'"
    );
    assert_eq!(
        delivered(&after, &id, "ops", NOON),
        None,
        "whoever heard the old one has not heard of the recovery"
    );
}

#[test]
fn each_lane_hears_of_the_recovery_once() {
    let one = raised(None, Kind::Failed, "publish@1", &["a", "b"]).unwrap();
    let told = delivered(&one, &one.outbox[0].id, "a", NOON).unwrap();
    let after = recover(&told, "publish@1", NOON + 1, &lanes(&["a", "b", "new"]), ids(9)).unwrap();
    let owed: Vec<(Event, Option<u64>, &str)> =
        due(&after, NOON).iter().map(|(notice, lane)| (notice.event, notice.recovered_ms, *lane)).collect();
    assert_eq!(owed, [(Event::Raised, Some(NOON + 1), "b"), (Event::Recovered, None, "a")]);
    assert_eq!(after.outbox[0].lanes.len(), 1, "what a heard did not tell both");
}

#[test]
fn without_a_lane_it_opens_and_nobody_hears_old_news() {
    let open = raised(None, Kind::Failed, "publish@1", &[]).unwrap();
    assert_eq!((open.open.len(), open.outbox.len()), (1, 0));
    let again = raised(Some(&open), Kind::Failed, "publish@2", &["ops"]).unwrap();
    assert!(again.outbox.is_empty());
    let closed = recover(&again, "publish@2", NOON, &lanes(&["ops"]), ids(9)).unwrap();
    assert!(closed.is_empty());
}

#[test]
fn a_verdict_closes_in_silence() {
    let one = raised(None, Kind::Quarantined, "publish@1", &["ops"]).unwrap();
    let one = raised(Some(&one), Kind::Failed, "publish@1", &["ops"]).unwrap();
    let after = closed_by_person(&one, "publish@1").unwrap();
    assert_eq!(events(&after), [(Event::Raised, Kind::Failed)]);
    assert_eq!(closed_by_person(&after, "publish@1"), None);
    let told = closed_by_person(&all_delivered(&one), "publish@1").unwrap();
    assert_eq!((told.open.len(), told.outbox.len()), (1, 0));
}

#[test]
fn a_lane_is_tried_with_growing_pauses_and_in_order() {
    let mut alarm = raised(None, Kind::Failed, "publish@1", &["a", "b"]).unwrap();
    alarm = raised(Some(&alarm), Kind::Lost, "publish@1", &["a", "b"]).unwrap();
    let id = alarm.outbox[0].id;
    let mut now = NOON;
    for minutes in [1, 2, 4, 8, 16, 32, 60, 60] {
        alarm = undelivered(&alarm, &id, "a", now, "connection refused\nby peer", false).unwrap();
        let on_a = |now_ms| due(&alarm, now_ms).iter().filter(|(_, lane)| *lane == "a").count();
        assert_eq!((on_a(now + minutes * MINUTE - 1), on_a(now + minutes * MINUTE)), (0, 2), "{minutes}");
        assert_eq!(on_a(NOON - 1), 2, "a clock that was set back");
        assert_eq!(due(&alarm, now).len(), 2, "the other lane goes on");
        now += minutes * MINUTE;
    }
    let lanes = broken(&alarm);
    let [lane] = lanes.as_slice() else { panic!("{lanes:?}") };
    assert_eq!((lane.lane, lane.given_up, lane.waiting, lane.why), ("a", 0, 1, "connection refused by peer"));
}

#[test]
fn what_cannot_be_told_is_given_up_shown_and_forgotten_once_the_lane_works() {
    let one = raised(None, Kind::Failed, "publish@1", &["ops"]).unwrap();
    let id = one.outbox[0].id;
    let late = NOON + 7 * DAY + 1;
    let mut old = one.clone();
    for tries in 1..=3 {
        assert!(
            old.outbox[0].is_pending(),
            "after {tries} tries: a machine that slept for a week tries it too"
        );
        old = undelivered(&old, &id, "ops", late, "no route", false).unwrap();
    }
    let refused = undelivered(&one, &id, "ops", NOON, "404", true).unwrap();
    for given_up in [&old, &refused] {
        assert!(matches!(given_up.outbox[0].lanes[0].state, LaneState::GivenUp { .. }));
        assert!(due(given_up, NOON + 30 * DAY).is_empty());
        assert_eq!(broken(given_up)[0].given_up, 1);
        assert_eq!(undelivered(given_up, &id, "ops", NOON, "again", true), None);
        let next = all_delivered(&raised(Some(given_up), Kind::Lost, "publish@2", &["ops"]).unwrap());
        assert!(broken(&next).is_empty() && next.outbox.is_empty());
    }
    assert!(forget_lane(&refused, "ops").unwrap().outbox.is_empty());
    assert_eq!(forget_lane(&refused, "other"), None);
}

#[test]
fn the_outbox_drops_the_settled_first_and_then_the_oldest() {
    let mut alarm = raised(None, Kind::Failed, "publish@0", &["ops"]).unwrap();
    alarm = undelivered(&alarm, &alarm.outbox[0].id.clone(), "ops", NOON, "gone", true).unwrap();
    for n in 1..=OUTBOX_LIMIT {
        alarm = raised(Some(&alarm), Kind::Quarantined, &format!("publish@{n}"), &["ops"]).unwrap();
    }
    let first = |alarm: &Alarm| alarm.outbox[0].work.clone().unwrap();
    assert_eq!((alarm.outbox.len(), first(&alarm)), (OUTBOX_LIMIT, "publish@1".to_owned()));
    alarm = raised(Some(&alarm), Kind::Quarantined, "publish@more", &["ops"]).unwrap();
    assert_eq!((alarm.outbox.len(), first(&alarm)), (OUTBOX_LIMIT, "publish@2".to_owned()));
}

#[test]
fn past_the_limit_no_further_work_is_told_but_the_job_is() {
    let mut alarm = raised(None, Kind::Quarantined, "publish@0", &[]).unwrap();
    for n in 1..OPEN_LIMIT {
        alarm = raised(Some(&alarm), Kind::InDoubt, &format!("publish@{n}"), &[]).unwrap();
    }
    assert_eq!(raised(Some(&alarm), Kind::Quarantined, "publish@more", &["ops"]), None);
    assert_eq!(raised(Some(&alarm), Kind::Failed, "publish@more", &["ops"]).unwrap().outbox.len(), 1);
}

#[test]
fn a_check_tells_what_is_new_and_once_that_all_is_well() {
    let found = |names: &[&str]| lanes(names);
    let check = |alarm: Option<&Alarm>, names: &[&str], n| {
        raise_check(alarm, &found(names), "publish@1 is not done", NOON, &lanes(&["ops"]), ids(n))
    };
    assert_eq!(check(None, &[], 1), None);
    let one = check(None, &["a", "b"], 1).unwrap();
    assert_eq!(words(&one.outbox[0]), "semel check found 2 things: publish@1 is not done; look: semel check");
    let told = all_delivered(&one);
    assert_eq!(check(Some(&told), &["b", "a"], 2), None, "the same: silence");
    let fewer = check(Some(&told), &["a"], 2).unwrap();
    assert!(fewer.outbox.is_empty(), "fewer: silence");
    assert_eq!(check(Some(&fewer), &["a", "b"], 3).unwrap().outbox.len(), 1, "it came back");
    let more = check(Some(&fewer), &["a", "c"], 3).unwrap();
    assert_eq!((more.open.len(), more.outbox.len(), more.outbox[0].count), (1, 1, 2));
    let well = check(Some(&all_delivered(&more)), &[], 4).unwrap();
    assert_eq!(events(&well), [(Event::Recovered, Kind::Overdue)]);
    assert_eq!(
        words(&well.outbox[0]),
        "semel check finds nothing any more, since 2026-06-19T12:00:00Z; look: semel check"
    );
    assert_eq!(check(Some(&well), &[], 5), None);
    let both = check(Some(&one), &[], 6).unwrap();
    assert_eq!((both.outbox.len(), both.outbox[0].recovered_ms), (1, Some(NOON)));
}

#[test]
fn a_check_with_news_under_way_tells_the_recovery_once() {
    let ops = lanes(&["ops"]);
    let one = all_delivered(&raise_check(None, &lanes(&["a"]), "a", NOON, &ops, ids(1)).unwrap());
    let two = raise_check(Some(&one), &lanes(&["a", "b"]), "a, b", NOON, &ops, ids(2)).unwrap();
    let well = raise_check(Some(&two), &[], "", NOON + 1, &ops, ids(3)).unwrap();
    assert_eq!(
        (events(&well), well.outbox[0].recovered_ms),
        (vec![(Event::Raised, Kind::Overdue)], Some(NOON + 1))
    );
}

#[test]
fn a_notice_says_what_happened_why_and_where_to_look() {
    let said = |kind, slots| {
        let anomaly = Anomaly { slots, ..met(kind, "publish@2026-06-19?by=o'k", NOON) };
        let alarm = raise(None, &job(), &[anomaly], &lanes(&["ops"]), ids(1)).unwrap();
        words(&alarm.outbox[0])
    };
    let look = r"; look: semel why 'publish@2026-06-19?by=o'\''k'";
    let work = "publish@2026-06-19?by=o'k";
    for (kind, slots, text) in [
        (Kind::Failed, 1, format!("{work} failed: exit code 1")),
        (
            Kind::Quarantined,
            1,
            format!("{work} is quarantined and will not run until a person says so: exit code 1"),
        ),
        (Kind::InDoubt, 1, format!("{work} is in doubt: nobody can know whether it happened: exit code 1")),
        (Kind::Lost, 1, format!("{work} was lost: exit code 1")),
        (Kind::Missed, 1, format!("{work} was missed: exit code 1")),
        (Kind::Missed, 3, format!("3 slots were missed, such as {work}: exit code 1")),
        (Kind::Overdue, 1, format!("{work} is overdue: exit code 1")),
    ] {
        assert_eq!(said(kind, slots), format!("{text}{look}"));
    }
}

#[test]
fn the_body_is_versioned_json() {
    let alarm = raised(None, Kind::Failed, "publish@2026-06-19", &["ops"]).unwrap();
    assert_eq!(
        body(alarm.job.as_ref(), &alarm.outbox[0]),
        json!({
            "v": 1, "kind": "notice", "id": "10101010101010101010101010101001", "event": "raised",
            "anomaly": "failed", "job": "publish", "work": "publish@2026-06-19", "why": "exit code 1",
            "at_ms": NOON, "count": 1, "look": "semel why 'publish@2026-06-19'",
            "text": "publish@2026-06-19 failed: exit code 1; look: semel why 'publish@2026-06-19'",
        })
    );
    let told = all_delivered(&alarm);
    let well = recover(&told, "publish@2026-06-20", NOON + DAY, &lanes(&["ops"]), ids(2)).unwrap();
    let body = body(well.job.as_ref(), &well.outbox[0]);
    assert_eq!(
        (&body["event"], &body["anomaly"], &body["since_ms"]),
        (&json!("recovered"), &json!("failed"), &json!(NOON))
    );
}

#[test]
fn a_record_of_the_worst_input_fits_a_store() {
    let long = "\"\\é\n".repeat(5_000);
    let wide: Vec<String> = (0..20).map(|n| format!("{n:0>128}")).collect();
    let mut alarm = None;
    for kind in Kind::ALL {
        for n in 0..2 * OPEN_LIMIT {
            let anomaly = Anomaly {
                kind,
                work: format!("publish@{n}?x={}", "é".repeat(110)),
                at_ms: NOON,
                why: long.clone(),
                slots: u32::MAX,
            };
            let next = raise(alarm.as_ref(), &job(), &[anomaly], &wide, ids(n as u8));
            alarm = next.or(alarm);
        }
    }
    let mut alarm: Alarm = alarm.unwrap();
    let all: Vec<Notice> = alarm.outbox.clone();
    for notice in all {
        for lane in &notice.lanes {
            alarm = undelivered(&alarm, &notice.id, &lane.name, NOON, &long, false).unwrap();
        }
    }
    for open in &mut alarm.open {
        open.told = wide[..8].to_vec();
    }
    let key = RecordKey::alarm(&job());
    let bytes = encode(&key, &alarm).unwrap();
    assert!(bytes.len() < VALUE_LIMIT / 2, "{}", bytes.len());
    assert_eq!(decode::<Alarm>(&key, &bytes).unwrap(), alarm);
}

#[test]
fn a_long_work_is_known_by_its_key() {
    let long = format!("publish?text={}", "x".repeat(10_000));
    let alarm = raised(None, Kind::Quarantined, &long, &["ops"]).unwrap();
    let key = semel_core::work::Work::parse_readable(&long).unwrap().key().to_string();
    assert_eq!(alarm.open[0].work, Some(key));
    assert!(closed_by_person(&alarm, &long).unwrap().is_empty());
}

#[test]
fn no_job_has_the_record_of_the_check() {
    for text in ["check", ":check", "a/check"] {
        assert_ne!(RecordKey::alarm(&Name::new(text).unwrap()), RecordKey::check_alarm());
    }
    assert!(RecordKey::check_alarm().as_str().starts_with(RecordKey::alarms()));
}
