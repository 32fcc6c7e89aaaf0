//! One conditional write, and what its answer means.
//!
//! ```text
//! what was last seen ──promises what is expected──▶ PUT on its tag ──200──▶ applied
//!        │ no                                           │ 412, 409            │ lost, 5xx
//!        ▼                                              ▼                     ▼
//!      GET ──is not as expected──▶ refused ◀── no ── GET: ours? ── yes ──▶ applied ◀── GET: ours?
//!        │ is                                           │ as expected: once more           │ no, or none
//!        └──────────────▶ PUT                           └──▶ PUT on its new tag            └──▶ unknown
//! ```
//!
//! A write is sent again only after the service refused it and what stands there was read. After a lost answer it is
//! not: what stands there may be from before a write that is still under way.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use semel_core::record::{Expect, RecordKey, Version};

use super::Objects;
use super::body::Body;
use super::bucket::RECORDS;
use super::failure::Failure;
use super::name;
use super::state::Stands;
use crate::clock::boottime;
use crate::store::{Change, Record, StoreError, Written};

/// How often a write is tried against others that come first without changing what is expected, as renewals do.
const TRIES: u32 = 8;
/// How long to wait after the first 409.
const BUSY: Duration = Duration::from_millis(20);

/// What is to be written.
#[derive(Clone, Copy)]
enum Draft<'a> {
    Put { value: &'a [u8], ttl: Option<Duration> },
    Touch,
    Gone,
}

impl Draft<'_> {
    /// The object, over what stands there; `None` if there is nothing to touch.
    fn body(self, key: &RecordKey, over: Option<&Stands>, write: String) -> Option<Body> {
        Some(match self {
            Draft::Put { value, ttl } => {
                let (version, key) = (write.clone(), key.as_str().to_owned());
                Body::Record { version, write, key, ttl, value: value.to_vec() }
            }
            Draft::Gone => Body::Gone { write },
            Draft::Touch => match over?.body.clone() {
                Body::Record { version, key, ttl, value, .. } => {
                    Body::Record { version, write, key, ttl, value }
                }
                Body::Gone { .. } => return None,
            },
        })
    }
}

/// What came of a change.
enum Made {
    /// It was made; the version that it has now, or had.
    Applied(Version),
    /// It was not: this stands there.
    Refused(Option<Record>),
}

impl Objects {
    /// The changes in their order, up to the first that is refused. `sent` is set once something may have been written.
    pub(super) async fn swap_in_order(
        &self,
        changes: &[Change],
        sent: &AtomicBool,
    ) -> Result<Vec<Version>, StoreError> {
        if changes.iter().any(|change| !matches!(change, Change::Guard { .. })) {
            self.prove().await?;
        }
        let (mut versions, mut applied, mut written) = (Vec::new(), false, Written::default());
        for (index, change) in changes.iter().enumerate() {
            let made = if written.comes_again(change) {
                let name = record_name(change.key())?;
                self.look(&name, change.key()).await.map(|stands| refused(stands.as_ref()))
            } else {
                self.change(change, sent).await
            };
            match made {
                Ok(Made::Applied(version)) => versions.push(version),
                Ok(Made::Refused(stands)) => {
                    return Err(StoreError::refused(index, change.key().clone(), stands));
                }
                // the changes before stand: it is no longer true that nothing happened
                Err(StoreError::Unavailable(why)) if applied => return Err(StoreError::Unknown(why)),
                Err(why) => return Err(why),
            }
            applied |= !matches!(change, Change::Guard { .. });
        }
        Ok(versions)
    }

    async fn change(&self, change: &Change, sent: &AtomicBool) -> Result<Made, StoreError> {
        match change {
            Change::Put { key, expect, value, ttl } => {
                self.write(key, expect, Draft::Put { value, ttl: *ttl }, sent).await
            }
            Change::Remove { key, expect } if *expect != Expect::Absent => {
                self.write(key, expect, Draft::Gone, sent).await
            }
            Change::Guard { key, expect } | Change::Remove { key, expect } => {
                let stands = self.look(&record_name(key)?, key).await?;
                Ok(if Stands::meets(stands.as_ref(), expect) {
                    Made::Applied(version_of(stands.as_ref()))
                } else {
                    refused(stands.as_ref())
                })
            }
        }
    }

    /// Restart a clock.
    pub(super) async fn touch_now(
        &self,
        key: &RecordKey,
        version: &Version,
        sent: &AtomicBool,
    ) -> Result<(), StoreError> {
        self.prove().await?;
        match self.write(key, &Expect::Live(version.clone()), Draft::Touch, sent).await? {
            Made::Applied(_) => Ok(()),
            Made::Refused(stands) => Err(StoreError::refused(0, key.clone(), stands)),
        }
    }

