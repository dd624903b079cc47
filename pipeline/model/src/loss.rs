//! Why data was lost: one closed set of reasons for the whole of profbridge.
//!
//! Nothing vanishes. What does not leave a component is counted under one of these reasons, in [`Quantities`], and the
//! reason is the label of the metric `profbridge_dropped_observations_total` and of those of the other units.

mod explain;

use std::fmt;

use crate::{Quantities, Unit};

macro_rules! reasons {
    ($($(#[$doc:meta])* $name:ident = $text:literal;)*) => {
        /// Why something was lost.
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
    /// An equal profile with an equal non-zero time, or an equal span with the same id, had come before it.
    Resent = "resent";
    /// Another profile of the same process and time already says where the time went.
    RedundantType = "redundant_type";
    /// Values of another type than the one that is shown.
    OtherType = "other_type";
    /// A value below zero, as in a difference of two profiles.
    NegativeValue = "negative_value";
    /// The profile has neither timestamps with a period nor a unit of time: Sentry cannot show it.
    NoTimeUnit = "no_time_unit";
    /// Off-CPU profiles are switched off for Sentry.
    OffCpu = "off_cpu";
    /// The only observation of its thread in a chunk, and the configuration says to drop those.
    LoneSample = "lone_sample";
    /// The process was active for less time in its window than the configuration asks for.
    TooShort = "min_active_time";
    /// The sampling rates and rules of the configuration decided against it, or a decision that came with it.
    SampleRate = "sample_rate";
    /// No sampled root span of its process was open at its time, and profiles are kept only then.
    NoSampledSpan = "no_sampled_span";
    /// An observation without a single frame, which Sentry would take for idle time.
    NoFrames = "no_frames";
    /// The finished chunk broke a rule of Sentry's, which answers 200 and then drops it: it was not sent.
    ChunkRule = "chunk_rule";
    /// One item is larger than what the destination takes and cannot be split further.
    TooLarge = "too_large";
    /// No destination is configured for it.
    Unroutable = "unroutable";
    /// A V1 profile, or the spans, of a transaction that was left out: Sentry takes neither alone.
    NoTransaction = "no_transaction";
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
    /// The same, and it was written to disk, to be sent later.
    KeptOnDisk = "kept_on_disk";
    /// It had been here before: it is sent in a circle.
    Loop = "loop";
    /// A component failed while it held it: a defect of profbridge.
    Internal = "internal";
}

impl Reason {
    /// Whether the configuration asks for it, or nothing is missing: it is no sign that something is wrong.
    pub const fn is_intended(self) -> bool {
        use Reason::{
            KeptOnDisk, LoneSample, NoSampledSpan, NoTransaction, OffCpu, RedundantType, Resent, SampleRate, TooShort,
        };
        matches!(
            self,
            Resent
                | RedundantType
                | OffCpu
                | LoneSample
                | TooShort
                | SampleRate
                | NoSampledSpan
                | NoTransaction
                | KeptOnDisk
        )
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What was lost for one reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Loss {
    /// Why.
    pub reason: Reason,
    /// How much of each unit.
    pub quantities: Quantities,
}

/// What was lost, by reason.
#[derive(Clone, PartialEq, Eq)]
pub struct Losses([Quantities; Reason::ALL.len()]);

impl Default for Losses {
    fn default() -> Self {
        Self([Quantities::NONE; Reason::ALL.len()])
    }
}

impl Losses {
    /// Counts a loss.
    pub fn add(&mut self, reason: Reason, quantities: Quantities) {
        self.0[reason as usize] += quantities;
    }

    /// Counts a loss of observations.
    pub fn add_observations(&mut self, reason: Reason, observations: u64) {
        self.0[reason as usize].add_observations(observations);
    }

    /// Adds all that `other` counted.
    pub fn merge(&mut self, other: &Losses) {
        for (mine, theirs) in self.0.iter_mut().zip(&other.0) {
            *mine += *theirs;
        }
    }

    /// What was counted under one reason.
    pub fn get(&self, reason: Reason) -> Quantities {
        self.0[reason as usize]
    }

    /// The sum over all reasons.
    pub fn total(&self) -> Quantities {
        self.0.iter().copied().sum()
    }

    /// Whether nothing was counted.
    pub fn is_none(&self) -> bool {
        self.0.iter().all(|quantities| quantities.is_none())
    }

    /// One line for each reason under which anything was counted: how much, the reason, what it means and what to do.
    pub fn explanations(&self) -> impl Iterator<Item = String> + '_ {
        self.iter().map(|loss| format!("{} dropped as {}: {}", loss.quantities, loss.reason, loss.explanation()))
    }

    /// The reasons under which anything was counted.
    pub fn iter(&self) -> impl Iterator<Item = Loss> + '_ {
        Reason::ALL
            .iter()
            .map(|&reason| Loss { reason, quantities: self.get(reason) })
            .filter(|loss| !loss.quantities.is_none())
    }
}

impl fmt::Debug for Losses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter().map(|loss| (loss.reason.as_str(), loss.quantities))).finish()
    }
}

impl fmt::Display for Losses {
    /// `12 resent, 3 unroutable, 1 item unroutable`: the number alone where it is of observations.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let counts = self.iter().flat_map(|Loss { reason, quantities }| {
            quantities.iter().map(move |(unit, number)| (reason, unit, number))
        });
        for (position, (reason, unit, number)) in counts.enumerate() {
            let comma = if position == 0 { "" } else { ", " };
            match unit {
                Unit::Observations => write!(f, "{comma}{number} {reason}")?,
                Unit::Spans | Unit::Items => write!(f, "{comma}{number} {} {reason}", unit.noun(number))?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Guarantees: losses are told apart by reason and unit, and observations alone are told as a number and a reason.
    #[test]
    fn in_words() {
        let mut losses = Losses::default();
        assert!(losses.is_none() && losses.to_string().is_empty());
        losses.add_observations(Reason::Resent, 12);
        assert_eq!(losses.to_string(), "12 resent");
        losses.add(Reason::Unroutable, Quantities { observations: 3, items: 1, ..Quantities::NONE });
        losses.add(Reason::QueueFull, Quantities::items(2));
        assert_eq!(losses.to_string(), "12 resent, 3 unroutable, 1 item unroutable, 2 items queue_full");
        let explained: Vec<String> = losses.explanations().collect();
        assert!(explained[0].starts_with("12 observations dropped as resent: "), "{explained:?}");
        assert!(explained[1].starts_with("3 observations, 1 item dropped as unroutable: "), "{explained:?}");
    }

    /// Guarantees: sums are kept for each unit by itself.
    #[test]
    fn sums() {
        let mut losses = Losses::default();
        losses.add(Reason::Internal, Quantities::items(2));
        losses.add_observations(Reason::Internal, 5);
        let mut all = losses.clone();
        all.merge(&losses);
        all.add_observations(Reason::Shutdown, 1);
        assert_eq!(all.get(Reason::Internal), Quantities { observations: 10, items: 4, ..Quantities::NONE });
        assert_eq!(all.total(), Quantities { observations: 11, items: 4, ..Quantities::NONE });
        assert!(!losses.is_none());
    }
}
