//! Whatever stands in a file: read or refused, each fault with its place, and never a panic.

use std::path::PathBuf;

use proptest::prelude::*;

use super::Config;
use super::keys::KEYS;
use crate::args::RunArgs;
use crate::plan;

fn key() -> impl Strategy<Value = String> {
    let known: Vec<String> = KEYS.iter().map(|key| key.name.to_owned()).collect();
    prop_oneof![5 => proptest::sample::select(known), 1 => "[a-z-]{1,8}"]
}

fn value() -> impl Strategy<Value = String> {
    let text = prop_oneof![
        proptest::sample::select(vec![
            "day",
            "7m",
            "0 2 * * *",
            "90s",
            "wait=5m",
            "x=a,b",
            "{slot}",
            "/a",
            "probe"
        ])
        .prop_map(str::to_owned),
        any::<String>(),
    ];
    prop_oneof![
        3 => text.clone().prop_map(|text| toml_text(&text)),
        1 => proptest::collection::vec(text.clone(), 0..3)
            .prop_map(|list| format!("[{}]", list.iter().map(|text| toml_text(text)).collect::<Vec<_>>().join(", "))),
        1 => ("[a-z=\" ]{1,4}", text).prop_map(|(name, text)| format!("{{ {} = {} }}", toml_text(&name), toml_text(&text))),
        1 => any::<i64>().prop_map(|number| number.to_string()),
        1 => proptest::sample::select(vec!["true", "false", "1979-05-27", "1.5", "inf", "{}", "[]", "[[1]]", "0x1f"])
            .prop_map(str::to_owned),
    ]
}

/// A text as TOML writes it, whatever is in it.
fn toml_text(text: &str) -> String {
    let escape = |c: char| match c {
        '"' | '\\' => format!("\\{c}"),
        c if c.is_control() => format!("\\u{:04x}", u32::from(c)),
        c => c.to_string(),
    };
    format!("\"{}\"", text.chars().map(escape).collect::<String>())
}

fn files() -> impl Strategy<Value = String> {
    let heads = vec!["[jobs.a]\ncommand = \"x\"\n", "[jobs.b]\n", "[defaults]\n", "", "[x]\n"];
    let head = proptest::sample::select(heads);
    let line = (key(), value()).prop_map(|(key, value)| format!("{key} = {value}\n"));
    let table = (head, proptest::collection::vec(line, 0..5));
    let table = table.prop_map(|(head, lines)| format!("{head}{}", lines.concat()));
    let whole = proptest::collection::vec(table, 1..3).prop_map(|tables| tables.concat());
    prop_oneof![4 => whole, 1 => any::<String>(), 1 => "[\\[\\]{}=\"'a-z0-9.# \n,-]{0,80}"]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 1_500, ..ProptestConfig::default() })]

    #[test]
    fn any_file_is_read_or_refused(text in files()) {
        let mut config = Config::read(PathBuf::from("/etc/x/semel.toml"), &text);
        config.check_zones(&text, |_| Ok(()));
        let lines = text.split('\n').count();
        for fault in &config.faults {
            prop_assert!((1..=lines).contains(&fault.line) && fault.column >= 1, "{fault:?} of {lines}");
            prop_assert!(!fault.text.is_empty());
            let _ = (fault.line(&config.path), fault.excerpt(&text));
        }
        // what is well here is well for a run
        for job in config.jobs.iter().filter(|job| !config.is_faulty(job)) {
            let filled = config.filled(job, &RunArgs::default());
            let checked = plan::check(&filled);
            prop_assert!(checked.is_ok(), "{:?} {checked:?}", job.name);
        }
    }
}
