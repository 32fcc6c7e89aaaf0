//! Plans, choices and placeholders: against the vectors, by table, and against chance.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::BTreeMap;

use proptest::collection::{btree_set, vec};
use proptest::prelude::*;
use semel_core::fill::{Template, TemplateError, fill, scripts_in};
use semel_core::name::{Name, Slot};
use semel_core::plan::{Choice, NAMES_LIMIT, PLAN_LIMIT, Plan, Recent, VALUE_LIMIT, choose, seed};
use semel_core::work::{Fields, Key, Work};
use serde_json::{Value, json};

fn vectors() -> Value {
    serde_json::from_str(include_str!("../vectors/plans.json")).unwrap()
}

fn texts(list: &Value) -> Vec<String> {
    list.as_array().unwrap().iter().map(|text| text.as_str().unwrap().to_owned()).collect()
}

/// The key of the nth of many works.
fn key(n: u64) -> Key {
    Work::in_slot(Name::new("publish").unwrap(), Slot::new(&n.to_string()).unwrap(), Fields::new())
        .unwrap()
        .key()
}

fn options(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

#[test]
fn every_vector_holds() {
    let vectors = vectors();
    for vector in vectors["seeds"].as_array().unwrap() {
        let work = Work::from_json(vector["canonical"].as_str().unwrap()).unwrap();
        assert_eq!(work.key().to_string(), vector["key"]);
        let plan = Plan::new(&work.key());
        assert_eq!((plan.get("seed"), plan.get("seed_hex")), (vector.get("seed"), vector.get("seed_hex")));
        assert_eq!(plan.seed(), Some(seed(&work.key())));
    }
    let choices = vectors["choices"].as_array().unwrap();
    assert!(choices.len() >= 20);
    for vector in choices {
        let key: Key = vector["key"].as_str().unwrap().parse().unwrap();
        let choice = Choice::new(vector["name"].as_str().unwrap(), texts(&vector["options"])).unwrap();
        assert_eq!(choice.of(&key).unwrap(), vector["chosen"], "{vector}");
    }
    for vector in vectors["accepted"].as_array().unwrap() {
        let choice =
            Choice::parse(vector["text"].as_str().unwrap()).unwrap_or_else(|why| panic!("{vector}: {why}"));
        assert_eq!(choice.name(), vector["name"]);
        assert_eq!(choice.options(), texts(&vector["options"]));
    }
    for vector in vectors["refused"].as_array().unwrap() {
        assert!(Choice::parse(vector["text"].as_str().unwrap()).is_err(), "{vector}");
    }
}

#[test]
fn options_have_even_shares_and_choices_of_other_names_are_their_own() {
    const KEYS: u64 = 20_000;
    let letters = options(&["a", "b", "c", "d", "e"]);
    let mut shares = BTreeMap::<&str, u64>::new();
    let mut pairs = BTreeMap::<(&str, &str), u64>::new();
    for n in 0..KEYS {
        let key = key(n);
        let (topic, tone) =
            (choose(&key, "topic", &letters).unwrap(), choose(&key, "tone", &letters).unwrap());
        *shares.entry(topic).or_default() += 1;
        *pairs.entry((topic, tone)).or_default() += 1;
    }
    // the works are fixed, so this is no matter of luck: chi-square below its 99.9 % bound
    let chi = |counts: Vec<u64>, expected: f64| -> f64 {
        counts.into_iter().map(|count| (count as f64 - expected).powi(2) / expected).sum()
    };
    let of_shares = chi(shares.into_values().collect(), KEYS as f64 / 5.0);
    assert!(of_shares < 18.47, "4 degrees of freedom: {of_shares}");
    assert_eq!(pairs.len(), 25);
    let of_pairs = chi(pairs.into_values().collect(), KEYS as f64 / 25.0);
    assert!(of_pairs < 51.18, "24 degrees of freedom: {of_pairs}");
}

#[test]
fn an_added_option_takes_its_share() {
    const KEYS: u64 = 20_000;
    let (four, five) = (options(&["a", "b", "c", "d"]), options(&["a", "b", "c", "d", "e"]));
    let moved =
        (0..KEYS).filter(|n| choose(&key(*n), "topic", &four) != choose(&key(*n), "topic", &five)).count();
    // a fifth of them, within four standard deviations
    assert!((3_773..=4_227).contains(&moved), "{moved} of {KEYS}");
}

/// The naive way: the hash modulo the number of options.
#[test]
fn control_a_modulus_moves_nearly_everything() {
    const KEYS: u64 = 20_000;
    let moved = (0..KEYS).filter(|n| seed(&key(*n)) % 4 != seed(&key(*n)) % 5).count();
    assert!(moved > 15_000, "{moved} of {KEYS}");
}

#[test]
fn seeds_are_numbers_that_json_carries_and_do_not_repeat() {
    let seeds: std::collections::BTreeSet<u64> = (0..10_000).map(|n| seed(&key(n))).collect();
    assert_eq!(seeds.len(), 10_000);
    assert!(seeds.last().unwrap() < &(1 << 53) && seeds.last().unwrap() > &(1 << 52));
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_choice_depends_on_nothing_but_the_key_the_name_and_the_options(
        bytes: [u8; 32], name in "[a-z]{1,8}", set in btree_set(".{1,12}", 1..12), shift in 0usize..12,
    ) {
        let key = Key::from_bytes(bytes);
        let list: Vec<String> = set.into_iter().collect();
        let chosen = choose(&key, &name, &list).unwrap();
        prop_assert!(list.iter().any(|option| option == chosen));
        let mut turned = list.clone();
        let by = shift % list.len();
        turned.rotate_left(by);
        prop_assert_eq!(choose(&key, &name, &turned), Some(chosen), "their order does not matter");
    }

    #[test]
    fn an_added_option_moves_keys_only_to_itself_and_a_removed_one_only_its_own(
        bytes: [u8; 32], set in btree_set(".{1,12}", 2..12), at: prop::sample::Index,
    ) {
        let key = Key::from_bytes(bytes);
        let all: Vec<String> = set.into_iter().collect();
        let gone = at.get(&all).clone();
        let rest: Vec<String> = all.iter().filter(|option| **option != gone).cloned().collect();
        let (before, after) = (choose(&key, "n", &rest).unwrap(), choose(&key, "n", &all).unwrap());
        prop_assert!(after == before || after == gone, "{before} became {after} when {gone} came");
    }

    #[test]
    fn what_is_typed_is_read_or_refused(text in ".{0,40}") {
        let _ = (Choice::parse(&text), Recent::parse(&text), Template::parse(&text).is_ok());
    }

    #[test]
    fn json_options_come_back_as_they_are(set in btree_set(".{1,12}", 1..8)) {
        let list: Vec<String> = set.into_iter().collect();
        let choice = Choice::parse(&format!("n:={}", json!(list))).unwrap();
        prop_assert_eq!(choice.options(), list);
    }

    #[test]
    fn a_value_goes_in_as_it_is_and_what_is_around_it_stays(before in "[^{}]{0,20}", value in "[^\0]{0,40}", after in "[^{}]{0,20}") {
        let plan = Plan::new(&key(1)).with("v", value.clone().into()).unwrap();
        let filled = fill(&format!("{before}{{plan.v}}{after}"), &work(), Some(&plan));
        prop_assert_eq!(filled, Ok(format!("{before}{value}{after}")), "also where the value has braces");
    }

    #[test]
    fn doubled_braces_are_braces(text in ".{0,40}") {
        let doubled = text.replace('{', "{{").replace('}', "}}");
        prop_assert_eq!(fill(&doubled, &work(), None), Ok(text));
    }

    #[test]
    fn the_newest_values_are_kept_in_whatever_order_they_are_seen(
        times in vec(0u64..50, 0..60), count in 1usize..8,
    ) {
        let recent = Recent::parse(&format!("slugs={count}:slug")).unwrap();
        let mut recalled = recent.collect();
        for (n, at) in times.iter().enumerate() {
            recalled.saw(key(n as u64), *at, &json!({ "slug": at }));
        }
        let mut newest = times.clone();
        newest.sort_unstable_by(|a, b| b.cmp(a));
        newest.truncate(count);
        prop_assert_eq!(recalled.values().unwrap(), json!(newest));
    }
}

fn work() -> Work {
    let with = BTreeMap::from([
        ("series".to_owned(), json!("landing page")),
        ("n".to_owned(), json!(3)),
        ("deep".to_owned(), json!({ "a": [1] })),
    ]);
    Work::in_slot(Name::new("publish").unwrap(), Slot::new("2026-06-19").unwrap(), with).unwrap()
}

#[test]
fn placeholders_are_filled_and_everything_else_is_refused() {
    let plan = Plan::new(&work().key())
        .with("topic", "it's $(hot); \"new\"\n".into())
        .unwrap()
        .with("list", json!(["a", 1]))
        .unwrap();
    let filled = |argument: &str| fill(argument, &work(), Some(&plan));
    for (argument, becomes) in [
        ("plain", "plain"),
        ("", ""),
        ("{plan.topic}", "it's $(hot); \"new\"\n"),
        ("--topic={plan.topic}!", "--topic=it's $(hot); \"new\"\n!"),
        ("{slot}/{job}", "2026-06-19/publish"),
        ("{with.series} {with.n} {with.deep}", "landing page 3 {\"a\":[1]}"),
        ("{plan.list}", "[\"a\",1]"),
        ("{{slot}}", "{slot}"),
        ("{{{slot}}}", "{2026-06-19}"),
        ("{{}}", "{}"),
    ] {
        assert_eq!(filled(argument).unwrap(), becomes, "{argument}");
    }
    assert_eq!(filled("{key}").unwrap(), work().key().to_string());
    for argument in [
        "{}", "{slot", "slot}", "{ slot }", "{plan}", "{plan.}", "{Slot}", "{with.}", "{x.y}", "{{x}",
        "{a{slot}",
    ] {
        assert!(filled(argument).is_err(), "{argument}: {:?}", filled(argument));
    }
    let error = filled("{plan.tpoic}").unwrap_err().to_string();
    assert!(error.contains("it has") && error.contains("topic"), "{error}");
    assert!(filled("{with.other}").unwrap_err().to_string().contains("--with other="));
    assert_eq!(fill("{slot}", &Work::once(Name::new("a").unwrap()), None), Err(TemplateError::NoSlot));
    let nul = Plan::new(&work().key()).with("v", "a\0b".into()).unwrap();
    assert!(matches!(fill("{plan.v}", &work(), Some(&nul)), Err(TemplateError::Nul(_))));
}

#[test]
fn the_scripts_of_shells_are_known() {
    for (words, scripts) in [
        ("sh -c SCRIPT x", vec![2]),
        ("/bin/bash -euo pipefail -c SCRIPT", vec![4]),
        ("bash -ec SCRIPT", vec![2]),
        ("bash --norc -c SCRIPT a -c b", vec![3]),
        ("env A=1 sh -c SCRIPT", vec![4]),
        ("sh -c SCRIPT sh -c SCRIPT", vec![2, 5]),
        ("sh publish.sh -c topic", vec![]),
        ("./publish -c topic", vec![]),
        ("grep -c topic file", vec![]),
        ("", vec![]),
    ] {
        assert_eq!(scripts_in(words.split(' ').map(str::as_bytes)), scripts, "{words}");
    }
}

#[test]
fn a_plan_has_its_limits() {
    let plan = || Plan::new(&key(1));
    for name in ["", "a b", "a.b", "ü", "seed", "seed_hex", &"x".repeat(65)] {
        assert!(plan().with(name, json!(1)).is_err(), "{name}");
    }
    assert!(plan().with("a", json!(1)).unwrap().with("a", json!(1)).is_err(), "twice");
    assert!(plan().with("a", json!("x".repeat(PLAN_LIMIT))).is_err());
    assert!(plan().with("a", json!(1u64 << 53)).is_err(), "other programs would round it");
    let full =
        (0..NAMES_LIMIT - 2).try_fold(plan(), |plan, n| plan.with(&format!("n{n}"), json!(n))).unwrap();
    assert!(full.with("more", json!(1)).is_err());
    assert!(Choice::new("n", (0..1_001).map(|n| n.to_string()).collect()).is_err());
}

#[test]
fn a_look_back_takes_what_is_there_and_refuses_what_is_too_large() {
    for text in [
        "slugs",
        "slugs=",
        "slugs=10",
        "slugs=:slug",
        "slugs=0:slug",
        "slugs=1001:slug",
        "slugs=+1:slug",
        "slugs=1:",
        "slugs=1:/a~",
        "a b=1:slug",
        "=1:slug",
    ] {
        assert!(Recent::parse(text).is_err(), "{text}");
    }
    let recent = Recent::parse("slugs=2:/page/slug").unwrap();
    let mut recalled = recent.collect();
    recalled.saw(key(1), 1, &json!({ "page": { "slug": "one" } }));
    recalled.saw(key(2), 9, &json!({ "page": {} }));
    recalled.saw(key(3), 8, &json!(null));
    recalled.saw(key(4), 7, &json!({ "page": { "slug": null } }));
    recalled.saw(key(5), 2, &json!({ "page": { "slug": ["two", 2] } }));
    assert_eq!(recalled.values().unwrap(), json!([["two", 2], "one"]));
    let large = json!({ "slug": "x".repeat(VALUE_LIMIT) });
    let recent = Recent::parse("slugs=1:slug").unwrap();
    let mut recalled = recent.collect();
    recalled.saw(key(1), 1, &large);
    recalled.saw(key(2), 2, &json!({ "slug": "small" }));
    assert_eq!(recalled.values().unwrap(), json!(["small"]), "what is too old does not matter");
    let mut recalled = recent.collect();
    recalled.saw(key(1), 1, &large);
    assert!(recalled.values().is_err());
}
