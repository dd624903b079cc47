//! When a sampler process that ended is started again.

use std::time::Duration;

use tokio::time::Instant;

/// The first and the longest pause.
const PAUSES: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));

/// A sampler process that lived for this long resets the pause.
const HEALTHY: Duration = Duration::from_secs(60);

/// Pauses between sampler processes. They double as long as these end soon.
#[derive(Debug)]
pub(super) struct Backoff {
    pause: Duration,
    started: Option<Instant>,
    due: Option<Instant>,
}

impl Default for Backoff {
    fn default() -> Self {
        Self { pause: PAUSES.0, started: None, due: None }
    }
}

impl Backoff {
    /// One was started.
    pub(super) fn started(&mut self, now: Instant) {
        self.started = Some(now);
        self.due = None;
    }

    /// The sampler process has ended, or could not start. Returns the pause before the next.
    pub(super) fn ended(&mut self, now: Instant) -> Duration {
        if self.started.take().is_some_and(|started| now.duration_since(started) >= HEALTHY) {
            self.pause = PAUSES.0;
        }
        let pause = self.pause;
        self.pause = (pause * 2).min(PAUSES.1);
        self.due = Some(now + pause);
        pause
    }

    /// When the next one starts; `None` while one runs.
    pub(super) fn due(&self) -> Option<Instant> {
        self.due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Guarantees: pauses double up to a minute, and a sampler process that lived for a minute starts over with a
    /// second.
    #[test]
    fn doubles_and_recovers() {
        let (mut backoff, start) = (Backoff::default(), Instant::now());
        let mut pauses = Vec::new();
        for _ in 0..8 {
            backoff.started(start);
            assert_eq!(backoff.due(), None);
            pauses.push(backoff.ended(start).as_secs());
        }
        assert_eq!(pauses, [1, 2, 4, 8, 16, 32, 60, 60]);
        assert_eq!(backoff.due(), Some(start + Duration::from_secs(60)));
        backoff.started(start);
        assert_eq!(backoff.ended(start + HEALTHY), PAUSES.0);
        assert_eq!(backoff.ended(start + HEALTHY), PAUSES.0 * 2, "an attempt that failed counts as well");
    }
}
