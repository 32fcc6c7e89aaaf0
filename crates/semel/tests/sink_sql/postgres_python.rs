//! The documented example in Python is a program that runs.

use std::process::{Command, Output};

use crate::postgres_stage::{Stage, number};
use crate::skips::skipped;

const EXAMPLE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/fence_psycopg.py");

/// A Python that has psycopg: Debian's, or the one on the PATH.
fn python() -> Option<&'static str> {
    let has = |python: &&str| {
        let asked = Command::new(python).args(["-c", "import psycopg"]).output();
        asked.is_ok_and(|answer| answer.status.success())
    };
    ["/usr/bin/python3", "python3"].into_iter().find(has)
}

#[tokio::test]
async fn postgres_the_python_example_publishes_and_is_refused() {
    let test = "postgres_the_python_example_publishes_and_is_refused";
    let Some(python) = python() else { return skipped(test, "no psycopg (Debian: python3-psycopg)") };
    let Some(stage) = Stage::new(test).await else { return };
    let publish = |token: &str, nonce: &str| -> Output {
        let mut program = Command::new(python);
        program.arg(EXAMPLE).env("DATABASE_URL", stage.url());
        program.env("SEMEL_RESOURCE", "site").env("SEMEL_TOKEN", token).env("SEMEL_NONCE", nonce);
        program.output().unwrap()
    };
    for (token, nonce, code) in
        [("41", "a", 0), ("42", "b", 0), ("42", "b", 0), ("41", "a", 77), ("42", "x", 79)]
    {
        let output = publish(token, nonce);
        assert_eq!(output.status.code(), Some(code), "{token} {nonce}: {output:?}");
        assert_eq!(String::from_utf8_lossy(&output.stderr).contains("nothing was written"), code != 0);
    }
    assert_eq!(number(&stage.connect().await, "SELECT count(*) FROM posts").await, 3);
}
