//! The one type that crosses every edge of a pipeline.

use crate::{Envelope, Profiles};

/// What flows along an edge of a pipeline.
#[derive(Debug, Clone)]
pub enum Telemetry {
    /// A batch of profiles.
    Profiles(Profiles),
    /// A Sentry envelope, delivered as one unit.
    Envelope(Envelope),
}

impl Telemetry {
    /// The number of observations in it.
    pub fn observations(&self) -> u64 {
        match self {
            Telemetry::Profiles(profiles) => profiles.observations(),
            Telemetry::Envelope(envelope) => envelope.profiles.iter().map(Profiles::observations).sum(),
        }
    }
}

impl Telemetry {
    /// The memory of it in bytes: roughly, with everything that can be large.
    pub fn size_bytes(&self) -> u64 {
        match self {
            Telemetry::Profiles(profiles) => profiles.size_bytes(),
            Telemetry::Envelope(envelope) => {
                let items = envelope.items.iter().map(|item| item.header.len() + item.payload.len()).sum::<usize>();
                let profiles = envelope.profiles.iter().map(Profiles::size_bytes).sum::<u64>();
                (envelope.header.len() + items) as u64 + profiles
            }
        }
    }
}

impl From<Profiles> for Telemetry {
    fn from(profiles: Profiles) -> Self {
        Self::Profiles(profiles)
    }
}

impl From<Envelope> for Telemetry {
    fn from(envelope: Envelope) -> Self {
        Self::Envelope(envelope)
    }
}
