//! Numbers from rounds: medians and spreads, because single timings on a noisy machine mean nothing. What a bench in another
//! process prints, `cargo xtask bench` reads again: both by [`Ratio`].

use std::fmt;
use std::str::FromStr;

/// The value below which this share of the values lies.
pub fn quantile(values: &[f64], share: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    match sorted.len() {
        0 => f64::NAN,
        n => sorted[(((n - 1) as f64) * share).round() as usize],
    }
}

/// The middle value.
pub fn median(values: &[f64]) -> f64 {
    quantile(values, 0.5)
}

/// How many times as much the one is as the other: the ratio of the medians, and the middle half of the ratios of single
/// rounds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ratio {
    /// Of all rounds.
    pub of_medians: f64,
    /// A quarter of the rounds is below it.
    pub low: f64,
    /// A quarter of the rounds is above it.
    pub high: f64,
}

impl Ratio {
    /// Of two measured in turns.
    pub fn new(ours: &[f64], theirs: &[f64]) -> Ratio {
        let rounds: Vec<f64> = ours.iter().zip(theirs).map(|(ours, theirs)| ours / theirs).collect();
        Ratio {
            of_medians: median(ours) / median(theirs),
            low: quantile(&rounds, 0.25),
            high: quantile(&rounds, 0.75),
        }
    }
}

const SPREAD: &str = "middle half of the rounds";

impl fmt::Display for Ratio {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Ratio { of_medians, low, high } = self;
        write!(to, "ratio {of_medians:.3} ({SPREAD} {low:.3} to {high:.3})")
    }
}

impl FromStr for Ratio {
    type Err = String;

    fn from_str(text: &str) -> Result<Ratio, String> {
        let read = || {
            let (of_medians, spread) = text.trim().strip_prefix("ratio ")?.split_once(" (")?;
            let (low, high) = spread.strip_prefix(SPREAD)?.strip_suffix(')')?.split_once(" to ")?;
            let number = |text: &str| text.trim().parse().ok();
            Some(Ratio { of_medians: number(of_medians)?, low: number(low)?, high: number(high)? })
        };
        read().ok_or_else(|| format!("no ratio: {text:?}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_the_middle_and_a_ratio_is_of_medians() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
        let ratio = Ratio::new(&[2.0, 4.0, 6.0], &[1.0, 2.0, 3.0]);
        assert_eq!((ratio.of_medians, ratio.low, ratio.high), (2.0, 2.0, 2.0));
        assert!(median(&[]).is_nan());
    }

    #[test]
    fn what_is_printed_is_read_again() {
        let ratio = Ratio { of_medians: 1.25, low: 1.0, high: 12.125 };
        assert_eq!(ratio.to_string().parse(), Ok(ratio));
        assert!("1.25 x".parse::<Ratio>().is_err());
    }
}
