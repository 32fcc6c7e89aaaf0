//! The breaker of a batch: a provider that is down must not burn the whole list.
//!
//! ```text
//! closed ──so many failures in a row──▶ open ──pause──▶ half open: one item
//!    ▲                                    ▲                │
//!    └────────────── success ─────────────┼────────────────┤
//!                                         └── failure ─────┘
//! ```
//!
//! Without a pause there is no way back: the batch stops. Items that were under way when it opened say nothing about
//! whether to close it again: they were begun before.

/// When may the next item begin?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gate {
    /// Now.
    Open,
    /// Now, this one alone: it decides.
    One,
    /// Not before this moment, in milliseconds of the caller's watch.
    Shut {
        /// When.
        until_ms: u64,
    },
    /// Not before the one that was let through has ended.
    Waiting,
    /// Never.
    Stop,
}

/// Counts failures in a row, over all workers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Breaker {
    stop_after: u32,
    pause_ms: Option<u64>,
    row: u32,
    state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Closed,
    Open { until_ms: u64 },
    HalfOpen { under_way: bool },
    Stopped,
}

impl Breaker {
    /// Opens after so many failures in a row (0: never), for so long; for good if there is no pause.
    pub fn new(stop_after: u32, pause_ms: Option<u64>) -> Breaker {
        Breaker { stop_after, pause_ms, row: 0, state: State::Closed }
    }

    /// May an item begin now?
    pub fn gate(&self, now_ms: u64) -> Gate {
        match self.state {
            State::Closed => Gate::Open,
            State::Open { until_ms } if now_ms >= until_ms => Gate::One,
            State::Open { until_ms } => Gate::Shut { until_ms },
            State::HalfOpen { under_way: false } => Gate::One,
            State::HalfOpen { under_way: true } => Gate::Waiting,
            State::Stopped => Gate::Stop,
        }
    }

    /// An item begins. `true`: it is the one that decides.
    pub fn begin(&mut self) -> bool {
        let decides = matches!(self.state, State::Open { .. } | State::HalfOpen { under_way: false });
        if decides {
            self.state = State::HalfOpen { under_way: true };
        }
        decides
    }

    /// An item ended: well, or by a failure that counts; `None` if it says nothing (it was interrupted).
    pub fn end(&mut self, well: Option<bool>, decided: bool, now_ms: u64) {
        match (self.state, well) {
            (State::HalfOpen { .. }, Some(true)) if decided => self.close(),
            (State::HalfOpen { .. }, Some(false)) if decided => self.open(now_ms),
            (State::HalfOpen { .. }, None) if decided => self.state = State::HalfOpen { under_way: false },
            (State::Closed, Some(true)) => self.row = 0,
            (State::Closed, Some(false)) => {
                self.row = self.row.saturating_add(1);
                if self.stop_after > 0 && self.row >= self.stop_after {
                    self.open(now_ms);
                }
            }
            _ => {}
        }
    }

    /// How many failed in a row.
    pub fn row(&self) -> u32 {
        self.row
    }

    fn close(&mut self) {
        (self.row, self.state) = (0, State::Closed);
    }

    fn open(&mut self, now_ms: u64) {
        self.state = match self.pause_ms {
            Some(pause_ms) => State::Open { until_ms: now_ms.saturating_add(pause_ms) },
            None => State::Stopped,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fails(breaker: &mut Breaker, times: u32) {
        for _ in 0..times {
            let decides = breaker.begin();
            breaker.end(Some(false), decides, 100);
        }
    }

    #[test]
    fn only_failures_in_a_row_open_it_and_without_a_pause_it_stays_open() {
        let mut breaker = Breaker::new(3, None);
        fails(&mut breaker, 2);
        breaker.end(Some(true), false, 0);
        fails(&mut breaker, 2);
        breaker.end(None, false, 0);
        assert_eq!(breaker.gate(100), Gate::Open);
        fails(&mut breaker, 1);
        assert_eq!((breaker.gate(u64::MAX), breaker.row()), (Gate::Stop, 3));
        let mut never = Breaker::new(0, None);
        fails(&mut never, 1_000);
        assert_eq!(never.gate(100), Gate::Open);
    }

    #[test]
    fn after_the_pause_one_item_decides() {
        let mut breaker = Breaker::new(2, Some(50));
        fails(&mut breaker, 2);
        assert_eq!((breaker.gate(149), breaker.gate(150)), (Gate::Shut { until_ms: 150 }, Gate::One));
        assert!(breaker.begin());
        assert_eq!(breaker.gate(150), Gate::Waiting);
        // those that were under way before say nothing
        breaker.end(Some(true), false, 160);
        assert_eq!(breaker.gate(160), Gate::Waiting);
        breaker.end(Some(false), true, 160);
        assert_eq!(breaker.gate(160), Gate::Shut { until_ms: 210 });
        assert!(breaker.begin());
        breaker.end(None, true, 210);
        assert_eq!(breaker.gate(210), Gate::One);
        assert!(breaker.begin());
        breaker.end(Some(true), true, 220);
        assert_eq!((breaker.gate(220), breaker.row()), (Gate::Open, 0));
    }
}
