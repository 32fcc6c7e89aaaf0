//! `semel chaos`: somebody's own command under crashes, its effects counted by their own count.

use serde_json::{Value, json};

use crate::support::{Home, SOON, Said, until};

/// One effect at once, and then some time to be killed in.
const APPEND: &str = "echo $SEMEL_KEY >> out; sleep 0.5";
const COUNT: &str = "wc -l < out";

/// Crashes in the middle come well after its beginning and well before its end.
const SEED: &str = "--rounds 1 --seed 270";
const COUNTED: [&str; 2] = ["--count", COUNT];

/// Where nobody can know whether the effect came before the crash.
const DOUBTFUL: [&str; 5] = ["all-killed", "semel-killed", "command-killed", "after-command", "stall"];

struct Lab(Home);

impl Lab {
    fn new() -> Lab {
        Lab(Home::new())
    }

    /// `semel chaos FLAGS MORE -- sh -c SCRIPT`, the flags separated by spaces.
    fn command(&self, flags: &str, more: &[&str], script: &str) -> std::process::Command {
        let mut command = self.0.semel(["chaos"]);
        command.args(flags.split_whitespace()).args(more).args(["--", "sh", "-c", script]);
        command
    }

    #[track_caller]
    fn ask(&self, flags: &str, more: &[&str], script: &str) -> Said {
        self.0.launch(&mut self.command(flags, more, script)).end()
    }
}

/// The objects of an answer, by their boundary; the last one by "".
fn objects(said: &Said) -> impl Fn(&str) -> Value + use<> {
    let all: Vec<Value> = said.text().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    move |at| {
        let is = |object: &&Value| object["at"] == at || at.is_empty() && object["kind"] == "chaos";
        all.iter().find(is).unwrap_or_else(|| panic!("{at} is not in {all:?}")).clone()
    }
}

#[test]
fn an_append_doubles_where_it_is_killed_in_the_middle_and_nowhere_else() {
    let lab = Lab::new();
    let said = lab.ask(&format!("{SEED} --json"), &COUNTED, APPEND).exits(1).saying("\"kind\":\"begin\"");
    let at = objects(&said);
    for boundary in DOUBTFUL {
        assert_eq!(at(boundary)["semel"]["doubled"], 1, "{boundary}: {}", said.text());
    }
    for boundary in ["before-claim", "after-claim", "after-outcome", "double-fire"] {
        assert_eq!(at(boundary)["semel"]["once"], 1, "{boundary}: {}", said.text());
    }
    for boundary in DOUBTFUL.iter().chain(&["after-outcome", "double-fire"]) {
        assert_eq!(at(boundary)["plain"]["doubled"], 1, "{boundary}: {}", said.text());
    }
    assert_eq!(at("before-claim")["plain"], Value::Null);
    let all = at("");
    assert_eq!(all["doubled"], json!(DOUBTFUL));
    assert_eq!((&all["lost"], &all["unit"], &all["seed"]), (&json!([]), &1.into(), &270.into()));
    assert_eq!((&all["missed"], &all["never_hit"]), (&json!([]), &json!([])));
    assert_eq!(all["starts"], lab.0.lines("out").len(), "every start had its effect");
}

#[test]
fn with_a_probe_nothing_doubles_and_nothing_is_lost() {
    let lab = Lab::new();
    let probe = ["--count", COUNT, "--probe", "grep -q \"$SEMEL_KEY\" out"];
    let said = lab.ask(&format!("{SEED} --no-plain"), &probe, APPEND).exits(0);
    let said = said.saying("really run, with all its effects: up to 15 times");
    assert!(said.text().contains("Nothing doubled and nothing was lost in 9 crashes"), "{}", said.text());
}

#[test]
fn held_for_a_person_nothing_doubles_and_all_of_it_is_told() {
    let lab = Lab::new();
    let flags = format!("{SEED} --on-lost hold --at all-killed --at after-command");
    let text = lab.ask(&flags, &COUNTED, APPEND).exits(0).text();
    assert_eq!((text.matches("1 in doubt").count(), text.matches("1 doubled").count()), (2, 2), "{text}");
}

