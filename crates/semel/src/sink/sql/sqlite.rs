//! The fence for a transaction of `rusqlite`.

use rusqlite::{Error, ErrorCode, OptionalExtension, Transaction, params};
use semel_core::name::Name;
use semel_core::token::{Grant, Token};

use super::SqlFenceError;

/// Pass the fence of this resource, in this transaction: call it first, then read and write.
///
/// It takes SQLite's write lock, which the transaction keeps until it ends. After an error the transaction is
/// still open: drop it, or roll it back. `PRAGMA busy_timeout` is how long it waits for another that writes.
///
/// ```
/// use rusqlite::{Connection, TransactionBehavior};
/// use semel::core::{name::Name, token::{Grant, Nonce, Token}};
/// use semel::sink::sql::{SQLITE, SqlFenceError, sqlite::fence};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let mut db = Connection::open_in_memory()?;
/// db.execute_batch(SQLITE)?;
/// db.execute_batch("CREATE TABLE posts (title TEXT)")?;
///
/// let resource = Name::new("site")?;
/// let grant = |token| Token::new(token).map(|token| Grant { token, nonce: Nonce::from_bytes([7; 16]) });
///
/// let transaction = db.transaction_with_behavior(TransactionBehavior::Immediate)?;
/// fence(&transaction, &resource, &grant(42)?)?;
/// transaction.execute("INSERT INTO posts (title) VALUES ('on being once')", [])?;
/// transaction.commit()?;
///
/// // a zombie, with the token that was before
/// let transaction = db.transaction()?;
/// let refused = fence(&transaction, &resource, &grant(41)?);
/// assert!(matches!(refused, Err(SqlFenceError::Stale { last }) if last.value() == 42));
/// # Ok(())
/// # }
/// ```
pub fn fence(transaction: &Transaction<'_>, resource: &Name, grant: &Grant) -> Result<(), SqlFenceError> {
    crate::crash::point("sql.fence.before");
    // the condition is the triggers' too; here it holds for a connection that has its triggers switched off
    let written = transaction.execute(
        "INSERT INTO semel_fence (resource, token, nonce) VALUES (?1, ?2, ?3)
         ON CONFLICT (resource) DO UPDATE
           SET token = excluded.token, nonce = excluded.nonce, changed = excluded.changed
           WHERE semel_fence.token < excluded.token
              OR (semel_fence.token = excluded.token AND semel_fence.nonce = excluded.nonce)",
        params![resource.as_str(), grant.token.value().cast_signed(), grant.nonce.to_string()],
    );
    crate::crash::point("sql.fence.after");
    let why = match written {
        Ok(0) => Error::StatementChangedRows(0),
        Ok(_) => return Ok(()),
        Err(why) if why.sqlite_error_code() == Some(ErrorCode::ConstraintViolation) => why,
        Err(Error::SqliteFailure(_, Some(said))) if said.starts_with("no such table: ") => {
            return Err(SqlFenceError::NotInstalled);
        }
        Err(why) => return Err(SqlFenceError::Database(why.into())),
    };
    // refused: what stands there says as what
    let last = last(transaction, resource).map_err(|why| SqlFenceError::Database(why.into()))?;
    match last {
        Some(last) if last > grant.token => Err(SqlFenceError::Stale { last }),
        Some(last) if last == grant.token => Err(SqlFenceError::Clash),
        _ => Err(SqlFenceError::Database(why.into())),
    }
}

/// The last token that passed; a row that holds none is an error.
fn last(transaction: &Transaction<'_>, resource: &Name) -> Result<Option<Token>, Error> {
    let row = transaction.query_row(
        "SELECT token FROM semel_fence WHERE resource = ?1",
        [resource.as_str()],
        |row| row.get::<_, i64>(0),
    );
    let Some(token) = row.optional()? else { return Ok(None) };
    let token = Token::new(token.cast_unsigned()).map_err(|why| Error::ToSqlConversionFailure(why.into()))?;
    Ok(Some(token))
}
