//! The items that the Collector's counters count for each signal.

use std::ops::AddAssign;

use profbridge_model::Quantities;

/// The size of a request in the Collector's items: `Sample` messages of profiles, and spans (opentelemetry-collector
/// `receiverhelper/documentation.md`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ItemCounts {
    /// The number of `Sample` messages of profiles, however many observations they have.
    pub samples: u64,
    /// The number of spans.
    pub spans: u64,
}

/// An item: the suffix of its metrics' names, its noun, and its count.
type Item = (&'static str, &'static str, fn(ItemCounts) -> u64);

impl ItemCounts {
    /// All items.
    pub(super) const ITEMS: &'static [Item] =
        &[("profile_samples", "Samples", |items| items.samples), ("spans", "Spans", |items| items.spans)];

    /// No items, or items that could not be counted.
    pub const NONE: Self = Self { samples: 0, spans: 0 };

    /// Counts `samples` samples of profiles, and the items of other signals in these quantities.
    pub const fn of(samples: u64, quantities: Quantities) -> Self {
        Self { samples, spans: quantities.spans }
    }

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
