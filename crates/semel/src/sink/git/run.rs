//! Running git: no shell, bounded output, no setting that would add refs to a push.

use std::ffi::{OsStr, OsString};
use std::io::{Read, Write};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use super::sink::GitSinkError;
use super::text::{mask, tail};

/// The transports that are used. `ext::` and the like would start programs that an address names.
const PROTOCOLS: [&str; 5] = ["file", "git", "http", "https", "ssh"];

/// The most that is kept of what git prints.
const OUT_LIMIT: usize = 1 << 20;
/// The most that is kept of what git says on stderr: its end.
const ERR_LIMIT: usize = 16 << 10;
/// How long after git's end its pipes are waited for: something that it left behind may keep them open.
const PIPES: Duration = Duration::from_secs(5);

/// Which git, where, and how.
#[derive(Clone, Debug)]
pub struct GitProgram {
    /// The program; a name without a slash is looked for as usual.
    pub git: PathBuf,
    /// The directory that it is started in.
    pub dir: PathBuf,
    /// What the user allows (`GIT_ALLOW_PROTOCOL`), if anything is said: only less than ours.
    pub protocols: Option<String>,
    /// May git ask on the terminal?
    pub prompt: bool,
    /// Further variables of its environment.
    pub env: Vec<(OsString, OsString)>,
}

impl Default for GitProgram {
    fn default() -> GitProgram {
        GitProgram { git: "git".into(), dir: ".".into(), protocols: None, prompt: false, env: Vec::new() }
    }
}

/// What git answered.
#[derive(Debug)]
pub struct Answer {
    /// Its exit code; `None` if a signal ended it.
    pub code: Option<i32>,
    /// Its output, as text.
    pub out: String,
    /// What it said, without passwords.
    pub err: String,
}

impl Answer {
    /// It did what was asked.
    pub fn ok(&self) -> bool {
        self.code == Some(0)
    }

    /// The last line that says something, for a message of one line.
    pub fn why(&self) -> String {
        let said = |line: &&str| line.starts_with("fatal:") || line.starts_with("error:");
        let lines = || self.err.lines().map(str::trim).filter(|line| !line.is_empty());
        let line = lines().find(said).or_else(|| lines().next_back());
        line.map_or_else(|| format!("it ended with {:?}", self.code), |line| tail(line, 500).to_owned())
    }
}

impl GitProgram {
    /// Run it to its end.
    pub fn run<S: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = S>) -> Result<Answer, GitSinkError> {
        self.feed(args, b"", &[])
    }

    /// Run it with this on stdin and these variables.
    pub fn feed<S: AsRef<OsStr>>(
        &self,
        args: impl IntoIterator<Item = S>,
        input: &[u8],
        env: &[(&str, &str)],
    ) -> Result<Answer, GitSinkError> {
        #[allow(clippy::disallowed_methods)] // the sink is the user's own git
        let mut command = Command::new(&self.git);
        command.args(args).current_dir(&self.dir).env("GIT_ALLOW_PROTOCOL", self.allowed());
        // messages in English, since some are read; the encoding and the hooks' locale stay the user's
        command.env("LANGUAGE", "en");
        if !self.prompt {
            command.env("GIT_TERMINAL_PROMPT", "0");
        }
        command.envs(self.env.iter().map(|(name, value)| (name, value))).envs(env.iter().copied());
        command.stdin(if input.is_empty() { Stdio::null() } else { Stdio::piped() });
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let child = command.spawn().map_err(|why| GitSinkError::NoGit {
            git: self.git.display().to_string(),
            why: why.to_string(),
        })?;
        let (code, out, err) =
            finish(child, input).map_err(|why| GitSinkError::git("git", why.to_string()))?;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Ok(Answer { code, out: text(&out), err: mask(&text(&err)) })
    }

    fn allowed(&self) -> String {
        let theirs: Option<Vec<&str>> = self.protocols.as_deref().map(|list| list.split(':').collect());
        let both = |name: &&str| theirs.as_ref().is_none_or(|theirs| theirs.contains(name));
        PROTOCOLS.into_iter().filter(both).collect::<Vec<_>>().join(":")
    }
}

type Taken = (Option<i32>, Vec<u8>, Vec<u8>);

fn finish(mut child: Child, input: &[u8]) -> std::io::Result<Taken> {
    let out = drain(child.stdout.take(), OUT_LIMIT, false);
    let err = drain(child.stderr.take(), ERR_LIMIT, true);
    if let Some(mut stdin) = child.stdin.take() {
        // it may have ended without reading: its exit code tells
        let _ = stdin.write_all(input);
    }
    let status = child.wait()?;
    Ok((status.code(), out.taken(), err.taken()))
}

/// A pipe that is read to its end, whatever is kept of it.
struct Drain {
    kept: Arc<Mutex<Vec<u8>>>,
    ended: Receiver<()>,
}

impl Drain {
    fn taken(self) -> Vec<u8> {
        // if it does not end, the reader goes on by itself until whoever holds the pipe is gone
        let _ = self.ended.recv_timeout(PIPES);
        std::mem::take(&mut *self.kept.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

fn drain(pipe: Option<impl Read + Send + 'static>, limit: usize, keep_end: bool) -> Drain {
    let kept = Arc::new(Mutex::new(Vec::new()));
    let (end, ended) = channel();
    let filled = Arc::clone(&kept);
    std::thread::spawn(move || {
        let mut chunk = [0; 8192];
        let Some(mut pipe) = pipe else { return };
        while let Ok(n @ 1..) = pipe.read(&mut chunk) {
            let mut kept = filled.lock().unwrap_or_else(PoisonError::into_inner);
            let room = if keep_end { n } else { n.min(limit.saturating_sub(kept.len())) };
            kept.extend_from_slice(&chunk[..room]);
            if kept.len() > 2 * limit {
                let cut = kept.len() - limit;
                kept.drain(..cut);
            }
        }
        let _ = end.send(());
    });
    Drain { kept, ended }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_user_allows_is_only_ever_narrowed() {
        let allowed = |theirs: Option<&str>| {
            GitProgram { protocols: theirs.map(str::to_owned), ..GitProgram::default() }.allowed()
        };
        assert_eq!(allowed(None), "file:git:http:https:ssh");
        assert_eq!(allowed(Some("https:ext")), "https");
        assert_eq!(allowed(Some("")), "");
    }
}
