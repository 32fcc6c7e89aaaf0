//! Commands that look, judge and tidy: in words and in JSON.

use serde_json::Value;

use crate::support::{Home, Said};

/// One JSON object per line of the answer, each with its version.
fn objects(said: &Said) -> Vec<Value> {
    let text = said.text();
    let objects: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(objects.iter().all(|object| object["v"] == 1 && object["kind"].is_string()), "{text}");
    objects
}

/// One work that is done and was asked for three times more, one that failed, one in quarantine.
fn lived_in() -> Home {
    let home = Home::new();
    for _ in 0..4 {
        home.run("--job publish --slot 2026-06-19", "echo post >> effects").exits(0);
    }
    assert_eq!(home.lines("effects").len(), 1);
    home.run("--job mail --with to=ann", "exit 3").exits(3);
    home.run("--job poison --once --max-failures 1", "exit 4").exits(4).saying("semel resolve poison");
    home
}

#[test]
fn status_is_short_when_all_is_well_and_names_what_needs_a_person() {
    let home = Home::new();
    home.run("--job a --once", "true").exits(0);
    assert!(home.ask("status").exits(0).text().contains("nothing needs you"));
    let home = lived_in();
    let running = home.start("--job slow --once", "touch started; exec sleep 300");
    crate::support::until("it runs", crate::support::SOON, || home.path("started").exists());
    let text = home.ask("status").exits(0).text();
    assert!(text.contains("poison") && text.contains("semel resolve poison"), "{text}");
    assert!(text.contains("slow") && text.contains("left"), "{text}");
    assert_eq!(objects(&home.ask("status --json").exits(0)).len(), 1);
    running.kill_9();
    assert!(home.ask("status").exits(0).text().contains("lost"), "its holder is gone");
}

