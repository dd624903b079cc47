//! The spans of samples: an OTLP sample gets a link to the span that its thread ran when it was made.
//!
//! Spans are remembered (`known`), with what they say of their thread (`hints`). The observations of a batch are looked
//! up in the course of each thread (`course`, `ancestry`, `event_loops`, `linker`), at once or when the batch has waited for spans of
//! its time (`held`).

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
    /// Where profiles wait at all.
    held: Option<HeldProfiles>,
    /// What became of observations since that was last taken, by the names of the counts.
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

    /// What became of observations since the last call, by the names of the counts.
    pub(crate) fn take_lately(&mut self) -> Vec<(&'static str, u64)> {
        std::mem::take(&mut self.lately)
    }

    /// The observations that are held.
    pub(crate) fn observations(&self) -> u64 {
        self.held.as_ref().map_or(0, |held| held.requests.observations())
    }

    /// The memory of what is held and remembered, in bytes.
    pub(crate) fn bytes(&self) -> u64 {
        self.known.bytes() + self.held.as_ref().map_or(0, |held| held.requests.bytes())
    }

    /// Remembers a span that came, of a program. `pointer` is that of its thread, where the span says it.
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

    /// Forgets the spans that came before a time.
    pub(crate) fn forget(&mut self, before: u64) {
        self.known.forget_before(before);
    }

    /// The memory of what is remembered of spans, in bytes.
    pub(crate) fn remembered_bytes(&self) -> u64 {
        self.known.bytes()
    }

    /// Forgets the spans that came first, until what is remembered takes so many bytes.
    pub(crate) fn shrink(&mut self, max_bytes: u64, out: &mut Outbox) {
        out.note(FORGOTTEN, self.known.shrink(max_bytes));
    }

    /// Takes profiles that came: they wait, or are linked and go on. What was cut into windows already is linked at
    /// once, as is what came in an envelope, which is delivered with its other items.
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

    /// Makes the bounds those of these settings. Before anything else.
    pub(crate) fn fit_memory(&mut self, settings: &Settings) {
        *self = Self::new(settings, &self.rules);
    }

    /// Whether a request is being taken in.
    pub(crate) fn is_absorbing(&self) -> bool {
        self.held.as_ref().is_some_and(|held| held.requests.is_absorbing())
    }

    /// Whether profiles wait.
    pub(crate) fn any_wait(&self) -> bool {
        self.held.as_ref().is_some_and(|held| !held.requests.is_empty())
    }

    /// When there is something to do.
    pub(crate) fn due(&self) -> Option<u64> {
        self.held.as_ref()?.requests.due()
    }

    /// Links profiles that have waited long enough, and takes in more of the request that is being taken in.
    pub(crate) fn advance(&mut self, index: &Index, now: Now, out: &mut Outbox) {
        self.send_next(index, out, |held, out| held.next_due(now.monotonic_nano, out));
        if let Some(held) = &mut self.held {
            held.absorb(out);
        }
    }

    /// Links some of the profiles that wait because memory is short, until half of what was held at the beginning is
    /// left. Returns whether there is more to do.
    pub(crate) fn on_memory_pressure(&mut self, index: &Index, out: &mut Outbox) -> bool {
        self.send_next(index, out, HeldProfiles::relieve);
        self.held.as_ref().is_some_and(|held| held.requests.is_relieving())
    }

    /// Links the profiles that have waited for the longest time because the pipeline ends.
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
