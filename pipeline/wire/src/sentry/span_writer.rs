//! Writes changes of an envelope's spans into its items by editing their text; all other bytes stay the same.
//!
//! The rules for changing a view of spans:
//!
//! * A processor may remove spans ([`Spans::retain`]). If it removes a transaction's own span, the transaction's item
//!   is not sent. Neither are its V1 profile, which Sentry only accepts together with its transaction, and its
//!   remaining spans. The losses of both are counted here ([`Reason::NoTransaction`]); the processor counts the spans
//!   that it removed. So a processor that drops a transaction removes all of its spans. A container without remaining
//!   spans is not sent.
//! * A processor may remove a profile: a profile without observations is not sent. The processor counts that loss.
//! * A processor may add information to a span ([`Spans::change`]):
//!
//!   | change | a transaction's own span | another span of it | a span of a container |
//!   | --- | --- | --- | --- |
//!   | profiler | `contexts.profile.profiler_id` | `data.profiler_id` | attribute `sentry.profiler_id` |
//!   | thread | `contexts.trace.data`: `thread.id`, `thread.name` | `data`: the same | attributes of the same names |
//!   | sample rate | `trace.sample_rate` of the envelope's header | - | attribute `sentry.client_sample_rate` |
//!
//!   Existing values are replaced. A thread's id is written as text, since that is the thread's key in a chunk
//!   (Sentry developer documentation, "Sample Format V2", "Profile Context"; `sentry.profiler_id` is the name in
//!   getsentry/sentry-conventions). A transaction's rate is only written if the envelope's header describes a trace:
//!   otherwise Sentry has nothing to apply it to. The header of a container stays as it is: the program that began the
//!   trace wrote it.
//! * Nothing else may change a payload that has a view.
//!
//! The text of spans that could not be read stays unchanged.

use std::collections::HashMap;
use std::ops::Range;

use bytes::Bytes;
use profbridge_model::spans::{ProfilerLink, SpanChanges};
use profbridge_model::{Envelope, Item, Losses, Profiles, Quantities, Reason, Span, SpanForm, Spans, Viewed};
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use super::envelope::ItemHeader;
use super::otlp_spans::CLIENT_SAMPLE_RATE;
use super::span_items::{SpanItem, read_item};
use super::span_reader::{elements, place_in};
use super::splice::{self, Element};
use super::trace_header::TraceHeader;
use super::{span_v2_reader, transaction_reader};

/// The result of writing the changes into an envelope.
#[derive(Debug)]
pub struct ChangedEnvelope {
    /// The envelope, whose views match its new content. `None` if nothing of it is left.
    pub envelope: Option<Envelope>,
    /// The losses that followed from removed transactions.
    pub losses: Losses,
    /// Number of changes that could not be written, because something else is in their place or the item would exceed
    /// Sentry's size limit.
    pub unwritten: u64,
}

/// Whether the spans of an envelope have changes that its items do not contain yet, or a profile was removed.
pub fn is_changed(envelope: &Envelope) -> bool {
    envelope.spans().any(|spans| spans.received().is_none()) || envelope.profiles().any(is_left_out)
}

/// Whether a processor has removed a whole profile.
fn is_left_out(profiles: &Profiles) -> bool {
    profiles.observations() == 0
}

/// Writes the changes of an envelope's spans into its items. Payloads of other items may still be compressed: each view
/// has the bytes of its own item.
pub fn write(mut envelope: Envelope) -> ChangedEnvelope {
    let mut losses = Losses::default();
    let mut unwritten = 0;
    let header = TraceHeader::read(&envelope.header);
    let mut gone = vec![false; envelope.items.len()];
    let mut rate = None;
    for at in 0..envelope.views.len() {
        let view = &envelope.views[at];
        let (position, spans) = match &view.what {
            Viewed::Spans(spans) => (view.item, spans),
            Viewed::Profiles(profiles) => {
                gone.get_mut(view.item).into_iter().for_each(|gone| *gone |= is_left_out(profiles));
                continue;
            }
        };
        if spans.received().is_some() {
            continue;
        }
        let Some(item) = envelope.items.get_mut(position) else { continue };
        rate = rate.or_else(|| rate_of(spans, &header));
        let Rewritten { payload, unwritten: more } = rewrite(spans);
        unwritten += more;
        match payload {
            Some((payload, count)) => {
                item.header = header_of(item, payload.len(), count);
                item.payload = payload.into();
                renew(&mut envelope, position, &header);
            }
            None => {
                losses.add(Reason::NoTransaction, spans.quantities());
                gone[position] = true;
                if spans.form() == SpanForm::SentryTransaction {
                    lose_v1_profiles(&envelope, &mut gone, &mut losses);
                }
            }
        }
    }
    if let Some(rate) = rate {
        match with_rate(&envelope.header, rate) {
            Some(line) => envelope.header = line,
            None => unwritten += 1,
        }
    }
    for position in (0..gone.len()).rev().filter(|position| gone[*position]) {
        envelope.remove_item(position);
    }
    match &mut envelope.received {
        Some(received) if envelope.items.iter().any(|item| item.payload.plain().is_none()) => received.changed = true,
        received => *received = None,
    }
    let is_left = !envelope.items.is_empty();
    ChangedEnvelope { envelope: is_left.then_some(envelope), losses, unwritten }
}

