//! The layout of a process's thread records, as described by its process context.

use super::record::Record;
use crate::message::{Context, SpanLink};

/// The maximum number of attribute keys that may be requested.
pub const MAX_ALLOWED: usize = 32;

/// The maximum number of keys that a process may name: an index is one byte.
const MAX_KEYS: usize = 256;

/// The names of the layout in OTEP 4947: those that writers use today, and the one in the OTEP's text.
const KNOWN: [&str; 3] = ["tlsdesc_v1_dev", "tls_v1", "tlsdesc_v1"];

/// Selects the requested attributes of a thread's record.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AttributeSelection {
    /// For each key index in a record, the index of the key among the requested ones.
    keys: Vec<Option<u32>>,
}

impl AttributeSelection {
    /// The schema with this name; its records refer to `keys` by index, and `allowed` are the requested keys. `None` if
    /// the name is unknown.
    pub fn new(name: &str, keys: &[String], allowed: &[String]) -> Option<Self> {
        let of = |key: &String| allowed.iter().take(MAX_ALLOWED).position(|one| one == key).map(|at| at as u32);
        KNOWN.contains(&name).then(|| Self { keys: keys.iter().take(MAX_KEYS).map(of).collect() })
    }

    /// Whether attributes have to be read at all.
    pub fn wants_attributes(&self) -> bool {
        self.keys.iter().any(Option::is_some)
    }

    /// The context in a record; `None` if it is empty. If several attributes have the same key, the last one counts.
    /// Values that are not UTF-8 are left out.
    pub fn context(&self, record: &Record) -> Option<Context> {
        let Record { trace_id, span_id, .. } = *record;
        let link = (trace_id != [0; 16] && span_id != [0; 8]).then_some(SpanLink { trace_id, span_id });
        let mut attributes: Vec<(u32, String)> = Vec::new();
        if self.wants_attributes() {
            for (index, value) in record.attributes() {
                let Some(Some(key)) = self.keys.get(usize::from(index)) else { continue };
                attributes.retain(|(known, _)| known != key);
                if let Ok(value) = std::str::from_utf8(value) {
                    attributes.push((*key, value.to_owned()));
                }
            }
            attributes.sort_unstable();
        }
        (link.is_some() || !attributes.is_empty()).then_some(Context { link, attributes })
    }
}
