//! Buffers OTLP spans until the root span of their process has arrived, then keeps or drops them with it.
//!
//! A root span ends last, so its children arrive before it, perhaps in an earlier request. The root span decides for
//! all spans of its trace in its process. Waiting spans are copied, so that the buffers of their requests can be
//! released; equal resources are stored once ([`Origins`]).

use std::collections::{HashMap, VecDeque};

use profbridge_engine::component::{Now, Outbox};
use profbridge_model::spans::Origins;
use profbridge_model::spans::origins::OriginIntake;
use profbridge_model::{Quantities, Reason, Span, Spans, TraceId};
use profbridge_wire::sentry::trace_header::TraceHeader;
use profbridge_wire::spans::SpanView;

use crate::buffered::{BufferedSpans, SendQueue};
use crate::config::Settings;
use crate::decision::Decision;
use crate::lifecycle::TraceLifecycle;
use crate::processes::ProcessCache;
use crate::sampled_out::{BatchCounts, BufferedCounts};
use crate::sampler::{TraceSampler, rate_before};

/// The number of bytes of spans that one step absorbs or sends.
const STEP: usize = 1 << 20;

/// The number of traces that one step decides without their root spans.
const DECIDED: usize = 1024;

/// A trace in a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct TraceKey {
    pub(crate) process: u128,
    pub(crate) trace: TraceId,
}

#[derive(Debug)]
struct TraceSpans {
    /// The monotonic time at which the trace is decided without its root span, or its decision is dropped.
    until: u64,
    state: TraceState,
}

#[derive(Debug)]
enum TraceState {
    Waiting(BufferedSpans),
    Decided(Decided),
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Decided {
    pub(crate) decision: Decision,
    /// Whether the root span was unknown. Then no span represents the others, so each span gets the rate by which it
    /// was kept.
    pub(crate) rootless: bool,
}

/// A request whose spans are not all absorbed yet.
#[derive(Debug)]
struct PendingSpans {
    spans: Spans,
    keys: Vec<TraceKey>,
    at: usize,
}

/// The inputs of decisions about spans.
pub(crate) struct DecisionContext<'a> {
    pub(crate) sampler: &'a mut TraceSampler,
    pub(crate) processes: &'a mut ProcessCache,
    pub(crate) lifecycle: Option<&'a mut TraceLifecycle>,
}

/// Traces that are waiting or were decided recently.
#[derive(Debug)]
pub(crate) struct Traces {
    wait: u64,
    max_traces: usize,
    max_bytes: u64,
    known: HashMap<TraceKey, TraceSpans>,
    /// Traces by deadline. At least as long as `known`.
    order: VecDeque<(u64, TraceKey)>,
    origins: Origins,
    pending: Option<PendingSpans>,
    /// Kept spans that are sent next.
    ready: SendQueue,
    /// Counts of dropped spans, which are reported at the end of a call.
    sampled_out: BufferedCounts,
    waiting_spans: u64,
    waiting_bytes: usize,
    /// During memory pressure, the target for the number of waiting bytes.
    pressure_target: Option<usize>,
}

impl Traces {
    pub(crate) fn new(settings: &Settings) -> Self {
        Self {
            wait: settings.decision_wait,
            max_traces: settings.max_traces,
            max_bytes: settings.max_bytes,
            known: HashMap::new(),
            order: VecDeque::new(),
            origins: Origins::default(),
            pending: None,
            ready: SendQueue::default(),
            sampled_out: BufferedCounts::default(),
            waiting_spans: 0,
            waiting_bytes: 0,
            pressure_target: None,
        }
    }

    pub(crate) fn fit_memory(&mut self, limit: u64) {
        self.max_bytes = self.max_bytes.min(limit / 4);
    }

    pub(crate) fn is_absorbing(&self) -> bool {
        self.pending.is_some()
    }

    pub(crate) fn spans(&self) -> u64 {
        let left = self.pending.as_ref().map_or(0, |work| work.spans.spans().len() - work.at);
        self.waiting_spans + self.ready.spans() + left as u64
    }

