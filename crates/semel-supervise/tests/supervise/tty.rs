//! A real terminal: the command behaves as if nobody stood between it and the keyboard.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};
use std::sync::{Arc, Mutex};

use semel_supervise::Contain;

use crate::probe::{self, Log};
use crate::support::{Mark, SOON, within};

struct Terminal {
    keyboard: File,
    screen: Arc<Mutex<String>>,
    child: Child,
}

impl Terminal {
    /// `command` as the leader of a session on a new terminal of 33 × 77.
    fn run(mut command: Command) -> Terminal {
        let (mut master, mut slave) = (-1, -1);
        let size = libc::winsize { ws_row: 33, ws_col: 77, ws_xpixel: 0, ws_ypixel: 0 };
        assert_eq!(
            unsafe { libc::openpty(&mut master, &mut slave, std::ptr::null_mut(), std::ptr::null(), &size) },
            0
        );
        let (master, slave) = unsafe { (File::from_raw_fd(master), OwnedFd::from_raw_fd(slave)) };
        unsafe { libc::fcntl(master.as_raw_fd(), libc::F_SETFD, libc::FD_CLOEXEC) };
        command.stdin(slave.try_clone().unwrap()).stdout(slave.try_clone().unwrap()).stderr(slave);
        let lead = || {
            unsafe {
                libc::setsid();
                libc::ioctl(0, libc::TIOCSCTTY, 0);
            }
            Ok(())
        };
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

    #[track_caller]
    fn see(&self, text: &str) {
        within(SOON, &format!("`{text}` on the screen"), || self.screen.lock().unwrap().contains(text));
    }

    fn count(&self, text: &str) -> usize {
        self.screen.lock().unwrap().matches(text).count()
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            println!("screen: {}", self.screen.lock().unwrap());
        }
    }
}

struct Scene {
    mark: Mark,
    log: Log,
    _dir: tempfile::TempDir,
}

impl Scene {
    fn new() -> Scene {
        let dir = tempfile::tempdir().unwrap();
        Scene { mark: Mark::new(), log: Log(dir.path().join("log")), _dir: dir }
    }

    fn supervisor(&self, script: &str) -> Command {
        probe::command(&self.mark, script, Contain::Auto, &self.log.0)
    }
}

/// Reads lines; says what it got; goes on after INT, and counts it.
const READER: &str =
    "trap 'echo got-INT' INT; test -t 0 && test -t 1 && echo is-a-tty; stty size; echo rea\"\"dy
    while :; do if read line; then echo \"line:$line:\"; [ \"$line\" = quit ] && exit 6; fi; done";

#[test]
fn the_command_sees_the_terminal_and_its_size() {
    let scene = Scene::new();
    let mut terminal = Terminal::run(scene.supervisor(READER));
    terminal.see("ready");
    terminal.see("is-a-tty");
    terminal.see("33 77");
    assert!(scene.log.wait_for("containment").ends_with("shares true"));
    let size = libc::winsize { ws_row: 44, ws_col: 88, ws_xpixel: 0, ws_ypixel: 0 };
    unsafe { libc::ioctl(terminal.keyboard.as_raw_fd(), libc::TIOCSWINSZ, &size) };
    terminal.type_in("hello\nquit\n");
    terminal.see("line:hello:");
    assert_eq!(scene.log.wait_for("ended"), "Some(Code(6)) false");
}

#[test]
fn a_new_window_size_reaches_the_command() {
    let scene = Scene::new();
    let script = "trap 'stty size' WINCH; echo rea\"\"dy; while :; do sleep 0.05; done";
    let terminal = Terminal::run(scene.supervisor(script));
    terminal.see("ready");
    let size = libc::winsize { ws_row: 44, ws_col: 88, ws_xpixel: 0, ws_ypixel: 0 };
    unsafe { libc::ioctl(terminal.keyboard.as_raw_fd(), libc::TIOCSWINSZ, &size) };
    terminal.see("44 88");
}

#[test]
fn ctrl_c_reaches_the_command_exactly_once() {
    let scene = Scene::new();
    let mut terminal = Terminal::run(scene.supervisor(READER));
    terminal.see("ready");
    for round in 1..=5 {
        terminal.type_in("\x03");
        within(SOON, "the trap ran", || terminal.count("got-INT") >= round);
        // A second delivery would be seen before the answer to this.
        terminal.type_in(&format!("round{round}\n"));
        terminal.see(&format!("line:round{round}:"));
        assert_eq!(terminal.count("got-INT"), round);
    }
    terminal.type_in("quit\n");
    assert_eq!(scene.log.wait_for("ended"), "Some(Code(6)) false");
    assert_eq!(scene.log.wait_for("caught"), format!("{} true", libc::SIGINT), "the supervisor has it too");
    assert_eq!(terminal.count("got-INT"), 5);
}

#[test]
fn ctrl_z_stops_the_job_and_fg_takes_it_up_again() {
    let scene = Scene::new();
    let supervisor = scene.supervisor(READER);
    // A shell with job control between the terminal and the supervisor, as a person has.
    let mut shell = Command::new("/bin/sh");
    shell.args(["-mc", "\"$@\"; echo back-in-\"\"shell; fg; echo all-\"\"done", "sh"]);
    shell.arg(supervisor.get_program()).args(supervisor.get_args());
    shell.envs(supervisor.get_envs().map(|(name, value)| (name, value.unwrap())));
    let mut terminal = Terminal::run(shell);
    terminal.see("ready");
    terminal.type_in("\x1a");
    terminal.see("back-in-shell");
    terminal.type_in("hello\n");
    terminal.see("line:hello:");
    terminal.type_in("quit\n");
    assert_eq!(scene.log.wait_for("ended"), "Some(Code(6)) false");
    terminal.see("all-done");
}

#[test]
fn a_hang_up_ends_supervisor_and_tree() {
    let scene = Scene::new();
    let terminal = Terminal::run(scene.supervisor("setsid sleep 1000 & sleep 1000"));
    scene.log.wait_for("keeper");
    within(SOON, "the tree stands", || scene.mark.running("sleep") == 2);
    let hang_up = -terminal.child.id().cast_signed();
    unsafe { libc::kill(hang_up, libc::SIGKILL) };
    within(SOON, "all gone", || scene.mark.alive().is_empty());
}
