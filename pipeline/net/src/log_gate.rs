//! Limits how often a log line that could occur with every request is written.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// Allows one log line per interval and counts the others.
#[derive(Debug)]
pub struct LogGate {
    interval: Duration,
    state: Mutex<(Option<Instant>, u64)>,
}

impl LogGate {
    /// Allows one line per `interval`.
    pub fn new(interval: Duration) -> Self {
        Self { interval, state: Mutex::default() }
    }

    /// Whether to write a line now, and how many lines were suppressed since the last one.
    pub fn pass(&self) -> Option<u64> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        if state.0.is_some_and(|last| now.duration_since(last) < self.interval) {
            state.1 += 1;
            return None;
        }
        state.0 = Some(now);
        Some(std::mem::take(&mut state.1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Guarantees: a flood writes one line at once and then one per interval, with the number of suppressed lines.
    #[tokio::test(start_paused = true)]
    async fn one_line_per_interval() {
        let gate = LogGate::new(Duration::from_secs(60));
        let mut passes = Vec::new();
        let mut before = 0;
        for second in [0, 1, 59, 60, 61, 119, 121, 300] {
            tokio::time::advance(Duration::from_secs(second - before)).await;
            before = second;
            passes.push(gate.pass());
        }
        assert_eq!(passes, [Some(0), None, None, Some(2), None, None, Some(2), Some(0)]);
    }
}
