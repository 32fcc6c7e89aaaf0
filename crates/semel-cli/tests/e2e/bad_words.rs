//! Every bad word has a clear error: one line that names where it stands, quotes what was given and says what to write
//! instead. Nothing runs, and nothing is on record.

use crate::support::{Home, Said};

/// The command appends to this file: an effect that is counted outside.
const EFFECT: [&str; 4] = ["--", "sh", "-c", "echo x >> effects"];

/// Arguments, and what the line must have: where, what was given, and a piece of what is said.
type Row = (&'static [&'static str], &'static str, &'static str, &'static str);

/// How a line says what to write instead.
const INSTEAD: [&str; 14] = [
    "write ",
    "use ",
    "say ",
    "Say ",
    "leave ",
    "keep one",
    "allowed",
    "give it",
    "did you mean",
    "start with",
    "remove ",
    "expected ",
    "[possible values",
    "as in",
];

/// How a line is put that was made for programmers.
const DEBUG: [&str; 9] =
    ["panicked", "Some(", "Err(", "Ok(", "Error {", "..=", "ParseIntError", "invalid digit", "backtrace"];

#[track_caller]
fn is_clear(line: &str, about: &dyn std::fmt::Debug, parts: [&str; 3]) {
    for part in parts {
        assert!(line.contains(part), "{about:?}: {part:?} is not in: {line}");
    }
    assert!(INSTEAD.iter().any(|word| line.contains(word)), "{about:?}: nothing says what to write: {line}");
    let debug = DEBUG.iter().find(|word| line.contains(**word));
    assert_eq!(debug, None, "{about:?}: {line}");
    assert!(line.chars().count() < 800, "{about:?}: it is too long to read: {line}");
}

#[track_caller]
fn nothing_happened(home: &Home) {
    assert_eq!(home.lines("effects").len(), 0, "the command ran");
    let listed = home.ask("ls --json");
    assert_eq!(listed.text(), "", "something is on record: {}", listed.err);
}

#[track_caller]
fn refused(code: i32, job: &[&str], rows: &[Row]) {
    let home = Home::new();
    home.write("list.json", "[1]");
    home.write("open.json", "{");
    home.write("good.json", "{\"a\": 1}");
    std::fs::create_dir(home.path("folder")).unwrap();
    for (args, place, given, says) in rows {
        let mut command = home.semel(["run"]);
        command.args(job).args(*args);
        let tail: &[&str] = if args.contains(&"--") { &[] } else { &EFFECT };
        let said = home.launch(command.args(tail)).end();
        assert_eq!(said.code, code, "{args:?}: {}", said.err);
        assert!(said.out.is_empty(), "{args:?}");
        if said.err.starts_with("semel: ") {
            assert_eq!(said.err.lines().count(), 1, "{args:?}: {}", said.err);
        }
        is_clear(&said.err, args, [place, given, says]);
    }
    nothing_happened(&home);
}

const JOB: [&str; 2] = ["--job", "j"];
const SLOT: [&str; 4] = ["--job", "j", "--slot", "s"];
const ONCE: [&str; 3] = ["--job", "j", "--once"];

