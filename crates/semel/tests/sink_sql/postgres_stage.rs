//! A private server with the fence and the user's table in it.

use std::time::{Duration, Instant};

use semel::core::token::Grant;
use semel::sink::sql::{self, SqlFenceError};
use semel_testkit::Postgres;
use tokio_postgres::{Client, Error, IsolationLevel, NoTls, Transaction};

use crate::skips::skipped;

pub(crate) const LEVELS: [IsolationLevel; 3] =
    [IsolationLevel::ReadCommitted, IsolationLevel::RepeatableRead, IsolationLevel::Serializable];

/// The server.
pub(crate) struct Stage {
    server: Postgres,
}

/// How somebody passes the fence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// By the library's call.
    Library,
    /// As text, from any language.
    Text,
}

pub(crate) const WAYS: [Way; 2] = [Way::Library, Way::Text];

impl Stage {
    /// An empty database; `None` where there is no server, said in the skip log.
    pub(crate) fn empty(test: &str) -> Option<Stage> {
        let server = Postgres::start_with(&["track_commit_timestamp=on"]);
        server.map(|server| Stage { server }).map_err(|reason| skipped(test, &reason)).ok()
    }

    /// With the fence, and a table of posts.
    pub(crate) async fn new(test: &str) -> Option<Stage> {
        let stage = Stage::empty(test)?;
        let client = stage.connect().await;
        client.batch_execute(sql::POSTGRES).await.unwrap();
        client
            .batch_execute(
                "CREATE TABLE posts (id bigserial PRIMARY KEY, site text, token bigint, title text)",
            )
            .await
            .unwrap();
        Some(stage)
    }

    pub(crate) fn url(&self) -> String {
        self.server.url()
    }

    pub(crate) async fn connect(&self) -> Client {
        let (client, connection) = tokio_postgres::connect(&self.server.url(), NoTls).await.unwrap();
        tokio::spawn(connection);
        client
    }
}

/// Pass the fence, one way or the other.
pub(crate) async fn pass(
    transaction: &Transaction<'_>,
    way: Way,
    resource: &str,
    grant: &Grant,
) -> Result<(), Refused> {
    match way {
        Way::Library => {
            let passed = sql::postgres::fence(transaction, &crate::name(resource), grant).await;
            passed.map_err(Refused::from)
        }
        Way::Text => transaction.batch_execute(&call(resource, grant)).await.map_err(|why| refused(&why)),
    }
}

/// The call as text.
pub(crate) fn call(resource: &str, grant: &Grant) -> String {
    format!("SELECT semel_fence('{resource}', {}, '{}')", grant.token, grant.nonce)
}

/// Why somebody was not let in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    Stale,
    Clash,
    /// 40001: begin anew.
    Serialization,
    Other(String),
}

/// What an error of the driver means.
pub(crate) fn refused(why: &Error) -> Refused {
    match why.code().map(|code| code.code()) {
        Some(sql::STALE) => Refused::Stale,
        Some(sql::CLASH) => Refused::Clash,
        Some("40001") => Refused::Serialization,
        _ => Refused::Other(format!("{why}: {why:?}")),
    }
}

impl From<SqlFenceError> for Refused {
    fn from(why: SqlFenceError) -> Refused {
        match why {
            SqlFenceError::Stale { .. } => Refused::Stale,
            SqlFenceError::Clash => Refused::Clash,
            SqlFenceError::Database(why) => match why.downcast_ref::<Error>() {
                Some(why) => refused(why),
                None => Refused::Other(why.to_string()),
            },
            other @ SqlFenceError::NotInstalled => Refused::Other(other.to_string()),
        }
    }
}

pub(crate) async fn begin(client: &mut Client, level: IsolationLevel) -> Transaction<'_> {
    client.build_transaction().isolation_level(level).start().await.unwrap()
}

pub(crate) async fn number(client: &Client, question: &str) -> i64 {
    client.query_one(question, &[]).await.unwrap_or_else(|why| panic!("{question}: {why:?}")).get(0)
}

pub(crate) async fn pid(client: &Client) -> i32 {
    client.query_one("SELECT pg_backend_pid()", &[]).await.unwrap().get(0)
}

/// Wait until this server process waits for another's transaction.
pub(crate) async fn until_blocked(watch: &Client, pid: i32) {
    let start = Instant::now();
    loop {
        let row = watch.query_one("SELECT cardinality(pg_blocking_pids($1)) > 0", &[&pid]).await.unwrap();
        if row.get::<_, bool>(0) {
            return;
        }
        assert!(start.elapsed() < Duration::from_secs(30), "{pid} does not wait for anybody");
        tokio::time::sleep(Duration::from_micros(200)).await;
    }
}
