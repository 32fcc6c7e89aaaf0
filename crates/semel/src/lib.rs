//! Semel, the library: work that is safe to fire twice, to crash anywhere and to retry.
//!
//! A nightly publish in two steps. The first night the mail server is away; the retry does not build again:
//!
//! ```
//! use std::io;
//! use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
//!
//! use semel::{Job, Outcome, Run, Semel};
//!
//! type Any = Box<dyn std::error::Error + Send + Sync>;
//!
//! static BUILT: AtomicU32 = AtomicU32::new(0);
//! static MAILED: AtomicU32 = AtomicU32::new(0);
//!
//! async fn publish(run: Run) -> Result<String, Any> {
//!     // done once, whoever retries: its value is replayed
//!     let page = run.step("build", async || build().await).await?;
//!     // its outcome may be unknown after a crash: then a person is asked, and nobody is mailed twice
//!     run.step("mail", async || mail(&page).await).await?;
//!     Ok(page)
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Any> {
//! # let dir = tempfile::tempdir()?;
//! # let path = dir.path().join("ledger.db");
//! let semel = Semel::sqlite(&path)?;
//! let tonight = Job::named("publish").slot("2026-06-19").resource("website").build()?;
//!
//! let first = semel.run(&tonight, publish).await;
//! assert!(matches!(first, Outcome::Failed(_)));
//!
//! let second = semel.run(&tonight, publish).await;
//! assert!(matches!(second, Outcome::Done(page) if page == "page 1"));
//!
//! // fired once more by a second timer: nothing is run
//! let third = semel.run(&tonight, publish).await;
//! assert!(matches!(third, Outcome::AlreadyDone(Some(page)) if page == "page 1"));
//! assert_eq!((BUILT.load(Relaxed), MAILED.load(Relaxed)), (1, 2));
//! # Ok(())
//! # }
//!
//! async fn build() -> io::Result<String> {
//!     Ok(format!("page {}", BUILT.fetch_add(1, Relaxed) + 1))
//! }
//!
//! async fn mail(page: &str) -> io::Result<()> {
//!     match MAILED.fetch_add(1, Relaxed) {
//!         0 => Err(io::Error::other(format!("the mail server is away; {page} is not announced"))),
//!         _ => Ok(()),
//!     }
//! }
//! ```
//!
//! # Layout
//!
//! | module | what it knows |
//! |---|---|
//! | [`embed`] | Semel inside a Rust program: jobs, runs, steps, leases. Start here |
//! | [`store`] | the seam to every store, its drivers, and the suite that all of them pass |
//! | [`engine`] | claim → hold → settle: how a run flows through the rules of [`semel_core`] |
//! | [`sink`] | write targets that refuse a stale token: files, git, SQL |
//! | [`clock`] | the holder's own watch |
//!
//! The library never prints, and reads nothing of the environment but the system's time zone, for a schedule that names
//! none. What is promised: at most one accepted effect per
//! key where the target is fenced or idempotent; elsewhere the effect runs again only if the policy says so, and
//! an unknown outcome is reported as unknown.

pub use semel_core as core;

pub mod clock;
#[doc(hidden)]
pub mod crash;
pub mod embed;
pub mod engine;
pub mod sink;
pub mod store;

pub use embed::{
    Batch, BatchItem, BatchOf, BatchOutcome, Found, Held, IntoFields, Job, JobBuilder, JobError, Lease,
    LeaseBuilder, Outcome, Run, Semel, Shut, Step, StepError, Verified,
};
