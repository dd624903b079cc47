//! What the Collector's counters count for each signal.

use std::ops::AddAssign;

/// The size of a request as the Collector counts it, in what it calls items: `Sample` messages of profiles, and spans
/// (opentelemetry-collector `receiverhelper/documentation.md`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ItemCounts {
    /// `Sample` messages of profiles, however many observations they have.
    pub samples: u64,
    /// Spans.
    pub spans: u64,
}

impl ItemCounts {
    /// Nothing, or nothing that could be counted.
    pub const NONE: Self = Self { samples: 0, spans: 0 };

    /// This many samples.
    pub const fn samples(samples: u64) -> Self {
        Self { samples, ..Self::NONE }
    }

    /// This many spans.
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
