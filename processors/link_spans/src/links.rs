//! Links samples with spans: an OTLP sample gets a link to the span that its thread was running.
//!
//! Spans are remembered (`known`) with the hints about their thread. The observations of a batch are looked
//! up in the course of each thread (`timeline`, `ancestry`, `event_loops`, `linker`), either at once or after the batch
//! has waited for the spans of its time (`buffered`).

mod ancestry;
mod buffered;
mod event_loops;
mod known;
mod linker;
mod notes;
mod timeline;

use profbridge_engine::component::{Now, Outbox, add_note};
use profbridge_identity::Rules;
use profbridge_model::envelope::Viewed;
use profbridge_model::{Profiles, Telemetry};
use profbridge_wire::spans::SpanView;

use self::buffered::BufferedProfiles;
use self::known::KnownSpans;
use self::linker::BatchLinker;
use self::notes::{FORGOTTEN, ObservationCounts};
use crate::config::Settings;
use crate::index::Index;
use crate::thread::ThreadHints;
use crate::waiting::TracedProgram;

/// Links samples with spans.
#[derive(Debug)]
pub(crate) struct SampleLinks {
    rules: Rules,
    main_thread: bool,
    known: KnownSpans,
    /// Whether profiles wait; otherwise nothing is buffered.
    waits: bool,
    buffered: BufferedProfiles,
    /// The outcomes of observations since the last call of `take_outcomes`, by the names of their notes.
    lately: Vec<(&'static str, u64)>,
}

impl SampleLinks {
    pub(crate) fn new(settings: &Settings, rules: &Rules) -> Self {
        Self {
            rules: rules.clone(),
            main_thread: settings.main_thread,
            known: KnownSpans::default(),
            waits: settings.profile_wait > 0,
            buffered: BufferedProfiles::new(settings.profile_wait, settings.max_bytes),
            lately: Vec::new(),
        }
    }

    /// Takes the outcomes of observations since the last call, by the names of their notes.
    pub(crate) fn take_outcomes(&mut self) -> Vec<(&'static str, u64)> {
        std::mem::take(&mut self.lately)
    }

    /// The number of buffered observations.
    pub(crate) fn observations(&self) -> u64 {
        self.buffered.requests.observations()
    }

    /// The memory of buffered profiles and remembered spans, in bytes.
    pub(crate) fn bytes(&self) -> u64 {
        self.known.bytes() + self.buffered.requests.bytes()
    }

    /// Remembers a span of a program.
    pub(crate) fn add(&mut self, view: &SpanView<'_>, program: &TracedProgram, index: &Index, now: u64) {
        let profiler = view.profiler_id();
        let claims = profiler.map_or(program.claims, |id| program.claims.with_profiler(id));
        let mut hints = ThreadHints::of(view, program.runtime);
        hints.names_profiler = profiler.is_some();
        self.known.add(view.span(), &claims, hints, self.main_thread, index, now);
    }

    /// Forgets the spans that arrived before a time.
    pub(crate) fn forget(&mut self, before: u64) {
        self.known.forget_before(before);
    }

    /// The memory of remembered spans, in bytes.
    pub(crate) fn remembered_bytes(&self) -> u64 {
        self.known.bytes()
    }

    /// Forgets the oldest spans until the rest takes at most `max_bytes`.
    pub(crate) fn shrink(&mut self, max_bytes: u64, out: &mut Outbox) {
        out.note(FORGOTTEN, self.known.shrink(max_bytes));
    }

    /// Accepts profiles: they wait, or are linked and passed on. Profiles already cut into windows, and profiles in an
    /// envelope, which is delivered as a whole, are linked at once.
    pub(crate) fn accept(&mut self, telemetry: Telemetry, index: &Index, now: Now, out: &mut Outbox) {
        match telemetry {
            Telemetry::Profiles(profiles) if self.waits && profiles.window.is_none() => {
                self.buffered.add(profiles, now.monotonic_nano, out);
            }
            mut telemetry => {
                self.link(&mut telemetry, index, out);
                out.send(telemetry);
            }
        }
    }

    /// Links the samples in telemetry.
    pub(crate) fn link(&mut self, telemetry: &mut Telemetry, index: &Index, out: &mut Outbox) {
        match telemetry {
            Telemetry::Profiles(profiles) => self.link_batch(profiles, index, out),
            Telemetry::Envelope(envelope) => {
                for view in &mut envelope.views {
                    if let Viewed::Profiles(profiles) = &mut view.what {
                        self.link_batch(profiles, index, out);
                    }
                }
            }
            _ => {}
        }
    }

    fn link_batch(&mut self, profiles: &mut Profiles, index: &Index, out: &mut Outbox) {
        let mut counts = ObservationCounts::default();
        let linker = BatchLinker::new(profiles, &self.rules, &mut self.known, index, self.main_thread, &mut counts);
        let too_large = profiles.link(linker);
        (counts.linked, counts.too_large) = (counts.linked - too_large, too_large);
        for (name, count) in counts.named() {
            out.note(name, count);
            add_note(&mut self.lately, name, count);
        }
    }

    /// Adopts the memory bounds of these settings. Must be called before anything arrives.
    pub(crate) fn fit_memory(&mut self, settings: &Settings) {
        *self = Self::new(settings, &self.rules);
    }

    /// Whether a request is only partly accepted yet.
    pub(crate) fn is_absorbing(&self) -> bool {
        self.buffered.requests.is_absorbing()
    }

    /// Whether profiles wait.
    pub(crate) fn any_wait(&self) -> bool {
        !self.buffered.requests.is_empty()
    }

    /// When [`SampleLinks::advance`] has something to do next.
    pub(crate) fn due(&self) -> Option<u64> {
        self.buffered.requests.due()
    }

    /// Links profiles that have waited long enough, and accepts more of the current request.
    pub(crate) fn advance(&mut self, index: &Index, now: Now, out: &mut Outbox) {
        self.send_next(index, out, |buffered, out| buffered.next_due(now.monotonic_nano, out));
        self.buffered.absorb(out);
    }

    /// Links some of the waiting profiles because memory is short, until half of those buffered at the beginning are
    /// left. Returns whether there is more to do.
    pub(crate) fn on_memory_pressure(&mut self, index: &Index, out: &mut Outbox) -> bool {
        self.send_next(index, out, BufferedProfiles::next_for_memory);
        self.buffered.requests.is_relieving()
    }

    /// Links the profiles that have waited longest because the pipeline ends.
    pub(crate) fn flush(&mut self, index: &Index, now: Now, out: &mut Outbox) {
        if self.is_absorbing() {
            self.advance(index, now, out);
        } else {
            self.send_next(index, out, BufferedProfiles::next_at_end);
        }
    }

    fn send_next(
        &mut self,
        index: &Index,
        out: &mut Outbox,
        next: impl FnOnce(&mut BufferedProfiles, &mut Outbox) -> Option<Profiles>,
    ) {
        let Some(mut profiles) = next(&mut self.buffered, out) else { return };
        self.link_batch(&mut profiles, index, out);
        out.send(profiles);
    }
}
