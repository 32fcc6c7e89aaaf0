//! Stores on this machine: memory, SQLite, a directory.

use std::sync::Arc;
use std::time::Duration;

use semel::core::record::{RecordKey, Version};
use semel::store::memory::Memory;
use semel::store::sqlite::Sqlite;
use semel::store::{Change, Durability, Loaded, Pending, Record, Settings, Store, Swaps, open};
use tokio::task::yield_now;

use crate::arena::Arena;
use crate::distant::{self, Distant};

/// A store that lets others come in before and after each verb: one in memory has no other moment for them.
#[derive(Debug)]
pub(crate) struct Yielding<S>(pub(crate) S);

impl<S: Store> Store for Yielding<S> {
    fn load<'a>(&'a self, keys: &'a [RecordKey]) -> Pending<'a, Loaded> {
        Box::pin(async {
            yield_now().await;
            let answer = self.0.load(keys).await;
            yield_now().await;
            answer
        })
    }

    fn swap<'a>(&'a self, changes: &'a [Change], durability: Durability) -> Pending<'a, Vec<Version>> {
        Box::pin(async move {
            yield_now().await;
            let answer = self.0.swap(changes, durability).await;
            yield_now().await;
            answer
        })
    }

    fn touch<'a>(&'a self, key: &'a RecordKey, version: &'a Version) -> Pending<'a, ()> {
        Box::pin(async {
            yield_now().await;
            let answer = self.0.touch(key, version).await;
            yield_now().await;
            answer
        })
    }

    fn scan<'a>(
        &'a self,
        prefix: &'a str,
        after: Option<&'a RecordKey>,
        limit: usize,
    ) -> Pending<'a, Vec<Record>> {
        self.0.scan(prefix, after, limit)
    }

    fn changed<'a>(
        &'a self,
        key: &'a RecordKey,
        version: Option<&'a Version>,
        within: Duration,
    ) -> Pending<'a, bool> {
        self.0.changed(key, version, within)
    }
}

#[test]
fn memory_is_linearizable() {
    let memory = Memory::new();
    let handles = (0..4).map(|_| Arc::new(Yielding(memory.clone())) as Arc<dyn Store>).collect();
    Arena { name: "memory", handles, deck: Vec::new() }.run().holds();
}

/// Handles of this process, and processes that are killed and stopped.
fn with_processes(name: &'static str, url: &str, mut handles: Vec<Arc<dyn Store>>, swaps: Swaps) {
    let clients: Vec<Arc<Distant>> = (0..3).map(|_| Distant::on(url.to_owned(), swaps)).collect();
    handles.extend(clients.iter().map(|client| Arc::clone(client) as Arc<dyn Store>));
    Arena { name, handles, deck: distant::processes(&clients) }.run().holds();
}

#[test]
fn sqlite_is_linearizable() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("state.db");
    let handle = |_| {
        let store: Arc<dyn Store> = Arc::new(Sqlite::open(&path).unwrap());
        store.expect_many();
        store
    };
    let handles = (0..3).map(handle).collect();
    with_processes("sqlite", &format!("sqlite:{}", path.display()), handles, Swaps::Whole);
}

#[test]
fn sqlite_in_place_is_linearizable() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("state.db");
    let handle = |_| Arc::new(Sqlite::open_in_place(&path).unwrap()) as Arc<dyn Store>;
    let handles = (0..3).map(handle).collect();
    with_processes("sqlite in place", &format!("sqlite:{}", path.display()), handles, Swaps::Whole);
}

#[test]
fn a_directory_is_linearizable() {
    let folder = tempfile::tempdir().unwrap();
    let url = format!("dir:{}", folder.path().join("store").display());
    let handles = (0..3).map(|_| open(&url, &Settings::default()).unwrap()).collect();
    with_processes("dir", &url, handles, Swaps::InOrder);
}