#[test]
fn schedules() {
    let long: &'static str = Box::leak("a".repeat(5_000).into_boxed_str());
    let long_args: &'static [&'static str] = Box::leak(Box::new(["--every", long]));
    refused(
        78,
        &JOB,
        &[
            (&["--every", ""], "--every", "\"\"", "write day, week, month"),
            (&["--every", "daily"], "--every", "\"daily\"", "is no schedule"),
            (&["--every", "Day"], "--every", "\"Day\"", "is no schedule"),
            (&["--every", "15"], "--every", "\"15\"", "an interval such as 15m"),
            (&["--every", "15min"], "--every", "\"15min\"", "an interval such as 15m"),
            (&["--every", "1.5h"], "--every", "\"1.5h\"", "is no schedule"),
            (&["--every=-5m"], "--every", "\"-5m\"", "is no schedule"),
            (&["--every", "t\u{e4}glich"], "--every", "\"t\u{e4}glich\"", "is no schedule"),
            (&["--every", "0s"], "--every", "\"0s\"", "write 1s or longer"),
            (&["--every", "7m"], "--every", "\"7m\"", "use 6m or 8m"),
            (&["--every", "13h"], "--every", "\"13h\"", "use 12h or day"),
            (&["--every", "48h"], "--every", "\"48h\"", "write day, week or month"),
            (
                &["--every", "99999999999999999999h"],
                "--every",
                "\"99999999999999999999h\"",
                "too long for an interval",
            ),
            (&["--every", "0 2 * *"], "--every", "\"0 2 * *\"", "has 4 fields; a cron expression has five"),
            (&["--every", "0 0 2 * * *"], "--every", "\"0 0 2 * * *\"", "has 6 fields"),
            (&["--every", "60 * * * *"], "--every", "\"60\"", "minute field"),
            (&["--every", "60 * * * *"], "--every", "\"60\"", "numbers from 0 to 59"),
            (&["--every", "* 24 * * *"], "--every", "\"24\"", "numbers from 0 to 23"),
            (&["--every", "* * 0 * *"], "--every", "\"0\"", "numbers from 1 to 31"),
            (&["--every", "* * * 13 *"], "--every", "\"13\"", "numbers from 1 to 12 or names (JAN to DEC)"),
            (&["--every", "* * * foo *"], "--every", "\"foo\"", "month field"),
            (&["--every", "* * * * 8"], "--every", "\"8\"", "numbers from 0 to 7 or names (SUN to SAT)"),
            (&["--every", "* * L * *"], "--every", "\"L\"", "day of month field"),
            (&["--every", "* * * * 1#2"], "--every", "\"1#2\"", "day of week field"),
            (&["--every", "*/0 * * * *"], "--every", "\"*/0\"", "steps (*/15)"),
            (&["--every", "5-1 * * * *"], "--every", "\"5-1\"", "ranges (1-5)"),
            (&["--every", "1,,2 * * * *"], "--every", "\"1,,2\"", "lists (1,2)"),
            (&["--every", "0 2 \u{1} * *"], "--every", "\\u{1}", "day of month field"),
            (
                &["--every", "0 0 30 2 *"],
                "--every",
                "\"0 0 30 2 *\"",
                "never comes: write a day that its month has",
            ),
            (&["--every", "@reboot"], "--every", "\"@reboot\"", "write --always instead"),
            (&["--every", "@sometimes"], "--every", "\"@sometimes\"", "write @hourly"),
            (long_args, "--every", "\"aaaa", "has 5000 characters, and 256 are the most"),
            // what does not go together
            (&["--every", "day", "--slot", "x"], "--every", "--slot", "leave one out"),
            (&["--every", "day", "--key", "x"], "--every", "--key", "leave one out"),
            (&["--every", "day", "--once"], "--once", "--once", "goes alone"),
            (&["--every", "day", "--always"], "--always", "--every", "goes alone"),
            (&["--once", "--tz", "UTC"], "--tz", "--tz", "say --every SCHEDULE too"),
            (&["--once", "--max-late", "1h"], "--max-late", "--max-late", "say --every SCHEDULE too"),
            (
                &["--once", "--scheduled-for", "x"],
                "--scheduled-for",
                "--scheduled-for",
                "say --every SCHEDULE too",
            ),
            (&[], "--every SCHEDULE", "--once", "what makes two runs the same work?"),
            // forgotten before its slot is over
            (&["--every", "month", "--remember", "7d"], "--remember", "7d", "write --remember 32d or longer"),
            (&["--every", "month", "--remember", "7d"], "--every", "\"month\"", "(up to 31d2h)"),
            (&["--every", "day", "--remember", "23h"], "--remember", "23h", "write --remember 2d or longer"),
            (
                &["--every", "15m", "--remember", "899s"],
                "--remember",
                "14m59s",
                "write --remember 15m or longer",
            ),
            (
                &["--every", "0 2 * * 1", "--remember", "2d"],
                "--remember",
                "2d",
                "write --remember 8d or longer",
            ),
        ],
    );
}

