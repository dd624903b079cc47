//! Why data was lost: one closed set of reasons for all of profbridge.
//!
//! No loss is silent. Data that does not leave a component is counted under one of these reasons, in [`Quantities`],
//! and the reason is a label of the metric `profbridge_dropped_observations_total` and of its siblings for the other
//! units.

mod explain;

use std::fmt;

use crate::{Quantities, Unit};

macro_rules! reasons {
    ($($(#[$doc:meta])* $name:ident = $text:literal;)*) => {
        /// The reason why data was lost.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u8)]
        pub enum Reason {
            $($(#[$doc])* $name,)*
        }

        impl Reason {
            /// All reasons.
            pub const ALL: &'static [Reason] = &[$(Reason::$name,)*];

            /// The reason as used in metric labels and reports.
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Reason::$name => $text,)*
                }
            }
        }
    };
}

reasons! {
    /// The data broke a rule of its format: an index out of range, lists of unequal length, an end before its start.
    Malformed = "malformed";
    /// The data exceeded a size or depth limit of profbridge.
    LimitExceeded = "limit_exceeded";
    /// An equal profile with an equal non-zero time, or an equal span with the same id, had arrived before.
    Resent = "resent";
    /// Another profile of the same process and time already covers this time.
    RedundantType = "redundant_type";
    /// The values are of another type than the one shown.
    OtherType = "other_type";
    /// A negative value, as in a difference of two profiles.
    NegativeValue = "negative_value";
    /// The profile has neither timestamps with a period nor a unit of time: Sentry cannot show it.
    NoTimeUnit = "no_time_unit";
    /// Off-CPU profiles are disabled for Sentry.
    OffCpu = "off_cpu";
    /// The observation is the only one of its thread in a chunk, and the configuration drops such observations.
    LoneSample = "lone_sample";
    /// The process was active for less time in its window than the configuration requires.
    TooShort = "min_active_time";
    /// The configured sampling rates or rules, or a sampling decision received with the data, excluded it.
    SampleRate = "sample_rate";
    /// No sampled root span of the process was open at this time, and the configuration keeps profiles only then.
    NoSampledSpan = "no_sampled_span";
    /// The observation has no frames, so Sentry would show it as idle time.
    NoFrames = "no_frames";
    /// The finished chunk broke a Sentry rule. Sentry would answer 200 and then drop it, so it was not sent.
    ChunkRule = "chunk_rule";
    /// A single item exceeds the limit of the destination and cannot be split further.
    TooLarge = "too_large";
    /// No destination is configured for the data.
    Unroutable = "unroutable";
    /// A span that a client's SDK made of its own requests to this process.
    OwnRequests = "own_requests";
    /// The exporter is configured to send other signals only.
    OtherSignal = "other_signal";
    /// The transaction of a V1 profile, or of spans, was dropped: Sentry accepts neither alone.
    NoTransaction = "no_transaction";
    /// The queue in front of an exporter was full.
    QueueFull = "queue_full";
    /// The memory budget was used up.
    MemoryLimit = "memory_limit";
    /// The destination reported that its quota is exceeded.
    RateLimited = "rate_limited";
    /// The destination refused the data permanently.
    RejectedByPeer = "rejected_by_peer";
    /// The destination was unreachable or overloaded until the retries were used up.
    RetriesExhausted = "retries_exhausted";
    /// The data could not be written to disk.
    WriteFailed = "write_failed";
    /// The data was still held when the shutdown deadline passed.
    Shutdown = "shutdown";
    /// The data was still held when the shutdown deadline passed, and was written to disk to be sent later.
    KeptOnDisk = "kept_on_disk";
    /// The data had passed through this process before: the destinations form a loop.
    Loop = "loop";
    /// A component failed while it held the data: a bug in profbridge.
    Internal = "internal";
}

impl Reason {
    /// Whether the reason is no sign of a problem: the configuration asks for the loss, or no data is missing.
    pub const fn is_intended(self) -> bool {
        use Reason::{
            KeptOnDisk, LoneSample, NoSampledSpan, NoTransaction, OffCpu, OtherSignal, OwnRequests, RedundantType,
            Resent, SampleRate, TooShort,
        };
        matches!(
            self,
            Resent
                | RedundantType
                | OffCpu
                | OtherSignal
                | OwnRequests
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

/// The losses for one reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Loss {
    /// The reason.
    pub reason: Reason,
    /// The amount in each unit.
    pub quantities: Quantities,
}

/// All losses, by reason.
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

    /// Adds all losses of `other`.
    pub fn merge(&mut self, other: &Losses) {
        for (mine, theirs) in self.0.iter_mut().zip(&other.0) {
            *mine += *theirs;
        }
    }

    /// The loss counted for one reason.
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

    /// One line for each reason with a loss: the amount, the reason, its meaning and the remedy.
    pub fn explanations(&self) -> impl Iterator<Item = String> + '_ {
        self.iter().map(|loss| format!("{} dropped as {}: {}", loss.quantities, loss.reason, loss.explanation()))
    }

    /// The losses, for reasons with any.
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
    /// For example `12 resent, 3 unroutable, 1 item unroutable`: for observations the unit is omitted.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let counts = self.iter().flat_map(|Loss { reason, quantities }| {
            quantities.iter().map(move |(unit, number)| (reason, unit, number))
        });
        for (position, (reason, unit, number)) in counts.enumerate() {
            let comma = if position == 0 { "" } else { ", " };
            match unit {
                Unit::Observations => write!(f, "{comma}{number} {reason}")?,
                _ => write!(f, "{comma}{number} {} {reason}", unit.noun(number))?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Guarantees: losses are listed by reason and unit, without zeros, and in the singular for one; observations are
    /// shown as a number and a reason, and no losses as zero observations.
    #[test]
    fn in_words() {
        let mut losses = Losses::default();
        assert!(losses.is_none() && losses.to_string().is_empty());
        losses.add_observations(Reason::Resent, 12);
        assert_eq!(losses.to_string(), "12 resent");
        losses.add(Reason::Unroutable, Quantities { observations: 3, items: 1, ..Quantities::NONE });
        losses.add(Reason::QueueFull, Quantities::items(2));
        assert_eq!(losses.to_string(), "12 resent, 3 unroutable, 1 item unroutable, 2 items queue_full");
        assert_eq!(Quantities::NONE.to_string(), "0 observations");
        let explained: Vec<String> = losses.explanations().collect();
        assert!(explained[0].starts_with("12 observations dropped as resent: "), "{explained:?}");
        assert!(explained[1].starts_with("3 observations, 1 item dropped as unroutable: "), "{explained:?}");
    }

    /// Guarantees: each unit is summed separately.
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
