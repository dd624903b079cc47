//! What a span tells about its thread, kept until the thread is known.

use std::num::NonZeroU64;

use profbridge_wire::spans::{SpanValue, SpanView};

use crate::index::Found;
use crate::thread::{ATTRIBUTES, ID, Runtime, SaidPid, Says, ThreadMatch, native_id, thread};

/// The thread hints of a span: equal for all spans of one thread.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Hints {
    attributes: [Option<Box<str>>; ATTRIBUTES.len()],
    runtime: Runtime,
    pointer: Option<NonZeroU64>,
    /// Whether the span already named a profiler on arrival: then its `thread.id` is the thread's key in that
    /// profiler's chunks.
    names_profiler: bool,
}

impl Hints {
    /// Takes the hints from a span. `pointer` is that of its thread, if the span has it.
    pub(super) fn of(view: &SpanView<'_>, runtime: Runtime, pointer: Option<NonZeroU64>, names_profiler: bool) -> Self {
        let text = |key| view.attribute(key).map(|value| Box::from(&*value.to_text()));
        Self { attributes: ATTRIBUTES.map(text), runtime, pointer, names_profiler }
    }

    /// The pointer of the thread, if the span has it.
    pub(super) fn pointer(&self) -> Option<NonZeroU64> {
        self.pointer
    }

    /// The system's thread id, if the span has it.
    pub(super) fn native_id(&self) -> Option<u32> {
        native_id(self)
    }

    /// Whether these hints can lead to a thread. `main_thread` says whether spans of single-threaded programs count as
    /// run on the main thread.
    pub(super) fn lead_to_a_thread(&self, main_thread: bool) -> bool {
        main_thread || self.attributes.iter().any(Option::is_some)
    }

    /// The id of the thread that these hints describe. `main` as for [`thread`].
    pub(super) fn thread(&self, found: &Found<'_>, main: Option<SaidPid>) -> Option<String> {
        if self.names_profiler
            && let Some(id) = self.attribute(ID)
            && let Some(thread) = found.thread(&id.to_text())
        {
            return Some(thread.id);
        }
        match thread(found, self, self.runtime, self.pointer, main) {
            ThreadMatch::On(thread, _) => Some(thread.id),
            ThreadMatch::Elsewhere(_) | ThreadMatch::Unobserved | ThreadMatch::Ambiguous | ThreadMatch::Unknown => None,
        }
    }

    /// The memory of its texts, in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.attributes.iter().flatten().map(|text| text.len()).sum()
    }
}

impl Says for Hints {
    fn attribute(&self, key: &str) -> Option<SpanValue<'_>> {
        let at = ATTRIBUTES.iter().position(|known| *known == key)?;
        self.attributes[at].as_deref().map(SpanValue::from)
    }
}
