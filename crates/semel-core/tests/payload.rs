//! Payload fingerprints: what counts as the same payload, and what is said when it is not.
#![allow(clippy::unwrap_used)]

use proptest::prelude::*;
use semel_core::canonical::{self, Pointer};
use semel_core::payload::{Change, Fingerprint, LEAVES_LIMIT, PayloadError};
use serde_json::{Value, json};

fn pointers(texts: &[&str]) -> Vec<Pointer> {
    texts.iter().map(|text| Pointer::new(text).unwrap()).collect()
}

fn of(value: Value, volatile: &[&str]) -> Fingerprint {
    Fingerprint::of_json(&value, &pointers(volatile)).unwrap()
}

fn diff(was: &Fingerprint, is: &Fingerprint) -> Vec<(String, Change)> {
    was.diff(is).into_iter().map(|field| (field.pointer.as_str().to_owned(), field.change)).collect()
}

#[test]
fn order_and_white_space_make_no_difference() {
    let a = canonical::parse(r#"{"a":1.0,"b":{"c":"x","d":[1,2]}}"#).unwrap();
    let b = canonical::parse("{\n \"b\": {\"d\": [1, 2e0], \"c\": \"\\u0078\"},\n \"a\": 1\n}").unwrap();
    assert_eq!(of(a, &[]), of(b, &[]));
}

#[test]
fn each_field_that_differs_is_named() {
    let was = of(json!({"a": 1, "b": {"c": "x", "gone": 1}, "d/e": [1, 2]}), &[]);
    let is = of(json!({"a": 2, "b": {"c": "x", "new": 1}, "d/e": [1, "2", 3]}), &[]);
    let expected = [
        ("/a", Change::Changed),
        ("/b/gone", Change::Removed),
        ("/b/new", Change::Added),
        ("/d~1e/1", Change::Changed),
        ("/d~1e/2", Change::Added),
    ];
    assert_eq!(diff(&was, &is), expected.map(|(pointer, change)| (pointer.to_owned(), change)));
    assert_eq!(diff(&was, &was), []);
}

#[test]
fn absent_null_and_empty_are_not_the_same() {
    let values = [
        json!({}),
        json!({"a": null}),
        json!({"a": {}}),
        json!({"a": []}),
        json!({"a": ""}),
        json!({"a": "{}"}),
        json!([]),
    ];
    for (i, a) in values.iter().enumerate() {
        for (j, b) in values.iter().enumerate() {
            assert_eq!(diff(&of(a.clone(), &[]), &of(b.clone(), &[])).is_empty(), i == j, "{a} {b}");
        }
    }
}

#[test]
fn a_volatile_field_counts_on_neither_side() {
    let first = || json!({"id": 1, "text": {"title": "a", "body": ["x"]}});
    let second = || json!({"id": 1, "text": {"title": "b", "body": ["y", "z"]}});
    for (was, is) in [
        (vec!["/text"], vec![]),
        (vec![], vec!["/text"]),
        (vec!["/text"], vec!["/text"]),
        (vec!["/text/title"], vec!["/text/body"]),
    ] {
        assert_eq!(diff(&of(first(), &was), &of(second(), &is)), [], "{was:?} {is:?}");
        assert_eq!(diff(&of(second(), &was), &of(first(), &is)), [], "{was:?} {is:?}");
    }
    let other = json!({"id": 2});
    assert_eq!(diff(&of(first(), &["/text"]), &of(other, &[])), [("/id".to_owned(), Change::Changed)]);
    // a name that only starts alike is another field
    assert_eq!(diff(&of(json!({"ab": 1}), &["/a"]), &of(json!({"ab": 2}), &["/a"])).len(), 1);
}

#[test]
fn volatile_pointers_that_hide_too_much_or_mean_a_pattern_are_refused() {
    let of = |text: &str| Fingerprint::of_json(&json!({"*": 1}), &pointers(&[text]));
    assert_eq!(of(""), Err(PayloadError::VolatileRoot));
    assert_eq!(
        of("/a/*/b").unwrap_err().to_string(),
        "volatile pointer /a/*/b: '*' is not supported; name each member"
    );
    assert!(of("/a*").is_ok());
    let many = vec![Pointer::new("/a").unwrap(); 257];
    assert_eq!(Fingerprint::of_json(&json!(1), &many), Err(PayloadError::TooManyVolatile(257)));
}

#[test]
fn a_large_payload_is_one_field() {
    let list = |length: usize, last: i64| json!({"list": (1..length).collect::<Vec<_>>(), "last": last});
    assert!(matches!(of(list(LEAVES_LIMIT, 0), &[]), Fingerprint::Leaves { .. }));
    let was = of(list(LEAVES_LIMIT + 1, 0), &[]);
    assert!(matches!(was, Fingerprint::Whole { .. }));
    assert_eq!(diff(&was, &of(list(LEAVES_LIMIT + 1, 0), &[])), []);
    let root = [(String::new(), Change::Changed)];
    assert_eq!(diff(&was, &of(list(LEAVES_LIMIT + 1, 1), &[])), root);
    assert_eq!(diff(&was, &of(list(LEAVES_LIMIT, 0), &[])), root);
    // what is volatile is left out of the digest too
    let without = |last| of(list(LEAVES_LIMIT + 2, last), &["/last"]);
    assert_eq!(diff(&without(1), &without(2)), []);
    assert_eq!(diff(&without(1), &of(list(LEAVES_LIMIT + 2, 1), &[])), root);
}

#[test]
fn long_names_do_not_make_a_long_record() {
    let name = "n".repeat(1000);
    let value = json!({ &name: (0..200).collect::<Vec<_>>() });
    assert!(serde_json::to_string(&of(value, &[])).unwrap().len() < 200);
}

#[test]
fn bytes_are_compared_as_bytes() {
    let a = Fingerprint::of_bytes(b"{}");
    assert_eq!(diff(&a, &Fingerprint::of_bytes(b"{}")), []);
    assert_eq!(diff(&a, &Fingerprint::of_bytes(b"{ }")).len(), 1);
    assert_eq!(diff(&a, &of(json!({}), &[])).len(), 1);
}

#[test]
fn a_payload_that_two_readers_take_differently_is_refused_with_its_place() {
    let error = Fingerprint::of_json(&json!({"a": [u64::MAX]}), &[]).unwrap_err();
    assert!(error.to_string().starts_with("payload: JSON at /a/0: is an integer beyond"), "{error}");
}

#[test]
fn what_is_stored_holds_no_value() {
    let fingerprint = of(json!({"password": "hunter2", "n": 1, "t": 0}), &["/t"]);
    let stored = serde_json::to_value(&fingerprint).unwrap();
    // the start of the SHA-256 of the text 1
    assert_eq!(stored["leaves"]["leaves"]["/n"], "6b86b273ff34fce1");
    assert_eq!(stored["leaves"]["volatile"], json!(["/t"]));
    assert!(!stored.to_string().contains("hunter2"));
    assert_eq!(serde_json::from_value::<Fingerprint>(stored).unwrap(), fingerprint);
    for bad in [
        json!({"bytes": {"digest": "00"}}),
        json!({"leaves": {"leaves": {"a": "6b86b273ff34fce1"}}}),
        json!({"bytes": {}}),
        json!({"leaves": {"leaves": {}, "more": 1}}),
    ] {
        assert!(serde_json::from_value::<Fingerprint>(bad.clone()).is_err(), "{bad}");
    }
}

fn a_value() -> impl Strategy<Value = Value> {
    let leaf =
        prop_oneof![Just(Value::Null), (0..3_i64).prop_map(Value::from), "[ab]{0,1}".prop_map(Value::from)];
    leaf.prop_recursive(3, 12, 3, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
            prop::collection::btree_map("[ab/~]", inner, 0..3).prop_map(|map| json!(map)),
        ]
    })
}

