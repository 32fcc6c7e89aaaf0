//! Waiting for a change: a look, and a watch from the revision of that look on, so that nothing falls between the two.
//!
//! The watch goes over the connection that everything goes over. A connection that has died without a word is noticed
//! by a look every second.

use std::time::Duration;

use futures_util::stream::{self, StreamExt};
use semel_core::record::{RecordKey, Version};
use tonic::Streaming;

use super::super::StoreError;
use super::Etcd;
use super::fault::Trouble;
use super::messages::{RangeRequest, WatchCreateRequest, WatchRequest, WatchResponse};
use super::rows::{Stamp, range};
use crate::clock::boottime;

/// How often to look although nothing was told.
const LOOK_AGAIN: Duration = Duration::from_secs(1);
/// How long to wait before a watch that was ended is begun again.
const PAUSE: Duration = Duration::from_millis(50);
/// The event of a key that was removed.
const REMOVED: i32 = 1;

impl Etcd {
    pub(super) async fn changed_now(
        &self,
        key: &RecordKey,
        version: Option<&Version>,
        within: Duration,
    ) -> Result<bool, StoreError> {
        let end = boottime().saturating_add(within);
        let left = || end.saturating_sub(boottime());
        let mark = self.layout.mark(key.as_str());
        let mut told: Option<Streaming<WatchResponse>> = None;
        loop {
            let Some(revision) = self.unchanged(key, version).await? else { return Ok(true) };
            if left().is_zero() {
                return Ok(false);
            }
            let stream = match told.as_mut() {
                Some(stream) => stream,
                None => {
                    let begun = self.wire.watch(self.questions(key, version, revision), self.deadline());
                    told.insert(begun.await.map_err(Trouble::reading)?)
                }
            };
            let wait = tokio::time::timeout(left().min(LOOK_AGAIN), heard(stream, &mark));
            match wait.await {
                // nothing was told: look again
                Err(_) => {}
                Ok(true) => return Ok(true),
                Ok(false) => {
                    told = None;
                    tokio::time::sleep(left().min(PAUSE)).await;
                }
            }
        }
    }

    /// Is the record at this version? Then as of which revision.
    async fn unchanged(&self, key: &RecordKey, version: Option<&Version>) -> Result<Option<i64>, StoreError> {
        let ask = RangeRequest {
            key: self.layout.record(key.as_str()),
            keys_only: true,
            ..RangeRequest::default()
        };
        let answer = self.look(vec![range(ask)], self.deadline()).await.map_err(Trouble::reading)?;
        let kvs = answer.responses.into_iter().next().and_then(|answer| answer.range).map(|range| range.kvs);
        let stands = kvs.and_then(|mut kvs| kvs.pop()).map(|kv| kv.mod_revision);
        let same = match version {
            None => stands.is_none(),
            Some(version) => stands.is_some() && stands == Stamp::of(version).map(|stamp| stamp.revision),
        };
        Ok(same.then(|| answer.header.map_or(0, |header| header.revision)))
    }

    /// What to be told of: the record, and the mark of one with a clock: its end is what a waiter hopes for.
    fn questions(
        &self,
        key: &RecordKey,
        version: Option<&Version>,
        revision: i64,
    ) -> impl stream::Stream<Item = WatchRequest> + Send + use<> {
        let has_clock = version.and_then(Stamp::of).is_some_and(|stamp| stamp.lease.is_some());
        let mark = has_clock.then(|| self.layout.mark(key.as_str()));
        let keys = std::iter::once(self.layout.record(key.as_str())).chain(mark);
        let asks: Vec<WatchRequest> = keys
            .map(|key| WatchRequest {
                create: Some(WatchCreateRequest { key, start_revision: revision + 1 }),
            })
            .collect();
        // etcd ends a watch whose questions have ended
        stream::iter(asks).chain(stream::pending())
    }
}

/// Wait until something was told that matters: true; false if nothing will be told any more.
async fn heard(stream: &mut Streaming<WatchResponse>, mark: &[u8]) -> bool {
    loop {
        match stream.message().await {
            Ok(Some(told)) if told.canceled => return false,
            Ok(Some(told)) => {
                let matters = told.events.iter().any(|event| {
                    // a mark that is written says that somebody saw it lapsed, which is no change
                    event.kind == REMOVED || event.kv.as_ref().is_none_or(|kv| kv.key != mark)
                });
                if matters {
                    return true;
                }
            }
            Ok(None) | Err(_) => return false,
        }
    }
}
