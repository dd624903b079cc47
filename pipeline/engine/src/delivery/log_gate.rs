//! Keeps a line that could be written for every request to one in a while.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// Between two lines.
const INTERVAL: Duration = Duration::from_secs(10);

/// Lets one line through per interval and counts the others.
#[derive(Debug, Default)]
pub(super) struct LogGate {
    state: Mutex<(Option<Instant>, u64)>,
}

impl LogGate {
    /// Whether to write a line now, and how many were kept back since the last.
    pub(super) fn pass(&self) -> Option<u64> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        if state.0.is_some_and(|last| now.duration_since(last) < INTERVAL) {
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

    /// Guarantees: a flood writes one line per interval, which says how many it stands for.
    #[tokio::test(start_paused = true)]
    async fn one_line_per_interval() {
        let gate = LogGate::default();
        assert_eq!(gate.pass(), Some(0));
        assert_eq!((gate.pass(), gate.pass()), (None, None));
        tokio::time::advance(INTERVAL).await;
        assert_eq!(gate.pass(), Some(2));
    }
}
