//! Other bytes from these: plain mutations, decided by a seed alone.

/// Numbers that are worth putting where a number stands.
const NUMBERS: [&str; 16] = [
    "0",
    "1",
    "-1",
    "7",
    "31",
    "59",
    "60",
    "255",
    "65536",
    "2147483647",
    "4294967295",
    "4294967296",
    "9007199254740991",
    "9007199254740993",
    "18446744073709551616",
    "1e999",
];

/// Makes inputs from a corpus.
#[derive(Debug)]
pub struct Mutator {
    // SplitMix64
    state: u64,
    corpus: Vec<Vec<u8>>,
    words: &'static [&'static str],
    longest: usize,
}

impl Mutator {
    /// From these, none longer than this. The corpus has at least one member.
    pub fn new(seed: u64, corpus: Vec<Vec<u8>>, words: &'static [&'static str], longest: usize) -> Mutator {
        Mutator { state: seed, corpus, words, longest }
    }

    /// The next one.
    pub fn next_input(&mut self) -> Vec<u8> {
        let mut bytes = self.any().clone();
        for _ in 0..=self.below(6) {
            self.mutate(&mut bytes);
        }
        bytes.truncate(self.longest);
        bytes
    }

    fn any(&mut self) -> &Vec<u8> {
        let at = self.below(self.corpus.len());
        &self.corpus[at]
    }

    fn below(&mut self, most: usize) -> usize {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((z ^ (z >> 31)) % most.max(1) as u64).unwrap_or(0)
    }

    /// A part of these bytes, perhaps an empty one.
    fn part(&mut self, length: usize) -> std::ops::Range<usize> {
        let from = self.below(length + 1);
        let most = (length - from).min(64);
        from..from + self.below(most + 1)
    }

    fn mutate(&mut self, bytes: &mut Vec<u8>) {
        let at = self.below(bytes.len() + 1);
        match self.below(10) {
            0 if at < bytes.len() => bytes[at] ^= 1 << self.below(8),
            1 if at < bytes.len() => bytes[at] = self.below(256) as u8,
            2 => {
                let length = self.below(8);
                let put: Vec<u8> = (0..length).map(|_| self.below(256) as u8).collect();
                bytes.splice(at..at, put);
            }
            3 => {
                let part = self.part(bytes.len());
                bytes.drain(part);
            }
            4 => {
                let part = self.part(bytes.len());
                let again = bytes[part].to_vec();
                let times = 1 + self.below(4);
                (0..times).for_each(|_| drop(bytes.splice(at..at, again.iter().copied())));
            }
            5 => {
                let other = self.any().clone();
                let part = self.part(other.len());
                bytes.splice(at..at, other[part].iter().copied());
            }
            6 => self.replace_number(bytes, at),
            7 => bytes.truncate(at),
            _ if self.words.is_empty() => bytes.insert(at, b' '),
            _ => {
                let word = self.words[self.below(self.words.len())];
                let over = self.below(2) * self.below(word.len() + 1).min(bytes.len() - at);
                bytes.splice(at..at + over, word.bytes());
            }
        }
    }

    fn replace_number(&mut self, bytes: &mut Vec<u8>, at: usize) {
        let Some(from) = bytes.iter().skip(at).position(u8::is_ascii_digit).map(|found| at + found) else {
            return;
        };
        let to = bytes[from..]
            .iter()
            .position(|byte| !byte.is_ascii_digit())
            .map_or(bytes.len(), |end| from + end);
        let number = NUMBERS[self.below(NUMBERS.len())];
        bytes.splice(from..to, number.bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_makes_the_same_inputs_again() {
        let inputs = |seed| {
            let mut mutator = Mutator::new(seed, vec![b"{\"a\":12}".to_vec()], &["null"], 64);
            (0..200).map(|_| mutator.next_input()).collect::<Vec<_>>()
        };
        assert_eq!(inputs(3), inputs(3));
        assert_ne!(inputs(3), inputs(4));
        assert!(inputs(3).iter().all(|bytes| bytes.len() <= 64));
    }
}
