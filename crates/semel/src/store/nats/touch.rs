//! Restart a clock: the same record once more, with the same version, over the message that was there.

use async_nats::HeaderMap;
use semel_core::record::{RecordKey, Standing, Version};

use super::bucket::{Bucket, EXPECTED, FIRST, TTL, VERSION, WRONG_LAST_SEQUENCE, parts};
use super::held::Lease;
use super::link::Fault;
use super::swap::micros;
use super::{Failure, Nats, Sent, look};
use crate::clock::boottime;
use crate::store::StoreError;

impl Nats {
    pub(super) async fn touch_now(
        &self,
        key: &RecordKey,
        version: &Version,
        sent: &Sent,
    ) -> Result<(), Failure> {
        let subject = self.subject(key)?;
        let bucket = self.bucket().await?;
        let ours = self.held().get(key, version).filter(|lease| lease.is_live()).cloned();
        if let Some(lease) = ours
            && self.write_again(&bucket, key, &subject, lease, sent).await?
        {
            return Ok(());
        }
        loop {
            let looked = look(&bucket, std::slice::from_ref(&subject)).await.map_err(Failure::of_read)?;
            let stands = looked.record(0, key);
            let is_live = stands.as_ref().is_some_and(|record| {
                record.version == *version && matches!(record.standing, Some(Standing::Live { .. }))
            });
            let found = looked.stands.into_iter().next().flatten().filter(|_| is_live);
            let Some(found) = found else {
                self.held().forget(key);
                return Err(StoreError::refused(0, key.clone(), stands).into());
            };
            let ttl = std::time::Duration::from_micros(found.ttl_us.map_or(0, i64::unsigned_abs));
            let lease =
                Lease { version: found.version, seq: found.seq, ttl, value: found.value, begun: boottime() };
            if self.write_again(&bucket, key, &subject, lease, sent).await? {
                return Ok(());
            }
        }
    }

    /// Answers whether it was still the last message.
    async fn write_again(
        &self,
        bucket: &Bucket,
        key: &RecordKey,
        subject: &str,
        lease: Lease,
        sent: &Sent,
    ) -> Result<bool, Failure> {
        let Some((nonce, first)) = parts(&lease.version) else { return Ok(false) };
        let mut headers = HeaderMap::new();
        headers.insert(EXPECTED, lease.seq.to_string());
        headers.insert(VERSION, nonce);
        headers.insert(FIRST, first.to_string());
        headers.insert(TTL, micros(lease.ttl).to_string());
        let begun = boottime();
        sent.now();
        match bucket.publish(subject, headers, lease.value.clone()).await {
            Ok(seq) => {
                self.held().keep(key, Lease { seq, begun, ..lease });
                Ok(true)
            }
            Err(Fault::Rejected { code: WRONG_LAST_SEQUENCE, .. }) => {
                sent.undone();
                self.held().forget(key);
                Ok(false)
            }
            Err(Fault::NoAnswer(why)) => Err(Failure::Said(StoreError::Unknown(why))),
            Err(Fault::NotSent(why)) => {
                sent.undone();
                Err(Failure::Gone(why))
            }
            Err(Fault::Rejected { why, .. }) => Err(Failure::Said(StoreError::Unavailable(why))),
        }
    }
}
