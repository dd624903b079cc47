//! What tells the threads of a process apart: the key that a thread has in Sentry's chunks.
//!
//! Its id is the attribute `thread.id` (OpenTelemetry semantic conventions, `thread`), in decimal. Without one, a
//! `thread.name` makes an id of its own: a number above every id that Linux gives out, equal wherever the name is.
//! Whoever links a span with a chunk has to name the thread as the chunk does, so both ask here.

use std::num::NonZeroU64;

use xxhash_rust::xxh3::xxh3_64;

use crate::dictionary::{Dictionary, Value};
use crate::id::{AttributeSetId, StringId};

/// The attribute of a sample with its thread's pointer (on x86-64 the base of FS), which the built-in sampler knows:
/// glibc's and musl's `pthread_t`, which Python reports as a thread's ident.
pub const POINTER: &str = "profbridge.thread.pointer";

/// The attribute of a sample with what its thread did, `running` or `waiting`: what the built-in sampler knows of each
/// sample where the values of a profile are time on the wall, of which OTLP says no more than that.
pub const STATE: &str = "profbridge.thread.state";

/// What a thread did while it was sampled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum State {
    /// It was on a processor.
    Running,
    /// It was blocked, or waited for a processor.
    Waiting,
}

impl State {
    /// What the attributes of a sample say; `None` where they say nothing that is known.
    pub fn of(dictionary: &Dictionary, set: Option<AttributeSetId>) -> Option<Self> {
        let Some(Value::String(name)) = dictionary.find(set, STATE) else { return None };
        [Self::Running, Self::Waiting].into_iter().find(|state| state.name() == dictionary.string(*name))
    }

    /// The value of the attribute.
    pub fn name(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Waiting => "waiting",
        }
    }
}

/// The longest id that is taken from text, in bytes: a UUID fits.
pub const MAX_ID_BYTES: usize = 64;

/// Above ids of Linux (22 bits) and of names (32 bits): where ids begin that stand for no thread.
pub const SYNTHETIC_BASE: u64 = 1 << 32;

/// The thread that a list of attributes names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Thread {
    /// Its key in chunks.
    pub id: String,
    /// Its name.
    pub name: Option<StringId>,
}

impl Thread {
    /// The thread that the attributes of a sample or a profile name; `None` where they name none.
    pub fn of(dictionary: &Dictionary, set: Option<AttributeSetId>) -> Option<Self> {
        let (mut id, mut name) = (None, None);
        for attribute in dictionary.attributes(set) {
            match dictionary.string_bytes(attribute.key) {
                b"thread.id" => id = id.or_else(|| id_of(dictionary, &attribute.value)),
                b"thread.name" => {
                    if let Value::String(text) = attribute.value
                        && !dictionary.string_bytes(text).is_empty()
                    {
                        name = name.or(text);
                    }
                }
                _ => {}
            }
        }
        let id = id.or_else(|| name.map(|name| id_of_name(dictionary.string_bytes(Some(name)))))?;
        Some(Self { id, name })
    }
}

/// The pointer of the thread that the attributes of a sample or a profile name; `None` where it is not known.
pub fn pointer(dictionary: &Dictionary, set: Option<AttributeSetId>) -> Option<NonZeroU64> {
    match dictionary.find(set, POINTER) {
        Some(Value::Int(pointer)) => NonZeroU64::new(*pointer as u64),
        _ => None,
    }
}

fn id_of(dictionary: &Dictionary, value: &Value) -> Option<String> {
    match value {
        Value::Int(id) => Some(id.to_string()),
        Value::String(id) => id_of_text(dictionary.string(*id)),
        _ => None,
    }
}

/// The key of a thread whose id is text; `None` where there is none.
pub fn id_of_text(text: &str) -> Option<String> {
    match text {
        "" => None,
        id if id.len() > MAX_ID_BYTES => Some(id_of_name(id.as_bytes())),
        id => Some(id.to_owned()),
    }
}

/// An id for what has a name only: a number of 32 bits with the top bit set.
fn id_of_name(name: &[u8]) -> String {
    (xxh3_64(name) & 0x7fff_ffff | 0x8000_0000).to_string()
}
