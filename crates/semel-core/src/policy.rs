//! What a job asks for, checked once, and the times that follow from it.
//!
//! ```text
//! 0 ─────── ttl/3 ─────── 2·ttl/3 ──── stop by ──────────── trust ends ── margin ── ttl
//! request    heartbeat     heartbeat    TERM │ kill-after    │ last KILL             another may take it
//! ```
//!
//! All of it counts from the moment *before* the request was sent, so the store's clock always starts later
//! than ours. Two lost heartbeats in a row are survived: the stop begins only after the second was due.

use serde::{Deserialize, Serialize};

use crate::mutant::{self, Mutant};

/// What to do when the resource or the work is busy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum IfBusy {
    /// Yield: somebody else is at it.
    Skip,
    /// Wait at most so many milliseconds, then yield.
    Wait {
        /// How long.
        for_ms: u64,
    },
    /// Say so with an exit code of its own.
    Fail,
}

/// What to do when the last attempt vanished, or ended in a way that leaves its effect unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnLost {
    /// Run it again: the script resumes.
    Retry,
    /// Ask a person.
    Hold,
    /// Ask the world, by a command.
    Probe,
}

/// The policies of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    /// Lease lifetime.
    pub ttl_ms: u64,
    /// Between TERM and KILL.
    pub kill_after_ms: u64,
    /// Longest run.
    pub timeout_ms: Option<u64>,
    /// Keep the lease at least that long.
    pub hold_at_least_ms: u64,
    /// Wait so long after another's lapse.
    pub lock_delay_ms: u64,
    /// When busy.
    pub if_busy: IfBusy,
    /// When the last attempt is lost.
    pub on_lost: OnLost,
    /// Consecutive failures before quarantine; 0 for none.
    pub max_failures: u32,
    /// Tries inside one invocation, after the first.
    pub retries: u32,
    /// The first pause between them; doubled each time, with jitter.
    pub backoff_ms: u64,
    /// How long outputs, attempts and the journal are kept.
    pub keep_ms: u64,
    /// How long the mark "done" is kept; for ever if none.
    pub remember_ms: Option<u64>,
}

/// The shortest lease: below it, a busy machine loses leases that are well alive.
pub const TTL_MIN_MS: u64 = 1_000;
/// The longest: past it, a lost run blocks its resource for longer than anybody wants to wait.
pub const TTL_MAX_MS: u64 = 7 * 24 * 3_600_000;
/// The longest pause between two tries.
pub const BACKOFF_MAX_MS: u64 = 3_600_000;
/// A month.
pub const KEEP_DEFAULT_MS: u64 = 30 * 24 * 3_600_000;

/// Why these policies cannot be had together.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PolicyError {
    /// The ttl is out of range.
    #[error("--ttl {} is out of range: write 1s to 7d", written(*ttl_ms))]
    Ttl {
        /// As asked.
        ttl_ms: u64,
    },
    /// The grace does not fit into the lease.
    #[error(
        "--ttl {}s leaves no room for --kill-after {}s: the last KILL must fall inside the lease even after two lost heartbeats; use --ttl {}s or more, or --kill-after {}s or less",
        secs(*ttl_ms), secs(*kill_after_ms), least_ttl_ms.div_ceil(1000), secs(*most_kill_after_ms)
    )]
    Grace {
        /// As asked.
        ttl_ms: u64,
        /// As asked.
        kill_after_ms: u64,
        /// The ttl that would do.
        least_ttl_ms: u64,
        /// The grace that would do.
        most_kill_after_ms: u64,
    },
    /// A probe policy without a probe, or the other way round.
    #[error("--on-lost probe has nothing to ask: write --probe CMD too")]
    NoProbe,
}

/// A length of time as people write it, and as flags read it: 31d2h, 26h, 15m.
pub(crate) fn written(ms: u64) -> String {
    let (mut left, mut text) = (ms, String::new());
    for (unit_ms, unit) in [(86_400_000, "d"), (3_600_000, "h"), (60_000, "m"), (1_000, "s"), (1, "ms")] {
        if left >= unit_ms {
            text.push_str(&format!("{}{unit}", left / unit_ms));
            left %= unit_ms;
        }
    }
    if text.is_empty() { "0s".to_owned() } else { text }
}

fn secs(ms: u64) -> f64 {
    ms as f64 / 1000.0
}

impl Default for Policy {
    fn default() -> Policy {
        let ttl_ms = 60_000;
        Policy {
            ttl_ms,
            kill_after_ms: Policy::default_kill_after_ms(ttl_ms),
            timeout_ms: None,
            hold_at_least_ms: 0,
            lock_delay_ms: 0,
            if_busy: IfBusy::Skip,
            on_lost: OnLost::Retry,
            max_failures: 3,
            retries: 0,
            backoff_ms: 1_000,
            keep_ms: KEEP_DEFAULT_MS,
            remember_ms: None,
        }
    }
}

impl Policy {
    /// The grace that a ttl has room for: ten seconds, or a sixth of a short lease.
    pub fn default_kill_after_ms(ttl_ms: u64) -> u64 {
        (ttl_ms / 6).min(10_000)
    }

