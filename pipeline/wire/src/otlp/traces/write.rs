//! Encodes requests with spans from other formats.

use profbridge_model::{Span, varint};

use super::super::encode::put::{bytes, encoded};
use super::encode::{put_attribute, put_text_attribute};

/// A list of attributes that is being built.
#[derive(Debug, Default)]
pub(crate) struct KeyValues {
    written: Vec<(String, Vec<u8>)>,
}

impl KeyValues {
    /// Adds an attribute; `value` is the encoded `AnyValue`.
    pub(crate) fn add(&mut self, key: &str, value: Vec<u8>) {
        self.written.push((key.to_owned(), value));
    }

    /// Adds a text attribute.
    pub(crate) fn text(&mut self, key: &str, text: &str) {
        self.add(key, any_text(text));
    }

    fn put(&self, out: &mut Vec<u8>, field: u8) {
        for (key, value) in &self.written {
            put_attribute(out, field, key, value);
        }
    }
}

/// An `AnyValue` with text.
pub(crate) fn any_text(text: &str) -> Vec<u8> {
    let mut value = Vec::with_capacity(text.len() + 3);
    encoded(&mut value, 0x0a, text.as_bytes());
    value
}

/// An `AnyValue` with a boolean.
pub(crate) fn any_bool(is_true: bool) -> Vec<u8> {
    vec![0x10, u8::from(is_true)]
}

/// An `AnyValue` with an integer.
pub(crate) fn any_int(number: i64) -> Vec<u8> {
    let mut value = vec![0x18];
    varint::put(&mut value, number as u64);
    value
}

/// An `AnyValue` with a double.
pub(crate) fn any_double(number: f64) -> Vec<u8> {
    let mut value = vec![0x21];
    value.extend_from_slice(&number.to_bits().to_le_bytes());
    value
}

/// An `AnyValue` with a list.
pub(crate) fn any_array(values: &[Vec<u8>]) -> Vec<u8> {
    let mut list = Vec::new();
    values.iter().for_each(|value| encoded(&mut list, 0x0a, value));
    let mut value = Vec::new();
    encoded(&mut value, 0x2a, &list);
    value
}

/// An `AnyValue` with a list of keys and values.
pub(crate) fn any_key_values(values: &KeyValues) -> Vec<u8> {
    let mut list = Vec::new();
    values.put(&mut list, 0x0a);
    let mut value = Vec::new();
    encoded(&mut value, 0x32, &list);
    value
}

/// The fields of a span that the model does not have. Kind and ids come from the model.
#[derive(Debug, Default)]
pub(crate) struct SpanFields {
    pub(crate) name: String,
    /// `Status.code`.
    pub(crate) status_code: u64,
    /// `Status.message`.
    pub(crate) status_message: String,
    pub(crate) attributes: KeyValues,
    /// The linked trace and span ids.
    pub(crate) links: Vec<(profbridge_model::TraceId, profbridge_model::SpanId)>,
}

/// The resource and the scope of spans.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct Origin {
    /// The attributes of the resource, all text.
    pub(crate) resource: Vec<(&'static str, String)>,
    /// The name of the scope.
    pub(crate) scope: String,
    pub(crate) scope_version: String,
}

/// Encodes an `ExportTraceServiceRequest`. Adjacent spans of one origin share a resource.
pub(crate) fn request(spans: &[(Origin, Span, SpanFields)]) -> Vec<u8> {
    let mut out = Vec::new();
    for of_origin in spans.chunk_by(|(one, ..), (other, ..)| one == other) {
        let mut resource_spans = Vec::new();
        let origin = &of_origin[0].0;
        let mut resource = Vec::new();
        for (key, text) in &origin.resource {
            put_text_attribute(&mut resource, 0x0a, key, text);
        }
        encoded(&mut resource_spans, 0x0a, &resource);
        let (mut scope_spans, mut scope) = (Vec::new(), Vec::new());
        bytes(&mut scope, 0x0a, origin.scope.as_bytes());
        bytes(&mut scope, 0x12, origin.scope_version.as_bytes());
        encoded(&mut scope_spans, 0x0a, &scope);
        for (_, span, fields) in of_origin {
            encoded(&mut scope_spans, 0x12, &message(span, fields));
        }
        encoded(&mut resource_spans, 0x12, &scope_spans);
        encoded(&mut out, 0x0a, &resource_spans);
    }
    out
}

fn message(span: &Span, fields: &SpanFields) -> Vec<u8> {
    let mut out = Vec::new();
    encoded(&mut out, 0x0a, span.trace_id.bytes());
    encoded(&mut out, 0x12, span.span_id.bytes());
    if let Some(parent) = &span.parent_span_id {
        encoded(&mut out, 0x22, parent.bytes());
    }
    bytes(&mut out, 0x2a, fields.name.as_bytes());
    out.push(0x30);
    varint::put(&mut out, span.kind.number());
    for (key, time) in [(0x39, span.start_unix_nano), (0x41, span.end_unix_nano)] {
        out.push(key);
        out.extend_from_slice(&time.to_le_bytes());
    }
    fields.attributes.put(&mut out, 0x4a);
    for (trace, linked) in &fields.links {
        let mut link = Vec::new();
        encoded(&mut link, 0x0a, trace.bytes());
        encoded(&mut link, 0x12, linked.bytes());
        encoded(&mut out, 0x6a, &link);
    }
    let mut status = Vec::new();
    bytes(&mut status, 0x12, fields.status_message.as_bytes());
    if fields.status_code > 0 {
        status.push(0x18);
        varint::put(&mut status, fields.status_code);
    }
    if !status.is_empty() {
        encoded(&mut out, 0x7a, &status);
    }
    // Field 16: sampled (bit 0), whether bit 9 is valid (bit 8), and whether the parent is remote (bit 9).
    let remote = span.parent_is_remote.map_or(0, |is_remote| 0x100 | u32::from(is_remote) << 9);
    let flags = remote | u32::from(span.sampled == Some(true));
    out.extend_from_slice(&[0x85, 0x01]);
    out.extend_from_slice(&flags.to_le_bytes());
    out
}
