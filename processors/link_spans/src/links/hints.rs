//! What a span says of its thread, kept as long as it is not known which thread that is.

use profbridge_wire::spans::{SpanValue, SpanView};

use crate::index::Found;
use crate::thread::{ATTRIBUTES, RESOURCE_ATTRIBUTES, Ran, Says, thread};

/// What a span says of its thread: equal for all spans of one.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Hints {
    attributes: [Option<Box<str>>; ATTRIBUTES.len()],
    resource: [Option<Box<str>>; RESOURCE_ATTRIBUTES.len()],
    /// Whether it named a profiler when it came: then its `thread.id` is the thread's key in that one's chunks.
    names_profiler: bool,
}

impl Hints {
    /// Of a span.
    pub(super) fn of(view: &SpanView<'_>, names_profiler: bool) -> Self {
        let text = |value: Option<SpanValue<'_>>| value.map(|value| Box::from(&*value.to_text()));
        Self {
            attributes: ATTRIBUTES.map(|key| text(view.attribute(key))),
            resource: RESOURCE_ATTRIBUTES.map(|key| text(view.resource_attribute(key))),
            names_profiler,
        }
    }

    /// Whether a thread can be found by it. `main_thread` as for [`thread`].
    pub(super) fn lead_to_a_thread(&self, main_thread: bool) -> bool {
        main_thread || self.attributes.iter().any(Option::is_some)
    }

    /// The thread of a span that says this, by its id.
    pub(super) fn thread<'a>(&self, found: &Found<'a>, main_thread: bool) -> Option<&'a str> {
        if self.names_profiler
            && let Some(id) = self.attribute("thread.id")
            && let Some(thread) = found.thread(&id.to_text())
        {
            return Some(thread.id);
        }
        match thread(found, self, main_thread) {
            Ran::On(thread, _) => Some(thread.id),
            Ran::Unobserved | Ran::Unknown => None,
        }
    }

    /// The memory of its texts, in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.attributes.iter().chain(&self.resource).flatten().map(|text| text.len()).sum()
    }
}

impl Says for Hints {
    fn attribute(&self, key: &str) -> Option<SpanValue<'_>> {
        let at = ATTRIBUTES.iter().position(|known| *known == key)?;
        self.attributes[at].as_deref().map(SpanValue::from)
    }

    fn resource_attribute(&self, key: &str) -> Option<SpanValue<'_>> {
        let at = RESOURCE_ATTRIBUTES.iter().position(|known| *known == key)?;
        self.resource[at].as_deref().map(SpanValue::from)
    }
}
