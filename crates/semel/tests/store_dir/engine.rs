//! Runs of the engine on a directory: one effect, however many run it and whichever answer gets lost.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use semel::core::record::{RecordKey, Version};
use semel::store::dir::Dir;
use semel::store::{Change, Durability, Loaded, Pending, Record, Store, StoreError, Swaps};
use semel::{Job, Semel};

use crate::support::Folder;

type Any = Box<dyn std::error::Error + Send + Sync>;

/// The answer to one write gets lost, after it was made.
#[derive(Debug)]
struct Losing {
    inner: Dir,
    left: AtomicUsize,
}

impl Losing {
    fn lose<T>(&self, done: Result<T, StoreError>) -> Result<T, StoreError> {
        match self.left.fetch_sub(1, Ordering::Relaxed) {
            1 => Err(StoreError::Unknown("the answer got lost".to_owned())),
            _ => done,
        }
    }
}

impl Store for Losing {
    fn load<'a>(&'a self, keys: &'a [RecordKey]) -> Pending<'a, Loaded> {
        self.inner.load(keys)
    }

    fn swap<'a>(&'a self, changes: &'a [Change], durability: Durability) -> Pending<'a, Vec<Version>> {
        Box::pin(async move { self.lose(self.inner.swap(changes, durability).await) })
    }

    fn touch<'a>(&'a self, key: &'a RecordKey, version: &'a Version) -> Pending<'a, ()> {
        Box::pin(async move { self.lose(self.inner.touch(key, version).await) })
    }

    fn scan<'a>(
        &'a self,
        prefix: &'a str,
        after: Option<&'a RecordKey>,
        limit: usize,
    ) -> Pending<'a, Vec<Record>> {
        self.inner.scan(prefix, after, limit)
    }

    fn changed<'a>(
        &'a self,
        key: &'a RecordKey,
        version: Option<&'a Version>,
        within: Duration,
    ) -> Pending<'a, bool> {
        self.inner.changed(key, version, within)
    }

    fn swaps(&self) -> Swaps {
        self.inner.swaps()
    }
}

fn job() -> Job {
    Job::named("job").slot("monday").build().unwrap()
}

async fn once(store: Arc<dyn Store>, effects: &AtomicUsize) -> String {
    let outcome = Semel::on(store)
        .run(&job(), async |_| -> Result<u32, Any> {
            effects.fetch_add(1, Ordering::Relaxed);
            Ok(7)
        })
        .await;
    format!("{outcome:?}")
}

#[tokio::test]
async fn an_answer_that_gets_lost_neither_doubles_the_effect_nor_loses_the_outcome() {
    for lost in 1..=4 {
        let (folder, effects) = (Folder::new(), AtomicUsize::new(0));
        let losing = Losing { inner: folder.store(), left: AtomicUsize::new(lost) };
        let first = once(Arc::new(losing), &effects).await;
        assert_eq!(effects.load(Ordering::Relaxed), 1, "write {lost}: {first}");
        let second = once(Arc::new(folder.store()), &effects).await;
        assert_eq!(effects.load(Ordering::Relaxed), 1, "write {lost}: {first}, then {second}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn of_many_runs_at_once_one_does_it() {
    for round in 0..5 {
        let (folder, effects) = (Folder::new(), Arc::new(AtomicUsize::new(0)));
        let runs: Vec<_> = (0..12)
            .map(|_| {
                let (store, effects) = (Arc::new(folder.store()), Arc::clone(&effects));
                tokio::spawn(async move { once(store, &effects).await })
            })
            .collect();
        for run in runs {
            run.await.unwrap();
        }
        assert_eq!(effects.load(Ordering::Relaxed), 1, "round {round}");
    }
}
