//! The one place where the engine reads the time.
//!
//! Processors and exporters receive a [`Now`]; their caller owns a [`Clock`]. A test owns a clock that it sets itself.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::time::Instant;

/// The current time. It is passed to processors, which never read a clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Now {
    /// Nanoseconds since the process started; never decreases. Used for deadlines.
    pub monotonic_nano: u64,
    /// Nanoseconds since the Unix epoch. May jump. Used to compare with event times.
    pub unix_nano: u64,
}

impl Now {
    /// The monotonic time `after` from now, for a deadline.
    pub fn deadline(self, after: Duration) -> u64 {
        self.monotonic_nano.saturating_add(u64::try_from(after.as_nanos()).unwrap_or(u64::MAX))
    }
}

/// A source of time. Cheap to clone; clones return the same time.
#[derive(Clone)]
pub struct Clock {
    read: Arc<dyn Fn() -> Now + Send + Sync>,
}

impl Clock {
    /// The system's clocks. The monotonic clock starts now; it is tokio's, which a test can pause.
    pub fn system() -> Self {
        let start = Instant::now();
        Self::from_fn(move || Now {
            monotonic_nano: nanos(start.elapsed()),
            unix_nano: nanos(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()),
        })
    }

    /// A clock that returns what `read` returns; its monotonic time must never decrease.
    pub fn from_fn(read: impl Fn() -> Now + Send + Sync + 'static) -> Self {
        Self { read: Arc::new(read) }
    }

    /// The current time.
    pub fn now(&self) -> Now {
        (self.read)()
    }
}

impl fmt::Debug for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Clock").field(&self.now()).finish()
    }
}

/// A duration in nanoseconds; saturates after 584 years.
pub fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
