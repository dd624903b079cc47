//! Converts a V1 profile and its transaction to a chunk and a transaction that is linked to it.
//!
//! In V1, transaction and profile name each other's ids. With chunks, the transaction names the profiler
//! (`contexts.profile.profiler_id`) and its thread (`contexts.trace.data`, `thread.id`), and Sentry matches by time
//! (Sentry developer documentation, "Sample Format V2"). Both values are inserted into the transaction's text; all
//! other bytes stay the same, including a `profile_id` of V1.

use bytes::Bytes;
use profbridge_model::{Envelope, Item, Profiles, Value, whole_chunk};
use serde_json::json;

use super::chunk::{Collected, ConversionReport, Converter};
use super::envelope::ItemHeader;
use super::splice::{self, SpliceError};

/// The result for a V1 profile.
#[derive(Debug)]
pub struct Upgraded {
    /// The chunks, usually one, each an item of the type `profile_chunk`. Each must be sent in its own envelope: Relay
    /// rejects two profiles in one (getsentry/relay `relay-server/src/utils/sizes.rs`).
    pub chunks: Vec<Item>,
    /// The position of the transaction in the envelope, and its new item. `None` if the envelope has no transaction:
    /// the profile of an unsampled transaction is sent alone.
    pub transaction: Option<(usize, Item)>,
    /// What happened to the profile's samples.
    pub report: ConversionReport,
}

/// Why a profile cannot be upgraded. The caller then sends it unmodified.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UpgradeError {
    /// The batch was not read from a V1 profile.
    #[error("the batch is no V1 profile of Sentry's")]
    NoProfile,
    /// No sample of the profile is left to send.
    #[error("no sample of the profile is left to send")]
    NoChunk,
    /// The transaction's payload is only in the compressed body.
    #[error("items[{item}]: the transaction is only in the compressed body that was received")]
    StillPacked {
        /// The transaction's position.
        item: usize,
    },
    /// The transaction cannot be edited.
    #[error("items[{item}]: the transaction: {error}")]
    Transaction {
        /// The transaction's position.
        item: usize,
        /// The reason.
        error: SpliceError,
    },
}

/// Upgrades a V1 profile of an envelope, which was read as this batch (an [`ItemView`](profbridge_model::ItemView)).
/// The transaction may come before or after it.
///
/// # Errors
///
/// Nothing has been changed then, and the envelope can be sent unmodified.
pub fn upgrade(envelope: &Envelope, profiles: &Profiles, converter: &mut Converter) -> Result<Upgraded, UpgradeError> {
    let transaction = linked_transaction(envelope, profiles)?;
    let mut collected = Collected::default();
    let report = converter.convert(profiles, &mut collected);
    if collected.chunks.is_empty() {
        return Err(UpgradeError::NoChunk);
    }
    let item = |(payload, platform): (Vec<u8>, String)| {
        let header = json!({
            "type": "profile_chunk",
            "platform": platform,
            "content_type": "application/json",
            "length": payload.len(),
        });
        Item { header: header.to_string().into(), payload: Bytes::from(payload).into() }
    };
    let chunks = collected.chunks.into_iter().map(|(payload, summary)| item((payload, summary.platform))).collect();
    Ok(Upgraded { chunks, transaction, report })
}

/// The position of the transaction in the envelope of a V1 profile, and its new item that names the profiler and the
/// thread of the profile's chunks. `None` if there is no transaction.
///
/// # Errors
///
/// The batch is not a V1 profile, or the transaction cannot be edited.
pub fn linked_transaction(envelope: &Envelope, profiles: &Profiles) -> Result<Option<(usize, Item)>, UpgradeError> {
    let (profiler_id, thread) = link(profiles).ok_or(UpgradeError::NoProfile)?;
    let linked = find(envelope).map(|(at, item)| Ok((at, linked(at, item, &profiler_id, thread.as_deref())?)));
    linked.transpose()
}

/// The profiler's id, and the id of the transaction's thread.
fn link(profiles: &Profiles) -> Option<(String, Option<String>)> {
    let [resource] = profiles.resources() else { return None };
    let profile = profiles.profiles().next()?;
    let profiler_id = whole_chunk::window(profiles, resource, profile)?.profiler_id;
    let dictionary = profiles.dictionary();
    dictionary.find(profile.attributes, "sentry.transaction.id")?;
    let thread = match dictionary.find(profile.attributes, "sentry.active_thread_id") {
        Some(Value::Int(thread)) => Some(thread.to_string()),
        Some(Value::String(thread)) => Some(dictionary.string(*thread).to_owned()),
        _ => None,
    };
    Some((profiler_id.to_string(), thread))
}

/// The envelope's transaction and its position.
fn find(envelope: &Envelope) -> Option<(usize, &Item)> {
    let is_transaction = |item: &Item| ItemHeader::read(&item.header).is_ok_and(|header| header.kind == "transaction");
    envelope.items.iter().enumerate().find(|(_, item)| is_transaction(item))
}

/// The transaction's item with the links to its profiler and thread.
fn linked(at: usize, item: &Item, profiler_id: &str, thread: Option<&str>) -> Result<Item, UpgradeError> {
    let wrong = |error| UpgradeError::Transaction { item: at, error };
    let payload = item.payload.plain().ok_or(UpgradeError::StillPacked { item: at })?;
    let text = |text: &str| serde_json::Value::from(text).to_string();
    let mut payload =
        splice::set(payload, &["contexts", "profile", "profiler_id"], &text(profiler_id)).map_err(wrong)?;
    if let Some(thread) = thread {
        payload = splice::set(&payload, &["contexts", "trace", "data", "thread.id"], &text(thread)).map_err(wrong)?;
    }
    let has_length = ItemHeader::read(&item.header).is_ok_and(|header| header.length.is_some());
    let header = match has_length {
        true => splice::set(&item.header, &["length"], &payload.len().to_string()).map_err(wrong)?.into(),
        false => item.header.clone(),
    };
    Ok(Item { header, payload: Bytes::from(payload).into() })
}

#[cfg(test)]
mod tests;
