//! `semel lease`: for scripts, and around commands.

use std::time::{Duration, Instant};

use crate::support::{Home, SOON, until};

/// The token that `lease acquire` printed.
#[track_caller]
fn token(home: &Home, args: &str) -> u64 {
    home.ask(&format!("lease acquire {args}")).exits(0).silent().text().parse().unwrap()
}

#[test]
fn tokens_are_printed_and_grow_over_releases() {
    let home = Home::new();
    let mut last = 0;
    for _ in 0..3 {
        let next = token(&home, "site");
        assert!(next > last, "{next} after {last}");
        home.ask(&format!("lease release site --token {next}")).exits(0).silent();
        last = next;
    }
    token(&home, "other");
}

#[test]
fn a_held_lease_is_11_and_a_lost_one_12() {
    let home = Home::new();
    let held = token(&home, "site");
    let (next, far) = (held + 1, held + 6);
    let said = home.ask("lease acquire site").exits(11).silent();
    assert_eq!(said.text(), "", "no token");
    home.ask("lease acquire site -v").exits(11).saying("site is held for a script");
    home.ask(&format!("lease renew site --token {held}")).exits(0).silent();
    home.ask(&format!("lease renew site --token {next}")).exits(12).saying("lost");
    home.ask(&format!("lease release site --token {far}")).exits(12).saying("lost");
    home.ask(&format!("lease renew nothing --token {held}")).exits(12).saying("no record");
    home.ask(&format!("lease renew site --token {held}")).exits(0).silent();
    home.ask(&format!("lease release site --token {held}")).exits(0).silent();
    home.ask(&format!("lease release site --token {held}")).exits(12).saying("released");
    home.ask(&format!("lease renew site --token {held}")).exits(12).saying("released");
}

#[test]
fn a_script_holds_its_lease_over_many_commands() {
    let home = Home::new();
    // the process that acquires it ends at once, and so does its parent
    let said =
        home.launch(home.script("\"$SEMEL\" lease acquire site").env("SEMEL_STORE", home.store())).end();
    let held: i64 = said.exits(0).text().parse().unwrap();
    home.ask("lease acquire site").exits(11);
    home.run("--job a --once --resource site --if-busy fail", "echo x >> effects").exits(75);
    home.ask(&format!("lease release site --token {held}")).exits(0);
    home.run("--job a --once --resource site --if-busy fail", "echo $SEMEL_TOKEN >> effects").exits(0);
    assert!(home.numbers("effects")[0] > held);
}

#[test]
fn bound_to_a_process_it_goes_with_it() {
    let home = Home::new();
    let script = home.launch(&mut home.script("exec sleep 300"));
    let bound = token(&home, &format!("site --pid {}", script.pid()));
    home.ask("lease acquire site").exits(11);
    script.kill_9();
    // the ttl is a minute: nobody waits for it
    let next = token(&home, "site");
    assert!(next > bound);
    home.ask(&format!("lease renew site --token {bound}")).exits(12);
    home.ask(&format!("lease release site --token {bound}")).exits(12);
    home.ask(&format!("lease renew site --token {next}")).exits(0);
    home.ask("lease acquire other --pid 2147483647").exits(78).saying("no such process");
}

#[test]
fn after_its_time_it_is_lost_for_good() {
    let home = Home::new();
    let lost = token(&home, "site --ttl 1s");
    until("it has lapsed", SOON, || home.ask("lease show site --json").json()["held"] == false);
    home.ask(&format!("lease renew site --token {lost}")).exits(12).saying("lapsed");
    let next = token(&home, "site --ttl 10s");
    assert!(next > lost);
    home.ask(&format!("lease renew site --token {lost}"))
        .exits(12)
        .saying(&format!("taken over with token {next}"));
    home.ask(&format!("lease release site --token {lost}")).exits(12);
    home.ask(&format!("lease renew site --token {next}")).exits(0);
}

#[test]
fn renewals_keep_it_alive() {
    let home = Home::new();
    let held = token(&home, "site --ttl 2s");
    let start = Instant::now();
    while start.elapsed() < Duration::from_millis(2600) {
        home.ask(&format!("lease renew site --token {held}")).exits(0);
        home.ask("lease acquire site").exits(11);
    }
}

