//! Which process a batch speaks of, and which stretch of its time.

use std::fmt;

/// The resource attribute with the keys of those attributes, of the resource and of its samples, for which only the
/// profiled program itself vouches: what it shows of itself in its memory. They never decide where profiles go.
pub const CLAIMED_ATTRIBUTE: &str = "profbridge.claimed";

/// The id under which Sentry files the chunks of one process in one profiling session: 128 bits with the version and
/// variant of a random UUID (Sentry's sample format V2, `profiler_id`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ProfilerId(uuid::Uuid);

impl ProfilerId {
    /// An id made from a 128-bit hash: the version and variant bits of a UUID v4 are set over it.
    pub fn from_hash(hash: u128) -> Self {
        Self(uuid::Builder::from_random_bytes(hash.to_be_bytes()).into_uuid())
    }

    /// An id that somebody else made.
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
    /// 32 lower-case hexadecimal digits without dashes, as Sentry wants them.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::LowerHex::fmt(self.0.as_simple(), f)
    }
}

/// How much is known about whose process it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum IdentityStrength {
    /// The batch names a container, host or service instance, and a process in it.
    Strong,
    /// It does not. The process is scoped to the peer that sent it and never merged with another.
    Weak,
}

/// One process in one window of time: what becomes the chunks of one profiler in Sentry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProcessWindow {
    /// The process and session.
    pub profiler_id: ProfilerId,
    /// How the process was identified.
    pub strength: IdentityStrength,
    /// The window's start, in nanoseconds since the Unix epoch, inclusive.
    pub start_unix_nano: u64,
    /// The window's end, in nanoseconds since the Unix epoch. Nothing in a chunk is later than this.
    pub end_unix_nano: u64,
}
