//! Medians and their confidence intervals.

use fastrand::Rng;

/// The number of resamples in a bootstrap.
const RESAMPLES: usize = 10_000;

/// The median; 0 without values.
pub(crate) fn median(values: &[f64]) -> f64 {
    quantile(values, 0.5)
}

/// The quantile `q`, linearly interpolated; 0 without values.
pub(crate) fn quantile(values: &[f64], q: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let Some(last) = sorted.len().checked_sub(1) else { return 0.0 };
    let place = q.clamp(0.0, 1.0) * last as f64;
    let below = place.floor() as usize;
    let above = (below + 1).min(last);
    sorted[below] + (sorted[above] - sorted[below]) * (place - below as f64)
}

/// The bootstrapped 95 % confidence interval of the median.
pub(crate) fn interval(values: &[f64]) -> (f64, f64) {
    if values.is_empty() {
        return (0.0, 0.0);
    }
    let mut rng = Rng::with_seed(95);
    let mut medians = Vec::with_capacity(RESAMPLES);
    let mut resample = vec![0.0; values.len()];
    for _ in 0..RESAMPLES {
        resample.fill_with(|| values[rng.usize(..values.len())]);
        medians.push(median(&resample));
    }
    (quantile(&medians, 0.025), quantile(&medians, 0.975))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Guarantees: medians are right for even and odd counts, in any order.
    #[test]
    fn medians() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), 2.5);
        assert_eq!(median(&[]), 0.0);
        assert_eq!(quantile(&[0.0, 10.0], 0.25), 2.5);
    }

    /// Guarantees: the interval contains the median, lies within the values, and is narrower if the values are closer
    /// together.
    #[test]
    fn intervals() {
        let wide = interval(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]);
        assert!(wide.0 >= 1.0 && wide.0 < 4.5 && wide.1 > 4.5 && wide.1 <= 8.0, "{wide:?}");
        assert_eq!(interval(&[2.0; 8]), (2.0, 2.0));
    }
}
