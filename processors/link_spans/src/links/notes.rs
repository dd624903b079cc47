//! What is counted of linking samples: observations, since a sample may be taken apart.

/// The span in which it was made is known.
const LINKED: &str = "observations_linked";
/// It had a link already.
const HAD_LINK: &str = "observations_with_link";
/// No span is known that its thread ran at its time.
const NO_SPAN: &str = "observations_unlinked_no_span";
/// Its thread ran several spans at its time, of which neither is above the other.
const AMBIGUOUS: &str = "observations_unlinked_ambiguous";
/// It does not say on which thread it was made.
const NO_THREAD: &str = "observations_unlinked_no_thread";
/// It does not say of which process it is.
const NO_PROCESS: &str = "observations_unlinked_unnamed_process";
/// It does not say when it was made, but for a time during which its thread did not run one span only.
const NO_TIME: &str = "observations_unlinked_no_time";
/// Its sample would have to be taken apart, in a batch in which that was done with as much as may be.
const TOO_LARGE: &str = "observations_unlinked_too_large";

/// Spans that were forgotten early, for want of memory: what their threads did is no longer linked with them.
pub(super) const FORGOTTEN: &str = "spans_forgotten_early";

/// What became of observations.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Counts {
    pub(super) linked: u64,
    pub(super) had_link: u64,
    pub(super) no_span: u64,
    pub(super) ambiguous: u64,
    pub(super) no_thread: u64,
    pub(super) no_process: u64,
    pub(super) no_time: u64,
    pub(super) too_large: u64,
}

impl Counts {
    /// Each count by its name.
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
