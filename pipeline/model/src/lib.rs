//! The data model of profbridge: profiles, spans, Sentry envelopes, and the reasons and amounts of their loss.
//!
//! This crate depends on no other part of profbridge: no I/O, no clock, no async, no protobuf, no JSON. All data that
//! crosses a component boundary has one of its types, so two components never need to know each other.
//!
//! * [`Profiles`]: one immutable batch of OTLP profiles in columns, see [`profiles`].
//! * [`Dictionary`]: the tables a batch refers to, see [`dictionary`].
//! * [`Spans`]: one batch of spans in the form in which it arrived, see [`spans`].
//! * [`Envelope`]: one Sentry envelope as one unit of delivery, see [`envelope`].
//! * [`Quantities`]: the amount of telemetry of each kind, see [`quantities`].
//! * [`Reason`]: why data was lost, see [`loss`].
//!
//! An *observation* is one timestamp of a sample, or the whole sample if it has no timestamps; it becomes one sample in
//! Sentry. Spans and items of Sentry envelopes are counted separately; a number without a unit counts observations.

pub mod arena;
pub mod buffer;
pub mod builder;
pub mod compact;
pub mod content_hash;
pub mod dictionary;
pub mod envelope;
pub mod id;
pub mod insert;
pub mod loss;
pub mod meaning;
pub mod process;
pub mod profiles;
pub mod quantities;
pub mod sample_log;
pub mod sampled_out;
pub mod skew;
pub mod spans;
pub mod symbol_overlay;
pub mod telemetry;
pub mod thread;
pub mod varint;
pub mod whole_chunk;

pub use arena::Arena;
pub use buffer::{Buffer, ByteRange};
pub use builder::Builder;
pub use dictionary::{Attribute, Dictionary, Function, Line, Link, Location, Mapping, Stack, Tables, Value};
pub use envelope::{Envelope, Item, ItemView, Viewed};
pub use id::{AttributeId, AttributeSetId, FunctionId, LinkId, LocationId, MappingId, StackId, StringId};
pub use insert::Insertion;
pub use loss::{Loss, Losses, Reason};
pub use meaning::{Meaning, Mode, TimelessTypes};
pub use process::{CLAIMED_ATTRIBUTE, IdentityStrength, ProcessWindow, ProfilerId};
pub use profiles::{
    Position, Profile, Profiles, Resource, ResourceProfiles, Sample, SampleIds, Samples, Scope, ScopeProfiles,
    ValueType,
};
pub use quantities::{Quantities, Unit};
pub use sample_log::SampleLog;
pub use sampled_out::{SampledOut, SampledOutCounts, SampledOutOrigin};
pub use spans::{Span, SpanForm, SpanId, SpanKind, Spans, TraceId};
pub use symbol_overlay::{SymbolName, SymbolOverlay};
pub use telemetry::{Telemetry, TelemetryKind};
