//! Spans that wait for the profiles of their time, kept in the telemetry they arrived in.

use std::num::NonZeroU64;
use std::sync::Arc;

use hashbrown::HashMap;
use profbridge_engine::component::Outbox;
use profbridge_identity::ProcessClaims;
use profbridge_model::envelope::{ClientProcess, Viewed};
use profbridge_model::{Quantities, SpanForm, Spans, Telemetry};
use profbridge_wire::spans::{self, SpanView};

use crate::deciding::{SpanDecider, UndecidedBatch, UndecidedSpan};
use crate::notes;
use crate::report::{Cause, LinkReport};
use crate::thread::{SdkProfiler, SdkRuntime};

/// A program that made spans: the identity of its process, and its language.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct TracedProgram {
    pub(crate) claims: ProcessClaims,
    pub(crate) runtime: SdkRuntime,
}

impl TracedProgram {
    /// Whether its attributes or the thread pointer of a span can identify a profiled process.
    pub(crate) fn is_named(&self, pointer: Option<NonZeroU64>) -> bool {
        self.claims.names().next().is_some() || pointer.and_then(|pointer| self.claims.thread_name(pointer)).is_some()
    }
}

/// Telemetry with spans, some of which are not decided yet.
#[derive(Debug)]
pub(crate) struct WaitingSpans {
    telemetry: Telemetry,
    batches: Vec<UndecidedBatch>,
    /// Until when it waits, in monotonic time.
    pub(crate) deadline: u64,
    bytes: u64,
}

