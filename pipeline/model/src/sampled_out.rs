//! What sampling has left out, for exporters that tell their server of it.
//!
//! Sentry's SDKs report what they sample out (Sentry developer documentation, "Client Reports"), so that its statistics
//! show how much there was. It is no telemetry: it is counted as lost where it is dropped, and no balance has it.

use std::iter::Sum;
use std::ops::AddAssign;

use crate::envelope::RequestMeta;
use crate::{Profiles, Spans};

/// How much a sampler has left out of what one sender or one process sent.
#[derive(Debug, Clone)]
pub struct SampledOut {
    /// Whose it was.
    pub whose: Whose,
    /// How much it was.
    pub counts: SampledOutCounts,
}

/// Whose telemetry was left out: what says where it would have gone.
#[derive(Debug, Clone)]
pub enum Whose {
    /// A client's, which sent it in an envelope.
    Client {
        /// What its request said.
        meta: Box<RequestMeta>,
        /// A profile of the envelope, where there was one: it says which process the client is.
        profiles: Option<Profiles>,
    },
    /// A process's, which sent spans: a batch of its resource and no spans.
    Process(Spans),
}

/// Numbers of what was left out, as Sentry counts it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SampledOutCounts {
    /// Transactions, or local root spans that would have become transactions.
    pub transactions: u64,
    /// Spans. A transaction is one of its own spans.
    pub spans: u64,
    /// Profiles that went with their transactions.
    pub profiles: u64,
    /// Bytes of attachments that went with their transactions.
    pub attachment_bytes: u64,
}

impl SampledOutCounts {
    /// Whether nothing was left out.
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