    async fn write(
        &self,
        key: &RecordKey,
        expect: &Expect,
        draft: Draft<'_>,
        sent: &AtomicBool,
    ) -> Result<Made, StoreError> {
        let name = record_name(key)?;
        // taken out: should this be dropped half-way, nothing stale is left
        let mut over = self.memory.take(&name).filter(|stands| stands.promises(expect, boottime()));
        if over.is_none() && *expect != Expect::Absent {
            over = self.look(&name, key).await?;
            if !Stands::meets(over.as_ref(), expect) {
                return Ok(refused(over.as_ref()));
            }
        }
        for attempt in 1..=TRIES {
            let write = nonce()?;
            let Some(body) = draft.body(key, over.as_ref(), write.clone()) else {
                return Ok(refused(over.as_ref()));
            };
            let had = over.as_ref().map(|stands| stands.tag.clone());
            let bare = self.bucket.writes_bare_tags();
            sent.store(true, Ordering::SeqCst);
            let why = match self.bucket.put(&name, body.clone(), had.clone()).await {
                Ok((tag, reading)) => {
                    let stands = reading.map(|reading| Stands { body: body.clone(), tag, reading });
                    return Ok(self.applied(&name, draft, stands, &body, over.as_ref()));
                }
                Err(Failure::Refused(why)) => return Err(StoreError::Unavailable(why)),
                Err(Failure::Unclear(why)) => {
                    return match self.bucket.get(&name).await {
                        Ok(Some(now)) if now.body.write() == write => {
                            Ok(self.applied(&name, draft, Some(now), &body, over.as_ref()))
                        }
                        _ => Err(StoreError::Unknown(why)),
                    };
                }
                Err(why) => why,
            };
            // refused; or a retry below us was refused for its own success
            let now = self.look(&name, key).await.map_err(unknown)?;
            if now.as_ref().is_some_and(|now| now.body.write() == write) {
                return Ok(self.applied(&name, draft, now, &body, over.as_ref()));
            }
            if !Stands::meets(now.as_ref(), expect) {
                return Ok(refused(now.as_ref()));
            }
            match why {
                Failure::Busy => tokio::time::sleep(BUSY * attempt).await,
                // refused for a tag that is still there
                _ if had.is_some() && now.as_ref().map(|now| &now.tag) == had.as_ref() => {
                    self.bucket.write_tags_otherwise(bare);
                }
                _ => {}
            }
            over = now;
        }
        Err(StoreError::Unavailable(format!(
            "{} refused to write {key} {TRIES} times, and it is as it was: try again",
            self.bucket.place.host
        )))
    }

    /// Remember what stands there now, and answer the version that it has, or had.
    fn applied(
        &self,
        name: &str,
        draft: Draft<'_>,
        stands: Option<Stands>,
        body: &Body,
        over: Option<&Stands>,
    ) -> Made {
        if let Some(stands) = &stands {
            self.memory.keep(name, stands);
        }
        Made::Applied(match (draft, body) {
            (Draft::Gone, _) | (_, Body::Gone { .. }) => version_of(over),
            (_, Body::Record { version, .. }) => Version::new(version.as_str()),
        })
    }

    /// What stands there, read now.
    pub(super) async fn look(&self, name: &str, key: &RecordKey) -> Result<Option<Stands>, StoreError> {
        let stands = self.bucket.get(name).await.map_err(Failure::of_a_read)?;
        match &stands {
            Some(found) => {
                if matches!(&found.body, Body::Record { key: other, .. } if other != key.as_str()) {
                    return Err(StoreError::Unavailable(format!("the object of {key} holds another record")));
                }
                self.memory.keep(name, found);
            }
            None => self.memory.forget(name),
        }
        Ok(stands)
    }
}

fn unknown(why: StoreError) -> StoreError {
    match why {
        StoreError::Unavailable(why) => StoreError::Unknown(why),
        other => other,
    }
}

fn refused(stands: Option<&Stands>) -> Made {
    Made::Refused(stands.and_then(Stands::record))
}

fn version_of(stands: Option<&Stands>) -> Version {
    match stands.map(|stands| &stands.body) {
        Some(Body::Record { version, .. }) => Version::new(version.as_str()),
        _ => Version::new(""),
    }
}

/// The name of a record's object, below the root.
pub(super) fn record_name(key: &RecordKey) -> Result<String, StoreError> {
    let name = name::name(key.as_str()).ok_or_else(|| {
        StoreError::Unavailable("a record's key has a byte that no name may have".to_owned())
    })?;
    Ok(format!("{RECORDS}{name}"))
}

/// A nonce, as 32 hexadecimal digits.
pub(super) fn nonce() -> Result<String, StoreError> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes)
        .map_err(|why| StoreError::Unavailable(format!("this machine gives no random numbers: {why}")))?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}
