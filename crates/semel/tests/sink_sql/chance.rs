//! Random choices from a printed seed.

/// SplitMix64.
pub(crate) struct Chance(u64);

impl Chance {
    /// With the seed of the environment, or a new one; printed, so that a failing test names it.
    pub(crate) fn new(test: &str) -> Chance {
        let given = std::env::var("SEMEL_SEED").ok().and_then(|text| text.parse().ok());
        let seed = given.unwrap_or_else(|| {
            let now = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap();
            now.as_secs() << 20 ^ u64::from(now.subsec_nanos())
        });
        println!("{test}: SEMEL_SEED={seed}");
        Chance(seed)
    }

    /// Another, for a task of its own.
    pub(crate) fn split(&mut self) -> Chance {
        Chance(self.next())
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(crate) fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }

    pub(crate) fn coin(&mut self) -> bool {
        self.below(2) == 0
    }

    pub(crate) fn of<T: Copy>(&mut self, all: &[T]) -> T {
        all[usize::try_from(self.below(all.len() as u64)).unwrap()]
    }
}

/// How many rounds per place.
pub(crate) fn rounds() -> u64 {
    std::env::var("SEMEL_ROUNDS").ok().and_then(|text| text.parse().ok()).unwrap_or(200)
}
