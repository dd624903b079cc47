//! The pauses between the attempts to send one request.

use std::time::Duration;

use super::retry_config::RetryConfig;

/// The longest pause, even if a destination asks for more. One attempt a day does no harm, and a bogus number from a
/// destination must not overflow a clock.
const LONGEST: Duration = Duration::from_secs(24 * 60 * 60);

/// The retry schedule of one request.
#[derive(Debug)]
pub(super) struct Backoff {
    config: RetryConfig,
    /// The next pause, before it is randomised.
    interval: Duration,
    random: fastrand::Rng,
}

impl Backoff {
    pub(super) fn new(config: RetryConfig, random: fastrand::Rng) -> Self {
        Self { config, interval: config.initial_interval.get(), random }
    }

    /// Returns the pause before the next attempt, `elapsed` after the first attempt began; `None` if there is no
    /// further attempt. `at_least` is the pause that the destination asked for.
    pub(super) fn next(&mut self, elapsed: Duration, at_least: Duration) -> Option<Duration> {
        if !self.config.enabled {
            return None;
        }
        let pause = self.config.randomized(self.interval, self.random.f64()).max(at_least).min(LONGEST);
        self.interval = self.interval.mul_f64(self.config.multiplier).min(self.config.max_interval.get());
        let limit = self.config.max_elapsed_time.get();
        (limit.is_zero() || elapsed.saturating_add(pause) <= limit).then_some(pause)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::delivery::RetryRules;

    fn seconds(initial: u64, max: u64, elapsed: u64, randomization: f64) -> Backoff {
        let [initial, max, elapsed] = [initial, max, elapsed].map(Duration::from_secs);
        let rules = RetryRules {
            initial_interval: initial.into(),
            max_interval: max.into(),
            multiplier: 2.0,
            randomization_factor: randomization,
            max_elapsed_time: elapsed.into(),
            ..RetryRules::default()
        };
        Backoff::new(rules.try_into().unwrap(), fastrand::Rng::with_seed(7))
    }

    /// Guarantees: pauses grow by the multiplier up to the maximum, and retries end when their time is up.
    /// rule: otlp#backoff
    #[test]
    fn grows_and_ends() {
        let mut backoff = seconds(1, 5, 20, 0.0);
        let mut elapsed = Duration::ZERO;
        let mut pauses = Vec::new();
        while let Some(pause) = backoff.next(elapsed, Duration::ZERO) {
            elapsed += pause;
            pauses.push(pause.as_secs());
        }
        assert_eq!(pauses, [1, 2, 4, 5, 5]);
    }

    /// Guarantees: a pause lies within the random range, and varies.
    /// rule: otlp#backoff
    #[test]
    fn jitter() {
        let pauses: Vec<Duration> = (0..50)
            .map(|seed| {
                let config = RetryConfig::default();
                Backoff::new(config, fastrand::Rng::with_seed(seed)).next(Duration::ZERO, Duration::ZERO).unwrap()
            })
            .collect();
        let (shortest, longest) = (pauses.iter().min().unwrap(), pauses.iter().max().unwrap());
        assert!(*shortest >= Duration::from_millis(2500) && *longest <= Duration::from_millis(7500));
        assert!(*shortest < Duration::from_millis(3500) && *longest > Duration::from_millis(6500));
    }

    /// Guarantees: the pause that the destination asked for is kept, and retries end if that pause exceeds their time
    /// limit.
    #[test]
    fn retry_after() {
        let mut backoff = seconds(1, 5, 20, 0.0);
        assert_eq!(backoff.next(Duration::ZERO, Duration::from_secs(9)), Some(Duration::from_secs(9)));
        assert_eq!(backoff.next(Duration::from_secs(9), Duration::from_secs(12)), None);
        assert_eq!(seconds(1, 5, 0, 0.0).next(Duration::MAX, Duration::MAX), Some(LONGEST));
    }

    /// Guarantees: with retries disabled there is no second attempt; without a time limit there is always another one.
    #[test]
    fn disabled_and_endless() {
        let mut never = Backoff::new(RetryConfig::disabled(), fastrand::Rng::with_seed(1));
        assert_eq!(never.next(Duration::ZERO, Duration::ZERO), None);
        let day = Duration::from_secs(86_400);
        assert!(seconds(1, 5, 0, 0.5).next(day, Duration::ZERO).is_some());
    }
}
