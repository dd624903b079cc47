//! Finds the thread that ran a span, as the profiler of its process knows it.
//!
//! Spans have a thread id, but in most languages it is not the system's: Java, .NET and Rust number threads themselves.
//! The two kinds of numbers collide, so such an id is not compared with the system's (OpenTelemetry semantic
//! conventions, `thread.id`: "Current managed thread ID"). Python sends the thread pointer, which the built-in sampler
//! knows.

use std::num::NonZeroU64;

use profbridge_model::dictionary::Link;
use profbridge_model::thread::id_of_text;
use profbridge_model::{ProfilerId, Span, SpanId};
use profbridge_wire::spans::SpanView;

use crate::index::{MatchedProcess, MatchedThread, PointerMatch};

/// The attribute for the system's thread id. It is no convention; it is named after Python's `threading.get_native_id`.
/// `examples/linking` shows how to set it.
const NATIVE_ID: &str = "thread.native_id";

/// The attribute for the thread id, whatever the language means by it.
const ID: &str = "thread.id";

/// The attribute for the thread name.
const NAME: &str = "thread.name";

/// Linux keeps this many bytes of a thread name (`TASK_COMM_LEN` without the zero).
const COMM: usize = 15;

/// What `thread.id` means in the programs of a language, and whether they have one thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub(crate) struct SdkRuntime {
    ids: ThreadIdKind,
    /// Whether its programs run on one thread, apart from helper threads that run no spans.
    single_threaded: bool,
    /// Whether Sentry's SDK for it names its own profiler on segments only, and no threads: each thread has an SDK, and
    /// so a profiler, of its own (getsentry/sentry-javascript `packages/profiling-node/src/integration.ts`).
    profilers_on_segments: bool,
}

/// The key and name of the main thread in chunks of Sentry's JavaScript SDKs.
pub(crate) const SDK_MAIN_THREAD: (&str, &str) = ("0", "main");

/// Which profiler of its SDK's own a span has, in a language whose SDK names it on segments only.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SdkProfiler {
    /// The span tells none, or also its thread.
    Unknown,
    /// This one, whose profile tells the thread.
    Named(ProfilerId),
    /// That of its segment, which may come later, in another container.
    OfSegment(Link),
}

/// What a program means by `thread.id`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
enum ThreadIdKind {
    /// The system's id, or unknown.
    #[default]
    System,
    /// A number that the runtime assigns.
    Managed,
    /// The thread pointer (`threading.get_ident`, which is `pthread_self`: CPython `Python/thread_pthread.h`,
    /// `PyThread_get_thread_ident`).
    Pointer,
}

impl SdkRuntime {
    /// From the value of `telemetry.sdk.language`.
    pub(crate) fn of(language: Option<&str>) -> Self {
        let ids = match language {
            Some("python") => ThreadIdKind::Pointer,
            Some("java" | "dotnet" | "nodejs" | "webjs" | "rust" | "erlang" | "go") => ThreadIdKind::Managed,
            _ => ThreadIdKind::System,
        };
        let profilers_on_segments = matches!(language, Some("nodejs" | "webjs"));
        Self { ids, single_threaded: matches!(language, Some("nodejs" | "php")), profilers_on_segments }
    }

    /// Which profiler of its SDK's own a span has that came in a container.
    pub(crate) fn sdk_profiler(self, view: &SpanView<'_>) -> SdkProfiler {
        let span = view.span();
        if !self.profilers_on_segments || !span.is_streamed || view.attribute(ID).is_some() {
            return SdkProfiler::Unknown;
        }
        let of_segment =
            |id: SpanId| SdkProfiler::OfSegment(Link { trace_id: *span.trace_id.bytes(), span_id: *id.bytes() });
        let segment = || view.segment_id().filter(|id| *id != span.span_id);
        view.profiler_id().map(SdkProfiler::Named).or_else(|| segment().map(of_segment)).unwrap_or(SdkProfiler::Unknown)
    }

    /// Whether a span is a segment that names the profiler of the other spans in it.
    pub(crate) fn is_segment(self, span: &Span) -> bool {
        self.profilers_on_segments && span.is_streamed && span.is_local_root()
    }

    /// The thread pointer of a span, if the span has one.
    pub(crate) fn pointer(self, view: &SpanView<'_>) -> Option<NonZeroU64> {
        (self.ids == ThreadIdKind::Pointer).then(|| view.attribute(ID)?.to_text().parse().ok())?
    }
}

/// How a thread was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MatchKind {
    NativeId,
    Pointer,
    /// By its pointer, which also was the only way to find the process.
    PointerOnHost,
    Id,
    Name,
    Main,
}

/// The process id that a span contains.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ClaimedPid(pub(crate) Option<i64>);

/// The result of the search for a span's thread.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ThreadMatch<'a> {
    /// This thread, which was observed during the span.
    On(MatchedThread<'a>, MatchKind),
    /// A thread that was not observed during the span.
    Unobserved,
    /// A thread with this system id, which the process does not have.
    Elsewhere(u32),
    /// One of several threads that had its pointer one after the other during the span.
    Ambiguous,
    /// Not known.
    Unknown,
}

/// What a span tells about its thread: equal for all spans of one thread. Empty texts count as missing.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct ThreadHints {
    native_id: Option<Box<str>>,
    id: Option<Box<str>>,
    pub(crate) name: Option<Box<str>>,
    runtime: SdkRuntime,
    pub(crate) pointer: Option<NonZeroU64>,
    /// Whether the span already named a profiler on arrival: then its `thread.id` is the thread's key in that
    /// profiler's chunks.
    pub(crate) names_profiler: bool,
}

