//! PostgreSQL: what the fence takes and refuses, and how it is installed.

use semel::core::token::{Fence, TOKEN_MAX};
use semel::sink::sql::{self, SqlFenceError, postgres::fence};
use tokio_postgres::{Client, IsolationLevel};

use crate::postgres_stage::*;
use crate::{grant, name};

async fn row(client: &Client, site: &str) -> (i64, String) {
    let question = "SELECT token, nonce FROM semel_fence WHERE resource = $1";
    let row = client.query_one(question, &[&site]).await.unwrap();
    (row.get(0), row.get(1))
}

async fn the_rule_is_the_one_of_the_core(stage: &Stage) {
    let mut client = stage.connect().await;
    let all: Vec<_> =
        [1, 2, 7, 1 << 32, TOKEN_MAX].into_iter().flat_map(|t| [grant(t, 1), grant(t, 2)]).collect();
    for (i, last) in all.iter().enumerate() {
        for (j, next) in all.iter().enumerate() {
            for way in WAYS {
                let site = format!("rule/{i}-{j}-{way:?}");
                let transaction = begin(&mut client, IsolationLevel::ReadCommitted).await;
                pass(&transaction, way, &site, last).await.unwrap();
                let passed = pass(&transaction, way, &site, next).await;
                let expected = match next.against(Some(last)) {
                    Fence::Advance | Fence::Same => Ok(()),
                    Fence::Stale => Err(Refused::Stale),
                    Fence::Clash => Err(Refused::Clash),
                };
                assert_eq!(passed, expected, "{last:?} {next:?} {way:?}");
                if passed.is_ok() {
                    transaction.commit().await.unwrap();
                    let (token, nonce) = row(&client, &site).await;
                    assert_eq!((token.cast_unsigned(), nonce), (next.token.value(), next.nonce.to_string()));
                }
            }
        }
    }
}

async fn the_library_says_what_stands_there(stage: &Stage) {
    let mut client = stage.connect().await;
    let site = name("site:a/b");
    let transaction = client.transaction().await.unwrap();
    fence(&transaction, &site, &grant(42, 1)).await.unwrap();
    transaction.commit().await.unwrap();
    let transaction = client.transaction().await.unwrap();
    let refused = fence(&transaction, &site, &grant(41, 1)).await.unwrap_err();
    assert!(matches!(refused, SqlFenceError::Stale { last } if last.value() == 42), "{refused:?}");
    assert_eq!(refused.to_string(), "the token is stale: the fence is at 42: nothing was written");
    // the transaction takes nothing more, and its commit is none
    let more = transaction.batch_execute("INSERT INTO posts (site) VALUES ('x')").await.unwrap_err();
    assert_eq!(more.code().unwrap().code(), "25P02");
    let _ = transaction.commit().await;
    assert_eq!(number(&client, "SELECT count(*) FROM posts WHERE site = 'x'").await, 0);
    let transaction = client.transaction().await.unwrap();
    let refused = fence(&transaction, &site, &grant(42, 2)).await.unwrap_err();
    assert!(matches!(refused, SqlFenceError::Clash), "{refused:?}");
}

async fn the_error_says_what_happened_and_what_to_do(stage: &Stage) {
    let client = stage.connect().await;
    client.batch_execute("SELECT semel_fence('words', 42, 'a')").await.unwrap();
    let said = |call: &'static str| {
        let client = &client;
        async move {
            let why = client.batch_execute(call).await.unwrap_err();
            let why = why.as_db_error().unwrap();
            let part = |text: Option<&str>| text.unwrap_or_default().to_owned();
            (why.code().code().to_owned(), why.message().to_owned(), part(why.detail()), part(why.hint()))
        }
    };
    let (code, message, detail, hint) = said("SELECT semel_fence('words', 41, 'a')").await;
    assert_eq!((code.as_str(), detail.as_str()), ("SM077", "last=42"));
    assert_eq!(message, "token 41 of words is stale: nothing was written");
    assert!(hint.contains("new holder"));
    let (code, message, detail, _) = said("SELECT semel_fence('words', 42, 'b')").await;
    assert_eq!((code.as_str(), detail.as_str()), ("SM079", "last=42 last_nonce=a nonce=b"));
    assert_eq!(message, "token 42 of words was granted twice: nothing was written");
    for (call, code) in [
        ("SELECT semel_fence('words', NULL, 'a')", "22004"),
        ("SELECT semel_fence(NULL, 43, 'a')", "22004"),
        ("SELECT semel_fence('words', 43, NULL)", "22004"),
        ("SELECT semel_fence('words', 0, 'a')", "23514"),
        ("SELECT semel_fence('words', 9007199254740992, 'a')", "23514"),
    ] {
        assert_eq!(said(call).await.0, code, "{call}");
    }
    assert_eq!(row(&client, "words").await, (42, "a".to_owned()));
}

