//! The result of converting a batch: every observation is either in a chunk or counted as lost with a reason.

use profbridge_model::{Losses, Quantities};

use super::sink::ChunkSummary;

/// The name of the counter for whole seconds that were sampled but are not shown.
pub const CLIPPED_SECONDS: &str = "clipped_seconds";

/// Information for the operator that is not a loss.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Notes {
    /// Native frames without a name, which are named by their binary. Symbols would help.
    pub unnamed_frames: u64,
    /// Names and paths truncated to [`MAX_STRING_BYTES`](super::limits::MAX_STRING_BYTES).
    pub truncated_strings: u64,
    /// Stacks truncated to [`MAX_STACK_FRAMES`](super::limits::MAX_STACK_FRAMES).
    pub truncated_stacks: u64,
    /// Sampled nanoseconds that are not shown: after the window's end, after the thread's next observation, beyond the
    /// time of a thread in its profile, or beyond [`MAX_SYNTHETIC_LANES`](super::limits::MAX_SYNTHETIC_LANES) threads.
    pub clipped_nanos: u64,
    /// Images and measurements omitted from preserved chunks, because Sentry would reject the chunk.
    pub left_out: u64,
    /// Patterns of pprof's `drop_frames` and `keep_frames` that could not be applied, so that frames are shown that
    /// should be hidden.
    pub frame_patterns: u64,
}

impl Notes {
    /// Counts sampled nanoseconds that are not shown.
    pub(super) fn clip(&mut self, nanos: u64) {
        self.clipped_nanos = self.clipped_nanos.saturating_add(nanos);
    }

    /// Adds the counts of `other`.
    pub fn merge(&mut self, other: &Notes) {
        self.unnamed_frames += other.unnamed_frames;
        self.truncated_strings += other.truncated_strings;
        self.truncated_stacks += other.truncated_stacks;
        self.left_out += other.left_out;
        self.frame_patterns += other.frame_patterns;
        self.clipped_nanos = self.clipped_nanos.saturating_add(other.clipped_nanos);
    }
}

/// The result of converting a batch.
#[derive(Debug, Default)]
pub struct ConversionReport {
    /// Number of observations in the batch.
    pub observations: u64,
    /// Number of chunks written.
    pub chunks: u64,
    /// Number of samples written, in all chunks.
    pub samples: u64,
    /// Number of samples written without an observation.
    pub synthesized: u64,
    /// Number of observations that are not written because the samples around them already cover their time.
    pub coalesced: u64,
    /// The observations that are in no chunk, by reason.
    pub losses: Losses,
    /// The time that Sentry bills for all chunks, in nanoseconds.
    pub billed_nanos: u64,
    /// Size of the JSON of all chunks, in bytes.
    pub json_bytes: u64,
    /// Other information.
    pub notes: Notes,
    /// Whole seconds that were sampled but are not shown. A remainder of less than a second is carried over to the
    /// converter's next batch.
    pub clipped_seconds: u64,
    /// The first error of the sink, if any.
    pub error: Option<std::io::Error>,
}

impl ConversionReport {
    /// Counts a written chunk.
    pub(super) fn add(&mut self, chunk: &ChunkSummary, notes: &Notes) {
        self.chunks += 1;
        self.samples += chunk.samples;
        self.synthesized += chunk.synthesized;
        self.coalesced += chunk.coalesced;
        self.billed_nanos += chunk.billed_nanos;
        self.json_bytes += chunk.json_bytes;
        self.notes.merge(notes);
    }

    /// The counts that are not losses, by their names in metrics and summaries.
    pub fn counts(&self) -> impl Iterator<Item = (&'static str, u64)> + use<> {
        [
            ("coalesced_observations", self.coalesced),
            ("unnamed_native_frames", self.notes.unnamed_frames),
            ("truncated_strings", self.notes.truncated_strings),
            ("truncated_stacks", self.notes.truncated_stacks),
            (CLIPPED_SECONDS, self.clipped_seconds),
            ("left_out_of_chunks", self.notes.left_out),
            ("frame_patterns_not_applied", self.notes.frame_patterns),
        ]
        .into_iter()
        .filter(|&(_, count)| count > 0)
    }

    /// Whether all observations are accounted for: `observations + synthesized = samples + coalesced + losses`.
    pub fn balanced(&self) -> bool {
        Quantities::observations(self.observations + self.synthesized)
            == Quantities::observations(self.samples + self.coalesced) + self.losses.total()
    }
}
