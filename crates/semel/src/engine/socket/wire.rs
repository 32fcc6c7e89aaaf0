//! What is said over the socket, and how it is written.

use semel_core::claim::First;
use semel_core::entry::{CommandMark, Ending, Output};
use semel_core::name::Name;
use semel_core::plan::Plan;
use semel_core::policy::OnLost;
use semel_core::token::{Grant, Nonce};
use semel_core::work::{Key, Work};
use serde::{Deserialize, Serialize};

use super::super::desk::PIECE_LIMIT;

/// The version of what is said. A run and its nested commands may be of two builds.
pub(super) const VERSION: u32 = 1;
/// The longest head of a frame.
pub(super) const HEAD_LIMIT: usize = 256 * 1024;
/// The longest body of a frame.
pub(super) const BODY_LIMIT: usize = PIECE_LIMIT;
/// Both lengths.
pub(super) const LENGTHS: usize = 8;

/// A question, with the word that lets it be asked.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Request {
    pub(super) v: u32,
    pub(super) capability: Nonce,
    #[serde(flatten)]
    pub(super) ask: Ask,
}

/// What a nested command asks.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "ask", rename_all = "snake_case")]
pub enum Ask {
    /// May this step be done? One per connection.
    Step {
        /// Its name.
        name: Name,
        /// Which use of the name.
        nth: u32,
        /// If it was lost.
        on_lost: OnLost,
        /// Its command, by its mark.
        command: Option<CommandMark>,
    },
    /// Keep this piece (the body) of the step's output.
    Keep {
        /// Which.
        piece: u32,
    },
    /// The step has ended. The body is the last piece of its output.
    Settle {
        /// How.
        ending: Ending,
        /// What it wrote; `of` is filled in by the run.
        output: Option<Wrote>,
    },
    /// A piece of the output that is replayed.
    Output {
        /// Which.
        piece: u32,
    },
    /// Is the lease held, with so much time left?
    Gate {
        /// How much.
        need_ms: u64,
    },
    /// Under which grant does this run act?
    Grant,
    /// Which plan is pinned to the work of this run?
    Plan,
}

/// What a step wrote, as its process counted it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wrote {
    /// Pieces, the last one included.
    pub pieces: u32,
    /// To stdout.
    pub out_bytes: u64,
    /// To stderr.
    pub err_bytes: u64,
    /// All of it is in the pieces.
    pub kept: bool,
}

/// What the run answers.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "answer", rename_all = "snake_case")]
#[allow(clippy::large_enum_variant)] // one at a time
pub enum Answer {
    /// Do it: the intent is on record.
    Run {
        /// The step's key, stable over retries.
        key: Key,
        /// 1 for the first.
        attempt: u32,
        /// What to do first.
        first: First,
    },
    /// It is done.
    Replay {
        /// What it wrote, if that is kept.
        output: Option<Output>,
        /// Which attempt it was.
        attempt: u32,
        /// When, by the wall clock of whoever recorded it.
        at_ms: u64,
    },
    /// A person is needed; the run says so when it ends.
    Person {
        /// The step, in the readable form.
        step: String,
        /// Its state, in one word.
        state: String,
    },
    /// This is a rehearsal: nothing is done, and this would be; to be read after "would".
    Would {
        /// What.
        what: String,
    },
    /// This is a rehearsal: nothing is held.
    Rehearsal {
        /// What would be held.
        resource: Name,
        /// The work; `None` for a lease without a ledger.
        work: Option<Work>,
    },
    /// It is kept.
    Kept,
    /// It is on record.
    Settled {
        /// The state, in one word.
        state: String,
    },
    /// The body is the piece that was asked for.
    Piece,
    /// That piece is no longer kept.
    Missing,
    /// The lease is held.
    Open {
        /// It lives so long without a renewal, less the margin.
        left_ms: u64,
    },
    /// This is the grant.
    Granted {
        /// Of this resource.
        resource: Name,
        /// The token and its nonce.
        grant: Grant,
        /// The work; `None` for a lease without a ledger.
        work: Option<Work>,
    },
    /// This plan.
    Plan {
        /// `None` if there is none.
        plan: Option<Plan>,
    },
    /// No.
    Refused {
        /// What the asker does next.
        kind: Kind,
        /// Why.
        why: String,
    },
}

/// What a refusal means for who asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// The lease is no longer held: nothing may be done.
    Stale,
    /// The question is wrong: a person must change the script.
    Wrong,
    /// The name of the step is used twice: a person must rename one.
    Twice,
    /// The store cannot be reached.
    StoreDown,
}

/// The lengths of a frame's head and body, if they are allowed.
pub(super) fn lengths(bytes: [u8; LENGTHS]) -> Option<(usize, usize)> {
    let [a, b, c, d, e, f, g, h] = bytes;
    let head = usize::try_from(u32::from_le_bytes([a, b, c, d])).ok()?;
    let body = usize::try_from(u32::from_le_bytes([e, f, g, h])).ok()?;
    (head <= HEAD_LIMIT && body <= BODY_LIMIT).then_some((head, body))
}

/// A frame; `None` if it would be too long.
pub(super) fn frame<T: Serialize>(head: &T, body: &[u8]) -> Option<Vec<u8>> {
    let head = serde_json::to_vec(head).ok()?;
    if head.len() > HEAD_LIMIT || body.len() > BODY_LIMIT {
        return None;
    }
    let mut frame = Vec::with_capacity(LENGTHS + head.len() + body.len());
    frame.extend_from_slice(&u32::try_from(head.len()).ok()?.to_le_bytes());
    frame.extend_from_slice(&u32::try_from(body.len()).ok()?.to_le_bytes());
    frame.extend_from_slice(&head);
    frame.extend_from_slice(body);
    Some(frame)
}