#[test]
fn zones_and_times() {
    let long: &'static str = Box::leak("a".repeat(3_000).into_boxed_str());
    let long_args: &'static [&'static str] = Box::leak(Box::new(["--tz", long]));
    refused(
        78,
        &["--job", "j", "--every", "day"],
        &[
            (&["--tz", ""], "--tz", "\"\"", "write a name of the IANA database"),
            (&["--tz", "berlin"], "--tz", "\"berlin\"", "such as Europe/Berlin"),
            (&["--catch-up", "most"], "--catch-up", "\"most\"", "write latest, none or all=DUR"),
            (&["--catch-up", "all"], "--catch-up", "\"all\"", "as in all=7d"),
            (&["--catch-up", "all=soon"], "--catch-up", "\"all=soon\"", "as in all=7d"),
            (&["--grace", "soon"], "--grace", "\"soon\"", "write 500ms"),
            (&["--keep-going"], "--keep-going", "", "say --catch-up all=DUR too"),
            (&["--catch-up", "all=7d", "--remember", "3d"], "--remember", "3d", "write --remember 9d"),
            (&["--tz", "Mars/Olympus"], "--tz", "\"Mars/Olympus\"", "is no time zone"),
            (&["--tz", "Europe/Berlin "], "--tz", "\"Europe/Berlin \"", "is no time zone"),
            (&["--tz", "+02:00"], "--tz", "\"+02:00\"", "is no time zone"),
            (&["--tz", "U\tTC"], "--tz", "\"U\\tTC\"", "is no time zone"),
            (&["--tz", "../../etc/passwd"], "--tz", "\"../../etc/passwd\"", "is no time zone"),
            (&["--tz", "/etc/localtime"], "--tz", "\"/etc/localtime\"", "is no time zone"),
            (long_args, "--tz", "\"aaaa", "\u{2026} is no time zone"),
            (&["--scheduled-for", ""], "--scheduled-for", "\"\"", "leave it out, or say --slot ID"),
            (&["--scheduled-for", "noon"], "--scheduled-for", "\"noon\"", "as in 2026-06-19T02:00:00Z"),
            (
                &["--scheduled-for", "2026-06-19"],
                "--scheduled-for",
                "\"2026-06-19\"",
                "write it with its offset",
            ),
            (
                &["--scheduled-for", "2026-06-19T02:00:00"],
                "--scheduled-for",
                "\"2026-06-19T02:00:00\"",
                "offset",
            ),
            (
                &["--scheduled-for", "2026-13-01T00:00:00Z"],
                "--scheduled-for",
                "2026-13-01",
                "is no scheduled time",
            ),
            (&["--scheduled-for", "backup-12"], "--scheduled-for", "\"backup-12\"", "as in backup-29697240"),
            (
                &["--scheduled-for", "9000-01-01T00:00:00Z"],
                "--scheduled-for",
                "9000-01-01",
                "lies in the future",
            ),
            (&["--scheduled-for=-009999-01-02T01:59:59Z"], "--scheduled-for", "-009999", "is too long ago"),
            (&["--max-late", ""], "--max-late", "\"\"", "write 500ms, 90s, 1h30m or 7d"),
            (&["--max-late", "5"], "--max-late", "\"5\"", "is not a length of time"),
            (&["--max-late", "soon"], "--max-late", "\"soon\"", "is not a length of time"),
            (&["--max-late=-1h"], "--max-late", "\"-1h\"", "is not a length of time"),
            (&["--max-late", "1y"], "--max-late", "\"1y\"", "is not a length of time"),
            (&["--max-late", "P1D"], "--max-late", "\"P1D\"", "is not a length of time"),
            (&["--max-late", "99999999999d"], "--max-late", "\"99999999999d\"", "is not a length of time"),
        ],
    );
}

