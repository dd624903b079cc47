//! Why data was lost: one closed set of reasons for the whole of profbridge.
//!
//! Nothing vanishes. What does not leave a component is counted under one of these reasons, in observations, and the
//! reason is the label of the metric `profbridge_dropped_observations_total`.

mod explain;

use std::fmt;

macro_rules! reasons {
    ($($(#[$doc:meta])* $name:ident = $text:literal;)*) => {
        /// Why observations were lost.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u8)]
        pub enum Reason {
            $($(#[$doc])* $name,)*
        }

        impl Reason {
            /// Every reason there is.
            pub const ALL: &'static [Reason] = &[$(Reason::$name,)*];

            /// The reason as a metric's label and in reports.
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Reason::$name => $text,)*
                }
            }
        }
    };
}

reasons! {
    /// It broke a rule of its format: an index out of range, lists of unequal length, an end before its start.
    Malformed = "malformed";
    /// It was larger or deeper than a limit of ours allows.
    LimitExceeded = "limit_exceeded";
    /// An equal profile with an equal non-zero time had come before it.
    Resent = "resent";
    /// Another profile of the same process and time already says where the time went.
    RedundantType = "redundant_type";
    /// The profile has neither timestamps with a period nor a unit of time: Sentry cannot show it.
    NoTimeUnit = "no_time_unit";
    /// Off-CPU profiles are switched off for Sentry.
    OffCpu = "off_cpu";
    /// The only observation of its thread in a chunk, and the configuration says to drop those.
    LoneSample = "lone_sample";
    /// The process was active for less time in its window than the configuration asks for.
    TooShort = "min_active_time";
    /// An observation without a single frame, which Sentry would take for idle time.
    NoFrames = "no_frames";
    /// The finished chunk broke a rule of Sentry's, which answers 200 and then drops it: it was not sent.
    ChunkRule = "chunk_rule";
    /// One item is larger than what the destination takes and cannot be split further.
    TooLarge = "too_large";
    /// No destination is configured for it.
    Unroutable = "unroutable";
    /// The queue in front of an exporter was full.
    QueueFull = "queue_full";
    /// The memory budget was used up.
    MemoryLimit = "memory_limit";
    /// The destination said that it is over its quota.
    RateLimited = "rate_limited";
    /// The destination refused it for good.
    RejectedByPeer = "rejected_by_peer";
    /// The destination could not be reached or was overloaded until the retries were used up.
    RetriesExhausted = "retries_exhausted";
    /// It could not be written to disk.
    WriteFailed = "write_failed";
    /// It was still held when the deadline for shutting down had passed.
    Shutdown = "shutdown";
    /// A component failed while it held it: a defect of profbridge.
    Internal = "internal";
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A number of observations lost for one reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Loss {
    /// Why.
    pub reason: Reason,
    /// How many observations.
    pub observations: u64,
}

/// What was lost, by reason, in observations.
#[derive(Clone, PartialEq, Eq)]
pub struct Losses([u64; Reason::ALL.len()]);

impl Default for Losses {
    fn default() -> Self {
        Self([0; Reason::ALL.len()])
    }
}

impl Losses {
    /// Counts a loss.
    pub fn add(&mut self, reason: Reason, observations: u64) {
        self.0[reason as usize] += observations;
    }

    /// Adds all that `other` counted.
    pub fn merge(&mut self, other: &Losses) {
        for (mine, theirs) in self.0.iter_mut().zip(&other.0) {
            *mine += theirs;
        }
    }

    /// What was counted under one reason.
    pub fn get(&self, reason: Reason) -> u64 {
        self.0[reason as usize]
    }

    /// The sum over all reasons.
    pub fn total(&self) -> u64 {
        self.0.iter().sum()
    }

    /// One line for each reason under which anything was counted: how many observations, the reason, what it means and
    /// what to do.
    pub fn explanations(&self) -> impl Iterator<Item = String> + '_ {
        self.iter().map(|Loss { reason, observations }| {
            let plural = if observations == 1 { "" } else { "s" };
            format!("{observations} observation{plural} dropped as {reason}: {}", reason.explanation())
        })
    }

    /// The reasons under which anything was counted.
    pub fn iter(&self) -> impl Iterator<Item = Loss> + '_ {
        Reason::ALL
            .iter()
            .map(|&reason| Loss { reason, observations: self.get(reason) })
            .filter(|loss| loss.observations > 0)
    }
}

impl fmt::Debug for Losses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter().map(|loss| (loss.reason.as_str(), loss.observations))).finish()
    }
}

impl fmt::Display for Losses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (position, loss) in self.iter().enumerate() {
            let comma = if position == 0 { "" } else { ", " };
            write!(f, "{comma}{} {}", loss.observations, loss.reason)?;
        }
        Ok(())
    }
}
