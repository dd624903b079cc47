//! One life of a process is one profiling session.
//!
//! Sentry's profiles specification draws two things for each session: a `profiler_id`, and whether the session is
//! profiled (`profile_session_sample_rate`, "The sampling decision is made once"; "The session starts when the SDK is
//! configured and stops when the service terminates"). Both follow here from what an exec fixes ([`Process::exec_id`]),
//! so that they stay the same when profbridge or its sampler process starts anew, when the program rewrites its command
//! line, and when the wall clock is set, while a process that starts again, or executes another program, has others.
//! Stopping and starting the profiler within one life changes neither: spans find their profiler by their process,
//! whatever was switched meanwhile.
//!
//! The processor `chunk` makes the `profiler_id` from the resource: host or container, pid, start, and
//! [`SESSION_ATTRIBUTE`], which tells the programs apart that one process executes one after the other.

use profbridge_ptrace::message::Process;
use xxhash_rust::xxh3::xxh3_64;

/// The resource attribute that tells sessions of one process apart.
pub const SESSION_ATTRIBUTE: &str = "profbridge.session.id";

/// A session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Session {
    /// Its number: a fixed hash of host, process id, and what the process executes.
    pub id: u64,
    /// Whether it is profiled.
    pub sampled: bool,
}

impl Session {
    /// The session of a process on a host. `rate` is the part of all sessions that is profiled, from 0 to 1.
    #[must_use]
    pub fn of(host: &str, process: &Process, rate: f64) -> Self {
        let mut bytes = Vec::with_capacity(256);
        bytes.extend_from_slice(b"profbridge session 2\0");
        bytes.extend_from_slice(&process.exec_id.to_le_bytes());
        // A process that was forked and executes nothing has all but its id in common with its parent, and possibly its
        // start.
        bytes.extend_from_slice(&process.pid.to_le_bytes());
        // Machines that go on from one image of their memory have one boot.
        bytes.extend_from_slice(host.as_bytes());
        let id = xxh3_64(&bytes);
        // Another hash than the id's own bits, so that ids of sampled sessions are spread over all numbers.
        let draw = xxh3_64(&id.to_le_bytes());
        Self { id, sampled: is_drawn(draw, rate) }
    }

    /// The session's number as the value of [`SESSION_ATTRIBUTE`].
    #[must_use]
    pub fn attribute(&self) -> String {
        format!("{:016x}", self.id)
    }
}

/// Whether a number that is drawn evenly from all numbers lies in the part that `rate` asks for.
fn is_drawn(draw: u64, rate: f64) -> bool {
    // 53 bits are what a float holds exactly.
    let part = (draw >> 11) as f64 / (1u64 << 53) as f64;
    part < rate
}

#[cfg(test)]
mod tests;