/// The idempotency key: what is done under it a second time changes nothing.
#[test]
fn a_command_that_hands_its_key_on_is_safe_without_a_probe() {
    let lab = Lab::new();
    let script = "mkdir -p done; : > done/$SEMEL_KEY; sleep 0.15";
    let flags = format!("{SEED} --at semel-killed --at command-killed");
    let text = lab.ask(&flags, &["--count", "ls done | wc -l"], script).exits(0).text();
    assert_eq!(text.matches("1 doubled").count(), 2, "without Semel nobody has the same key: {text}");
}

#[test]
fn a_probe_that_says_yes_too_early_loses_the_effect() {
    let lab = Lab::new();
    let flags = format!("{SEED} --probe true --at after-claim --at all-killed --no-plain --json");
    let said = lab.ask(&flags, &COUNTED, "sleep 1; echo x >> out").exits(1);
    assert_eq!(objects(&said)("")["lost"], json!(["after-claim", "all-killed"]), "{}", said.text());
}

#[test]
fn without_a_count_starts_are_counted_and_that_is_said() {
    let lab = Lab::new();
    let text = lab.ask("--at before-claim --at double-fire --no-plain", &[], "sleep 0.3").exits(0).text();
    assert!(text.contains("Only starts of the command were counted"), "{text}");
    let text = lab.ask("--at after-command --rounds 1 --no-plain", &[], "exit 0").exits(1).text();
    assert!(text.contains("1 started twice"), "{text}");
}

#[test]
fn the_same_seed_kills_at_the_same_moments() {
    let lab = Lab::new();
    let kills = || {
        let flags = "--at all-killed --rounds 2 --no-plain --json --seed 122";
        // the effect is in the middle: whether a kill comes before or after it is the seed's choice
        let said = lab.ask(flags, &COUNTED, "sleep 0.2; echo x >> out; sleep 0.2");
        objects(&said)("all-killed")["semel"].clone()
    };
    let first = kills();
    assert_eq!((&first["once"], &first["doubled"]), (&1.into(), &1.into()), "{first}");
    assert_eq!(first, kills());
}

#[test]
fn what_cannot_be_asked_is_refused_before_anything_is_run() {
    let lab = Lab::new();
    for (flags, why) in [
        ("--at lunch", "possible values"),
        ("--rounds 0", "0 is not in"),
        ("--store sqlite:x.db", "scratch store"),
        ("--if-busy skip", "--if-busy"),
        ("--ttl soon", "--ttl"),
        ("--on-lost probe", "probe"),
        ("--count pwd", "which is no number"),
    ] {
        lab.ask(flags, &[], "echo x >> ran").exits(78).saying(why);
        assert_eq!(lab.0.lines("ran").len(), 0, "{flags}");
    }
    lab.0.ask("chaos -- no-such-program").exits(127);
    lab.0.ask("chaos").exits(78).saying("no command");
}

#[test]
fn a_command_or_a_count_that_fails_undisturbed_tells_nothing() {
    let lab = Lab::new();
    lab.ask("", &["--count", "echo 1"], "true").exits(78).saying("by 0");
    lab.ask("", &COUNTED, "echo oh no >&2; exit 3").exits(78).saying("ends with 3").saying("oh no");
    lab.ask("", &COUNTED, "true").exits(78).saying("--count wc -l < out: it ended with");
}

/// A command that is at home in a run alone.
#[test]
fn a_command_that_needs_semel_has_no_comparison() {
    let lab = Lab::new();
    let script = "\"$SEMEL\" step a -- sh -c 'echo x >> out'";
    let said = lab.ask(&format!("{SEED} --at after-outcome"), &COUNTED, script);
    said.exits(0).saying("no comparison without Semel");
}