#[test]
fn show_says_who_holds_it() {
    let home = Home::new();
    assert!(home.ask("lease show site").exits(0).text().starts_with("site: "));
    let held = token(&home, "site");
    let said = home.ask("lease show site").exits(0);
    assert!(
        said.text().contains("held for a script") && said.text().contains(&format!("token {held}")),
        "{}",
        said.text()
    );
    let json = home.ask("lease show site --json").exits(0).json();
    assert_eq!((&json["v"], &json["held"], &json["token"]), (&1.into(), &true.into(), &held.into()));
    let left = json["left_ms"].as_u64().unwrap();
    // a store whose clock is coarse waits a little longer
    assert!(left > 30_000 && left <= 62_500, "{left}");
    home.ask(&format!("lease release site --token {held}")).exits(0);
    let json = home.ask("lease show site --json").exits(0).json();
    assert_eq!((&json["held"], &json["token"]), (&false.into(), &held.into()), "the counter survives");
}

#[test]
fn bad_tokens_and_names_are_78() {
    let home = Home::new();
    for args in [
        "renew site --token x",
        "release site --token -1",
        "renew site --token 0",
        "renew site --token 9007199254740992",
    ] {
        home.ask(&format!("lease {args}")).exits(78);
    }
    home.ask("lease acquire ../x").exits(78).saying("starts with '.'");
    home.ask("lease acquire site --ttl 5x").exits(78).saying("length of time");
    home.ask("lease renew site").exits(78).saying("--token");
}

#[test]
fn twenty_at_once_have_one_winner() {
    let home = Home::new();
    let tries: Vec<_> = (0..20).map(|_| home.launch(&mut home.semel(["lease", "acquire", "site"]))).collect();
    let codes: Vec<_> = tries.into_iter().map(|one| one.end().code).collect();
    assert_eq!(codes.iter().filter(|code| **code == 0).count(), 1, "{codes:?}");
    assert!(codes.iter().all(|code| [0, 11].contains(code)), "{codes:?}");
}

fn hold<'a>(home: &Home, words: impl IntoIterator<Item = &'a str>, script: &str) -> std::process::Command {
    let mut command = home.semel(["lease", "hold"]);
    command.args(words).args(["--", "sh", "-c", script]);
    command
}

#[test]
fn hold_runs_the_command_under_the_lease_every_time() {
    let home = Home::new();
    for _ in 0..2 {
        home.launch(&mut hold(
            &home,
            ["site"],
            "echo $SEMEL_RESOURCE >> effects; echo $SEMEL_TOKEN >> tokens; exit 4",
        ))
        .end()
        .exits(4);
    }
    assert_eq!((home.lines("effects").join(" ").as_str(), home.ranks("tokens")), ("site site", vec![1, 2]));
    let said = home.launch(&mut hold(&home, ["site"], "cat; env")).end().exits(0).silent();
    assert!(!said.text().contains("SEMEL_STORE") && !said.text().contains("SEMEL_KEY"), "{}", said.text());
}

#[test]
fn a_busy_hold_is_75_unless_it_is_told_otherwise() {
    let home = Home::new();
    let mut gate = home.gate("gate");
    let first = home.launch(&mut hold(&home, ["site"], "echo x >> ready; read go < gate"));
    home.wait_lines("ready", 1);
    let effect = "echo $SEMEL_RESOURCE >> effects";
    home.launch(&mut hold(&home, ["site"], effect)).end().exits(75).saying("site is held for lease hold sh");
    home.launch(&mut hold(&home, ["site", "--if-busy", "skip"], effect)).end().exits(0).silent();
    assert_eq!(home.lines("effects").len(), 0);
    home.launch(&mut hold(&home, ["site", "--or", "spare"], effect)).end().exits(0);
    let waiting = home.launch(&mut hold(&home, ["site", "--if-busy", "wait=1m"], effect));
    gate.open(1);
    first.end().exits(0).silent();
    waiting.end().exits(0).silent();
    assert_eq!(home.lines("effects"), ["spare", "site"]);
}

