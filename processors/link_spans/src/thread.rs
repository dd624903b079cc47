//! Which thread ran a span, as its process's profiler knows it.
//!
//! A span says a thread's id, and means something else by it than the system does in most languages: Java, .NET and Rust
//! count threads themselves, Python says the address of the thread. Numbers of both kinds collide, so such an id is not
//! compared with the system's (OpenTelemetry semantic conventions, `thread.id`: "Current managed thread ID").

use profbridge_wire::spans::{SpanValue, SpanView};

use crate::index::{Found, FoundThread};

/// The attribute in which a program says the system's id of the thread: no convention, but what `threading.get_native_id`
/// is called. `examples/linking` shows how to set it.
const NATIVE_ID: &str = "thread.native_id";

/// Linux keeps so many bytes of a thread's name (`TASK_COMM_LEN` without the zero).
const COMM: usize = 15;

/// Languages whose `thread.id` is no id of the system, by `telemetry.sdk.language`.
const MANAGED: [&str; 8] = ["java", "dotnet", "python", "nodejs", "webjs", "rust", "erlang", "go"];

/// Languages whose programs run on one thread, unless they start others for what no span is made of.
const SINGLE_THREADED: [&str; 2] = ["nodejs", "php"];

/// The attributes of a span that [`thread`] looks at.
pub(crate) const ATTRIBUTES: [&str; 3] = [NATIVE_ID, "thread.id", "thread.name"];

/// The attributes of a span's resource that it looks at.
pub(crate) const RESOURCE_ATTRIBUTES: [&str; 2] = ["telemetry.sdk.language", "process.pid"];

/// What a span says: itself, or what is kept of it.
pub(crate) trait Says {
    /// One of its [`ATTRIBUTES`].
    fn attribute(&self, key: &str) -> Option<SpanValue<'_>>;
    /// One of its [`RESOURCE_ATTRIBUTES`].
    fn resource_attribute(&self, key: &str) -> Option<SpanValue<'_>>;
}

impl Says for SpanView<'_> {
    fn attribute(&self, key: &str) -> Option<SpanValue<'_>> {
        SpanView::attribute(self, key)
    }

    fn resource_attribute(&self, key: &str) -> Option<SpanValue<'_>> {
        SpanView::resource_attribute(self, key)
    }
}

/// By what a thread was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    NativeId,
    Id,
    Name,
    Main,
}

/// What is known of a span's thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ran<'a> {
    /// On this one, which was observed in its time.
    On(FoundThread<'a>, Way),
    /// On a thread that was not observed in its time.
    Unobserved,
    /// Nobody knows.
    Unknown,
}

/// The thread of a span. `main_thread` says whether programs with one thread are taken to have run it there.
pub(crate) fn thread<'a>(found: &Found<'a>, view: &impl Says, main_thread: bool) -> Ran<'a> {
    let text =
        |key: &str| view.attribute(key).map(|value| value.to_text().into_owned()).filter(|text| !text.is_empty());
    let language = view.resource_attribute("telemetry.sdk.language").and_then(|value| value.into_text());
    let is_in = |languages: &[&str]| language.as_deref().is_some_and(|language| languages.contains(&language));
    let id = text("thread.id").filter(|_| !is_in(&MANAGED));
    for (id, way) in [(text(NATIVE_ID), Way::NativeId), (id, Way::Id)] {
        // An id that the process does not have is of another namespace of ids.
        let Some(id) = id.filter(|id| found.has_thread(id)) else { continue };
        return found.thread(&id).map_or(Ran::Unobserved, |thread| Ran::On(thread, way));
    }
    if let Some(name) = text("thread.name") {
        let comm = name.get(..COMM).unwrap_or(&name);
        let named = found.thread_named(|known| known == name || known == comm);
        if let Some(thread) = named {
            return Ran::On(thread, Way::Name);
        }
    }
    if main_thread && is_in(&SINGLE_THREADED) {
        let pid = view.resource_attribute("process.pid").map(|pid| pid.to_text().into_owned());
        if let Some(thread) = pid.and_then(|pid| found.thread(&pid)) {
            return Ran::On(thread, Way::Main);
        }
    }
    Ran::Unknown
}
