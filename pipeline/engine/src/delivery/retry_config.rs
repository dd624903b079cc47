//! What may be written about further attempts, in the Collector's vocabulary (opentelemetry-collector
//! `config/configretry`).

use std::time::Duration;

use serde::Deserialize;

use crate::config;

/// `retry_on_failure`: when another attempt is made, and until when.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(try_from = "RawRetry")]
pub struct RetryConfig {
    enabled: bool,
    initial_interval: Duration,
    randomization_factor: f64,
    multiplier: f64,
    max_interval: Duration,
    max_elapsed_time: Duration,
}

/// [`RetryConfig`] as it is written.
#[derive(Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct RawRetry {
    enabled: bool,
    initial_interval: config::Duration,
    randomization_factor: f64,
    multiplier: f64,
    max_interval: config::Duration,
    max_elapsed_time: config::Duration,
}

/// The rule that a `retry_on_failure` broke. The part behind `; ` is the hint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BadRetry {
    /// Attempts would follow each other without a pause.
    #[error(
        "`initial_interval` is shorter than 1ms, so attempts would follow each other without a pause; write at least `1ms`"
    )]
    Initial,
    /// The factor is outside of 0 to 1.
    #[error("`randomization_factor` is not between 0 and 1; the default is 0.5")]
    Randomization,
    /// Pauses would become shorter, or endless at once.
    #[error("`multiplier` is not between 1 and 100; the default is 1.5")]
    Multiplier,
    /// The longest pause is shorter than the first.
    #[error("`max_interval` is shorter than `initial_interval`")]
    MaxInterval,
    /// There would never be a second attempt.
    #[error(
        "`max_elapsed_time` is shorter than `initial_interval`, so there would be no second attempt; write `enabled: false` for that, or `0s` for no limit"
    )]
    MaxElapsed,
}

impl Default for RawRetry {
    fn default() -> Self {
        Self {
            enabled: true,
            initial_interval: config::Duration::from_secs(5),
            randomization_factor: 0.5,
            multiplier: 1.5,
            max_interval: config::Duration::from_secs(30),
            max_elapsed_time: config::Duration::from_secs(300),
        }
    }
}

impl Default for RetryConfig {
    /// The Collector's: after 5 s, then 1.5 times as long up to 30 s, within 5 minutes, each pause half as long to half
    /// as long again.
    fn default() -> Self {
        Self::unchecked(RawRetry::default())
    }
}

impl TryFrom<RawRetry> for RetryConfig {
    type Error = BadRetry;

    fn try_from(raw: RawRetry) -> Result<Self, BadRetry> {
        Self::unchecked(raw).checked()
    }
}

impl RetryConfig {
    /// Pauses from `initial` to `max`, each `multiplier` times the one before, none beginning later than `max_elapsed`
    /// after the first attempt (zero: no limit), each shortened or lengthened at random by up to `randomization` of it.
    ///
    /// # Errors
    ///
    /// Names the rule that is broken.
    pub fn try_new(
        initial: Duration,
        max: Duration,
        multiplier: f64,
        randomization: f64,
        max_elapsed: Duration,
    ) -> Result<Self, BadRetry> {
        Self::unchecked(RawRetry {
            enabled: true,
            initial_interval: initial.into(),
            randomization_factor: randomization,
            multiplier,
            max_interval: max.into(),
            max_elapsed_time: max_elapsed.into(),
        })
        .checked()
    }

    /// One attempt, and no other.
    pub fn disabled() -> Self {
        Self { enabled: false, ..Self::default() }
    }

    fn unchecked(raw: RawRetry) -> Self {
        Self {
            enabled: raw.enabled,
            initial_interval: raw.initial_interval.get(),
            randomization_factor: raw.randomization_factor,
            multiplier: raw.multiplier,
            max_interval: raw.max_interval.get(),
            max_elapsed_time: raw.max_elapsed_time.get(),
        }
    }

    fn checked(self) -> Result<Self, BadRetry> {
        if self.initial_interval < Duration::from_millis(1) {
            return Err(BadRetry::Initial);
        }
        if !(0.0..=1.0).contains(&self.randomization_factor) {
            return Err(BadRetry::Randomization);
        }
        if !(1.0..=100.0).contains(&self.multiplier) {
            return Err(BadRetry::Multiplier);
        }
        if self.max_interval < self.initial_interval {
            return Err(BadRetry::MaxInterval);
        }
        if !self.max_elapsed_time.is_zero() && self.max_elapsed_time < self.initial_interval {
            return Err(BadRetry::MaxElapsed);
        }
        Ok(self)
    }

    /// Whether there is more than one attempt.
    pub fn is_enabled(&self) -> bool {
        self.enabled
    }

    /// The pause after the first attempt.
    pub fn initial_interval(&self) -> Duration {
        self.initial_interval
    }

    /// By which part of it a pause is shortened or lengthened at random, at most.
    pub fn randomization_factor(&self) -> f64 {
        self.randomization_factor
    }

    /// How much longer a pause is than the one before.
    pub fn multiplier(&self) -> f64 {
        self.multiplier
    }

    /// The longest pause, before it is varied at random.
    pub fn max_interval(&self) -> Duration {
        self.max_interval
    }

    /// How long after the first attempt another may begin; zero: no limit.
    pub fn max_elapsed_time(&self) -> Duration {
        self.max_elapsed_time
    }
}
