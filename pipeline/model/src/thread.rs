//! The key of a thread in Sentry's chunks, which distinguishes the threads of a process.
//!
//! The key is the attribute `thread.id` (OpenTelemetry semantic conventions, `thread`), in decimal. Without this
//! attribute, an id is computed from `thread.name`: a number above every Linux thread id, equal for equal names. A span
//! that is linked with a chunk has to use the same key for the thread as the chunk, so both use this module.

use std::num::NonZeroU64;

use xxhash_rust::xxh3::xxh3_64;

use crate::dictionary::{Dictionary, Value};
use crate::id::{AttributeSetId, StringId};

/// The key of the sample attribute with the pointer of the sample's thread (on x86-64 the FS base), which the built-in
/// sampler sets. It is the `pthread_t` of glibc and musl, which Python reports as a thread's ident.
pub const POINTER: &str = "profbridge.thread.pointer";

/// The key of the sample attribute with the state of the sample's thread, `running` or `waiting`. The built-in sampler
/// sets it in wall-time profiles, because OTLP has no field for it.
pub const STATE: &str = "profbridge.thread.state";

/// The state of a thread when it was sampled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ThreadState {
    /// The thread was on a CPU.
    Running,
    /// The thread was blocked, or waited for a CPU.
    Waiting,
}

impl ThreadState {
    /// The state from the attributes of a sample; `None` if it is missing or unknown.
    pub fn of(dictionary: &Dictionary, set: Option<AttributeSetId>) -> Option<Self> {
        let Some(Value::String(name)) = dictionary.find(set, STATE) else { return None };
        [Self::Running, Self::Waiting].into_iter().find(|state| state.name() == dictionary.string(*name))
    }

    /// The value of the attribute for this state.
    pub fn name(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Waiting => "waiting",
        }
    }
}

/// The longest text accepted as an id, in bytes: a UUID fits.
pub const MAX_ID_BYTES: usize = 64;

/// The first of the synthetic ids that belong to no thread: above Linux thread ids (22 bits) and ids of names (32
/// bits).
pub const SYNTHETIC_BASE: u64 = 1 << 32;

/// The thread named by a list of attributes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SampleThread {
    /// The thread's key in chunks.
    pub id: String,
    /// The thread's name.
    pub name: Option<StringId>,
}

impl SampleThread {
    /// The thread named by the attributes of a sample or a profile; `None` if they name none.
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

/// The pointer of the thread, from the attributes of a sample or a profile; `None` if it is unknown.
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

/// The key of a thread whose id is text; `None` for an empty text.
pub fn id_of_text(text: &str) -> Option<String> {
    match text {
        "" => None,
        id if id.len() > MAX_ID_BYTES => Some(id_of_name(id.as_bytes())),
        id => Some(id.to_owned()),
    }
}

/// An id for a thread that only has a name: 32 bits with the top bit set.
fn id_of_name(name: &[u8]) -> String {
    (xxh3_64(name) & 0x7fff_ffff | 0x8000_0000).to_string()
}
