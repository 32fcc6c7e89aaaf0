//! What a person should know of this server.

use std::time::Duration;

use tokio::time::{Instant, sleep};
use tokio_postgres::Row;
use tokio_postgres::types::FromSql;

use super::super::{Finding, StoreError};
use super::verbs::Kind;
use super::{Postgres, tls};
use crate::clock::{Clock, SystemClock};

/// How far the clocks may differ before it is worth a word.
const OFFSET_MS: i64 = 1_000;
/// How long is waited for a word to arrive.
const HEARD: Duration = Duration::from_secs(3);

impl Postgres {
    pub(super) async fn findings(&self) -> Result<Vec<Finding>, StoreError> {
        // a verb as any other: it makes the ledger where it is missing
        let loaded = self.load_now(&[]).await?;
        let before = SystemClock.wall_ms();
        let rows = self.ask(Kind::Read, &question(self.schema()), &[]).await?;
        let after = SystemClock.wall_ms();
        let Some(row) = rows.first() else { return Ok(Vec::new()) };
        let here = before.midpoint(after);
        let mut all = vec![self.version(row).await, durability(row), replication(row)];
        all.push(match loaded.token_floor {
            0 => Finding::note(
                "epoch",
                "the timeline of this server cannot be read: after a failover that lost grants, tokens may come again",
                "let the role execute pg_current_wal_insert_lsn() and pg_walfile_name()",
            ),
            floor => Finding::good("epoch", format!("tokens count from timeline {}", floor >> 32)),
        });
        all.extend([self.permissions(row), clock(row, here), self.encryption(row), connections(row)]);
        all.push(self.hearing().await);
        Ok(all)
    }

    async fn version(&self, row: &Row) -> Finding {
        let version: String = get(row, "version");
        let look = format!("SELECT version FROM {}.ledger", self.schema());
        let made = self.ask(Kind::Read, &look, &[]).await.ok();
        let made: Option<i32> = made.and_then(|rows| rows.first()?.try_get(0).ok());
        let made = made.map_or("unknown".to_owned(), |made| made.to_string());
        Finding::good(
            "version",
            format!("PostgreSQL {version}; ledger {}, schema version {made}", self.schema()),
        )
    }

    fn permissions(&self, row: &Row) -> Finding {
        let (user, schema) = (&self.link.address.user, self.schema());
        if get::<bool>(row, "may_write") {
            return Finding::good("permissions", format!("{user} may read and write {schema}.records"));
        }
        Finding::wrong(
            "permissions",
            format!("{user} may not write {schema}.records"),
            format!("GRANT SELECT, INSERT, UPDATE, DELETE ON {schema}.records TO {user}"),
        )
    }

    fn encryption(&self, row: &Row) -> Finding {
        let local = self.link.address.place.starts_with('/');
        match (get::<bool>(row, "tls"), self.link.address.trust) {
            _ if local => Finding::good("encryption", "a socket of this machine"),
            (false, _) => Finding::note(
                "encryption",
                "the connection is not encrypted",
                "turn on TLS in the server (ssl = on) and add sslmode=verify-full to the address",
            ),
            (true, tls::Trust::Anyone) => Finding::note(
                "encryption",
                "the connection is encrypted, and whose certificate it is was not checked",
                "add sslmode=verify-full, and sslrootcert=FILE if its authority is your own",
            ),
            (true, tls::Trust::Authority) => {
                Finding::good("encryption", "TLS; the certificate's authority is checked, its name is not")
            }
            (true, tls::Trust::AuthorityAndName) => {
                Finding::good("encryption", "TLS; the certificate's authority and name are checked")
            }
        }
    }

