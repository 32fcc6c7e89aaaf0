//! A wall clock that a test has set. No released binary has it.

use std::future::Future;
use std::pin::Pin;

use jiff::Timestamp;
use semel::clock::{Clock, Moment, SystemClock};

/// The machine's own watch, with the wall clock at this time.
pub(crate) struct Set(pub(crate) Timestamp);

impl Clock for Set {
    fn now(&self) -> Moment {
        SystemClock.now()
    }

    fn wall_ms(&self) -> u64 {
        u64::try_from(self.0.as_millisecond()).unwrap_or(0)
    }

    fn sleep_until(&self, moment: Moment) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        SystemClock.sleep_until(moment)
    }
}
