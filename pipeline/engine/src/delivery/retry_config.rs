//! The configuration of retries, with the Collector's keys (opentelemetry-collector `config/configretry`).

use std::ops::Deref;

use serde::Deserialize;

use crate::config::Duration;

/// `retry_on_failure`, checked.
#[derive(Debug, Clone, Copy, PartialEq, Default, Deserialize)]
#[serde(try_from = "RetryRules")]
pub struct RetryConfig(RetryRules);

/// `retry_on_failure`: when to retry, and for how long. The defaults are the Collector's: the first pause is 5 s, each
/// further one 1.5 times as long, up to 30 s, for at most 5 minutes; each pause is randomised by up to half of its
/// length.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RetryRules {
    /// Whether a failed request is tried again.
    pub enabled: bool,
    /// The pause after the first attempt.
    pub initial_interval: Duration,
    /// The maximum fraction by which a pause is randomly shortened or lengthened.
    pub randomization_factor: f64,
    /// The ratio of a pause to the previous one.
    pub multiplier: f64,
    /// The longest pause, before it is randomised.
    pub max_interval: Duration,
    /// How long after the first attempt another may start; zero means no limit.
    pub max_elapsed_time: Duration,
}

impl Default for RetryRules {
    fn default() -> Self {
        Self {
            enabled: true,
            initial_interval: Duration::from_secs(5),
            randomization_factor: 0.5,
            multiplier: 1.5,
            max_interval: Duration::from_secs(30),
            max_elapsed_time: Duration::from_secs(300),
        }
    }
}

/// The rule that a `retry_on_failure` broke. In the message, the text after `; ` is the hint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct BadRetry(&'static str);

impl TryFrom<RetryRules> for RetryConfig {
    type Error = BadRetry;

    fn try_from(rules: RetryRules) -> Result<Self, BadRetry> {
        let RetryRules { initial_interval: initial, max_interval, max_elapsed_time: elapsed, .. } = rules;
        let broken = [
            (
                initial < Duration::from_millis(1),
                "`initial_interval` is shorter than 1ms, so attempts would follow each other without a pause; write at \
                 least `1ms`",
            ),
            (
                !(0.0..=1.0).contains(&rules.randomization_factor),
                "`randomization_factor` is not between 0 and 1; the default is 0.5",
            ),
            (!(1.0..=100.0).contains(&rules.multiplier), "`multiplier` is not between 1 and 100; the default is 1.5"),
            (max_interval < initial, "`max_interval` is shorter than `initial_interval`"),
            (
                !elapsed.is_zero() && elapsed < initial,
                "`max_elapsed_time` is shorter than `initial_interval`, so there would be no second attempt; write \
                 `enabled: false` for that, or `0s` for no limit",
            ),
        ];
        let first = broken.into_iter().find(|(is_broken, _)| *is_broken);
        first.map_or(Ok(Self(rules)), |(_, rule)| Err(BadRetry(rule)))
    }
}

impl RetryConfig {
    /// No retry after the first attempt.
    pub fn disabled() -> Self {
        Self(RetryRules { enabled: false, ..RetryRules::default() })
    }

    /// An interval, randomised by the number `random` of 0 to 1.
    pub fn randomized(&self, interval: std::time::Duration, random: f64) -> std::time::Duration {
        interval.mul_f64(1.0 + self.randomization_factor * (2.0 * random - 1.0))
    }
}

impl Deref for RetryConfig {
    type Target = RetryRules;

    fn deref(&self) -> &RetryRules {
        &self.0
    }
}
