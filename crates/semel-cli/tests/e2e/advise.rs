//! `semel advise`: from runs that really ran.

use serde_json::Value;

use crate::support::Home;

fn item<'a>(advice: &'a Value, key: &str) -> &'a Value {
    advice["advice"].as_array().unwrap().iter().find(|item| item["key"] == key).unwrap()
}

#[test]
fn a_job_that_never_ran_is_wrong_input() {
    let home = Home::new();
    home.run("--job other --once", "true").exits(0);
    home.ask("advise nobody").exits(65).saying("nothing of job nobody is on record");
    home.ask("advise no//name").exits(78);
}

#[test]
fn too_few_runs_are_said_to_be_too_few() {
    let home = Home::new();
    for n in 0..4 {
        home.run(&format!("--job publish --key {n}"), "true").exits(0);
    }
    let said = home.ask("advise publish").exits(0).silent();
    let words = "too little to advise from: 4 successful runs are on record, and at least 5 are needed";
    assert!(said.text().ends_with(words), "{}", said.text());
    let advice = home.ask("advise publish --json").exits(0).json();
    assert_eq!(
        (&advice["kind"], &advice["v"], &advice["enough"]),
        (&"advice".into(), &1.into(), &false.into())
    );
}

#[test]
fn enough_runs_make_a_timeout_and_the_lines_for_it() {
    let home = Home::new();
    for n in 0..5 {
        home.run(&format!("--job site:blog --key {n}"), "true").exits(0);
    }
    home.run("--job site:blog --key no", "exit 3").exits(3);
    let advice = home.ask("advise site:blog --json").exits(0).json();
    assert_eq!((&advice["runs"], &advice["failed"], &advice["attempts"]), (&5.into(), &1.into(), &6.into()));
    assert_eq!(item(&advice, "timeout")["ms"], 60_000);
    assert_eq!(
        (&item(&advice, "ttl")["ms"], &item(&advice, "ttl")["changes"]),
        (&60_000.into(), &false.into())
    );
    assert_eq!(advice["toml"], "[jobs.\"site:blog\"]\ntimeout = \"1m\"");
    let text = home.ask("advise site:blog").exits(0).silent().text();
    assert!(text.contains("timeout 1m (is not set): the slowest of 5 successful runs took "), "{text}");
    assert!(text.contains("\n  timeout = \"1m\"\nor as flags: --timeout 1m"), "{text}");
}

#[test]
fn the_file_goes_before_what_the_last_run_was_told() {
    let home = Home::new();
    for n in 0..5 {
        home.run(&format!("--job publish --timeout 1m --ttl 2m --key {n}"), "true").exits(0);
    }
    let told = home.ask("advise publish --json").exits(0).json();
    assert_eq!(told["compared_with"], "the last run");
    assert_eq!(
        (&item(&told, "timeout")["changes"], &item(&told, "ttl")["set_ms"]),
        (&false.into(), &120_000.into())
    );
    assert_eq!(told["flags"], "--ttl 1m");
    home.write("semel.toml", "[jobs.publish]\ncommand = [\"true\"]\nonce = true\ntimeout = \"1m\"\n");
    let said = home.ask("advise publish").exits(0).text();
    assert!(said.ends_with("nothing should change; compared with semel.toml"), "{said}");
}

#[test]
fn lateness_is_counted_from_the_slots_own_tick() {
    let home = Home::new();
    for date in ["2026-01-01", "2026-01-02", "2026-01-03", "2026-01-04", "2026-01-05"] {
        home.run(&format!("--job publish --slot {date}"), "true").exits(0);
    }
    let advice = home.ask("advise publish --json").exits(0).json();
    assert!(advice["late"].is_null(), "no schedule is known: {advice}");
    home.write("semel.toml", "[jobs.publish]\ncommand = [\"true\"]\nevery = \"day\"\ntz = \"UTC\"\n");
    let advice = home.ask("advise publish --json").exits(0).json();
    assert_eq!(advice["late"]["count"], 5);
    let now_ms =
        std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_millis() as u64;
    let middle_ms = advice["late"]["p50_ms"].as_u64().unwrap();
    let tick_ms = 1_767_398_400_000; // 2026-01-03T00:00:00Z
    assert!(middle_ms.abs_diff(now_ms - tick_ms) < 600_000, "{advice}");
    assert!(item(&advice, "grace")["ms"].as_u64().unwrap() > middle_ms);
}

#[test]
fn a_run_that_was_stopped_near_the_limit_asks_for_a_longer_one() {
    let home = Home::new();
    // each on a resource of its own, at the same time
    let all = (0..5).map(|n| home.start(&format!("--job publish --resource r{n} --key {n}"), "sleep 2"));
    for running in all.collect::<Vec<_>>() {
        running.end().exits(0);
    }
    home.run("--job publish --timeout 1s --key late", "sleep 60").exits(124);
    let advice = home.ask("advise publish --json").exits(0).json();
    let timeout = item(&advice, "timeout");
    assert_eq!((&advice["timed_out"], &timeout["set_ms"]), (&1.into(), &1_000.into()));
    assert!(timeout["ms"].as_u64().unwrap() >= 2_000, "{timeout}");
    assert!(timeout["why"].as_str().unwrap().contains("1 was stopped after"), "{timeout}");
}
