//! What this handle wrote with a clock: enough to touch it again, or to write over it, without a look.

use std::collections::HashMap;
use std::time::Duration;

use semel_core::record::{RecordKey, Version};

use crate::clock::boottime;

/// More leases than a process holds; larger ones are looked at.
const MOST: usize = 1024;
const LARGEST: usize = 16 * 1024;

/// A lease as this handle wrote it last.
#[derive(Clone, Debug)]
pub(super) struct Lease {
    pub(super) version: Version,
    pub(super) seq: u64,
    pub(super) ttl: Duration,
    pub(super) value: Vec<u8>,
    /// Before it was sent.
    pub(super) begun: Duration,
}

impl Lease {
    /// Not more time has passed at the server than here since before it was sent.
    pub(super) fn is_live(&self) -> bool {
        boottime().saturating_sub(self.begun) < self.ttl
    }
}

/// The leases of this handle.
#[derive(Debug, Default)]
pub(super) struct Held(HashMap<RecordKey, Lease>);

impl Held {
    pub(super) fn get(&self, key: &RecordKey, version: &Version) -> Option<&Lease> {
        self.0.get(key).filter(|lease| lease.version == *version)
    }

    pub(super) fn keep(&mut self, key: &RecordKey, lease: Lease) {
        if lease.value.len() > LARGEST {
            self.forget(key);
            return;
        }
        if self.0.len() >= MOST && !self.0.contains_key(key) {
            self.0.retain(|_, lease| lease.is_live());
            if self.0.len() >= MOST {
                self.0.clear();
            }
        }
        self.0.insert(key.clone(), lease);
    }

    pub(super) fn forget(&mut self, key: &RecordKey) {
        self.0.remove(key);
    }
}
