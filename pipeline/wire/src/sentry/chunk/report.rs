//! What became of a batch: every observation is in a chunk or under a reason.

use profbridge_model::{Losses, Quantities};

use super::sink::ChunkSummary;

/// The name of the count of whole seconds that were sampled and are not shown.
pub const CLIPPED_SECONDS: &str = "clipped_seconds";

/// Things an operator may want to know that are no losses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Notes {
    /// Native frames without a name, called by the file they lie in: symbols would help.
    pub unnamed_frames: u64,
    /// Names and paths that were cut at [`MAX_STRING_BYTES`](super::limits::MAX_STRING_BYTES).
    pub truncated_strings: u64,
    /// Stacks that were cut at [`MAX_STACK_FRAMES`](super::limits::MAX_STACK_FRAMES).
    pub truncated_stacks: u64,
    /// Nanoseconds that were sampled and are not shown: behind the window's end, behind the next observation of their
    /// thread, beyond the time that a thread has in its profile, or beyond
    /// [`MAX_SYNTHETIC_LANES`](super::limits::MAX_SYNTHETIC_LANES) threads.
    pub clipped_nanos: u64,
    /// Images and measurements of others' chunks that Sentry would refuse the chunk for.
    pub left_out: u64,
    /// Patterns of pprof's `drop_frames` and `keep_frames` that could not be applied, so that frames are shown which
    /// are not to be.
    pub frame_patterns: u64,
}

impl Notes {
    /// Counts nanoseconds that were sampled and are not shown.
    pub(super) fn clip(&mut self, nanos: u64) {
        self.clipped_nanos = self.clipped_nanos.saturating_add(nanos);
    }

    /// Adds all that `other` counted.
    pub fn merge(&mut self, other: &Notes) {
        self.unnamed_frames += other.unnamed_frames;
        self.truncated_strings += other.truncated_strings;
        self.truncated_stacks += other.truncated_stacks;
        self.left_out += other.left_out;
        self.frame_patterns += other.frame_patterns;
        self.clipped_nanos = self.clipped_nanos.saturating_add(other.clipped_nanos);
    }
}

/// What became of a batch.
#[derive(Debug, Default)]
pub struct Report {
    /// The observations in the batch.
    pub observations: u64,
    /// The chunks written.
    pub chunks: u64,
    /// The samples written, over all chunks.
    pub samples: u64,
    /// The samples written that no observation stands behind.
    pub synthesized: u64,
    /// The observations that are not written because the ones around them already say the same.
    pub coalesced: u64,
    /// The observations that are in no chunk, by reason.
    pub losses: Losses,
    /// The time that Sentry bills, over all chunks, in nanoseconds.
    pub billed_nanos: u64,
    /// The size of the JSON of all chunks, in bytes.
    pub json_bytes: u64,
    /// What else there is to know.
    pub notes: Notes,
    /// The whole seconds that were sampled and are not shown. What is less than a second is counted with the next batch
    /// of the same converter.
    pub clipped_seconds: u64,
    /// The first error of the sink, if it had one.
    pub error: Option<std::io::Error>,
}

impl Report {
    /// Counts a chunk that is written.
    pub(super) fn add(&mut self, chunk: &ChunkSummary, notes: &Notes) {
        self.chunks += 1;
        self.samples += chunk.samples;
        self.synthesized += chunk.synthesized;
        self.coalesced += chunk.coalesced;
        self.billed_nanos += chunk.billed_nanos;
        self.json_bytes += chunk.json_bytes;
        self.notes.merge(notes);
    }

    /// What is worth counting and no loss, by the names that metrics and summaries have for it.
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

    /// Whether nothing vanished: `observations + synthesized = samples + coalesced + losses`.
    pub fn balanced(&self) -> bool {
        Quantities::observations(self.observations + self.synthesized)
            == Quantities::observations(self.samples + self.coalesced) + self.losses.total()
    }
}
