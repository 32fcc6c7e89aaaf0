//! `semel.toml`: jobs by their names, what goes before what, files that are refused, and definitions that changed.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use crate::support::{Home, Said, skipped};

/// `semel WORDS` in a folder of this home, without SEMEL_STORE: the ledger is what the file says, or the default.
fn bare(home: &Home, folder: &str, words: &str) -> Command {
    let mut command = home.plain(env!("CARGO_BIN_EXE_semel"));
    command.current_dir(home.path(folder)).args(words.split_whitespace());
    command
}

#[track_caller]
fn ask(home: &Home, folder: &str, words: &str) -> Said {
    home.launch(&mut bare(home, folder, words)).end()
}

fn folder(home: &Home, name: &str) {
    std::fs::create_dir_all(home.path(name)).unwrap();
}

fn chmod(path: &Path, mode: u32) {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
}

#[test]
fn a_job_runs_by_its_name_once_and_where_the_file_says() {
    let home = Home::new();
    folder(&home, "agent/deep/er");
    folder(&home, "agent/work");
    home.executable(
        "agent/work/publish.sh",
        "pwd >> ran; echo \"$1 $SEMEL_JOB $COLOUR ${SEMEL_CONFIG-none}\" >> ran",
    );
    home.write(
        "agent/semel.toml",
        r#"
        [jobs.publish]
        command = ["./publish.sh", "--now"]
        directory = "work"
        once = true
        resource = "site"
        env = { COLOUR = "blue" }
        "#,
    );
    for _ in 0..2 {
        ask(&home, "agent/deep/er", "run publish").exits(0).silent();
    }
    let work = home.path("agent/work").canonicalize().unwrap();
    assert_eq!(home.lines("agent/work/ran"), [work.to_str().unwrap(), "--now publish blue none"], "once");
    let entry = ask(&home, "agent", "show publish --json").exits(0).json();
    assert_eq!(entry["entry"]["log"][0]["resource"], "site");
}

#[test]
fn a_text_is_run_by_a_shell_and_flags_go_before_keys() {
    let home = Home::new();
    home.write(
        "semel.toml",
        r#"
        [defaults]
        max-failures = 9
        [jobs.mail]
        command = "echo $SEMEL_RESOURCE:$SEMEL_KEY >> ran; exit 3"
        with = { to = "ann", n = 1 }
        resource = "smtp"
        "#,
    );
    ask(&home, ".", "run mail").exits(3);
    ask(&home, ".", "run mail --resource other --max-failures 1 --with n=2").exits(3).saying("quarantined");
    assert_eq!(home.lines("ran").len(), 2);
    assert!(home.lines("ran")[0].starts_with("smtp:") && home.lines("ran")[1].starts_with("other:"));
    let states = ask(&home, ".", "ls --json").exits(0).text();
    assert!(states.contains("mail?n:=1&to=ann") && states.contains("mail?n=2&to=ann"), "{states}");
    ask(&home, ".", "run mail --slot 2026-06-19").exits(3);
    assert!(ask(&home, ".", "ls --json").text().contains("mail@2026-06-19?n:=1&to=ann"));
    let mut with_command = bare(&home, ".", "run mail -- true");
    home.launch(&mut with_command).end().exits(78).saying("leave out what follows --");
    ask(&home, ".", "run mail --job x").exits(78);
    ask(&home, ".", "run mial").exits(78).saying("did you mean \"mail\"?");
}

#[test]
fn the_file_is_found_in_its_order() {
    let home = Home::new();
    folder(&home, "a/b");
    folder(&home, "home/.config/semel");
    let said = |word: &str| format!("[jobs.who]\ncommand = [\"echo\", \"{word}\"]\nalways = true\n");
    ask(&home, "a/b", "run who")
        .exits(78)
        .saying("looked for semel.toml in")
        .saying("home/.config/semel/semel.toml");
    let answer = |words: &str| ask(&home, "a/b", words).exits(0).text();
    home.write("home/.config/semel/semel.toml", said("xdg"));
    assert_eq!(answer("run who"), "xdg");
    home.write("semel.toml", said("top"));
    assert_eq!(answer("run who"), "top");
    home.write("a/b/semel.toml", said("here"));
    assert_eq!(answer("run who"), "here");
    home.write("variable.toml", said("variable"));
    home.write("flag.toml", said("flag"));
    let mut by_variable = bare(&home, "a/b", "run who");
    by_variable.env("SEMEL_CONFIG", home.path("variable.toml"));
    assert_eq!(home.launch(&mut by_variable).end().exits(0).text(), "variable");
    by_variable.args(["--config", "../../flag.toml"]);
    assert_eq!(home.launch(&mut by_variable).end().exits(0).text(), "flag");
    ask(&home, "a/b", "run who --config none.toml").exits(78).saying("--config").saying("No such file");
}

