//! A real terminal.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};
use std::sync::{Arc, Mutex};

use crate::support::{Home, SOON, until};

struct Terminal {
    keyboard: File,
    screen: Arc<Mutex<String>>,
    child: Child,
}

impl Terminal {
    /// The command as the leader of a session on a new terminal of 33 × 77.
    fn run(mut command: Command) -> Terminal {
        let (mut master, mut slave) = (-1, -1);
        let size = libc::winsize { ws_row: 33, ws_col: 77, ws_xpixel: 0, ws_ypixel: 0 };
        // SAFETY: the numbers and the size are valid for the call.
        let made =
            unsafe { libc::openpty(&mut master, &mut slave, std::ptr::null_mut(), std::ptr::null(), &size) };
        assert_eq!(made, 0);
        // SAFETY: both are new and nobody else's.
        let (master, slave) = unsafe { (File::from_raw_fd(master), OwnedFd::from_raw_fd(slave)) };
        // SAFETY: no memory is involved.
        unsafe { libc::fcntl(master.as_raw_fd(), libc::F_SETFD, libc::FD_CLOEXEC) };
        command.stdin(slave.try_clone().unwrap()).stdout(slave.try_clone().unwrap()).stderr(slave);
        let lead = || {
            // SAFETY: both are plain system calls.
            unsafe {
                libc::setsid();
                libc::ioctl(0, libc::TIOCSCTTY, 0);
            }
            Ok(())
        };
        // SAFETY: only system calls between fork and exec.
        unsafe { command.pre_exec(lead) };
        let child = command.spawn().unwrap();
        drop(command);
        let screen = Arc::new(Mutex::new(String::new()));
        let (mut reader, seen) = (master.try_clone().unwrap(), screen.clone());
        std::thread::spawn(move || {
            let mut buffer = [0; 1024];
            while let Ok(n) = reader.read(&mut buffer) {
                seen.lock().unwrap().push_str(&String::from_utf8_lossy(&buffer[..n]));
            }
        });
        Terminal { keyboard: master, screen, child }
    }

    fn type_in(&mut self, keys: &str) {
        self.keyboard.write_all(keys.as_bytes()).unwrap();
    }

    fn screen(&self) -> String {
        self.screen.lock().unwrap().clone()
    }

    #[track_caller]
    fn see(&self, text: &str) {
        until(&format!("`{text}` on the screen"), SOON, || self.screen().contains(text));
    }

    #[track_caller]
    fn end(&mut self) -> i32 {
        until("its end", SOON, || self.child.try_wait().unwrap().is_some());
        self.child.wait().unwrap().code().unwrap()
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            println!("screen: {}", self.screen());
        }
    }
}

#[test]
fn the_command_has_the_terminal() {
    let home = Home::new();
    let script = "test -t 0 && test -t 1 && test -t 2 && echo is-a-tty; stty size; read line; echo \"line:$line:\"; exit 6";
    let mut terminal = Terminal::run(home.work("--job a --once", script));
    terminal.see("is-a-tty");
    terminal.see("33 77");
    terminal.type_in("hello\n");
    terminal.see("line:hello:");
    assert_eq!(terminal.end(), 6);
}

#[test]
fn ctrl_c_reaches_the_command_once_and_semel_exits_130() {
    let home = Home::new();
    let script =
        "trap 'echo x >> got; trap - INT; kill -INT $$' INT; echo rea\"\"dy; while :; do sleep 0.05; done";
    let mut terminal = Terminal::run(home.work("--job a --once --max-failures 1", script));
    terminal.see("ready");
    terminal.type_in("\x03");
    assert_eq!(terminal.end(), 130);
    assert_eq!(home.lines("got").len(), 1);
    assert_eq!(home.alive(), [0; 0]);
    home.run("--job a --once --max-failures 1", "echo x >> effects").exits(0);
    assert_eq!(home.lines("effects").len(), 1, "a person's Ctrl-C is no failure");
}

#[test]
fn a_command_that_handles_ctrl_c_goes_on_and_gets_each_once() {
    let home = Home::new();
    let script = "trap 'echo got-INT' INT; echo rea\"\"dy
        while :; do if read line; then echo \"line:$line:\"; [ \"$line\" = quit ] && exit 0; fi; done";
    let mut terminal = Terminal::run(home.work("--job a --once", script));
    terminal.see("ready");
    for round in 1..=3 {
        terminal.type_in("\x03");
        until("the trap ran", SOON, || terminal.screen().matches("got-INT").count() >= round);
        // a second delivery would be seen before the answer to this
        terminal.type_in(&format!("round{round}\n"));
        terminal.see(&format!("line:round{round}:"));
        assert_eq!(terminal.screen().matches("got-INT").count(), round);
    }
    terminal.type_in("quit\n");
    assert_eq!(terminal.end(), 0);
}

