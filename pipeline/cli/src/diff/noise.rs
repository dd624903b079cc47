//! Estimates the accuracy of sampled times, and decides which differences are more than chance.
//!
//! The total time of all functions is exact, since the kernel counts it. Sampling only decides how it is divided among
//! functions, so shares are compared. Two things make shares uncertain:
//!
//! * **Sampling.** Samples are taken at regular times. If a function runs for several samples in a row, only its start
//!   and its end are uncertain, by less than the time between two samples: the number of samples has a variance of at
//!   most a quarter. If it runs for a shorter time, samples may be independent of each other, and each sampled stretch
//!   (consecutive samples of one function on a thread) has a variance of one.
//! * **The program.** A service handles different requests in each second. Slow variations of a function's share make
//!   its mean uncertain. They are measured with the first [`TAPERS`] sine waves over the run, each of which varies as
//!   much as the sum (Riedel, Sidorenko, "Minimum bias multiple taper spectral estimation", 1995), in the difference
//!   between both files, so that the start of each run does not count. A command that does the same work from start to
//!   end has phases, which are not random: its variation is limited to what the lengths of a function's stretches
//!   explain.

use std::collections::HashMap;

/// The number of sine waves. With fewer, the variation is estimated less exactly; with more, the estimate includes fast
/// variations, which average out.
const TAPERS: usize = 16;

/// How often two equal programs may seem to differ in any function: less than once in a hundred comparisons.
const FALSE_ALARMS: f64 = 0.03;

/// An observation of a thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Observed {
    pub(super) thread: u32,
    pub(super) time: u64,
    pub(super) function: u32,
    pub(super) weight: u64,
}

/// The weight of a function, or of all functions.
#[derive(Debug, Clone, Default)]
pub(super) struct Weight {
    pub(super) total: f64,
    /// The variance of the total due to sampling.
    variance: f64,
    /// The sums of the weights multiplied by each of the sine waves.
    waves: [f64; TAPERS],
    /// The number of stretches (consecutive samples of the function on a thread), and the sum of their squared weights.
    stretches: u64,
    squares: f64,
}

#[derive(Debug, Clone, Default)]
pub(super) struct FileWeights {
    pub(super) functions: HashMap<u32, Weight>,
    pub(super) all: Weight,
    /// The number of samples; 0 if unknown.
    pub(super) samples: u64,
    /// Whether times are known.
    has_times: bool,
}

impl FileWeights {
    /// Computes the weights of observations with times.
    pub(super) fn timed(mut observed: Vec<Observed>) -> Self {
        let mut all = Self { samples: observed.len() as u64, has_times: true, ..Self::default() };
        let times = || observed.iter().map(|one| one.time);
        let (start, end) = (times().min().unwrap_or_default(), times().max().unwrap_or_default());
        // By thread, then by time.
        observed.sort_unstable();
        for &Observed { time, function, weight, .. } in &observed {
            let at = std::f64::consts::PI * ((time - start) as f64 + 0.5) / ((end - start) as f64 + 1.0);
            let waves: [f64; TAPERS] = std::array::from_fn(|number| (at * (number + 1) as f64).sin());
            for sum in [all.functions.entry(function).or_default(), &mut all.all] {
                sum.total += weight as f64;
                for (sum, wave) in sum.waves.iter_mut().zip(waves) {
                    *sum += std::f64::consts::SQRT_2 * weight as f64 * wave;
                }
            }
        }
        let stretches: Vec<&[Observed]> =
            observed.chunk_by(|one, next| (one.thread, one.function) == (next.thread, next.function)).collect();
        for stretch in &stretches {
            if let Some(sum) = all.functions.get_mut(&stretch[0].function) {
                sum.stretches += 1;
                sum.squares += stretch.iter().map(|one| one.weight as f64).sum::<f64>().powi(2);
            }
        }
        for pair in stretches.windows(2) {
            // The variance at one end of a stretch.
            let variance = match pair[0].len().min(pair[1].len()) {
                0 | 1 => 0.5,
                2 => 0.25,
                _ => 0.125,
            };
            for one in [pair[0].last(), pair[1].first()].into_iter().flatten() {
                if let Some(sum) = all.functions.get_mut(&one.function) {
                    sum.variance += variance * (one.weight as f64).powi(2);
                }
            }
        }
        all
    }

    /// Computes weights from totals and numbers of samples, without times. Samples count as independent.
    pub(super) fn counted(counted: impl IntoIterator<Item = (u32, u64, u64)>) -> Self {
        let mut all = Self::default();
        let mut counts: HashMap<u32, u64> = HashMap::new();
        for (function, weight, samples) in counted {
            all.functions.entry(function).or_default().total += weight as f64;
            all.all.total += weight as f64;
            *counts.entry(function).or_default() += samples;
            all.samples += samples;
        }
        for (function, sum) in &mut all.functions {
            let samples = counts.get(function).copied().unwrap_or_default().max(1) as f64;
            sum.variance = sum.total * sum.total / samples * (1.0 - sum.total / all.all.total.max(1.0));
        }
        all
    }

