//! The process and the time window of a batch.

use std::fmt;

/// The key of a resource attribute that lists keys of attributes, of the resource and of its samples, that were read
/// from the memory of the profiled program. Only the program itself vouches for them, so they never decide where
/// profiles are sent.
pub const CLAIMED_ATTRIBUTE: &str = "profbridge.claimed";

/// The id under which Sentry groups the chunks of one process in one profiling session: 128 bits with the version and
/// variant of a random UUID (Sentry's sample format V2, `profiler_id`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ProfilerId(uuid::Uuid);

impl ProfilerId {
    /// An id from a 128-bit hash, with the version and variant bits of a UUID v4.
    pub fn from_hash(hash: u128) -> Self {
        Self(uuid::Builder::from_random_bytes(hash.to_be_bytes()).into_uuid())
    }

    /// An id that another program created.
    pub fn from_uuid(id: uuid::Uuid) -> Self {
        Self(id)
    }

    /// The id's sixteen bytes.
    pub fn as_bytes(&self) -> &[u8; 16] {
        self.0.as_bytes()
    }

    /// The id as a number, for hashing.
    pub fn as_u128(&self) -> u128 {
        self.0.as_u128()
    }
}

impl fmt::Display for ProfilerId {
    /// Writes 32 lower-case hexadecimal digits without dashes, as Sentry expects.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::LowerHex::fmt(self.0.as_simple(), f)
    }
}

/// How reliably the process of a batch is identified.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum IdentityStrength {
    /// The batch names a process, and its container, host or service instance.
    Strong,
    /// The batch does not. The process is distinguished by the sending peer and never merged with another.
    Weak,
}

/// One process in one time window. Its data becomes the chunks of one profiler in Sentry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProcessWindow {
    /// The profiler id, computed from process and session.
    pub profiler_id: ProfilerId,
    /// How the process was identified.
    pub strength: IdentityStrength,
    /// The window's start, in nanoseconds since the Unix epoch, inclusive.
    pub start_unix_nano: u64,
    /// The window's end, in nanoseconds since the Unix epoch. No sample of a chunk is later.
    pub end_unix_nano: u64,
}
