//! The one place where the engine reads the time.
//!
//! Processors and exporters are handed a [`Now`]; whoever drives them owns a [`Clock`]. A test owns one that it moves.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::time::Instant;

/// The time, handed in: no processor reads a clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Now {
    /// Nanoseconds since the process started; never goes back. Deadlines are measured with it.
    pub monotonic_nano: u64,
    /// Nanoseconds since the Unix epoch. May jump. Event times are compared with it.
    pub unix_nano: u64,
}

impl Now {
    /// The monotonic time `after` from now, for a deadline.
    pub fn deadline(self, after: Duration) -> u64 {
        self.monotonic_nano.saturating_add(u64::try_from(after.as_nanos()).unwrap_or(u64::MAX))
    }
}

/// A source of time. Cheap to clone; clones tell the same time.
#[derive(Clone)]
pub struct Clock {
    read: Arc<dyn Fn() -> Now + Send + Sync>,
}

impl Clock {
    /// The system's clocks. The monotonic one starts now and is tokio's, which a test can pause.
    pub fn system() -> Self {
        let start = Instant::now();
        Self::from_fn(move || Now {
            monotonic_nano: nanos(start.elapsed()),
            unix_nano: nanos(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()),
        })
    }

    /// A clock that tells what `read` returns, whose monotonic time must never go back.
    pub fn from_fn(read: impl Fn() -> Now + Send + Sync + 'static) -> Self {
        Self { read: Arc::new(read) }
    }

    /// The time.
    pub fn now(&self) -> Now {
        (self.read)()
    }
}

impl fmt::Debug for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Clock").field(&self.now()).finish()
    }
}

/// Nanoseconds; saturates after 584 years.
pub fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Guarantees: the system's clock moves with tokio's, so that a test can pause it.
    #[tokio::test(start_paused = true)]
    async fn follows_paused_time() {
        let clock = Clock::system();
        let before = clock.now();
        tokio::time::advance(Duration::from_secs(3)).await;
        assert_eq!(clock.now().monotonic_nano - before.monotonic_nano, 3_000_000_000);
    }
}
