//! How exact sampled times are, and which differences are more than chance.
//!
//! The time of all functions together is exact: the kernel counts it. Sampling only decides how it is divided, so
//! shares are compared. Two things make them uncertain:
//!
//! * **Sampling.** Samples come at regular times. Where a function runs for several samples in a row, only its start
//!   and its end are uncertain, by less than the time between two samples: the number of samples in it has a variance
//!   of at most a quarter. Where it runs for less, samples may be independent of each other, and each stretch of
//!   samples that is seen has a variance of one.
//! * **The program**: a service has other requests in each second. How the share of a function varies slowly is what
//!   makes its mean uncertain, so the first [`TAPERS`] sine waves over the run are taken of it, each of which varies as
//!   the sum does (Riedel, Sidorenko, "Minimum bias multiple taper spectral estimation", 1995). The difference between
//!   both files is taken, so what happens at the start of each run does not count. A command that does the same work
//!   from its start to its end has phases, which are no chance: there it is at most what the lengths of a function's
//!   stretches explain.

use std::collections::HashMap;

/// The number of sine waves. Fewer say less about how a program varies; more see what averages out within moments.
const TAPERS: usize = 16;

/// How often two equal programs may seem to differ in anything: less than once in a hundred comparisons.
const FALSE_ALARMS: f64 = 0.03;

/// An observation of a thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Observed {
    pub(super) thread: u32,
    pub(super) time: u64,
    pub(super) function: u32,
    pub(super) weight: u64,
}

/// The weight of a function, or of all.
#[derive(Debug, Clone, Default)]
pub(super) struct Weight {
    pub(super) total: f64,
    /// The variance of the total by sampling.
    variance: f64,
    /// Its sums with each of the sine waves.
    waves: [f64; TAPERS],
    /// How often it ran, without a sample of another function between, and the sum of the squares of the weights.
    stretches: u64,
    squares: f64,
}

/// The weights in one file.
#[derive(Debug, Clone, Default)]
pub(super) struct FileWeights {
    pub(super) functions: HashMap<u32, Weight>,
    pub(super) all: Weight,
    /// The number of samples; 0 if it is not known.
    pub(super) samples: u64,
    /// Whether times are known.
    has_times: bool,
}

impl FileWeights {
    /// From observations with times.
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
            // Of one of the two ends of a stretch.
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

    /// From weights and numbers of samples without times: the samples are taken for independent ones.
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

    /// The share of a function.
    pub(super) fn share(&self, function: u32) -> f64 {
        self.functions.get(&function).map_or(0.0, |of| of.total) / self.all.total.max(1.0)
    }

    /// The variance of a share by sampling and, if it was not from start to end, by where it began and ended.
    fn variance(&self, function: u32, is_same_work: bool) -> f64 {
        let of = self.functions.get(&function);
        // A part of a stretch more, or less: any part is equally likely.
        let cut = of.filter(|of| !is_same_work && of.stretches > 0);
        let cut = cut.map_or(0.0, |of| (of.total / of.stretches as f64).powi(2) / 12.0);
        let variance = (of.map_or(0.0, |of| of.variance) + cut) / self.all.total.max(1.0).powi(2);
        // Of nothing seen, one sample might have been missed.
        variance.max((self.samples.max(1) as f64).powi(-2))
    }

    /// The variance of a share if the stretches of a function are by chance as long as they are.
    fn variance_of_stretches(&self, function: u32) -> f64 {
        let Some(of) = self.functions.get(&function) else { return 0.0 };
        (of.squares - of.total * of.total / (of.stretches.max(1) as f64)).max(0.0) / self.all.total.max(1.0).powi(2)
    }

    /// A sine wave's part of what a function has more than its share, in parts of the total.
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
    /// Whether anything is known about it.
    pub(super) fn is_known(&self) -> bool {
        self.before.samples > 0 && self.after.samples > 0
    }

    /// The largest difference between the shares of a function that may be chance.
    pub(super) fn of_share(&self, function: u32) -> f64 {
        let Self { before, after, .. } = self;
        if !self.is_known() {
            return 0.0;
        }
        let variance = |of: &FileWeights| of.variance(function, self.is_same_work);
        let sampling = self.normal() * (variance(before) + variance(after)).sqrt();
        let differs = |wave| after.deviation(function, wave) - before.deviation(function, wave);
        let program = self.of_waves(differs);
        if !self.is_same_work {
            return sampling.max(program);
        }
        // Of phases there is one each; what is done again and again takes longer now and then on a busy machine.
        let stretches = before.variance_of_stretches(function) + after.variance_of_stretches(function);
        sampling.max(program.min(self.normal() * stretches.sqrt()))
    }

    /// The largest relative difference between the wholes that may be chance, if a steady load makes them.
    pub(super) fn of_whole(&self) -> f64 {
        // What is the same all the time is the same part of both.
        if self.is_same_work {
            return 0.0;
        }
        let part = |of: &FileWeights, wave: usize| of.all.waves[wave] / of.all.total.max(1.0);
        self.of_waves(|wave| part(self.after, wave) - part(self.before, wave))
    }

    /// The same for a sum of which the sine waves may differ by chance.
    fn of_waves(&self, differs: impl Fn(usize) -> f64) -> f64 {
        if !self.before.has_times || !self.after.has_times {
            return 0.0;
        }
        let squares: f64 = (0..TAPERS).map(|wave| differs(wave).powi(2)).sum();
        self.student(TAPERS as f64) * (squares / TAPERS as f64).sqrt()
    }

    /// How many standard deviations are certain where the deviation is known: by P(|Z| > z) < exp(-z²/2) / 4 for the
    /// values of z that occur here, and with each function compared a chance for a false alarm.
    fn normal(&self) -> f64 {
        (2.0 * (self.compared.max(1) as f64 / FALSE_ALARMS).ln()).sqrt()
    }

    /// The same where the deviation is estimated: the quantile of Student's distribution for that of the normal one
    /// (Wallace, "Bounds on normal approximations to Student's", 1959).
    fn student(&self, degrees: f64) -> f64 {
        let normal = self.normal() * (8.0 * degrees + 3.0) / (8.0 * degrees + 1.0);
        (degrees * ((normal * normal / degrees).exp() - 1.0)).sqrt()
    }
}
