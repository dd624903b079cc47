//! The encoding of commands and events: `postcard`'s compact format over a pair of packet sockets, with files attached
//! to packets.
//!
//! The rules:
//!
//! * A packet has at most [`MAX_PACKET`] bytes and at most one file. Longer batches are split into packets that are
//!   each complete ([`split()`]), so the owner never has to keep a part of a message until the rest arrives.
//! * The owner trusts no packet. The sampler reads files and memory that targets wrote, and a target may have taken it
//!   over. [`decode_event`] checks each packet by itself (lengths, counts, indices, kinds of files), [`PacketChecker`]
//!   checks it against the earlier packets. If a packet breaks a rule, the sampler process is killed.
//! * Decoding a packet costs the owner at most 50 times the packet's length, and an accepted event takes about a MiB
//!   at most.
//! * A working sampler breaks no rule, whatever its targets do: texts that are too long are cut when they are encoded.
//! * Both sides are the same executable, so the protocol needs no versions.

mod check;
mod decode;
mod encode;
pub mod socket;
mod split;
mod texts;

pub use check::PacketChecker;
pub use decode::{decode_command, decode_event};
pub use encode::{Outgoing, encode_command, encode_event};
pub use split::{split, split_functions};

use serde::{Deserialize, Serialize};

use crate::message::{Event, ProcessId};

/// An event as encoded in a packet.
#[derive(Debug, Serialize, Deserialize)]
#[allow(clippy::large_enum_variant, reason = "one is alive at a time")]
enum Packet {
    Event(Event),
    /// An [`Event::PerfMap`]; its file is attached to the packet.
    PerfMap(ProcessId),
}

/// The longest packet in bytes.
pub const MAX_PACKET: usize = 64 << 10;

/// The longest path, as the kernel's `PATH_MAX`.
pub const MAX_PATH: usize = 4096;

/// The maximum number of hints about missing rights of the sampler process.
pub const MAX_HINTS: usize = 8;

/// The longest message for the operator, in bytes.
pub const MAX_MESSAGE: usize = 4096;

/// The longest thread name: the kernel has 16 bytes with a terminating zero, and a byte that is not UTF-8 becomes
/// three.
pub const MAX_THREAD_NAME: usize = 128;

/// The largest size of a process's arguments, all together, in bytes.
pub const MAX_ARGUMENTS: usize = 4096;

/// The largest number of a process's arguments: each takes at least one byte in `/proc/PID/cmdline`.
pub const MAX_ARGUMENT_COUNT: usize = 4096;

/// The maximum size of the requested environment variables of a process, including their names, in bytes.
pub const MAX_ENVIRONMENT: usize = 32 << 10;

/// The longest container id or control group name that is passed on, in bytes.
pub const MAX_GROUP: usize = 4096;

/// The longest build id, in bytes: a SHA-512 has 64.
pub const MAX_BUILD_ID: usize = 64;

/// The maximum number of files mapped by one process. A process has at most 65,530 mappings by default
/// (`vm.max_map_count`).
pub const MAX_MAPPINGS: u32 = 1 << 16;

/// The longest stack in one packet: 2048 locations of at most 20 bytes are 40 KiB, so one stack always fits.
pub const MAX_STACK: usize = 2048;

/// The largest accepted weight and period, in nanoseconds: a day.
pub const MAX_WEIGHT: u64 = 86_400_000_000_000;

/// The maximum number of attached processes, of all targets together.
pub const MAX_PROCESSES: usize = 4096;

/// The rule that a packet breaks.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Violation {
    /// The packet is not a message of the protocol.
    #[error("a packet that cannot be decoded: {0}")]
    Undecodable(String),
    /// Something in the packet is longer or larger than allowed.
    #[error("{what} is {value}, more than {limit}")]
    TooMuch {
        /// The name of the value.
        what: &'static str,
        /// The value.
        value: u64,
        /// The limit.
        limit: u64,
    },
    /// An index in the packet is out of range.
    #[error("{what} refers to {index}, and there are {count}")]
    Dangling {
        /// The name of the reference.
        what: &'static str,
        /// The index.
        index: u64,
        /// The number of entries.
        count: u64,
    },
    /// A value in the packet is malformed or contradicts another.
    #[error("{0}")]
    Nonsense(&'static str),
    /// The file is of the wrong kind, missing, or not expected.
    #[error("the file of {what} {problem}")]
    File {
        /// The event.
        what: &'static str,
        /// The problem.
        problem: &'static str,
    },
    /// The event is about a process that is not attached.
    #[error("process {0} is not attached")]
    UnknownProcess(u64),
    /// The event is about a target that was never watched.
    #[error("target {0} was never watched")]
    UnknownTarget(u32),
}

#[cfg(test)]
mod attacks;
#[cfg(test)]
mod tests;
