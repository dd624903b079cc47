//! Counts of linking samples. The unit is the observation, since a sample may be split.

/// It was linked with the span its thread was running.
const LINKED: &str = "observations_linked";
/// It already had a link.
const HAD_LINK: &str = "observations_with_link";
/// No known span ran on its thread at its time.
const NO_SPAN: &str = "observations_unlinked_no_span";
/// Its thread ran several unrelated spans at its time.
const AMBIGUOUS: &str = "observations_unlinked_ambiguous";
/// It has no thread.
const NO_THREAD: &str = "observations_unlinked_no_thread";
/// Its process cannot be identified.
const NO_PROCESS: &str = "observations_unlinked_unnamed_process";
/// It has only a time range, during which its thread did not run a single span.
const NO_TIME: &str = "observations_unlinked_no_time";
/// Its sample would have to be split, but the batch has reached its limit for split samples.
const TOO_LARGE: &str = "observations_unlinked_too_large";

/// Spans that were forgotten early because memory was short; later samples are not linked with them.
pub(super) const FORGOTTEN: &str = "spans_forgotten_early";

/// The outcomes of observations.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct ObservationCounts {
    pub(super) linked: u64,
    pub(super) had_link: u64,
    pub(super) no_span: u64,
    pub(super) ambiguous: u64,
    pub(super) no_thread: u64,
    pub(super) no_process: u64,
    pub(super) no_time: u64,
    pub(super) too_large: u64,
}

impl ObservationCounts {
    /// Each count with the name of its note.
    pub(super) fn named(self) -> [(&'static str, u64); 8] {
        let Self { linked, had_link, no_span, ambiguous, no_thread, no_process, no_time, too_large } = self;
        [
            (LINKED, linked),
            (HAD_LINK, had_link),
            (NO_SPAN, no_span),
            (AMBIGUOUS, ambiguous),
            (NO_THREAD, no_thread),
            (NO_PROCESS, no_process),
            (NO_TIME, no_time),
            (TOO_LARGE, too_large),
        ]
    }
}
