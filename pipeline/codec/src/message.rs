//! The output of codecs: finished messages, and a report of what is not in them.

use std::time::Duration;

use profbridge_engine::component::{Prepared, add_note};
use profbridge_model::{Losses, Profiles, Quantities};

/// A finished message. It owns its bytes, framed and compressed.
pub use profbridge_engine::component::Request as Message;

/// The result of encoding: `in + synthesized = quantities of the messages + losses`.
#[derive(Debug)]
pub struct Encoded<M> {
    /// The messages, in order.
    pub messages: Vec<Message<M>>,
    /// Losses and remarks.
    pub report: EncodingReport,
}

/// Losses and remarks of encoding.
#[derive(Debug, Default)]
pub struct EncodingReport {
    /// The data that is in no message, by reason.
    pub losses: Losses,
    /// Samples that were added, such as closing samples.
    pub synthesized: Quantities,
    /// Counts that are not losses, by name.
    pub notes: Vec<(&'static str, u64)>,
    /// Types of values other than time, in words; an encoder reports each once.
    pub timeless: Vec<String>,
    /// Types of values left out because the output shows another one, in words.
    pub not_shown: Vec<String>,
    /// Sampled time that is not shown. A note counts its whole seconds.
    pub clipped: Duration,
    /// Why bytes could not be written; their content is counted as lost. Compressing into memory only fails without
    /// memory.
    pub error: Option<std::io::Error>,
}

impl EncodingReport {
    /// Adds another report; of two errors the first stays.
    pub fn merge(&mut self, other: EncodingReport) {
        let EncodingReport { losses, synthesized, notes, timeless, not_shown, clipped, error } = other;
        self.losses.merge(&losses);
        self.synthesized += synthesized;
        for (name, count) in notes {
            self.note(name, count);
        }
        self.timeless.extend(timeless);
        self.not_shown.extend(not_shown);
        self.clipped += clipped;
        self.error = self.error.take().or(error);
    }

    pub(crate) fn note(&mut self, name: &'static str, count: u64) {
        add_note(&mut self.notes, name, count);
    }
}

impl<M> Default for Encoded<M> {
    fn default() -> Self {
        Self { messages: Vec::new(), report: EncodingReport::default() }
    }
}

impl<M> Encoded<M> {
    /// Converts to the form that an exporter passes to the engine; `meta` converts each message's metadata. Remarks
    /// that have no place there are logged.
    pub fn prepared<N>(self, mut meta: impl FnMut(M) -> N) -> Prepared<N> {
        let EncodingReport { losses, synthesized, notes, timeless, not_shown: _, clipped: _, error } = self.report;
        for types in timeless {
            tracing::warn!("dropped as no_time_unit: {types}");
        }
        if let Some(error) = error {
            tracing::error!(%error, "a message could not be written");
        }
        let requests = self.messages.into_iter().map(|message| message.with(&mut meta));
        Prepared { requests: requests.collect(), losses, synthesized, notes }
    }
}

/// Number of `Sample` messages in a batch.
pub(crate) fn samples(profiles: &Profiles) -> u64 {
    profiles.profiles().map(|profile| profile.samples.len() as u64).sum()
}
