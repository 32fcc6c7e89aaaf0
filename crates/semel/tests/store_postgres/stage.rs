//! What the tests share.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use semel::core::record::{Expect, RecordKey, Version};
use semel::store::conformance::{Helper, Later, Subject};
use semel::store::postgres::Postgres;
use semel::store::{Change, Durability, Settings, Store};

/// Records in a schema of a server.
pub(crate) struct Served {
    pub(crate) url: String,
    made: Arc<AtomicU32>,
    schema: u32,
}

impl Served {
    pub(crate) fn at(url: String) -> Served {
        Served { url, made: Arc::new(AtomicU32::new(1)), schema: 0 }
    }

    fn full_url(&self) -> String {
        format!("{}?schema=suite_{}", self.url, self.schema)
    }
}

impl Subject for Served {
    fn open(&self) -> Later<'_, Result<Arc<dyn Store>, String>> {
        let opened = Postgres::new(&self.full_url(), &Settings::default()).map_err(|why| why.to_string());
        Box::pin(async { opened.map(|store| Arc::new(store) as Arc<dyn Store>) })
    }

    fn isolated(&self) -> Later<'_, Result<Arc<dyn Subject>, String>> {
        let schema = self.made.fetch_add(1, Ordering::SeqCst);
        let other = Served { url: self.url.clone(), made: Arc::clone(&self.made), schema };
        Box::pin(async { Ok(Arc::new(other) as Arc<dyn Subject>) })
    }

    fn helper(&self) -> Option<Helper> {
        Some(Helper { program: probe(), url: self.full_url() })
    }
}

pub(crate) fn probe() -> PathBuf {
    PathBuf::from(env!("CARGO_BIN_EXE_semel-store-probe"))
}

pub(crate) fn open(url: &str) -> Postgres {
    open_with(url, Settings::default())
}

pub(crate) fn open_with(url: &str, settings: Settings) -> Postgres {
    Postgres::new(url, &settings).unwrap()
}

pub(crate) fn hurried(deadline: Duration) -> Settings {
    Settings { deadline, ..Settings::default() }
}

pub(crate) fn key(text: &str) -> RecordKey {
    RecordKey::from_stored(text.to_owned())
}

pub(crate) fn put(name: &str, expect: Expect, value: &str, ttl: Option<Duration>) -> Change {
    Change::Put { key: key(name), expect, value: value.as_bytes().to_vec(), ttl }
}

pub(crate) const MINUTE: Option<Duration> = Some(Duration::from_secs(60));

pub(crate) async fn create(store: &dyn Store, name: &str, ttl: Option<Duration>) -> Version {
    store.swap(&[put(name, Expect::Absent, "x", ttl)], Durability::Durable).await.unwrap().remove(0)
}
