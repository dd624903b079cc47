//! Relay's rules for a finished chunk.
//!
//! Relay answers 200 before it looks at a chunk, and drops one that breaks a rule without a word (getsentry/relay
//! `relay-server/src/endpoints/common.rs`, `relay-profiling/src/sample/v2.rs`). What is written here keeps the rules
//! by the way it is made; this is the last look, and what it finds is counted instead of lost.

use super::limits::{MAX_CHUNK_BYTES, MAX_CHUNK_NANOS, MIN_THREAD_SAMPLES};

/// A rule of Relay's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Rule {
    /// There must be samples with frames.
    Empty,
    /// Each thread needs two samples with frames, else all its samples are dropped.
    TooFewSamples,
    /// From the first to the last sample it may be 66 s.
    TooLong,
    /// A sample's stack must exist.
    StackIndex,
    /// The platform decides how a chunk is billed; a user interface's is wrong for a server.
    Platform,
    /// It must not be larger than Relay takes.
    TooLarge,
}

/// What is known of a chunk when it is finished.
#[derive(Debug, Clone)]
pub(super) struct Facts<'a> {
    /// The samples with frames of each thread that has samples.
    pub(super) busy: &'a [u64],
    /// From the first to the last sample, in nanoseconds.
    pub(super) nanos: u64,
    /// The greatest stack number in a sample, and how many stacks there are.
    pub(super) stacks: (u64, u64),
    /// How many frames there are.
    pub(super) frames: usize,
    /// The platform.
    pub(super) platform: &'a str,
    /// The size, in bytes.
    pub(super) bytes: u64,
}

/// Checks a chunk.
///
/// # Errors
///
/// The first rule that it breaks.
pub(super) fn check(facts: &Facts<'_>) -> Result<(), Rule> {
    let rules = [
        (facts.busy.is_empty() || facts.frames == 0, Rule::Empty),
        (facts.busy.iter().any(|&busy| busy < MIN_THREAD_SAMPLES), Rule::TooFewSamples),
        (facts.nanos > MAX_CHUNK_NANOS, Rule::TooLong),
        (facts.stacks.0 >= facts.stacks.1, Rule::StackIndex),
        (matches!(facts.platform, "" | "cocoa" | "android" | "javascript"), Rule::Platform),
        (facts.bytes > MAX_CHUNK_BYTES as u64, Rule::TooLarge),
    ];
    rules.into_iter().find(|&(broken, _)| broken).map_or(Ok(()), |(_, rule)| Err(rule))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Guarantees: each rule is found broken by itself, and a chunk at all limits at once passes (66.0 s do, more does
    /// not: getsentry/relay `relay-profiling/src/sample/v2.rs`).
    /// rule: differences#rejections, sample-format-v2#sample-stack-id, sample-format-v2#reject-no-data
    /// rule: sample-format-v2#reject-size, sample-format-v2#validate, profiles-sdk#v2-reject-no-data
    /// rule: profiles-sdk#v2-reject-size, profiles-sdk#v2-validate, event-schema#chunk-platform
    #[test]
    fn each_rule() {
        let good = Facts {
            busy: &[2, 3],
            nanos: 66_000_000_000,
            stacks: (4, 5),
            frames: 7,
            platform: "python",
            bytes: 48 << 20,
        };
        assert_eq!(check(&good), Ok(()));
        let broken = [
            (Facts { busy: &[], ..good.clone() }, Rule::Empty),
            (Facts { busy: &[2, 1], ..good.clone() }, Rule::TooFewSamples),
            (Facts { nanos: 66_000_000_001, ..good.clone() }, Rule::TooLong),
            (Facts { stacks: (5, 5), ..good.clone() }, Rule::StackIndex),
            (Facts { frames: 0, ..good.clone() }, Rule::Empty),
            (Facts { platform: "cocoa", ..good.clone() }, Rule::Platform),
            (Facts { bytes: (48 << 20) + 1, ..good.clone() }, Rule::TooLarge),
        ];
        for (facts, rule) in broken {
            assert_eq!(check(&facts), Err(rule));
        }
    }
}
