//! Builds a batch from held spans.
//!
//! All bytes are copied into one new buffer: the spans in the order in which they are added, and each resource and
//! scope before its first span, so that both are written once for all of their spans.

use std::collections::HashMap;

use foldhash::fast::FixedState;

use super::origins::{Origin, Origins};
use super::{BadSpans, Span, SpanForm, SpanResource, SpanScope, Spans};
use crate::ByteRange;
use crate::arena::make_room;

#[cfg(test)]
mod tests;

/// A batch that is being built.
#[derive(Debug, Default)]
pub struct Assembly {
    bytes: Vec<u8>,
    resources: Vec<SpanResource>,
    scopes: Vec<SpanScope>,
    spans: Vec<Span>,
    /// The positions of resources and scopes in the batch, by their numbers in [`Origins`].
    resource_at: Positions,
    scope_at: Positions,
    /// The scope of the previous span: its origin and its position.
    last: Option<(Origin, u32)>,
}

/// A fixed hash is safe, because senders cannot choose these numbers.
type Positions = HashMap<u32, u32, FixedState>;

impl Assembly {
    /// Reserves room for this many spans and bytes.
    pub fn reserve(&mut self, spans: usize, bytes: usize) {
        make_room(&mut self.spans, spans);
        make_room(&mut self.bytes, bytes);
    }

    /// Adds a held span: `bytes` is its encoding, its scope number is an [`Origin`].
    ///
    /// # Errors
    ///
    /// The batch would exceed 4 GiB, the limit of its ranges. The batch stays unchanged, except that the span's
    /// resource and scope may have been added.
    pub fn push(&mut self, origins: &Origins, span: Span, bytes: &[u8]) -> Result<(), BadSpans> {
        let scope = self.scope(origins, Origin::of(span.scope))?;
        let at = self.put(bytes)?;
        make_room(&mut self.spans, 1);
        self.spans.push(Span { scope, at, ..span });
        Ok(())
    }

    /// The number of spans.
    pub fn len(&self) -> usize {
        self.spans.len()
    }

    /// Whether there are no spans.
    pub fn is_empty(&self) -> bool {
        self.spans.is_empty()
    }

    /// The number of bytes of spans, resources and scopes.
    pub fn bytes(&self) -> usize {
        self.bytes.len()
    }

    /// The batch in OTLP form.
    pub fn finish(self) -> Spans {
        let Self { bytes, resources, scopes, spans, .. } = self;
        Spans {
            form: SpanForm::Otlp,
            bytes: bytes.into(),
            resources,
            scopes,
            spans,
            unchanged: false,
            packed: None,
            peer: None,
            client: None,
        }
    }

    /// A batch of the resource of an origin and no spans, to look up the origin of spans. `None` if the resource does
    /// not fit into a batch.
    pub fn resource_alone(origins: &Origins, origin: Origin) -> Option<Spans> {
        let mut batch = Self::default();
        batch.resource(origins, origins.resource_of(origin)).ok()?;
        Some(batch.finish())
    }

    fn scope(&mut self, origins: &Origins, origin: Origin) -> Result<u32, BadSpans> {
        if let Some((_, at)) = self.last.filter(|(last, _)| *last == origin) {
            return Ok(at);
        }
        let at = match self.scope_at.get(&origin.number()) {
            Some(at) => *at,
            None => {
                let (bytes, resource) = origins.scope_parts(origin);
                let resource = self.resource(origins, resource)?;
                let parts = self.part(bytes)?;
                self.scopes.push(SpanScope { resource, parts });
                let at = (self.scopes.len() - 1) as u32;
                self.scope_at.insert(origin.number(), at);
                at
            }
        };
        self.last = Some((origin, at));
        Ok(at)
    }

    fn resource(&mut self, origins: &Origins, resource: u32) -> Result<u32, BadSpans> {
        if let Some(at) = self.resource_at.get(&resource) {
            return Ok(*at);
        }
        let (bytes, added) = origins.resource_parts(resource);
        let parts = self.part(bytes)?;
        self.resources.push(SpanResource { parts, added: added.to_vec() });
        let at = (self.resources.len() - 1) as u32;
        self.resource_at.insert(resource, at);
        Ok(at)
    }

    fn part(&mut self, bytes: &[u8]) -> Result<Vec<ByteRange>, BadSpans> {
        if bytes.is_empty() {
            return Ok(Vec::new());
        }
        Ok(vec![self.put(bytes)?])
    }

    fn put(&mut self, bytes: &[u8]) -> Result<ByteRange, BadSpans> {
        let end = self.bytes.len() as u64 + bytes.len() as u64;
        if end > u64::from(u32::MAX) {
            return Err(BadSpans("the batch is larger than 4 GiB"));
        }
        let at = ByteRange { start: self.bytes.len() as u32, len: bytes.len() as u32 };
        make_room(&mut self.bytes, bytes.len());
        self.bytes.extend_from_slice(bytes);
        Ok(at)
    }
}
