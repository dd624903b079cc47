//! Finds the spans in an envelope's items.

use std::iter::Enumerate;
use std::slice;

use profbridge_model::{Envelope, Item};

use super::envelope::ItemHeader;
use super::span_reader::{ReadSpans, SpansError};
use super::trace_header::TraceHeader;
use super::{span_v2_reader, transaction_reader};

/// Reads the spans of an envelope's items in order, each with its item's position: transactions, and containers of
/// spans of version 2. Items of other types are skipped, as are single spans of the older protocol and compressed
/// payloads.
///
/// Each batch points into the payload of its item. A batch without spans, from a container without valid ones, must not
/// become a view: nothing of the item would be counted then.
pub fn read_items(envelope: &Envelope) -> SpanItems<'_> {
    SpanItems { header: TraceHeader::read(&envelope.header), rest: envelope.items.iter().enumerate() }
}

/// The spans of an envelope; each item is read on demand.
#[derive(Debug, Clone)]
pub struct SpanItems<'a> {
    header: TraceHeader,
    rest: Enumerate<slice::Iter<'a, Item>>,
}

/// The types of items with spans.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SpanItem {
    /// A transaction.
    Transaction,
    /// A container of spans.
    Container,
}

impl SpanItem {
    /// The type of an item with this header, if it has spans.
    pub fn of(header: &ItemHeader<'_>) -> Option<Self> {
        match &*header.kind {
            "transaction" => Some(Self::Transaction),
            "span" if header.content_type.as_deref() == Some(span_v2_reader::CONTENT_TYPE) => Some(Self::Container),
            _ => None,
        }
    }
}

/// Reads the spans of one item; `header` has the trace data of the envelope's header. `None` if the item has no spans.
pub(super) fn read_item(item: &Item, header: &TraceHeader) -> Option<Result<ReadSpans, SpansError>> {
    let item_header = ItemHeader::read(&item.header).ok()?;
    let kind = SpanItem::of(&item_header)?;
    let payload = item.payload.plain()?;
    Some(match kind {
        SpanItem::Transaction => transaction_reader::read(payload, header),
        SpanItem::Container => span_v2_reader::read(payload, item_header.item_count, header),
    })
}

impl Iterator for SpanItems<'_> {
    type Item = (usize, Result<ReadSpans, SpansError>);

    fn next(&mut self) -> Option<Self::Item> {
        for (position, item) in self.rest.by_ref() {
            if let Some(read) = read_item(item, &self.header) {
                return Some((position, read));
            }
        }
        None
    }
}
