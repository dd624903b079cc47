//! Decides about spans: which process and thread each belongs to as far as is known by now, or why none is found.

use std::num::NonZeroU64;
use std::sync::Arc;

use hashbrown::HashMap;
use profbridge_engine::component::Outbox;
use profbridge_model::dictionary::Link;
use profbridge_model::spans::ProfilerLink;
use profbridge_model::{Span, Spans};
use profbridge_wire::spans::SpanView;

use crate::index::{Index, MatchedProcess, MatchedThread, NotFound, SampledSpan, SpanProcess, ThreadOwners};
use crate::notes;
use crate::observed_times::TimeRange;
use crate::report::{Cause, LinkReport};
use crate::thread::{ClaimedPid, MatchKind, SDK_MAIN_THREAD, SdkProfiler, ThreadHints, ThreadMatch};
use crate::waiting::{TracedProgram, count_unnamed, example_name};

/// The context in which spans are decided.
pub(crate) struct SpanDecider<'a> {
    pub(crate) index: &'a Index,
    pub(crate) main_thread: bool,
    /// The monotonic time.
    pub(crate) now: u64,
    /// Whether this is the last chance: spans no longer wait for missing profiles.
    pub(crate) at_last: bool,
    /// Whether samples that name spans may still arrive, so that spans without a process wait as well.
    pub(crate) may_be_named: bool,
    /// Cached answers of the index.
    pub(crate) owners: ThreadOwners<'a>,
    pub(crate) report: &'a mut LinkReport,
    pub(crate) out: &'a mut Outbox,
}

/// A span that is not decided yet.
#[derive(Debug, Clone, Copy)]
pub(crate) struct UndecidedSpan {
    pub(crate) position: u32,
    /// The pointer of its thread, if the span has it.
    pub(crate) pointer: Option<NonZeroU64>,
    /// The profiler of its SDK's own.
    pub(crate) sdk: SdkProfiler,
    /// Whether it waits for its segment, for the first profile of its SDK's profiler, or, since samples name it and
    /// they alone determine its process, for samples of a better profiler.
    pub(crate) waits: bool,
}

/// What one source tells about a span: its SDK, or samples.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum NamedDecision {
    /// The span is decided.
    Decided,
    /// What is missing may still arrive.
    Waits,
    /// Nothing.
    Nothing,
}

/// The position of a resource, and a trace that has spans in it.
type TraceOfResource = (u32, [u8; 16]);

/// A batch of spans being decided.
#[derive(Debug)]
pub(crate) struct UndecidedBatch {
    /// By resource of the batch.
    pub(crate) programs: Vec<TracedProgram>,
    pub(crate) undecided: Vec<UndecidedSpan>,
    /// The identity of the process that samples name for the spans of a trace and resource: one process made them all.
    /// `None` if samples name several.
    pub(crate) processes: HashMap<TraceOfResource, Option<u128>>,
}

impl UndecidedBatch {
    /// Decides the spans for which enough is known.
    pub(crate) fn decide(&mut self, spans: &mut Spans, decider: &mut SpanDecider<'_>) {
        let Self { programs, undecided, processes } = self;
        // Spans named by samples come first: they may determine the process of the others. What an SDK says of its
        // spans does not depend on what has arrived by now, so that counts before samples.
        undecided.retain_mut(|span| {
            let mut decision = decider.decide_by_sdk(spans, *span, programs);
            if decision == NamedDecision::Nothing {
                decision = decider.decide_by_samples(spans, *span, programs, processes);
            }
            span.waits = decision == NamedDecision::Waits;
            decision != NamedDecision::Decided
        });
        undecided.retain(|span| span.waits || !decider.decide(spans, *span, programs, processes));
    }
}

