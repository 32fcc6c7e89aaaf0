//! Items that name a resource of their own: never two of one resource at a time, and a stale one writes nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

use crate::support::{Home, SOON, until};

const ITEMS: usize = 60;

/// The site, the item, and when it came and went, as lines of a file outside.
const VISIT: &str = "echo \"in $1 $2\" >> log; sleep 0.02; echo \"out $1 $2\" >> log";

fn items(home: &Home) {
    let line = |n: usize| format!("{{\"site\":\"s{}\",\"slug\":\"p{n}\"}}\n", n % 3);
    home.write("items.jsonl", (0..ITEMS).map(line).collect::<String>());
    home.write("log", "");
}

fn batch(home: &Home, flags: &[&str], script: &str) -> Command {
    let mut command = home.semel(["batch", "items.jsonl", "--job", "posts", "--key", "slug"]);
    command.args(flags).args(["--", "sh", "-c", script, "sh", "{site}", "{slug}"]);
    command
}

/// The most that were at one site at a time. Whoever was killed never went: `gone` says who may not have.
fn most_at_a_site(home: &Home, gone: bool) -> usize {
    let mut at: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let mut most = 0;
    for line in home.lines("log") {
        let [what, site, item] = line.split(' ').collect::<Vec<_>>().try_into().unwrap();
        let there = at.entry(site.to_owned()).or_default();
        if what == "in" {
            if gone {
                there.clear();
            }
            there.insert(item.to_owned());
            most = most.max(there.len());
        } else {
            assert!(there.remove(item), "{item} went from {site}, where another had come meanwhile");
        }
    }
    most
}

fn effects(home: &Home) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for line in home.lines("log").iter().filter(|line| line.starts_with("out ")) {
        *counts.entry(line.rsplit(' ').next().unwrap().to_owned()).or_default() += 1;
    }
    counts
}

#[test]
fn two_that_share_are_never_at_one_site_at_a_time() {
    let home = Home::new();
    items(&home);
    let flags = ["--share", "-j", "2", "--resource", "site/{site}"];
    let both = [(); 2].map(|()| home.launch(&mut batch(&home, &flags, VISIT)));
    for one in both {
        one.end().exits(0);
    }
    assert_eq!(most_at_a_site(&home, false), 1);
    assert_eq!(effects(&home).len(), ITEMS);
    assert!(effects(&home).values().all(|times| *times == 1));
    let shown = home.ask("lease show site/s0 --json").exits(0).json();
    assert_eq!(shown["held"], false);
    assert_eq!(shown["token"], ITEMS / 3, "one grant for each item");
}

/// Control: without a resource they are.
#[test]
fn two_that_name_nothing_are_at_one_site_at_a_time() {
    let home = Home::new();
    items(&home);
    let flags = ["--share", "-j", "3"];
    let both = [(); 2].map(|()| home.launch(&mut batch(&home, &flags, VISIT)));
    for one in both {
        one.end().exits(0);
    }
    assert!(most_at_a_site(&home, false) > 1);
}

#[test]
fn killed_in_the_middle_it_goes_on_with_what_was_held() {
    let home = Home::new();
    items(&home);
    let flags = ["-j", "3", "--resource", "site/{site}", "--json"];
    for goal in [5, 20, 35] {
        let mut run = home.launch(&mut batch(&home, &flags, VISIT));
        until("some more visits", SOON, || home.lines("log").len() > goal || run.has_ended());
        run.kill_9();
        until("all that it started is gone", SOON, || home.alive().is_empty());
    }
    until("nothing is left to do", SOON, || {
        let last = home.launch(&mut batch(&home, &flags, VISIT)).end().exits(0).json();
        last["skipped"] == ITEMS
    });
    assert_eq!(effects(&home).len(), ITEMS);
    let doubled = effects(&home).values().filter(|times| **times > 1).count();
    assert!(doubled <= 9, "{doubled} came twice: more than were under way");
    assert_eq!(most_at_a_site(&home, true), 1);
}

