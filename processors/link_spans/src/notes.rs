//! Names of the counts of spans: linked ones by how their thread was found, others by the reason.

/// Found by samples that name the span.
pub(crate) const BY_SAMPLE: &str = "spans_linked_by_sample_link";
/// Found by samples of the built-in sampler, which reads the span from the live context of the thread.
pub(crate) const BY_LIVE_CONTEXT: &str = "spans_linked_by_live_context";
/// Found because samples name other spans of its trace in the same batch; nothing else identified the process.
pub(crate) const BY_TRACE: &str = "spans_linked_with_the_process_of_their_trace";
/// Found by system thread id in another process: the process that the span claims has no such thread.
pub(crate) const BY_THREAD: &str = "spans_linked_with_the_process_of_their_thread";
/// Found by the system's thread id in the span.
pub(crate) const BY_NATIVE_ID: &str = "spans_linked_by_native_id";
/// Found by the thread pointer that a Python span has as `thread.id`.
pub(crate) const BY_POINTER: &str = "spans_linked_by_python_ident";
/// Found by the thread pointer, if nothing else identifies the process on its host.
pub(crate) const BY_POINTER_ON_HOST: &str = "spans_linked_by_python_ident_on_host";
/// Found by the span's `thread.id`.
pub(crate) const BY_ID: &str = "spans_linked_by_thread_id";
/// Found as the only thread of that name.
pub(crate) const BY_NAME: &str = "spans_linked_by_thread_name";
/// Found as the main thread.
pub(crate) const BY_MAIN: &str = "spans_linked_to_main_thread";
/// Found by the profiler that its segment names: the SDK names profilers on segments only.
pub(crate) const BY_SEGMENT: &str = "spans_linked_by_segment";
/// Spans that named a profiler of their SDK, and got its thread.
pub(crate) const GOT_THREAD: &str = "spans_given_the_thread_of_their_profiler";
/// Spans whose segment, which names their profiler, did not come in time.
pub(crate) const NO_SEGMENT: &str = "spans_without_their_segment";
/// Several profilers observed the process; one that observes waiting threads was preferred.
pub(crate) const SEVERAL: &str = "spans_linked_with_one_of_several_profilers";
/// Linked with the profiler only: the thread is unknown.
pub(crate) const NO_THREAD: &str = "spans_linked_without_thread";
/// The span already named a profiler.
pub(crate) const HAD_PROFILER: &str = "spans_with_profiler";
/// The span does not identify its process.
pub(crate) const UNNAMED: &str = "spans_unlinked_unnamed_process";
/// No profiles of its process arrived.
pub(crate) const NO_PROCESS: &str = "spans_unlinked_no_profiles";
/// No profiles of its time arrived while it waited.
pub(crate) const NOT_COVERED: &str = "spans_unlinked_not_in_time";
/// Its thread was not observed during the span.
pub(crate) const UNOBSERVED: &str = "spans_unlinked_unobserved";
/// Several processes observed during the span match, or several threads had its pointer then.
pub(crate) const AMBIGUOUS: &str = "spans_unlinked_ambiguous";
/// Spans that were passed on before they had waited long enough because memory was short.
pub(crate) const EARLY: &str = "spans_not_waited_for";
