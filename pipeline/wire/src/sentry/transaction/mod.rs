//! Converts the spans of a transaction to a `transaction` item: a Sentry event (event schema, type `transaction`).
//!
//! The processor `transactions` has grouped a local root and the spans below it
//! ([`Segment`](profbridge_model::spans::Segment)); this module only writes them. The documentation of the exporter
//! `sentry` describes the conversion for users. Each rule has a file:
//!
//! * `keys`: the attributes that the conversion depends on, found in one pass. `describe`: operation, name and its
//!   source. `status`: Sentry's status.
//! * `span`: fields of transactions and their spans. `request`: fields of transactions only. `resource`: fields that
//!   all transactions of a process share.
//! * `shed`: what is dropped if the size limit is exceeded. `value`: the JSON text. `limits`, `notes`.
//!
//! A value that Sentry would reject is left out and counted; the transaction is still sent. Its event id is derived
//! from the ids of trace and span, so that Sentry stores a transaction once even if it is sent twice.

mod describe;
mod keys;
pub mod limits;
mod notes;
mod request;
mod resource;
mod shed;
mod span;
mod status;
mod value;

use std::borrow::Cow;

use profbridge_model::{Losses, ProfilerId, Quantities, Reason, Span, Spans, TraceId};
use uuid::Uuid;
use xxhash_rust::xxh3::Xxh3;

pub use describe::NameSource;
pub use notes::Notes;
pub use resource::TransactionResource;
pub(super) use resource::release_and_environment;

use crate::otlp::traces::{AnyValue, OtherSpanFields};
use describe::Described;
use keys::{AttributeKey, KnownAttributes};
use limits::{MAX_DESCRIPTION_BYTES, MAX_NAME_CHARS, MAX_SPANS, MAX_TRANSACTION_BYTES, MAX_UNSHED_BYTES};
use shed::OptionalParts;
use span::SpanFields;
use value::Json;

use super::chunk_envelope::SDK_NAME;

/// The properties of a written transaction.
#[derive(Debug, Clone, PartialEq)]
pub struct Summary {
    /// Hash of its trace and its span, in the form of a random UUID.
    pub event_id: Uuid,
    /// Its trace id.
    pub trace_id: TraceId,
    /// Its start, in nanoseconds since the Unix epoch.
    pub start_unix_nano: u64,
    /// Its name.
    pub name: Box<str>,
    /// The source of the name.
    pub source: NameSource,
    /// Its sample rate, if known: above 0 and at most 1.
    pub sample_rate: Option<f64>,
    /// Number of spans, including the root.
    pub spans: u64,
}

/// A written transaction and its losses.
#[derive(Debug)]
pub struct Transaction<'a> {
    /// Its properties.
    pub summary: Summary,
    /// Its JSON, on one line.
    pub json: &'a [u8],
    /// The spans that were left out.
    pub losses: Losses,
    /// Other data that was left out.
    pub notes: Notes,
}

/// The Sentry operation of an OTLP span: the span's `sentry.op`, or else derived from OpenTelemetry's conventions.
/// `None` if neither applies.
pub fn op(spans: &Spans, span: &Span) -> Option<String> {
    let fields = OtherSpanFields::of(spans, span);
    let mut known = KnownAttributes::new();
    for (key, value) in fields.attributes() {
        if let Some(key) = AttributeKey::of(key) {
            known.note(key, value);
        }
    }
    Described::of(fields.name, span.kind, &known, &mut Notes::default()).op.map(Cow::into_owned)
}

/// Writes transactions one at a time, and reuses its memory.
#[derive(Debug, Default)]
pub struct TransactionWriter {
    json: Json,
    pieces: OptionalParts,
    order: Vec<u32>,
}

impl TransactionWriter {
    /// Writes the spans of one transaction. The root is the span marked as such, or else the earliest span, which then
    /// replaces a root that never arrived. `None` if there are no spans.
    ///
    /// The spans must be one [segment](Spans::segments) of an OTLP batch, and `resource` must be the root's.
    pub fn write(
        &mut self,
        spans: &Spans,
        segment: &[Span],
        resource: &TransactionResource,
    ) -> Option<Transaction<'_>> {
        let root = root_of(segment)?;
        self.in_order(segment, root);
        self.json.out.clear();
        self.pieces.clear();
        self.json.notes = resource.notes;
        let (json, pieces) = (&mut self.json, &mut self.pieces);
        let summary = head(spans, &segment[root], resource, json, pieces);
        json.raw(",\"spans\":[");
        let mut losses = Losses::default();
        let children = &self.order[..self.order.len().min(MAX_SPANS)];
        losses.add(Reason::LimitExceeded, Quantities::spans((self.order.len() - children.len()) as u64));
        let mut written = 0;
        for position in children {
            let start = json.out.len();
            child(spans, &segment[*position as usize], json, pieces);
            // Two closing brackets follow, and dropping all data may still not be enough.
            if json.out.len() + 2 - pieces.bytes() > MAX_TRANSACTION_BYTES {
                pieces.truncate(json, start);
                losses.add(Reason::TooLarge, Quantities::spans((children.len() - written) as u64));
                break;
            }
            written += 1;
            if pieces.bytes() > MAX_UNSHED_BYTES {
                pieces.shed(json, MAX_TRANSACTION_BYTES - 2);
            }
        }
        json.end(b']');
        json.out.push(b'}');
        if json.out.len() > MAX_TRANSACTION_BYTES {
            pieces.shed(json, MAX_TRANSACTION_BYTES);
        }
        let summary = Summary { spans: written as u64 + 1, ..summary };
        Some(Transaction { summary, json: &json.out, losses, notes: json.notes })
    }

    /// The positions of the non-root spans, sorted by start. If there are too many, the earliest stay.
    fn in_order(&mut self, segment: &[Span], root: usize) {
        self.order.clear();
        self.order.extend((0..segment.len() as u32).filter(|position| *position as usize != root));
        let start = |position: &u32| segment[*position as usize].start_unix_nano;
        if !self.order.is_sorted_by_key(start) {
            self.order.sort_by_key(start);
        }
    }
}