#[test]
fn what_another_holds_is_put_off_and_left_as_the_policy_says() {
    let home = Home::new();
    items(&home);
    let token = home.ask("lease acquire site/s1").exits(0).text();
    let flags = ["-j", "2", "--resource", "site/{site}"];
    home.launch(&mut batch(&home, &flags, VISIT)).end().exits(0).saying("done 40,").saying("held 20");
    let failing = [&flags[..], &["--if-busy", "fail"]].concat();
    home.launch(&mut batch(&home, &failing, VISIT)).end().exits(75).saying("held 20");
    let waiting = [&flags[..], &["--if-busy", "wait=30s"]].concat();
    let run = home.launch(&mut batch(&home, &waiting, VISIT));
    home.ask(&format!("lease release site/s1 --token {token}")).exits(0);
    run.end().exits(0).saying("done 20, skipped 40,");
}

#[test]
fn an_item_is_told_its_own_token_and_a_stale_one_writes_nothing() {
    let home = Home::new();
    home.write("items.jsonl", "{\"site\":\"a\",\"slug\":\"p\"}\n{\"site\":\"b\",\"slug\":\"q\"}\n");
    let mut go_on = home.gate("go-on");
    // the first one is overtaken while it waits; the other one writes
    let script = "echo $SEMEL_RESOURCE=$SEMEL_TOKEN $SEMEL_HELD >> told; \
        if [ $1 = a ]; then read x < go-on; fi; \
        $SEMEL gate -- true; echo $1 gate $? >> codes; \
        echo $2 | $SEMEL write $1.html; echo $1 write $? >> codes; true";
    let flags = ["-j", "2", "--resource", "site/{site}"];
    let run = home.launch(&mut batch(&home, &flags, script));
    home.wait_lines("codes", 2);
    home.ask("lease release site/a --token 1").exits(0);
    assert_eq!(home.ask("lease acquire site/a").exits(0).text(), "2");
    let theirs = "echo newer | $SEMEL --store $1 write a.html --resource site/a --token 2";
    home.launch(home.script(theirs).args(["sh", &home.store()])).end().exits(0);
    go_on.open(1);
    let said = run.end();
    assert_eq!(home.lines("codes"), ["b gate 0", "b write 0", "a gate 77", "a write 77"], "{said:?}");
    let mut told = home.lines("told");
    told.sort();
    assert_eq!(told, ["site/a=1 posts=1,site/a=1", "site/b=1 posts=1,site/b=1"]);
    assert_eq!((home.lines("a.html"), home.lines("b.html")), (vec!["newer".into()], vec!["q".into()]));
}

#[test]
fn a_name_that_is_none_is_of_that_item_alone() {
    let home = Home::new();
    home.write(
        "items.jsonl",
        "{\"site\":\"a\",\"slug\":\"p\"}\n{\"site\":\"../b\",\"slug\":\"q\"}\n{\"slug\":\"r\"}\n",
    );
    let said =
        home.launch(&mut batch(&home, &["--resource", "{site}"], "echo $2 >> effects")).end().exits(65);
    let said = said.saying("line 2: --resource:").saying("line 3: ").saying("wrong input 2");
    assert_eq!(home.lines("effects"), ["p"], "{said:?}");
}

#[test]
fn a_batch_of_the_file_is_started_by_its_name() {
    let home = Home::new();
    items(&home);
    home.write(
        "semel.toml",
        "[batches.posts]\ncommand = [\"sh\", \"-c\", \"echo $1 >> effects\", \"sh\", \"{slug}\"]\n\
        items = \"items.jsonl\"\nkey = [\"slug\"]\njobs = 2\nresource = \"site/{site}\"\n",
    );
    home.ask("config check").exits(0);
    home.ask("batch posts").exits(0).saying("done 60,");
    assert_eq!(home.lines("effects").len(), ITEMS);
    home.ask("batch posts").exits(0).silent();
    home.ask("batch post").exits(78).saying("did you mean \"posts\"?");
    home.ask("run posts").exits(78);
}