#[test]
fn holds_nest() {
    let home = Home::new();
    let inner = |resource: &str, script: &str| {
        format!("$SEMEL lease hold {resource} --store {} -- sh -c '{script}'", home.store())
    };
    // the same one: under the lease that is there, without waiting for it
    let same = inner("site", "echo $SEMEL_RESOURCE >> effects; echo $SEMEL_TOKEN >> tokens; exit 5");
    home.launch(&mut hold(&home, ["site"], &same)).end().exits(5);
    assert_eq!(home.lines("effects"), ["site"]);
    // another one, and the first again inside of it
    let nested =
        format!("$SEMEL lease hold site --store {} -- sh -c \"echo again >> effects\"", home.store());
    let other = inner("other", &format!("echo $SEMEL_RESOURCE >> effects; {nested}"));
    let other = format!("echo $SEMEL_TOKEN >> tokens; {other}");
    home.launch(&mut hold(&home, ["site"], &other)).end().exits(0);
    assert_eq!(home.lines("effects"), ["site", "other", "again"]);
    let json = home.ask("lease show site --json").json();
    let outer = home.numbers("tokens")[1];
    assert_eq!(
        (&json["held"], &json["token"]),
        (&false.into(), &outer.into()),
        "no grant for the inner ones"
    );
}

#[test]
fn a_forged_or_stale_holding_does_not_nest() {
    let home = Home::new();
    let mut gate = home.gate("gate");
    let first = home.launch(&mut hold(&home, ["site"], "echo x >> ready; read go < gate"));
    home.wait_lines("ready", 1);
    for held in ["site=7", "site=", "nonsense", "site=1x", "other=1"] {
        let mut command = hold(&home, ["site"], "echo x >> effects");
        home.launch(command.env("SEMEL_HELD", held)).end().exits(75);
    }
    assert_eq!(home.lines("effects").len(), 0);
    gate.open(1);
    first.end().exits(0);
}

#[test]
fn a_killed_hold_takes_its_tree_with_it_and_frees_the_lease() {
    let home = Home::new();
    let first = home.launch(&mut hold(&home, ["site"], "setsid sleep 300 & echo x >> ready; sleep 300"));
    home.wait_lines("ready", 1);
    let start = Instant::now();
    first.kill_9();
    until("nothing of it lives", SOON, || home.alive().is_empty());
    assert!(start.elapsed() < Duration::from_secs(1), "{:?}", start.elapsed());
    home.launch(&mut hold(&home, ["site"], "echo $SEMEL_TOKEN >> effects")).end().exits(0);
    assert_eq!(home.lines("effects").len(), 1);
}

#[test]
fn a_stalled_hold_that_wakes_after_a_takeover_exits_75() {
    let home = Home::new();
    let first = home.launch(&mut hold(&home, ["site", "--ttl", "1s"], "echo x >> ready; exec sleep 300"));
    home.wait_lines("ready", 1);
    first.signal(libc::SIGSTOP);
    home.launch(&mut hold(&home, ["site", "--if-busy", "wait=1m"], "echo $SEMEL_TOKEN >> effects"))
        .end()
        .exits(0);
    first.signal(libc::SIGCONT);
    first.end().exits(75).saying("lost its lease");
    assert_eq!(home.lines("effects").len(), 1);
}

#[test]
fn a_lease_whose_token_nobody_can_read_is_given_back() {
    let home = Home::new();
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let said = home.semel(["lease", "acquire", "r"]).stdout(full).output().unwrap();
    assert_eq!(said.status.code(), Some(12), "{said:?}");
    assert!(String::from_utf8_lossy(&said.stderr).contains("given back"), "{said:?}");
    let shown = home.ask("lease show r --json").json();
    assert_eq!(shown["held"], false, "{shown}");
    assert!(token(&home, "r") > shown["token"].as_u64().unwrap(), "the counter went on");
}

#[test]
fn a_run_that_would_wait_for_itself_is_refused_aloud() {
    let home = Home::new();
    let inner =
        format!("\"$SEMEL\" run --store {} --job site --once -- sh -c 'echo x >> effects'", home.store());
    home.run("--job site --always", &inner).exits(75).saying("wait for itself");
    assert_eq!(home.lines("effects"), [""; 0]);
}