/// The position of a transaction's root span.
fn root_of(segment: &[Span]) -> Option<usize> {
    let is_root = |span: &Span| span.segment.is_some_and(|segment| segment.is_root);
    let first = || Some(segment.iter().enumerate().min_by_key(|(_, span)| span.start_unix_nano)?.0);
    segment.iter().position(is_root).or_else(first)
}

/// The root span of a transaction.
pub fn root(segment: &[Span]) -> Option<&Span> {
    segment.get(root_of(segment)?)
}

/// Writes everything except the child spans.
fn head(
    spans: &Spans,
    root: &Span,
    resource: &TransactionResource,
    json: &mut Json,
    pieces: &mut OptionalParts,
) -> Summary {
    let event_id = event_id(root);
    let mut reading = SpanFields::of(spans, root);
    json.raw("{\"event_id\":\"");
    json.display(event_id.simple());
    json.raw("\",\"type\":\"transaction\",\"platform\":\"");
    json.raw(resource.platform);
    json.raw("\",\"sdk\":{\"name\":\"");
    json.raw(SDK_NAME);
    json.raw(concat!("\",\"version\":\"", env!("CARGO_PKG_VERSION"), "\"}"));
    reading.times(json);
    json.raw(",\"contexts\":{\"trace\":{");
    reading.ids(json);
    let profiler = reading.data(spans, json, pieces);
    let described = reading.described(json);
    reading.kind(&described, json);
    json.out.push(b'}');
    if let Some(profiler) = profiler {
        json.raw(",\"profile\":{\"profiler_id\":\"");
        json.display(profiler);
        json.raw("\"}");
    }
    pieces.write(json, |json| request::response(&reading, json));
    request::browser(&reading.known, json);
    json.out.extend_from_slice(&resource.contexts);
    pieces.write(json, |json| json.out.extend_from_slice(&resource.otel));
    json.out.push(b'}');
    let Described { description, source, .. } = described;
    let name = match description.char_indices().nth(MAX_NAME_CHARS) {
        Some((end, _)) => {
            json.notes.truncated_texts += 1;
            &description[..end]
        }
        None => &description,
    };
    json.string(",\"transaction\":", name, usize::MAX);
    json.raw(",\"transaction_info\":{\"source\":\"");
    json.raw(source.as_str());
    json.raw("\"}");
    request::user(&reading.known, json);
    pieces.write(json, |json| request::request(&reading, json));
    json.out.extend_from_slice(&resource.top);
    let sample_rate = sample_rate(root, &reading.known, json);
    let (trace_id, start_unix_nano) = (root.trace_id, root.start_unix_nano);
    Summary { event_id, trace_id, start_unix_nano, name: name.into(), source, sample_rate, spans: 0 }
}

/// Writes a child span and a comma.
fn child(spans: &Spans, span: &Span, json: &mut Json, pieces: &mut OptionalParts) {
    let mut reading = SpanFields::of(spans, span);
    json.out.push(b'{');
    reading.ids(json);
    reading.times(json);
    reading.data(spans, json, pieces);
    let described = reading.described(json);
    reading.kind(&described, json);
    json.string(",\"description\":", &described.description, MAX_DESCRIPTION_BYTES);
    json.raw("},");
}

/// The id of a transaction, which is the same each time the same span is sent.
fn event_id(root: &Span) -> Uuid {
    let mut hash = Xxh3::new();
    hash.update(b"transaction");
    hash.update(root.trace_id.bytes());
    hash.update(root.span_id.bytes());
    Uuid::from_bytes(*ProfilerId::from_hash(hash.digest128()).as_bytes())
}

/// The sample rate of a transaction: the value determined on the way, or else the span's own. An invalid rate is
/// counted.
fn sample_rate(root: &Span, known: &KnownAttributes<'_>, json: &mut Json) -> Option<f64> {
    let changed = root.changes.as_deref().and_then(|changes| changes.sample_rate);
    let original_rate = || match known.get(AttributeKey::SentrySampleRate)? {
        AnyValue::Double(rate) => Some(rate),
        AnyValue::Int(rate) => Some(rate as f64),
        AnyValue::Text(text) => Some(text.parse().unwrap_or(f64::NAN)),
        _ => Some(f64::NAN),
    };
    let rate = changed.or_else(original_rate)?;
    let is_rate = rate > 0.0 && rate <= 1.0;
    json.notes.invalid_values += u64::from(!is_rate);
    is_rate.then_some(rate)
}
