//! Log lines about requests that a receiver refused: one line at the first refusal for a reason, and then one a minute
//! with their number.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use crate::config;
use crate::outcome::Retry;

/// The interval between two lines for one reason.
const INTERVAL: Duration = Duration::from_secs(60);

/// A request that was refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// The reason, as one of a few constant words; lines are grouped by it.
    pub reason: &'static str,
    /// The sender's address, if known.
    pub peer: Option<std::net::IpAddr>,
    /// The message in the answer.
    pub message: String,
    /// Whether the answer allows a retry.
    pub retry: Retry,
}

/// The refusals for one reason since the last line about it.
#[derive(Debug)]
struct RefusalKind {
    written: Instant,
    count: u64,
    last: Refusal,
}

/// The refusals of one transport.
#[derive(Debug, Default)]
pub(super) struct Refusals {
    kinds: Mutex<BTreeMap<&'static str, RefusalKind>>,
}

/// A line for the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RefusalLine {
    pub(super) count: u64,
    pub(super) last: Refusal,
}

impl Refusals {
    /// Records a refusal. Returns a line to write at once if there was no line for this reason within a minute.
    pub(super) fn note(&self, refusal: Refusal) -> Option<RefusalLine> {
        let now = Instant::now();
        let mut kinds = self.kinds.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(kind) = kinds.get_mut(refusal.reason) else {
            let line = RefusalLine { count: 1, last: refusal.clone() };
            kinds.insert(refusal.reason, RefusalKind { written: now, count: 0, last: refusal });
            return Some(line);
        };
        kind.count += 1;
        kind.last = refusal;
        kind.line(now)
    }

    /// Returns the due lines: for reasons whose last line is at least a minute old and that have had refusals since.
    pub(super) fn due(&self) -> Vec<RefusalLine> {
        let now = Instant::now();
        let mut kinds = self.kinds.lock().unwrap_or_else(PoisonError::into_inner);
        let lines = kinds.values_mut().filter_map(|kind| kind.line(now)).collect();
        // If there were no refusals for a reason for a minute, the next one is logged at once.
        kinds.retain(|_, kind| now.duration_since(kind.written) < INTERVAL);
        lines
    }
}

impl RefusalKind {
    fn line(&mut self, now: Instant) -> Option<RefusalLine> {
        if self.count == 0 || now.duration_since(self.written) < INTERVAL {
            return None;
        }
        self.written = now;
        Some(RefusalLine { count: std::mem::take(&mut self.count), last: self.last.clone() })
    }
}

impl fmt::Display for RefusalLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { count, last: Refusal { reason, peer, message, retry } } = self;
        match count {
            1 => write!(f, "1 request was not taken")?,
            count => write!(f, "{count} requests were not taken")?,
        }
        write!(f, " ({reason})")?;
        if let Some(peer) = peer {
            let last = if *count == 1 { "from" } else { "the last from" };
            write!(f, ", {last} {}", peer.to_canonical())?;
        }
        write!(f, ": {message}; the sender ")?;
        match retry {
            Retry::After(delay) => write!(f, "was told to come back in {}", config::Duration::from(*delay)),
            Retry::Later => f.write_str("may send the same again"),
            Retry::Never => f.write_str("was told not to send the same again"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(reason: &'static str, message: &str) -> Refusal {
        let peer = Some(std::net::IpAddr::from([10, 0, 0, 7]));
        Refusal { reason, peer, message: message.to_owned(), retry: Retry::After(Duration::from_secs(2)) }
    }

    /// Guarantees: the first refusal for a reason is logged at once, the others once a minute with their number,
    /// whether or not more follow; reasons do not delay each other.
    #[tokio::test(start_paused = true)]
    async fn one_line_per_minute_and_reason() {
        let refusals = Refusals::default();
        assert_eq!(refusals.note(refusal("memory_limit", "full")).unwrap().count, 1);
        for _ in 0..115 {
            assert_eq!(refusals.note(refusal("memory_limit", "full")), None);
        }
        assert_eq!(refusals.note(refusal("malformed", "bad")).unwrap().count, 1);
        assert_eq!(refusals.due(), []);
        tokio::time::advance(INTERVAL).await;
        let [line] = &refusals.due()[..] else { panic!("one line") };
        assert_eq!(
            line.to_string(),
            "115 requests were not taken (memory_limit), the last from 10.0.0.7: full; the sender was told to come back in 2s"
        );
        assert_eq!(refusals.note(refusal("memory_limit", "full")), None);
        tokio::time::advance(INTERVAL).await;
        assert_eq!(refusals.note(refusal("memory_limit", "full")).unwrap().count, 2);
        tokio::time::advance(INTERVAL).await;
        assert_eq!(refusals.due(), []);
        let line = refusals.note(Refusal { retry: Retry::Never, peer: None, ..refusal("malformed", "bad") }).unwrap();
        assert_eq!(
            line.to_string(),
            "1 request was not taken (malformed): bad; the sender was told not to send the same again"
        );
    }
}
