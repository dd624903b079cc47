//! The items that the Collector's counters count for each signal.

use std::ops::AddAssign;

/// The size of a request in the Collector's items: `Sample` messages of profiles, and spans (opentelemetry-collector
/// `receiverhelper/documentation.md`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ItemCounts {
    /// The number of `Sample` messages of profiles, however many observations they have.
    pub samples: u64,
    /// The number of spans.
    pub spans: u64,
}

impl ItemCounts {
    /// No items, or items that could not be counted.
    pub const NONE: Self = Self { samples: 0, spans: 0 };

    /// Counts `samples` samples.
    pub const fn samples(samples: u64) -> Self {
        Self { samples, ..Self::NONE }
    }

    /// Counts `spans` spans.
    pub const fn spans(spans: u64) -> Self {
        Self { spans, ..Self::NONE }
    }
}

impl AddAssign for ItemCounts {
    fn add_assign(&mut self, Self { samples, spans }: Self) {
        self.samples += samples;
        self.spans += spans;
    }
}