    /// Do they fit together?
    pub fn check(&self) -> Result<(), PolicyError> {
        if !(TTL_MIN_MS..=TTL_MAX_MS).contains(&self.ttl_ms) {
            return Err(PolicyError::Ttl { ttl_ms: self.ttl_ms });
        }
        let room_ms = self.ttl_ms - 2 * self.heartbeat_ms();
        if self.margin_ms() + self.kill_after_ms > room_ms {
            // a third of the lease must hold the margin, at most a tenth of it, and the grace
            let least_ttl_ms = (self.kill_after_ms.saturating_mul(30) / 7 + 1_000)
                .min(self.kill_after_ms.saturating_add(MARGIN_MAX_MS).saturating_mul(3));
            return Err(PolicyError::Grace {
                ttl_ms: self.ttl_ms,
                kill_after_ms: self.kill_after_ms,
                least_ttl_ms,
                most_kill_after_ms: room_ms - self.margin_ms(),
            });
        }
        Ok(())
    }

    /// How often the lease is renewed.
    pub fn heartbeat_ms(&self) -> u64 {
        self.ttl_ms / 3
    }

    /// How long before the lease ends its holder stops trusting it.
    pub fn margin_ms(&self) -> u64 {
        margin_ms(self.ttl_ms)
    }

    /// How long after the request was sent the lease is trusted.
    pub fn trust_ms(&self) -> u64 {
        trust_ms(self.ttl_ms)
    }

    /// How long after the request was sent the work must begin to stop, so that the last KILL is inside.
    pub fn stop_by_ms(&self) -> u64 {
        self.trust_ms().saturating_sub(self.kill_after_ms)
    }

    /// The pause before try `n` (1 is the first retry); `random` in 0..=u32::MAX spreads it over its upper half.
    pub fn backoff_ms(&self, n: u32, random: u32) -> u64 {
        let doubled =
            self.backoff_ms.saturating_mul(1u64.checked_shl(n.saturating_sub(1)).unwrap_or(u64::MAX));
        let whole = doubled.min(BACKOFF_MAX_MS);
        let half = whole / 2;
        half + (u128::from(whole - half) * u128::from(random) / u128::from(u32::MAX)) as u64
    }
}

const MARGIN_MAX_MS: u64 = 5_000;

/// How long before a lease of this ttl ends its holder stops trusting it.
pub fn margin_ms(ttl_ms: u64) -> u64 {
    if mutant::on(Mutant::TrustToTheLastMoment) { 0 } else { (ttl_ms / 10).clamp(1, MARGIN_MAX_MS) }
}

/// How long after the request was sent a lease of this ttl is trusted.
pub fn trust_ms(ttl_ms: u64) -> u64 {
    ttl_ms.saturating_sub(margin_ms(ttl_ms))
}

/// From which moment the trust counts: the one before the request was sent, never the reply's.
pub fn trust_counts_from<T>(before_request: T, after_reply: T) -> T {
    if mutant::on(Mutant::TrustFromTheReply) { after_reply } else { before_request }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_hold_and_two_lost_heartbeats_are_survived() {
        for ttl_ms in [1_000, 3_000, 30_000, 60_000, 600_000, TTL_MAX_MS] {
            let kill_after_ms = Policy::default_kill_after_ms(ttl_ms);
            let policy = Policy { ttl_ms, kill_after_ms, ..Policy::default() };
            assert_eq!(policy.check(), Ok(()), "{ttl_ms}");
            assert!(policy.stop_by_ms() >= 2 * policy.heartbeat_ms(), "{ttl_ms}");
            assert!(policy.stop_by_ms() + kill_after_ms < ttl_ms, "{ttl_ms}");
        }
    }

    #[test]
    fn a_grace_that_does_not_fit_says_what_would() {
        let policy = Policy { ttl_ms: 5_000, kill_after_ms: 10_000, ..Policy::default() };
        let Err(PolicyError::Grace { least_ttl_ms, most_kill_after_ms, .. }) = policy.check() else {
            unreachable!()
        };
        assert_eq!(Policy { ttl_ms: least_ttl_ms, ..policy.clone() }.check(), Ok(()));
        assert_eq!(Policy { kill_after_ms: most_kill_after_ms, ..policy.clone() }.check(), Ok(()));
        let short = Policy { ttl_ms: 10, ..policy };
        assert_eq!(short.check(), Err(PolicyError::Ttl { ttl_ms: 10 }));
    }

    #[test]
    fn lengths_are_written_as_they_are_read() {
        let hour = 3_600_000;
        let all = [0, 1, 900_000, hour + 1, 26 * hour, 31 * 24 * hour].map(written);
        assert_eq!(all, ["0s", "1ms", "15m", "1h1ms", "1d2h", "31d"]);
    }

    #[test]
    fn a_pause_doubles_stays_in_its_upper_half_and_is_capped() {
        let policy = Policy { backoff_ms: 100, ..Policy::default() };
        assert_eq!((policy.backoff_ms(1, 0), policy.backoff_ms(1, u32::MAX)), (50, 100));
        assert_eq!((policy.backoff_ms(3, 0), policy.backoff_ms(3, u32::MAX)), (200, 400));
        assert_eq!(policy.backoff_ms(200, u32::MAX), BACKOFF_MAX_MS);
    }
}