    pub(crate) fn bytes(&self) -> u64 {
        let pending = self
            .pending
            .as_ref()
            .map_or(0, |work| work.spans.size_bytes() as usize + work.keys.capacity() * size_of::<TraceKey>());
        let known = self.known.capacity() * (size_of::<(TraceKey, TraceSpans)>() + 1);
        let order = self.order.capacity() * size_of::<(u64, TraceKey)>();
        (self.origins.bytes() + self.waiting_bytes + self.ready.memory() + known + order + pending) as u64
    }

    pub(crate) fn due(&self) -> Option<u64> {
        if self.is_absorbing() || !self.ready.is_empty() {
            return Some(0);
        }
        self.order.front().map(|(until, _)| *until)
    }

    /// Accepts a batch: spans of decided traces are sent or dropped at once, the others wait.
    pub(crate) fn process(&mut self, mut spans: Spans, context: &mut DecisionContext<'_>, now: Now, out: &mut Outbox) {
        let keys = self.keys(&spans, context.processes);
        self.decide_by_roots(&spans, &keys, context, now, out);
        let decisions: Vec<Option<Decided>> = keys.iter().map(|key| self.decided(key)).collect();
        let mut rates = Vec::new();
        for (position, span) in spans.spans().iter().enumerate() {
            let Some(Decided { decision, rootless }) = decisions[position].filter(|of| of.decision.kept) else {
                continue;
            };
            let is_root = span.is_local_root();
            let rate = decision.rate.filter(|_| is_root || rootless);
            let lifecycle = context.lifecycle.as_deref_mut().filter(|_| is_root);
            if rate.is_none() && lifecycle.is_none() {
                continue;
            }
            let view = SpanView::of(&spans, span);
            if let Some(rate) = rate {
                rates.push((position, rate * rate_before(&view, &TraceHeader::default()).unwrap_or(1.0)));
            }
            if let Some(lifecycle) = lifecycle {
                lifecycle.add_root(&context.processes.names(&view, &spans), span, now, out);
            }
        }
        rates.into_iter().for_each(|(position, rate)| spans.change(position, |of| of.sample_rate = Some(rate)));
        let mut sampled_out = BatchCounts::default();
        for (span, _) in spans.spans().iter().zip(&decisions).filter(|(_, of)| of.is_some_and(|of| !of.decision.kept)) {
            sampled_out.add(&spans, span);
        }
        out.drop(Reason::SampleRate, Quantities::spans(sampled_out.total().spans));
        sampled_out.report(&spans, out);
        if decisions.iter().any(Option::is_none) {
            let mut waiting = spans.clone();
            waiting.retain(|position, _| decisions[position].is_none());
            let keys = keys.iter().zip(&decisions).filter(|(_, of)| of.is_none()).map(|(key, _)| *key).collect();
            self.pending = Some(PendingSpans { spans: waiting, keys, at: 0 });
        }
        spans.retain(|position, _| decisions[position].is_some_and(|of| of.decision.kept));
        if !spans.is_empty() {
            out.send(spans);
        }
        self.absorb(now, context.sampler, out);
        self.sampled_out.report(&mut self.origins, out);
    }

    fn keys(&self, spans: &Spans, processes: &mut ProcessCache) -> Vec<TraceKey> {
        let mut known = vec![None; spans.resources().len()];
        let all = spans.spans().iter();
        all.map(|span| {
            let resource = spans.scope_of(span).resource as usize;
            let process = *known[resource].get_or_insert_with(|| processes.identify(spans, span).identity);
            TraceKey { process, trace: span.trace_id }
        })
        .collect()
    }

    /// Decides about the traces whose root spans are in a batch. If a trace has several root spans in one process, the
    /// earliest one decides, because the others are below it.
    fn decide_by_roots(
        &mut self,
        spans: &Spans,
        keys: &[TraceKey],
        context: &mut DecisionContext<'_>,
        now: Now,
        out: &mut Outbox,
    ) {
        let mut roots: HashMap<TraceKey, usize> = HashMap::new();
        for (position, span) in spans.spans().iter().enumerate() {
            let key = keys[position];
            if span.is_local_root() && self.decided(&key).is_none() {
                let first = roots.entry(key).or_insert(position);
                if span.start_unix_nano < spans.spans()[*first].start_unix_nano {
                    *first = position;
                }
            }
        }
        let mut roots: Vec<(usize, TraceKey)> = roots.into_iter().map(|(key, position)| (position, key)).collect();
        roots.sort_unstable_by_key(|(position, _)| *position);
        for (position, key) in roots {
            let view = SpanView::of(spans, &spans.spans()[position]);
            let decision = context.sampler.decide(&view, true, &TraceHeader::default(), out);
            self.set_decided(key, Decided { decision, rootless: false }, now, out);
        }
    }

