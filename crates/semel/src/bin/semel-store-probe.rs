//! A process for the conformance suite to start, to watch and to kill: `semel-store-probe URL`.
//!
//! It reads orders from stdin, one a line, and answers each with one line on stdout: `ok ORDER` where the table says
//! nothing else, `error …` if it failed. It ends when stdin does.
//!
//! | order | what it does, and the answer |
//! |---|---|
//! | `open` | open the store |
//! | `load KEY` | `found VALUE` or `nothing` |
//! | `put KEY VALUE durable\|relaxed` | write over whatever stands there |
//! | `lease KEY TTL_MS` | as `put`, relaxed, with a clock |
//! | `touch KEY` | restart the clock |
//! | `remove KEY` | remove what stands there |
//! | `claim KEY TTL_MS [LEDGER]` | `won TOKEN` or `lost`; the winner first appends its token to the ledger |
//! | `release KEY TOKEN` | give a lease back |
//! | `stream PREFIX` | write `PREFIX/0`, `PREFIX/1` and so on for ever, each answered by `put N` |
//! | `call JSON` | a verb as [`calls`] writes it, and its answer |
//! | `wait MS` | do nothing for so long |
//! | `close` | close the store and wait until it is |
#![allow(clippy::print_stdout)]

use std::io::{BufRead, Write};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use semel::core::record::{Expect, RecordKey};
use semel::core::token::Token;
use semel::store::conformance::calls;
use semel::store::conformance::claims::{self, Claim};
use semel::store::sqlite::Sqlite;
use semel::store::{self, Change, Durability, Record, Settings, Store};

/// A hundred of these ask one server at once, which may answer one at a time.
const PATIENCE: Duration = Duration::from_secs(60);

/// The store, so that it can be closed as its kind is.
enum Opened {
    Sqlite(Sqlite),
    Other(Arc<dyn Store>),
}

impl Opened {
    fn open(url: &str) -> Result<Opened, String> {
        let opened = match url.split_once(':') {
            Some(("sqlite", path)) => Sqlite::open(Path::new(path)).map(Opened::Sqlite),
            _ => {
                // the suite's own process: what a service needs beside its address comes from around it
                #[allow(clippy::disallowed_methods)]
                let variables = std::env::vars().collect();
                store::open(url, &Settings { variables, deadline: PATIENCE, ..Settings::default() })
                    .map(Opened::Other)
            }
        };
        opened.map_err(|why| why.to_string())
    }

    fn store(&self) -> &dyn Store {
        match self {
            Opened::Sqlite(store) => store,
            Opened::Other(store) => store.as_ref(),
        }
    }

    fn close(self) {
        match self {
            Opened::Sqlite(store) => store.close(),
            Opened::Other(store) => drop(store),
        }
    }
}

fn main() -> Result<(), String> {
    let url = std::env::args().nth(1).ok_or("usage: semel-store-probe URL")?;
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(|why| why.to_string())?;
    let mut opened = None;
    for line in std::io::stdin().lock().lines() {
        let line = line.map_err(|why| why.to_string())?;
        let answer = match runtime.block_on(obey(&url, &mut opened, &line)) {
            Ok(answer) => answer,
            Err(why) => format!("error {}", why.replace('\n', " ")),
        };
        say(&answer)?;
    }
    Ok(())
}

fn say(answer: &str) -> Result<(), String> {
    // one write for the whole line, so that whoever traces this process sees it as one
    let mut out = std::io::stdout().lock();
    out.write_all(format!("{answer}\n").as_bytes()).and_then(|()| out.flush()).map_err(|why| why.to_string())
}

async fn obey(url: &str, opened: &mut Option<Opened>, line: &str) -> Result<String, String> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let key = |text: &str| RecordKey::from_stored(text.to_owned());
    let store = || opened.as_ref().map(Opened::store).ok_or("not open".to_owned());
    match *words.as_slice() {
        ["open"] => *opened = Some(Opened::open(url)?),
        ["close"] => {
            if let Some(opened) = opened.take() {
                opened.close();
            }
        }
        ["load", name] => {
            let found = standing(store()?, &key(name)).await?;
            return Ok(found
                .map_or("nothing".to_owned(), |r| format!("found {}", String::from_utf8_lossy(&r.value))));
        }
        ["put", name, value, how] => {
            let durability = if how == "durable" { Durability::Durable } else { Durability::Relaxed };
            put(store()?, &key(name), value, None, durability).await?;
        }
        ["lease", name, ttl] => {
            let ttl = Some(Duration::from_millis(number(ttl)?));
            put(store()?, &key(name), "lease", ttl, Durability::Relaxed).await?;
        }
        ["touch", name] => {
            let record = standing(store()?, &key(name)).await?.ok_or("nothing to touch")?;
            store()?.touch(&record.key, &record.version).await.map_err(|why| why.to_string())?;
        }
        ["remove", name] => {
            let record = standing(store()?, &key(name)).await?.ok_or("nothing to remove")?;
            let remove = Change::Remove { key: record.key, expect: Expect::Version(record.version) };
            store()?.swap(&[remove], Durability::Durable).await.map_err(|why| why.to_string())?;
        }
        ["claim", name, ttl, ref ledger @ ..] => {
            let ttl = Duration::from_millis(number(ttl)?);
            let Claim::Won(won) = claims::claim(store()?, &key(name), ttl).await? else {
                return Ok("lost".to_owned());
            };
            if let Some(ledger) = ledger.first() {
                write_down(Path::new(ledger), won.grant.token)?;
            }
            return Ok(format!("won {}", won.grant.token));
        }
        ["release", name, token] => {
            let token: Token = token.parse().map_err(|_| format!("{token} is no token"))?;
            claims::release_lease(store()?, &key(name), token).await??;
        }
        ["stream", prefix] => {
            for i in 0u64.. {
                put(store()?, &key(&format!("{prefix}/{i}")), &i.to_string(), None, Durability::Durable)
                    .await?;
                say(&format!("put {i}"))?;
            }
        }
        ["call", ..] => return calls::Call::make(store()?, line.trim_start_matches("call ")).await,
        ["wait", ms] => tokio::time::sleep(Duration::from_millis(number(ms)?)).await,
        _ => return Err(format!("no such order: {line}")),
    }
    Ok(format!("ok {}", words.first().unwrap_or(&"")))
}

fn number(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| format!("{text} is no number"))
}

async fn standing(store: &dyn Store, key: &RecordKey) -> Result<Option<Record>, String> {
    let loaded = store.load(std::slice::from_ref(key)).await.map_err(|why| why.to_string())?;
    Ok(loaded.records.into_iter().next().flatten())
}

async fn put(
    store: &dyn Store,
    key: &RecordKey,
    value: &str,
    ttl: Option<Duration>,
    durability: Durability,
) -> Result<(), String> {
    let found = standing(store, key).await?;
    let expect = found.map_or(Expect::Absent, |record| Expect::Version(record.version));
    let change = Change::Put { key: key.clone(), expect, value: value.as_bytes().to_vec(), ttl };
    store.swap(&[change], durability).await.map(drop).map_err(|why| why.to_string())
}

/// One append, so that winners at the same time cannot mix.
fn write_down(ledger: &Path, token: Token) -> Result<(), String> {
    let mut file =
        std::fs::OpenOptions::new().append(true).create(true).open(ledger).map_err(|why| why.to_string())?;
    file.write_all(format!("{token}\n").as_bytes()).map_err(|why| why.to_string())
}
