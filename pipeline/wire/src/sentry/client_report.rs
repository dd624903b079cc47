//! Reports to Sentry about data that a sender could not deliver.
//!
//! Losses accumulate until a report is taken, which is sent as an item of an envelope. Source: Sentry developer
//! documentation, "Client Reports". A 429 is not reported, because the server has counted that loss itself.

use profbridge_model::Item;
use serde_json::json;

use super::{Category, envelope};

/// Why data was not delivered, in Sentry's terms.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Discarded {
    /// A rate limit was active.
    RatelimitBackoff,
    /// A queue was full.
    QueueOverflow,
    /// The server could not be reached.
    NetworkError,
    /// The server rejected it.
    SendError,
    /// An internal error of the sender.
    InternalSdkError,
    /// Dropped by sampling.
    SampleRate,
}

impl Discarded {
    const ALL: [Discarded; 6] = [
        Discarded::RatelimitBackoff,
        Discarded::QueueOverflow,
        Discarded::NetworkError,
        Discarded::SendError,
        Discarded::InternalSdkError,
        Discarded::SampleRate,
    ];

    /// The name of the reason in a report.
    pub const fn as_str(self) -> &'static str {
        match self {
            Discarded::RatelimitBackoff => "ratelimit_backoff",
            Discarded::QueueOverflow => "queue_overflow",
            Discarded::NetworkError => "network_error",
            Discarded::SendError => "send_error",
            Discarded::InternalSdkError => "internal_sdk_error",
            Discarded::SampleRate => "sample_rate",
        }
    }
}

/// Losses not yet reported, in a fixed size.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ClientReport {
    counts: [[u64; Category::ALL.len()]; Discarded::ALL.len()],
}

impl ClientReport {
    /// Counts a loss.
    pub fn record(&mut self, reason: Discarded, category: Category, quantity: u64) {
        let count = &mut self.counts[reason as usize][category as usize];
        *count = count.saturating_add(quantity);
    }

    /// Adds the counts of another report, for example one that could not be sent.
    pub fn merge(&mut self, other: &ClientReport) {
        for (mine, theirs) in self.counts.iter_mut().flatten().zip(other.counts.iter().flatten()) {
            *mine = mine.saturating_add(*theirs);
        }
    }

    /// Whether there is nothing to report.
    pub fn is_empty(&self) -> bool {
        self.counts.iter().flatten().all(|&count| count == 0)
    }

    /// The item with this report, as of `since_epoch` seconds; `None` if there is nothing to report.
    pub fn item(&self, since_epoch: f64) -> Option<Item> {
        if self.is_empty() {
            return None;
        }
        let mut discarded = Vec::new();
        for (reason, counts) in Discarded::ALL.iter().zip(&self.counts) {
            for (category, &quantity) in Category::ALL.iter().zip(counts) {
                if quantity > 0 {
                    let (reason, category) = (reason.as_str(), category.as_str());
                    discarded.push(json!({ "reason": reason, "category": category, "quantity": quantity }));
                }
            }
        }
        let payload = json!({ "timestamp": since_epoch, "discarded_events": discarded });
        Some(envelope::item("client_report", None, payload.to_string()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Guarantees: losses add up by reason and category, and Relay can read the item.
    #[test]
    fn report() {
        let mut report = ClientReport::default();
        assert_eq!(report.item(1.5), None);
        report.record(Discarded::SendError, Category::ProfileChunk, 1);
        report.record(Discarded::SendError, Category::ProfileChunk, 2);
        report.record(Discarded::QueueOverflow, Category::Span, u64::MAX);
        let mut other = ClientReport::default();
        other.record(Discarded::QueueOverflow, Category::Span, 5);
        report.merge(&other);
        let item = report.item(1.5).unwrap();
        let payload: serde_json::Value = serde_json::from_slice(item.payload.plain().unwrap()).unwrap();
        assert_eq!(
            payload,
            json!({"timestamp": 1.5, "discarded_events": [
                {"reason": "queue_overflow", "category": "span", "quantity": u64::MAX},
                {"reason": "send_error", "category": "profile_chunk", "quantity": 3},
            ]})
        );
        let header: serde_json::Value = serde_json::from_slice(&item.header).unwrap();
        assert_eq!(header, json!({"type": "client_report", "length": item.payload.len()}));
    }
}
