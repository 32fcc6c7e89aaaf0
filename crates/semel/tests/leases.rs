//! Many leases in one process that may have few descriptors. In a program of its own: the limit is the whole process's.

#![cfg(all(feature = "sqlite", target_os = "linux"))]
#![allow(clippy::unwrap_used, clippy::panic)] // a test that cannot go on should say where

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use semel::core::record::{RecordKey, Standing, Version};
use semel::store::sqlite::Sqlite;
use semel::store::{Change, Durability, Loaded, Pending, Record, Store};
use semel::{Held, Semel};
use tokio::sync::{Notify, mpsc, watch};
use tokio::task::JoinSet;

const LEASES: usize = 2_000;
const DESCRIPTORS: u64 = 256;
/// A heartbeat of three seconds: three of them are as long as a lease lives without.
const TTL: Duration = Duration::from_secs(9);
const RENEWALS: u32 = 3;
const DEADLINE: Duration = Duration::from_secs(120);

/// A store that counts renewals.
#[derive(Debug)]
struct Counting {
    sqlite: Sqlite,
    renewals: Mutex<HashMap<RecordKey, u32>>,
    renewed: Notify,
}

impl Counting {
    /// Have all been renewed so often?
    fn all_renewed(&self) -> bool {
        let renewals = self.renewals.lock().unwrap();
        renewals.len() == LEASES && renewals.values().all(|often| *often >= RENEWALS)
    }
}

impl Store for Counting {
    fn load<'a>(&'a self, keys: &'a [RecordKey]) -> Pending<'a, Loaded> {
        self.sqlite.load(keys)
    }

    fn swap<'a>(&'a self, changes: &'a [Change], durability: Durability) -> Pending<'a, Vec<Version>> {
        self.sqlite.swap(changes, durability)
    }

    fn touch<'a>(&'a self, key: &'a RecordKey, version: &'a Version) -> Pending<'a, ()> {
        Box::pin(async move {
            self.sqlite.touch(key, version).await?;
            *self.renewals.lock().unwrap().entry(key.clone()).or_default() += 1;
            self.renewed.notify_one();
            Ok(())
        })
    }

    fn scan<'a>(
        &'a self,
        prefix: &'a str,
        after: Option<&'a RecordKey>,
        limit: usize,
    ) -> Pending<'a, Vec<Record>> {
        self.sqlite.scan(prefix, after, limit)
    }

    fn changed<'a>(
        &'a self,
        key: &'a RecordKey,
        version: Option<&'a Version>,
        within: Duration,
    ) -> Pending<'a, bool> {
        self.sqlite.changed(key, version, within)
    }
}

fn allow_few_descriptors() {
    let limit = libc::rlimit { rlim_cur: DESCRIPTORS, rlim_max: DESCRIPTORS };
    // SAFETY: plain system call on a value of ours.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &limit) }, 0);
}

fn name(n: usize) -> String {
    format!("resource-{n}")
}

/// How many are live by the store's own clock.
async fn live(store: &dyn Store) -> usize {
    let mut live = 0;
    let mut after = None;
    loop {
        let page = store.scan(RecordKey::leases(), after.as_ref(), 500).await.unwrap();
        let Some(last) = page.last() else { return live };
        after = Some(last.key.clone());
        live += page.iter().filter(|record| matches!(record.standing, Some(Standing::Live { .. }))).count();
    }
}

#[tokio::test]
async fn two_thousand_leases_are_kept_alive_with_256_descriptors() {
    allow_few_descriptors();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ledger.db");
    let store = Arc::new(Counting {
        sqlite: Sqlite::open(&path).unwrap(),
        renewals: Mutex::default(),
        renewed: Notify::new(),
    });
    let semel = Semel::on(store.clone());
    let (stop, stopped) = watch::channel(false);
    let (begun, mut all_begun) = mpsc::unbounded_channel();
    let mut holders = JoinSet::new();
    for n in 0..LEASES {
        let (semel, stopped, begun) = (semel.clone(), stopped.clone(), begun.clone());
        holders.spawn(async move {
            let body = |lease: semel::Lease| {
                begun.send(lease.token()).unwrap();
                let mut stopped = stopped.clone();
                async move { drop(stopped.wait_for(|stop| *stop).await) }
            };
            semel.lease(&name(n)).ttl(TTL).hold(body).await
        });
    }
    let all_held = async {
        for _ in 0..LEASES {
            all_begun.recv().await.unwrap();
        }
        while !store.all_renewed() {
            store.renewed.notified().await;
        }
    };
    tokio::time::timeout(DEADLINE, all_held).await.unwrap();

    assert_eq!(live(&*store).await, LEASES);
    let descriptors = std::fs::read_dir("/proc/self/fd").unwrap().count();
    assert!(descriptors < 64, "{descriptors} descriptors");
    // another process's view: a handle of its own, for which there must be descriptors left
    let other = Semel::sqlite(&path).unwrap();
    for n in 0..LEASES {
        let held = other.lease(&name(n)).hold(async |_| ()).await;
        assert!(matches!(held, Held::Busy { .. }), "{n}: {held:?}");
    }

    stop.send(true).unwrap();
    for held in holders.join_all().await {
        assert!(matches!(held, Held::Released(())), "{held:?}");
    }
}
