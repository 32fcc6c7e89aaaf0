//! The tables and functions, and how they come to be.
//!
//! Theory. A verb calls a function that carries the version of the schema in its name. Where it is missing, the schema
//! is, and is made then: so a verb on a ledger that is there costs no look. Whoever makes it holds a lock of its
//! transaction, and those who waited for it find it made.

use tokio_postgres::types::Type;

use super::super::{OpenError, StoreError};
use super::connect::Wire;
use super::error::{self, Fault};

/// The schema of the tables, unless the address names another.
pub const DEFAULT_SCHEMA: &str = "semel";

/// The version that this build speaks.
pub(super) const VERSION: i32 = 1;

const BODY: &str = include_str!("schema.sql");

/// The longest name: the channel's is made of it, and PostgreSQL cuts names at 63 bytes.
const NAME_LIMIT: usize = 48;

/// The SQL that makes the ledger in this schema, for those whose role may not: an administrator runs it.
pub fn schema_sql(schema: &str) -> Result<String, OpenError> {
    check(schema)?;
    Ok(format!(
        "CREATE SCHEMA IF NOT EXISTS {schema};\n\n{}\n-- For each role that uses it:\n\
         -- GRANT USAGE ON SCHEMA {schema} TO the_role;\n\
         -- GRANT SELECT ON {schema}.ledger TO the_role;\n\
         -- GRANT SELECT, INSERT, UPDATE, DELETE ON {schema}.records TO the_role;\n",
        body(schema)
    ))
}

/// Only names that mean the same with and without quotes.
pub(super) fn check(schema: &str) -> Result<(), OpenError> {
    let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_';
    let fits = !schema.is_empty() && schema.len() <= NAME_LIMIT && schema.bytes().all(plain);
    if fits && !schema.starts_with(|c: char| c.is_ascii_digit()) && !schema.starts_with("pg_") {
        return Ok(());
    }
    Err(OpenError::Configuration(format!(
        "schema= of the address is wrong: give a name of at most {NAME_LIMIT} lower-case letters, digits and _, not starting with a digit or pg_"
    )))
}

/// Where hints about this ledger are sent.
pub(super) fn channel(schema: &str) -> String {
    format!("semel_{schema}")
}

fn body(schema: &str) -> String {
    BODY.replace("{schema}", schema).replace("{channel}", &channel(schema))
}

fn install_sql(schema: &str) -> String {
    // a lock of the transaction alone: a pooler may hand the next one to another session
    format!(
        "DO $semel_install$ BEGIN \
         PERFORM pg_advisory_xact_lock(hashtext('semel install {schema}')); \
         IF to_regproc('{schema}.await_{VERSION}') IS NULL OR to_regclass('{schema}.records') IS NULL THEN \
         IF to_regnamespace('{schema}') IS NULL THEN EXECUTE 'CREATE SCHEMA {schema}'; END IF; \
         EXECUTE $semel_schema$ {} $semel_schema$; END IF; END $semel_install$",
        body(schema)
    )
}

/// Make what is missing.
pub(super) async fn install(wire: &Wire, schema: &str) -> Result<(), StoreError> {
    let place = &wire.place;
    if let Some(found) = version(wire, schema).await?.filter(|found| *found > VERSION) {
        return Err(StoreError::Unavailable(format!(
            "the ledger in {schema} of {place} was made by a newer Semel (schema {found}, this one knows {VERSION}): upgrade this one"
        )));
    }
    for _ in 0..5 {
        let Err(why) = wire.client.batch_execute(&install_sql(schema)).await else { return Ok(()) };
        // somebody made it by hand at the same moment
        let raced =
            matches!(error::code(&why), Some("23505" | "42P06" | "42P07" | "42710" | "42723" | "XX000"));
        match error::sort(&why, wire) {
            _ if raced => {}
            Fault::Again => {}
            _ if error::code(&why) == Some("42501") => {
                return Err(StoreError::Unavailable(format!(
                    "the ledger {schema}.records is missing in {place} and {} may not make it: let an administrator run what `semel store schema` prints",
                    wire.user
                )));
            }
            Fault::Missing(said) | Fault::NotApplied(said) | Fault::Broken(said) => {
                return Err(StoreError::Unavailable(format!("the ledger cannot be made: {said}")));
            }
        }
    }
    Err(StoreError::Unavailable(format!(
        "the ledger in {schema} of {place} is being made by others: try again"
    )))
}

/// The version of the schema that is there.
pub(super) async fn version(wire: &Wire, schema: &str) -> Result<Option<i32>, StoreError> {
    let unavailable = |why| StoreError::Unavailable(error::sort(&why, wire).said());
    let table = format!("{schema}.ledger");
    let look = "SELECT to_regclass($1) IS NOT NULL";
    let found = wire.client.query_typed(look, &[(&table, Type::TEXT)]).await.map_err(unavailable)?;
    if !found.first().and_then(|row| row.try_get(0).ok()).unwrap_or(false) {
        return Ok(None);
    }
    let look = format!("SELECT version FROM {table}");
    let found = wire.client.query_typed(&look, &[]).await;
    match found {
        Ok(rows) => Ok(rows.first().and_then(|row| row.try_get(0).ok())),
        // it is there and closed to us: what we came for is missing all the same
        Err(why) if error::code(&why) == Some("42501") => Ok(None),
        Err(why) => Err(unavailable(why)),
    }
}
