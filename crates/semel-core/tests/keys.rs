//! Works, their keys and their readable forms, against the vectors and against chance.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::{BTreeMap, HashSet};

use proptest::prelude::*;
use semel_core::canonical::{self, Pointer};
use semel_core::name::{Name, Slot, escape, unescape};
use semel_core::record::RecordKey;
use semel_core::token::Nonce;
use semel_core::work::{Fields, Key, Work, parse_param, parse_params};
use serde_json::{Value, json};

fn vectors() -> Value {
    serde_json::from_str(include_str!("../vectors/keys.json")).unwrap()
}

fn list(vectors: &Value, name: &str) -> Vec<Value> {
    vectors[name].as_array().unwrap().clone()
}

#[test]
fn every_vector_holds_both_ways() {
    let works = list(&vectors(), "works");
    assert!(works.len() >= 40);
    for vector in works {
        let text = |member: &str| vector[member].as_str().unwrap().to_owned();
        let about = text("name");
        let work = Work::from_value(vector["work"].clone()).expect(&about);
        assert_eq!(work.canonical(), text("canonical"), "{about}");
        assert_eq!(work.key().to_string(), text("key"), "{about}");
        assert_eq!(work.to_string(), text("readable"), "{about}");
        assert_eq!(Work::from_json(&text("canonical")).unwrap(), work, "{about}");
        assert_eq!(Work::parse_readable(&text("readable")).unwrap(), work, "{about}");
        assert_eq!(serde_json::from_str::<Work>(&vector["work"].to_string()).unwrap(), work, "{about}");
        assert_eq!(
            serde_json::from_str::<Work>(&serde_json::to_string(&work).unwrap()).unwrap(),
            work,
            "{about}"
        );
    }
}

#[test]
fn vectors_with_one_key_have_one_canonical_text() {
    let mut by_key = BTreeMap::new();
    for vector in list(&vectors(), "works") {
        let first = by_key.entry(vector["key"].to_string()).or_insert_with(|| vector.clone());
        assert_eq!((&first["canonical"], &first["readable"]), (&vector["canonical"], &vector["readable"]));
    }
}

#[test]
fn every_refused_vector_names_its_member() {
    let refused = list(&vectors(), "refused");
    assert!(refused.len() >= 40);
    for vector in refused {
        let about = vector["name"].as_str().unwrap();
        let error = Work::from_json(vector["text"].as_str().unwrap()).expect_err(about);
        assert_eq!(error.pointer().as_str(), vector["error_pointer"].as_str().unwrap(), "{about}");
        assert!(!error.to_string().contains('\n'), "{about}");
        assert!(serde_json::from_str::<Work>(vector["text"].as_str().unwrap()).is_err(), "{about}");
    }
}

fn job() -> Name {
    Name::new("publish").unwrap()
}

