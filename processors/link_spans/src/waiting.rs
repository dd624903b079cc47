//! Spans that wait for the profiles of their time, each in what it came in.

use std::num::NonZeroU64;
use std::sync::Arc;

use profbridge_engine::component::Outbox;
use profbridge_identity::Side;
use profbridge_model::envelope::{ClientProcess, Viewed};
use profbridge_model::spans::ProfilerLink;
use profbridge_model::{Quantities, SpanForm, Spans, Telemetry};
use profbridge_wire::spans::{self, SpanView};

use crate::covered::Stretch;
use crate::index::{Index, NotFound, Wanted};
use crate::report::{Cause, Report};
use crate::thread::{Ran, Runtime, Way, thread};

/// Notes: spans that were linked, by how their thread was found, and those that were not, by why.
pub(crate) mod notes {
    /// The span names the system's id of its thread.
    pub(crate) const BY_NATIVE_ID: &str = "spans_linked_by_native_id";
    /// The thread pointer that a span of Python's names as its `thread.id`.
    pub(crate) const BY_POINTER: &str = "spans_linked_by_python_ident";
    /// The same, where nothing else says which process of the host it is.
    pub(crate) const BY_POINTER_ON_HOST: &str = "spans_linked_by_python_ident_on_host";
    /// The span's `thread.id`.
    pub(crate) const BY_ID: &str = "spans_linked_by_thread_id";
    /// The only thread of that name.
    pub(crate) const BY_NAME: &str = "spans_linked_by_thread_name";
    /// The main thread.
    pub(crate) const BY_MAIN: &str = "spans_linked_to_main_thread";
    /// Several profilers observed the process, of which the one that observes waiting threads was taken, if one does.
    pub(crate) const SEVERAL: &str = "spans_linked_with_one_of_several_profilers";
    /// The profiler only: nobody knows the thread.
    pub(crate) const NO_THREAD: &str = "spans_linked_without_thread";
    /// The span named a profiler already.
    pub(crate) const HAD_PROFILER: &str = "spans_with_profiler";
    /// The span does not say of which process it is.
    pub(crate) const UNNAMED: &str = "spans_unlinked_unnamed_process";
    /// No profile of its process came.
    pub(crate) const NO_PROCESS: &str = "spans_unlinked_no_profiles";
    /// No profile of its time came before it had waited long enough.
    pub(crate) const NOT_COVERED: &str = "spans_unlinked_not_in_time";
    /// Its thread was not observed in its time.
    pub(crate) const UNOBSERVED: &str = "spans_unlinked_unobserved";
    /// It could be of several processes that were observed in its time.
    pub(crate) const AMBIGUOUS: &str = "spans_unlinked_ambiguous";
    /// Spans that went on before they had waited long enough, for want of memory.
    pub(crate) const EARLY: &str = "spans_not_waited_for";
}

/// What decides.
pub(crate) struct Deciding<'a> {
    pub(crate) index: &'a Index,
    pub(crate) main_thread: bool,
    /// The monotonic time.
    pub(crate) now: u64,
    /// Whether what is not known yet is not waited for.
    pub(crate) at_last: bool,
}

/// A program that made spans: what it says of its process, and what its language is.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Program {
    pub(crate) side: Side,
    pub(crate) runtime: Runtime,
}

/// A span that is not decided yet.
#[derive(Debug, Clone, Copy)]
struct Undecided {
    position: u32,
    /// The pointer of its thread, where it says that.
    pointer: Option<NonZeroU64>,
}

