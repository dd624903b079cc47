//! Finds the thread that ran a span, as the profiler of its process knows it.
//!
//! Spans have a thread id, but in most languages it is not the system's: Java, .NET and Rust number threads themselves.
//! The two kinds of numbers collide, so such an id is not compared with the system's (OpenTelemetry semantic
//! conventions, `thread.id`: "Current managed thread ID"). Python sends the thread pointer, which the built-in sampler
//! knows.

use std::num::NonZeroU64;

use profbridge_model::thread::id_of_text;
use profbridge_wire::spans::{SpanValue, SpanView};

use crate::index::{At, Found, FoundThread};

/// The attribute for the system's thread id. It is no convention; it is named after Python's `threading.get_native_id`.
/// `examples/linking` shows how to set it.
const NATIVE_ID: &str = "thread.native_id";

/// The attribute for the thread id, whatever the language means by it.
pub(crate) const ID: &str = "thread.id";

/// The attribute for the thread name.
const NAME: &str = "thread.name";

/// Linux keeps this many bytes of a thread name (`TASK_COMM_LEN` without the zero).
const COMM: usize = 15;

/// What `thread.id` means in the programs of a language, and whether they have one thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub(crate) struct Runtime {
    ids: Ids,
    /// Whether its programs run on one thread, apart from helper threads that run no spans.
    single_threaded: bool,
}

/// What a program means by `thread.id`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
enum Ids {
    /// The system's id, or unknown.
    #[default]
    System,
    /// A number that the runtime assigns.
    Managed,
    /// The thread pointer (`threading.get_ident`, which is `pthread_self`: CPython `Python/thread_pthread.h`,
    /// `PyThread_get_thread_ident`).
    Pointer,
}

impl Runtime {
    /// From the value of `telemetry.sdk.language`.
    pub(crate) fn of(language: Option<&str>) -> Self {
        let ids = match language {
            Some("python") => Ids::Pointer,
            Some("java" | "dotnet" | "nodejs" | "webjs" | "rust" | "erlang" | "go") => Ids::Managed,
            _ => Ids::System,
        };
        Self { ids, single_threaded: matches!(language, Some("nodejs" | "php")) }
    }

    /// The thread pointer of a span, if the span has one.
    pub(crate) fn pointer(self, view: &SpanView<'_>) -> Option<NonZeroU64> {
        (self.ids == Ids::Pointer).then(|| view.attribute(ID)?.to_text().parse().ok())?
    }
}

/// The attributes of a span that [`thread`] looks at.
pub(crate) const ATTRIBUTES: [&str; 3] = [NATIVE_ID, ID, NAME];

/// The source of a span's attributes: the span itself, or the part of it that is kept.
pub(crate) trait Says {
    /// One of its [`ATTRIBUTES`].
    fn attribute(&self, key: &str) -> Option<SpanValue<'_>>;
}

impl Says for SpanView<'_> {
    fn attribute(&self, key: &str) -> Option<SpanValue<'_>> {
        SpanView::attribute(self, key)
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
pub(crate) struct SaidPid(pub(crate) Option<i64>);

/// The result of the search for a span's thread.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ThreadMatch<'a> {
    /// This thread, which was observed during the span.
    On(FoundThread<'a>, MatchKind),
    /// A thread that was not observed during the span.
    Unobserved,
    /// A thread with this system id, which the process does not have.
    Elsewhere(u32),
    /// One of several threads that had its pointer one after the other during the span.
    Ambiguous,
    /// Not known.
    Unknown,
}

/// The thread id in a span, if it is a system id.
pub(crate) fn said_id(view: &SpanView<'_>, runtime: Runtime) -> Option<(String, MatchKind)> {
    let id = |key: &str| id_of_text(&view.attribute(key)?.to_text());
    let own = || id(ID).filter(|_| runtime.ids == Ids::System).map(|id| (id, MatchKind::Id));
    id(NATIVE_ID).map(|id| (id, MatchKind::NativeId)).or_else(own)
}

/// The system's thread id, if a span has it in the system's notation.
pub(crate) fn native_id(view: &impl Says) -> Option<u32> {
    let text = view.attribute(NATIVE_ID)?.to_text().into_owned();
    text.parse().ok().filter(|id: &u32| id.to_string() == text)
}

/// Finds the thread of a span. `pointer` is the span's thread pointer. `main` is set if a span without a thread in a
/// single-threaded program counts as run on the main thread; it holds the span's process id, which is used only if
/// profiles have none, since it may be from another namespace than the thread ids.
pub(crate) fn thread<'a>(
    found: &Found<'a>,
    view: &impl Says,
    runtime: Runtime,
    pointer: Option<NonZeroU64>,
    main: Option<SaidPid>,
) -> ThreadMatch<'a> {
    let text =
        |key: &str| view.attribute(key).map(|value| value.to_text().into_owned()).filter(|text| !text.is_empty());
    let with_id = |key: &str, kind: MatchKind| {
        let id = text(key).filter(|id| found.has_thread(id))?;
        Some(found.thread(&id).map_or(ThreadMatch::Unobserved, |thread| ThreadMatch::On(thread, kind)))
    };
    if let Some(ran) = with_id(NATIVE_ID, MatchKind::NativeId) {
        return ran;
    }
    // If the process has no thread with this id, the span is from another process, unless the id may be of another
    // namespace. Then its other hints must not be used either: a forked child has its parent's names and pointers.
    if let Some(id) = native_id(view).filter(|_| found.has_system_ids) {
        return ThreadMatch::Elsewhere(id);
    }
    if let Some(pointer) = pointer.filter(|pointer| found.has_thread_at(*pointer)) {
        let kind = if found.by_thread { MatchKind::PointerOnHost } else { MatchKind::Pointer };
        return match found.thread_at(pointer) {
            At::Thread(thread) => ThreadMatch::On(thread, kind),
            At::Ambiguous => ThreadMatch::Ambiguous,
            At::Unobserved => ThreadMatch::Unobserved,
        };
    }
    if runtime.ids == Ids::System
        && let Some(ran) = with_id(ID, MatchKind::Id)
    {
        return ran;
    }
    if let Some(name) = text(NAME) {
        let comm = name.get(..COMM).unwrap_or(&name);
        // The kernel cuts thread names, so several threads may have the same cut name. If waiting threads are not
        // observed, the only known thread of that name need not be the only one.
        let may_be_cut = |name: &&str| name.len() == COMM && !found.observes_waiting_threads();
        let names = [&*name, comm].map(|name| Some(name).filter(|name| !may_be_cut(name)));
        if let Some(thread) = found.thread_named(names) {
            return ThreadMatch::On(thread, MatchKind::Name);
        }
    }
    // A span that names a thread which is not found ran elsewhere, such as on a worker that was not observed.
    let names_none = || ATTRIBUTES.into_iter().all(|key| text(key).is_none());
    if let Some(SaidPid(said)) = main.filter(|_| runtime.single_threaded && names_none())
        && let Some(id) = found.main_thread().or(said)
        && let Some(thread) = found.thread(&id.to_string())
    {
        return ThreadMatch::On(thread, MatchKind::Main);
    }
    ThreadMatch::Unknown
}