fn fields<const N: usize>(members: [(&str, Value); N]) -> Fields {
    members.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

#[test]
fn constructors_make_what_the_readable_form_says() {
    let day = || Slot::new("2026-06-19").unwrap();
    let n = || fields([("n", json!(3.0)), ("series", json!("landing"))]);
    let works = [
        (Work::once(job()), "publish"),
        (Work::always(job()), "publish*"),
        (Work::in_slot(job(), day(), Fields::new()).unwrap(), "publish@2026-06-19"),
        (Work::in_slot(job(), day(), n()).unwrap(), "publish@2026-06-19?n:=3&series=landing"),
        (Work::with(job(), n()).unwrap(), "publish?n:=3&series=landing"),
        (Work::keyed(job(), "my-key", None, Fields::new()).unwrap(), "publish#my-key"),
        (Work::keyed(job(), "k", Some(day()), n()).unwrap(), "publish@2026-06-19?n:=3&series=landing#k"),
        (Work::once(job()).for_item(fields([("id", json!(7))])).unwrap(), "publish;id:=7"),
        (Work::once(job()).at_step(job(), 1).unwrap(), "publish~publish"),
        (Work::always(job()).at_step(job(), 2).unwrap(), "publish*~publish~2"),
    ];
    let mut keys = HashSet::new();
    for (work, readable) in works {
        assert_eq!(work.to_string(), readable);
        assert_eq!(Work::parse_readable(readable).unwrap(), work);
        assert_eq!(Work::from_json(work.canonical()).unwrap(), work);
        assert!(keys.insert(work.key()));
    }
}

#[test]
fn what_would_be_once_by_accident_is_refused() {
    assert_eq!(Work::with(job(), Fields::new()).unwrap_err().pointer().as_str(), "/with");
    assert_eq!(Work::once(job()).for_item(Fields::new()).unwrap_err().pointer().as_str(), "/item");
    assert_eq!(Work::once(job()).at_step(job(), 0).unwrap_err().pointer().as_str(), "/nth");
}

#[test]
fn a_work_has_a_largest_size() {
    let error = Work::with(job(), fields([("x", json!("x".repeat(65_536)))])).unwrap_err();
    assert!(error.to_string().contains("at most 65536"), "{error}");
}

#[test]
fn refusals_are_one_clear_line() {
    let of = |text: &str| Work::parse_readable(text).unwrap_err().to_string();
    let order = "the order is job*@slot?with#key;item~step~nth, and a sign itself is written %XX";
    assert_eq!(of("publish?a=1@x"), format!("work: unexpected '@' at character 12; {order}"));
    assert_eq!(of("publish**"), format!("work: unexpected '*' at character 9; {order}"));
    assert_eq!(of("publish?n:=[1"), "work at /with/n: expected ',' or ']' (line 1, character 3)");
    assert_eq!(of("publish?a=1&a=2"), "work at /with/a: appears twice; keep one");
    assert_eq!(of("publish?abc"), "work at /with: 'abc' is neither NAME=TEXT nor NAME:=JSON");
    assert_eq!(of("publish*@s"), "work at /slot: cannot be given with always: such a work is never done");
    for bad in [
        "",
        "@s",
        "publish@",
        "publish?",
        "publish#",
        "publish;",
        "publish~",
        "publish~a~",
        "publish~a~0",
        "publish~a~+2",
        "publish~a~2~3",
        "publish@%",
        "publish@%zz",
        "publish@%FF",
        "publish?%=1",
        "publish?=1",
        "publish\n",
        "publish@a%0A",
    ] {
        assert!(Work::parse_readable(bad).is_err(), "{bad:?}");
    }
}

#[test]
fn parameters_are_read_as_people_type_them() {
    let of = |text: &str| parse_param(text).unwrap().1;
    assert_eq!(parse_param("series=landing").unwrap(), ("series".to_owned(), json!("landing")));
    assert_eq!(of("n=3"), json!("3"));
    assert_eq!(of("n:=3"), json!(3));
    assert_eq!(of("n:= [1, 2.0] "), json!([1, 2]));
    assert_eq!(of("url=https://x/?a=b&c:=%20"), json!("https://x/?a=b&c:=%20"));
    assert_eq!(of("empty="), json!(""));
    assert_eq!(parse_param("n:={\"a\":1e999}").unwrap_err().pointer().as_str(), "/with/n/a");
    for bad in ["", "x", "=1", ":=1", "a b=1", "n:=", "n:=x", "n:=9007199254740993"] {
        assert!(parse_param(bad).is_err(), "{bad}");
    }
    assert_eq!(parse_params(["a=1", "b:=2"]).unwrap(), fields([("a", json!("1")), ("b", json!(2))]));
    assert_eq!(
        parse_params(["a=1", "a=1"]).unwrap_err().to_string(),
        "work at /with/a: appears twice; keep one"
    );
}

#[test]
fn a_key_has_one_spelling() {
    let key = Work::once(job()).key();
    assert_eq!(key.to_string().parse(), Ok(key));
    assert_eq!(key.short(), key.to_string()[..12]);
    assert_eq!(serde_json::to_value(key).unwrap(), json!(key.to_string()));
    assert_eq!(Key::from_bytes(*key.as_bytes()), key);
    assert!(key.to_string().to_uppercase().parse::<Key>().is_err());
    assert!(serde_json::from_str::<Key>("\"00\"").is_err());
}

fn a_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        (-canonical::INTEGER_MAX..=canonical::INTEGER_MAX).prop_map(Value::from),
        any::<f64>()
            .prop_map(Value::from)
            .prop_filter("refused numbers", |value| canonical::check(value).is_ok()),
        any::<String>().prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 16, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map(any::<String>(), inner, 0..4).prop_map(|map| json!(map)),
        ]
    })
}

