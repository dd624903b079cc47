//! Buffers spans independently of the requests that contained them, and queues those that are sent next.

use std::collections::VecDeque;
use std::sync::Arc;

use profbridge_engine::component::Outbox;
use profbridge_model::spans::origins::OriginIntake;
use profbridge_model::spans::{Assembly, Origin, Origins, SpanChanges};
use profbridge_model::{ByteRange, Quantities, Reason, Span, Spans};

use crate::sampled_out::BufferedCounts;

/// Buffered spans of one trace. Their byte ranges refer to `bytes`, and their scopes are [`Origin`]s.
#[derive(Debug, Default)]
pub(crate) struct BufferedSpans {
    peer: Option<Arc<str>>,
    spans: Vec<Span>,
    bytes: Vec<u8>,
    /// The number of spans that have been sent.
    done: usize,
}

impl BufferedSpans {
    /// An empty buffer for spans of this peer.
    pub(crate) fn of(peer: Option<&Arc<str>>) -> Self {
        Self { peer: peer.cloned(), ..Self::default() }
    }

    /// The number of spans.
    pub(crate) fn len(&self) -> u64 {
        self.spans.len() as u64
    }

    /// Approximate heap size in bytes.
    pub(crate) fn memory(&self) -> usize {
        self.bytes.capacity() + self.spans.capacity() * size_of::<Span>()
    }

    /// Copies a span from its batch into the buffer.
    pub(crate) fn push(&mut self, origins: &mut Origins, intake: &mut OriginIntake, batch: &Spans, span: &Span) {
        let (origin, encoded) = (origins.hold(intake, batch, span.scope), batch.get(span.at));
        // The configured limit is far below 4 GiB.
        let at = ByteRange { start: self.bytes.len() as u32, len: encoded.len() as u32 };
        self.bytes.extend_from_slice(encoded);
        self.spans.push(Span { scope: origin.number(), at, ..span.clone() });
    }

    /// Sets the sampling rate on each span, because no single span represents the others.
    pub(crate) fn set_rate(&mut self, rate: Option<f64>) {
        let Some(rate) = rate else { return };
        for span in &mut self.spans {
            let before = span.changes.as_ref().and_then(|changes| changes.sample_rate).unwrap_or(1.0);
            span.changes.get_or_insert_with(|| Box::new(SpanChanges::default())).sample_rate = Some(before * rate);
        }
    }

    /// The first span, in a separate batch.
    pub(crate) fn first(&self, origins: &Origins) -> Option<Spans> {
        let span = self.spans.first()?;
        let mut batch = Assembly::default();
        batch.push(origins, span.clone(), self.get(span.at)).ok()?;
        Some(batch.finish())
    }

    /// Counts all spans as sampled out, and releases their origins.
    pub(crate) fn count_as_sampled_out(&self, origins: &mut Origins, sampled_out: &mut BufferedCounts) {
        self.spans.iter().for_each(|span| sampled_out.add(origins, span));
    }

    fn get(&self, at: ByteRange) -> &[u8] {
        self.bytes.get(at.start as usize..at.start as usize + at.len as usize).unwrap_or_default()
    }
}

/// The queue of spans to be sent, in order.
#[derive(Debug, Default)]
pub(crate) struct SendQueue {
    queue: VecDeque<BufferedSpans>,
    spans: u64,
    memory: usize,
}

impl SendQueue {
    /// The number of spans.
    pub(crate) fn spans(&self) -> u64 {
        self.spans
    }

    /// Heap size of the spans in bytes.
    pub(crate) fn memory(&self) -> usize {
        self.memory + self.queue.capacity() * size_of::<BufferedSpans>()
    }

    /// Whether the queue is empty.
    pub(crate) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Appends spans to the queue.
    pub(crate) fn push(&mut self, buffered: BufferedSpans) {
        self.spans += buffered.len();
        self.memory += buffered.memory();
        self.queue.push_back(buffered);
    }

    /// Sends one batch of about `bytes` bytes with spans of one peer.
    pub(crate) fn send(&mut self, origins: &mut Origins, bytes: usize, out: &mut Outbox) {
        let Some(peer) = self.queue.front().map(|first| first.peer.clone()) else { return };
        let mut batch = Assembly::default();
        while let Some(buffered) = self.queue.front_mut().filter(|buffered| buffered.peer == peer) {
            while batch.bytes() < bytes
                && let Some(span) = buffered.spans.get(buffered.done)
            {
                self.spans -= 1;
                if batch.push(origins, span.clone(), buffered.get(span.at)).is_err() {
                    out.drop(Reason::LimitExceeded, Quantities::spans(1));
                }
                origins.release(Origin::of(span.scope));
                buffered.done += 1;
            }
            if buffered.done < buffered.spans.len() {
                break;
            }
            self.memory -= buffered.memory();
            self.queue.pop_front();
        }
        if self.queue.is_empty() {
            // Releases the memory that a burst needed.
            self.queue = VecDeque::new();
        }
        if !batch.is_empty() {
            let mut spans = batch.finish();
            spans.peer = peer;
            out.send(spans);
        }
    }
}