#[test]
fn a_skip_is_one_line_on_a_terminal() {
    let home = Home::new();
    let mut gate = home.gate("gate");
    let first = home.start("--job a --once", "echo x >> ready; read go < gate");
    home.wait_lines("ready", 1);
    let mut terminal = Terminal::run(home.work("--job a --once", "echo x >> effects"));
    terminal.see("a skipped: it is running by pid");
    assert_eq!(terminal.end(), 0);
    assert_eq!(terminal.screen().trim_end().lines().count(), 1);
    gate.open(1);
    first.end().exits(0);
    let mut terminal = Terminal::run(home.work("--job a --once", "echo x >> effects"));
    terminal.see("a is done (attempt 1 by pid");
    assert_eq!(terminal.end(), 0);
    assert_eq!(terminal.screen().trim_end().lines().count(), 1);
    assert_eq!(home.lines("effects").len(), 0);
}

#[test]
fn a_success_is_silent_on_a_terminal_too() {
    let home = Home::new();
    let mut terminal = Terminal::run(home.work("--job a --once", "echo out"));
    terminal.see("out");
    assert_eq!(terminal.end(), 0);
    assert_eq!(terminal.screen().trim_end(), "out");
}

#[test]
fn a_hang_up_ends_the_tree() {
    let home = Home::new();
    let terminal = Terminal::run(home.work("--job a --once", "setsid sleep 300 & echo rea\"\"dy; sleep 300"));
    terminal.see("ready");
    drop(terminal);
    until("all of it is gone", SOON, || home.alive().is_empty());
    home.run("--job a --once --if-busy fail", "echo x >> effects").exits(0);
    assert_eq!(home.lines("effects").len(), 1);
}

#[test]
fn history_on_a_terminal_is_a_calendar_in_colour_and_the_list() {
    let home = crate::history::lived_in();
    let screen_of = |no_colour: bool| {
        let mut command = home.semel(["history", "publish"]);
        command.env("TERM", "xterm-256color");
        if no_colour {
            command.env("NO_COLOR", "1");
        }
        let mut terminal = Terminal::run(command);
        assert_eq!(terminal.end(), 0);
        terminal.see("publish@v2");
        terminal.screen()
    };
    let screen = screen_of(false);
    assert!(screen.contains("Mon \x1b[32m■"), "{screen:?}");
    assert!(screen.find("Mon") < screen.find("STARTED"), "{screen:?}");
    let plain = screen_of(true);
    assert!(plain.contains("Mon ■") && !plain.contains('\x1b'), "{plain:?}");
}

#[test]
fn a_batch_on_a_terminal_has_a_bar_and_its_closing_line_at_the_end() {
    let home = Home::new();
    home.write("items", (1..=200).map(|n| format!("item-{n:03}\n")).collect::<String>());
    let mut gate = home.gate("gate");
    let mut command = home.semel(["batch", "items", "--job", "posts", "--format", "lines"]);
    command.args([
        "--",
        "sh",
        "-c",
        "case $1 in *0) read go < gate;; esac; [ $1 != item-007 ]",
        "sh",
        "{line}",
    ]);
    command.env("TERM", "xterm-256color");
    let mut terminal = Terminal::run(command);
    // a bar that is drawn again while something happens: how far, how long, how fast, what became of them
    let is_bar = |line: &str| {
        let has = |part: &str| line.contains(part);
        line.starts_with("posts [") && has("%, ") && has(" left, ") && has("/s, done ")
    };
    let drawn = |terminal: &Terminal| terminal.screen().split(['\r', '\n']).any(|line| is_bar(&plain(line)));
    until("a bar with counts, rate and what is left", SOON, || {
        gate.open(1);
        drawn(&terminal)
    });
    gate.open(30);
    assert_eq!(terminal.end(), 1);
    let closing = "semel: posts: done 199, skipped 0, failed 1, quarantined 0, in doubt 0 in ";
    terminal.see(closing);
    let screen = terminal.screen();
    let last = screen.trim_end().rsplit(['\r', '\n']).next().map(plain).unwrap();
    assert!(last.starts_with(closing), "{screen:?}");
    // what is said of an item does not stand inside the bar
    let said = "semel: posts;line=item-007 failed with exit code 1";
    assert!(screen.split(['\r', '\n']).any(|line| plain(line).starts_with(said)), "{screen:?}");
}

/// A line without what steers the terminal.
fn plain(line: &str) -> String {
    let mut text = String::new();
    let mut rest = line.chars();
    while let Some(c) = rest.next() {
        match c {
            '\x1b' => drop(rest.by_ref().find(|c| c.is_ascii_alphabetic())),
            c => text.push(c),
        }
    }
    text
}
