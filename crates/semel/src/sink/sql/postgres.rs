//! The fence for a transaction of `tokio-postgres`.

use semel_core::name::Name;
use semel_core::token::{Grant, Token};
use tokio_postgres::types::Type;
use tokio_postgres::{Error, Transaction};

use super::{CLASH, STALE, SqlFenceError};

const UNDEFINED_FUNCTION: &str = "42883";
const UNDEFINED_TABLE: &str = "42P01";

/// Pass the fence of this resource, in this transaction: call it first, then read and write.
///
/// After an error PostgreSQL takes nothing more in this transaction: roll it back. One round trip; no session
/// state, so that it works behind a pooler. In a savepoint it holds for what is written in that savepoint.
///
/// ```no_run
/// use semel::core::{name::Name, token::Grant};
/// use semel::sink::sql::postgres::fence;
///
/// async fn publish(
///     client: &mut tokio_postgres::Client,
///     resource: &Name,
///     grant: &Grant,
/// ) -> Result<(), Box<dyn std::error::Error>> {
///     let transaction = client.transaction().await?;
///     fence(&transaction, resource, grant).await?;
///     transaction.execute("INSERT INTO posts (title) VALUES ('on being once')", &[]).await?;
///     transaction.commit().await?;
///     Ok(())
/// }
/// ```
pub async fn fence(
    transaction: &Transaction<'_>,
    resource: &Name,
    grant: &Grant,
) -> Result<(), SqlFenceError> {
    let token = i64::try_from(grant.token.value()).map_err(|why| SqlFenceError::Database(why.into()))?;
    crate::crash::point("sql.fence.before");
    let passed = transaction
        .query_typed(
            "SELECT semel_fence($1, $2, $3)",
            &[(&resource.as_str(), Type::TEXT), (&token, Type::INT8), (&grant.nonce.to_string(), Type::TEXT)],
        )
        .await;
    crate::crash::point("sql.fence.after");
    passed.map(drop).map_err(refusal)
}

fn refusal(why: Error) -> SqlFenceError {
    let said = why.as_db_error().map(|said| (said.code().code(), said.detail()));
    match said {
        Some((CLASH, _)) => SqlFenceError::Clash,
        Some((UNDEFINED_FUNCTION | UNDEFINED_TABLE, _)) => SqlFenceError::NotInstalled,
        Some((STALE, detail)) => match detail.and_then(last_token) {
            Some(last) => SqlFenceError::Stale { last },
            None => SqlFenceError::Database(why.into()),
        },
        _ => SqlFenceError::Database(why.into()),
    }
}

/// The function says it in the error's detail: after an error nothing can be asked any more.
fn last_token(detail: &str) -> Option<Token> {
    detail.strip_prefix("last=")?.parse().ok()
}
