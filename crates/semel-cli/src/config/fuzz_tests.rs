//! `semel.toml` from whatever bytes: a target of `semel-fuzz`.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::path::PathBuf;

use semel_fuzz::{Target, check};

use super::Config;
use crate::args::RunArgs;
use crate::plan;

const SEEDS: &[&str] = &[
    include_str!("../../../../docs/semel.toml"),
    "store = \"sqlite:/x\"\n[defaults]\nttl = \"90s\"\n[jobs.a]\ncommand = [\"x\", \"{slot}\"]\nevery = \"0 2 * * *\"\ntz = \"Europe/Berlin\"\nwith = { a = 1, b = [1, 2] }\n",
    "[jobs.\"a b\"]\ncommand = 'x'\n[batches.b]\nkey = \"id\"\ncommand = [\"y\", \"{id}\"]\n[notify.x]\nurl = \"https://h/x\"\n",
    "[[jobs]]\nx = 1979-05-27T07:32:00Z\ny = \"\"\"\na\\\n  b\"\"\"\n",
];
const WORDS: &[&str] = &[
    "[jobs.a]\n",
    "[defaults]\n",
    "[batches.b]\n",
    "[notify.n]\n",
    "command",
    "every",
    "slot",
    "with",
    "key",
    "ttl",
    "timeout",
    "retries",
    "catch-up",
    "on-lost",
    "probe",
    "notify",
    "= ",
    "\"",
    "'",
    "\"\"\"",
    "[",
    "]",
    "{",
    "}",
    ",",
    "\n",
    ".",
    "0x",
    "inf",
    "1979-05-27",
    "true",
    "\\u0000",
    "\\U0010ffff",
    "#",
];

#[test]
fn semel_toml() {
    check(&Target { memory_times: 512, ..Target::new("semel_toml", SEEDS, WORDS) }, |bytes| {
        let Ok(text) = std::str::from_utf8(bytes) else { return };
        let mut config = Config::read(PathBuf::from("/etc/x/semel.toml"), text);
        config.check_zones(text, |_| Ok(()));
        let lines = text.split('\n').count();
        for fault in &config.faults {
            assert!((1..=lines).contains(&fault.line) && fault.column >= 1, "{fault:?} of {lines}");
            assert!(!fault.text.is_empty());
            let _ = (fault.line(&config.path), fault.excerpt(text));
        }
        for job in config.jobs.iter().filter(|job| !config.is_faulty(job)) {
            let checked = plan::check(&config.filled(job, &RunArgs::default()));
            assert!(checked.is_ok(), "what is well here is well for a run: {:?} {checked:?}", job.name);
        }
    });
}
