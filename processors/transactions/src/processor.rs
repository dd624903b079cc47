//! Accepts spans, closes transactions that are due, and sends them.

use profbridge_engine::component::{Held, Now, Outbox, Processor};
use profbridge_model::spans::origins::OriginIntake;
use profbridge_model::spans::{Origin, Origins};
use profbridge_model::{Quantities, Reason, Span, SpanForm, Spans, Telemetry};

use crate::closed::ClosedTransactions;
use crate::config::Settings;
use crate::sent::SentSpans;
use crate::trees::{AddResult, Deadlines, NewSpan, Tree, TreeTop, Trees};
use crate::{CLOSED_EARLY, EQUAL_IDS, LATE, WITHOUT_ROOT};

/// The maximum number of spans, and of their bytes, that one step accepts.
const STEP: (usize, usize) = (4096, 1 << 20);

/// A larger transaction is sent early: Sentry accepts a megabyte of JSON.
const MAX_TREE_BYTES: usize = 4 << 20;

/// Transactions that become due within this many nanoseconds are sent together, to get fewer and larger batches.
const TOGETHER: u64 = 250_000_000;

/// The processor with its buffered spans.
#[derive(Debug)]
pub struct Transactions {
    settings: Settings,
    origins: Origins,
    trees: Trees,
    closed: ClosedTransactions,
    sent: SentSpans,
    /// The request that is being accepted in steps.
    pending: Option<Box<PendingRequest>>,
    /// During memory pressure: the size in bytes to which the trees are reduced.
    pressure_target: Option<usize>,
}

/// A request that is being accepted in steps.
#[derive(Debug)]
struct PendingRequest {
    spans: Spans,
    /// Index of the next span.
    next: usize,
    intake: OriginIntake,
}

impl PendingRequest {
    fn left(&self) -> u64 {
        (self.spans.spans().len() - self.next) as u64
    }
}

impl Transactions {
    /// A processor without any data.
    pub fn new(settings: Settings) -> Self {
        let sent = SentSpans::new(settings.max_sent);
        Self {
            settings,
            origins: Origins::default(),
            trees: Trees::default(),
            closed: ClosedTransactions::default(),
            sent,
            pending: None,
            pressure_target: None,
        }
    }

    /// Prepares to accept the spans of a request.
    fn begin(&mut self, spans: Spans) {
        self.pending = Some(Box::new(PendingRequest { spans, next: 0, intake: OriginIntake::default() }));
    }

    /// Buffers as many spans of a request as one step allows.
    fn take(&mut self, spans: Spans, now: Now, out: &mut Outbox) {
        self.begin(spans);
        self.absorb(now, out);
        self.send(out);
    }

    /// Heap size of everything that `max_bytes` limits, in bytes.
    fn open_bytes(&self) -> usize {
        self.trees.size() + self.origins.bytes()
    }

    /// Accepts as much of the pending request as one step allows.
    fn absorb(&mut self, now: Now, out: &mut Outbox) {
        let Some(mut work) = self.pending.take() else { return };
        let together = |after: u64| {
            let deadline = now.monotonic_nano.saturating_add(after);
            deadline.checked_next_multiple_of(TOGETHER).unwrap_or(deadline)
        };
        let deadlines = Deadlines { soon: together(self.settings.wait), later: together(self.settings.orphan_wait) };
        let (mut spans, mut bytes) = STEP;
        while spans > 0 && bytes > 0 && !self.closed.are_enough() {
            let PendingRequest { spans: request, next, intake } = &mut *work;
            let Some(span) = request.spans().get(*next) else { break };
            *next += 1;
            spans -= 1;
            bytes = bytes.saturating_sub(span.at.len as usize);
            let origin = self.origins.hold(intake, request, span.scope);
            let span = Span { scope: origin.number(), ..span.clone() };
            self.put(span, origin, request, deadlines, out);
        }
        if work.left() == 0 {
            self.origins.end(work.intake);
        } else {
            self.pending = Some(work);
        }
    }

    fn put(&mut self, span: Span, origin: Origin, request: &Spans, deadlines: Deadlines, out: &mut Outbox) {
        let resource = self.origins.resource_of(origin);
        let bytes = request.get(span.at);
        let (resource_hash, scope_hash) = (self.origins.resource_hash(resource), self.origins.hash_of(origin));
        let new = NewSpan { span, bytes, resource, resource_hash, scope_hash };
        let tree = match self.trees.add(new, deadlines, &self.sent) {
            AddResult::Added(tree) => tree,
            AddResult::WithEqualId(tree) => {
                out.note(EQUAL_IDS, 1);
                tree
            }
            AddResult::Resent => {
                out.drop(Reason::Resent, Quantities::spans(1));
                return self.origins.release(origin);
            }
        };
        let is_full = |tree: &Tree| tree.spans.len() >= self.settings.max_spans || tree.encoded_bytes >= MAX_TREE_BYTES;
        if self.trees.get(tree).is_some_and(is_full) {
            out.note(CLOSED_EARLY, 1);
            self.close(tree, out);
        }
        let max_bytes = self.settings.max_bytes as usize;
        while self.open_bytes() > max_bytes && !self.trees.is_empty() && !self.closed.are_enough() {
            self.close_next_early(out);
        }
    }

