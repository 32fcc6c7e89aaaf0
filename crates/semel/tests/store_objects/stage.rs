//! What the tests share.

use std::sync::Arc;
use std::time::Duration;

use semel::core::record::{Expect, RecordKey, Version};
use semel::store::{Change, Durability, Record, Settings, Store, StoreError};
use semel_testkit::{Moto, Proxy};

pub(crate) fn settings(variables: &[(&str, &str)]) -> Settings {
    let variables = variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    Settings { variables: variables.collect(), ..Settings::default() }
}

pub(crate) fn open(url: &str, variables: &[(&str, &str)]) -> Arc<dyn Store> {
    semel::store::open(url, &settings(variables)).unwrap()
}

/// A ledger on moto.
pub(crate) fn on(moto: &Moto) -> Arc<dyn Store> {
    open(&moto.url("ledger"), &Moto::VARIABLES)
}

/// The same ledger, through a proxy.
pub(crate) fn through(proxy: &Proxy, deadline: Duration) -> Arc<dyn Store> {
    let settings = Settings { deadline, ..settings(&Moto::VARIABLES) };
    semel::store::open(&Moto::url_at(proxy.address(), "ledger"), &settings).unwrap()
}

pub(crate) fn key(text: &str) -> RecordKey {
    RecordKey::from_stored(text.to_owned())
}

pub(crate) fn put(name: &str, expect: Expect, value: &str, ttl: Option<Duration>) -> Change {
    Change::Put { key: key(name), expect, value: value.as_bytes().to_vec(), ttl }
}

pub(crate) async fn swap(store: &dyn Store, changes: &[Change]) -> Result<Vec<Version>, StoreError> {
    store.swap(changes, Durability::Durable).await
}

pub(crate) async fn load(store: &dyn Store, name: &str) -> Option<Record> {
    store.load(&[key(name)]).await.unwrap().records.pop().flatten()
}

pub(crate) const MINUTE: Option<Duration> = Some(Duration::from_secs(60));
