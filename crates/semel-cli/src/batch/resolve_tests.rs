//! What was typed: what becomes of it, and what is said of what makes no sense.

#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout)]

use std::path::PathBuf;

use clap::Parser;

use super::args::BatchArgs;
use super::input::{Format, From};
use super::resolve::{Breaker, Resolved, resolve};
use crate::plan::Surroundings;
use crate::trouble::Trouble;

#[derive(Debug, Parser)]
#[command(no_binary_name = true)]
struct Typed {
    #[command(flatten)]
    args: BatchArgs,
}

fn typed(words: &str) -> Result<Resolved, Trouble> {
    let Typed { args } = Typed::try_parse_from(words.split_whitespace()).unwrap();
    resolve(&args, &Surroundings::of(&[("PATH", "/usr/bin:/bin")]))
}

const COMMAND: &str = "-- true {slug}";

#[test]
fn what_was_typed_is_resolved() {
    let batch = typed(
        "posts.csv --job posts --key site,/meta/slug -j 8 --share --resource site --stop-after 5 --pause 1m \
         --format csv --delimiter ; --volatile /text --stdin --failed-to failed.csv --slot 7 --with a=b --retries 2 \
         -- true {slug}",
    )
    .unwrap();
    assert_eq!(batch.from, From::File(PathBuf::from("posts.csv")));
    assert_eq!(batch.work.to_string(), "posts@7?a=b");
    let keys: Vec<&str> = batch.reading.keys.fields.iter().map(|field| field.name()).collect();
    assert_eq!(keys, ["site", "meta.slug"]);
    assert_eq!((batch.jobs, batch.share, batch.stdin, batch.policy.retries), (8, true, true, 2));
    assert_eq!(batch.breaker, Some(Breaker { after: 5, pause_ms: Some(60_000) }));
    assert_eq!(batch.resource.as_str(), "site");
    assert_eq!((batch.reading.format, batch.reading.delimiter), (Some(Format::Csv), Some(b';')));
    assert_eq!(batch.failed_to, Some(PathBuf::from("failed.csv")));
}

#[test]
fn little_is_needed() {
    let batch = typed("- --job posts --key slug -- true {slug}").unwrap();
    assert_eq!((batch.from, batch.jobs, batch.breaker), (From::Stdin, 1, None));
    assert_eq!((batch.work.to_string(), batch.resource.as_str()), ("posts".to_owned(), "posts"));
    assert_eq!(batch.reading.field, "line");
    let own = typed("x --job posts --key slug --resource site/{site} --share --if-busy fail -- true {slug}")
        .unwrap();
    assert_eq!((own.resource.as_str(), own.item_resource.as_deref()), ("posts", Some("site/{site}")));

    let lines = typed("- --job posts --format lines --field url --resource site -- true {}").unwrap();
    assert_eq!(lines.reading.keys.fields.first().unwrap().name(), "url");
    assert_eq!(lines.resource.as_str(), "site");
}