/// Fenced in the writing statement: no transaction around it, and nothing of a stale one is done.
async fn a_single_statement_is_fenced(stage: &Stage) {
    let client = stage.connect().await;
    let with = |token: u64| {
        format!(
            "WITH fence AS (
               INSERT INTO semel_fence AS f (resource, token, nonce) VALUES ('one', {token}, 'n')
               ON CONFLICT (resource) DO UPDATE
                 SET token = excluded.token, nonce = excluded.nonce, changed = excluded.changed
                 WHERE f.token < excluded.token OR (f.token = excluded.token AND f.nonce = excluded.nonce)
               RETURNING 1)
             INSERT INTO posts (site, title) SELECT 'one', 'with {token}' FROM fence"
        )
    };
    let writes = |token: u64| {
        let call = format!("semel_fence('one', {token}, 'n')");
        [
            format!("INSERT INTO posts (site, title) SELECT 'one', 'from {token}' FROM {call}"),
            format!("UPDATE posts SET title = 'updated {token}' FROM {call} WHERE site = 'one'"),
            format!("DELETE FROM posts USING {call} WHERE site = 'one'"),
            format!("INSERT INTO posts (site, title) SELECT 'one', 'where {token}' WHERE {call}"),
        ]
    };
    for write in writes(5) {
        assert_eq!(client.execute(&write, &[]).await.unwrap(), 1, "{write}");
    }
    assert_eq!(client.execute(&with(6), &[]).await.unwrap(), 1);
    for write in writes(5) {
        assert_eq!(refused(&client.execute(&write, &[]).await.unwrap_err()), Refused::Stale, "{write}");
    }
    assert_eq!(client.execute(&with(5), &[]).await.unwrap(), 0, "nothing is written, and nothing is said");
    let titles = client.query("SELECT title FROM posts WHERE site = 'one' ORDER BY id", &[]).await.unwrap();
    let titles: Vec<&str> = titles.iter().map(|row| row.get(0)).collect();
    assert_eq!(titles, ["where 5", "with 6"]);
}

async fn a_rollback_takes_the_fence_back(stage: &Stage) {
    let mut client = stage.connect().await;
    let site = name("back");
    for (token, commit) in [(5, true), (9, false), (6, true)] {
        let transaction = client.transaction().await.unwrap();
        fence(&transaction, &site, &grant(token, 1)).await.unwrap();
        if commit {
            transaction.commit().await.unwrap();
        }
    }
    assert_eq!(row(&client, "back").await.0, 6);
}

#[tokio::test]
async fn postgres_the_fence_follows_the_rule_and_says_so() {
    let Some(stage) = Stage::new("postgres_the_fence_follows_the_rule_and_says_so").await else { return };
    the_rule_is_the_one_of_the_core(&stage).await;
    the_library_says_what_stands_there(&stage).await;
    the_error_says_what_happened_and_what_to_do(&stage).await;
    a_single_statement_is_fenced(&stage).await;
    a_rollback_takes_the_fence_back(&stage).await;
}

/// No superuser, any schema, any search path, twice, and many at once.
#[tokio::test]
async fn postgres_the_migration_is_installed_by_anybody_and_again() {
    let test = "postgres_the_migration_is_installed_by_anybody_and_again";
    let Some(stage) = Stage::empty(test) else { return };
    let mut client = stage.connect().await;

    let transaction = client.transaction().await.unwrap();
    let missing = fence(&transaction, &name("a"), &grant(1, 1)).await.unwrap_err();
    assert!(matches!(missing, SqlFenceError::NotInstalled), "{missing:?}");
    assert!(missing.to_string().contains("semel fence sql"));
    drop(transaction);

    client
        .batch_execute(
            "CREATE ROLE owner; CREATE ROLE app; CREATE ROLE stranger;
             CREATE SCHEMA \"The App\" AUTHORIZATION owner;
             GRANT USAGE ON SCHEMA \"The App\" TO app, stranger",
        )
        .await
        .unwrap();
    let mut installers = tokio::task::JoinSet::new();
    for _ in 0..8 {
        let installer = stage.connect().await;
        installer.batch_execute("SET ROLE owner; SET search_path = \"The App\"").await.unwrap();
        installers.spawn(async move { installer.batch_execute(sql::POSTGRES).await });
    }
    for installed in installers.join_all().await {
        installed.unwrap();
    }
    // a fence that is in use is not touched by another migration
    client.batch_execute("SELECT \"The App\".semel_fence('a', 7, 'n')").await.unwrap();
    client.batch_execute("SET search_path = \"The App\"").await.unwrap();
    client.batch_execute(sql::POSTGRES).await.unwrap();
    assert_eq!(row(&client, "a").await.0, 7);
    client.batch_execute("GRANT SELECT, INSERT, UPDATE ON semel_fence TO app").await.unwrap();

    // the caller's own search path, and a table of the same name on it, make no difference
    let app = stage.connect().await;
    app.batch_execute("CREATE TEMP TABLE semel_fence (resource text PRIMARY KEY, token bigint, nonce text)")
        .await
        .unwrap();
    app.batch_execute("GRANT ALL ON pg_temp.semel_fence TO app; SET ROLE app").await.unwrap();
    let stale = app.batch_execute("SELECT \"The App\".semel_fence('a', 6, 'n')").await.unwrap_err();
    assert_eq!(refused(&stale), Refused::Stale);
    app.batch_execute("SELECT \"The App\".semel_fence('a', 8, 'n')").await.unwrap();
    assert_eq!(row(&client, "a").await.0, 8);

    app.batch_execute("RESET ROLE; SET ROLE stranger").await.unwrap();
    let why = app.batch_execute("SELECT \"The App\".semel_fence('a', 9, 'n')").await.unwrap_err();
    assert_eq!(why.code().unwrap().code(), "42501", "who may not write the table passes no fence");
    assert_eq!(row(&client, "a").await.0, 8);

    // where there is a function but its table is gone
    client.batch_execute("DROP TABLE semel_fence").await.unwrap();
    let transaction = client.transaction().await.unwrap();
    let missing = fence(&transaction, &name("a"), &grant(9, 1)).await.unwrap_err();
    assert!(matches!(missing, SqlFenceError::NotInstalled), "{missing:?}");
}