prop_compose! {
    fn a_work()(
        job in "[A-Za-z0-9_:]{1,4}(/[a-z:]{1,3})?",
        always in any::<bool>(),
        slot in prop::option::of("[^?#*@\\pC\\s]{1,6}"),
        with in prop::collection::btree_map("[A-Za-z0-9_.-]{1,5}", a_value(), 0..4),
        key in prop::option::of("[^\\pC]{1,6}"),
        item in prop::collection::btree_map("[^\\pC\\s]{1,5}", a_value(), 0..3),
        step in prop::option::of("[a-z]{1,3}"),
        nth in 1..4_u32,
    ) -> Option<Work> {
        let job = Name::new(&job).ok()?;
        let slot = slot.map(|slot| Slot::new(&slot)).transpose().ok()?;
        let work = match (always, slot, key) {
            (true, ..) => Some(Work::always(job)),
            (_, slot, Some(key)) => Work::keyed(job, &key, slot, with).ok(),
            (_, Some(slot), None) => Work::in_slot(job, slot, with).ok(),
            (_, None, None) if with.is_empty() => Some(Work::once(job)),
            (_, None, None) => Work::with(job, with).ok(),
        }?;
        let work = if item.is_empty() { work } else { work.for_item(item).ok()? };
        match step {
            Some(step) => work.at_step(Name::new(&step).ok()?, nth).ok(),
            None => Some(work),
        }
    }
}

fn works() -> impl Strategy<Value = Work> {
    a_work().prop_filter_map("not a work", |work| work)
}

/// The JSON text of a value with the members of each object turned round, and white space between.
fn turned(value: &Value) -> String {
    match value {
        Value::Object(members) => {
            let members: Vec<_> = members
                .iter()
                .rev()
                .map(|(name, member)| format!("{} :\n{}", json!(name), turned(member)))
                .collect();
            format!("{{ {} }}", members.join(" ,\t"))
        }
        Value::Array(elements) => {
            format!("[ {} ]", elements.iter().map(turned).collect::<Vec<_>>().join(" , "))
        }
        scalar => scalar.to_string(),
    }
}