/// Each effect in a step of its own: lost ones are asked about, and none comes twice.
#[test]
fn a_command_with_steps_is_killed_at_their_boundaries_too() {
    let lab = Lab::new();
    let script = "set -e; for n in a b; do \"$SEMEL\" step $n -- sh -c 'echo x >> out'; done";
    let said = lab.ask("--rounds 1 --seed 1 --no-plain --json", &COUNTED, script);
    let at = objects(&said);
    for (boundary, verdict) in [
        ("before-step", "once"),
        ("after-step-claim", "in_doubt"),
        ("after-step", "in_doubt"),
        ("after-step-outcome", "once"),
    ] {
        assert_eq!(at(boundary)["semel"][verdict], 1, "{boundary}: {}", said.text());
    }
    assert_eq!(at("")["unit"], 2, "{}", said.text());
    // what is no step comes again with the run
    let script = "echo x >> out; \"$SEMEL\" step a -- true";
    let said = lab.ask("--rounds 1 --at before-step --no-plain", &COUNTED, script).exits(1);
    assert!(said.text().contains("make a step of every effect"), "{}", said.text());
    let ran = lab.0.lines("out").len();
    lab.ask("--at after-step", &COUNTED, "echo x >> out").exits(78).saying("uses no step");
    assert_eq!(lab.0.lines("out").len(), ran + 2, "undisturbed, with Semel and without");
}

/// Semel writes to its ledger most of the time here. Stopped inside a write, it would keep the ledger's lock from
/// whoever is to take over. Done twice, this changes nothing: on a slow machine it may be stopped after its effect.
#[test]
fn a_stall_in_the_middle_of_a_write_keeps_nobody_from_taking_over() {
    let lab = Lab::new();
    let script = "for n in $(seq 10); do \"$SEMEL\" step s$n --on-lost retry -- true || exit; done
        mkdir -p done; : > done/$SEMEL_KEY";
    let flags = "--rounds 4 --seed 5 --at stall --no-plain --json";
    let said = lab.ask(flags, &["--count", "ls done | wc -l"], script).exits(0);
    let at = objects(&said)("stall")["semel"].clone();
    assert_eq!((&at["once"], &at["missed"]), (&4.into(), &0.into()), "{at}");
}

/// One that has always ended before the crash shows nothing, and that is not clean.
#[test]
fn a_boundary_that_is_never_hit_is_told() {
    let lab = Lab::new();
    // it uses a step when nobody disturbs it, and never again
    let script = "[ -e again ] || \"$SEMEL\" step a -- touch again; echo x >> out";
    let flags = "--rounds 2 --at before-step --at before-claim --no-plain";
    let said = lab.ask(&format!("{flags} --json"), &COUNTED, script).exits(78);
    let all = objects(&said)("");
    assert_eq!((&all["clean"], &all["never_hit"]), (&false.into(), &json!(["before-step"])), "{all}");
    assert_eq!(all["missed"], json!(["before-step"]), "{all}");
    std::fs::remove_file(lab.0.path("again")).unwrap();
    let text = lab.ask(flags, &COUNTED, script).exits(78).text();
    assert!(text.contains("Nothing is known of before-step"), "{text}");
    assert!(!text.contains("Nothing doubled"), "{text}");
}

/// A crash that comes too late is tried earlier.
#[test]
fn a_round_that_was_missed_is_played_again_with_an_earlier_crash() {
    let lab = Lab::new();
    // a second undisturbed, a fifth of that in each round: most moments come too late. Done twice it changes nothing
    let script =
        "if [ -e again ]; then sleep 0.2; else sleep 1; fi; mkdir -p done; : > done/$SEMEL_KEY; : > again";
    let flags = "--rounds 3 --seed 4 --at all-killed --no-plain --json";
    let said = lab.ask(flags, &["--count", "ls done | wc -l"], script);
    let at = objects(&said.exits(0))("all-killed")["semel"].clone();
    assert_eq!((&at["once"], &at["missed"]), (&3.into(), &0.into()), "{at}");
}

#[test]
fn ctrl_c_ends_all_that_was_started() {
    let lab = Lab::new();
    let running = lab.0.launch(&mut lab.command("", &[], "echo x >> out; exec sleep 300"));
    lab.0.wait_lines("out", 1);
    running.signal(libc::SIGINT);
    running.end().exits(128 + libc::SIGINT).saying("interrupted");
    until("nothing is left", SOON, || lab.0.alive().is_empty());
}