#[test]
fn names_slots_parameters_and_keys() {
    let long: &'static str = Box::leak("a".repeat(600).into_boxed_str());
    let long_of = |flag: &'static str| -> &'static [&'static str] { Box::leak(Box::new([flag, long])) };
    let long_slot = long_of("--slot");
    let long_key = long_of("--key");
    let long_name: &'static [&'static str] = Box::leak(Box::new(["--once", "--resource", long]));
    refused(
        78,
        &JOB,
        &[
            (&["--slot", ""], "--slot", "\"\"", "write at least one character"),
            (&["--slot", " x"], "--slot", "\" x\"", "remove spaces at the ends"),
            (&["--slot", "a?b"], "--slot", "\"a?b\"", "holds '?' at character 2; allowed are"),
            (&["--slot", "a\nb"], "--slot", "\"a\\nb\"", "allowed are printable characters"),
            (long_slot, "--slot", "\"aaaa", "at most 128 are allowed"),
            (&["--with", "a"], "--with", "\"a\"", "write K=V, or K:=JSON"),
            (&["--with", "=1"], "--with", "\"=1\"", "1 to 64 are allowed"),
            (&["--with", "a b=1"], "--with", "\"a b=1\"", "allowed are letters, digits"),
            (&["--with", "a:=x"], "--with", "\"a:=x\"", "expected a value"),
            (&["--with", "a:=1e999"], "--with", "\"a:=1e999\"", "write it as a string"),
            (&["--with", "a:={\"b\":1,\"b\":2}"], "--with", "a:=", "appears twice; keep one"),
            (
                &["--with", "b=1", "--with", "a=1", "--with", "a=2"],
                "--with",
                "\"a=2\"",
                "appears twice; keep one",
            ),
            (&["--key", ""], "--key", "\"\"", "1 to 512 are allowed"),
            (&["--key", "a\nb"], "--key", "\"a\\nb\"", "allowed are all but control characters"),
            (long_key, "--key", "\"aaaa", "has 600 characters; 1 to 512 are allowed"),
            (&["--once", "--always"], "--always", "--once", "goes alone"),
            (&["--once", "--key", "x"], "--once", "--once", "goes alone"),
            (&["--once", "--resource", "x y"], "--resource", "\"x y\"", "allowed are letters, digits"),
            (&["--once", "--resource", ""], "--resource", "\"\"", "write at least one character"),
            (&["--once", "--resource=-x"], "--resource", "\"-x\"", "start with a letter"),
            (&["--once", "--resource", "a//b"], "--resource", "\"a//b\"", "write single slashes"),
            (&["--once", "--resource", "a/../b"], "--resource", "\"a/../b\"", "leave it out"),
            (long_name, "--resource", "\"aaaa", "at most 128 are allowed"),
            (&["--once", "--or", "j"], "--or", "\"j\"", "is named twice: leave one out"),
            (&["--once", "--or", ""], "--or", "\"\"", "write at least one character"),
        ],
    );
    refused(
        78,
        &[],
        &[
            (&["--job", "", "--once"], "--job", "\"\"", "write at least one character"),
            (&["--job", "a b", "--once"], "--job", "\"a b\"", "allowed are letters"),
            (&["--job=-x", "--once"], "--job", "\"-x\"", "start with a letter"),
            (&["--job", "../x", "--once"], "--job", "\"../x\"", "start with a letter"),
            (&["--once"], "--job", "--job", "no job: name one of semel.toml"),
        ],
    );
}

