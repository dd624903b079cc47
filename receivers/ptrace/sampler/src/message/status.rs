//! Counters, and how much is seen of running threads.

use super::{ProcessId, Stops};

/// How much can be seen of a running thread without stopping it. The levels are in ascending order: each shows more
/// than the one before, and needs more rights.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum Level {
    /// Nothing: no perf event is permitted, or none was tried yet.
    #[default]
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

/// Counters of a process since it was attached. All are totals unless they say otherwise.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
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
    /// System calls that a stop ended early: they had moved a part of their data and returned with that.
    pub cut_calls: u64,
    /// Observations with frames that were read from an interpreter's memory.
    pub interpreted: u64,
    /// Calls of an interpreter's evaluation function in running threads of which it could not be proven what they
    /// execute: the native frame is there.
    pub unproven_frames: u64,
    /// Frames of an interpreter in running threads that were read after the sample was taken and that nothing proves:
    /// callers of a function for which there is a proof, within the same native call.
    pub later_read_frames: u64,
    /// Frames of an interpreter whose function could not be told, since its memory changed while it was read.
    pub unknown_functions: u64,
    /// Observations that say what the thread worked on ([`Sample::context`](super::Sample::context)).
    pub contexts: u64,
    /// Times that what a thread worked on was not valid: its record was being written, or could not be read.
    pub torn_contexts: u64,
    /// Samples of threads in programs that show what they work on, of which nothing proves what it was at that moment:
    /// the thread ran on before that could be read.
    pub unproven_contexts: u64,
}
