//! Spans that wait for the profiles of their time, each in what it came in.

use std::num::NonZeroU64;

use hashbrown::HashMap;
use profbridge_engine::component::Outbox;
use profbridge_identity::ProcessClaims;
use profbridge_model::envelope::{ClientProcess, Viewed};
use profbridge_model::{Quantities, SpanForm, Spans, Telemetry};
use profbridge_wire::spans::{self, SpanView};

use crate::deciding::{Batch, Deciding, Undecided};
use crate::notes;
use crate::report::{Cause, Report};
use crate::thread::Runtime;

/// A program that made spans: what it says of its process, and what its language is.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Program {
    pub(crate) claims: ProcessClaims,
    pub(crate) runtime: Runtime,
}

impl Program {
    /// Whether something that it says may name a process that profiles are of. `pointer` is that of a span's thread.
    pub(crate) fn is_named(&self, pointer: Option<NonZeroU64>) -> bool {
        self.claims.names().next().is_some() || pointer.and_then(|pointer| self.claims.thread_name(pointer)).is_some()
    }
}

/// Telemetry with spans, some of which are not decided yet.
#[derive(Debug)]
pub(crate) struct Waiting {
    telemetry: Telemetry,
    batches: Vec<Batch>,
    /// Until when it waits, in the monotonic time.
    pub(crate) deadline: u64,
    bytes: u64,
}

impl Waiting {
    /// Of telemetry that came. What names a profiler is decided at once, and so is what names no process, unless
    /// samples name any span. `see` is shown each span, with who made it and the pointer of its thread, where the span
    /// says that.
    pub(crate) fn new(
        mut telemetry: Telemetry,
        deadline: u64,
        now: u64,
        samples_name_spans: bool,
        see: &mut impl FnMut(&SpanView<'_>, &Program, Option<NonZeroU64>),
        report: &mut Report,
        out: &mut Outbox,
    ) -> Self {
        let client = client(&telemetry);
        let look = |spans: &mut Spans| first_look(spans, client.as_ref(), now, samples_name_spans, see, report, out);
        let batches: Vec<_> = batches(&mut telemetry).into_iter().map(look).collect();
        let memory = |batch: &Batch| size_of_val(&*batch.programs) + size_of_val(&*batch.undecided);
        let memory = batches.iter().map(memory).sum::<usize>();
        let bytes = telemetry.size_bytes() + memory as u64 + size_of::<Self>() as u64;
        Self { telemetry, batches, deadline, bytes }
    }

    /// Decides what can be decided. Whether all is.
    pub(crate) fn decide(&mut self, deciding: &Deciding<'_>, report: &mut Report, out: &mut Outbox) -> bool {
        for (spans, batch) in batches(&mut self.telemetry).into_iter().zip(&mut self.batches) {
            batch.decide(spans, deciding, report, out);
        }
        self.undecided() == 0
    }

    /// How many spans are not decided.
    pub(crate) fn undecided(&self) -> u64 {
        self.batches.iter().map(|batch| batch.undecided.len() as u64).sum()
    }

    pub(crate) fn bytes(&self) -> u64 {
        // These come as spans are decided.
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

/// The process that sent telemetry, where the receiver found it.
pub(crate) fn client(telemetry: &Telemetry) -> Option<ClientProcess> {
    match telemetry {
        Telemetry::Envelope(envelope) => envelope.meta.client_process.clone(),
        Telemetry::Spans(_) | Telemetry::Profiles(_) => None,
    }
}

/// The batches of spans in telemetry.
pub(crate) fn batches(telemetry: &mut Telemetry) -> Vec<&mut Spans> {
    match telemetry {
        Telemetry::Spans(spans) => vec![spans],
        Telemetry::Envelope(envelope) => {
            let views = envelope.views.iter_mut();
            views
                .filter_map(|view| if let Viewed::Spans(spans) = &mut view.what { Some(spans) } else { None })
                .collect()
        }
        Telemetry::Profiles(_) => Vec::new(),
    }
}

/// Who made a batch, and its spans that may find a profiler.
fn first_look(
    spans: &Spans,
    client: Option<&ClientProcess>,
    now: u64,
    samples_name_spans: bool,
    see: &mut impl FnMut(&SpanView<'_>, &Program, Option<NonZeroU64>),
    report: &mut Report,
    out: &mut Outbox,
) -> Batch {
    let mut programs: Vec<Option<Program>> = vec![None; spans.resources().len()];
    let (mut had, mut undecided) = (0, Vec::new());
    for (position, span) in spans.spans().iter().enumerate() {
        let view = SpanView::of(spans, span);
        let resource = spans.scope_of(span).resource as usize;
        let program = *programs[resource].get_or_insert_with(|| program(&view, client));
        let pointer = program.runtime.pointer(&view);
        see(&view, &program, pointer);
        if view.profiler_id().is_some() {
            had += 1;
        } else if samples_name_spans || program.is_named(pointer) {
            undecided.push(Undecided { position: position as u32, pointer, is_named_by_samples: false });
        } else {
            unnamed(spans, &view, &program, now, report, out);
        }
    }
    out.note(notes::HAD_PROFILER, had);
    let programs = programs.into_iter().map(Option::unwrap_or_default).collect();
    Batch { programs, undecided, processes: HashMap::default() }
}

/// A span names no process.
pub(crate) fn unnamed(
    spans: &Spans,
    view: &SpanView<'_>,
    program: &Program,
    now: u64,
    report: &mut Report,
    out: &mut Outbox,
) {
    let cause = if spans.form() == SpanForm::Otlp { Cause::NoPid } else { Cause::SentryNoPid };
    report.missed(&program.claims, (notes::UNNAMED, cause), now, out, || called(view));
}

/// Who made a span, the first of its resource: of a transaction that is the transaction itself, which says it for all
/// of its spans. `client` is the process that sent it, where that is known.
fn program(view: &SpanView<'_>, client: Option<&ClientProcess>) -> Program {
    let process = spans::process(view);
    let claims = process.map_or_else(ProcessClaims::default, |process| {
        ProcessClaims::of(&process.dictionary, process.attributes.iter())
    });
    let claims = client.map_or(claims, |client| claims.of_process(&client.host, client.pid));
    Program { claims, runtime: Runtime::of(view.language().as_deref()) }
}

/// What a span is called, and its service's name where it says that.
pub(crate) fn called(view: &SpanView<'_>) -> String {
    match view.service_name() {
        Some(service) => format!("{}, {service}", view.name()),
        None => view.name(),
    }
}
