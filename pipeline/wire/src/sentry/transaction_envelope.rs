//! Puts a transaction, or a container of spans, into its own envelope.
//!
//! Relay accepts one event or transaction per envelope (getsentry/relay `relay-server/src/utils/sizes.rs`). The JSON is
//! one line, so a transaction's item needs no `length`; an item without one ends at the line break (Sentry developer
//! documentation, "Envelopes"). There is no `sent_at`: Sentry would interpret the time that the envelope waits here, or
//! that the spans waited for each other, as clock drift.

use profbridge_model::{Item, TraceId};
use serde_json::{Map, Value};

use super::Dsn;
use super::chunk_envelope::SDK_NAME;
use super::transaction::{NameSource, Summary, TransactionResource};

/// The lines before a transaction's JSON: the envelope's header and the item's. A line break follows the JSON.
///
/// The header `trace` is the Dynamic Sampling Context (Sentry developer documentation, "Dynamic Sampling Context"),
/// whose values are text. It describes the process's own root, since OTLP does not carry the context of the trace's
/// first process. As in Sentry's SDKs, it has no transaction name if the name may contain identifiers. If the
/// destination `to` is unknown, as for a file, it has no `public_key`: Relay then ignores it (getsentry/relay
/// `relay-sampling/src/dsc.rs`, where the key is required), and profbridge's own reader takes the rate from it.
pub fn head(transaction: &Summary, resource: &TransactionResource, to: Option<&Dsn>) -> String {
    let name = Some(&*transaction.name).filter(|_| transaction.source != NameSource::Url);
    let trace = trace(transaction.trace_id, transaction.sample_rate, name, resource, to);
    let (event_id, sdk) = (transaction.event_id.simple(), sdk());
    format!(
        "{{\"event_id\":\"{event_id}\",{sdk},\"trace\":{trace}}}\n\
         {{\"type\":\"transaction\",\"content_type\":\"application/json\"}}\n"
    )
}

/// The lines before the JSON of a container with spans of one trace: the envelope's header, which names the trace, and
/// the item's. A line break follows the JSON.
pub fn container_head(
    item: &Item,
    trace_id: TraceId,
    rate: Option<f64>,
    resource: &TransactionResource,
    to: Option<&Dsn>,
) -> Vec<u8> {
    let trace = trace(trace_id, rate, None, resource, to);
    [format!("{{{},\"trace\":{trace}}}\n", sdk()).as_bytes(), &item.header, b"\n"].concat()
}

/// The SDK's name and version: a member of the envelope's header.
fn sdk() -> String {
    format!("\"sdk\":{{\"name\":\"{SDK_NAME}\",\"version\":\"{}\"}}", env!("CARGO_PKG_VERSION"))
}

/// The header `trace`.
fn trace(
    trace_id: TraceId,
    rate: Option<f64>,
    name: Option<&str>,
    resource: &TransactionResource,
    to: Option<&Dsn>,
) -> Value {
    let mut trace = Map::new();
    let mut say = |key: &str, value: Option<String>| {
        if let Some(value) = value {
            trace.insert(key.to_owned(), Value::String(value));
        }
    };
    say("trace_id", Some(trace_id.to_string()));
    say("public_key", to.map(|dsn| dsn.public_key().to_owned()));
    say("sample_rate", rate.map(|rate| rate.to_string()));
    say("sampled", Some("true".to_owned()));
    say("transaction", name.map(str::to_owned));
    say("release", resource.release.clone());
    say("environment", resource.environment.clone());
    Value::Object(trace)
}
