//! Numbers from rounds: medians and spreads, because single timings on a noisy machine mean nothing.

/// The value below which this share of the values lies.
pub(crate) fn quantile(values: &[f64], share: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    match sorted.len() {
        0 => f64::NAN,
        n => sorted[(((n - 1) as f64) * share).round() as usize],
    }
}

/// The middle value.
pub(crate) fn median(values: &[f64]) -> f64 {
    quantile(values, 0.5)
}

/// How many times longer `ours` takes than `theirs`: the ratio of the medians, and the middle half of the ratios
/// of single rounds.
pub(crate) struct Ratio {
    pub(crate) of_medians: f64,
    pub(crate) low: f64,
    pub(crate) high: f64,
}

impl Ratio {
    pub(crate) fn new(ours: &[f64], theirs: &[f64]) -> Ratio {
        let rounds: Vec<f64> = ours.iter().zip(theirs).map(|(ours, theirs)| ours / theirs).collect();
        Ratio {
            of_medians: median(ours) / median(theirs),
            low: quantile(&rounds, 0.25),
            high: quantile(&rounds, 0.75),
        }
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
}