#[test]
fn policies() {
    const LENGTH: &str = "is not a length of time: write 500ms";
    refused(
        78,
        &ONCE,
        &[
            (&["--ttl", "soon"], "--ttl", "\"soon\"", LENGTH),
            (&["--timeout", "5x"], "--timeout", "\"5x\"", LENGTH),
            (&["--kill-after", ""], "--kill-after", "\"\"", LENGTH),
            (&["--hold-at-least", "1e9s"], "--hold-at-least", "\"1e9s\"", LENGTH),
            (&["--lock-delay", "NaN"], "--lock-delay", "\"NaN\"", LENGTH),
            (&["--backoff", " 5s"], "--backoff", "\" 5s\"", LENGTH),
            (&["--keep", "1s2"], "--keep", "\"1s2\"", LENGTH),
            (&["--remember=-1d"], "--remember", "\"-1d\"", LENGTH),
            (&["--probe", "true", "--probe-timeout", "x"], "--probe-timeout", "\"x\"", LENGTH),
            (&["--ttl", "8d"], "--ttl", "8d", "is out of range: write 1s to 7d"),
            (&["--ttl", "5s", "--kill-after", "10s"], "--ttl 5s", "--kill-after 10s", "use --ttl"),
            (&["--if-busy", "later"], "--if-busy", "\"later\"", "write skip, wait=DUR"),
            (&["--if-busy", "wait=x"], "--if-busy", "\"wait=x\"", "a length of time, as in wait=5m"),
            (&["--on-lost", "maybe"], "--on-lost", "'maybe'", "[possible values: retry, hold, probe]"),
            (&["--on-lost", "probe"], "--on-lost", "probe", "write --probe CMD too"),
            (&["--on-lost", "hold", "--probe", "true"], "--probe", "hold", "leave one of them out"),
            (&["--max-failures", "x"], "--max-failures", "'x'", "write a number from 0"),
            (&["--max-failures", "-1"], "--max-failures", "'-1'", "write a number from 0"),
            (&["--retries", "1.5"], "--retries", "'1.5'", "write a number from 0"),
            (&["--retries", "99999999999"], "--retries", "'99999999999'", "write a number from 0"),
            (&["--skip-code", "256"], "--skip-code", "'256'", "from 0 to 255"),
            (&["--volatile", "/a"], "--volatile", "--volatile", "say --payload FILE too"),
            (&["--payload", "good.json", "--volatile", "a"], "--volatile", "\"a\"", "write /a"),
            (&["--payload", "good.json", "--volatile", "/a~3"], "--volatile", "\"/a~3\"", "write ~0 for '~'"),
            // an address may hold a password: it is not quoted
            (&["--store", "ledger"], "--store", "--store", "as in sqlite:/var/lib/semel/ledger.db"),
            (&["--store", "mysql://me:pw@h"], "--store", "\"mysql\"", "use sqlite:PATH"),
            (&["--store", "sqlite:"], "--store", "sqlite:", "write its path, as in"),
        ],
    );
    refused(65, &ONCE, &[(&["--payload", "open.json"], "--payload", "open.json", "expected")]);
}

#[test]
fn plans() {
    refused(
        78,
        &SLOT,
        &[
            (&["--choose", "x"], "--choose", "\"x\"", "write NAME=a,b,c"),
            (&["--choose", ""], "--choose", "\"\"", "write NAME=a,b,c"),
            (&["--choose", "x="], "--choose", "\"x=\"", "leave out the comma"),
            (&["--choose", "x=a,,b"], "--choose", "\"x=a,,b\"", "leave out the comma"),
            (&["--choose", "x=a, b"], "--choose", "\"x=a, b\"", "leave it out, or write"),
            (&["--choose", "=a,b"], "--choose", "\"=a,b\"", "write 1 to 64"),
            (&["--choose", "x y=a"], "--choose", "\"x y=a\"", "allowed are letters"),
            (&["--choose", "x=a,a"], "--choose", "\"x=a,a\"", "keep one"),
            (&["--choose", "x:=1"], "--choose", "\"x:=1\"", "write x:=[\"a\",\"b\"]"),
            (&["--choose", "x:=[1"], "--choose", "\"x:=[1\"", "write x:=[\"a\",\"b\"]"),
            (&["--choose", "x:=[1]"], "--choose", "\"x:=[1]\"", "write it in quotes"),
            (&["--choose", "x=a", "--choose", "x=b"], "--choose", "x", "is in the plan twice; keep one"),
            (&["--choose", "x=a", "--recent", "x=1:f"], "--choose, --recent", "x", "twice; keep one"),
            (&["--choose", "seed=a"], "--choose", "seed", "use another name"),
            (&["--recent", "x"], "--recent", "\"x\"", "write NAME=N:FIELD"),
            (&["--recent", "x=5"], "--recent", "\"x=5\"", "write NAME=N:FIELD"),
            (&["--recent", "x=0:f"], "--recent", "\"x=0:f\"", "write 1 to 1000"),
            (&["--recent", "x=a:f"], "--recent", "\"x=a:f\"", "write x=10:FIELD"),
            (&["--recent", "x=99999999:f"], "--recent", "\"x=99999999:f\"", "write 1 to 1000"),
            (&["--recent", "x=5:"], "--recent", "\"x=5:\"", "write x=5:FIELD"),
            (&["--recent", "x=5:/a~2"], "--recent", "\"x=5:/a~2\"", "write ~0 for '~'"),
        ],
    );
    refused(
        78,
        &["--job", "j", "--always"],
        &[(&["--choose", "x=a"], "--always", "a plan", "use --every, --slot, --with, --key or --once")],
    );
    refused(
        65,
        &SLOT,
        &[
            (&["--plan", "nowhere.json"], "--plan", "nowhere.json", "write the path of a file"),
            (&["--plan", "folder"], "--plan", "folder", "write the path of a file"),
            (&["--plan", "list.json"], "--plan", "list.json", "no object; write a JSON object"),
            (&["--plan", "open.json"], "--plan", "open.json", "write a JSON object"),
            // a command may hold a secret: it is not quoted
            (
                &["--plan-cmd", "echo x"],
                "--plan-cmd",
                "expected a value",
                "write one that prints a JSON object",
            ),
            (&["--plan-cmd", "exit 3"], "--plan-cmd", "3", "write one that prints a JSON object"),
            (&["--plan-cmd", "true"], "--plan-cmd", "the text ends", "write one that prints a JSON object"),
            (&["--plan-cmd", "kill -9 $$"], "--plan-cmd", "signal 9", "write one that prints a JSON object"),
        ],
    );
}

