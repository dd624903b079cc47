//! Which thread ran a span, as its process's profiler knows it.
//!
//! A span says a thread's id, and means something else by it than the system does in most languages: Java, .NET and
//! Rust count threads themselves. Numbers of both kinds collide, so such an id is not compared with the system's
//! (OpenTelemetry semantic conventions, `thread.id`: "Current managed thread ID"). Python says the thread pointer,
//! which the built-in sampler knows.

use std::num::NonZeroU64;

use profbridge_model::thread::id_of_text;
use profbridge_wire::spans::{SpanValue, SpanView};

use crate::index::{At, Found, FoundThread};

/// The attribute in which a program says the system's id of the thread: no convention, but what
/// `threading.get_native_id` is called. `examples/linking` shows how to set it.
const NATIVE_ID: &str = "thread.native_id";

/// The attribute with the id of the thread, whatever the language means by it.
pub(crate) const ID: &str = "thread.id";

/// The attribute with its name.
const NAME: &str = "thread.name";

/// Linux keeps so many bytes of a thread's name (`TASK_COMM_LEN` without the zero).
const COMM: usize = 15;

/// What `thread.id` is, and how many threads there are, in the programs of a language.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub(crate) struct Runtime {
    ids: Ids,
    /// Whether its programs run on one thread, unless they start others for what no span is made of.
    single_threaded: bool,
}

/// What a program means by `thread.id`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
enum Ids {
    /// The system's id, or nobody knows.
    #[default]
    System,
    /// A number that the runtime counts up.
    Managed,
    /// The thread pointer (`threading.get_ident`, which is `pthread_self`: CPython `Python/thread_pthread.h`,
    /// `PyThread_get_thread_ident`).
    Pointer,
}

impl Runtime {
    /// Of a language, as `telemetry.sdk.language` has it.
    pub(crate) fn of(language: Option<&str>) -> Self {
        let ids = match language {
            Some("python") => Ids::Pointer,
            Some("java" | "dotnet" | "nodejs" | "webjs" | "rust" | "erlang" | "go") => Ids::Managed,
            _ => Ids::System,
        };
        Self { ids, single_threaded: matches!(language, Some("nodejs" | "php")) }
    }

    /// The pointer of a span's thread, where the span says it.
    pub(crate) fn pointer(self, view: &SpanView<'_>) -> Option<NonZeroU64> {
        (self.ids == Ids::Pointer).then(|| view.attribute(ID)?.to_text().parse().ok())?
    }
}

/// The attributes of a span that [`thread`] looks at.
pub(crate) const ATTRIBUTES: [&str; 3] = [NATIVE_ID, ID, NAME];

/// What a span says: itself, or what is kept of it.
pub(crate) trait Says {
    /// One of its [`ATTRIBUTES`].
    fn attribute(&self, key: &str) -> Option<SpanValue<'_>>;
}

impl Says for SpanView<'_> {
    fn attribute(&self, key: &str) -> Option<SpanValue<'_>> {
        SpanView::attribute(self, key)
    }
}

/// By what a thread was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MatchKind {
    NativeId,
    Pointer,
    /// Its pointer, by which alone the process was found as well.
    PointerOnHost,
    Id,
    Name,
    Main,
}

/// The id that a span says of its process.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SaidPid(pub(crate) Option<i64>);

/// What is known of a span's thread.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ThreadMatch<'a> {
    /// On this one, which was observed in its time.
    On(FoundThread<'a>, MatchKind),
    /// On a thread that was not observed in its time.
    Unobserved,
    /// On the thread with this id of the system's, which its process does not have.
    Elsewhere(u32),
    /// On one of several, which had its pointer one after the other in its time.
    Ambiguous,
    /// Nobody knows.
    Unknown,
}

/// The id that a span says of its thread, as far as it is one of the system's.
pub(crate) fn said_id(view: &SpanView<'_>, runtime: Runtime) -> Option<(String, MatchKind)> {
    let id = |key: &str| id_of_text(&view.attribute(key)?.to_text());
    let own = || id(ID).filter(|_| runtime.ids == Ids::System).map(|id| (id, MatchKind::Id));
    id(NATIVE_ID).map(|id| (id, MatchKind::NativeId)).or_else(own)
}

/// The system's id of a thread, where a span says that as the system writes it.
pub(crate) fn native_id(view: &impl Says) -> Option<u32> {
    let text = view.attribute(NATIVE_ID)?.to_text().into_owned();
    text.parse().ok().filter(|id: &u32| id.to_string() == text)
}

/// The thread of a span. `pointer` is the one that the span says, `main` whether a program with one thread is taken to
/// have run on its main thread what names none, and what its span says its id is: that counts where profiles do not say
/// one, since it may be of another namespace than the ids of threads.
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
    // An id that the process does not have is of another namespace of ids, unless that cannot be. Then whatever else it
    // says of its thread is said of that of another process: what was forked has the names and pointers of its parent.
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
        // Threads whose names are longer may be called the same by the kernel, and where those are not observed that
        // wait, the only one of that name that is known need not be the only one.
        let may_be_cut = |name: &&str| name.len() == COMM && !found.observes_waiting_threads();
        let names = [&*name, comm].map(|name| Some(name).filter(|name| !may_be_cut(name)));
        if let Some(thread) = found.thread_named(names) {
            return ThreadMatch::On(thread, MatchKind::Name);
        }
    }
    // What names a thread that is not found ran on another one, such as a worker that was not observed.
    let names_none = || ATTRIBUTES.into_iter().all(|key| text(key).is_none());
    if let Some(SaidPid(said)) = main.filter(|_| runtime.single_threaded && names_none())
        && let Some(id) = found.main_thread().or(said)
        && let Some(thread) = found.thread(&id.to_string())
    {
        return ThreadMatch::On(thread, MatchKind::Main);
    }
    ThreadMatch::Unknown
}