    fn close_next_early(&mut self, out: &mut Outbox) {
        out.note(CLOSED_EARLY, 1);
        self.close_next(out);
    }

    /// Closes the transaction with the earliest deadline.
    fn close_next(&mut self, out: &mut Outbox) {
        if let Some(tree) = self.trees.first_due() {
            self.close(tree, out);
        }
    }

    fn close(&mut self, tree: u32, out: &mut Outbox) {
        let Some(tree) = self.trees.close(tree) else { return };
        match tree.top {
            TreeTop::Root => {}
            TreeTop::Missing { has_left: true, .. } => out.note(LATE, 1),
            TreeTop::Missing { has_left: false, .. } | TreeTop::Circle => out.note(WITHOUT_ROOT, 1),
        }
        let resource = self.origins.resource_hash(tree.resource);
        for span in &tree.spans {
            let scope = self.origins.hash_of(Origin::of(span.scope));
            self.sent.remember((resource, tree.trace_id, span.span_id), scope, &span.bytes);
        }
        self.closed.push(tree);
    }

    fn send(&mut self, out: &mut Outbox) {
        if let Some(batch) = self.closed.batch(&mut self.origins, out) {
            out.send(batch);
        }
    }
}

/// Separates the spans that belong to no transaction, because they were received in Sentry containers and will be sent
/// in such containers again.
fn split_container_spans(mut spans: Spans) -> (Option<Spans>, Spans) {
    if !spans.spans().iter().any(|span| span.is_streamed) {
        return (None, spans);
    }
    let mut others = spans.clone();
    others.retain(|_, span| !span.is_streamed);
    spans.retain(|_, span| span.is_streamed);
    (Some(spans), others)
}

impl Processor for Transactions {
    fn fit_memory(&mut self, limit: u64) {
        self.settings.fit_memory(limit);
        self.sent = SentSpans::new(self.settings.max_sent);
    }

    fn process(&mut self, telemetry: Telemetry, now: Now, out: &mut Outbox) {
        match telemetry {
            Telemetry::Spans(spans) if spans.form() == SpanForm::Otlp && spans.client.is_none() => {
                match split_container_spans(spans) {
                    (None, spans) => self.take(spans, now, out),
                    (Some(streamed), others) => {
                        out.send(streamed);
                        // One call sends one batch, so the others are accepted in the next call.
                        if !others.is_empty() {
                            self.begin(others);
                        }
                    }
                }
            }
            // Sentry's SDKs create transactions themselves, and their standalone spans (version 2) belong to none. A
            // client that sends to Sentry's OTLP endpoint decides itself how its spans get there.
            other => out.send(other),
        }
    }

    fn is_absorbing(&self) -> bool {
        self.pending.is_some()
    }

    fn due(&self) -> Option<u64> {
        if self.is_absorbing() || !self.closed.is_empty() { Some(0) } else { self.trees.due() }
    }

    /// Sends the transactions that are due, and accepts more of the pending request.
    fn advance(&mut self, now: Now, out: &mut Outbox) {
        while !self.closed.are_enough() && self.trees.due().is_some_and(|due| due <= now.monotonic_nano) {
            self.close_next(out);
        }
        self.absorb(now, out);
        self.send(out);
    }

    /// Under memory pressure, sends the transactions with the earliest deadlines until half of the size is left.
    /// Returns whether more has to be sent.
    fn on_memory_pressure(&mut self, _now: Now, out: &mut Outbox) -> bool {
        let enough = *self.pressure_target.get_or_insert(self.trees.tree_bytes() / 2);
        while !self.closed.are_enough() && self.trees.tree_bytes() > enough {
            self.close_next_early(out);
        }
        self.send(out);
        let more = !self.closed.is_empty() || self.trees.tree_bytes() > enough;
        if !more {
            self.pressure_target = None;
        }
        more
    }

    fn flush(&mut self, now: Now, out: &mut Outbox) -> bool {
        self.pressure_target = None;
        if self.is_absorbing() {
            self.advance(now, out);
            return true;
        }
        while !self.closed.are_enough() && !self.trees.is_empty() {
            self.close_next(out);
        }
        self.send(out);
        !self.closed.is_empty() || !self.trees.is_empty()
    }

    /// The buffered data. The size of a pending request is charged to its sender.
    fn held(&self) -> Held {
        let pending = self.pending.as_deref();
        let spans = self.trees.spans() + self.closed.spans() + pending.map_or(0, PendingRequest::left);
        let request = pending.map_or(0, |work| size_of::<PendingRequest>() + work.intake.bytes());
        let bytes = self.open_bytes() + self.closed.bytes() + self.sent.bytes() + request;
        Held { quantities: Quantities::spans(spans), bytes: bytes as u64 }
    }
}