#[test]
fn placeholders() {
    const NONE: &str = "is no placeholder: there are {plan.NAME}";
    refused(
        78,
        &["--job", "j", "--slot", "s", "--fill"],
        &[
            // arguments may hold secrets: they are not quoted, only what stands in braces
            (&["--", "echo", "{"], "--fill: argument 1", "{ without }", "write {{ for a brace"),
            (&["--", "echo", "a", "}"], "--fill: argument 2", "} without {", "write }} for a brace"),
            (&["--", "echo", "{}"], "--fill: argument 1", "{}", NONE),
            (&["--", "echo", "{Slot}"], "--fill: argument 1", "{Slot}", NONE),
            (&["--", "echo", "{plan}"], "--fill: argument 1", "{plan}", NONE),
            (&["--", "echo", "{a b}"], "--fill: argument 1", "{a b}", NONE),
            (&["--", "echo", "{plan.x}"], "--fill", "{plan.x}", "give it with --choose"),
            (&["--choose", "y=a", "--", "echo", "{plan.x}"], "--fill", "{plan.x}", "give it with --choose"),
            (&["--", "echo", "{with.x}"], "--fill: argument 1", "{with.x}", "give it with --with x=VALUE"),
            (&["--", "sh", "-c", "echo {slot}"], "--fill: argument 2", "a shell's script", "as in: sh -c"),
        ],
    );
    refused(
        78,
        &["--job", "j", "--once", "--fill"],
        &[(&["--", "echo", "{slot}"], "--fill: argument 1", "{slot}", "give it with --every SCHEDULE")],
    );
}

/// What stands in a file, and what the line must have: its place, what was given, and a piece of what is said.
type FileRow = (&'static str, &'static str, &'static str, &'static str);

pub(crate) fn check(home: &Home) -> Said {
    home.launch(&mut home.semel(["config", "check"])).end()
}

