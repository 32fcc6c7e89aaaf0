//! What is kept of all runs: rows of the attack and of the other proofs, as JSON, and the page that is made from them.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use super::page;

/// The rows of `docs/RESULTS.json`.
#[derive(Debug, Default)]
pub(crate) struct Book {
    /// A contender on a store, in a run with a seed.
    pub(crate) rows: Vec<Value>,
    /// Another proof, at one place.
    pub(crate) proofs: Vec<Value>,
}

impl Book {
    /// What is kept there; nothing where there is no such file.
    pub(crate) fn read(json: Option<&Path>) -> Result<Book, String> {
        let Some(path) = json.filter(|path| path.exists()) else { return Ok(Book::default()) };
        let text = fs::read_to_string(path).map_err(|why| format!("{}: {why}", path.display()))?;
        let kept: Value = serde_json::from_str(&text).map_err(|why| format!("{}: {why}", path.display()))?;
        let list = |name: &str| kept[name].as_array().cloned().unwrap_or_default();
        Ok(Book { rows: list("rows"), proofs: list("proofs") })
    }

    /// Rows of a run: they stand for those of the same contender, store and seed.
    pub(crate) fn put_rows(&mut self, new: Vec<Value>) {
        put(&mut self.rows, new, &["store", "contender", "seed"]);
    }

    /// Rows of other proofs: they stand for those of the same proof and place.
    pub(crate) fn put_proofs(&mut self, new: Vec<Value>) {
        put(&mut self.proofs, new, &["proof", "at", "of"]);
    }

    /// Write both.
    pub(crate) fn write(&self, json: Option<&Path>, results: Option<&Path>) -> Result<(), String> {
        if let Some(path) = json {
            let all = json!({ "v": 2, "rows": self.rows, "proofs": self.proofs });
            let text = serde_json::to_string_pretty(&all).map_err(|why| why.to_string())?;
            write(path, &(text + "\n"))?;
        }
        results.map_or(Ok(()), |path| write(path, &page::page(self)))
    }
}

fn put(rows: &mut Vec<Value>, new: Vec<Value>, names: &[&str]) {
    let name = |row: &Value| names.iter().map(|name| row[*name].to_string()).collect::<Vec<_>>();
    rows.retain(|old| !new.iter().any(|new| name(new) == name(old)));
    rows.extend(new);
    rows.sort_by_key(name);
}

fn write(path: &Path, text: &str) -> Result<(), String> {
    fs::write(path, text).map_err(|why| format!("{}: {why}", path.display()))
}
