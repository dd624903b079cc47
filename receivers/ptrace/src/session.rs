//! One life of a process is one profiling session.
//!
//! Sentry's profiles specification determines two things for each session: a `profiler_id`, and whether the session is
//! profiled (`profile_session_sample_rate`, "The sampling decision is made once"; "The session starts when the SDK is
//! configured and stops when the service terminates"). Here both are computed from data that an exec fixes
//! ([`Process::exec_id`]). So they stay the same when profbridge or its sampler process restarts, when the program
//! rewrites its command line and when the wall clock is set; but a process that starts again, or executes another
//! program, gets new ones. Stopping and starting the profiler within one life changes neither, so that spans always
//! find the profiler of their process.
//!
//! The processor `chunk` computes the `profiler_id` from the resource: host or container, pid, start, and
//! [`SESSION_ATTRIBUTE`], which distinguishes the programs that one process executes one after the other.

use profbridge_sampler::message::Process;
use xxhash_rust::xxh3::xxh3_64;

/// The resource attribute that distinguishes sessions of one process.
pub const SESSION_ATTRIBUTE: &str = "profbridge.session.id";

/// A session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProfilerSession {
    /// The session's number: a fixed hash of host, process id, and exec id.
    pub id: u64,
    /// Whether the session is sampled.
    pub sampled: bool,
}

impl ProfilerSession {
    /// The session of a process on a host. `rate` is the share of all sessions that is sampled, from 0 to 1.
    #[must_use]
    pub fn of(host: &str, process: &Process, rate: f64) -> Self {
        let mut bytes = Vec::with_capacity(256);
        bytes.extend_from_slice(b"profbridge session 2\0");
        bytes.extend_from_slice(&process.exec_id.to_le_bytes());
        // A forked process that executes no program differs from its parent only in its id: sometimes even the start
        // time is the same.
        bytes.extend_from_slice(&process.pid.to_le_bytes());
        // Virtual machines started from one memory image have the same boot id.
        bytes.extend_from_slice(host.as_bytes());
        let id = xxh3_64(&bytes);
        // Uses another hash than the id, so that the ids of sampled sessions are evenly distributed.
        let draw = xxh3_64(&id.to_le_bytes());
        Self { id, sampled: is_drawn(draw, rate) }
    }

    /// The session's number as the value of [`SESSION_ATTRIBUTE`].
    #[must_use]
    pub fn attribute(&self) -> String {
        format!("{:016x}", self.id)
    }
}

/// Whether an evenly distributed number is in the share given by `rate`.
fn is_drawn(draw: u64, rate: f64) -> bool {
    // A float represents integers of 53 bits exactly.
    let part = (draw >> 11) as f64 / (1u64 << 53) as f64;
    part < rate
}

#[cfg(test)]
mod tests;