#[test]
fn files() {
    const JOB: &str = "[jobs.a]\ncommand = \"echo x >> effects\"\n";
    let rows: &[FileRow] = &[
        ("every = \"daily\"", "3:1", "\"daily\"", "write day, week, month"),
        ("every = \"0 2 * *\"", "3:1", "\"0 2 * *\"", "has 4 fields; a cron expression has five"),
        ("every = 15", "3:9", "15", "write a text in quotes"),
        ("every = \"day\"\ntz = \"Mars/Olympus\"", "4:1", "\"Mars/Olympus\"", "such as Europe/Berlin"),
        ("every = \"day\"\nmax-late = \"soon\"", "4:12", "\"soon\"", "write 500ms"),
        ("max-late = \"1h\"\nonce = true", "3:1", "max-late", "say every SCHEDULE too"),
        ("every = \"month\"\nremember = \"7d\"", "4:1", "7d", "write remember 32d or longer"),
        ("every = \"day\"\nslot = \"x\"", "3:1", "slot", "leave one out"),
        ("slot = \"a?\"", "3:8", "\"a?\"", "allowed are printable"),
        ("slot = 2026-06-19", "3:8", "2026-06-19", "write it in quotes"),
        ("every = \"day\"\ncatch-up = \"most\"", "4:12", "\"most\"", "write catch-up = \"latest\""),
        ("grace = \"1h\"\nonce = true", "3:1", "grace", "say every SCHEDULE too"),
        ("once = \"yes\"", "3:8", "\"yes\"", "write once = true"),
        ("once = true\nkey = \"x\"", "3:1", "once", "goes alone"),
        ("key = \"\"", "3:7", "key", "or leave it out"),
        ("with = { \"a=b\" = 1 }", "3:10", "\"a=b\"", "write a name of letters"),
        ("with = { \"\" = 1 }", "3:10", "with", "write a name of letters"),
        ("with = { a = 1979-05-27 }", "3:14", "1979-05-27", "write it in quotes"),
        ("with = { a = inf }", "3:14", "with.a", "write it in quotes"),
        ("with = [\"a=1\"]", "3:8", "a list", "write parameters, as in"),
        ("slot = \"s\"\nchoose = [\"x\"]", "4:11", "\"x\"", "write NAME=a,b,c"),
        ("slot = \"s\"\nchoose = [\"x=a\", \"x=b\"]", "4:1", "x", "twice; keep one"),
        ("slot = \"s\"\nchoose = \"x=a\"", "4:10", "\"x=a\"", "write a list of texts"),
        ("slot = \"s\"\nrecent = [\"x=0:f\"]", "4:11", "\"x=0:f\"", "write 1 to 1000"),
        ("always = true\nchoose = [\"x=a\"]", "3:1", "always", "use every, slot"),
        ("resource = \"x y\"", "3:12", "\"x y\"", "write a name in quotes"),
        ("or = [\"\"]", "3:7", "\"\"", "write at least one character"),
        ("or = [3]", "3:7", "3", "write a text in quotes"),
        ("ttl = 5", "3:7", "5", "as in ttl = \"5s\""),
        ("ttl = \"5x\"", "3:7", "\"5x\"", "write 500ms"),
        ("ttl = \"8d\"", "3:1", "8d", "write 1s to 7d"),
        ("ttl = \"5s\"\nkill-after = \"10s\"", "3:1", "kill-after 10s", "use ttl"),
        ("retries = -1", "3:11", "-1", "write a number from 0"),
        ("skip-code = 256", "3:13", "256", "write an exit code from 0 to 255"),
        ("if-busy = \"later\"", "3:11", "\"later\"", "write if-busy = \"skip\""),
        ("on-lost = \"maybe\"", "3:11", "\"maybe\"", "write on-lost = \"retry\""),
        ("on-lost = \"probe\"", "3:1", "probe", "write probe CMD too"),
        ("on-lost = \"hold\"\nprobe = \"true\"", "4:1", "hold", "leave one of them out"),
        ("volatile = [\"/a\"]", "3:1", "volatile", "say payload FILE too"),
        ("payload = \"p.json\"\nvolatile = [\"a\"]", "4:13", "\"a\"", "write /a"),
        ("tll = \"5s\"", "3:1", "\"tll\"", "did you mean \"ttl\"?"),
        ("schedule = \"day\"", "3:1", "\"schedule\"", "write one of command, directory"),
        ("store = \"sqlite:x\"", "3:1", "store", "stands at the top"),
        ("directory = \"\"", "3:13", "directory", "write a path in quotes"),
        ("env = { \"A B\" = \"x\" }", "3:9", "\"A B\"", "write letters, digits and _"),
        ("env = { SEMEL_X = \"x\" }", "3:9", "SEMEL_X", "leave it out"),
        ("env = { A = 1 }", "3:13", "1", "write a text in quotes"),
        ("env = { A = { file = \"x\" } }", "3:13", "env: A", "write { env = \"NAME\" }"),
        ("env = { MY_TOKEN = \"hunter2\" }", "3:20", "MY_TOKEN", "write MY_TOKEN = { env = \"MY_TOKEN\" }"),
    ];
    let whole: &[FileRow] = &[
        ("[jobs.a]\nonce = true\n", "1:7", "\"a\"", "write command = "),
        ("[jobs.a]\ncommand = []\n", "2:11", "command", "names no program: write"),
        ("[jobs.a]\ncommand = \"\"\n", "2:11", "command", "it is empty: write"),
        ("[jobs.a]\ncommand = [1]\n", "2:12", "command", "write it in quotes"),
        (
            "[jobs.a]\ncommand = [\"echo\", \"{Slot}\"]\nslot = \"s\"\nfill = true\n",
            "4:1",
            "{Slot}",
            "is no placeholder",
        ),
        (
            "[jobs.a]\ncommand = [\"echo\", \"{plan.x}\"]\nslot = \"s\"\nfill = true\n",
            "4:1",
            "{plan.x}",
            "give it with choose",
        ),
        ("[jobs.\"a b\"]\ncommand = \"x\"\n", "1:7", "\"a b\"", "allowed are letters"),
        ("[jobs]\na = 3\n", "2:5", "3", "write a table, as in [jobs.publish]"),
        ("jobs = 3\n", "1:8", "3", "write a table"),
        ("defaults = true\n", "1:12", "true", "write a table, as in [defaults]"),
        ("[defaults]\ncommand = \"x\"\n", "2:1", "command", "write it under [jobs.NAME]"),
        ("[defaults]\nttl = \"x\"\n", "2:7", "\"x\"", "write 500ms"),
        (
            "[defaults]\nremember = \"7d\"\n[jobs.a]\ncommand = \"x\"\nevery = \"month\"\n",
            "5:1",
            "\"month\"",
            "write remember 32d",
        ),
        ("ttl = \"5s\"\n", "1:1", "ttl", "write it under [defaults] or [jobs.NAME]"),
        ("[job.a]\ncommand = \"x\"\n", "1:2", "\"job\"", "did you mean \"jobs\"?"),
        ("[publish]\ncommand = \"x\"\n", "1:2", "\"publish\"", "if it is a job, write [jobs.publish]"),
        // an address may hold a password: it is not quoted
        ("store = \"ledger.db\"\n", "1:9", "store", "write store = \"sqlite:"),
        ("store = \"mysql://h/x\"\n", "1:9", "\"mysql\"", "use sqlite:PATH"),
        ("store = \"postgres://me:hunter2@h/x\"\n", "1:9", "a password", "write store = { env = "),
        ("store = { env = \"A B\" }\n", "1:17", "store", "as in { env = "),
        ("store = 3\n", "1:9", "3", "write an address in quotes"),
        ("[jobs.a\n", "1:8", "this is no TOML", "expected `]`"),
        ("a = = 3\n", "1:5", "this is no TOML", "expected"),
        ("a = 1\na = 2\n", "2:1", "this is no TOML", "duplicate key: keep one"),
        ("a = \"x\n", "1:", "this is no TOML", "expected"),
    ];
    let home = Home::new();
    let jobs = rows.iter().map(|(key, place, given, says)| (format!("{JOB}{key}\n"), place, given, says));
    let whole = whole.iter().map(|(text, place, given, says)| ((*text).to_owned(), place, given, says));
    for (text, place, given, says) in jobs.chain(whole) {
        home.write("semel.toml", &text);
        let said = check(&home);
        assert_eq!(said.code, 78, "{text}: {}", said.text());
        let out = said.text();
        let line = out.lines().next().unwrap_or_default();
        is_clear(line, &text, [&format!("semel.toml:{place}"), given, says]);
        assert!(
            !out.contains("hunter2") && !said.err.contains("hunter2"),
            "a secret is told: {out}{}",
            said.err
        );
        assert!(said.err.contains("wrong with"), "{}", said.err);
        // and nothing of it is run
        let said = home.launch(&mut home.semel(["run", "a"])).end();
        assert!(matches!(said.code, 78), "{text}: {} {}", said.code, said.err);
        assert!(!said.err.contains("hunter2"), "{}", said.err);
    }
    std::fs::remove_file(home.path("semel.toml")).unwrap();
    nothing_happened(&home);
}