/// Reads the spans of an item again after its payload was replaced. If that fails, the old view stays.
pub fn renew(envelope: &mut Envelope, position: usize, header: &TraceHeader) {
    let Some(Some(Ok(read))) = envelope.items.get(position).map(|item| read_item(item, header)) else { return };
    if let Some(view) = envelope.views.iter_mut().find(|view| view.item == position) {
        view.what = Viewed::Spans(read.spans);
    }
}

/// Marks the V1 profiles of an envelope as removed, and counts the losses.
fn lose_v1_profiles(envelope: &Envelope, gone: &mut [bool], losses: &mut Losses) {
    for (position, item) in envelope.items.iter().enumerate() {
        if gone[position] || !ItemHeader::read(&item.header).is_ok_and(|header| header.kind == "profile") {
            continue;
        }
        gone[position] = true;
        let view = envelope.views.iter().find(|view| view.item == position);
        losses.add(Reason::NoTransaction, view.map_or(Quantities::items(1), |view| view.quantities()));
    }
}

/// The sample rate of a transaction in the trace of the envelope's header.
fn rate_of(spans: &Spans, header: &TraceHeader) -> Option<f64> {
    let is_transaction = spans.form() == SpanForm::SentryTransaction;
    let of_trace = spans.spans().iter().filter(|span| is_transaction && header.is_of(span.trace_id));
    of_trace.filter_map(|span| span.changes.as_ref()?.sample_rate).next()
}

/// An envelope's header with the rate of its trace, as text like SDKs write it. `None` if the header has no trace.
fn with_rate(line: &[u8], rate: f64) -> Option<Bytes> {
    #[derive(Deserialize)]
    struct HeaderWithTrace<'a> {
        #[serde(borrow)]
        trace: Option<&'a RawValue>,
    }
    let trace = serde_json::from_slice::<HeaderWithTrace<'_>>(line).ok()?.trace?;
    if !trace.get().starts_with('{') {
        return None;
    }
    splice::set(line, &["trace", "sample_rate"], &format!("\"{rate}\"")).ok().map(Bytes::from)
}

/// An item's header with updated length and number of spans, for those of both that it had.
fn header_of(item: &Item, length: usize, count: u64) -> Bytes {
    let Ok(header) = ItemHeader::read(&item.header) else { return item.header.clone() };
    let counts = [
        ("length", header.length.map(|_| length as u64)),
        ("item_count", header.item_count.filter(|_| SpanItem::of(&header) == Some(SpanItem::Container)).map(|_| count)),
    ];
    counts.into_iter().filter_map(|(key, value)| Some((key, value?))).fold(item.header.clone(), |line, (key, value)| {
        splice::set(&line, &[key], &value.to_string()).map_or(line, Bytes::from)
    })
}

/// A rewritten payload.
struct Rewritten {
    /// The payload and the number of spans in its list; `None` if it is removed.
    payload: Option<(Vec<u8>, u64)>,
    /// Number of changes that it does not contain.
    unwritten: u64,
}

fn rewrite(spans: &Spans) -> Rewritten {
    let limit = match spans.form() {
        SpanForm::SentryTransaction => transaction_reader::MAX_BYTES,
        SpanForm::SentrySpans => span_v2_reader::MAX_BYTES,
        // OTLP spans are not an item of an envelope.
        SpanForm::Otlp => return Rewritten { payload: Some((spans.bytes().to_vec(), 0)), unwritten: 0 },
    };
    let rewritten = SpanEditor { spans, with_changes: true, unwritten: 0 }.write();
    match &rewritten.payload {
        Some((payload, _)) if payload.len() > limit.max(spans.bytes().len()) => {
            let changed = spans.spans().iter().filter(|span| span.changes.is_some()).count() as u64;
            Rewritten { unwritten: changed, ..SpanEditor { spans, with_changes: false, unwritten: 0 }.write() }
        }
        _ => rewritten,
    }
}

struct SpanEditor<'a> {
    spans: &'a Spans,
    with_changes: bool,
    unwritten: u64,
}

