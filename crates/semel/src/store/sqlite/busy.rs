//! What a connection does while another one has the database's lock.
//!
//! SQLite's own handler sleeps longer each time it is refused, so the longest waiter asks least often: with eight
//! busy processes one waited 1.8 s for locks that are held for a fraction of a millisecond. Here every sleep is
//! short and drawn anew, so nobody falls behind for having waited, and a renewal asks ten times as often as any
//! other write. The time an operation may wait in all is bounded.

use std::cell::Cell;
use std::time::Duration;

use crate::clock::boottime;

/// How long an operation waits for the lock before it gives up.
pub(super) const PATIENCE: Duration = Duration::from_secs(5);

/// How often to ask again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pace {
    /// A lease is at stake.
    Renewal,
    /// Anything else.
    Other,
}

impl Pace {
    fn longest_nap_us(self) -> u64 {
        match self {
            Pace::Renewal => 100,
            Pace::Other => 1_000,
        }
    }
}

thread_local! {
    /// Until when, of the operation that this thread is in: SQLite's handler takes no argument of ours.
    static WAIT: Cell<(Duration, Pace)> = const { Cell::new((Duration::ZERO, Pace::Other)) };
    static RANDOM: Cell<u64> = Cell::new(getrandom::u64().unwrap_or(0x9e37_79b9_7f4a_7c15) | 1);
}

/// From here on, this thread waits at most so long for a lock.
pub(super) fn wait_at_most(time: Duration, pace: Pace) {
    WAIT.set((boottime().saturating_add(time), pace));
}

/// The handler: sleep and ask again (`true`), or give up.
pub(super) fn handler(_asked_before: i32) -> bool {
    nap()
}

/// Sleep a little, if there is time left.
pub(super) fn nap() -> bool {
    let (until, pace) = WAIT.get();
    let left = until.saturating_sub(boottime());
    if left.is_zero() {
        return false;
    }
    let nap = Duration::from_micros(1 + random() % pace.longest_nap_us());
    std::thread::sleep(nap.min(left));
    true
}

/// xorshift: good enough to keep waiters apart.
fn random() -> u64 {
    let mut x = RANDOM.get();
    x ^= x << 13;
    x ^= x >> 7;
    x ^= x << 17;
    RANDOM.set(x);
    x
}
