//! Measures two programs, A and B, alternately: A B B A A B B A ..., so that any drift affects both.

use serde::Serialize;

use super::{Error, statistics};

/// A pair is discarded if the calibrator's time deviates by more than this fraction from its median over the run.
const DRIFT: f64 = 0.10;

/// The result of all pairs.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct PairComparison {
    /// B's cost divided by A's, for each pair.
    pub(crate) ratios: Vec<f64>,
    /// The median of `ratios`.
    pub(crate) ratio: f64,
    /// The bootstrapped 95 % confidence interval of the median.
    pub(crate) interval: (f64, f64),
    /// The median cost of A.
    pub(crate) a: f64,
    /// The median cost of B.
    pub(crate) b: f64,
    /// The number of discarded pairs.
    pub(crate) rejected: usize,
    /// The calibrator's highest value in the run divided by its lowest.
    pub(crate) calibrator_spread: f64,
}

/// One measurement of A, one of B, and the calibrator before, between and after them.
struct Pair {
    a: f64,
    b: f64,
    calibrations: Vec<f64>,
}

/// Measures `wanted` pairs. `calibrate` returns the calibrator's time; `a` and `b` return a cost.
///
/// # Errors
/// Any error of the measurements, or if most pairs had to be discarded.
pub(crate) fn measure(
    wanted: usize,
    mut calibrate: impl FnMut() -> Result<f64, Error>,
    mut a: impl FnMut() -> Result<f64, Error>,
    mut b: impl FnMut() -> Result<f64, Error>,
) -> Result<PairComparison, Error> {
    let mut pairs: Vec<Pair> = Vec::new();
    for number in 0..wanted * 2 {
        if number >= wanted && kept(&pairs).0.len() >= wanted {
            break;
        }
        let before = calibrate()?;
        let pair = if number % 2 == 0 {
            let first = a()?;
            let between = calibrate()?;
            Pair { a: first, b: b()?, calibrations: vec![before, between, calibrate()?] }
        } else {
            let first = b()?;
            let between = calibrate()?;
            Pair { a: a()?, b: first, calibrations: vec![before, between, calibrate()?] }
        };
        pairs.push(pair);
    }
    let (kept, spread) = kept(&pairs);
    if kept.len() * 2 < wanted {
        return Err(format!(
            "the machine is too restless: {} of {} pairs were thrown away",
            pairs.len() - kept.len(),
            pairs.len()
        )
        .into());
    }
    let ratios: Vec<f64> = kept.iter().map(|pair| pair.b / pair.a).collect();
    Ok(PairComparison {
        ratio: statistics::median(&ratios),
        interval: statistics::interval(&ratios),
        a: statistics::median(&kept.iter().map(|pair| pair.a).collect::<Vec<_>>()),
        b: statistics::median(&kept.iter().map(|pair| pair.b).collect::<Vec<_>>()),
        rejected: pairs.len() - kept.len(),
        calibrator_spread: spread,
        ratios,
    })
}

/// Returns the pairs during which the machine's speed was constant, and the calibrator's highest time in all pairs
/// divided by its lowest.
fn kept(pairs: &[Pair]) -> (Vec<&Pair>, f64) {
    let all: Vec<f64> = pairs.iter().flat_map(|pair| pair.calibrations.iter().copied()).collect();
    let usual = statistics::median(&all);
    let steady = |pair: &&Pair| pair.calibrations.iter().all(|time| (time / usual - 1.0).abs() <= DRIFT);
    let lowest = statistics::quantile(&all, 0.0).max(f64::MIN_POSITIVE);
    (pairs.iter().filter(steady).collect(), statistics::quantile(&all, 1.0) / lowest)
}
