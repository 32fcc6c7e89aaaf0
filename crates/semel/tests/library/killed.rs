//! A program that is killed with SIGKILL in the middle of a step. The effects are counted in a file.

use std::io::Write;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use semel::{Outcome, Semel};

use crate::{Any, job};

const PLAY: &str = "SEMEL_TEST_PLAY";
const PATIENCE: Duration = Duration::from_secs(30);

fn append(dir: &Path, line: &str) -> std::io::Result<()> {
    let mut file = std::fs::File::options().create(true).append(true).open(dir.join("effects"))?;
    file.write_all(format!("{line}\n").as_bytes())
}

fn effects(dir: &Path, name: &str) -> usize {
    let text = std::fs::read_to_string(dir.join("effects")).unwrap_or_default();
    text.lines().filter(|line| *line == name).count()
}

/// The program: two steps, the second of which never ends if it is to be killed in it.
async fn publish(dir: &Path, hang: bool) -> Outcome<u32, Any> {
    let semel = Semel::sqlite(dir.join("ledger.db")).unwrap().runs_end_with_this_process();
    semel
        .run(&job(), async |run| -> Result<u32, Any> {
            let built = run.step("build", async || append(dir, "build").map(|()| 17)).await?;
            run.step("mail", async || {
                append(dir, "mail")?;
                if hang { std::future::pending().await } else { Ok::<_, std::io::Error>(()) }
            })
            .await?;
            Ok(built)
        })
        .await
}

/// The control: the same two steps, each marked in a file when it is done.
async fn naive(dir: &Path, hang: bool) {
    for name in ["build", "mail"] {
        if dir.join(name).exists() {
            continue;
        }
        append(dir, name).unwrap();
        if hang && name == "mail" {
            std::future::pending::<()>().await;
        }
        std::fs::write(dir.join(name), "done").unwrap();
    }
}

/// Not a test: what the others start and kill. Without their word it does nothing.
#[tokio::test]
async fn the_program_that_is_killed() {
    #[allow(clippy::disallowed_methods)] // how a test says that
    let Some(play) = std::env::var_os(PLAY) else { return };
    let play = play.into_string().unwrap();
    let (what, dir) = play.split_once(' ').unwrap();
    match what {
        "publish" => drop(publish(Path::new(dir), true).await.is_done()),
        _ => naive(Path::new(dir), true).await,
    }
}

struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Start the program, and kill it when it is in its second step.
fn kill_in_the_middle(what: &str, dir: &Path) {
    #[allow(clippy::disallowed_methods)] // a process to be killed
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "killed::the_program_that_is_killed"])
        .env(PLAY, format!("{what} {}", dir.display()))
        .stdout(Stdio::null())
        .spawn();
    let killed = Killed(child.unwrap());
    #[allow(clippy::disallowed_methods)] // a deadline
    let deadline = Instant::now() + PATIENCE;
    while effects(dir, "mail") == 0 {
        #[allow(clippy::disallowed_methods)]
        let late = Instant::now() > deadline;
        assert!(!late, "the program did not come to its second step");
        std::thread::sleep(Duration::from_millis(5));
    }
    drop(killed);
}

#[tokio::test]
async fn a_step_in_which_the_program_was_killed_is_not_repeated_on_a_guess() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path();
    kill_in_the_middle("publish", dir);
    // taken over at once where processes can be seen: the lease still had a minute
    let outcome = publish(dir, false).await;
    if cfg!(not(target_os = "linux")) {
        assert!(matches!(outcome, Outcome::Busy { .. }), "{outcome:?}");
        return;
    }
    assert!(
        matches!(&outcome, Outcome::NeedsPerson { what, .. } if what == "job@monday~mail"),
        "{outcome:?}"
    );
    assert_eq!((effects(dir, "build"), effects(dir, "mail")), (1, 1));
}

#[tokio::test]
async fn a_mark_that_is_written_when_it_is_done_repeats_it() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path();
    kill_in_the_middle("naive", dir);
    naive(dir, false).await;
    assert_eq!((effects(dir, "build"), effects(dir, "mail")), (1, 2), "the control must show the duplicate");
}
