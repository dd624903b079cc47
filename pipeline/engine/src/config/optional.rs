//! Parts of a component that are switched on by their key, such as the protocols of a receiver.

use serde::{Deserialize, Deserializer};

/// A map of settings that may be absent. `grpc:` with nothing under it is present and has its defaults, as in the
/// Collector (`config/configoptional`); an `Option` would read it as absent.
///
/// Needs `#[serde(default)]` on the field or its struct.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Optional<T> {
    /// The key is not written.
    #[default]
    Absent,
    /// The key is written, possibly without settings.
    Present(T),
}

impl<T> Optional<T> {
    /// The settings, if written.
    #[must_use]
    pub fn as_ref(&self) -> Option<&T> {
        match self {
            Self::Absent => None,
            Self::Present(settings) => Some(settings),
        }
    }

    /// The settings, if written.
    #[must_use]
    pub fn into_option(self) -> Option<T> {
        match self {
            Self::Absent => None,
            Self::Present(settings) => Some(settings),
        }
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Optional<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        T::deserialize(deserializer).map(Self::Present)
    }
}