#[test]
fn the_ledger_is_the_same_for_every_command() {
    let home = Home::new();
    folder(&home, "a/b");
    home.write(
        "a/semel.toml",
        "store = \"sqlite:led/ger.db\"\n[jobs.x]\ncommand = [\"true\"]\nonce = true\n",
    );
    ask(&home, "a/b", "run x").exits(0);
    let mut plain = bare(&home, "a/b", "run --job y --once -- true");
    home.launch(&mut plain).end().exits(0);
    assert!(home.path("a/led/ger.db").exists());
    assert!(!home.state_dir().join("ledger.db").exists());
    assert_eq!(ask(&home, "a", "ls --json").exits(0).text().lines().count(), 2);
    ask(&home, "a", "why x").exits(0);
    // the environment goes before the file, and a flag before both
    assert_eq!(
        home.launch(home.semel(["ls", "--json"]).current_dir(home.path("a"))).end().exits(0).text(),
        ""
    );
    let flag = format!("ls --json --store sqlite:{}", home.path("a/led/ger.db").display());
    assert_eq!(home.launch(&mut home.semel(flag.split_whitespace())).end().text().lines().count(), 2);
    // a fault in a job does not hide the ledger; one in the store's address does
    home.write("a/semel.toml", "store = \"sqlite:led/ger.db\"\n[jobs.x]\ncomand = [\"true\"]\n");
    assert_eq!(ask(&home, "a", "ls --json").exits(0).text().lines().count(), 2);
    home.write("a/semel.toml", "store = 7\n");
    ask(&home, "a", "ls").exits(78).saying("semel.toml:1:9: store: found the number 7");
}

#[test]
fn secrets_come_from_the_environment_and_go_nowhere_else() {
    let home = Home::new();
    home.write(
        "semel.toml",
        "store = { env = \"LEDGER_URL\" }\n[jobs.x]\ncommand = 'echo \"$TOKEN ${LEDGER_URL-unset} $PLAIN\" >> ran'\nalways = true\nenv = { TOKEN = { env = \"OTHER\" }, PLAIN = \"quite-plain\" }\n",
    );
    let mut command = bare(&home, ".", "run x");
    command.env("LEDGER_URL", home.store());
    home.launch(&mut command)
        .end()
        .exits(78)
        .saying("TOKEN of job x is { env = \"OTHER\" }, and OTHER is not set");
    home.launch(command.env("OTHER", "hunter2")).end().exits(0).silent();
    assert_eq!(home.lines("ran"), ["hunter2 unset quite-plain"]);
    let shown = home.ask("show x* --json").exits(0).text();
    assert!(shown.contains("OTHER"), "{shown}");
    assert!(!shown.contains("hunter2") && !shown.contains("quite-plain"), "{shown}");
    ask(&home, ".", "ls").exits(78).saying("LEDGER_URL is not set");
    home.write("semel.toml", "store = \"postgres://me:hunter2@db/x\"\n");
    let said = ask(&home, ".", "config check").exits(78);
    assert!(!said.text().contains("hunter2") && !said.err.contains("hunter2"), "{said:?}");
    assert!(said.text().contains("semel.toml:1:9: store: an address with a password"), "{said:?}");
}

#[test]
fn files_that_others_can_write_are_refused() {
    let home = Home::new();
    folder(&home, "open/mine");
    let text = "[jobs.x]\ncommand = [\"touch\", \"hijacked\"]\nonce = true\n";
    let path = home.write("open/semel.toml", text);
    for mode in [0o646, 0o666] {
        chmod(&path, mode);
        ask(&home, "open/mine", "run x").exits(78).saying("others can write it").saying("chmod go-w");
        ask(&home, "open/mine", "ls").exits(78);
    }
    chmod(&path, 0o644);
    // SAFETY: it cannot fail and touches no memory.
    if unsafe { libc::geteuid() } != 0 {
        return skipped("files_that_others_can_write_are_refused", "only root can give files to others");
    }
    std::os::unix::fs::chown(&path, Some(12345), Some(12345)).unwrap();
    ask(&home, "open/mine", "run x").exits(78).saying("belongs to another user");
    // in a folder that is open to all, a stranger's file is as if it were not there
    chmod(&home.path("open"), 0o1777);
    ask(&home, "open/mine", "run x").exits(78).saying("looked for semel.toml");
    ask(&home, "open/mine", "ls").exits(0);
    let link = home.path("open/mine/semel.toml");
    std::os::unix::fs::symlink(&path, &link).unwrap();
    ask(&home, "open/mine", "run x").exits(78).saying("belongs to another user");
    std::fs::remove_file(link).unwrap();
    assert!(!home.path("open/hijacked").exists());
    // who names it trusts it
    ask(&home, "open/mine", "run x --config ../semel.toml").exits(0);
    assert!(home.path("open/hijacked").exists());
}

