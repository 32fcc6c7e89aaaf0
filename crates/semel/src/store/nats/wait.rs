//! Waiting for a change.
//!
//! What is written to a stream is a plain message too: who subscribes to its subject sees it at once, before it is
//! stored, and even if it is refused. So it is a hint: the waiter looks, and looks again a few times soon after.

use std::time::Duration;

use async_nats::Subscriber;
use futures_util::StreamExt;
use semel_core::record::{RecordKey, Version};

use super::Nats;
use super::bucket::{VERSION, parts};
use crate::store::{Store, StoreError};

/// A hint may be lost.
const NOW_AND_THEN: Duration = Duration::from_secs(1);
/// How soon after a hint, in milliseconds: a write that is synced takes one or a few.
const SOON: [u64; 8] = [0, 1, 1, 2, 4, 8, 16, 32];

impl Nats {
    pub(super) async fn wait(
        &self,
        key: &RecordKey,
        version: Option<&Version>,
        within: Duration,
    ) -> Result<bool, StoreError> {
        let over = tokio::time::sleep(within);
        tokio::pin!(over);
        let mut hints: Option<Subscriber> = None;
        loop {
            // listened to before the look, so that no write falls between the two
            if hints.is_none() {
                hints = self.listen(key).await;
            }
            if self.is_another(key, version).await? {
                return Ok(true);
            }
            tokio::select! {
                () = &mut over => return Ok(false),
                () = tokio::time::sleep(NOW_AND_THEN) => {}
                went_on = hint(hints.as_mut(), version) => {
                    if !went_on {
                        hints = None;
                        continue;
                    }
                    for pause in SOON {
                        tokio::time::sleep(Duration::from_millis(pause)).await;
                        if self.is_another(key, version).await? {
                            return Ok(true);
                        }
                    }
                }
            }
        }
    }

    async fn is_another(&self, key: &RecordKey, version: Option<&Version>) -> Result<bool, StoreError> {
        let loaded = self.load(std::slice::from_ref(key)).await?;
        let stands = loaded.records.into_iter().next().flatten();
        Ok(stands.map(|record| record.version).as_ref() != version)
    }

    /// Without hints a waiter looks now and then.
    async fn listen(&self, key: &RecordKey) -> Option<Subscriber> {
        let subject = self.subject(key).ok()?;
        let subscribe = async { self.bucket().await.ok()?.link.client().subscribe(subject).await.ok() };
        tokio::time::timeout(self.deadline, subscribe).await.ok()?
    }
}

/// Wait for a write that is more than a touch; `false` if there will be no more.
async fn hint(hints: Option<&mut Subscriber>, version: Option<&Version>) -> bool {
    let Some(hints) = hints else { return std::future::pending().await };
    let nonce = version.and_then(parts).map(|(nonce, _)| nonce);
    while let Some(message) = hints.next().await {
        let written =
            message.headers.as_ref().and_then(|headers| headers.get(VERSION)).map(|value| value.as_str());
        if written.is_none() || written != nonce {
            return true;
        }
    }
    false
}
