//! The data that accompanies a profile in its envelope.

use profbridge_model::Envelope;
use serde::Deserialize;

use crate::sentry::envelope::ItemHeader;
use crate::sentry::sampled::text::Text;

/// The data of an envelope that concerns a profile in it.
#[derive(Debug, Default)]
pub struct Companion<'a> {
    /// Whether the transaction exists. Its content is only known if it is valid JSON.
    is_there: bool,
    sampled: Option<bool>,
    pub(super) transaction: CompanionTransaction<'a>,
}

/// The keys of the transaction that Relay uses.
#[derive(Debug, Default, Deserialize)]
#[serde(bound(deserialize = "'de: 'a"))]
pub(super) struct CompanionTransaction<'a> {
    pub(super) sdk: Option<Sdk<'a>>,
    pub(super) release: Option<Text<'a>>,
    pub(super) environment: Option<Text<'a>>,
    pub(super) dist: Option<Text<'a>>,
    #[serde(rename = "transaction")]
    pub(super) name: Option<Text<'a>>,
    pub(super) contexts: Option<CompanionContexts<'a>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(bound(deserialize = "'de: 'a"))]
pub(super) struct Sdk<'a> {
    pub(super) name: Option<Text<'a>>,
    pub(super) version: Option<Text<'a>>,
}

#[derive(Debug, Default, Deserialize)]
pub(super) struct CompanionContexts<'a> {
    #[serde(borrow)]
    pub(super) trace: Option<CompanionTrace<'a>>,
}

#[derive(Debug, Default, Deserialize)]
pub(super) struct CompanionTrace<'a> {
    #[serde(borrow)]
    pub(super) span_id: Option<Text<'a>>,
}

impl CompanionContexts<'_> {
    /// The id of the transaction's span; empty if unknown.
    pub(super) fn span_id(contexts: &Option<Self>) -> &str {
        let trace = contexts.as_ref().and_then(|contexts| contexts.trace.as_ref());
        trace.map_or("", |trace| Text::of(&trace.span_id))
    }
}

impl<'a> Companion<'a> {
    /// Collects the data of an envelope; `sampled` is from the profile's own item header.
    pub fn find(envelope: &'a Envelope, sampled: Option<bool>) -> Self {
        let is_transaction = |header: &[u8]| ItemHeader::read(header).is_ok_and(|header| header.kind == "transaction");
        let item = envelope.items.iter().find(|item| is_transaction(&item.header));
        let payload = item.and_then(|item| item.payload.plain());
        let transaction = payload.and_then(|payload| serde_json::from_slice(payload).ok()).unwrap_or_default();
        Self { is_there: item.is_some(), sampled, transaction }
    }

    /// Whether a profile has everything it needs.
    pub(super) fn is_complete(&self) -> bool {
        self.is_there || self.sampled == Some(false)
    }
}
