//! Counters of a process, and the level at which its running threads are sampled.

use serde::{Deserialize, Serialize};

use super::{ProcessId, Stops, Trust};

/// How much can be seen of a running thread without stopping it. The levels are in ascending order: each shows more
/// than the one before, and needs more rights.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
pub enum Level {
    /// Not known yet: the kernel was not asked so far. The process may end before that.
    #[default]
    Undecided,
    /// Nothing: perf events are not permitted, or not wanted.
    None,
    /// Samples of the program's own code. Of the time in the kernel only the amount is known.
    User,
    /// Samples of the program's own code and of the kernel on its behalf, with the kernel's call chain.
    Kernel,
    /// The same as [`Self::Kernel`], but with perf events of processors instead of threads: each thread is sampled from
    /// its start, and a context switch costs hardly more.
    Processors,
}

impl Level {
    /// A description of what is sampled with these settings, for a person.
    pub fn description(self, stops: Stops) -> &'static str {
        match (self, stops) {
            (Self::Undecided, _) => "not used so far",
            (Self::None, Stops::UserBound) => {
                "sampled by stopping those that stay in their own code (stops: user-bound); of others only the amount of time is known"
            }
            (Self::None, Stops::Never) => "not sampled (stops: never); only the amount of their time is known",
            (Self::None, Stops::Always) => {
                "sampled by stopping them (stops: always), which can end long system calls early"
            }
            (Self::User, _) => "sampled by perf events, without their time in the kernel",
            (Self::Kernel, _) => "sampled by perf events, with their time in the kernel",
            (Self::Processors, _) => "sampled by perf events of processors, with their time in the kernel",
        }
    }
}

/// The number of histogram classes for the times that reading interpreter frames takes.
pub const READ_CLASSES: usize = 32;

/// The exponent that determines the upper limit of the first class: 1.25 times 2^11 nanoseconds.
const READ_EXPONENT: u32 = 11;

/// The histogram class of a time in nanoseconds, for [`Status::read_behind`] and [`Status::read_stopped`]. Each power
/// of two is divided into four classes, with the upper limits 2.56, 3.07, 3.58, 4.1, 5.12, ... 459 microseconds; the
/// last class has no limit.
pub fn read_class(nano: u64) -> usize {
    let Some(above) = nano.max(1).ilog2().checked_sub(READ_EXPONENT) else { return 0 };
    let quarter = (nano >> (READ_EXPONENT + above - 2)) & 3;
    (above as usize * 4 + quarter as usize).min(READ_CLASSES - 1)
}

/// The lower limit of a class of [`read_class`], in nanoseconds.
pub fn read_class_begins(class: usize) -> u64 {
    let class = class.min(READ_CLASSES) as u64;
    if class == 0 { 0 } else { (4 + class % 4) << (u64::from(READ_EXPONENT) - 2 + class / 4) }
}

