//! What the ledger says, for tests that ask it something beside the effects.

use serde_json::Value;

use crate::support::Home;

impl Home {
    /// The entry of a work, by its readable form.
    #[track_caller]
    pub(crate) fn entry(&self, work: &str) -> Value {
        self.ask(&format!("show {work} --json")).exits(0).json()["entry"].clone()
    }

    /// How many runs of this work yielded, by the journal.
    #[track_caller]
    pub(crate) fn suppressed(&self, work: &str) -> u64 {
        let why = self.ask(&format!("why {work} --json")).exits(0).json();
        ["done", "running", "busy"].iter().map(|reason| why["suppressed"][reason].as_u64().unwrap()).sum()
    }

    /// The ledger is whole: what was done before stays done, and new work is done once.
    #[track_caller]
    pub(crate) fn assert_whole(&self) {
        let before = self.lines("whole").len();
        self.run("--job whole-old --once", "echo x >> whole").exits(0);
        let name = format!("whole-{before}");
        self.run(&format!("--job {name} --once"), "echo x >> whole").exits(0).silent();
        self.run(&format!("--job {name} --once"), "echo x >> whole").exits(0).silent();
        let expected = if before == 0 { 2 } else { before + 1 };
        assert_eq!(self.lines("whole").len(), expected, "the ledger forgot or repeated something");
        if !self.store().starts_with("sqlite:") {
            return;
        }
        let database = rusqlite::Connection::open(self.database()).unwrap();
        let check: String = database.query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
        assert_eq!(check, "ok");
    }
}