impl ThreadHints {
    /// Takes the hints from a span of a program with this runtime.
    pub(crate) fn of(view: &SpanView<'_>, runtime: SdkRuntime) -> Self {
        let text = |key| {
            let text: Box<str> = view.attribute(key)?.to_text().as_ref().into();
            (!text.is_empty()).then_some(text)
        };
        let (native_id, id, name) = (text(NATIVE_ID), text(ID), text(NAME));
        Self { native_id, id, name, runtime, pointer: runtime.pointer(view), names_profiler: false }
    }

    /// The system's thread id, if the span has it in the system's notation.
    pub(crate) fn native_id(&self) -> Option<u32> {
        let text = self.native_id.as_deref()?;
        text.parse().ok().filter(|id: &u32| id.to_string() == text)
    }

    /// The thread id in the span, if it is a system id.
    pub(crate) fn claimed_id(&self) -> Option<(String, MatchKind)> {
        let by_id = || id_of_text(self.system_id()?).map(|id| (id, MatchKind::Id));
        self.native_id.as_deref().and_then(id_of_text).map(|id| (id, MatchKind::NativeId)).or_else(by_id)
    }

    fn system_id(&self) -> Option<&str> {
        self.id.as_deref().filter(|_| self.runtime.ids == ThreadIdKind::System)
    }

    fn name_a_thread(&self) -> bool {
        [&self.native_id, &self.id, &self.name].into_iter().any(Option::is_some)
    }

    /// Whether these hints can lead to a thread. `main_thread` says whether spans of single-threaded programs count as
    /// run on the main thread.
    pub(crate) fn lead_to_a_thread(&self, main_thread: bool) -> bool {
        main_thread || self.name_a_thread()
    }

    /// The memory of the texts, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        [&self.native_id, &self.id, &self.name].into_iter().flatten().map(|text| text.len()).sum()
    }

    /// The id of the thread that these hints describe. `main` as for [`ThreadHints::match_thread`].
    pub(crate) fn thread(&self, found: &MatchedProcess<'_>, main: Option<ClaimedPid>) -> Option<String> {
        let by_key = self.id.as_deref().filter(|_| self.names_profiler).and_then(|id| found.thread(id));
        let thread = by_key.or_else(|| match self.match_thread(found, main) {
            ThreadMatch::On(thread, _) => Some(thread),
            ThreadMatch::Elsewhere(_) | ThreadMatch::Unobserved | ThreadMatch::Ambiguous | ThreadMatch::Unknown => None,
        });
        Some(thread?.id)
    }

    /// Finds the thread of a span. `main` is set if a span without a thread in a single-threaded program counts as run
    /// on the main thread; it holds the span's process id, which is used only if profiles have none, since it may be
    /// from another namespace than the thread ids.
    pub(crate) fn match_thread<'a>(&self, found: &MatchedProcess<'a>, main: Option<ClaimedPid>) -> ThreadMatch<'a> {
        let with_id = |id: Option<&str>, kind: MatchKind| {
            let id = id.filter(|id| found.has_thread(id))?;
            Some(found.thread(id).map_or(ThreadMatch::Unobserved, |thread| ThreadMatch::On(thread, kind)))
        };
        if let Some(matched) = with_id(self.native_id.as_deref(), MatchKind::NativeId) {
            return matched;
        }
        // If the process has no thread with this id, the span is from another process, unless the id may be of another
        // namespace. Then its other hints must not be used either: a forked child has its parent's names and pointers.
        if let Some(id) = self.native_id().filter(|_| found.has_system_ids) {
            return ThreadMatch::Elsewhere(id);
        }
        if let Some(pointer) = self.pointer.filter(|pointer| found.has_pointer(*pointer)) {
            let kind = if found.by_thread { MatchKind::PointerOnHost } else { MatchKind::Pointer };
            return match found.thread_with_pointer(pointer) {
                PointerMatch::Thread(thread) => ThreadMatch::On(thread, kind),
                PointerMatch::Ambiguous => ThreadMatch::Ambiguous,
                PointerMatch::Unobserved => ThreadMatch::Unobserved,
            };
        }
        if let Some(matched) = with_id(self.system_id(), MatchKind::Id) {
            return matched;
        }
        if let Some(name) = self.name.as_deref() {
            let comm = name.get(..COMM).unwrap_or(name);
            // The kernel cuts thread names, so several threads may have the same cut name. If waiting threads are not
            // observed, the only known thread of that name need not be the only one.
            let may_be_cut = |name: &&str| name.len() == COMM && !found.observes_waiting_threads();
            let names = [name, comm].map(|name| Some(name).filter(|name| !may_be_cut(name)));
            if let Some(thread) = found.thread_named(names) {
                return ThreadMatch::On(thread, MatchKind::Name);
            }
        }
        // A span that names a thread which is not found ran elsewhere, such as on a worker that was not observed.
        if let Some(ClaimedPid(pid)) = main.filter(|_| self.runtime.single_threaded && !self.name_a_thread())
            && let Some(id) = found.main_thread().or(pid)
            && let Some(thread) = found.thread(&id.to_string())
        {
            return ThreadMatch::On(thread, MatchKind::Main);
        }
        ThreadMatch::Unknown
    }
}