/// Counters of a process since it was attached. All are totals unless they say otherwise.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Status {
    /// The process.
    pub process: ProcessId,
    /// The current number of the process's threads.
    pub threads: u64,
    /// The current rate in hertz. It is lower than configured while a budget is exceeded.
    pub rate_hertz: f64,
    /// Ticks: the moments at which the sampler examines the process.
    pub ticks: u64,
    /// Ticks that were skipped because the sampler was late by more than a period; and one for each time that the
    /// kernel paused the sampling of running threads because there were too many samples (`PERF_RECORD_THROTTLE`).
    pub missed_ticks: u64,
    /// Ticks that were left out because a budget was exceeded.
    pub lowered_ticks: u64,
    /// Observations: how often a thread was found with a stack.
    pub observations: u64,
    /// Observations with complete stacks.
    pub complete: u64,
    /// Observations with truncated stacks.
    pub truncated: u64,
    /// Observations with partly guessed stacks.
    pub guessed: u64,
    /// How often threads were stopped.
    pub stops: u64,
    /// Stops that another tracer, or the kernel, refused.
    pub refused_stops: u64,
    /// The time for which threads were stopped, in nanoseconds. A stop is measured from the last moment at which the
    /// thread was certainly still running (the last examination, the request, or when the sampler woke) to its release.
    pub stopped_nano: u64,
    /// The number of stops by their length: up to 1, 2, 4, ... 2^22 microseconds, and longer.
    pub stop_lengths: [u64; 24],
    /// The longest stop, in nanoseconds.
    pub longest_stop_nano: u64,
    /// Processor time of the sampler for all of its processes, in nanoseconds.
    pub sampler_cpu_nano: u64,
    /// Observations that were dropped because the owner did not keep up.
    pub lost_observations: u64,
    /// The level at which running threads are sampled.
    pub level: Level,
    /// Records of the kernel for which its ring had no room: samples of running threads, and switches. Processes that
    /// share a ring count all of them each.
    pub lost_samples: u64,
    /// Running time of threads without a sample that shows where they ran, in nanoseconds.
    pub not_sampled_nano: u64,
    /// Time of threads for which switch records show when they ran and waited, in nanoseconds.
    pub recorded_nano: u64,
    /// Time of threads for which only the kernel's counters show how long they ran and waited, in nanoseconds: their
    /// switches were not recorded, or not all of them. Threads that did not run at all are left out.
    pub counted_nano: u64,
    /// Waiting time of threads for which no stack is known, in nanoseconds.
    pub not_placed_nano: u64,
    /// The part of [`Status::recorded_nano`] that is known from samples of switches alone, in nanoseconds. Such a
    /// sample is taken only when a thread leaves its processor; the registers show whether it was preempted.
    pub switches_sampled_nano: u64,
    /// Running time of threads without a sample of their own, in nanoseconds, that was given to the functions of other
    /// threads' samples.
    pub pooled_nano: u64,
    /// System calls that a stop ended early: they returned after they had transferred a part of their data.
    pub cut_calls: u64,
    /// Observations with frames that were read from an interpreter's memory.
    pub interpreted: u64,
    /// Calls of an interpreter's evaluation function in running threads for which no executed function could be proven:
    /// the native frame is shown instead.
    pub unproven_frames: u64,
    /// Observations of running threads in which one frame replaces unknown callers
    /// ([`Location::CALLERS_NOT_KNOWN`](super::Location::CALLERS_NOT_KNOWN)).
    pub missing_callers: u64,
    /// Interpreter frames whose function could not be determined, since the interpreter's memory changed during the
    /// read.
    pub unknown_functions: u64,
    /// The number of samples that the kernel took of running threads, by the class ([`read_class`]) of the time from
    /// the sample until the interpreter frames had been read.
    pub read_behind: [u64; READ_CLASSES],
    /// The number of stops of running threads, by the class ([`read_class`]) of the time that reading the interpreter
    /// frames added to the stop.
    pub read_stopped: [u64; READ_CLASSES],
    /// V8 functions whose exact position in the source is known.
    pub positioned_frames: u64,
    /// V8 functions that are shown with their first line, since the position within them is not known.
    pub unpositioned_frames: u64,
    /// V8 frames that execute either the shown function or one that was inlined into it: which of the two is not known.
    pub inlining_frames: u64,
    /// Observations with a trace context ([`Sample::context`](super::Sample::context)).
    pub contexts: u64,
    /// How many times a thread's context record was invalid: it was being written, or could not be read.
    pub torn_contexts: u64,
    /// Samples without a trace context although the program publishes it: the thread ran on before its record could be
    /// read.
    pub unproven_contexts: u64,
}

impl Status {
    /// Counts observations by the trust in their stack.
    pub(crate) fn count(&mut self, trust: Trust, observations: u64) {
        self.observations += observations;
        match trust {
            Trust::Complete => self.complete += observations,
            Trust::MissingCallers => {}
            Trust::Truncated => self.truncated += observations,
            Trust::Guessed => self.guessed += observations,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Guarantees: the classes have no gaps between them, `read_class_begins` returns the lower limit of each, and no
    /// time has a class beyond the last.
    #[test]
    fn read_classes() {
        assert_eq!((read_class(0), read_class(2559), read_class(2560)), (0, 0, 1));
        assert_eq!((read_class(458_752), read_class(u64::MAX)), (READ_CLASSES - 1, READ_CLASSES - 1));
        for class in 1..READ_CLASSES {
            let begin = read_class_begins(class);
            assert_eq!((read_class(begin - 1), read_class(begin)), (class - 1, class), "{begin}");
        }
    }
}
