//! What becomes of each record when a ledger is carried from one store to another.
//!
//! Theory. The copy notes in the target what it writes there, so what stands there is either the copy's own, from a try
//! that was interrupted, or a stranger's. Only the copy's own is written over. A lease is carried as its counter: the
//! higher one stays, so no token goes back on either side. Nobody may hold one meanwhile, on either side.

use crate::lease::Lease;
use crate::record::Standing;

/// What the two stores have under one name.
#[derive(Clone, Copy, Debug)]
pub struct Both<'a> {
    /// The bytes in the source.
    pub source: &'a [u8],
    /// The bytes in the target, if any.
    pub target: Option<&'a [u8]>,
    /// What the target has was written by this copy.
    pub ours: bool,
}

/// What to do with a record that is no lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Carry {
    /// It is there already.
    Leave,
    /// Write the source's.
    Write,
    /// Somebody else's record stands there.
    Stranger,
}

/// A record that is no lease.
pub fn record(both: &Both<'_>) -> Carry {
    match both.target {
        None => Carry::Write,
        Some(target) if target == both.source => Carry::Leave,
        Some(_) if both.ours => Carry::Write,
        Some(_) => Carry::Stranger,
    }
}

/// Does a lease keep a ledger from being carried? One that has lapsed does not: what ran under it is lost, there and
/// here.
pub fn is_in_use(lease: &Lease, standing: Option<Standing>) -> bool {
    lease.hold.is_some() && !matches!(standing, Some(Standing::Lapsed { .. }))
}

/// The lease that the target gets: nothing if what stands there is as high, or higher.
pub fn lease<'a>(source: &'a Lease, target: Option<&Lease>) -> Option<&'a Lease> {
    let is_behind = |target: &Lease| target.grant.token < source.grant.token;
    target.is_none_or(is_behind).then_some(source)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::token::{Grant, Nonce, Token};

    fn at(token: u64) -> Lease {
        let grant = Grant { token: Token::new(token).unwrap(), nonce: Nonce::from_bytes([7; 16]) };
        Lease { grant, hold: None }
    }

    #[test]
    fn the_higher_counter_stays() {
        assert_eq!(lease(&at(3), None), Some(&at(3)));
        assert_eq!(lease(&at(3), Some(&at(2))), Some(&at(3)));
        assert_eq!(lease(&at(3), Some(&at(3))), None);
        assert_eq!(lease(&at(3), Some(&at(4))), None);
    }

    #[test]
    fn only_the_copys_own_is_written_over() {
        let both = |target, ours| record(&Both { source: b"new", target, ours });
        assert_eq!(both(None, false), Carry::Write);
        assert_eq!(both(Some(b"new".as_slice()), false), Carry::Leave);
        assert_eq!(both(Some(b"old".as_slice()), true), Carry::Write);
        assert_eq!(both(Some(b"old".as_slice()), false), Carry::Stranger);
    }
}
