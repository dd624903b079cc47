//! The type of all data that components pass to each other.

use crate::{Envelope, Profiles, Quantities, Spans};

/// The data that one component passes to another. More kinds may be added: a processor passes on what it does not know,
/// and an exporter counts it as lost.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Telemetry {
    /// A batch of profiles.
    Profiles(Profiles),
    /// A batch of spans.
    Spans(Spans),
    /// A Sentry envelope, delivered as one unit.
    Envelope(Envelope),
}

/// The kinds of [`Telemetry`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum TelemetryKind {
    /// [`Telemetry::Profiles`].
    Profiles,
    /// [`Telemetry::Spans`].
    Spans,
    /// [`Telemetry::Envelope`].
    Envelopes,
}

impl TelemetryKind {
    /// All kinds.
    pub const ALL: &'static [TelemetryKind] =
        &[TelemetryKind::Profiles, TelemetryKind::Spans, TelemetryKind::Envelopes];

    /// The name of the kind in a sentence.
    pub const fn noun(self) -> &'static str {
        match self {
            TelemetryKind::Profiles => "profiles",
            TelemetryKind::Spans => "spans",
            TelemetryKind::Envelopes => "Sentry envelopes",
        }
    }

    /// The name of pipelines that carry only this kind, as in the Collector. `None` for envelopes: an envelope is
    /// delivered as a unit and may contain any kind, so it only passes through pipelines that carry everything.
    pub const fn signal(self) -> Option<&'static str> {
        match self {
            TelemetryKind::Profiles => Some("profiles"),
            TelemetryKind::Spans => Some("traces"),
            TelemetryKind::Envelopes => None,
        }
    }
}

impl Telemetry {
    /// The kind of the data.
    pub fn kind(&self) -> TelemetryKind {
        match self {
            Telemetry::Profiles(_) => TelemetryKind::Profiles,
            Telemetry::Spans(_) => TelemetryKind::Spans,
            Telemetry::Envelope(_) => TelemetryKind::Envelopes,
        }
    }

    /// The amount of the data in each unit.
    pub fn quantities(&self) -> Quantities {
        match self {
            Telemetry::Profiles(profiles) => Quantities::observations(profiles.observations()),
            Telemetry::Spans(spans) => spans.quantities(),
            Telemetry::Envelope(envelope) => envelope.quantities(),
        }
    }

    /// The profiles in the data, including views of an envelope.
    pub fn profiles(&self) -> impl Iterator<Item = &Profiles> {
        let (batch, envelope) = match self {
            Telemetry::Profiles(profiles) => (Some(profiles), None),
            Telemetry::Envelope(envelope) => (None, Some(envelope)),
            _ => (None, None),
        };
        batch.into_iter().chain(envelope.into_iter().flat_map(Envelope::profiles))
    }

    /// The profiles in the data, including views of an envelope, by value.
    pub fn into_profiles(self) -> Vec<Profiles> {
        match self {
            Telemetry::Profiles(profiles) => vec![profiles],
            Telemetry::Envelope(envelope) => envelope.into_profiles().collect(),
            _ => Vec::new(),
        }
    }

    /// The number of observations in the data.
    pub fn observations(&self) -> u64 {
        self.quantities().observations
    }
}

impl Telemetry {
    /// Approximate memory use in bytes, including everything that can be large.
    pub fn size_bytes(&self) -> u64 {
        match self {
            Telemetry::Profiles(profiles) => profiles.size_bytes(),
            Telemetry::Spans(spans) => spans.size_bytes(),
            Telemetry::Envelope(envelope) => envelope.size_bytes(),
        }
    }
}

impl From<Profiles> for Telemetry {
    fn from(profiles: Profiles) -> Self {
        Self::Profiles(profiles)
    }
}

impl From<Spans> for Telemetry {
    fn from(spans: Spans) -> Self {
        Self::Spans(spans)
    }
}

impl From<Envelope> for Telemetry {
    fn from(envelope: Envelope) -> Self {
        Self::Envelope(envelope)
    }
}