/// What is known of a batch of spans.
#[derive(Debug)]
struct Batch {
    /// By the batch's resources.
    programs: Vec<Program>,
    undecided: Vec<Undecided>,
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
    /// Of telemetry that came. What names a profiler, or no process, is decided at once.
    /// `see` is shown each span, with who made it and the pointer of its thread, where the span says that.
    pub(crate) fn new(
        mut telemetry: Telemetry,
        deadline: u64,
        now: u64,
        see: &mut impl FnMut(&SpanView<'_>, &Program, Option<NonZeroU64>),
        report: &mut Report,
        out: &mut Outbox,
    ) -> Self {
        let client = match &telemetry {
            Telemetry::Envelope(envelope) => envelope.meta.client_process.clone(),
            Telemetry::Spans(_) | Telemetry::Profiles(_) => None,
        };
        let look = |spans: &mut Spans| first_look(spans, client.as_ref(), now, see, report, out);
        let batches: Vec<_> = batches(&mut telemetry).into_iter().map(look).collect();
        let memory = |batch: &Batch| size_of_val(&*batch.programs) + size_of_val(&*batch.undecided);
        let memory = batches.iter().map(memory).sum::<usize>();
        let bytes = telemetry.size_bytes() + memory as u64 + size_of::<Self>() as u64;
        Self { telemetry, batches, deadline, bytes }
    }

    /// Decides what can be decided. Whether all is.
    pub(crate) fn decide(&mut self, deciding: &Deciding<'_>, report: &mut Report, out: &mut Outbox) -> bool {
        for (spans, Batch { programs, undecided }) in batches(&mut self.telemetry).into_iter().zip(&mut self.batches) {
            undecided.retain(|span| !decide(spans, *span, programs, deciding, report, out));
        }
        self.batches.iter().all(|batch| batch.undecided.is_empty())
    }

    /// How many spans are not decided.
    pub(crate) fn undecided(&self) -> u64 {
        self.batches.iter().map(|batch| batch.undecided.len() as u64).sum()
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(crate) fn quantities(&self) -> Quantities {
        self.telemetry.quantities()
    }

    pub(crate) fn into_telemetry(self) -> Telemetry {
        self.telemetry
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
    see: &mut impl FnMut(&SpanView<'_>, &Program, Option<NonZeroU64>),
    report: &mut Report,
    out: &mut Outbox,
) -> Batch {
    let mut programs: Vec<Option<Program>> = vec![None; spans.resources().len()];
    let (mut had, mut unnamed, mut undecided) = (0, 0, Vec::new());
    for (position, span) in spans.spans().iter().enumerate() {
        let view = SpanView::of(spans, span);
        let resource = spans.scope_of(span).resource as usize;
        let program = *programs[resource].get_or_insert_with(|| program(&view, client));
        let pointer = program.runtime.pointer(&view);
        see(&view, &program, pointer);
        let named = || pointer.and_then(|pointer| program.side.thread_name(pointer)).is_some();
        if view.profiler_id().is_some() {
            had += 1;
        } else if program.side.names().next().is_none() && !named() {
            unnamed += 1;
            let cause = if spans.form() == SpanForm::Otlp { Cause::NoPid } else { Cause::SentryNoPid };
            report.missed(&program.side, cause, now, || called(&view));
        } else {
            undecided.push(Undecided { position: position as u32, pointer });
        }
    }
    out.note(notes::HAD_PROFILER, had);
    out.note(notes::UNNAMED, unnamed);
    Batch { programs: programs.into_iter().map(Option::unwrap_or_default).collect(), undecided }
}

/// Who made a span, the first of its resource: of a transaction that is the transaction itself, which says it for all of
/// its spans. `client` is the process that sent it, where that is known.
fn program(view: &SpanView<'_>, client: Option<&ClientProcess>) -> Program {
    let process = spans::process(view);
    let side = process.map_or_else(Side::default, |process| Side::of(&process.dictionary, process.attributes.iter()));
    let side = client.map_or(side, |client| side.of_process(&client.host, client.pid));
    Program { side, runtime: Runtime::of(view.language().as_deref()) }
}

/// What a span is called, and its service's name where it says that.
fn called(view: &SpanView<'_>) -> String {
    match view.service_name() {
        Some(service) => format!("{}, {service}", view.name()),
        None => view.name(),
    }
}

/// Decides about one span; `false` where it has to wait.
fn decide(
    spans: &mut Spans,
    Undecided { position, pointer }: Undecided,
    programs: &[Program],
    deciding: &Deciding<'_>,
    report: &mut Report,
    out: &mut Outbox,
) -> bool {
    let Deciding { index, main_thread, now, at_last } = *deciding;
    let position = position as usize;
    let Some(span) = spans.spans().get(position) else { return true };
    let Program { side, runtime } = &programs[spans.scope_of(span).resource as usize];
    let during = Stretch { start: span.start_unix_nano, end: span.end_unix_nano };
    let wanted = Wanted { side, pointer };
    let found = match index.find(wanted, during, at_last) {
        Ok(found) => found,
        Err(NotFound::Unknown | NotFound::NotCovered) if !at_last => return false,
        Err(why) => {
            let alone = side.names().next().is_none();
            let (note, cause) = match why {
                NotFound::Unknown if alone => (notes::NO_PROCESS, Cause::NoSuchPointer),
                NotFound::Unknown => (notes::NO_PROCESS, Cause::NoSuchProcess),
                NotFound::NotCovered => (notes::NOT_COVERED, Cause::Late),
                NotFound::Unobserved => (notes::UNOBSERVED, Cause::Unobserved),
                NotFound::Ambiguous if alone => (notes::AMBIGUOUS, Cause::SharedPointer),
                NotFound::Ambiguous => (notes::AMBIGUOUS, Cause::Ambiguous),
            };
            out.note(note, 1);
            report.missed(side, cause, now, || called(&SpanView::of(spans, span)));
            return true;
        }
    };
    let (ran_on, note) = match thread(
        &found,
        &SpanView::of(spans, span),
        *runtime,
        pointer,
        main_thread.then_some(side.pid()).flatten(),
    ) {
        Ran::On(thread, way) => (
            Some(thread),
            match way {
                Way::NativeId => notes::BY_NATIVE_ID,
                Way::Pointer => notes::BY_POINTER,
                Way::PointerOnHost => notes::BY_POINTER_ON_HOST,
                Way::Id => notes::BY_ID,
                Way::Name => notes::BY_NAME,
                Way::Main => notes::BY_MAIN,
            },
        ),
        Ran::Unknown => (None, notes::NO_THREAD),
        Ran::Unobserved => {
            out.note(notes::UNOBSERVED, 1);
            report.missed(side, Cause::Unobserved, now, || called(&SpanView::of(spans, span)));
            return true;
        }
    };
    out.note(note, 1);
    out.note(notes::SEVERAL, found.several.into());
    report.linked(side, now);
    let link = ProfilerLink {
        profiler_id: found.profiler_id(),
        thread_id: ran_on.map(|thread| Arc::from(thread.id)),
        thread_name: ran_on.and_then(|thread| thread.name).map(Arc::from),
    };
    spans.change(position, |changes| changes.profiler = Some(link));
    true
}
