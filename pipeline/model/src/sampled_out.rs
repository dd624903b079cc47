//! The amounts that sampling removed, for exporters that report them to their server.
//!
//! Sentry's SDKs report the amounts that they sample out (Sentry developer documentation, "Client Reports"), so that
//! Sentry's statistics show the full amount. These reports are not telemetry: the removed data is counted as lost where
//! it is dropped, and reports are part of no balance.

use std::iter::Sum;
use std::ops::AddAssign;

use crate::envelope::RequestMeta;
use crate::{Profiles, Spans};

/// The amount that a sampler removed for one sender or one process.
#[derive(Debug, Clone)]
pub struct SampledOut {
    /// The origin of the removed telemetry.
    pub whose: SampledOutOrigin,
    /// The removed amount.
    pub counts: SampledOutCounts,
}

/// The origin of removed telemetry, which determines where it would have been sent.
#[derive(Debug, Clone)]
pub enum SampledOutOrigin {
    /// A client that sent the telemetry in an envelope.
    Client {
        /// The information about the client in its request.
        meta: Box<RequestMeta>,
        /// A profile of the envelope, if there was one: it identifies the client's process.
        profiles: Option<Profiles>,
    },
    /// A process that sent spans: a batch of its resource and no spans.
    Process(Spans),
}

/// The removed amounts in Sentry's categories.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SampledOutCounts {
    /// Transactions, or local root spans that would have become transactions.
    pub transactions: u64,
    /// Spans. A transaction counts as one of its own spans.
    pub spans: u64,
    /// Profiles removed with their transactions.
    pub profiles: u64,
    /// Bytes of attachments removed with their transactions.
    pub attachment_bytes: u64,
}

impl SampledOutCounts {
    /// Whether nothing was removed.
    pub fn is_none(self) -> bool {
        self == Self::default()
    }
}

impl AddAssign for SampledOutCounts {
    fn add_assign(&mut self, other: Self) {
        let Self { transactions, spans, profiles, attachment_bytes } = other;
        self.transactions = self.transactions.saturating_add(transactions);
        self.spans = self.spans.saturating_add(spans);
        self.profiles = self.profiles.saturating_add(profiles);
        self.attachment_bytes = self.attachment_bytes.saturating_add(attachment_bytes);
    }
}

impl Sum for SampledOutCounts {
    fn sum<I: Iterator<Item = Self>>(all: I) -> Self {
        all.fold(Self::default(), |mut sum, counts| {
            sum += counts;
            sum
        })
    }
}
