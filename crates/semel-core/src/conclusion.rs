//! How an attempt ends: the outcome on record, then the lease given back.

use crate::claim::Write;
use crate::entry::{self, Entry, Settle, Stale};
use crate::lease::{self, Released, SeenLease};
use crate::mutant::{self, Mutant};
use crate::name::Name;
use crate::record::{Expect, Seen};

/// What becomes of the lease when an attempt under it has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum After {
    /// It is given back.
    Release {
        /// After this rest.
        rest_ms: u64,
    },
    /// It stays: another work follows under it.
    Keep,
}

/// What ends an attempt: the outcome, and the lease given back if it is still ours and nothing follows under it.
#[derive(Clone, Debug)]
pub struct Conclusion {
    /// The outcome, to be written first.
    pub entry: Entry,
    /// What must stand there.
    pub entry_expect: Expect,
    /// The lease, if it is ours to release.
    pub lease: Option<Released>,
}

impl Conclusion {
    /// What to write: the outcome, and only then the release.
    pub fn writes(&self, resource: &Name) -> Vec<Write> {
        let entry = Write::Entry { entry: self.entry.clone(), expect: self.entry_expect.clone() };
        let release = self.lease.as_ref().map(|released| released.write(resource));
        let mut writes: Vec<Write> = std::iter::once(entry).chain(release).collect();
        if mutant::on(Mutant::ReleaseBeforeOutcome) {
            writes.reverse();
        }
        writes
    }
}

impl Released {
    /// What to write.
    pub fn write(&self, resource: &Name) -> Write {
        Write::Lease {
            resource: resource.clone(),
            lease: self.lease.clone(),
            expect: self.expect.clone(),
            ttl_ms: self.rest_ms,
        }
    }
}

/// End an attempt. The outcome is accepted as long as the entry records this very grant as running, even if the
/// lease has lapsed or another work has the resource by now: what happened, happened.
pub fn conclude(
    entry: &Seen<Entry>,
    lease: Option<&SeenLease>,
    settle: &Settle<'_>,
    after: After,
) -> Result<Conclusion, Stale> {
    let next = entry::settle(&entry.value, settle)?;
    let release =
        |rest_ms| lease::release(lease, settle.grant.token, Some(&settle.grant.nonce), rest_ms).ok();
    let released = match after {
        After::Release { rest_ms } => release(rest_ms),
        After::Keep if mutant::on(Mutant::KeptLeaseIsReleased) => release(0),
        After::Keep => None,
    };
    Ok(Conclusion { entry: next, entry_expect: Expect::Version(entry.version.clone()), lease: released })
}
