//! A transaction in an envelope of its own.
//!
//! Relay takes one event or transaction in an envelope (getsentry/relay `relay-server/src/utils/sizes.rs`). The JSON is
//! one line, so the item needs no `length`; an item without one ends at the line's end (Sentry developer documentation,
//! "Envelopes"). There is no `sent_at`: Sentry would take the time that the envelope waits here, or that the spans
//! waited for each other, for a clock that is wrong.

use serde_json::{Map, Value};

use super::Dsn;
use super::chunk_envelope::SDK_NAME;
use super::transaction::{Resource, Source, Summary};

/// The lines before a transaction's JSON: the envelope's header and the item's. A line's end follows the JSON.
///
/// The header `trace` is the Dynamic Sampling Context (Sentry developer documentation, "Dynamic Sampling Context"),
/// whose values are text. It is the one of the process's own root, since OTLP does not carry the one of the trace's
/// first process. A name with identifiers in it is no name there, as in Sentry's SDKs.
pub fn head(transaction: &Summary, resource: &Resource, to: &Dsn) -> String {
    let mut trace = Map::new();
    let mut say = |key: &str, value: Option<String>| {
        if let Some(value) = value {
            trace.insert(key.to_owned(), Value::String(value));
        }
    };
    say("trace_id", Some(transaction.trace_id.to_string()));
    say("public_key", Some(to.public_key().to_owned()));
    say("sample_rate", transaction.sample_rate.map(|rate| rate.to_string()));
    say("sampled", Some("true".to_owned()));
    say("transaction", Some(transaction.name.to_string()).filter(|_| transaction.source != Source::Url));
    say("release", resource.release.clone());
    say("environment", resource.environment.clone());
    let event_id = transaction.event_id.simple();
    let version = env!("CARGO_PKG_VERSION");
    let trace = Value::Object(trace);
    format!(
        "{{\"event_id\":\"{event_id}\",\"sdk\":{{\"name\":\"{SDK_NAME}\",\"version\":\"{version}\"}},\
         \"trace\":{trace}}}\n\
         {{\"type\":\"transaction\",\"content_type\":\"application/json\"}}\n"
    )
}