    /// The decision about a trace, if there is one.
    pub(crate) fn decided(&self, key: &TraceKey) -> Option<Decided> {
        match self.known.get(key)?.state {
            TraceState::Decided(decided) => Some(decided),
            TraceState::Waiting(_) => None,
        }
    }

    /// Stores a decision, and releases the spans that waited for it.
    pub(crate) fn set_decided(&mut self, key: TraceKey, decided: Decided, now: Now, out: &mut Outbox) {
        let until = now.monotonic_nano.saturating_add(self.wait);
        self.order.push_back((until, key));
        let before = self.known.insert(key, TraceSpans { until, state: TraceState::Decided(decided) });
        if let Some(TraceSpans { state: TraceState::Waiting(buffered), .. }) = before {
            self.release(buffered, decided.decision, out);
        }
    }

    /// Sends or drops spans that waited.
    fn release(&mut self, buffered: BufferedSpans, decision: Decision, out: &mut Outbox) {
        self.waiting_spans -= buffered.len();
        self.waiting_bytes -= buffered.memory();
        if decision.kept {
            self.ready.push(buffered);
        } else {
            buffered.count_as_sampled_out(&mut self.origins, &mut self.sampled_out);
            out.drop(Reason::SampleRate, Quantities::spans(buffered.len()));
        }
    }

    /// Absorbs as many spans of a pending request as one step allows.
    fn absorb(&mut self, now: Now, sampler: &mut TraceSampler, out: &mut Outbox) {
        let Some(mut work) = self.pending.take() else { return };
        let mut intake = OriginIntake::default();
        let mut sampled_out = BatchCounts::default();
        let mut bytes = 0;
        while bytes < STEP
            && let Some(span) = work.spans.spans().get(work.at)
        {
            let key = work.keys[work.at];
            work.at += 1;
            bytes += span.at.len as usize + size_of::<Span>();
            let until = now.monotonic_nano.saturating_add(self.wait);
            let trace = self.known.entry(key).or_insert_with(|| {
                self.order.push_back((until, key));
                TraceSpans { until, state: TraceState::Waiting(BufferedSpans::of(work.spans.peer.as_ref())) }
            });
            match &mut trace.state {
                TraceState::Waiting(buffered) => {
                    let before = buffered.memory();
                    buffered.push(&mut self.origins, &mut intake, &work.spans, span);
                    self.waiting_bytes += buffered.memory() - before;
                    self.waiting_spans += 1;
                }
                // The trace was decided after this request arrived, by timeout or for lack of room.
                TraceState::Decided(Decided { decision: Decision { kept: false, .. }, .. }) => {
                    sampled_out.add(&work.spans, span);
                }
                TraceState::Decided(Decided { decision, .. }) => {
                    let mut buffered = BufferedSpans::of(work.spans.peer.as_ref());
                    buffered.push(&mut self.origins, &mut intake, &work.spans, span);
                    buffered.set_rate(decision.rate);
                    self.ready.push(buffered);
                }
            }
        }
        self.origins.end(intake);
        out.drop(Reason::SampleRate, Quantities::spans(sampled_out.total().spans));
        sampled_out.report(&work.spans, out);
        if work.at < work.spans.spans().len() {
            self.pending = Some(work);
        }
        self.enforce_bounds(now, sampler, out);
    }

    /// Decides traces early, the oldest first, if too many spans wait or too many traces are known.
    pub(crate) fn enforce_bounds(&mut self, now: Now, sampler: &mut TraceSampler, out: &mut Outbox) {
        let mut early = 0;
        while self.known.len() > self.max_traces || (self.waiting_bytes + self.origins.bytes()) as u64 > self.max_bytes
        {
            if self.waiting_spans == 0 && self.known.len() <= self.max_traces {
                break;
            }
            match self.next(u64::MAX, now, sampler, out) {
                Some(had_spans) => early += u64::from(had_spans),
                None => break,
            }
        }
        out.note(crate::DECIDED_EARLY, early);
    }

