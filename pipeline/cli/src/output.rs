//! Processors and codecs without a pipeline around them: what `convert`, `sample` and `demo` have in common.

mod envelopes;
mod otlp;
mod pprof;
mod view;

use profbridge_engine::component::{Now, Outbox, Processor, flush_all, process_all};
use profbridge_engine::config::Section;
use profbridge_engine::registry::ProcessorFactory;
use profbridge_identity::Rules;
use profbridge_model::{Profile, Profiles, Telemetry};

use crate::Failure;

pub(crate) use envelopes::{EnvelopeDestination, Envelopes};
pub(crate) use otlp::{MERGE, Otlp};
pub(crate) use pprof::Pprof;
pub(crate) use view::View;

/// A processor without a pipeline around it: no time passes.
pub(crate) struct Stage(Box<dyn Processor>);

impl Stage {
    /// A processor of a section. `identity` says who processes are.
    pub(crate) fn new(factory: ProcessorFactory, section: &Section, identity: &Rules) -> Result<Self, Failure> {
        (factory.create)(section, identity).map(Self).map_err(|problems| Failure(problems.to_string()))
    }

    /// Takes a batch as of when it was made, so that old files are not late.
    pub(crate) fn take(&mut self, batch: impl Into<Telemetry>) -> Outbox {
        let batch = batch.into();
        let end = |profile: &Profile| profile.time_unix_nano.saturating_add(profile.duration_nano);
        let ended = match &batch {
            Telemetry::Spans(spans) => spans.spans().iter().map(|span| span.end_unix_nano).max(),
            other => other.profiles().flat_map(Profiles::profiles).map(end).max(),
        };
        let now = Now { monotonic_nano: 0, unix_nano: ended.unwrap_or_default() };
        let mut out = Outbox::default();
        process_all(&mut *self.0, batch, now, &mut out);
        out
    }

    /// What is left.
    pub(crate) fn flush(&mut self) -> Outbox {
        let mut out = Outbox::default();
        flush_all(&mut *self.0, Now { monotonic_nano: 0, unix_nano: 0 }, &mut out);
        out
    }
}

/// The profiles in what a processor put out.
pub(crate) fn profiles(telemetry: Vec<Telemetry>) -> impl Iterator<Item = Profiles> {
    telemetry.into_iter().filter_map(|telemetry| match telemetry {
        Telemetry::Profiles(profiles) => Some(profiles),
        _ => None,
    })
}
