//! Does the service keep conditions? Proven with racing writers before anything is entrusted to it.
//!
//! Some services that speak like S3 take a conditional write and ignore the condition, or look at it and write in two
//! steps, so that two of a race win. No ledger can be kept there. Each race has one winner, or the service is refused
//! by its name. What was proven is written down beside the records, so that whoever comes later reads one object.

use futures_util::future::join_all;
use object_store::{ObjectStoreExt, UpdateVersion};

use super::body::Body;
use super::bucket::Bucket;
use super::failure::Failure;
use super::write::nonce;
use crate::store::StoreError;

/// How many write at once.
const WRITERS: usize = 8;
/// How many objects are raced for: each is created once and replaced once.
const ROUNDS: usize = 4;
/// How often a race without a winner is run again.
const AGAIN: usize = 3;
/// Where it is written down that the service was proven; the number is that of this proof.
const MARK: &str = "probe/ok-1";

/// Was it proven before?
pub(super) async fn is_proven(bucket: &Bucket) -> Result<bool, Failure> {
    Ok(bucket.get(MARK).await?.is_some())
}

/// Prove it, and write that down.
pub(super) async fn prove(bucket: &Bucket) -> Result<(), StoreError> {
    race_all(bucket).await?;
    let server = bucket.place.wire.heard().name().unwrap_or_default();
    let body = Body::Record {
        version: nonce()?,
        write: nonce()?,
        key: MARK.to_owned(),
        ttl: None,
        value: server.into_bytes(),
    };
    match bucket.put(MARK, body, None).await {
        // another was quicker: it is proven twice
        Ok(_) | Err(Failure::Condition | Failure::Busy) => Ok(()),
        Err(why) => Err(why.of_a_read()),
    }
}

/// Run the races; says why the service cannot be used.
pub(super) async fn race_all(bucket: &Bucket) -> Result<(), StoreError> {
    for _ in 0..ROUNDS {
        let name = format!("probe/{}", nonce()?);
        let outcome = race_for(bucket, &name).await;
        if let Ok(path) = bucket.path(&name) {
            // what is left of it harms nobody
            let _ = bucket.place.service.delete(&path).await;
        }
        outcome?;
    }
    Ok(())
}

/// One object: created by one of many, then replaced by one of many.
async fn race_for(bucket: &Bucket, name: &str) -> Result<(), StoreError> {
    let mut tag = None;
    for what in ["create", "replace"] {
        let mut runs = 0;
        tag = loop {
            if let Some(winner) = race(bucket, name, tag.clone(), what).await? {
                break Some(winner);
            }
            runs += 1;
            if tag.is_some() {
                // all were refused: some services want the tag in another form
                bucket.write_tags_otherwise(bucket.writes_bare_tags());
            }
            if runs >= AGAIN {
                return Err(StoreError::Unavailable(format!(
                    "{} refuses to {what} an object although nothing stands against it",
                    who(bucket)
                )));
            }
        };
    }
    Ok(())
}

/// The winner's tag, if there was one; an error if there were more.
async fn race(
    bucket: &Bucket,
    name: &str,
    over: Option<UpdateVersion>,
    what: &str,
) -> Result<Option<UpdateVersion>, StoreError> {
    let mut drafts = Vec::new();
    for _ in 0..WRITERS {
        drafts.push(Body::Gone { write: nonce()? });
    }
    let writes = drafts.iter().map(|body| bucket.put(name, body.clone(), over.clone()));
    let mut winners = Vec::new();
    for (answer, body) in join_all(writes).await.into_iter().zip(&drafts) {
        match answer {
            Ok((tag, _)) => winners.push((tag, body)),
            Err(Failure::Condition | Failure::Busy | Failure::Absent) => {}
            Err(why) => return Err(why.of_a_read()),
        }
    }
    let stands = bucket.get(name).await.map_err(Failure::of_a_read)?;
    match winners.as_slice() {
        [] => Ok(None),
        [(tag, body)] if stands.as_ref().is_some_and(|stands| stands.body == **body) => Ok(Some(tag.clone())),
        [_] => Err(StoreError::Unavailable(format!(
            "{} said yes to one of {WRITERS} writers and kept another: it cannot keep a ledger, use another service",
            who(bucket)
        ))),
        many => Err(StoreError::Unavailable(format!(
            "{} does not keep conditions: {} of {WRITERS} writers won the same race to {what} an object. \
             It cannot keep a ledger: use a service that heeds If-None-Match and If-Match",
            who(bucket),
            many.len()
        ))),
    }
}

/// The service, by its host and what it calls itself.
pub(super) fn who(bucket: &Bucket) -> String {
    let host = &bucket.place.host;
    bucket.place.wire.heard().name().map_or(host.clone(), |name| format!("{host} ({name})"))
}