    /// Takes the next trace whose deadline is at or before `time`: decides it without its root span, or drops its
    /// decision. Returns whether spans of this trace had waited; `None` if there is no such trace.
    fn next(&mut self, time: u64, now: Now, sampler: &mut TraceSampler, out: &mut Outbox) -> Option<bool> {
        while let Some((until, key)) = self.order.front().copied().filter(|(until, _)| *until <= time) {
            self.order.pop_front();
            if self.known.get(&key).is_none_or(|trace| trace.until != until) {
                continue;
            }
            return Some(match self.known.remove(&key)?.state {
                TraceState::Decided(_) => false,
                TraceState::Waiting(mut buffered) => {
                    let decision = self.decide_rootless(&buffered, sampler, out);
                    out.note(crate::WITHOUT_ROOT, 1);
                    buffered.set_rate(decision.rate);
                    self.release(buffered, decision, out);
                    // Late spans get the same decision. Storing the decision needs little memory compared with the
                    // spans.
                    if self.known.len() < self.max_traces {
                        self.set_decided(key, Decided { decision, rootless: true }, now, out);
                    }
                    true
                }
            });
        }
        None
    }

    /// Decides about spans without a known root span, by the first of these spans.
    fn decide_rootless(&self, buffered: &BufferedSpans, sampler: &mut TraceSampler, out: &mut Outbox) -> Decision {
        let Some(first) = buffered.first(&self.origins) else { return Decision::KEPT };
        let Some(span) = first.spans().first() else { return Decision::KEPT };
        sampler.decide(&SpanView::of(&first, span), false, &TraceHeader::default(), out)
    }

    /// Continues a pending request, decides traces whose deadline has passed, and sends a batch of kept spans.
    pub(crate) fn advance(&mut self, now: Now, sampler: &mut TraceSampler, out: &mut Outbox) {
        self.absorb(now, sampler, out);
        for _ in 0..DECIDED {
            if self.next(now.monotonic_nano, now, sampler, out).is_none() {
                break;
            }
        }
        self.ready.send(&mut self.origins, STEP, out);
        self.sampled_out.report(&mut self.origins, out);
        self.shrink();
    }

    /// Releases the memory that a burst needed.
    fn shrink(&mut self) {
        if self.known.len() < self.known.capacity() / 4 {
            self.known.shrink_to(self.known.len() * 2);
            self.order.shrink_to(self.order.len() * 2);
        }
    }

    /// Decides the oldest half of the waiting spans, in steps. Returns whether there is more to do.
    pub(crate) fn on_memory_pressure(&mut self, now: Now, sampler: &mut TraceSampler, out: &mut Outbox) -> bool {
        let target = *self.pressure_target.get_or_insert(self.waiting_bytes / 2);
        let mut early = 0;
        while self.ready.memory() < STEP && self.waiting_bytes > target {
            match self.next(u64::MAX, now, sampler, out) {
                Some(had_spans) => early += u64::from(had_spans),
                None => break,
            }
        }
        out.note(crate::DECIDED_EARLY, early);
        self.ready.send(&mut self.origins, STEP, out);
        self.sampled_out.report(&mut self.origins, out);
        let more = !self.ready.is_empty() || self.waiting_bytes > target;
        if !more {
            self.pressure_target = None;
            self.shrink();
        }
        more
    }

    /// Decides all waiting spans, in steps. Returns whether there is more to do.
    pub(crate) fn flush(&mut self, now: Now, sampler: &mut TraceSampler, out: &mut Outbox) -> bool {
        self.absorb(now, sampler, out);
        while self.ready.memory() < STEP && self.waiting_spans > 0 {
            if self.next(u64::MAX, now, sampler, out).is_none() {
                break;
            }
        }
        self.ready.send(&mut self.origins, STEP, out);
        self.sampled_out.report(&mut self.origins, out);
        let more = self.is_absorbing() || self.waiting_spans > 0 || !self.ready.is_empty();
        if !more {
            (self.known, self.order) = (HashMap::new(), VecDeque::new());
        }
        more
    }
}
