//! What is decided once: the same for every attempt, on every machine, whatever has happened since.

use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::support::{Home, SOON, Said, mode, until};

/// A day that is published, with a slug as its result.
fn publish(home: &Home, slot: &str, slug: &str) {
    let script = format!("echo '{{\"slug\":\"{slug}\"}}' > $SEMEL_RESULT");
    home.run(&format!("--job publish --slot {slot}"), &script).exits(0);
}

/// `semel run FLAGS --fill -- ARGUMENTS`, the flags as they are.
fn filling(home: &Home, flags: &[&str], arguments: &[&str]) -> Command {
    let mut command = home.semel(["run"]);
    command.args(flags).arg("--fill").arg("--").args(arguments);
    command
}

fn plans(home: &Home) -> Vec<Value> {
    home.lines("plans").iter().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn a_retry_gets_the_same_plan_though_history_options_and_machine_are_others() {
    let home = Home::new();
    for n in 1..=3 {
        publish(&home, &format!("2026-06-0{n}"), &format!("slug-{n}"));
    }
    home.executable("draw", "echo drawn >> draws; echo \"{\\\"drawn\\\": $(wc -l < draws)}\"");
    let decide = |topics: &str| {
        format!(
            "--job publish --slot 2026-06-19 --choose topic={topics} --recent slugs=2:slug --plan-cmd ./draw"
        )
    };
    let tell = "cat $SEMEL_PLAN >> plans; $SEMEL plan --get topic >> topics; echo $SEMEL_SEED >> seeds";
    let first = home.start(&decide("a,b,c"), &format!("{tell}; echo x >> begun; exec sleep 300"));
    home.wait_lines("begun", 1);
    first.kill_9();
    until("nothing of it lives", SOON, || home.alive().is_empty());
    let pinned = plans(&home).remove(0);
    assert_eq!((&pinned["slugs"], &pinned["drawn"]), (&json!(["slug-3", "slug-2"]), &json!(1)));
    // the history moves on, and nobody offers the topic any more
    publish(&home, "2026-06-04", "slug-4");
    let topic = pinned["topic"].as_str().unwrap();
    let others: Vec<&str> = ["a", "b", "c", "d"].into_iter().filter(|other| *other != topic).collect();
    let mut elsewhere = home.work(&decide(&others.join(",")), &format!("{tell}; exit 1"));
    home.launch(elsewhere.env("XDG_STATE_HOME", home.path("another-machine"))).end().exits(1);
    home.ask("resolve publish@2026-06-19 --retry --because again").exits(0);
    home.run("--job publish --slot 2026-06-19", tell).exits(0);
    assert_eq!(plans(&home), [pinned.clone(), pinned.clone(), pinned.clone()]);
    assert_eq!(home.lines("topics"), [topic; 3]);
    assert_eq!(
        home.lines("seeds"),
        [pinned["seed"].to_string(), pinned["seed"].to_string(), pinned["seed"].to_string()]
    );
    assert_eq!(home.lines("draws").len(), 1, "the command was asked once");
    // a plan made now would be another
    let now = home.ask("plan --job publish --slot 2026-06-20 --recent slugs=2:slug --json").exits(0).json();
    assert_eq!(now["plan"]["slugs"], json!(["slug-4", "slug-3"]));
}

/// The naive way: each attempt picks by what it finds.
#[test]
fn control_a_script_that_picks_from_history_picks_another_on_its_retry() {
    let home = Home::new();
    let pick = "set -- a b c; shift $(($(cat done 2>/dev/null | wc -l) % 3)); echo $1 >> topics";
    home.run("--job publish --slot 1", &format!("{pick}; exit 1")).exits(1);
    home.run("--job publish --slot 0", "echo slug >> done").exits(0);
    home.run("--job publish --slot 1", pick).exits(0);
    assert_eq!(home.lines("topics"), ["a", "b"]);
}

#[test]
fn a_command_asks_for_one_name_or_for_all() {
    let home = Home::new();
    home.write("plan.json", r#"{"text": "it's \u001b[1m \"hot\" $(x)", "list": ["a", 1], "none": null}"#);
    let script = "for name in text list none topic; do $SEMEL plan --get $name > $name; done
        $SEMEL plan > whole; cmp whole $SEMEL_PLAN && echo same > same
        $SEMEL plan --get text --json > json
        $SEMEL plan --get topci 2> missing; echo $? >> missing
        $SEMEL plan --choose x=a 2> late; echo $? >> late
        stat -c %a $SEMEL_PLAN > mode; echo $SEMEL_PLAN > path
        $SEMEL step inside -- sh -c '$SEMEL plan --get topic > in-step'";
    home.run("--job a --once --plan plan.json --choose topic=a,b", script).exits(0).silent();
    let read = |name: &str| std::fs::read_to_string(home.path(name)).unwrap();
    assert_eq!(read("text"), "it's \u{1b}[1m \"hot\" $(x)\n", "byte for byte");
    assert_eq!((read("list").as_str(), read("none").as_str()), ("[\"a\",1]\n", "null\n"));
    assert!(["a\n", "b\n"].contains(&read("topic").as_str()));
    assert_eq!(read("in-step"), read("topic"));
    assert_eq!((read("same").as_str(), read("mode").as_str()), ("same\n", "600\n"));
    let value: Value = serde_json::from_str(&read("json")).unwrap();
    assert_eq!(value["value"], "it's \u{1b}[1m \"hot\" $(x)");
    let missing = read("missing");
    assert!(
        missing.contains("no \"topci\"") && missing.contains("topic") && missing.ends_with("65\n"),
        "{missing}"
    );
    assert!(read("late").ends_with("78\n"), "{}", read("late"));
    assert!(!std::path::Path::new(read("path").trim()).exists(), "it is removed with the run");
    home.run("--job b --once", "env > env; $SEMEL plan --get topic").exits(65).saying("no plan");
    assert!(!read("env").contains("SEMEL_PLAN"), "{}", read("env"));
    home.ask("plan --get topic").exits(78).saying("not inside a run");
}

#[test]
fn what_a_try_does_to_its_file_is_not_the_plan_of_the_next() {
    let home = Home::new();
    let script = "cat $SEMEL_PLAN >> plans; rm $SEMEL_PLAN; mkdir $SEMEL_PLAN; [ $SEMEL_ATTEMPT = 2 ]";
    home.run("--job a --once --choose topic=a,b --retries 1 --backoff 1ms", script).exits(0);
    assert_eq!(plans(&home).len(), 2);
    assert_eq!(plans(&home)[0], plans(&home)[1]);
    assert_eq!(std::fs::read_dir(home.state_dir().join("run")).unwrap().count(), 0);
}

#[test]
fn a_preview_changes_nothing_and_tells_what_is_pinned() {
    let home = Home::new();
    let flags = "--job publish --slot 1 --choose topic=a,b,c --recent slugs=5:slug";
    let would = home.ask(&format!("plan {flags} --json")).exits(0).json();
    assert_eq!((&would["pinned"], &would["work"]), (&json!(false), &json!("publish@1")));
    assert!(!home.database().exists(), "looking makes no ledger");
    let words = home.ask(&format!("plan {flags}")).exits(0).text();
    assert!(words.contains("no plan is pinned") && words.contains("topic"), "{words}");
    home.run(flags, "exit 1").exits(1);
    assert_eq!(home.entry("publish@1")["plan"], would["plan"], "what was told is what is pinned");
    let other = home.ask("plan --job publish --slot 1 --choose topic=x --json").exits(0).json();
    assert_eq!((&other["pinned"], &other["plan"]), (&json!(true), &would["plan"]));
    let topic = would["plan"]["topic"].as_str().unwrap();
    assert_eq!(home.ask("plan --job publish --slot 1 --get topic").exits(0).text(), topic);
    let text = home.ask("plan --job publish --slot 1").exits(0).text();
    assert!(text.contains("this plan is pinned"), "{text}");
    for command in ["show", "why"] {
        let text = home.ask(&format!("{command} publish@1")).exits(0).text();
        assert!(text.lines().any(|line| line.contains("plan") && line.contains("topic")), "{text}");
    }
    assert_eq!(home.entry("publish@1")["attempts"], 1);
}

#[test]
fn arguments_are_filled_without_a_shell_whatever_the_values_are() {
    let home = Home::new();
    let hostile = "it's \"quoted\" $(touch owned) `touch owned`; touch owned\n* \\ {slot} {{ -rf é";
    home.write("plan.json", json!({ "topic": hostile, "n": 3, "list": ["a b", 1] }).to_string());
    let show = home.executable_with(
        "show.py",
        "#!/usr/bin/python3\nimport json, sys\nprint(json.dumps(sys.argv[1:], ensure_ascii=False))\n",
    );
    let show = show.to_str().unwrap();
    let flags = ["--job", "a", "--slot", "s 1", "--with", "x=$(touch owned) y", "--plan", "plan.json"];
    let arguments = [
        show,
        "{plan.topic}",
        "--topic={plan.topic}!",
        "{slot}|{with.x}|{job}",
        "{plan.n}{plan.list}",
        "{{}}",
        "",
        "a b",
    ];
    let said = home.launch(&mut filling(&home, &flags, &arguments)).end().exits(0);
    let expected = json!([
        hostile,
        format!("--topic={hostile}!"),
        "s 1|$(touch owned) y|a",
        "3[\"a b\",1]",
        "{}",
        "",
        "a b"
    ]);
    assert_eq!(serde_json::from_slice::<Value>(&said.out).unwrap(), expected);
    assert!(!home.path("owned").exists());
    // not asked for, nothing is touched
    let mut plain = home.semel(["run", "--job", "b", "--once", "--", show, "{slot}", "{}", "{plan.x}", "{{"]);
    let said = home.launch(&mut plain).end().exits(0);
    assert_eq!(said.text(), r#"["{slot}", "{}", "{plan.x}", "{{"]"#);
    // a shell's script is no place for a value; an argument of it is
    let script = ["sh", "-c", "echo {plan.topic}"];
    home.launch(&mut filling(&home, &["--job", "c", "--once", "--plan", "plan.json"], &script))
        .end()
        .exits(78)
        .saying("read by the shell");
    let script = ["sh", "-c", "printf %s \"$1\" > out", "sh", "{plan.topic}"];
    home.launch(&mut filling(&home, &["--job", "c", "--once", "--plan", "plan.json"], &script))
        .end()
        .exits(0);
    assert_eq!(std::fs::read_to_string(home.path("out")).unwrap(), hostile);
    assert!(!home.path("owned").exists());
}

#[test]
fn a_pinned_plan_without_a_name_that_is_used_by_now_starts_nothing() {
    let home = Home::new();
    home.run("--job a --once --choose topic=a,b", "exit 1").exits(1);
    let flags = ["--job", "a", "--once", "--choose", "topic=a,b", "--choose", "tone=x,y"];
    let echo = ["sh", "-c", "echo $1 >> effects", "sh", "{plan.tone}"];
    let said = home.launch(&mut filling(&home, &flags, &echo)).end().exits(78);
    said.saying("the plan has no tone").saying("pinned with the first claim");
    let echo = ["sh", "-c", "echo $1 >> effects", "sh", "{plan.topic}"];
    home.launch(&mut filling(&home, &flags, &echo)).end().exits(0);
    assert_eq!(home.lines("effects"), [home.entry("a")["plan"]["topic"].as_str().unwrap()]);
}

#[test]
fn what_is_wrong_is_said_before_anything_is_claimed() {
    let home = Home::new();
    home.write("list.json", "[1]");
    home.write("twice.json", "{\"a\":1,\"a\":2}");
    home.write("topic.json", "{\"topic\":1}");
    home.write("seed.json", "{\"seed\":1}");
    home.write("large.json", json!({ "a": "x".repeat(70_000) }).to_string());
    let cases: &[(&[&str], i32, &str)] = &[
        (&["--choose", "topic"], 78, "NAME=a,b,c"),
        (&["--choose", "topic=a,a"], 78, "twice"),
        (&["--choose", "topic=a, b"], 78, "space"),
        (&["--choose", "topic=a,,b"], 78, "empty"),
        (&["--choose", "to pic=a"], 78, "letters, digits"),
        (&["--choose", "topic:=[1]"], 78, "in quotes"),
        (&["--choose", "topic=a", "--choose", "topic=b"], 78, "topic is in the plan twice"),
        (&["--choose", "seed=a"], 78, "seed is the plan's own"),
        (&["--choose", "topic=a", "--recent", "topic=1:x"], 78, "twice"),
        (&["--choose", "topic=a", "--plan", "topic.json"], 78, "twice"),
        (&["--recent", "slugs=10"], 78, "NAME=N:FIELD"),
        (&["--recent", "slugs=0:x"], 78, "1 to 1000"),
        (&["--plan", "none.json"], 65, "none.json"),
        (&["--plan", "list.json"], 65, "no object"),
        (&["--plan", "twice.json"], 65, "appears twice"),
        (&["--plan", "seed.json"], 78, "seed"),
        (&["--plan", "large.json"], 65, "larger than"),
        (&["--plan-cmd", "exit 3"], 65, "it ended with 3"),
        (&["--plan-cmd", "kill -9 $$"], 65, "signal 9"),
        (&["--plan-cmd", "echo nonsense"], 65, "not JSON"),
        (&["--plan-cmd", ":"], 65, "not JSON"),
        (&["--plan-cmd", "echo '[]'"], 65, "no object"),
        (&["--plan-cmd", "echo '{\"seed\":1}'"], 65, "seed is the plan's own"),
        (&["--plan-cmd", "echo '{\"a b\":1}'"], 65, "letters, digits"),
        (&["--plan-cmd", "yes"], 65, "more than 65536 bytes"),
        (&["--fill", "--choose", "topic=a", "--slot", "1"], 78, "{plan.tpoic}: the plan will have no tpoic"),
        (&["--fill", "--plan-cmd", "echo '{\"topic\":1}'", "--slot", "1"], 65, "the plan has no tpoic"),
        (&["--fill"], 78, "{slot}: the work has no slot"),
    ];
    for (flags, code, part) in cases {
        let mut command = home.semel(["run", "--job", "a"]);
        let once: &[&str] = if flags.contains(&"--slot") { &[] } else { &["--once"] };
        let script = ["--", "sh", "-c", "echo x >> effects", "sh", "{slot}", "{plan.tpoic}"];
        let words = if flags.contains(&"--fill") { &script[..] } else { &script[..4] };
        command.args(once).args(*flags).args(words);
        let said = home.launch(&mut command).end();
        assert_eq!(said.code, *code, "{flags:?}: {}", said.err);
        assert!(said.err.contains(part) && said.err.lines().count() == 1, "{flags:?}: {}", said.err);
    }
    home.run("--job a --always --choose topic=a", "echo x >> effects").exits(78).saying("--always");
    assert_eq!(home.lines("effects").len(), 0);
    home.ask("show a").exits(65);
    assert_eq!(home.ask("ls --json").exits(0).text(), "", "nothing is on record");
    let said = home.run("--job a --once --plan-cmd false --json", "echo x >> effects").exits(65).json();
    assert_eq!((&said["outcome"], &said["exit_code"]), (&json!("no_plan"), &json!(65)));
}

#[test]
fn the_command_for_a_plan_is_asked_only_by_a_run_that_goes_on_and_leaves_nothing_behind() {
    let home = Home::new();
    home.executable(
        "draw",
        "echo $SEMEL_JOB $SEMEL_SLOT $SEMEL_SEED ${SEMEL_STORE-none} >> asked; sleep 300 & echo '{\"n\":1}'",
    );
    let start = Instant::now();
    let flags = "--job a --slot 1 --plan-cmd ./draw";
    home.run(flags, "$SEMEL plan --get n; echo $SEMEL_SEED > seed").exits(0);
    assert!(start.elapsed() < Duration::from_secs(20), "what it left behind is not waited for");
    assert_eq!(home.alive(), Vec::<i32>::new());
    assert_eq!(home.lines("asked"), [format!("a 1 {} none", home.lines("seed")[0])]);
    home.run(flags, "echo again").exits(0);
    let mut gate = home.gate("gate");
    let running = home.start("--job b --once --resource a", "echo x >> begun; read go < gate");
    home.wait_lines("begun", 1);
    home.run("--job a --slot 2 --plan-cmd ./draw", "echo busy").exits(0);
    gate.open(1);
    running.end().exits(0);
    assert_eq!(home.lines("asked").len(), 1, "done and busy are known before");
}

#[test]
fn a_run_that_is_stopped_while_its_plan_is_made_leaves_nothing() {
    let home = Home::new();
    let running = home.start("--job a --once --plan-cmd ./think", "echo x >> effects");
    // it does not exist: the next one does
    running.end().exits(65);
    home.executable("think", "echo x >> thinking; sleep 300; echo '{}'");
    let running = home.start("--job a --once --plan-cmd ./think", "echo x >> effects");
    home.wait_lines("thinking", 1);
    running.signal(libc::SIGTERM);
    running.end().exits(128 + libc::SIGTERM).saying("interrupted");
    until("nothing of it lives", SOON, || home.alive().is_empty());
    let running = home.start("--job a --once --plan-cmd ./think", "echo x >> effects");
    home.wait_lines("thinking", 2);
    running.kill_9();
    until("nothing of it lives", SOON, || home.alive().is_empty());
    assert_eq!(home.lines("effects").len(), 0);
    assert_eq!(home.ask("ls --json").exits(0).text(), "");
}

#[test]
fn two_that_race_have_one_plan() {
    let home = Home::new();
    let mut gate = home.gate("gate");
    home.executable("draw", "echo x >> drawing; read go < gate; echo \"{\\\"pid\\\": $$}\"");
    let flags = "--job a --once --plan-cmd ./draw --if-busy wait=20s";
    let script = "$SEMEL plan --get pid >> effects; [ $SEMEL_ATTEMPT = 2 ]";
    let both = [home.start(flags, script), home.start(flags, script)];
    home.wait_lines("drawing", 2);
    gate.open(2);
    let mut codes = both.map(|running| running.end().code);
    codes.sort_unstable();
    assert_eq!(codes, [0, 1], "the first fails, the other tries again");
    let effects = home.lines("effects");
    assert_eq!((effects.len(), &effects[0]), (2, &effects[1]));
    assert_eq!(home.entry("a")["plan"]["pid"].to_string(), effects[0]);
}

#[test]
fn gc_removes_the_plans_of_runs_that_are_gone() {
    let home = Home::new();
    let running = home.start("--job a --once --choose topic=a", "echo $SEMEL_PLAN >> path; exec sleep 300");
    let path = home.wait_lines("path", 1).remove(0);
    assert_eq!(mode(path.as_ref()), 0o600);
    running.kill_9();
    until("nothing of it lives", SOON, || home.alive().is_empty());
    let tidy = || -> Said { home.ask("gc --json").exits(0) };
    tidy();
    assert!(std::path::Path::new(&path).exists(), "not before its time");
    let touched = home.launch(home.plain("touch").args(["-d", "2 days ago", &path])).end();
    touched.exits(0);
    tidy();
    assert!(!std::path::Path::new(&path).exists());
}
