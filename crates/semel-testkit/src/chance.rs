//! Random choices from a printed seed.

/// SplitMix64.
#[derive(Debug)]
pub struct Chance(u64);

impl Chance {
    /// With the seed of the environment (`SEMEL_SEED`), or a new one; printed, so that a failing test names it.
    pub fn new(test: &str) -> Chance {
        let given =
            std::env::var("SEMEL_SEED").ok().map(|text| text.parse().expect("SEMEL_SEED is a number"));
        let seed = given.unwrap_or_else(|| {
            let now = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap();
            now.as_secs() << 20 ^ u64::from(now.subsec_nanos())
        });
        println!("{test}: SEMEL_SEED={seed}");
        Chance(seed)
    }

    /// With this seed, which whoever asks has printed.
    pub fn with_seed(seed: u64) -> Chance {
        Chance(seed)
    }

    /// With a seed of no interest: for what only must differ between processes.
    pub(crate) fn silent() -> Chance {
        let now = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap();
        Chance(u64::from(now.subsec_nanos()) << 32 ^ now.as_secs() ^ u64::from(std::process::id()) << 17)
    }

    /// Another, for a task of its own.
    pub fn split(&mut self) -> Chance {
        Chance(self.next())
    }

    /// The seed with which another would go on as this one does.
    pub fn seed(&self) -> u64 {
        self.0
    }

    /// Any number.
    #[allow(clippy::should_implement_trait)] // it never ends
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// One of 0 to n - 1.
    pub fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }

    /// Yes or no.
    pub fn coin(&mut self) -> bool {
        self.below(2) == 0
    }

    /// One of these.
    pub fn of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.index(all.len())]
    }

    /// Another order.
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for i in (1..items.len()).rev() {
            items.swap(i, self.index(i + 1));
        }
    }

    fn index(&mut self, len: usize) -> usize {
        usize::try_from(self.below(len as u64)).unwrap()
    }
}

/// How many rounds a test of chance has: as many as the environment says (`SEMEL_ROUNDS`).
pub fn rounds(usual: u64) -> u64 {
    std::env::var("SEMEL_ROUNDS").map_or(usual, |text| text.parse().expect("SEMEL_ROUNDS is a number"))
}

/// Say what was counted, in a line that `cargo xtask torture KIND --json` keeps: the proof, where (without spaces), how
/// many of what, and how many of them were wrong.
pub fn counted(proof: &str, at: &str, many: u64, of: &str, wrong: u64, seed: Option<u64>) {
    let seed = seed.map(|seed| format!(" seed={seed}")).unwrap_or_default();
    println!("counted: {proof} at={} n={many} of={of} wrong={wrong}{seed}", at.replace(' ', "-"));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_makes_the_same_choices() {
        let draw = |mut chance: Chance| {
            let mut items = [0, 1, 2, 3, 4, 5, 6, 7];
            chance.shuffle(&mut items);
            (items, chance.of(&[1, 2, 3]), chance.coin(), chance.split().below(1_000))
        };
        assert_eq!(draw(Chance(7)), draw(Chance(7)));
        assert_ne!(draw(Chance(7)), draw(Chance(8)));
        let mut sorted = draw(Chance(7)).0;
        sorted.sort_unstable();
        assert_eq!(sorted, [0, 1, 2, 3, 4, 5, 6, 7], "nothing is lost");
    }
}
