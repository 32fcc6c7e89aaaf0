//! Choices from a seed that is printed: the same seed makes the same ones.

use std::io;

/// SplitMix64.
#[derive(Debug)]
pub(crate) struct Chance(u64);

impl Chance {
    pub(crate) fn new(seed: u64) -> Chance {
        Chance(seed)
    }

    /// Any number.
    pub(crate) fn any(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// One of 0 to n - 1; 0 if there is none.
    pub(crate) fn below(&mut self, n: u64) -> u64 {
        self.any().checked_rem(n).unwrap_or(0)
    }
}

/// A seed for somebody who gave none: short, so that people can type it.
pub(crate) fn seed() -> io::Result<u64> {
    getrandom::u64().map(|seed| seed % 1_000_000).map_err(|why| io::Error::other(why.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_makes_the_same_choices() {
        let draw = |seed| {
            let mut chance = Chance::new(seed);
            (chance.any(), chance.below(1000), chance.below(0))
        };
        assert_eq!(draw(7), draw(7));
        assert_ne!(draw(7), draw(8));
    }
}
