//! Links samples with spans: an OTLP sample gets a link to the span that its thread was running.
//!
//! Spans are remembered (`known`) with the hints about their thread (`hints`). The observations of a batch are looked
//! up in the course of each thread (`course`, `ancestry`, `event_loops`, `linker`), either at once or after the batch
//! has waited for the spans of its time (`held`).

mod ancestry;
mod course;
mod event_loops;
mod held;
mod hints;
mod known;
mod linker;
mod notes;

use std::num::NonZeroU64;

use profbridge_engine::component::{Now, Outbox, add_note};
use profbridge_identity::Rules;
use profbridge_model::envelope::Viewed;
use profbridge_model::{Profiles, Telemetry};
use profbridge_wire::spans::SpanView;

use self::held::HeldProfiles;
use self::hints::Hints;
use self::known::KnownSpans;
use self::linker::BatchLinker;
use self::notes::{Counts, FORGOTTEN};
use crate::config::Settings;
use crate::index::Index;
use crate::waiting::Program;

/// Links samples with spans.
#[derive(Debug)]
pub(crate) struct Links {
    rules: Rules,
    main_thread: bool,
    known: KnownSpans,
    /// `None` if profiles do not wait.
    held: Option<HeldProfiles>,
    /// The outcomes of observations since the last call of `take_lately`, by the names of their notes.
    lately: Vec<(&'static str, u64)>,
}

impl Links {
    pub(crate) fn new(settings: &Settings, rules: &Rules) -> Self {
        let held = (settings.profile_wait > 0).then(|| HeldProfiles::new(settings.profile_wait, settings.max_bytes));
        Self {
            rules: rules.clone(),
            main_thread: settings.main_thread,
            known: KnownSpans::default(),
            held,
            lately: Vec::new(),
        }
    }

    /// Takes the outcomes of observations since the last call, by the names of their notes.
    pub(crate) fn take_lately(&mut self) -> Vec<(&'static str, u64)> {
        std::mem::take(&mut self.lately)
    }

    /// The number of observations held back.
    pub(crate) fn observations(&self) -> u64 {
        self.held.as_ref().map_or(0, |held| held.requests.observations())
    }

    /// The memory of held profiles and remembered spans, in bytes.
    pub(crate) fn bytes(&self) -> u64 {
        self.known.bytes() + self.held.as_ref().map_or(0, |held| held.requests.bytes())
    }

    /// Remembers a span of a program. `pointer` is that of its thread, if the span has it.
    pub(crate) fn add(
        &mut self,
        view: &SpanView<'_>,
        program: &Program,
        pointer: Option<NonZeroU64>,
        index: &Index,
        now: u64,
    ) {
        let profiler = view.profiler_id();
        let claims = profiler.map_or(program.claims, |id| program.claims.with_profiler(id));
        let hints = Hints::of(view, program.runtime, pointer, profiler.is_some());
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
    pub(crate) fn take(&mut self, telemetry: Telemetry, index: &Index, now: Now, out: &mut Outbox) {
        match (telemetry, &mut self.held) {
            (Telemetry::Profiles(profiles), Some(held)) if profiles.window.is_none() => {
                held.take(profiles, now.monotonic_nano, out);
            }
            (mut telemetry, _) => {
                self.link(&mut telemetry, index, out);
                out.send(telemetry);
            }
        }
    }

    /// Links the samples in telemetry.
    pub(crate) fn link(&mut self, telemetry: &mut Telemetry, index: &Index, out: &mut Outbox) {
        match telemetry {
            Telemetry::Profiles(profiles) => self.link_batch(profiles, index, out),
            Telemetry::Spans(_) => {}
            Telemetry::Envelope(envelope) => {
                for view in &mut envelope.views {
                    if let Viewed::Profiles(profiles) = &mut view.what {
                        self.link_batch(profiles, index, out);
                    }
                }
            }
        }
    }

    fn link_batch(&mut self, profiles: &mut Profiles, index: &Index, out: &mut Outbox) {
        let mut counts = Counts::default();
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
        self.held.as_ref().is_some_and(|held| held.requests.is_absorbing())
    }

    /// Whether profiles wait.
    pub(crate) fn any_wait(&self) -> bool {
        self.held.as_ref().is_some_and(|held| !held.requests.is_empty())
    }

    /// When [`Links::advance`] has something to do next.
    pub(crate) fn due(&self) -> Option<u64> {
        self.held.as_ref()?.requests.due()
    }

    /// Links profiles that have waited long enough, and accepts more of the current request.
    pub(crate) fn advance(&mut self, index: &Index, now: Now, out: &mut Outbox) {
        self.send_next(index, out, |held, out| held.next_due(now.monotonic_nano, out));
        if let Some(held) = &mut self.held {
            held.absorb(out);
        }
    }

    /// Links some of the waiting profiles because memory is short, until half of those held at the beginning are left.
    /// Returns whether there is more to do.
    pub(crate) fn on_memory_pressure(&mut self, index: &Index, out: &mut Outbox) -> bool {
        self.send_next(index, out, HeldProfiles::relieve);
        self.held.as_ref().is_some_and(|held| held.requests.is_relieving())
    }

    /// Links the profiles that have waited longest because the pipeline ends.
    pub(crate) fn flush(&mut self, index: &Index, now: Now, out: &mut Outbox) {
        if self.is_absorbing() {
            self.advance(index, now, out);
        } else {
            self.send_next(index, out, HeldProfiles::next_at_end);
        }
    }

    fn send_next(
        &mut self,
        index: &Index,
        out: &mut Outbox,
        next: impl FnOnce(&mut HeldProfiles, &mut Outbox) -> Option<Profiles>,
    ) {
        let Some(mut profiles) = self.held.as_mut().and_then(|held| next(held, out)) else { return };
        self.link_batch(&mut profiles, index, out);
        out.send(profiles);
    }
}
