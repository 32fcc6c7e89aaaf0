//! Git: fenced, atomic pushes, with the user's own `git`.
//!
//! The fence of a resource is a ref of the remote, `refs/fence/<resource>`: a chain of commits of the empty tree,
//! each naming a grant (token and nonce) and holding random bits of its own, so that no two are ever equal. The
//! remote's ref transaction is the gate: nothing is checked first and written later.
//!
//! ```text
//! read the fence ── older grant ──▶ seal: a new fence commit, if the fence is still what was read
//!       │                             │
//!       ├── the same grant ───────────┴──▶ look: is the effect on the remote already?
//!       │                                    ├── yes ──▶ already there
//!       │                                    └── no ───▶ effect: the refs and a new fence commit in one push,
//!       │                                                if the fence is still what it was before the look
//!       └── newer grant ──▶ stale                          └── it is not: read the fence again
//! ```
//!
//! An effect is known by the line `Effect-Id: <id>` in the message of a commit that is pushed (or of an annotated
//! tag). It is looked for on the refs themselves, in their whole history: a retry may have built another commit on
//! top of what the first attempt pushed. Nothing is concluded from the fence: a server that is killed between two
//! refs can leave one without the other. So a lost answer needs no guess either: look again.
//!
//! | promised | not promised |
//! |---|---|
//! | a push under an older grant changes nothing once the newer one has sealed | anything about pushes that do not go through here |
//! | per ref, one push with an effect id, whoever races and whatever crashes | that a later push with the same id is a new effect: it is *already there* |
//! | branches move forward only, tags are new, unless an old value is named | a remote that hides `refs/fence` or has no atomic pushes: refused as unfenced |
//! | | a fence ref that people delete: the next grant, however old, starts it anew |
//!
//! Five habits let a stale pusher in, and none can be asked for: a fence pushed unchanged (git prunes it and checks
//! nothing), no `--atomic`, a `+refspec`, `--force`, and `--force-with-lease` without a value.

mod fence;
mod look;
mod proof;
mod refspec;
mod remote;
mod report;
mod run;
mod sink;
mod text;

pub use proof::{GitProof, prove};
pub use refspec::{Lease, Refspec, RefspecError};
pub use remote::{Remote, upstream};
pub use run::{Answer as GitAnswer, GitProgram};
pub use sink::{GitSink, GitSinkError, Landed, PushOptions, Pushed};
pub use text::{EffectId, EffectIdError, TRAILER, fence_ref, mask};
