//! What programs publish about themselves in their memory: see [`crate::context`].

use serde::{Deserialize, Serialize};

/// The trace context of a thread, as published by its program: what the thread works on.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub struct Context {
    /// The span; `None` if only attributes are known.
    pub link: Option<SpanLink>,
    /// The attributes that the owner asked for, in ascending order, each once: indices into
    /// [`Target::thread_attributes`](super::Target::thread_attributes), and values of at most
    /// [`crate::context::MAX_VALUE`] bytes.
    pub attributes: Vec<(u32, String)>,
}

/// The ids of a span, in the byte order of W3C Trace Context. Neither is all zeros.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct SpanLink {
    /// The trace.
    pub trace_id: [u8; 16],
    /// The span.
    pub span_id: [u8; 8],
}

/// The value of a resource attribute.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum AttributeValue {
    /// A text.
    Text(String),
    /// An integer.
    Int(i64),
}
