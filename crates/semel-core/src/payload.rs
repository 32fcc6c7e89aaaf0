//! The fingerprint that binds a payload to a key.
//!
//! The same key with another payload is a mistake that must be seen, field by field; but the ledger keeps no
//! payloads. So it keeps, per leaf of the payload's JSON, the pointer and the first 8 bytes of the SHA-256 of the
//! leaf's canonical text. Order of members, white space and ways to write a number make no difference.
//!
//! A *volatile* pointer names a part that may differ from try to try (a model rewords text): that place and all
//! below it count as if they were not there, whatever the other side says.
//!
//! What this does not do: hide values (a short value can be guessed from its digest, and names of members are
//! kept as they are), or withstand someone who searches for two values with one digest. It finds accidents.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest as _, Sha256};

use crate::canonical::{self, JsonError, Pointer, hex, push_token, unhex};

/// The most leaves that are kept one by one; a payload with more is known by one digest.
pub const LEAVES_LIMIT: usize = 512;

/// The most bytes of pointers that are kept; deep payloads with long names repeat them in every pointer.
pub const POINTERS_LIMIT: usize = 64 * 1024;

/// The most volatile pointers.
pub const VOLATILE_LIMIT: usize = 256;

/// A digest of `N` bytes, written in hexadecimal.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Digest<const N: usize>([u8; N]);

/// Why a text is no [`Digest`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("is not a digest in lower-case hexadecimal of the right length")]
pub struct DigestError;

/// What is kept of a payload.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Fingerprint {
    /// A JSON payload, leaf by leaf. A leaf is a scalar or an empty array or object.
    Leaves {
        /// Where, and the start of the SHA-256 of the canonical text.
        leaves: BTreeMap<Pointer, Digest<8>>,
        /// What was left out, sorted.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        volatile: Vec<Pointer>,
    },
    /// A JSON payload too large for that.
    Whole {
        /// Of all names and leaves.
        digest: Digest<32>,
        /// What was left out, sorted.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        volatile: Vec<Pointer>,
    },
    /// A payload that is not JSON.
    Bytes {
        /// Of the bytes.
        digest: Digest<32>,
    },
}

/// A part of a payload that is not what was bound first.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct FieldChange {
    /// Where; the empty pointer if only the whole can be compared.
    pub pointer: Pointer,
    /// How.
    pub change: Change,
}

/// How a part of a payload differs from what was bound first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Change {
    /// Another value.
    Changed,
    /// Was not there.
    Added,
    /// Is no longer there.
    Removed,
}

/// Why there is no fingerprint.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PayloadError {
    /// The payload is no JSON that can be compared.
    #[error("payload: {0}")]
    Json(#[from] JsonError),
    /// Everything was to be left out.
    #[error("the empty volatile pointer covers the whole payload; name a member, or give no payload")]
    VolatileRoot,
    /// A pointer with `*` as a token, which people mean as a pattern.
    #[error("volatile pointer {0}: '*' is not supported; name each member")]
    Pattern(Pointer),
    /// More than [`VOLATILE_LIMIT`].
    #[error("{0} volatile pointers; at most {VOLATILE_LIMIT} are allowed")]
    TooManyVolatile(usize),
}

impl Fingerprint {
    /// Of a JSON payload, without what is volatile.
    pub fn of_json(payload: &Value, volatile: &[Pointer]) -> Result<Fingerprint, PayloadError> {
        canonical::check(payload)?;
        let volatile = checked(volatile)?;
        let mut walk = Walk { volatile: &volatile, leaves: BTreeMap::new(), bytes: 0 };
        if walk.leaves(payload, &mut String::new())? {
            let leaves = walk.leaves;
            return Ok(Fingerprint::Leaves { leaves, volatile });
        }
        let digest = Digest(walk.whole(payload, &mut String::new())?);
        Ok(Fingerprint::Whole { digest, volatile })
    }

    /// Of a payload that is not JSON.
    pub fn of_bytes(payload: &[u8]) -> Fingerprint {
        Fingerprint::Bytes { digest: Digest(Sha256::digest(payload).into()) }
    }

    /// What was left out.
    pub fn volatile(&self) -> &[Pointer] {
        match self {
            Fingerprint::Leaves { volatile, .. } | Fingerprint::Whole { volatile, .. } => volatile,
            Fingerprint::Bytes { .. } => &[],
        }
    }

    /// How `other` differs from this one, which was bound first; empty if it does not. What is volatile in either
    /// does not count.
    ///
    /// Where leaves were not kept the whole is one field, and it counts as changed when the two left out different
    /// parts: nobody can tell any more.
    pub fn diff(&self, other: &Fingerprint) -> Vec<FieldChange> {
        match (self, other) {
            (Fingerprint::Leaves { leaves: was, .. }, Fingerprint::Leaves { leaves: is, .. }) => {
                diff_leaves(was, is, &[self.volatile(), other.volatile()].concat())
            }
            _ if self == other => Vec::new(),
            _ => vec![FieldChange { pointer: Pointer::root(), change: Change::Changed }],
        }
    }
}

fn checked(volatile: &[Pointer]) -> Result<Vec<Pointer>, PayloadError> {
    if volatile.len() > VOLATILE_LIMIT {
        return Err(PayloadError::TooManyVolatile(volatile.len()));
    }
    if volatile.contains(&Pointer::root()) {
        return Err(PayloadError::VolatileRoot);
    }
    if let Some(pattern) =
        volatile.iter().find(|pointer| pointer.as_str().split('/').any(|token| token == "*"))
    {
        return Err(PayloadError::Pattern(pattern.clone()));
    }
    let mut sorted = volatile.to_vec();
    sorted.sort();
    sorted.dedup();
    Ok(sorted)
}