proptest! {
    #[test]
    fn the_readable_form_leads_back(work in works()) {
        let readable = work.to_string();
        prop_assert!(!readable.contains(char::is_whitespace) && !readable.contains(char::is_control));
        prop_assert_eq!(&Work::parse_readable(&readable).unwrap(), &work);
        prop_assert_eq!(Work::parse_readable(&readable).unwrap().to_string(), readable);
    }

    #[test]
    fn storing_leads_back(work in works()) {
        let stored = serde_json::to_string(&work).unwrap();
        let loaded = serde_json::from_str::<Work>(&stored).unwrap();
        prop_assert_eq!(loaded.key(), work.key());
        prop_assert_eq!(Work::from_json(work.canonical()).unwrap(), work);
    }

    #[test]
    fn an_item_of_a_batch_has_the_text_that_its_members_have(
        slot in prop::option::of("[a-z0-9]{1,5}"), always in any::<bool>(),
        fields in prop::collection::btree_map(
            prop_oneof![4 => "[a-z.]{1,4}", 1 => "[ -~é\u{ff5e}\u{10000}]{1,3}"],
            prop_oneof![
                "[a-z0-9 /]{0,6}".prop_map(Value::from), any::<String>().prop_map(Value::from),
                any::<i64>().prop_map(Value::from), (-9i64..9).prop_map(Value::from), any::<bool>().prop_map(Value::from),
                (-4i8..4).prop_map(|n| json!(f64::from(n) / 2.0)), Just(Value::Null), Just(json!([1, {"a": "b"}])),
            ],
            0..4,
        ),
    ) {
        let job = Name::new("posts").unwrap();
        let batch = match (&slot, always) {
            (Some(slot), false) => Work::in_slot(job, Slot::new(slot).unwrap(), Fields::new()).unwrap(),
            (_, true) => Work::always(job),
            (None, false) => Work::once(job),
        };
        let mut members: Value = serde_json::from_str(batch.canonical()).unwrap();
        members["item"] = json!(fields);
        let is_empty = fields.is_empty();
        match (batch.for_item(fields), Work::from_value(members)) {
            (Ok(short), Ok(long)) => {
                prop_assert_eq!(short.canonical(), long.canonical());
                prop_assert_eq!(short.item(), long.item());
            }
            (Err(short), Err(long)) => prop_assert_eq!(short, long),
            (short, long) => prop_assert!(is_empty, "{short:?} {long:?}"),
        }
    }

    #[test]
    fn the_order_of_members_makes_no_difference(work in works()) {
        let value: Value = serde_json::from_str(work.canonical()).unwrap();
        prop_assert_eq!(Work::from_json(&turned(&value)).unwrap().key(), work.key());
    }

    #[test]
    fn distinct_works_have_distinct_forms(a in works(), b in works()) {
        let parts = |work: &Work| (work.job().clone(), work.is_always(), work.slot().cloned(), work.params().clone(),
            work.own_key().map(str::to_owned), work.item().clone(), work.step().cloned(), work.nth());
        let same = parts(&a) == parts(&b);
        prop_assert_eq!(a.canonical() == b.canonical(), same);
        prop_assert_eq!(a.to_string() == b.to_string(), same);
        prop_assert_eq!(a.key() == b.key(), same);
    }

    #[test]
    fn the_run_of_a_step_is_the_work_that_it_was_made_of(work in works(), step in "[a-z:/]{1,4}", nth in 1..9_u32) {
        let run = work.run().unwrap_or(work);
        prop_assert_eq!(run.run(), None);
        let Ok(step) = Name::new(&step) else { return Ok(()) };
        let made = run.clone().at_step(step.clone(), nth).unwrap();
        prop_assert_eq!((made.step(), made.nth()), (Some(&step), nth));
        prop_assert_eq!(made.run(), Some(run));
    }

    #[test]
    fn records_of_different_works_have_different_names(
        a in works(), b in works(), of in any::<[[u8; 16]; 2]>(), pieces in any::<[u32; 2]>(),
    ) {
        let of = of.map(Nonce::from_bytes);
        let same_piece = (of[0], pieces[0]) == (of[1], pieces[1]);
        prop_assert_eq!(RecordKey::entry(&a) == RecordKey::entry(&b), a == b);
        let output = |work, which: usize| RecordKey::output(work, &of[which], pieces[which]);
        prop_assert_eq!(output(&a, 0) == output(&b, 1), a == b && same_piece);
        prop_assert_eq!(RecordKey::output(&a, &of[0], 1) == RecordKey::output(&b, &of[0], 1), a == b);
        prop_assert_ne!(output(&a, 0), RecordKey::entry(&b));
        prop_assert_ne!(RecordKey::journal(&a, 1, &of[0]), RecordKey::entry(&b));
        prop_assert_ne!(RecordKey::journal(&a, 1, &of[0]), output(&b, 0));
        for key in [RecordKey::entry(&a), output(&a, 0)] {
            prop_assert!(key.as_str().bytes().all(|b| b.is_ascii_graphic()));
        }
    }

    #[test]
    fn prefixes_select_the_steps_of_one_run(a in works(), b in works(), step in "[a-z]{1,3}", same_run: bool) {
        // half of the time two steps of one run, for two works by chance are hardly ever that
        let run = a.run().unwrap_or_else(|| a.clone());
        let b = if same_run { run.clone().at_step(Name::new(&step).unwrap(), 7).unwrap() } else { b };
        let (entry, prefix) = (RecordKey::entry(&b), RecordKey::steps_of(Some(&run)));
        prop_assert_eq!(entry.as_str().starts_with(&prefix), b.run().as_ref() == Some(&run));
        prop_assert_eq!(entry.as_str().starts_with(&RecordKey::steps_of(None)), b.step().is_some());
        let (is_run, is_item) = (b.step().is_none() && b.item().is_empty(), b.step().is_none() && !b.item().is_empty());
        prop_assert_eq!(entry.as_str().starts_with(&RecordKey::entries_of(None)), is_run);
        prop_assert_eq!(entry.as_str().starts_with(&RecordKey::items_of_job(None)), is_item);
        let of_job = RecordKey::entries_of(Some(run.job()));
        prop_assert_eq!(entry.as_str().starts_with(&of_job), is_run && b.job() == run.job());
        let of_job = RecordKey::items_of_job(Some(run.job()));
        prop_assert_eq!(entry.as_str().starts_with(&of_job), is_item && b.job() == run.job());
        let output = RecordKey::output(&b, &Nonce::from_bytes([1; 16]), 0);
        prop_assert!(output.as_str().starts_with(RecordKey::outputs()));
        prop_assert!(!output.as_str().starts_with(&prefix));
    }

    #[test]
    fn prefixes_select_the_items_of_one_batch(a in works(), b in works(), id in 0..9_u32, same_batch: bool) {
        let whole = a.run().unwrap_or_else(|| a.clone());
        let batch = whole.batch().unwrap_or(whole);
        prop_assert_eq!(batch.batch(), None);
        let fields = semel_core::work::Fields::from([("id".to_owned(), id.into())]);
        let b = if same_batch { batch.clone().for_item(fields).unwrap() } else { b };
        let prefix = RecordKey::items_of(&batch);
        let of_batch = b.step().is_none() && b.batch().as_ref() == Some(&batch);
        prop_assert_eq!(RecordKey::entry(&b).as_str().starts_with(&prefix), of_batch);
    }

    #[test]
    fn pieces_sort_in_their_order(work in works(), a in 0..1_u32 << 24, b in 0..1_u32 << 24) {
        let piece = |n| RecordKey::output(&work, &Nonce::from_bytes([1; 16]), n);
        prop_assert_eq!(piece(a).cmp(&piece(b)), a.cmp(&b));
    }

    #[test]
    fn canonical_text_is_a_fixed_point(value in a_value()) {
        let text = canonical::canonical(&value).unwrap();
        let read = canonical::parse(&text).unwrap();
        prop_assert_eq!(canonical::canonical(&read).unwrap(), text);
        prop_assert_eq!(canonical::canonical(&canonical::parse(&value.to_string()).unwrap()).unwrap(), canonical::canonical(&value).unwrap());
    }

    #[test]
    fn parsing_agrees_with_serde_json(text in "[-0-9eE.+\\[\\]{}\",: a\\\\u]{0,12}") {
        if let Ok(value) = canonical::parse(&text) {
            let theirs: Value = serde_json::from_str(&text).unwrap();
            prop_assert_eq!(canonical::canonical(&value).unwrap(), canonical::canonical(&theirs).unwrap());
        }
    }

    #[test]
    fn escaping_leads_back_and_stays_one_segment(text in any::<String>()) {
        let escaped = escape(&text);
        prop_assert_eq!(unescape(&escaped).unwrap(), text);
        prop_assert!(escaped.bytes().all(|b| b.is_ascii_alphanumeric() || b"._-%".contains(&b)));
        prop_assert!(escaped != "." && escaped != "..");
    }

    #[test]
    fn nothing_panics_on_any_text(text in any::<String>(), json in "[{\\[\\]}:,\"\\\\u0-9dDeE.+\\-@?#*;~%&=a-f\\PC]{0,40}") {
        for text in [&text, &json] {
            let errors = [
                Name::new(text).err().map(|error| error.to_string()),
                Slot::new(text).err().map(|error| error.to_string()),
                Pointer::new(text).err().map(|error| error.to_string()),
                canonical::parse(text).err().map(|error| error.to_string()),
                Work::from_json(text).err().map(|error| error.to_string()),
                Work::parse_readable(text).err().map(|error| error.to_string()),
                parse_param(text).err().map(|error| error.to_string()),
                text.parse::<Key>().err().map(|error| error.to_string()),
                unescape(text).err().map(|error| error.to_string()),
            ];
            for error in errors.into_iter().flatten() {
                prop_assert!(!error.contains(char::is_control), "{}", error);
            }
        }
    }
}
