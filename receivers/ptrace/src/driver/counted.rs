//! The sampler's counters: as metrics, and in the log when a process is detached.

use std::fmt::Write;
use std::time::Duration;

use profbridge_model::{Quantities, Reason};
use profbridge_sampler::message::{Status, Stops};
use profbridge_sampler::what_shows_more;

use super::Driver;
use crate::counters::COUNTERS;

impl Driver {
    /// Adds the increase of a process's counters to the metrics.
    pub(super) fn status(&mut self, mut status: Status) {
        let Some(&number) = self.live.get(&status.process) else { return };
        let Some(process) = self.processes.get_mut(&number) else { return };
        let mut before = std::mem::replace(&mut process.status, status);
        for (name, counter) in COUNTERS {
            let more = counter(&mut status).saturating_sub(*counter(&mut before));
            if more > 0 {
                self.parts.intake.note(name, more);
            }
        }
        let lost = status.lost_observations.saturating_sub(before.lost_observations);
        if lost > 0 {
            self.parts.intake.refused(Reason::QueueFull, Quantities::observations(lost));
        }
        self.count_level(number);
        self.log_level(number);
    }
}

/// A loss is logged if it is more than 1/50 of the threads' time.
const WORTH_SAYING: u64 = 50;

/// Describes what is unknown about a process's running threads, which right would show it, and the side effects of
/// sampling on the process. Empty if there is nothing to report.
pub(super) fn missing(status: &Status, stops: Stops) -> String {
    let mut text = String::new();
    // Writing into memory never fails.
    if status.not_sampled_nano > 0 {
        let seconds = Duration::from_nanos(status.not_sampled_nano).as_secs_f64();
        write!(text, "; {seconds:.2} s of its processor time were not sampled").ok();
        if let Some(more) = what_shows_more(status.level, stops) {
            write!(text, " ({more})").ok();
        }
    }
    let all = status.recorded_nano.saturating_add(status.counted_nano);
    if status.counted_nano > all / WORTH_SAYING {
        let seconds = Duration::from_nanos(status.counted_nano).as_secs_f64();
        write!(text, "; for {seconds:.2} s of its threads only sums tell how long they waited").ok();
    }
    if status.not_placed_nano > all / WORTH_SAYING {
        let seconds = Duration::from_nanos(status.not_placed_nano).as_secs_f64();
        write!(text, "; for {seconds:.2} s it is not known where they waited").ok();
    }
    if status.cut_calls > 0 {
        write!(text, "; {} of its system calls came back early since their thread was stopped", status.cut_calls).ok();
    }
    text
}

#[cfg(test)]
mod tests {
    use profbridge_sampler::message::Level;

    use super::*;

    /// Guarantees: the log has the running time that was not sampled, with the right that would show it, and the calls
    /// that were cut short; also how much of its threads' waiting time has no record or no place, if that is more than
    /// one part in 50; it is empty if there is nothing to report.
    #[test]
    fn what_is_missing() {
        assert_eq!(missing(&Status::default(), Stops::UserBound), "");
        let status = Status { level: Level::None, not_sampled_nano: 1_234_000_000, cut_calls: 2, ..Status::default() };
        let text = missing(&status, Stops::UserBound);
        assert!(
            text.starts_with("; 1.23 s of its processor time were not sampled (") && text.contains("CAP_PERFMON"),
            "{text}"
        );
        assert!(text.ends_with("; 2 of its system calls came back early since their thread was stopped"), "{text}");
        let waits = Status { recorded_nano: 49_000_000_000, counted_nano: 1_000_000_000, ..Status::default() };
        assert_eq!(missing(&waits, Stops::Never), "");
        let waits = Status { counted_nano: 1_100_000_000, not_placed_nano: 2_250_000_000, ..waits };
        assert_eq!(
            missing(&waits, Stops::Never),
            "; for 1.10 s of its threads only sums tell how long they waited; for 2.25 s it is not known where they waited"
        );
        assert!(missing(&status, Stops::Always).contains("choose user-bound or never"));
        let all_seen = Status { level: Level::Kernel, cut_calls: 0, ..status };
        assert_eq!(missing(&all_seen, Stops::UserBound), "; 1.23 s of its processor time were not sampled");
    }
}
