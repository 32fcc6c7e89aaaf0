//! Many tasks, many handles.

use std::sync::Arc;

use semel_core::record::{Expect, RecordKey};
use semel_core::token::Token;
use tokio::sync::Barrier;

use super::claims;
use super::{Bench, LONG, Verdict, put, said};
use crate::store::{Change, Durability, Store, StoreError};

const TASKS: usize = 1000;
const HANDLES: usize = 4;
const ROUNDS: usize = 3;

pub(super) async fn one_of_a_thousand_tasks_wins(bench: Bench) -> Verdict {
    let mut handles: Vec<Arc<dyn Store>> = Vec::new();
    for _ in 0..HANDLES {
        handles.push(bench.subject.open().await?);
    }
    let key = bench.key("a");
    let mut last = 0;
    for round in 0..ROUNDS {
        let all_have_looked = Arc::new(Barrier::new(TASKS));
        let tasks: Vec<_> = (0..TASKS)
            .map(|i| {
                let (store, key) = (Arc::clone(&handles[i % HANDLES]), key.clone());
                tokio::spawn(claim(store, key, Arc::clone(&all_have_looked)))
            })
            .collect();
        let mut winners = Vec::new();
        for task in tasks {
            winners.extend(task.await.map_err(said)??);
        }
        check!(winners.len() == 1, "round {round}: {} of {TASKS} won: {winners:?}", winners.len());
        check!(winners[0].value() > last, "round {round}: token {} follows {last}", winners[0]);
        last = winners[0].value();
        claims::release_lease(&*bench.store, &key, winners[0]).await??;
    }
    Ok(())
}

/// Look, wait until everybody has looked, and only then write: so all of them find the lease free.
async fn claim(
    store: Arc<dyn Store>,
    key: RecordKey,
    all_have_looked: Arc<Barrier>,
) -> Result<Option<Token>, String> {
    let drafted = claims::draft(&*store, &key, LONG, claims::nonce()?).await;
    all_have_looked.wait().await;
    let (change, won) = drafted?.ok_or("a free lease may not be taken")?;
    match store.swap(&[change], Durability::Durable).await {
        Ok(_) => Ok(Some(won.grant.token)),
        Err(StoreError::Refused(_)) => Ok(None),
        Err(why) => Err(why.to_string()),
    }
}

pub(super) async fn handles_see_each_others_writes(bench: Bench) -> Verdict {
    let other = bench.reopened().await?;
    let mut expect = Expect::Absent;
    for i in 0..20 {
        let (writer, reader) = if i % 2 == 0 { (&bench, &other) } else { (&other, &bench) };
        let versions =
            writer.swap(&[put(&bench.key("a"), expect, &i.to_string(), None)]).await.map_err(said)?;
        expect = Expect::Version(versions[0].clone());
        check!(reader.value("a").await? == Some(i.to_string()), "write {i} is not seen by another handle");
    }
    Ok(())
}

pub(super) async fn a_handle_may_be_reopened_between_any_two_calls(bench: Bench) -> Verdict {
    // every call is made through a handle of its own, which is gone before the next one
    let lease = bench.reopened().await?.win("lease", LONG).await?;
    let entry = bench.reopened().await?.create("entry", "running", None).await?;
    bench.reopened().await?.store.touch(&bench.key("lease"), &lease.version).await.map_err(said)?;
    let settle = [
        Change::Guard { key: bench.key("lease"), expect: Expect::Live(lease.version.clone()) },
        put(&bench.key("entry"), Expect::Version(entry), "done", None),
    ];
    bench.reopened().await?.swap(&settle).await.map_err(said)?;
    let released = {
        let store = bench.reopened().await?.store;
        claims::release_lease(&*store, &bench.key("lease"), lease.grant.token).await?
    };
    check!(released.is_ok(), "the holder cannot release: {released:?}");
    check!(
        bench.reopened().await?.value("entry").await?.as_deref() == Some("done"),
        "the entry was not settled"
    );
    let next = bench.reopened().await?.win("lease", LONG).await?;
    check!(next.grant.token > lease.grant.token, "{} follows {}", next.grant.token, lease.grant.token);
    Ok(())
}
