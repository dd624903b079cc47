//! Decides when an ended sampler process is started again.

use std::time::Duration;

use tokio::time::Instant;

/// If a sampler process lived this long, the series of pauses starts over.
const HEALTHY: Duration = Duration::from_secs(60);

/// The pauses, in milliseconds, before the restarts of a receiver's sampler process. The last pause is repeated.
const OF_RECEIVER: [u64; 7] = [1_000, 2_000, 4_000, 8_000, 16_000, 32_000, 60_000];

/// The pauses for a run that a user waits for, which gives up after the last one.
const OF_RUN: [u64; 5] = [0, 200, 400, 800, 1_600];

/// The pauses between sampler processes, which get longer if these end soon after their start.
#[derive(Debug)]
pub struct Restarts {
    pauses: &'static [u64],
    is_endless: bool,
    count: usize,
    started: Option<Instant>,
    due: Option<Instant>,
}

impl Restarts {
    /// The pauses of a receiver, which never gives up.
    #[must_use]
    pub fn of_receiver() -> Self {
        Self { pauses: &OF_RECEIVER, is_endless: true, count: 0, started: None, due: None }
    }

    /// The pauses of a run, which gives up if the sampler process ends again and again.
    #[must_use]
    pub fn of_run() -> Self {
        Self { pauses: &OF_RUN, is_endless: false, ..Self::of_receiver() }
    }

    /// Called when a sampler process was started.
    pub fn started(&mut self, now: Instant) {
        (self.started, self.due) = (Some(now), None);
    }

    /// Called when the sampler process has ended, or could not start. Returns the pause before the next start, if
    /// there is to be one.
    pub fn ended(&mut self, now: Instant) -> Option<Duration> {
        if self.started.take().is_some_and(|started| now.saturating_duration_since(started) >= HEALTHY) {
            self.count = 0;
        }
        let pause = self.pauses.get(self.count).or(self.pauses.last().filter(|_| self.is_endless));
        let pause = pause.map(|&milliseconds| Duration::from_millis(milliseconds));
        self.count += 1;
        self.due = pause.map(|pause| now + pause);
        pause
    }

    /// When the next sampler process starts; `None` while one is running, or if no more will be started.
    #[must_use]
    pub fn due(&self) -> Option<Instant> {
        self.due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The pauses, in milliseconds, between sampler processes that end at once.
    fn pauses(restarts: &mut Restarts, start: Instant) -> Vec<Option<u128>> {
        let pause = |_| {
            restarts.started(start);
            assert_eq!(restarts.due(), None);
            let pause = restarts.ended(start);
            assert_eq!(restarts.due(), pause.map(|pause| start + pause));
            pause.map(|pause| pause.as_millis())
        };
        (0..8).map(pause).collect()
    }

    /// Guarantees: the pauses of a receiver double up to a minute, and start at one second again after a sampler
    /// process that lived for a minute.
    #[test]
    fn of_receiver() {
        let (mut restarts, start) = (Restarts::of_receiver(), Instant::now());
        let expected = [1_000, 2_000, 4_000, 8_000, 16_000, 32_000, 60_000, 60_000];
        assert_eq!(pauses(&mut restarts, start), expected.map(Some));
        restarts.started(start);
        assert_eq!(restarts.ended(start + HEALTHY), Some(Duration::from_secs(1)));
        let again = restarts.ended(start + HEALTHY);
        assert_eq!(again, Some(Duration::from_secs(2)), "an attempt that failed counts as well");
    }

    /// Guarantees: a run restarts its sampler process at once, then after pauses that double, and finally no more; one
    /// that lived for a minute starts the series over, and one that cannot be started is not tried more often.
    #[test]
    fn of_run() {
        let (mut restarts, start) = (Restarts::of_run(), Instant::now());
        let expected = [Some(0), Some(200), Some(400), Some(800), Some(1_600), None, None, None];
        assert_eq!(pauses(&mut restarts, start), expected);
        restarts.started(start);
        let mut now = start + HEALTHY;
        let attempts = std::iter::from_fn(|| {
            now += restarts.ended(now)?;
            Some(now)
        });
        assert_eq!(attempts.count(), 5);
    }
}
