//! What is counted of spans: those that were linked, by how their thread was found, and those that were not, by why.

/// Samples name the span.
pub(crate) const BY_SAMPLE: &str = "spans_linked_by_sample_link";
/// The same of the built-in sampler, which read it from the live context of the thread.
pub(crate) const BY_LIVE_CONTEXT: &str = "spans_linked_by_live_context";
/// Nothing else told the process of a span than that samples name other spans of its trace, which came with it.
pub(crate) const BY_TRACE: &str = "spans_linked_with_the_process_of_their_trace";
/// The process that the span says does not have the thread that it names by the system's id, and another one has it.
pub(crate) const BY_THREAD: &str = "spans_linked_with_the_process_of_their_thread";
/// The span names the system's id of its thread.
pub(crate) const BY_NATIVE_ID: &str = "spans_linked_by_native_id";
/// The thread pointer that a span of Python's names as its `thread.id`.
pub(crate) const BY_POINTER: &str = "spans_linked_by_python_ident";
/// The same, where nothing else says which process of the host it is.
pub(crate) const BY_POINTER_ON_HOST: &str = "spans_linked_by_python_ident_on_host";
/// The span's `thread.id`.
pub(crate) const BY_ID: &str = "spans_linked_by_thread_id";
/// The only thread of that name.
pub(crate) const BY_NAME: &str = "spans_linked_by_thread_name";
/// The main thread.
pub(crate) const BY_MAIN: &str = "spans_linked_to_main_thread";
/// Several profilers observed the process, of which the one that observes waiting threads was taken, if one does.
pub(crate) const SEVERAL: &str = "spans_linked_with_one_of_several_profilers";
/// The profiler only: nobody knows the thread.
pub(crate) const NO_THREAD: &str = "spans_linked_without_thread";
/// The span named a profiler already.
pub(crate) const HAD_PROFILER: &str = "spans_with_profiler";
/// The span does not say of which process it is.
pub(crate) const UNNAMED: &str = "spans_unlinked_unnamed_process";
/// No profile of its process came.
pub(crate) const NO_PROCESS: &str = "spans_unlinked_no_profiles";
/// No profile of its time came before it had waited long enough.
pub(crate) const NOT_COVERED: &str = "spans_unlinked_not_in_time";
/// Its thread was not observed in its time.
pub(crate) const UNOBSERVED: &str = "spans_unlinked_unobserved";
/// It could be of several processes that were observed in its time, or of several threads that had its pointer then.
pub(crate) const AMBIGUOUS: &str = "spans_unlinked_ambiguous";
/// Spans that went on before they had waited long enough, for want of memory.
pub(crate) const EARLY: &str = "spans_not_waited_for";