fn a_volatile() -> impl Strategy<Value = Vec<Pointer>> {
    let token = prop_oneof!["[ab01]", Just("~0".to_owned()), Just("~1".to_owned())];
    let pointer = prop::collection::vec(token, 1..3)
        .prop_map(|tokens| Pointer::new(&format!("/{}", tokens.join("/"))).unwrap());
    prop::collection::vec(pointer, 0..3)
}

proptest! {
    #[test]
    fn the_same_payload_never_differs_whatever_is_volatile(value in a_value(), a in a_volatile(), b in a_volatile()) {
        let (was, is) = (Fingerprint::of_json(&value, &a).unwrap(), Fingerprint::of_json(&value, &b).unwrap());
        prop_assert_eq!(was.diff(&is), []);
    }

    #[test]
    fn another_payload_always_differs(a in a_value(), b in a_value()) {
        let (was, is) = (Fingerprint::of_json(&a, &[]).unwrap(), Fingerprint::of_json(&b, &[]).unwrap());
        prop_assert_eq!(was.diff(&is).is_empty(), a == b);
    }

    #[test]
    fn a_diff_turned_round_swaps_added_and_removed(a in a_value(), b in a_value(), v in a_volatile(), w in a_volatile()) {
        let (was, is) = (Fingerprint::of_json(&a, &v).unwrap(), Fingerprint::of_json(&b, &w).unwrap());
        let swap = |change| match change {
            Change::Added => Change::Removed,
            Change::Removed => Change::Added,
            Change::Changed => Change::Changed,
        };
        let turned: Vec<_> = was.diff(&is).into_iter().map(|field| (field.pointer, swap(field.change))).collect();
        let back: Vec<_> = is.diff(&was).into_iter().map(|field| (field.pointer, field.change)).collect();
        prop_assert_eq!(turned, back);
    }
}