#[test]
fn odd_files_are_refused_and_keep_nobody_waiting() {
    let home = Home::new();
    folder(&home, "a");
    home.gate("a/semel.toml");
    ask(&home, "a", "config check").exits(78).saying("no regular file");
    std::fs::remove_file(home.path("a/semel.toml")).unwrap();
    folder(&home, "a/semel.toml");
    ask(&home, "a", "run x").exits(78).saying("no regular file");
    std::fs::remove_dir(home.path("a/semel.toml")).unwrap();
    home.write("a/semel.toml", b"x = \"\xff\"");
    ask(&home, "a", "run x").exits(78).saying("not UTF-8");
    home.write("a/semel.toml", "#".repeat(2_000_000));
    ask(&home, "a", "run x").exits(78).saying("larger than");
}

#[test]
fn check_tells_everything_with_its_line() {
    let home = Home::new();
    home.write(
        "semel.toml",
        "[jobs.a]\ncommand = \"x\"\ntll = \"2m\"\nretries = \"two\"\n[jobs.b]\ncommand = \"y\"\nonce = true\n",
    );
    let said = ask(&home, ".", "config check").exits(78).saying("2 things are wrong with");
    let path = home.path("semel.toml").canonicalize().unwrap();
    let expected = format!(
        "{0}:3:1: unknown key \"tll\": did you mean \"ttl\"?\n    tll = \"2m\"\n    ^\n{0}:4:11: retries: found the text \"two\": write a number from 0, as in retries = 3\n    retries = \"two\"\n              ^",
        path.display()
    );
    assert_eq!(said.text(), expected);
    let faults = ask(&home, ".", "config check --json").exits(78).text();
    let first: serde_json::Value = serde_json::from_str(faults.lines().next().unwrap()).unwrap();
    assert_eq!((&first["line"], &first["column"], &first["v"]), (&3.into(), &1.into(), &1.into()));
    // the run of a faulty job says all of its faults; the other runs
    ask(&home, ".", "run a").exits(78).saying("semel.toml:3:1:").saying("semel.toml:4:11:");
    ask(&home, ".", "run b").exits(127);
    home.write("semel.toml", "[jobs.b]\ncommand = \"y\"\nonce = true\n");
    ask(&home, ".", "config check").exits(0).silent();
    ask(&home, ".", "config check -v").exits(0).saying("1 job, ok");
    let schema = ask(&home, ".", "config schema").exits(0).text();
    let kept =
        std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../schema/semel.schema.json"))
            .unwrap();
    assert_eq!(schema, kept.trim_end());
}

#[test]
fn jobs_are_listed_with_how_they_stand() {
    let home = Home::new();
    let text = "[jobs.a]\ncommand = [\"/bin/true\"]\nonce = true\n[jobs.b]\ncommand = \"exit 4\"\nresource = \"r\"\nor = [\"s\"]\nalways = true\n[jobs.c]\ncommand = \"x\"\n";
    home.write("semel.toml", text);
    ask(&home, ".", "run a").exits(0);
    let listed: Vec<serde_json::Value> = ask(&home, ".", "jobs --json")
        .exits(0)
        .text()
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(listed.len(), 3);
    assert_eq!(
        (&listed[0]["job"], &listed[0]["same_work"], &listed[0]["last"]["state"]),
        (&"a".into(), &"once".into(), &"done".into())
    );
    assert_eq!((&listed[1]["resources"][1], &listed[1]["program"]), (&"s".into(), &"sh".into()));
    assert_eq!(
        (&listed[2]["same_work"], &listed[2]["last"]),
        (&"by a flag".into(), &serde_json::Value::Null)
    );
    let table = ask(&home, ".", "jobs").exits(0).text();
    assert!(table.contains("never run") && table.contains("r or s") && table.contains("true"), "{table}");
    ask(&home, ".", "run c").exits(78).saying("what makes two runs the same work?");
    home.write("semel.toml", text.replace("[\"/bin/true\"]", "[\"/bin/true\", \"-v\"]"));
    assert!(ask(&home, ".", "jobs").exits(0).text().contains("definition changed since the last success"));
    std::fs::remove_file(home.path("semel.toml")).unwrap();
    ask(&home, ".", "jobs").exits(78).saying("looked for semel.toml");
}

