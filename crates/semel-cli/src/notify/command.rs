//! A lane that is a command: the message on its stdin, exit 0 is "delivered".
//!
//! Its output is read so that it never blocks, kept to a bounded amount, and shown only if it fails. What it leaves
//! running is ended with it.

use std::ffi::{OsStr, OsString};
use std::io::Read;
use std::time::Duration;

use semel_supervise::{Exit, Output, Spec, Stdin, Tree};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::unix::pipe;

use super::{Lane, Message, Undelivered, too_slow};
use crate::plan::Surroundings;

/// What is kept of what it prints: the end, where the reason stands.
const SAID_LIMIT: usize = 1_000;
/// How long after its time it is ended even if nobody is there to end it.
const MARGIN: Duration = Duration::from_secs(2);
/// Between TERM and KILL.
const GRACE: Duration = Duration::from_secs(1);

/// Run it.
pub(super) async fn tell(
    lane: &Lane,
    text: &OsStr,
    message: &Message,
    around: &Surroundings,
) -> Result<(), Undelivered> {
    let mut env: Vec<(OsString, OsString)> = around.inheritable().cloned().collect();
    env.push(("SEMEL_NOTICE_ID".into(), message.id.clone().into()));
    let (ended, said) = match run(lane, text, env, format!("{}\n", message.line())).await {
        Ok(both) => both,
        Err(why) => return Err(Undelivered::for_now(format!("its command did not start: {why}"))),
    };
    let why = match ended {
        Some(Some(Exit::Code(0))) => return Ok(()),
        Some(Some(Exit::Code(code))) => format!("its command ended with {code}"),
        Some(Some(Exit::Signal(signal))) => format!("its command was ended by signal {signal}"),
        Some(None) => "its command vanished".to_owned(),
        None => format!("its command was ended: {}", too_slow(lane.timeout)),
    };
    let said = shown(&said);
    Err(Undelivered::for_now(if said.is_empty() { why } else { format!("{why}: {said}") }))
}

/// How it ended (none: not in time), and the last that it said.
async fn run(
    lane: &Lane,
    text: &OsStr,
    env: Vec<(OsString, OsString)>,
    message: String,
) -> Result<(Option<Option<Exit>>, Vec<u8>), String> {
    let system = |why: std::io::Error| why.to_string();
    let (stdin, to_it) = std::io::pipe().map_err(system)?;
    let (from_it, out) = std::io::pipe().map_err(system)?;
    let mut spec = Spec::new("/bin/sh", vec!["sh".into(), "-c".into(), text.to_owned()]);
    spec.env = env;
    spec.cwd.clone_from(&lane.directory);
    spec.stdin = Stdin::Fd(stdin.into());
    spec.stderr = Output::Fd(out.try_clone().map_err(system)?.into());
    spec.stdout = Output::Fd(out.into());
    spec.deadline = semel_supervise::boottime().checked_add(lane.timeout + MARGIN);
    let mut to_it = Some(pipe::Sender::from_owned_fd(to_it.into()).map_err(system)?);
    let mut from_it = pipe::Receiver::from_owned_fd(from_it.into()).map_err(system)?;
    let mut tree = Tree::spawn(spec).map_err(|why| why.to_string())?;
    let (mut said, mut unsent) = (Vec::new(), message.as_bytes());
    let talking = async {
        let (mut chunk, mut open) = ([0; 4096], true);
        loop {
            tokio::select! {
                written = write(&mut to_it, unsent), if to_it.is_some() => match written {
                    Ok(n) if n < unsent.len() => unsent = unsent.get(n..).unwrap_or_default(),
                    // all of it, or it does not want to know: its exit code counts
                    _ => to_it = None,
                },
                read = from_it.read(&mut chunk), if open => match read {
                    Ok(0) | Err(_) => open = false,
                    Ok(n) => keep_last(&mut said, chunk.get(..n).unwrap_or_default()),
                },
                ended = tree.wait() => return ended.exit,
            }
        }
    };
    let ended = tokio::time::timeout(lane.timeout, talking).await.ok();
    if ended.is_none() {
        tree.stop(GRACE.min(lane.timeout)).await;
    }
    tree.finish(Duration::ZERO).await;
    // what it said just before its end is still in the pipe, which whoever escaped may hold open: nobody waits
    if let Ok(rest) = from_it.into_nonblocking_fd() {
        let (mut file, mut chunk) = (std::fs::File::from(rest).take(1 << 20), [0; 4096]);
        while let Ok(n @ 1..) = file.read(&mut chunk) {
            keep_last(&mut said, chunk.get(..n).unwrap_or_default());
        }
    }
    Ok((ended, said))
}

async fn write(pipe: &mut Option<pipe::Sender>, bytes: &[u8]) -> std::io::Result<usize> {
    match pipe {
        Some(pipe) => pipe.write(bytes).await,
        None => std::future::pending().await,
    }
}

fn keep_last(said: &mut Vec<u8>, more: &[u8]) {
    said.extend_from_slice(more);
    said.drain(..said.len().saturating_sub(SAID_LIMIT));
}

/// On one line.
fn shown(said: &[u8]) -> String {
    String::from_utf8_lossy(said).split_whitespace().collect::<Vec<_>>().join(" ")
}