    pub(super) fn share(&self, function: u32) -> f64 {
        self.functions.get(&function).map_or(0.0, |of| of.total) / self.all.total.max(1.0)
    }

    /// The variance of a share due to sampling and, unless both do the same work, due to the arbitrary start and end.
    fn variance(&self, function: u32, is_same_work: bool) -> f64 {
        let of = self.functions.get(&function);
        // The recording may have cut off any part of a stretch with the same probability.
        let cut = of.filter(|of| !is_same_work && of.stretches > 0);
        let cut = cut.map_or(0.0, |of| (of.total / of.stretches as f64).powi(2) / 12.0);
        let variance = (of.map_or(0.0, |of| of.variance) + cut) / self.all.total.max(1.0).powi(2);
        // A function that was not seen may have been missed by one sample.
        variance.max((self.samples.max(1) as f64).powi(-2))
    }

    /// The variance of a share if the lengths of the function's stretches are random.
    fn variance_of_stretches(&self, function: u32) -> f64 {
        let Some(of) = self.functions.get(&function) else { return 0.0 };
        (of.squares - of.total * of.total / (of.stretches.max(1) as f64)).max(0.0) / self.all.total.max(1.0).powi(2)
    }

    /// How much of a sine wave the function's weight contains beyond its constant share, relative to the total.
    fn deviation(&self, function: u32, wave: usize) -> f64 {
        let of = self.functions.get(&function).map_or(0.0, |of| of.waves[wave]);
        (of - self.share(function) * self.all.waves[wave]) / self.all.total.max(1.0)
    }
}

/// Two files, and what is certain about their differences.
#[derive(Debug, Clone, Copy)]
pub(super) struct Noise<'a> {
    pub(super) before: &'a FileWeights,
    pub(super) after: &'a FileWeights,
    /// How many functions are compared.
    pub(super) compared: usize,
    /// Whether both do the same work from start to end.
    pub(super) is_same_work: bool,
}

impl Noise<'_> {
    /// Whether the noise can be estimated.
    pub(super) fn is_known(&self) -> bool {
        self.before.samples > 0 && self.after.samples > 0
    }

    /// The largest difference between the shares of a function that may be chance.
    pub(super) fn share_noise(&self, function: u32) -> f64 {
        let Self { before, after, .. } = self;
        if !self.is_known() {
            return 0.0;
        }
        let variance = |of: &FileWeights| of.variance(function, self.is_same_work);
        let sampling = self.normal() * (variance(before) + variance(after)).sqrt();
        let differs = |wave| after.deviation(function, wave) - before.deviation(function, wave);
        let program = self.noise_between_waves(differs);
        if !self.is_same_work {
            return sampling.max(program);
        }
        // A phase is one stretch and does not vary here. Work that is repeated takes longer now and then on a busy
        // machine.
        let stretches = before.variance_of_stretches(function) + after.variance_of_stretches(function);
        sampling.max(program.min(self.normal() * stretches.sqrt()))
    }

    /// The largest relative difference between the totals that may be chance, if the load is steady.
    pub(super) fn total_noise(&self) -> f64 {
        // The total of equal work does not depend on chance.
        if self.is_same_work {
            return 0.0;
        }
        let part = |of: &FileWeights, wave: usize| of.all.waves[wave] / of.all.total.max(1.0);
        self.noise_between_waves(|wave| part(self.after, wave) - part(self.before, wave))
    }

    /// The largest difference that may be chance, given the differences of the sine waves.
    fn noise_between_waves(&self, differs: impl Fn(usize) -> f64) -> f64 {
        if !self.before.has_times || !self.after.has_times {
            return 0.0;
        }
        let squares: f64 = (0..TAPERS).map(|wave| differs(wave).powi(2)).sum();
        self.student(TAPERS as f64) * (squares / TAPERS as f64).sqrt()
    }

    /// How many standard deviations are certain if the deviation is known: by P(|Z| > z) < exp(-z²/2) / 4 for the
    /// values of z that occur here, with a chance for a false alarm for each compared function.
    fn normal(&self) -> f64 {
        (2.0 * (self.compared.max(1) as f64 / FALSE_ALARMS).ln()).sqrt()
    }

    /// The same if the deviation is estimated: the quantile of Student's distribution for that of the normal one
    /// (Wallace, "Bounds on normal approximations to Student's", 1959).
    fn student(&self, degrees: f64) -> f64 {
        let normal = self.normal() * (8.0 * degrees + 3.0) / (8.0 * degrees + 1.0);
        (degrees * ((normal * normal / degrees).exp() - 1.0)).sqrt()
    }
}
