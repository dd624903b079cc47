//! The naive control for spans: converts OTLP traces to Sentry transactions in a straightforward way, without regard to
//! speed. prost decodes, a map groups traces, owned serde structs represent the events, `serde_json::to_vec` writes
//! them. It only knows the conventions used in the workload ([`traces`](crate::workload::traces)), and has no limits.

use std::collections::{BTreeMap, HashMap};

use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value as Any;
use opentelemetry_proto::tonic::common::v1::{InstrumentationScope, KeyValue};
use opentelemetry_proto::tonic::trace::v1::Span;
use prost::Message;
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::Error;

#[derive(Serialize)]
struct NaiveTransaction {
    #[serde(rename = "type")]
    kind: &'static str,
    platform: String,
    transaction: String,
    transaction_info: BTreeMap<String, String>,
    start_timestamp: f64,
    timestamp: f64,
    release: String,
    environment: String,
    server_name: Option<String>,
    tags: BTreeMap<String, String>,
    request: Value,
    contexts: Map<String, Value>,
    spans: Vec<Child>,
}

#[derive(Serialize)]
struct Child {
    trace_id: String,
    span_id: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    parent_span_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    op: Option<String>,
    description: String,
    status: String,
    origin: String,
    start_timestamp: f64,
    timestamp: f64,
    data: Map<String, Value>,
}

/// The transactions of an encoded request as JSON, in the order of their roots.
///
/// # Errors
///
/// The request does not decode.
pub fn transactions(request: &[u8]) -> Result<Vec<Vec<u8>>, Error> {
    let request = ExportTraceServiceRequest::decode(request)?;
    let mut json = Vec::new();
    for resource_spans in request.resource_spans {
        let resource = attributes(&resource_spans.resource.unwrap_or_default().attributes);
        let mut traces: HashMap<Vec<u8>, Vec<(InstrumentationScope, Span)>> = HashMap::new();
        let mut order = Vec::new();
        for scope_spans in resource_spans.scope_spans {
            let scope = scope_spans.scope.unwrap_or_default();
            for span in scope_spans.spans {
                let spans = traces.entry(span.trace_id.clone()).or_insert_with(|| {
                    order.push(span.trace_id.clone());
                    Vec::new()
                });
                spans.push((scope.clone(), span));
            }
        }
        for trace in order {
            if let Some(transaction) = transaction(&resource, traces.remove(&trace).unwrap_or_default()) {
                json.push(serde_json::to_vec(&transaction)?);
            }
        }
    }
    Ok(json)
}

fn transaction(
    resource: &Map<String, Value>,
    mut spans: Vec<(InstrumentationScope, Span)>,
) -> Option<NaiveTransaction> {
    let position = spans.iter().position(|(_, span)| span.parent_span_id.is_empty())?;
    let (scope, root) = spans.remove(position);
    spans.sort_by_key(|(_, span)| span.start_time_unix_nano);
    let plain = attributes(&root.attributes);
    let text = |key: &str| plain.get(key).and_then(Value::as_str).map(str::to_owned);
    let of_resource = |key: &str| resource.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
    let (_, _, source) = described(&root, &plain);
    let mut request = json!({
        "method": text("http.request.method"),
        "url": format!("{}://{}{}", text("url.scheme")?, text("server.address")?, text("url.path")?),
        "headers": {"user-agent": text("user_agent.original")},
        "env": {"REMOTE_ADDR": text("client.address")},
    });
    if let Some(query) = text("url.query") {
        request["query_string"] = query.into();
    }
    let response = json!({"status_code": plain.get("http.response.status_code")});
    let child = child(&scope, root);
    let mut trace = json!({
        "trace_id": child.trace_id, "span_id": child.span_id, "status": child.status, "origin": child.origin,
        "data": child.data,
    });
    if let Some(op) = child.op {
        trace["op"] = op.into();
    }
    let tags = resource.iter().filter_map(|(key, value)| {
        let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        (key.len() <= 32 && value.len() < 200).then(|| (key.clone(), value))
    });
    let mut contexts = Map::new();
    contexts.insert("trace".to_owned(), trace);
    contexts.insert("response".to_owned(), response);
    contexts.insert("otel".to_owned(), json!({"resource": resource}));
    contexts.insert("os".to_owned(), json!({"name": of_resource("os.type")}));
    let runtime =
        json!({"name": of_resource("process.runtime.name"), "version": of_resource("process.runtime.version")});
    contexts.insert("runtime".to_owned(), runtime);
    contexts.insert("device".to_owned(), json!({"arch": of_resource("host.arch")}));
    let app = json!({"app_name": of_resource("service.name"), "app_version": of_resource("service.version")});
    contexts.insert("app".to_owned(), app);
    let cloud = ["cloud.provider", "cloud.region", "host.id"].map(|key| (key.to_owned(), of_resource(key).into()));
    contexts.insert("cloud_resource".to_owned(), Value::Object(cloud.into_iter().collect()));
    Some(NaiveTransaction {
        kind: "transaction",
        platform: of_resource("telemetry.sdk.language"),
        transaction: child.description,
        transaction_info: BTreeMap::from([("source".to_owned(), source.to_owned())]),
        start_timestamp: child.start_timestamp,
        timestamp: child.timestamp,
        release: format!("{}@{}", of_resource("service.name"), of_resource("service.version")),
        environment: of_resource("deployment.environment.name"),
        server_name: Some(of_resource("host.name")),
        tags: tags.collect(),
        request,
        contexts,
        spans: spans.into_iter().map(|(scope, span)| self::child(&scope, span)).collect(),
    })
}