#[test]
fn ls_shows_what_is_asked_for() {
    let home = lived_in();
    let works = |args: &str| -> Vec<String> {
        let listed = objects(&home.ask(&format!("ls --json {args}")).exits(0));
        listed.iter().map(|entry| entry["work"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(works("").len(), 3);
    assert_eq!(works("--job publish"), ["publish@2026-06-19"]);
    assert_eq!(works("--state failed"), ["mail?to=ann"]);
    assert_eq!(works("--needs-me"), ["poison"]);
    assert_eq!(works("--limit 1").len(), 1);
    let table = home.ask("ls").exits(0).text();
    assert!(
        table.lines().next().unwrap().contains("WORK") && table.contains("publish@2026-06-19"),
        "{table}"
    );
    assert!(!table.contains('\u{1b}'), "no colour into a pipe");
    home.ask("ls --state nonsense").exits(78);
}

#[test]
fn why_tells_the_story_and_what_the_next_run_would_do() {
    let home = lived_in();
    let why = home.ask("why publish@2026-06-19").exits(0).text();
    for part in ["attempt 1", "3 duplicates suppressed, because it was done", "The next run would: skip it"] {
        assert!(why.contains(part), "{part:?} is not in: {why}");
    }
    assert!(home.ask("why mail?to=ann").exits(0).text().contains("failed with exit code 3"));
    let poison = home.ask("why poison").exits(0).text();
    assert!(poison.contains("quarantined") && poison.contains("The next run would"), "{poison}");
    home.run("--job mail --with to=ann", "exit 5").exits(5);
    let drift = home.ask("why mail?to=ann").exits(0).text();
    assert!(drift.contains("its command or arguments had changed"), "{drift}");
}

#[test]
fn a_key_is_found_by_its_readable_form_its_digits_and_their_beginning() {
    let home = lived_in();
    let shown = home.ask("show publish@2026-06-19 --json").exits(0).json();
    let key = shown["key"].as_str().unwrap().to_owned();
    for name in [key.as_str(), &key[..8], &key[..20]] {
        assert_eq!(home.ask(&format!("show {name} --json")).exits(0).json()["key"], key.as_str());
    }
    assert!(home.ask("show publish@2026-06-19").exits(0).text().contains(&key));
    home.ask("show publish@2099-01-01").exits(65);
    home.ask("why 00000000").exits(65);
    home.ask("why bad//name").exits(65);
}

#[test]
fn history_is_newest_first() {
    let home = Home::new();
    for slot in ["2026-06-17", "2026-06-18", "2026-06-19"] {
        home.run(&format!("--job publish --slot {slot}"), "true").exits(0);
    }
    let listed = objects(&home.ask("history publish --json").exits(0));
    let works: Vec<&str> = listed.iter().map(|entry| entry["work"].as_str().unwrap()).collect();
    assert_eq!(works, ["publish@2026-06-19", "publish@2026-06-18", "publish@2026-06-17"]);
    assert!(home.ask("history publish").exits(0).text().contains("publish@2026-06-19"));
}

#[test]
fn a_verdict_decides_what_the_next_run_does() {
    let home = lived_in();
    home.run("--job poison --once", "echo x >> ran").exits(79);
    home.launch(&mut home.semel(["resolve", "poison", "--retry", "--because", "the key was wrong"]))
        .end()
        .exits(0);
    home.run("--job poison --once", "echo x >> ran").exits(0);
    assert_eq!(home.lines("ran").len(), 1);
    let undo = ["resolve", "poison", "--not-done", "--because", "it went to the wrong list"];
    home.launch(&mut home.semel(undo)).end().exits(0);
    home.run("--job poison --once", "echo x >> ran").exits(0);
    assert_eq!(home.lines("ran").len(), 2);
    let done = ["resolve", "mail?to=ann", "--done", "--because", "sent by hand", "--result", "{\"id\":7}"];
    home.launch(&mut home.semel(done)).end().exits(0);
    home.run("--job mail --with to=ann", "echo x >> ran").exits(0);
    assert_eq!(home.lines("ran").len(), 2);
    let entry = home.entry("mail?to=ann");
    assert_eq!(
        (&entry["result"]["id"], &entry["verdicts"][0]["because"]),
        (&7.into(), &"sent by hand".into())
    );
    home.ask("resolve poison --done").exits(78);
    home.ask("resolve poison --done --retry --because x").exits(78);
    home.run("--job every --always", "true").exits(0);
    home.ask("resolve every* --done --because x").exits(65).saying("never done");
}

#[test]
fn a_running_work_cannot_be_judged() {
    let home = Home::new();
    let running = home.start("--job slow --once", "touch started; exec sleep 300");
    crate::support::until("it runs", crate::support::SOON, || home.path("started").exists());
    home.ask("resolve slow --done --because x").exits(75).saying("running");
    running.kill_9();
    home.ask("resolve slow --done --because x").exits(0);
    home.run("--job slow --once", "echo x >> ran").exits(0);
    assert_eq!(home.lines("ran"), [""; 0]);
}

#[test]
fn gc_removes_what_is_past_its_time_and_nothing_else() {
    let home = Home::new();
    home.run("--job kept --once", "true").exits(0);
    home.run("--job gone --once --remember 1ms --keep 1ms", "echo x >> gone").exits(0);
    home.run("--job gone --once", "echo x >> gone").exits(0);
    let stale = home.state_dir().join("run/00000000000000000000000000000000.json");
    std::fs::write(&stale, "1").unwrap();
    let old = std::time::SystemTime::now() - std::time::Duration::from_secs(30 * 86_400);
    std::fs::File::options().write(true).open(&stale).unwrap().set_modified(old).unwrap();
    let dry = home.ask("gc --dry-run").exits(0).text();
    assert!(home.ask("ls --json").exits(0).text().contains("gone"), "{dry}");
    let backup = home.path("backup.db");
    home.launch(&mut home.semel(["gc", "--backup", backup.to_str().unwrap()])).end().exits(0);
    assert_eq!(crate::support::mode(&backup), 0o600);
    assert!(!stale.exists());
    let left = home.ask("ls --json").exits(0).text();
    assert!(left.contains("kept") && !left.contains("gone"), "{left}");
    home.run("--job gone --once", "echo $SEMEL_TOKEN >> tokens").exits(0);
    assert_eq!(home.lines("tokens"), ["2"], "the mark is gone, the counter is not");
    home.assert_whole();
}

/// A run that is done again because its mark was forgotten says so, once; `why` keeps saying it.
#[test]
fn what_was_forgotten_is_said_when_it_is_done_again() {
    let home = Home::new();
    home.run("--job j --once --remember 1ms", "echo x >> effects").exits(0);
    home.run("-v --job j --once", "echo x >> effects").exits(0).saying("skipped");
    home.ask("gc").exits(0);
    assert_eq!(home.ask("ls --json").exits(0).text(), "", "what is left of it is no entry");
    let why = home.ask("why j").exits(0).text();
    assert!(why.contains("forgotten by gc, as --remember 1ms asks"), "{why}");
    assert!(why.contains("The next run would: run it (attempt 2)"), "{why}");
    home.run("-v --job j --once", "echo x >> effects; exit 1")
        .exits(1)
        .saying("j is done again: it was done at");
    let said = home.run("-v --job j --once", "echo x >> effects").exits(0);
    assert!(!said.err.contains("done again"), "once is enough: {}", said.err);
    assert_eq!(home.lines("effects").len(), 3);
    let why = home.ask("why j").exits(0).text();
    assert!(why.contains("j is done") && why.contains("forgotten by gc"), "{why}");
    // without somebody who watches, success is silent
    home.run("--job k --once --remember 1ms", "true").exits(0);
    home.ask("gc").exits(0);
    home.run("--job k --once", "true").exits(0).silent();
    home.assert_whole();
}

#[test]
fn doctor_proves_the_store_and_names_what_is_wrong() {
    use std::os::unix::fs::PermissionsExt;
    let home = lived_in();
    let well = home.ask("doctor").exits(0).text();
    assert!(well.contains("none was lost") && well.contains("integrity"), "{well}");
    assert!(!objects(&home.ask("doctor --json").exits(0)).is_empty());
    std::fs::set_permissions(home.database(), std::fs::Permissions::from_mode(0o644)).unwrap();
    let ill = home.ask("doctor").exits(1).text();
    assert!(ill.contains("chmod 600"), "{ill}");
    home.assert_whole();
}

#[test]
fn the_demo_shows_the_duplicates_and_that_semel_has_none() {
    let home = Home::new();
    for seed in ["1", "7"] {
        let said = home.launch(&mut home.semel(["demo", "--json", "--seed", seed])).end().exits(0);
        let scenes = objects(&said);
        assert_eq!(scenes.len(), 3);
        for scene in scenes {
            assert_eq!(scene["semel"], scene["right"], "{scene}");
            assert_ne!(scene["plain"], scene["right"], "the control must show it: {scene}");
        }
    }
    assert!(home.ask("demo").exits(0).text().contains("with Semel"));
}

#[test]
fn completions_and_the_manual_are_printed() {
    let home = Home::new();
    for shell in ["bash", "zsh", "fish"] {
        assert!(home.ask(&format!("completions {shell}")).exits(0).text().contains("semel"));
    }
    let manual = home.ask("man").exits(0).text();
    assert!(manual.starts_with(".") && manual.contains(r"hold\-at\-least"), "roff, with the options of run");
    home.ask("completions nonsense").exits(78);
}

#[test]
fn looking_makes_no_ledger() {
    let home = Home::new();
    home.ask("status").exits(0);
    home.ask("ls").exits(0);
    assert!(!home.database().exists());
}