impl SpanEditor<'_> {
    fn write(mut self) -> Rewritten {
        let (spans, bytes) = (self.spans, self.spans.bytes());
        let text = std::str::from_utf8(bytes).unwrap_or_default();
        let is_transaction = spans.form() == SpanForm::SentryTransaction;
        let list = match is_transaction {
            true => serde_json::from_str::<transaction_reader::TransactionJson<'_>>(text).ok().and_then(|of| of.spans),
            false => serde_json::from_str::<span_v2_reader::Container<'_>>(text).ok().map(|of| of.items),
        };
        // The transaction's object contains those of its spans, so no two spans begin at the same offset.
        let left: HashMap<u32, &Span> = spans.spans().iter().map(|span| (span.at.start, span)).collect();
        let start = (text.len() - text.trim_start().len()) as u32;
        let root = left.get(&start).filter(|_| is_transaction);
        if is_transaction && root.is_none() {
            return Rewritten { payload: None, unwritten: 0 };
        }
        let mut listed: Vec<(Range<usize>, Element)> = Vec::new();
        let mut places = self.places_that_were_read();
        if let Some(list) = list {
            let read = elements(list, |element| {
                let place = place_in(text, element);
                let was_read = places.next_if_eq(&place.start).is_some();
                let becomes = match left.get(&place.start) {
                    Some(span) => self.element(element, span),
                    None if was_read => Element::Goes,
                    None => Element::Stays,
                };
                let start = place.start as usize;
                listed.push((start..start + place.len as usize, becomes));
                Ok::<(), std::convert::Infallible>(())
            });
            debug_assert!(read.is_ok(), "the list was read before");
        }
        let count = listed.iter().filter(|(_, element)| *element != Element::Goes).count() as u64;
        if !is_transaction && count == 0 {
            return Rewritten { payload: None, unwritten: 0 };
        }
        let mut payload = splice::change_list(bytes, &listed);
        if let Some(changes) = root.and_then(|root| root.changes.as_deref()).filter(|_| self.with_changes) {
            self.unwritten += set_changes(&mut payload, SpanObject::Transaction, changes);
        }
        Rewritten { payload: Some((payload, count)), unwritten: self.unwritten }
    }

    /// The start offsets of the spans in the list that could be read, in order.
    fn places_that_were_read(&self) -> std::iter::Peekable<std::vec::IntoIter<u32>> {
        let (spans, bytes) = (self.spans, self.spans.bytes());
        let header = TraceHeader::default();
        let read = match spans.form() {
            SpanForm::SentryTransaction => transaction_reader::read(bytes, &header),
            _ => span_v2_reader::read_any(bytes, &header).map(|(read, _)| read),
        };
        let skipped = usize::from(spans.form() == SpanForm::SentryTransaction);
        let places: Vec<u32> =
            read.iter().flat_map(|read| read.spans.spans()).skip(skipped).map(|span| span.at.start).collect();
        places.into_iter().peekable()
    }

    /// A span of the list with its changes.
    fn element(&mut self, element: &str, span: &Span) -> Element {
        let Some(changes) = span.changes.as_deref().filter(|_| self.with_changes) else { return Element::Stays };
        let mut json = element.as_bytes().to_vec();
        let place =
            if self.spans.form() == SpanForm::SentryTransaction { SpanObject::Span } else { SpanObject::Attributes };
        self.unwritten += set_changes(&mut json, place, changes);
        if json == element.as_bytes() { Element::Stays } else { Element::Becomes(json) }
    }
}

/// Where a span's profiler and thread are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SpanObject {
    /// In the contexts of a transaction.
    Transaction,
    /// In the data of a span of a transaction.
    Span,
    /// In the attributes of a span of a container.
    Attributes,
}

/// Sets the rate, the profiler and the thread in a span's object. Returns how many values could not be set.
fn set_changes(json: &mut Vec<u8>, place: SpanObject, changes: &SpanChanges) -> u64 {
    let mut unwritten = 0;
    if let (SpanObject::Attributes, Some(rate)) = (place, changes.sample_rate) {
        let rate = format!("{{\"value\":{},\"type\":\"double\"}}", Value::from(rate));
        match splice::set(json, &["attributes", CLIENT_SAMPLE_RATE], &rate) {
            Ok(changed) => *json = changed,
            Err(_) => unwritten += 1,
        }
    }
    let Some(ProfilerLink { profiler_id, thread_id, thread_name }) = &changes.profiler else { return unwritten };
    let (profiler, thread): (&[&str], &[&str]) = match place {
        SpanObject::Transaction => (&["contexts", "profile", "profiler_id"], &["contexts", "trace", "data"]),
        SpanObject::Span => (&["data", "profiler_id"], &["data"]),
        SpanObject::Attributes => (&["attributes", "sentry.profiler_id"], &["attributes"]),
    };
    let mut set = |path: &[&str], text: &str| {
        let text = Value::from(text);
        let value = match place {
            SpanObject::Attributes => format!("{{\"value\":{text},\"type\":\"string\"}}"),
            SpanObject::Transaction | SpanObject::Span => text.to_string(),
        };
        match splice::set(json, path, &value) {
            Ok(changed) => *json = changed,
            Err(_) => unwritten += 1,
        }
    };
    set(profiler, &profiler_id.to_string());
    for (key, text) in [("thread.id", thread_id), ("thread.name", thread_name)] {
        if let Some(text) = text {
            set(&[thread, &[key]].concat(), text);
        }
    }
    unwritten
}

#[cfg(test)]
mod tests;
