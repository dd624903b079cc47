//! The progress of a run.

use std::time::Duration;

use profbridge_sampler::message::Status;

use super::stats::complete_percent;
use crate::views::stacks::clean;

#[derive(Debug)]
pub(crate) struct RunSnapshot<'a> {
    /// The target.
    pub(crate) title: &'a str,
    /// The time so far.
    pub(crate) elapsed: Duration,
    /// The requested time, if any.
    pub(crate) duration: Option<Duration>,
    /// The sampler's counters.
    pub(crate) status: Status,
    /// The current number of threads.
    pub(crate) threads: u64,
    /// The current rate.
    pub(crate) rate_hertz: Option<f64>,
    /// Whether samples wait for the names of their functions.
    pub(crate) is_naming: bool,
}

impl std::fmt::Display for RunSnapshot<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "sampling {}: {:.0} s", clean(self.title), self.elapsed.as_secs_f64().floor())?;
        if let Some(duration) = self.duration {
            write!(f, " of {} s", duration.as_secs_f64())?;
        }
        write!(f, ", {} samples, {} threads", self.status.observations, self.threads)?;
        if let Some(rate) = self.rate_hertz {
            write!(f, ", {rate:.0} Hz")?;
        }
        if let Some(complete) = complete_percent(&self.status) {
            write!(f, ", {complete:.1} % complete")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Guarantees: unknown figures are left out, and a process name cannot send control sequences to the terminal.
    #[test]
    fn looks() {
        let mut look = RunSnapshot {
            title: "app\u{1b}[2J (pid 7)",
            elapsed: Duration::from_millis(4_900),
            duration: Some(Duration::from_secs(10)),
            status: Status::default(),
            threads: 0,
            rate_hertz: None,
            is_naming: false,
        };
        assert_eq!(look.to_string(), "sampling app [2J (pid 7): 4 s of 10 s, 0 samples, 0 threads");
        look.status = Status { observations: 99, complete: 98, truncated: 1, ..Status::default() };
        (look.duration, look.rate_hertz, look.threads) = (None, Some(100.6), 3);
        assert!(look.to_string().ends_with(": 4 s, 99 samples, 3 threads, 101 Hz, 99.0 % complete"), "{look}");
    }
}
