//! What the Collector's counters count of each signal.

use std::ops::AddAssign;

/// How much is in a request as the Collector counts it, which calls both items: `Sample` messages of profiles, and
/// spans (opentelemetry-collector `receiverhelper/documentation.md`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ItemCounts {
    /// `Sample` messages of profiles, whatever the number of their observations.
    pub samples: u64,
    /// Spans.
    pub spans: u64,
}

impl ItemCounts {
    /// Nothing, or nothing that could be counted.
    pub const NONE: Self = Self { samples: 0, spans: 0 };

    /// So many samples.
    pub const fn samples(samples: u64) -> Self {
        Self { samples, ..Self::NONE }
    }

    /// So many spans.
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
