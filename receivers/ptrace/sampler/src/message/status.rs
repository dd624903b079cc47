//! Counters, and how much is seen of running threads.

use serde::{Deserialize, Serialize};

use super::{ProcessId, Stops, Trust};

/// How much can be seen of a running thread without stopping it. The levels are in ascending order: each shows more
/// than the one before, and needs more rights.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
pub enum Level {
    /// Not known: the kernel was not asked yet. A process may end before that.
    #[default]
    Undecided,
    /// Nothing: no perf event is permitted, or none is wanted.
    None,
    /// Samples of the program's own code. For the time in the kernel only the amount is known.
    User,
    /// Samples of the program's own code and of the kernel working for it, with the kernel's call chain.
    Kernel,
    /// The same, by events of processors instead of threads: each thread is sampled from its first moment on, and
    /// events cost hardly anything when threads are switched.
    Processors,
}

impl Level {
    /// A description of what is sampled with these settings, for a person.
    pub fn description(self, stops: Stops) -> &'static str {
        match (self, stops) {
            (Self::Undecided, _) => "not met so far",
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

/// How many classes times of reading an interpreter's frames have.
pub const READ_CLASSES: usize = 32;

/// The upper border of the first class has this exponent and two bits more.
const READ_EXPONENT: u32 = 11;

/// The class of a time in nanoseconds, in [`Status::read_behind`] and [`Status::read_stopped`]: a quarter of a power of
/// two each, up to 2.56, 3.07, 3.58, 4.1, 5.12, ... 459 microseconds, and longer.
pub fn read_class(nano: u64) -> usize {
    let Some(above) = nano.max(1).ilog2().checked_sub(READ_EXPONENT) else { return 0 };
    let quarter = (nano >> (READ_EXPONENT + above - 2)) & 3;
    (above as usize * 4 + quarter as usize).min(READ_CLASSES - 1)
}

/// Where a class of [`read_class`] begins, in nanoseconds.
pub fn read_class_begins(class: usize) -> u64 {
    let class = class.min(READ_CLASSES) as u64;
    if class == 0 { 0 } else { (4 + class % 4) << (u64::from(READ_EXPONENT) - 2 + class / 4) }
}

/// Counters of a process since it was attached. All are totals unless they say otherwise.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Status {
    /// The process.
    pub process: ProcessId,
    /// The present number of its threads.
    pub threads: u64,
    /// The present rate in hertz. It is lower than the configured one while a budget is overspent.
    pub rate_hertz: f64,
    /// Ticks.
    pub ticks: u64,
    /// Ticks that were skipped because the sampler was late by more than a period; and one for each time that the
    /// kernel paused the sampling of running threads because there were too many samples (`PERF_RECORD_THROTTLE`).
    pub missed_ticks: u64,
    /// Ticks that were left out because a budget was overspent.
    pub lowered_ticks: u64,
    /// Observations.
    pub observations: u64,
    /// Observations with complete stacks.
    pub complete: u64,
    /// Observations with truncated stacks.
    pub truncated: u64,
    /// Observations with stacks of which a part is guessed.
    pub guessed: u64,
    /// How often threads were stopped.
    pub stops: u64,
    /// Stops that another tracer, or the kernel, refused.
    pub refused_stops: u64,
    /// The time for which threads were stopped, in nanoseconds. A stop counts from the last moment at which the thread
    /// is known not to have stopped (the last look, the request, or when the sampler woke) until it was let go.
    pub stopped_nano: u64,
    /// The number of stops by their length: up to 1, 2, 4, ... 2^22 microseconds, and longer.
    pub stop_lengths: [u64; 24],
    /// The longest stop, in nanoseconds.
    pub longest_stop_nano: u64,
    /// Processor time of the sampler for all of its processes, in nanoseconds.
    pub sampler_cpu_nano: u64,
    /// Observations that were lost because the owner did not keep up.
    pub lost_observations: u64,
    /// How much is seen of running threads without stopping them.
    pub level: Level,
    /// Samples of running threads that found no room in the kernel's ring.
    pub lost_samples: u64,
    /// For how long threads ran without a sample that says where, in nanoseconds.
    pub not_sampled_nano: u64,
    /// The time of threads of which records of their switches say when they ran and waited, in nanoseconds.
    pub recorded_nano: u64,
    /// The time of threads of which only the kernel's counters say how long they ran and waited, in nanoseconds: their
    /// switches were not recorded, or not all of them. Threads that did not run at all are not among them.
    pub counted_nano: u64,
    /// For how long threads waited of which it is not known where, in nanoseconds.
    pub not_placed_nano: u64,
    /// The part of [`Status::recorded_nano`] of which samples of switches alone tell it: that a thread runs is known when
    /// it leaves its processor, and whether it was preempted from its registers. In nanoseconds.
    pub switches_sampled_nano: u64,
    /// For how long threads ran without a sample of their own, where that time has the functions of the other threads'
    /// samples, in nanoseconds.
    pub pooled_nano: u64,
    /// System calls that a stop ended early: they had moved a part of their data and returned with that.
    pub cut_calls: u64,
    /// Observations with frames that were read from an interpreter's memory.
    pub interpreted: u64,
    /// Calls of an interpreter's evaluation function in running threads of which it could not be proven what they
    /// execute: the native frame is there.
    pub unproven_frames: u64,
    /// Observations of running threads in which a frame stands for callers that are not known
    /// ([`Location::CALLERS_NOT_KNOWN`](super::Location::CALLERS_NOT_KNOWN)).
    pub missing_callers: u64,
    /// Frames of an interpreter whose function could not be told, since its memory changed while it was read.
    pub unknown_functions: u64,
    /// Samples of running threads that the kernel took, by the time from the sample to the moment when the frames of an
    /// interpreter had been read ([`read_class`]).
    pub read_behind: [u64; READ_CLASSES],
    /// Stops of running threads, by how much longer they were for reading the frames of an interpreter
    /// ([`read_class`]).
    pub read_stopped: [u64; READ_CLASSES],
    /// Functions of V8 of which it is known where in their source they were.
    pub positioned_frames: u64,
    /// Functions of V8 that are named with the line where they begin, since it is not known where in them it was.
    pub unpositioned_frames: u64,
    /// Frames of V8 that stand for a function or one that was inlined into it, since it is not known which it was.
    pub inlining_frames: u64,
    /// Observations that say what the thread worked on ([`Sample::context`](super::Sample::context)).
    pub contexts: u64,
    /// Times that what a thread worked on was not valid: its record was being written, or could not be read.
    pub torn_contexts: u64,
    /// Samples of threads in programs that show what they work on, of which nothing proves what it was at that moment:
    /// the thread ran on before that could be read.
    pub unproven_contexts: u64,
}

impl Status {
    /// Counts observations of a stack.
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

    /// Guarantees: classes follow each other without gaps, each begins where it says, and none is beyond the last.
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