type Leaves = BTreeMap<Pointer, Digest<8>>;

fn diff_leaves(was: &Leaves, is: &Leaves, ignored: &[Pointer]) -> Vec<FieldChange> {
    let counts = |pointer: &Pointer| !ignored.iter().any(|volatile| volatile.covers(pointer));
    let mut changes = BTreeMap::new();
    for (pointer, digest) in was.iter().filter(|(pointer, _)| counts(pointer)) {
        match is.get(pointer) {
            Some(same) if same == digest => {}
            Some(_) => drop(changes.insert(pointer, Change::Changed)),
            None if emptied(pointer, *digest, is, &counts) => {}
            None => drop(changes.insert(pointer, Change::Removed)),
        }
    }
    for (pointer, digest) in is.iter().filter(|(pointer, _)| counts(pointer)) {
        if !was.contains_key(pointer) && !emptied(pointer, *digest, was, &counts) {
            changes.insert(pointer, Change::Added);
        }
    }
    changes.into_iter().map(|(pointer, change)| FieldChange { pointer: pointer.clone(), change }).collect()
}

/// Whether an empty array or object here stands, in the other fingerprint, for one with nothing but ignored parts.
fn emptied(pointer: &Pointer, digest: Digest<8>, other: &Leaves, counts: &impl Fn(&Pointer) -> bool) -> bool {
    let mut below = other.keys().filter(|leaf| pointer.covers(leaf)).peekable();
    ["{}", "[]"].iter().any(|text| digest == leaf(text)) && below.peek().is_some() && !below.any(counts)
}

fn leaf(text: &str) -> Digest<8> {
    let full: [u8; 32] = Sha256::digest(text.as_bytes()).into();
    let mut start = [0; 8];
    start.iter_mut().zip(full).for_each(|(to, from)| *to = from);
    Digest(start)
}

struct Walk<'a> {
    volatile: &'a [Pointer],
    leaves: Leaves,
    bytes: usize,
}

impl Walk<'_> {
    /// What is directly inside, without what is volatile; `None` for a scalar.
    fn inside<'v>(&self, value: &'v Value, path: &str) -> Option<BTreeMap<String, &'v Value>> {
        let mut members: BTreeMap<String, &Value> = match value {
            Value::Array(elements) => {
                elements.iter().enumerate().map(|(i, element)| (i.to_string(), element)).collect()
            }
            Value::Object(members) => members.iter().map(|(name, member)| (name.clone(), member)).collect(),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => return None,
        };
        // most payloads have nothing volatile at most places: do not build pointers there
        if self.volatile.iter().any(|volatile| volatile.as_str().starts_with(path)) {
            members.retain(|name, _| {
                let mut below = path.to_owned();
                push_token(&mut below, name);
                !self.volatile.iter().any(|volatile| volatile.as_str() == below)
            });
        }
        Some(members)
    }

    /// Collects the leaves; `false` when there are too many.
    fn leaves(&mut self, value: &Value, path: &mut String) -> Result<bool, JsonError> {
        let text = match self.inside(value, path) {
            Some(members) if !members.is_empty() => {
                let length = path.len();
                for (name, member) in members {
                    push_token(path, &name);
                    if !self.leaves(member, path)? {
                        return Ok(false);
                    }
                    path.truncate(length);
                }
                return Ok(true);
            }
            Some(_) => empty(value).to_owned(),
            None => canonical::canonical(value)?,
        };
        self.bytes += path.len();
        self.leaves.insert(Pointer::from_path(path), leaf(&text));
        Ok(self.leaves.len() <= LEAVES_LIMIT && self.bytes <= POINTERS_LIMIT)
    }

    /// A tree of digests: of a leaf its text's, of an array or object that of its members' names and digests.
    fn whole(&self, value: &Value, path: &mut String) -> Result<[u8; 32], JsonError> {
        let Some(members) = self.inside(value, path) else {
            return Ok(Sha256::digest(canonical::canonical(value)?.as_bytes()).into());
        };
        let mut hash = Sha256::new();
        hash.update(empty(value).as_bytes());
        let length = path.len();
        for (name, member) in members {
            push_token(path, &name);
            let digest = self.whole(member, path)?;
            path.truncate(length);
            // the digest has a fixed length and the name's is written, so that nothing can shift between them
            hash.update(u64::try_from(name.len()).unwrap_or(u64::MAX).to_be_bytes());
            hash.update(name.as_bytes());
            hash.update(digest);
        }
        Ok(hash.finalize().into())
    }
}

fn empty(container: &Value) -> &'static str {
    if container.is_array() { "[]" } else { "{}" }
}

impl<const N: usize> fmt::Display for Digest<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&hex(&self.0))
    }
}

impl<const N: usize> fmt::Debug for Digest<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl<const N: usize> TryFrom<String> for Digest<N> {
    type Error = DigestError;

    fn try_from(text: String) -> Result<Digest<N>, DigestError> {
        unhex(&text).map(Digest).ok_or(DigestError)
    }
}

impl<const N: usize> From<Digest<N>> for String {
    fn from(digest: Digest<N>) -> String {
        hex(&digest.0)
    }
}