impl WaitingSpans {
    /// Accepts telemetry. Spans that name a profiler are decided at once, unless their thread is wanted, and so are
    /// spans without a process, unless samples name spans. `on_span` is called for each span with its program.
    pub(crate) fn new(
        mut telemetry: Telemetry,
        deadline: u64,
        now: u64,
        samples_name_spans: bool,
        on_span: &mut impl FnMut(&SpanView<'_>, &TracedProgram),
        report: &mut LinkReport,
        out: &mut Outbox,
    ) -> Self {
        let client = client(&telemetry);
        let classify =
            |spans: &mut Spans| find_undecided(spans, &client, now, samples_name_spans, on_span, report, out);
        let batches: Vec<_> = batches(&mut telemetry).into_iter().map(classify).collect();
        let memory = |batch: &UndecidedBatch| size_of_val(&*batch.programs) + size_of_val(&*batch.undecided);
        let memory = batches.iter().map(memory).sum::<usize>();
        let bytes = telemetry.size_bytes() + memory as u64 + size_of::<Self>() as u64;
        Self { telemetry, batches, deadline, bytes }
    }

    /// Decides the spans for which enough is known. Returns whether all are decided.
    pub(crate) fn decide(&mut self, decider: &mut SpanDecider<'_>) -> bool {
        for (spans, batch) in batches(&mut self.telemetry).into_iter().zip(&mut self.batches) {
            batch.decide(spans, decider);
        }
        self.undecided() == 0
    }

    /// The number of undecided spans.
    pub(crate) fn undecided(&self) -> u64 {
        self.batches.iter().map(|batch| batch.undecided.len() as u64).sum()
    }

    pub(crate) fn bytes(&self) -> u64 {
        // `processes` grows while spans are decided, so it is counted here.
        let processes = self.batches.iter().map(|batch| batch.processes.allocation_size() as u64);
        self.bytes + processes.sum::<u64>()
    }

    pub(crate) fn quantities(&self) -> Quantities {
        self.telemetry.quantities()
    }

    pub(crate) fn into_telemetry(self) -> Telemetry {
        self.telemetry
    }
}

/// What the receiver found out about the client of Sentry's that sent telemetry.
#[derive(Debug, Clone, Default)]
pub(crate) struct Client {
    pub(crate) process: Option<ClientProcess>,
    /// The host that it sent from.
    host: Option<Arc<str>>,
}

/// The client that sent the telemetry.
pub(crate) fn client(telemetry: &Telemetry) -> Client {
    let meta = match telemetry {
        Telemetry::Envelope(envelope) => Some(&envelope.meta),
        Telemetry::Spans(spans) => spans.client.as_deref(),
        _ => None,
    };
    meta.map_or_else(Client::default, |meta| Client {
        process: meta.client_process.clone(),
        host: meta.client_host.clone(),
    })
}

pub(crate) fn batches(telemetry: &mut Telemetry) -> Vec<&mut Spans> {
    match telemetry {
        Telemetry::Spans(spans) => vec![spans],
        Telemetry::Envelope(envelope) => {
            let views = envelope.views.iter_mut();
            views
                .filter_map(|view| if let Viewed::Spans(spans) = &mut view.what { Some(spans) } else { None })
                .collect()
        }
        _ => Vec::new(),
    }
}

/// The programs of a batch, and its spans that may find a profiler.
fn find_undecided(
    spans: &Spans,
    client: &Client,
    now: u64,
    samples_name_spans: bool,
    on_span: &mut impl FnMut(&SpanView<'_>, &TracedProgram),
    report: &mut LinkReport,
    out: &mut Outbox,
) -> UndecidedBatch {
    let mut programs: Vec<Option<TracedProgram>> = vec![None; spans.resources().len()];
    // The first span of a container may be one that does not name its host.
    if let ([program], SpanForm::SentrySpans) = (&mut programs[..], spans.form()) {
        let mut views = spans.spans().iter().map(|span| SpanView::of(spans, span));
        *program = views.find(|view| view.host_name().is_some()).map(|view| self::program(&view, client));
    }
    let (mut with_profiler, mut undecided) = (0, Vec::new());
    for (position, span) in spans.spans().iter().enumerate() {
        let view = SpanView::of(spans, span);
        let resource = spans.scope_of(span).resource as usize;
        let program = *programs[resource].get_or_insert_with(|| self::program(&view, client));
        let pointer = program.runtime.pointer(&view);
        on_span(&view, &program);
        let sdk = program.runtime.sdk_profiler(&view);
        if sdk == SdkProfiler::Unknown && view.profiler_id().is_some() {
            with_profiler += 1;
        } else if sdk != SdkProfiler::Unknown || samples_name_spans || program.is_named(pointer) {
            undecided.push(UndecidedSpan { position: position as u32, pointer, sdk, waits: false });
        } else {
            count_unnamed(spans, &view, &program, now, report, out);
        }
    }
    out.note(notes::HAD_PROFILER, with_profiler);
    let programs = programs.into_iter().map(Option::unwrap_or_default).collect();
    UndecidedBatch { programs, undecided, processes: HashMap::default() }
}

/// Counts a span that names no process.
pub(crate) fn count_unnamed(
    spans: &Spans,
    view: &SpanView<'_>,
    program: &TracedProgram,
    now: u64,
    report: &mut LinkReport,
    out: &mut Outbox,
) {
    let cause = if spans.form() == SpanForm::Otlp { Cause::NoPid } else { Cause::SentryNoPid };
    report.missed(&program.claims, (notes::UNNAMED, cause), now, out, || example_name(view));
}

/// The program of a span, the first of its resource. In a transaction, the transaction itself comes first and counts
/// for all of its spans.
fn program(view: &SpanView<'_>, client: &Client) -> TracedProgram {
    let process = spans::process(view, client.host.as_deref());
    let claims = process.map_or_else(ProcessClaims::default, |process| {
        ProcessClaims::of(&process.dictionary, process.attributes.iter())
    });
    let claims = client.process.as_ref().map_or(claims, |client| claims.of_process(&client.host, client.pid));
    TracedProgram { claims, runtime: SdkRuntime::of(view.language().as_deref()) }
}

/// The name of a span, with that of its service if there is one.
pub(crate) fn example_name(view: &SpanView<'_>) -> String {
    match view.service_name() {
        Some(service) => format!("{}, {service}", view.name()),
        None => view.name(),
    }
}