#[test]
fn a_changed_definition_is_shown_where_people_look() {
    let home = Home::new();
    let file = |ttl: &str, code: u8| {
        home.write(
            "semel.toml",
            format!(
                "[jobs.publish]\ncommand = \"exit {code}\"\nttl = \"{ttl}\"\nenv = {{ A = \"{ttl}\" }}\n"
            ),
        );
    };
    file("60s", 0);
    ask(&home, ".", "run publish --slot 2026-06-18").exits(0);
    file("60s", 0);
    ask(&home, ".", "run publish --slot 2026-06-19").exits(0);
    let quiet = |words: &str| {
        let text = ask(&home, ".", words).exits(0).text();
        assert!(!text.contains("efinition changed since the last success"), "{words}: {text}");
    };
    quiet("status");
    quiet("history publish");
    quiet("why publish@2026-06-19");
    file("2m", 1);
    ask(&home, ".", "run publish --slot 2026-06-20").exits(1);
    for words in ["status", "history publish", "why publish@2026-06-20"] {
        let text = ask(&home, ".", words).exits(0).text();
        assert!(text.contains("efinition changed since the last success"), "{words}: {text}");
    }
    let why = ask(&home, ".", "why publish@2026-06-20").exits(0).text();
    assert!(why.contains("ttl: not given → 2m"), "{why}");
    assert!(why.contains("command.arguments: ") && why.contains("env.A: sha256:"), "{why}");
    let drift = ask(&home, ".", "why publish@2026-06-20 --json").exits(0).json()["drift"].clone();
    assert_eq!(drift.as_array().unwrap().len(), 3, "{drift}");
    let rows = ask(&home, ".", "history publish --json").exits(0).text();
    let drifts: Vec<bool> = rows
        .lines()
        .map(|row| serde_json::from_str::<serde_json::Value>(row).unwrap()["drift"].as_bool().unwrap())
        .collect();
    assert_eq!(drifts, [true, false, false]);
    assert_eq!(ask(&home, ".", "status --json").exits(0).json()["drifted"][0], "publish@2026-06-20");
    // a success of the new definition settles it
    file("2m", 0);
    ask(&home, ".", "run publish --slot 2026-06-20").exits(0);
    quiet("status");
    // the same entry: what succeeded is kept beside what ran last
    let mut again = bare(&home, ".", "run --job every --always --");
    home.launch(again.arg("true")).end().exits(0);
    let mut changed = bare(&home, ".", "run --job every --always --retries 1 --backoff 1ms --");
    home.launch(changed.arg("false")).end().exits(1);
    let why = ask(&home, ".", "why every*").exits(0).text();
    assert!(why.contains("command.program: true → false") && why.contains("retries: not given → 1"), "{why}");
}

#[test]
fn the_probe_of_a_job_is_asked_where_the_job_runs() {
    let home = Home::new();
    folder(&home, "work");
    home.write(
        "semel.toml",
        "[jobs.slow]\ncommand = \"touch started; echo x >> ran; exec sleep 300\"\nprobe = 'test \"$MARK\" = m && test -e started'\nonce = true\ndirectory = \"work\"\nenv = { MARK = \"m\" }\n",
    );
    let running = home.launch(&mut bare(&home, ".", "run slow"));
    home.wait_lines("work/ran", 1);
    running.kill_9();
    ask(&home, ".", "run slow").exits(0);
    assert_eq!(home.lines("work/ran").len(), 1);
    assert!(ask(&home, ".", "why slow").exits(0).text().contains("found done by the probe"));
}

#[test]
fn a_job_has_its_schedule_and_its_plan_in_the_file() {
    let home = Home::new();
    folder(&home, "agent/work");
    home.executable("agent/work/plan.sh", "echo \"{\\\"from\\\": \\\"$COLOUR\\\"}\"");
    home.executable("agent/work/publish.sh", "echo \"$1 $2 $SEMEL_SLOT\" >> ran");
    home.write(
        "agent/semel.toml",
        r#"
        [jobs.publish]
        command = ["./publish.sh", "{plan.topic}", "{plan.from}"]
        directory = "work"
        every = "day"
        tz = "UTC"
        choose = ["topic=only"]
        plan-cmd = "./plan.sh"
        fill = true
        env = { COLOUR = "blue" }
        "#,
    );
    for _ in 0..2 {
        ask(&home, "agent", "run publish").exits(0).silent();
    }
    let ran = home.lines("agent/work/ran");
    assert_eq!(ran.len(), 1, "once per day, unless the day ended meanwhile: {ran:?}");
    let words: Vec<&str> = ran[0].split(' ').collect();
    assert_eq!((words[0], words[1], words[2].len()), ("only", "blue", "2026-06-19".len()));
    // a slot by hand goes before the schedule
    ask(&home, "agent", "run publish --slot 2020-01-01").exits(0);
    assert!(home.lines("agent/work/ran")[1].ends_with(" 2020-01-01"));
}
