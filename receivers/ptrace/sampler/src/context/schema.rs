//! How the records of a process's threads are read, as its process context says.

use super::record::Record;
use crate::message::{Context, SpanLink};

/// The most keys of attributes that may be asked for.
pub const MAX_ALLOWED: usize = 32;

/// The most keys that a process may name: an index is one byte.
const MAX_KEYS: usize = 256;

/// The names of layouts that are those of OTEP 4947: what writers have today, and what its text says.
const KNOWN: [&str; 3] = ["tlsdesc_v1_dev", "tls_v1", "tlsdesc_v1"];

/// Which attributes of a thread's record are wanted.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Schema {
    /// By the index of a key in a record: its index among those that are asked for.
    keys: Vec<Option<u32>>,
}

impl Schema {
    /// The schema with this name, whose records name these keys by their indices, where `allowed` are asked for. `None`
    /// if it is not known here.
    pub fn new(name: &str, keys: &[String], allowed: &[String]) -> Option<Self> {
        let of = |key: &String| allowed.iter().take(MAX_ALLOWED).position(|one| one == key).map(|at| at as u32);
        KNOWN.contains(&name).then(|| Self { keys: keys.iter().take(MAX_KEYS).map(of).collect() })
    }

    /// Whether attributes have to be read at all.
    pub fn wants_attributes(&self) -> bool {
        self.keys.iter().any(Option::is_some)
    }

    /// What a record says; `None` if that is nothing. Of attributes with one key the last counts. Values that are not
    /// UTF-8 are left out.
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
