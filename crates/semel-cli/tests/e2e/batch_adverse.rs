//! What goes wrong around a batch: its disk, its input, its commands' output. A clear error, and nothing is lost.

use std::io::Write;
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};

use crate::full_disk::Disk;
use crate::support::{Home, SOON, until};

fn batch(home: &Home, flags: &str, script: &str) -> Command {
    let mut command = home.semel(["batch"]);
    command.args(flags.split_whitespace()).args(["--", "sh", "-c", script, "sh", "{line}"]);
    command
}

#[test]
fn a_disk_that_is_full_in_the_middle_stops_it_and_nothing_is_lost() {
    let home = Home::new();
    let Some(disk) = Disk::new(&home, "a_disk_that_is_full_in_the_middle_stops_it_and_nothing_is_lost")
    else {
        return;
    };
    home.write("items", (0..40).map(|n| format!("{n}\n")).collect::<String>());
    let fill = "dd if=/dev/zero of=store/ballast bs=4096 2> /dev/null";
    let script = format!("echo $1 >> effects; if [ $1 = 12 ]; then {fill}; fi; true");
    let flags = "items --job posts --format lines --ttl 6s --kill-after 1s";
    let said = home.launch(&mut batch(&home, flags, &script)).end();
    assert!([1, 69, 75].contains(&said.code), "{said:?}");
    assert!(said.err.contains("full") || said.err.contains("could not be recorded"), "{said:?}");
    let came = home.lines("effects").len();
    assert!(came < 40, "{came} items after the disk was full");
    disk.free();
    home.launch(&mut batch(&home, flags, "echo $1 >> effects")).end().exits(0);
    let mut effects = home.lines("effects");
    let all = effects.len();
    effects.sort();
    effects.dedup();
    assert_eq!(effects.len(), 40, "each is done");
    assert!(all - 40 <= 16, "{} came twice: more than can have been without a record", all - 40);
}

/// A peer that goes away with bytes unread resets the connection: the read fails, it does not end.
#[test]
fn an_input_that_cannot_be_read_any_further_keeps_what_came_before() {
    let home = Home::new();
    let (mut ours, theirs) = UnixStream::pair().unwrap();
    let mut command = batch(&home, "- --job posts --format lines", "echo $1 >> effects");
    command.stdin(Stdio::from(std::os::fd::OwnedFd::from(theirs.try_clone().unwrap())));
    let run = home.launch(&mut command);
    ours.write_all(b"a\nb\n").unwrap();
    home.wait_lines("effects", 2);
    (&theirs).write_all(b"x").unwrap();
    drop(theirs);
    drop(ours);
    let said = run.end().exits(65);
    let said = said.saying("the input cannot be read any further").saying("give it again to go on");
    assert!(said.err.contains("done 2,"), "{said:?}");
    home.write("items", "a\nb\nc\n");
    home.launch(&mut batch(&home, "items --job posts --format lines", "echo $1 >> effects")).end().exits(0);
    assert_eq!(home.lines("effects"), ["a", "b", "c"]);
}

#[test]
fn an_input_that_is_a_directory_runs_nothing() {
    let home = Home::new();
    std::fs::create_dir(home.path("items")).unwrap();
    let said = home.launch(&mut batch(&home, "items --job posts --format lines", "echo $1 >> effects")).end();
    assert!([65, 78].contains(&said.code), "{said:?}");
    assert!(said.err.contains("directory"), "{said:?}");
    assert!(!home.path("effects").exists());
}

#[test]
fn what_is_no_json_on_line_70_000_is_said_with_its_line_and_the_others_are_done() {
    let home = Home::new();
    const BAD: usize = 70_000;
    let mut file = std::io::BufWriter::new(std::fs::File::create(home.path("items.jsonl")).unwrap());
    for n in 1..=BAD + 3 {
        match n {
            BAD => writeln!(file, "{{\"id\":{n}").unwrap(),
            // few are run: the others are the same item
            n if n < BAD => writeln!(file, "{{\"id\":{}}}", n % 7).unwrap(),
            n => writeln!(file, "{{\"id\":{n}}}").unwrap(),
        }
    }
    drop(file);
    let mut command = home.semel(["batch", "items.jsonl", "--job", "posts", "--key", "id", "--"]);
    command.args(["sh", "-c", "echo $1 >> effects", "sh", "{id}"]);
    let said = home.launch(&mut command).end().exits(65);
    let said = said.saying("line 70000: is no JSON at character").saying("done 10,").saying("wrong input 1");
    assert!(said.err.contains("duplicates 69992"), "{said:?}");
    let mut effects = home.numbers("effects");
    effects.sort();
    assert_eq!(effects, [0, 1, 2, 3, 4, 5, 6, 70_001, 70_002, 70_003]);
}

/// 100 MB through a pipe that is read slowly: all of it arrives, and none of it is kept.
#[test]
fn a_flood_of_output_is_neither_lost_nor_kept_in_memory() {
    const ITEMS: usize = 4;
    const BYTES: usize = 25 * 1024 * 1024;
    let home = Home::new();
    home.write("items", (0..ITEMS).map(|n| format!("{n}\n")).collect::<String>());
    let script = format!("head -c {BYTES} /dev/zero; echo $1 >> effects");
    let mut command = batch(&home, "items --job posts --format lines -j 2", &script);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut counted = home
        .plain("wc")
        .arg("-c")
        .stdin(child.stdout.take().unwrap())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut most_kib = 0;
    until("it ends", SOON, || {
        let status = std::fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap_or_default();
        let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let peak = peak.and_then(|line| line.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok());
        most_kib = most_kib.max(peak.unwrap_or(0));
        child.try_wait().unwrap().is_some()
    });
    let mut out = String::new();
    std::io::Read::read_to_string(&mut counted.stdout.take().unwrap(), &mut out).unwrap();
    counted.wait().unwrap();
    assert!(child.wait().unwrap().success());
    assert_eq!(out.trim().parse::<usize>().unwrap(), ITEMS * BYTES);
    assert_eq!(home.lines("effects").len(), ITEMS);
    assert!(most_kib > 0 && most_kib < 64 * 1024, "{most_kib} KiB");
}

/// Large items, many more than may be kept: memory is bounded by bytes.
#[test]
fn large_items_are_not_read_ahead_beyond_some_bytes() {
    const ITEMS: usize = 300;
    let home = Home::new();
    let mut file = std::io::BufWriter::new(std::fs::File::create(home.path("items.jsonl")).unwrap());
    let text = "x".repeat(900 * 1024);
    for n in 0..ITEMS {
        writeln!(file, "{{\"id\":{n},\"text\":\"{text}\"}}").unwrap();
    }
    drop(file);
    let mut go_on = home.gate("go-on");
    let mut command =
        home.semel(["batch", "items.jsonl", "--job", "posts", "--key", "id", "--stop-after", "1", "--"]);
    command.args(["sh", "-c", "echo $1 >> effects; read x < go-on; false", "sh", "{id}"]);
    let run = home.launch(&mut command);
    home.wait_lines("effects", 1);
    let pid = run.pid();
    let rss = || {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap().to_owned();
        line.trim().strip_suffix(" kB").unwrap().trim().parse::<u64>().unwrap()
    };
    // it reads ahead as far as it will: the same twice is as far as it goes
    let mut last = 0;
    until("it reads no further", SOON, || {
        std::thread::sleep(std::time::Duration::from_millis(300));
        std::mem::replace(&mut last, rss()) == last
    });
    go_on.open(2);
    run.end().exits(1);
    assert!(last < 128 * 1024, "{last} KiB");
}