impl SpanDecider<'_> {
    /// Decides about one span of a container by the profiler of its SDK. That profiles one thread, so the thread is
    /// known from the first of its profiles, of whichever time.
    fn decide_by_sdk(
        &mut self,
        spans: &mut Spans,
        UndecidedSpan { position, sdk, .. }: UndecidedSpan,
        programs: &[TracedProgram],
    ) -> NamedDecision {
        let Some(span) = spans.spans().get(position as usize) else { return NamedDecision::Decided };
        let (claims, during) = (&programs[spans.scope_of(span).resource as usize].claims, time(span));
        let profiler_id = match sdk {
            SdkProfiler::Unknown => return NamedDecision::Nothing,
            SdkProfiler::Named(profiler) => profiler,
            SdkProfiler::OfSegment(segment) => match self.index.profiler_of_segment(&segment) {
                Some(Some(profiler)) => profiler,
                Some(None) => return NamedDecision::Nothing,
                None if !self.at_last => return NamedDecision::Waits,
                None => {
                    self.out.note(notes::NO_SEGMENT, 1);
                    return NamedDecision::Nothing;
                }
            },
        };
        let (thread_id, thread_name) = match self.index.only_thread(profiler_id, during) {
            Some(MatchedThread { id, name }) => (Some(id.into()), name.map(Arc::from)),
            None if self.main_thread => (Some(SDK_MAIN_THREAD.0.into()), Some(SDK_MAIN_THREAD.1.into())),
            None if !self.at_last => return NamedDecision::Waits,
            None => (None, None),
        };
        if let SdkProfiler::Named(_) = sdk {
            self.out.note(notes::HAD_PROFILER, 1);
            self.out.note(notes::GOT_THREAD, thread_id.is_some().into());
        } else {
            let note = if thread_id.is_some() { notes::BY_SEGMENT } else { notes::NO_THREAD };
            self.report.linked(claims, note, self.now, self.out);
        }
        if thread_id.is_some() || matches!(sdk, SdkProfiler::OfSegment(_)) {
            let link = ProfilerLink { profiler_id, thread_id, thread_name };
            spans.change(position as usize, |changes| changes.profiler = Some(link));
        }
        NamedDecision::Decided
    }

    /// Decides about one span by the samples that name it.
    fn decide_by_samples(
        &mut self,
        spans: &mut Spans,
        UndecidedSpan { position, .. }: UndecidedSpan,
        programs: &[TracedProgram],
        processes: &mut HashMap<TraceOfResource, Option<u128>>,
    ) -> NamedDecision {
        let Some(span) = spans.spans().get(position as usize) else { return NamedDecision::Decided };
        let link = Link { trace_id: *span.trace_id.bytes(), span_id: *span.span_id.bytes() };
        let Some(SampledSpan { found, thread, is_live }) = self.index.sampled_span(&link, time(span)) else {
            return NamedDecision::Nothing;
        };
        let resource = spans.scope_of(span).resource;
        let program = &programs[resource as usize];
        let of_trace = processes.entry((resource, link.trace_id)).or_insert_with(|| Some(found.identity()));
        *of_trace = of_trace.filter(|known| *known == found.identity());
        if !self.at_last && !found.is_settled() {
            return NamedDecision::Waits;
        }
        let (thread, note) = match thread {
            Some(thread) => (Some(thread), if is_live { notes::BY_LIVE_CONTEXT } else { notes::BY_SAMPLE }),
            None => match self.find_thread(&found, &SpanView::of(spans, span), program) {
                Ok(found) => found,
                Err(_) => (None, notes::NO_THREAD),
            },
        };
        self.report.linked(&program.claims, note, self.now, self.out);
        link_with(spans, position, &found, thread);
        NamedDecision::Decided
    }

    /// Decides about one span. Returns `false` if it has to wait.
    fn decide(
        &mut self,
        spans: &mut Spans,
        UndecidedSpan { position, pointer, .. }: UndecidedSpan,
        programs: &[TracedProgram],
        processes: &HashMap<TraceOfResource, Option<u128>>,
    ) -> bool {
        let Self { index, now, at_last, may_be_named, .. } = *self;
        let Some(span) = spans.spans().get(position as usize) else { return true };
        let resource = spans.scope_of(span).resource;
        let (program, during) = (&programs[resource as usize], time(span));
        let TracedProgram { claims, .. } = program;
        let found = match index.find(SpanProcess { claims, pointer }, during, at_last) {
            Ok(found) => found,
            Err(why) => {
                let of_trace = processes.get(&(resource, *span.trace_id.bytes())).copied().flatten();
                let of_trace = of_trace.and_then(|identity| index.process(identity, during));
                // The result must not contradict the span's own attributes.
                let may_be = |found: &MatchedProcess<'_>| {
                    (!program.is_named(pointer) || found.agrees(claims))
                        && found.is_observed_about()
                        && (at_last || found.is_past())
                };
                let inherited = of_trace.filter(may_be);
                // Samples that name this span, or others of its trace, can still tell the candidate processes apart.
                let may_come = || match why {
                    NotFound::Unknown | NotFound::NotCovered => {
                        may_be_named || of_trace.is_some() || program.is_named(pointer)
                    }
                    NotFound::Ambiguous => may_be_named || of_trace.is_some_and(|found| found.agrees(claims)),
                    NotFound::Unobserved => false,
                };
                if let Some(found) = inherited.filter(|_| at_last || why != NotFound::NotCovered) {
                    self.out.note(notes::BY_TRACE, 1);
                    found
                } else if !at_last && may_come() {
                    return false;
                } else if !program.is_named(pointer) {
                    count_unnamed(spans, &SpanView::of(spans, span), program, now, self.report, self.out);
                    return true;
                } else {
                    let alone = claims.names().next().is_none();
                    let (note, cause) = match why {
                        NotFound::Unknown if alone => (notes::NO_PROCESS, Cause::NoSuchPointer),
                        NotFound::Unknown => (notes::NO_PROCESS, Cause::NoSuchProcess),
                        NotFound::NotCovered => (notes::NOT_COVERED, Cause::Late),
                        NotFound::Unobserved => (notes::UNOBSERVED, Cause::Unobserved),
                        NotFound::Ambiguous if alone => (notes::AMBIGUOUS, Cause::SharedPointer),
                        NotFound::Ambiguous => (notes::AMBIGUOUS, Cause::Ambiguous),
                    };
                    self.report
                        .missed(claims, (note, cause), now, self.out, || example_name(&SpanView::of(spans, span)));
                    return true;
                }
            }
        };
        let mut found = found;
        let mut matched = self.find_thread(&found, &SpanView::of(spans, span), program);
        if let Err(ThreadMiss::Elsewhere(id)) = matched {
            matched = match index.elsewhere(&found, id, at_last, &mut self.owners) {
                // The thread may belong to a child process forked a moment ago.
                Err(NotFound::Unknown | NotFound::NotCovered) if !at_last => return false,
                Err(NotFound::Ambiguous) => Err(ThreadMiss::For(notes::AMBIGUOUS, Cause::Ambiguous)),
                Err(_) => Err(ThreadMiss::For(notes::UNOBSERVED, Cause::NoSuchThread)),
                Ok(other) => {
                    self.out.note(notes::BY_THREAD, (!found.may_be(other.identity())).into());
                    found = other;
                    Ok((found.thread(&id.to_string()), notes::BY_NATIVE_ID))
                }
            };
        }
        match matched {
            Ok((thread, note)) => {
                self.out.note(notes::SEVERAL, found.several.into());
                self.report.linked(claims, note, now, self.out);
                link_with(spans, position, &found, thread);
            }
            Err(missed) => {
                let (note, cause) = match missed {
                    ThreadMiss::For(note, cause) => (note, cause),
                    ThreadMiss::Elsewhere(_) => (notes::UNOBSERVED, Cause::NoSuchThread),
                };
                self.report.missed(claims, (note, cause), now, self.out, || example_name(&SpanView::of(spans, span)));
            }
        }
        true
    }

    /// Finds the thread of a span in its process, and the note that counts the result.
    fn find_thread<'p>(
        &self,
        found: &MatchedProcess<'p>,
        view: &SpanView<'_>,
        program: &TracedProgram,
    ) -> Result<(Option<MatchedThread<'p>>, &'static str), ThreadMiss> {
        let main = self.main_thread.then_some(ClaimedPid(program.claims.pid()));
        match ThreadHints::of(view, program.runtime).match_thread(found, main) {
            ThreadMatch::On(thread, kind) => Ok((
                Some(thread),
                match kind {
                    MatchKind::NativeId => notes::BY_NATIVE_ID,
                    MatchKind::Pointer => notes::BY_POINTER,
                    MatchKind::PointerOnHost => notes::BY_POINTER_ON_HOST,
                    MatchKind::Id => notes::BY_ID,
                    MatchKind::Name => notes::BY_NAME,
                    MatchKind::Main => notes::BY_MAIN,
                },
            )),
            ThreadMatch::Unknown => Ok((None, notes::NO_THREAD)),
            ThreadMatch::Elsewhere(id) => Err(ThreadMiss::Elsewhere(id)),
            ThreadMatch::Unobserved => Err(ThreadMiss::For(notes::UNOBSERVED, Cause::Unobserved)),
            ThreadMatch::Ambiguous => Err(ThreadMiss::For(notes::AMBIGUOUS, Cause::ReusedPointer)),
        }
    }
}

fn time(span: &Span) -> TimeRange {
    TimeRange { start: span.start_unix_nano, end: span.end_unix_nano }
}

/// Why the thread of a span was not found although its process is known.
enum ThreadMiss {
    /// The final outcome: its note and the cause for the log.
    For(&'static str, Cause),
    /// The span names this system thread id, and its process has no such thread.
    Elsewhere(u32),
}

/// Writes the profiler of the process, and the thread if known, into a span.
fn link_with(spans: &mut Spans, position: u32, found: &MatchedProcess<'_>, thread: Option<MatchedThread<'_>>) {
    let (thread_id, name) = thread.map_or((None, None), |thread| (Some(thread.id), thread.name));
    let link = ProfilerLink {
        profiler_id: found.profiler_id(),
        thread_id: thread_id.map(Arc::from),
        thread_name: name.map(Arc::from),
    };
    spans.change(position as usize, |changes| changes.profiler = Some(link));
}