fn child(scope: &InstrumentationScope, span: Span) -> Child {
    let mut data = attributes(&span.attributes);
    let (op, description, _) = described(&span, &data);
    let status = status(&span, &data);
    if let Some(thread) = data.get_mut("thread.id") {
        *thread = thread.to_string().into();
    }
    if let Some(kind) = [None, None, Some("SERVER"), Some("CLIENT"), Some("PRODUCER"), Some("CONSUMER")]
        .get(span.kind as usize)
        .copied()
        .flatten()
    {
        data.insert("otel.kind".to_owned(), kind.into());
    }
    data.insert("otel.scope.name".to_owned(), scope.name.clone().into());
    data.insert("otel.scope.version".to_owned(), scope.version.clone().into());
    data.insert("sentry.origin".to_owned(), "auto.otlp.spans".into());
    if let Some(status) = span.status.as_ref().filter(|status| !status.message.is_empty()) {
        data.insert("sentry.status.message".to_owned(), status.message.clone().into());
    }
    if !span.events.is_empty() {
        let events = span.events.iter().map(|event| {
            json!({
                "name": event.name, "timestamp": seconds(event.time_unix_nano),
                "attributes": attributes(&event.attributes),
            })
        });
        data.insert("otel.events".to_owned(), events.collect());
    }
    Child {
        trace_id: hex(&span.trace_id),
        span_id: hex(&span.span_id),
        parent_span_id: (!span.parent_span_id.is_empty()).then(|| hex(&span.parent_span_id)),
        op,
        description,
        status,
        origin: "auto.otlp.spans".to_owned(),
        start_timestamp: seconds(span.start_time_unix_nano),
        timestamp: seconds(span.end_time_unix_nano),
        data,
    }
}

/// The operation, the description and the source of a span's transaction.
fn described(span: &Span, data: &Map<String, Value>) -> (Option<String>, String, &'static str) {
    let text = |key: &str| data.get(key).and_then(Value::as_str);
    if let Some(method) = text("http.request.method") {
        let op = if span.kind == 2 { "http.server" } else { "http.client" };
        if let Some(route) = text("http.route") {
            return (Some(op.to_owned()), format!("{method} {route}"), "route");
        }
        let url = text("url.full").unwrap_or_default();
        let url = url.split('?').next().unwrap_or_default();
        return (Some(op.to_owned()), format!("{method} {url}"), "url");
    }
    if data.contains_key("db.system.name") {
        return (Some("db".to_owned()), text("db.query.text").unwrap_or(&span.name).to_owned(), "task");
    }
    if data.contains_key("messaging.system") {
        return (Some("message".to_owned()), span.name.clone(), "route");
    }
    (None, span.name.clone(), "custom")
}

fn status(span: &Span, data: &Map<String, Value>) -> String {
    let is_error = span.status.as_ref().is_some_and(|status| status.code == 2);
    let status = match data.get("http.response.status_code").and_then(Value::as_i64) {
        Some(503) => "unavailable",
        Some(500) => "internal_error",
        _ if is_error => "internal_error",
        _ => "ok",
    };
    status.to_owned()
}

fn attributes(pairs: &[KeyValue]) -> Map<String, Value> {
    let value = |pair: &KeyValue| match pair.value.as_ref().and_then(|value| value.value.as_ref()) {
        Some(Any::StringValue(text)) => Value::from(text.as_str()),
        Some(Any::IntValue(number)) => Value::from(*number),
        Some(Any::DoubleValue(number)) => Value::from(*number),
        Some(Any::BoolValue(value)) => Value::from(*value),
        _ => Value::Null,
    };
    pairs.iter().map(|pair| (pair.key.clone(), value(pair))).collect()
}

fn seconds(unix_nano: u64) -> f64 {
    (unix_nano / 1_000) as f64 / 1e6
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