#[test]
fn what_makes_no_sense_is_said_before_anything_is_opened() {
    for (words, why) in [
        (
            "x --key slug",
            "no job: say --job, as in: semel batch posts.jsonl --job posts --key slug -- ./publish.sh {slug}",
        ),
        (
            "x --job a//b --key slug",
            "--job \"a//b\": has an empty segment at character 3; write single slashes, none at the ends",
        ),
        (
            "x --job p",
            "by which fields is an item known? Say --key, as in --key site,slug; --key line for plain lines",
        ),
        ("x --job p --key a,,b", "--key \"\": a field without a name: write the name of one"),
        ("x --job p --key a,/a", "--key \"/a\": it is named twice: leave one out"),
        (
            "x --job p --key a..b",
            "--key \"a..b\": a..b has a dot too many: write a.b for the field b inside a",
        ),
        ("x --job p --key a -j 0", "-j \"0\": write a number from 1 to 1024"),
        ("x --job p --key a -j many", "-j \"many\": write a number from 1 to 1024"),
        ("x --job p --key a --stop-after 0", "--stop-after \"0\": write a number from 1 to 4294967295"),
        ("x --job p --key a --pause 5s", "--pause without --stop-after: say after how many failures"),
        (
            "x --job p --key a --stop-after 2 --pause 0s",
            "--pause 0: a pause has a length; leave it out to stop for good",
        ),
        (
            "x --job p --key a --format jsonl --delimiter ;",
            "--delimiter is for CSV: leave it out, or say --format csv",
        ),
        (
            "x --job p --key a --delimiter ab",
            "--delimiter \"ab\": write one sign, as in --delimiter ';', or tab; not a quote or a line break",
        ),
        (
            "x --job p --key a --format csv --field x",
            "--field names a line: say it with --format lines or nul",
        ),
        (
            "x --job p --format nul --volatile /text",
            "--volatile names a field that may differ, and a line has no others: leave it out",
        ),
        ("x --job p --key a --field /x", "--field \"/x\": it is a plain name: leave out the '/'"),
        ("x --job p --key a --volatile x", "--volatile \"x\": a JSON pointer starts with '/': write /x"),
        (
            "x --job p --key a --volatile /*",
            "--volatile: volatile pointer /*: '*' is not supported; name each member",
        ),
        (
            "x --job p --key a --resource a//b",
            "--resource \"a//b\": has an empty segment at character 3; write single slashes, none at the ends",
        ),
        (
            "x --job p --key a --resource site-{plan.x}",
            "--resource: {plan.x}: a batch has no plan; write {item.plan.x} for a field of the items",
        ),
        (
            "x --job p --key a --share --if-busy fail",
            "--share and --if-busy: those that share are never busy; leave one of them out",
        ),
        (
            "x --job p --key a --dry-run --failed-to y",
            "--failed-to with --dry-run: nothing runs, nothing fails; leave one out",
        ),
        (
            "x --job p --key a --import-joblog x",
            "--import-joblog names the items' own file: name parallel's log",
        ),
    ] {
        let wrong = typed(&format!("{words} {COMMAND}")).unwrap_err();
        assert_eq!((wrong.code, wrong.line.as_str()), (78, why), "{words}");
    }
    for (words, why) in [
        (
            "x --job p --key a",
            "no command: write it after --, as in: semel batch posts.jsonl --job posts --key slug -- ./publish.sh {slug}",
        ),
        (
            "x --job p --key a --format csv -- true {}",
            "argument 1: {} stands for a line, and the items are no lines: name a field, as in {slug}",
        ),
        (
            "x --job p --key a -- sh -c {slug}",
            "argument 2: a placeholder in a shell's script would be read by the shell: hand it over as an argument, as in: sh -c 'echo \"$1\"' sh {slug}",
        ),
    ] {
        let wrong = typed(words).unwrap_err();
        assert_eq!((wrong.code, wrong.line.as_str()), (78, why), "{words}");
    }
    assert_eq!(typed("x --job p --key a -- no-such-program").unwrap_err().code, 127);
}

#[test]
fn the_fields_of_the_input_are_checked_when_it_is_opened() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("posts.csv");
    std::fs::write(&path, "slug,title\na,b\n").unwrap();
    let open = |words: &str| typed(&format!("{} --job p {words}", path.display())).unwrap().open();
    assert!(open("--key slug -- true {slug}").is_ok());
    let why = |words: &str| open(words).err().unwrap().line;
    let name = path.display();
    assert_eq!(
        why("--key slug -- true {}"),
        "argument 1: {} stands for a line, and the items are no lines: name a field, as in {slug}"
    );
    assert_eq!(
        why("--key id -- true"),
        format!("--key id: {name} has no such field, it has slug, title; nothing was run")
    );
    assert_eq!(
        why("--key slug -- true {id}"),
        format!(
            "argument 1: {{id}}: the item has no field id; write {{{{ and }}}} for braces; {name} has slug, title; nothing was run"
        )
    );
}