    /// Does a word reach a waiter?
    async fn hearing(&self) -> Finding {
        let waiter = self.hints.wait_for("semel doctor".to_owned());
        let end = Instant::now() + HEARD;
        while !self.hints.hears() && Instant::now() < end {
            self.hints.listen(&self.link);
            sleep(Duration::from_millis(10)).await;
        }
        drop(waiter);
        if self.hints.hears() {
            return Finding::good("waiting", "a waiter is woken by LISTEN/NOTIFY");
        }
        Finding::note(
            "waiting",
            "LISTEN does not work here (a transaction pooler?): a waiter looks every 250 ms",
            "for a quicker hand-over give the server's own address, or a pooler in session mode",
        )
    }
}

fn question(schema: &str) -> String {
    let may = ["SELECT", "INSERT", "UPDATE", "DELETE"]
        .map(|right| format!("has_table_privilege('{schema}.records', '{right}')"))
        .join(" AND ");
    format!(
        "SELECT current_setting('server_version') AS version, current_setting('fsync') AS fsync, \
         current_setting('synchronous_commit') AS commit, current_setting('full_page_writes') AS pages, \
         current_setting('synchronous_standby_names') AS standbys, \
         (SELECT count(*) FROM pg_stat_replication) AS replicas, \
         current_setting('max_connections')::bigint AS most, \
         (SELECT sum(numbackends) FROM pg_stat_database)::bigint AS used, \
         coalesce((SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()), false) AS tls, \
         (extract(epoch FROM clock_timestamp()) * 1000)::bigint AS now_ms, ({may}) AS may_write"
    )
}

fn get<T: for<'a> FromSql<'a> + Default>(row: &Row, name: &str) -> T {
    row.try_get(name).unwrap_or_default()
}

fn durability(row: &Row) -> Finding {
    let (fsync, commit, pages): (String, String, String) =
        (get(row, "fsync"), get(row, "commit"), get(row, "pages"));
    if fsync == "off" || pages == "off" {
        let which = if fsync == "off" { "fsync" } else { "full_page_writes" };
        return Finding::wrong(
            "durability",
            format!("{which} is off: a power cut may destroy the ledger"),
            format!("set {which} = on in postgresql.conf"),
        );
    }
    if commit == "off" {
        return Finding::wrong(
            "durability",
            "synchronous_commit is off: a crash of the server forgets what was answered, and work may be done twice",
            "set synchronous_commit = on, at least for this role: ALTER ROLE … SET synchronous_commit = on",
        );
    }
    Finding::good("durability", format!("fsync is on, synchronous_commit is {commit}"))
}

fn replication(row: &Row) -> Finding {
    let (standbys, replicas): (String, i64) = (get(row, "standbys"), get(row, "replicas"));
    match (standbys.is_empty(), replicas) {
        (false, _) => Finding::good("replication", format!("commits wait for {standbys}")),
        (true, 0) => Finding::good("replication", "no replica is connected"),
        (true, many) => Finding::note(
            "replication",
            format!(
                "{many} asynchronous: a failover may forget the last writes; tokens still grow, and a holder that was forgotten is refused"
            ),
            "set synchronous_standby_names if no acknowledged outcome may be lost",
        ),
    }
}

fn clock(row: &Row, here_ms: u64) -> Finding {
    let offset = get::<i64>(row, "now_ms") - i64::try_from(here_ms).unwrap_or(i64::MAX);
    if offset.abs() <= OFFSET_MS {
        return Finding::good("clock", format!("the server's clock is {offset} ms from this machine's"));
    }
    Finding::note(
        "clock",
        format!("the server's clock is {offset} ms from this machine's; the server's alone decides leases"),
        "set both by NTP: slots of a schedule are read from this machine's",
    )
}

fn connections(row: &Row) -> Finding {
    let (most, used): (i64, i64) = (get(row, "most"), get(row, "used"));
    if used * 10 > most * 8 {
        return Finding::note(
            "connections",
            format!("{used} of {most} are in use; each process of Semel takes 1, and 2 while it waits"),
            "raise max_connections or put a pooler (transaction mode) before the server",
        );
    }
    Finding::good("connections", format!("{used} of {most} are in use"))
}
