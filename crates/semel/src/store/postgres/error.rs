//! What an error of PostgreSQL means for the caller.
//!
//! An error of severity ERROR ends its transaction, and each verb is one: surely not applied. Whatever ends the
//! connection (FATAL, PANIC, an end of the stream) may have come after the commit: perhaps applied.

use std::error::Error as _;
use std::fmt::Write as _;
use std::io::{self, ErrorKind};

use tokio_postgres::Error;
use tokio_postgres::error::Severity;

use super::connect::Wire;

/// What came of a statement that did not succeed.
#[derive(Debug)]
pub(super) enum Fault {
    /// The ledger's functions or tables are not there.
    Missing(String),
    /// Ended in favour of another transaction: surely not applied, may be asked again at once.
    Again,
    /// Surely not applied.
    NotApplied(String),
    /// The connection is gone, and with it the answer.
    Broken(String),
}

impl Fault {
    pub(super) fn said(self) -> String {
        match self {
            Fault::Again => "other transactions are in the way: try again".to_owned(),
            Fault::Missing(said) | Fault::NotApplied(said) | Fault::Broken(said) => said,
        }
    }
}

/// The SQLSTATE, if the server said one.
pub(super) fn code(why: &Error) -> Option<&str> {
    why.code().map(|code| code.code())
}

/// Sort an error of a statement.
pub(super) fn sort(why: &Error, wire: &Wire) -> Fault {
    let (place, user, schema) = (&wire.place, &wire.user, &wire.schema);
    let Some(said) = why.as_db_error() else {
        return Fault::Broken(format!("the connection to PostgreSQL at {place} was lost: {}", whole(why)));
    };
    let line = one_line(said.message());
    let code = said.code().code();
    if matches!(said.parsed_severity(), Some(Severity::Fatal | Severity::Panic))
        || said.parsed_severity().is_none()
    {
        return Fault::Broken(format!("PostgreSQL at {place} ended the connection: {line} ({code})"));
    }
    match code {
        "42P01" | "42883" | "3F000" => {
            Fault::Missing(format!("the ledger {schema} is missing in {place}: {line}"))
        }
        "40001" | "40P01" => Fault::Again,
        "25006" => Fault::NotApplied(format!(
            "PostgreSQL at {place} takes no writes (a replica, or read-only): give the address of the primary; with several hosts add target_session_attrs=read-write"
        )),
        "42501" => Fault::NotApplied(format!(
            "{user} may not use the ledger {schema} in {place}: {line}; an administrator grants it: GRANT USAGE ON SCHEMA {schema} TO {user}; GRANT SELECT, INSERT, UPDATE, DELETE ON {schema}.records TO {user}"
        )),
        "55P03" => Fault::NotApplied(format!(
            "a record is locked by another transaction of PostgreSQL at {place}: end it (pg_stat_activity, state idle in transaction)"
        )),
        "40003" => Fault::Broken(format!("PostgreSQL at {place} does not know the outcome: {line} ({code})")),
        "53100" => Fault::NotApplied(format!("the disk of PostgreSQL at {place} is full: {line}")),
        _ => Fault::NotApplied(format!("PostgreSQL at {place} says: {line} ({code})")),
    }
}

/// Why there is no connection.
#[derive(Debug)]
pub(super) enum NotMade {
    /// The driver or the server says why.
    Said(Error),
    /// The socket could not be had.
    Socket(io::Error),
    /// The server writes where it should not, or does not where it should.
    NotAsWanted { is_read_only: bool },
    /// There is no address to go to, or the server hung up.
    Nowhere,
}

impl NotMade {
    /// All connections are taken, or the server is starting or stopping: not so a little later.
    pub(super) fn is_passing(&self) -> bool {
        matches!(self, NotMade::Said(why) if matches!(code(why), Some("53300" | "57P03")))
    }
}

impl From<Error> for NotMade {
    fn from(why: Error) -> NotMade {
        NotMade::Said(why)
    }
}

impl From<io::Error> for NotMade {
    fn from(why: io::Error) -> NotMade {
        NotMade::Socket(why)
    }
}

/// The same in one line.
pub(super) fn refused(why: &NotMade, place: &str, user: &str, database: &str) -> String {
    match why {
        NotMade::Said(why) => unwelcome(why, place, user, database),
        NotMade::Socket(why) => match why.kind() {
            ErrorKind::ConnectionRefused | ErrorKind::NotFound => {
                format!("nobody listens at {place}: is PostgreSQL running there?")
            }
            _ => format!("PostgreSQL at {place} cannot be reached: {}", one_line(&why.to_string())),
        },
        NotMade::NotAsWanted { is_read_only: true } => {
            format!("PostgreSQL at {place} takes no writes: no host of the address is the primary")
        }
        NotMade::NotAsWanted { is_read_only: false } => format!(
            "PostgreSQL at {place} takes writes, and target_session_attrs asks for one that does not: leave it out"
        ),
        NotMade::Nowhere => format!("PostgreSQL at {place} cannot be reached: its host has no address"),
    }
}

fn unwelcome(why: &Error, place: &str, user: &str, database: &str) -> String {
    if let Some(said) = why.as_db_error() {
        let line = one_line(said.message());
        return match said.code().code() {
            "28P01" => format!(
                "PostgreSQL at {place} refused the password of {user}: correct PGPASSWORD or the password in the address"
            ),
            "28000" => format!("PostgreSQL at {place} does not let {user} in: {line}; see its pg_hba.conf"),
            "3D000" => format!(
                "there is no database {database} at {place}: create it (createdb {database}) or correct the address"
            ),
            "53300" => {
                format!("PostgreSQL at {place} has no connection left: raise max_connections or use a pooler")
            }
            "57P03" => format!("PostgreSQL at {place} is starting or stopping: {line}"),
            code => format!("PostgreSQL at {place} does not let us in: {line} ({code})"),
        };
    }
    let all = whole(why);
    if let Some(cause) = tls_cause(why) {
        return format!(
            "TLS with PostgreSQL at {place} failed: {cause}; give its authority with sslrootcert=FILE, or another sslmode"
        );
    }
    if all.contains("password missing") {
        return format!("PostgreSQL at {place} asks for a password of {user}: set PGPASSWORD");
    }
    if all.contains("server does not support TLS") {
        return format!(
            "PostgreSQL at {place} has no TLS: turn it on there (ssl = on) or use sslmode=disable"
        );
    }
    match io_cause(why) {
        Some(ErrorKind::ConnectionRefused | ErrorKind::NotFound) => {
            format!("nobody listens at {place}: is PostgreSQL running there?")
        }
        _ => format!("PostgreSQL at {place} cannot be reached: {all}"),
    }
}

fn io_cause(why: &Error) -> Option<ErrorKind> {
    why.source()?.downcast_ref::<std::io::Error>().map(std::io::Error::kind)
}

fn tls_cause(why: &Error) -> Option<String> {
    let mut cause = why.source();
    while let Some(found) = cause {
        if let Some(tls) = found.downcast_ref::<rustls::Error>() {
            return Some(one_line(&tls.to_string()));
        }
        let io = found.downcast_ref::<std::io::Error>().and_then(std::io::Error::get_ref);
        if let Some(tls) = io.and_then(|inner| inner.downcast_ref::<rustls::Error>()) {
            return Some(one_line(&tls.to_string()));
        }
        cause = found.source();
    }
    None
}

/// An error with its causes.
fn whole(why: &Error) -> String {
    let mut text = why.to_string();
    let mut cause = why.source();
    while let Some(found) = cause {
        let _ = write!(text, ": {found}");
        cause = found.source();
    }
    one_line(&text)
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}
