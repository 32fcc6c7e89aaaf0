//! Delete what is left of removed records.
//!
//! A removal leaves a short object, because services replace on a condition, and few delete so. It must not be deleted
//! without one: a record that was just made again in its place would be lost. So it is deleted with `If-Match`, and only
//! where the service was seen to refuse a wrong tag; elsewhere it stays. Who created a record where nothing is left is
//! right to: it expects none, and there is none.

use std::time::Duration;

use object_store::ObjectStoreExt;

use super::Objects;
use super::address::Kind;
use super::body::Body;
use super::bucket::RECORDS;
use super::examine::REMEMBER_REMOVED;
use super::failure::Failure;
use super::write::nonce;
use crate::store::StoreError;

/// How a service deletes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Deletes {
    /// It heeds `If-Match`.
    OnCondition,
    /// It does not, or nobody can tell.
    Blindly,
}

/// How many are listed at once.
const LISTED: usize = 1000;
/// How long a signature for one request is good.
const SIGNED_FOR: Duration = Duration::from_secs(60);

impl Objects {
    pub(super) async fn tidy_now(&self) -> Result<(), StoreError> {
        if self.in_time(self.deletes()).await? == Deletes::Blindly {
            return Ok(());
        }
        let limit_ms = i64::try_from(REMEMBER_REMOVED.as_millis()).unwrap_or(i64::MAX);
        let mut token = None;
        loop {
            let page = self.bucket.list("", None, token, LISTED);
            let page = self.in_time(async { page.await.map_err(Failure::of_a_read) }).await?;
            let Some(now_ms) = page.date_ms else { return Ok(()) };
            for (name, tag, removed_ms) in page.gone {
                let (Some(tag), true) = (tag.e_tag, now_ms.saturating_sub(removed_ms) > limit_ms) else {
                    continue;
                };
                let path = format!("{RECORDS}{name}");
                self.memory.forget(&path);
                self.in_time(self.delete(&path, &tag)).await?;
            }
            token = page.next;
            if token.is_none() {
                return Ok(());
            }
        }
    }

    /// Does the service heed the condition of a delete? Tried on an object of our own.
    pub(super) async fn deletes(&self) -> Result<Deletes, StoreError> {
        if self.bucket.place.kind == Kind::Gcs {
            // it compares generations, which a listing does not tell
            return Ok(Deletes::Blindly);
        }
        let name = format!("probe/{}", nonce()?);
        let body = Body::Gone { write: nonce()? };
        let (tag, _) = self.bucket.put(&name, body, None).await.map_err(Failure::of_a_read)?;
        let Some(tag) = tag.e_tag else { return Ok(Deletes::Blindly) };
        let refused = !self.delete(&name, "\"0123456789abcdef0123456789abcdef\"").await?;
        let kept = self.bucket.get(&name).await.map_err(Failure::of_a_read)?.is_some();
        let deleted = self.delete(&name, &tag).await?;
        if refused && kept && deleted {
            return Ok(Deletes::OnCondition);
        }
        if let Ok(path) = self.bucket.path(&name) {
            let _ = self.bucket.place.service.delete(&path).await;
        }
        Ok(Deletes::Blindly)
    }

    /// Delete the object if it has this tag; answers whether the service did.
    async fn delete(&self, name: &str, tag: &str) -> Result<bool, StoreError> {
        let place = &self.bucket.place;
        let path = self.bucket.path(name).map_err(Failure::of_a_read)?;
        let unavailable =
            |why: &str| StoreError::Unavailable(format!("{} cannot be asked to delete: {why}", place.host));
        // the clients of the services delete without a condition: the request is ours, and only signed by them
        let signed = place.service.signed_url(
            "DELETE".parse().map_err(|_| unavailable("no such verb"))?,
            &path,
            SIGNED_FOR,
        );
        let Ok(url) = signed.await else { return Ok(false) };
        // a listing of Azure's writes tags without their quotes
        let tag = format!("\"{}\"", tag.trim_matches('"'));
        let asked = place.wire.client().delete(url).header("if-match", tag).send().await;
        asked
            .map(|answer| answer.status().is_success())
            .map_err(|why| unavailable(&why.without_url().to_string()))
    }
}
