//! The components that a binary is made of: plain tables of function pointers, no macros, no global state.
//!
//! Each type of component has a factory: a [`Description`], which tells the engine the kinds of telemetry that the type
//! accepts and emits and its permitted positions in a pipeline, and a function that makes a component. The engine knows
//! no type by its name.
//!
//! A factory's `create` reads and checks its section of the configuration. For a processor it also gets
//! `service.identity`. It does no I/O, so `profbridge validate` simply creates all components and drops them; a
//! component first uses network and disk when it starts.
//!
//! ```
//! use profbridge_engine::component::{Outbox, Processor, Now};
//! use profbridge_engine::registry::{Description, ProcessorFactory, PROFILES};
//! use profbridge_model::Telemetry;
//!
//! struct Nothing;
//!
//! impl Processor for Nothing {
//!     fn process(&mut self, telemetry: Telemetry, _now: Now, out: &mut Outbox) {
//!         out.send(telemetry);
//!     }
//! }
//!
//! const FACTORY: ProcessorFactory = ProcessorFactory {
//!     description: Description::processor("nothing", "changes nothing", PROFILES).behind(&["other"]),
//!     create: |_section, _identity| Ok(Box::new(Nothing)),
//! };
//! # assert_eq!(FACTORY.description.kind, "nothing");
//! ```

use profbridge_identity::Rules;
use profbridge_model::TelemetryKind;

use crate::component::Processor;
use crate::config::{Problems, Section};
use crate::delivery::DynExporter;
use crate::receiver::Receiver;

/// Profiles only, for [`Description::takes`] and [`Description::emits`].
pub const PROFILES: &[TelemetryKind] = &[TelemetryKind::Profiles];

/// Spans only, for [`Description::takes`] and [`Description::emits`].
pub const SPANS: &[TelemetryKind] = &[TelemetryKind::Spans];

/// Kinds of telemetry that an exporter accepts, each with the type of processor that must come before the exporter.
/// Checked if a receiver of the pipeline emits that kind: the sender of an envelope has already cut its contents.
pub type Needs = &'static [(TelemetryKind, &'static str)];

/// How a type of component describes itself.
#[derive(Debug, Clone, Copy)]
pub struct Description {
    /// The type, as in `receivers: {TYPE: ...}`.
    pub kind: &'static str,
    /// A description in one line, for `profbridge components`.
    pub summary: &'static str,
    /// The kinds that the component processes. An exporter gets everything that its pipeline carries and counts what it
    /// cannot send; a processor passes other kinds through. Empty for receivers.
    pub takes: &'static [TelemetryKind],
    /// The kinds that the component emits. Empty for exporters.
    pub emits: &'static [TelemetryKind],
    /// The types of processors that must come before this one if a pipeline has both, because one would otherwise undo
    /// the work of the other.
    pub behind: &'static [&'static str],
    /// The processors that an exporter with this section needs to send its telemetry.
    pub needs: fn(&Section) -> Needs,
    /// The kinds that must enter the pipeline for a processor with this section to work.
    pub wants: fn(&Section) -> &'static [TelemetryKind],
}

impl Description {
    /// A receiver of telemetry of these kinds.
    pub const fn receiver(kind: &'static str, summary: &'static str, emits: &'static [TelemetryKind]) -> Self {
        Self { emits, ..Self::new(kind, summary) }
    }

    /// A processor that changes telemetry of these kinds without changing the kind.
    pub const fn processor(kind: &'static str, summary: &'static str, takes: &'static [TelemetryKind]) -> Self {
        Self { takes, emits: takes, ..Self::new(kind, summary) }
    }

    /// An exporter that sends telemetry of these kinds.
    pub const fn exporter(kind: &'static str, summary: &'static str, takes: &'static [TelemetryKind]) -> Self {
        Self { takes, ..Self::new(kind, summary) }
    }

    /// Sets the processors that must come before this one.
    #[must_use]
    pub const fn behind(self, behind: &'static [&'static str]) -> Self {
        Self { behind, ..self }
    }

    /// Sets the needed processors.
    #[must_use]
    pub const fn needs(self, needs: fn(&Section) -> Needs) -> Self {
        Self { needs, ..self }
    }

    /// Sets the kinds that must enter the pipeline.
    #[must_use]
    pub const fn wants(self, wants: fn(&Section) -> &'static [TelemetryKind]) -> Self {
        Self { wants, ..self }
    }

    /// Sets another type and summary.
    #[must_use]
    pub const fn named(self, kind: &'static str, summary: &'static str) -> Self {
        Self { kind, summary, ..self }
    }

    const fn new(kind: &'static str, summary: &'static str) -> Self {
        Self { kind, summary, takes: &[], emits: &[], behind: &[], needs: |_| &[], wants: |_| &[] }
    }
}

/// Makes components of one type. `create` checks a section and makes a component from it; it may be called from any
/// thread, any number of times.
#[derive(Debug, Clone, Copy)]
pub struct Factory<Create> {
    /// The type's description.
    pub description: Description,
    /// Makes a component, or returns all problems of its section.
    pub create: Create,
}

/// Makes receivers of one type.
pub type ReceiverFactory = Factory<fn(&Section) -> Result<Box<dyn Receiver>, Problems>>;

/// Makes processors of one type. They get the rules for process identity, so that all of them compute the same profiler
/// ids.
pub type ProcessorFactory = Factory<fn(&Section, &Rules) -> Result<Box<dyn Processor>, Problems>>;

/// Makes exporters of one type, each with its queue.
pub type ExporterFactory = Factory<fn(&Section) -> Result<Box<dyn DynExporter>, Problems>>;

/// All components of a binary.
#[derive(Debug, Clone, Copy)]
pub struct Registry {
    /// The receivers.
    pub receivers: &'static [ReceiverFactory],
    /// The processors.
    pub processors: &'static [ProcessorFactory],
    /// The exporters.
    pub exporters: &'static [ExporterFactory],
}

/// The factory of a type.
pub(crate) fn find<F>(factories: &'static [Factory<F>], kind: &str) -> Option<&'static Factory<F>> {
    factories.iter().find(|factory| factory.description.kind == kind)
}
