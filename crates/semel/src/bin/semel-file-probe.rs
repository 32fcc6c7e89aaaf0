//! A process that writes to one file: the zombie, and the one that is killed, in the tests of the file sink.
//!
//! `semel-file-probe TARGET`, then orders on stdin, one a line, each answered by one line on stdout:
//!
//! | order | how it writes |
//! |---|---|
//! | `write TOKEN NONCE WAIT_MS` | through the sink, for the resource `site` |
//! | `check TOKEN` | without it: look at the last token, write a temp file, rename it, note the token |
//! | `move TOKEN` | without it: write a temp file, rename it |
//!
//! What it writes is told by [`content`]: any part of it is known as a part.
#![allow(clippy::print_stdout)] // this is how it answers

use std::fs;
use std::io::{self, BufRead, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use semel::crash;
use semel::sink::file::{FileSink, FileSinkError};
use semel_core::name::Name;
use semel_core::token::{Grant, Nonce, Token};

fn main() -> io::Result<()> {
    let target = PathBuf::from(std::env::args_os().nth(1).ok_or_else(|| io::Error::other("which file?"))?);
    let mut stdout = io::stdout();
    for line in io::stdin().lock().lines() {
        let line = line?;
        let words: Vec<&str> = line.split(' ').collect();
        let answer = obey(&target, &words).unwrap_or_else(|why| format!("error {why}"));
        stdout.write_all(format!("{}\n", answer.replace('\n', " ")).as_bytes())?;
        stdout.flush()?;
    }
    Ok(())
}

fn obey(target: &Path, words: &[&str]) -> Result<String, Box<dyn std::error::Error>> {
    match words {
        ["write", token, nonce, wait_ms] => {
            let nonce = Nonce::from_bytes([nonce.parse()?; 16]);
            let grant = Grant { token: token.parse::<Token>()?, nonce };
            let sink = FileSink::new(target).lock_wait(Duration::from_millis(wait_ms.parse()?));
            Ok(match sink.write(&Name::new("site")?, &grant, content(token).as_bytes()) {
                Ok(wrote) => {
                    format!("wrote {} {}", wrote.bytes, if wrote.owner_kept { "kept" } else { "changed" })
                }
                Err(FileSinkError::Refused(refused)) => format!("refused {}", refused.why.word()),
                Err(FileSinkError::Busy { .. }) => "busy".to_owned(),
                Err(why) => return Err(why.into()),
            })
        }
        ["check", token] => {
            let note = target.with_extension("last");
            let last: u64 = fs::read_to_string(&note).ok().and_then(|text| text.parse().ok()).unwrap_or(0);
            if token.parse::<u64>()? < last {
                return Ok("refused stale".to_owned());
            }
            crash::point("control.checked");
            replace(target, token)?;
            fs::write(&note, token)?;
            Ok("wrote".to_owned())
        }
        ["move", token] => {
            replace(target, token)?;
            Ok("wrote".to_owned())
        }
        _ => Err("no such order".into()),
    }
}

fn replace(target: &Path, token: &str) -> io::Result<()> {
    let temp = target.with_extension(format!("temp-{}", std::process::id()));
    fs::write(&temp, content(token))?;
    crash::point("control.temp");
    fs::rename(&temp, target)
}

/// Some lines with one word, the last one closing it; of a length that depends on it.
fn content(word: &str) -> String {
    let lines = word.bytes().map(usize::from).sum::<usize>() * 7;
    format!("{}end {word}\n", format!("{word}\n").repeat(lines))
}
