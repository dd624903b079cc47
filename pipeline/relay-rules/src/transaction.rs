//! Strictly checks a transaction's payload against Sentry's event schema ("Event Type Definitions" in Sentry's
//! developer documentation), by an independent implementation: each field's type, length and enumeration.
//!
//! Tables contain the schema's rules for each object. They add fields that the schema lacks but Sentry's documentation
//! of transactions and spans has (`spans`, `start_timestamp`, data and links), and rules of our own: no object contains
//! a key twice, and there are no unknown fields.

use serde_json::{Map, Value};

use crate::Violation;
use crate::json::parse;

/// The largest transaction that Relay accepts, in bytes.
const MAX_BYTES: usize = 1 << 20;

/// The maximum number of spans.
const MAX_SPANS: usize = 1000;

/// The required form of a value.
enum Is {
    Text,
    /// Text of at most this many characters.
    Short(usize),
    Number,
    Unsigned,
    Bool,
    Seconds,
    /// This many lower-case hexadecimal digits, not all zero.
    Hex(usize),
    Uuid4,
    /// A UUID without dashes.
    Uuid,
    One(&'static [&'static str]),
    /// An object with any content.
    Any,
    /// An object whose values are texts.
    Texts,
    Tags,
    Object(&'static [FieldRule]),
    /// A list of objects with these fields, and its maximum length.
    List(&'static [FieldRule], usize),
}

struct FieldRule(&'static str, Is, bool);

const fn may(key: &'static str, is: Is) -> FieldRule {
    FieldRule(key, is, false)
}

const fn must(key: &'static str, is: Is) -> FieldRule {
    FieldRule(key, is, true)
}

const PLATFORMS: &[&str] = &[
    "as3",
    "c",
    "cfml",
    "cocoa",
    "csharp",
    "elixir",
    "haskell",
    "go",
    "groovy",
    "java",
    "javascript",
    "native",
    "node",
    "objc",
    "other",
    "perl",
    "php",
    "python",
    "ruby",
];

const SOURCES: &[&str] = &["component", "custom", "route", "sanitized", "task", "url", "unknown", "view"];

const STATUSES: &[&str] = &[
    "aborted",
    "already_exists",
    "cancelled",
    "data_loss",
    "deadline_exceeded",
    "failed_precondition",
    "internal_error",
    "invalid_argument",
    "not_found",
    "ok",
    "out_of_range",
    "permission_denied",
    "resource_exhausted",
    "unauthenticated",
    "unavailable",
    "unimplemented",
    "unknown",
];

const EVENT: &[FieldRule] = &[
    must("event_id", Is::Uuid4),
    must("type", Is::One(&["transaction"])),
    must("platform", Is::One(PLATFORMS)),
    must("transaction", Is::Short(200)),
    must("transaction_info", Is::Object(&[must("source", Is::One(SOURCES))])),
    must("start_timestamp", Is::Seconds),
    must("timestamp", Is::Seconds),
    must("sdk", Is::Object(&[must("name", Is::Text), must("version", Is::Text)])),
    must("contexts", Is::Object(CONTEXTS)),
    must("spans", Is::List(SPAN, MAX_SPANS)),
    may("server_name", Is::Text),
    may("release", Is::Short(200)),
    may("dist", Is::Short(64)),
    may("environment", Is::Short(64)),
    may("tags", Is::Tags),
    may(
        "user",
        Is::Object(&[
            may("id", Is::Text),
            may("username", Is::Text),
            may("name", Is::Text),
            may("email", Is::Text),
            may("ip_address", Is::Text),
        ]),
    ),
    may(
        "request",
        Is::Object(&[
            may("method", Is::Text),
            may("url", Is::Text),
            may("query_string", Is::Text),
            may("fragment", Is::Text),
            may("headers", Is::Texts),
            may("body_size", Is::Unsigned),
            may("env", Is::Any),
            may("cookies", Is::Texts),
        ]),
    ),
];

const CONTEXTS: &[FieldRule] = &[
    must(
        "trace",
        Is::Object(&[
            must("trace_id", Is::Hex(32)),
            must("span_id", Is::Hex(16)),
            may("parent_span_id", Is::Hex(16)),
            may("op", Is::Short(128)),
            may("status", Is::One(STATUSES)),
            may("exclusive_time", Is::Number),
            may("origin", Is::Text),
            may("data", Is::Any),
            may("links", Is::List(LINK, 128)),
        ]),
    ),
    may("profile", Is::Object(&[must("profiler_id", Is::Uuid)])),
    may(
        "response",
        Is::Object(&[
            may("status_code", Is::Unsigned),
            may("body_size", Is::Unsigned),
            may("headers", Is::Texts),
            may("cookies", Is::Texts),
        ]),
    ),
    may("otel", Is::Object(&[may("attributes", Is::Any), may("resource", Is::Any)])),
    may(
        "os",
        Is::Object(&[
            may("build", Is::Text),
            may("kernel_version", Is::Text),
            may("name", Is::Text),
            may("raw_description", Is::Text),
            may("rooted", Is::Bool),
            may("version", Is::Text),
        ]),
    ),
    may(
        "runtime",
        Is::Object(&[
            may("build", Is::Text),
            may("name", Is::Text),
            may("raw_description", Is::Text),
            may("version", Is::Text),
        ]),
    ),
    may(
        "device",
        Is::Object(&[
            may("arch", Is::Text),
            may("brand", Is::Text),
            may("cpu_description", Is::Text),
            may("device_type", Is::Text),
            may("device_unique_identifier", Is::Text),
            may("family", Is::Text),
            may("manufacturer", Is::Text),
            may("model", Is::Text),
            may("model_id", Is::Text),
            may("name", Is::Text),
            may("processor_count", Is::Number),
        ]),
    ),
    may(
        "app",
        Is::Object(&[
            may("app_build", Is::Text),
            may("app_identifier", Is::Text),
            may("app_name", Is::Text),
            may("app_start_time", Is::Text),
            may("app_version", Is::Text),
            may("build_type", Is::Text),
        ]),
    ),
    may("browser", Is::Object(&[may("name", Is::Text), may("version", Is::Text)])),
    may(
        "cloud_resource",
        Is::Object(&[
            may("cloud.account.id", Is::Text),
            may("cloud.availability_zone", Is::Text),
            may("cloud.platform", Is::Text),
            may("cloud.provider", Is::Text),
            may("cloud.region", Is::Text),
            may("host.id", Is::Text),
            may("host.type", Is::Text),
        ]),
    ),
];

const SPAN: &[FieldRule] = &[
    must("trace_id", Is::Hex(32)),
    must("span_id", Is::Hex(16)),
    may("parent_span_id", Is::Hex(16)),
    must("start_timestamp", Is::Seconds),
    must("timestamp", Is::Seconds),
    may("op", Is::Short(128)),
    may("description", Is::Text),
    may("status", Is::One(STATUSES)),
    may("origin", Is::Text),
    may("data", Is::Any),
    may("links", Is::List(LINK, 128)),
];

const LINK: &[FieldRule] = &[
    must("trace_id", Is::Hex(32)),
    must("span_id", Is::Hex(16)),
    may("sampled", Is::Bool),
    may("attributes", Is::Any),
];

/// Checks the payload of a `transaction` item of profbridge.
///
/// # Errors
///
/// Every broken rule, at most a hundred.
pub fn validate_transaction(payload: &[u8]) -> Result<(), Vec<Violation>> {
    let mut checker = TransactionChecker(Vec::new());
    if payload.len() > MAX_BYTES {
        checker.add("payload", format!("has {} bytes, Relay takes {MAX_BYTES}", payload.len()));
    }
    if payload.contains(&b'\n') {
        checker.add("payload", "is more than a line, at whose end an item without a length ends");
    }
    match parse(payload) {
        Ok(Value::Object(event)) => {
            checker.object(&event, EVENT, "");
            checker.in_order(&event, "");
            for (number, span) in event.get("spans").and_then(Value::as_array).into_iter().flatten().enumerate() {
                if let Value::Object(span) = span {
                    checker.in_order(span, &format!("spans[{number}]."));
                }
            }
        }
        Ok(_) => checker.add("payload", "is not an object"),
        Err(error) => checker.add("payload", format!("is not JSON: {error}")),
    }
    if checker.0.is_empty() { Ok(()) } else { Err(checker.0) }
}

struct TransactionChecker(Vec<Violation>);

impl TransactionChecker {
    fn add(&mut self, place: impl Into<String>, rule: impl Into<String>) {
        if self.0.len() < crate::MAX_VIOLATIONS {
            self.0.push(Violation { place: place.into(), rule: rule.into() });
        }
    }

    fn object(&mut self, object: &Map<String, Value>, fields: &[FieldRule], place: &str) {
        for FieldRule(key, _, needed) in fields {
            if *needed && !object.contains_key(*key) {
                self.add(format!("{place}{key}"), "is missing");
            }
        }
        for (key, value) in object {
            match fields.iter().find(|field| field.0 == key) {
                Some(FieldRule(_, is, _)) => self.value(value, is, &format!("{place}{key}")),
                None => self.add(format!("{place}{key}"), "is not in the schema"),
            }
        }
    }

    fn value(&mut self, value: &Value, is: &Is, place: &str) {
        let text = value.as_str();
        let problem = match is {
            Is::Text => text.is_none().then(|| "must be text".to_owned()),
            Is::Short(max) => {
                let fits = text.is_some_and(|text| text.chars().count() <= *max && !text.is_empty());
                (!fits).then(|| format!("must be text of 1 to {max} characters"))
            }
            Is::Number => (!value.is_number()).then(|| "must be a number".to_owned()),
            Is::Unsigned => (!value.is_u64()).then(|| "must be a whole number from 0".to_owned()),
            Is::Bool => (!value.is_boolean()).then(|| "must be a truth value".to_owned()),
            Is::Seconds => {
                let is_time = value.as_f64().is_some_and(|seconds| seconds.is_finite() && seconds >= 0.0);
                (!is_time).then(|| "must be seconds since 1970".to_owned())
            }
            Is::Hex(digits) => (!text
                .is_some_and(|text| is_hex(text, *digits) && text.bytes().any(|digit| digit != b'0')))
            .then(|| format!("must be {digits} lower-case hexadecimal digits, not all of them 0")),
            Is::Uuid4 => {
                let is_uuid = text.is_some_and(|text| {
                    is_hex(text, 32) && text.as_bytes()[12] == b'4' && b"89ab".contains(&text.as_bytes()[16])
                });
                (!is_uuid).then(|| "must be a UUID v4 without dashes, in lower case".to_owned())
            }
            Is::Uuid => {
                (!text.is_some_and(|text| is_hex(text, 32))).then(|| "must be a UUID without dashes".to_owned())
            }
            Is::One(those) => {
                (!text.is_some_and(|text| those.contains(&text))).then(|| format!("must be one of {those:?}"))
            }
            Is::Any => (!value.is_object()).then(|| "must be an object".to_owned()),
            Is::Texts => {
                let texts = value.as_object().is_some_and(|object| object.values().all(Value::is_string));
                (!texts).then(|| "must be an object of texts".to_owned())
            }
            Is::Tags => {
                let all = value.as_object().is_some_and(|tags| tags.iter().all(|(key, value)| is_tag(key, value)));
                (!all).then(|| "must be tags: keys of 1 to 32, values of 1 to 199 characters".to_owned())
            }
            Is::Object(fields) => match value {
                Value::Object(object) => return self.object(object, fields, &format!("{place}.")),
                _ => Some("must be an object".to_owned()),
            },
            Is::List(fields, max) => match value {
                Value::Array(list) if list.len() <= *max => {
                    for (number, element) in list.iter().enumerate() {
                        self.value(element, &Is::Object(fields), &format!("{place}[{number}]"));
                    }
                    None
                }
                _ => Some(format!("must be a list of at most {max}")),
            },
        };
        if let Some(problem) = problem {
            let mut shown = value.to_string();
            shown.truncate(shown.char_indices().nth(200).map_or(shown.len(), |(end, _)| end));
            self.add(place, format!("{problem}, is {shown}"));
        }
    }

    /// Checks that an object does not end before it begins, because Sentry drops such objects.
    fn in_order(&mut self, object: &Map<String, Value>, place: &str) {
        let seconds = |key: &str| object.get(key).and_then(Value::as_f64).unwrap_or_default();
        if seconds("start_timestamp") > seconds("timestamp") {
            self.add(format!("{place}timestamp"), "is before the start");
        }
    }
}

fn is_hex(text: &str, digits: usize) -> bool {
    text.len() == digits && text.bytes().all(|digit| matches!(digit, b'0'..=b'9' | b'a'..=b'f'))
}

fn is_tag(key: &str, value: &Value) -> bool {
    let of_key = |c: char| c.is_ascii_alphanumeric() || "_.:-".contains(c);
    (1..=32).contains(&key.len())
        && key.chars().all(of_key)
        && value.as_str().is_some_and(|value| !value.is_empty() && value.chars().count() < 200 && !value.contains('\n'))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn transaction() -> Value {
        json!({
            "event_id": "0123456789ab4def8123456789abcdef", "type": "transaction", "platform": "python",
            "transaction": "GET /", "transaction_info": {"source": "route"},
            "start_timestamp": 1.5, "timestamp": 2.0, "sdk": {"name": "a", "version": "1"},
            "contexts": {"trace": {"trace_id": "1".repeat(32), "span_id": "1".repeat(16), "status": "ok"}},
            "spans": [{"trace_id": "1".repeat(32), "span_id": "2".repeat(16), "start_timestamp": 1, "timestamp": 2}],
            "tags": {"k": "v"},
        })
    }

    /// Guarantees: a transaction that breaks one rule is refused, and the error names the rule and the place; one that
    /// breaks none is accepted.
    /// rule: event-schema#event-type, event-schema#type-transaction, event-schema#transaction-sdk
    #[test]
    fn each_rule() {
        assert_eq!(validate_transaction(transaction().to_string().as_bytes()), Ok(()));
        for (pointer, value, place) in [
            ("/event_id", json!("0123456789ab1def8123456789abcdef"), "event_id"),
            ("/type", json!("event"), "type"),
            ("/platform", json!("rust"), "platform"),
            ("/transaction", json!("x".repeat(201)), "transaction"),
            ("/transaction_info/source", json!("path"), "transaction_info.source"),
            ("/start_timestamp", json!("2020"), "start_timestamp"),
            ("/timestamp", json!(1.4), "timestamp"),
            ("/spans/0/timestamp", json!(0.5), "spans[0].timestamp"),
            ("/spans/0/span_id", json!("2"), "spans[0].span_id"),
            ("/contexts/trace/trace_id", json!("0".repeat(32)), "contexts.trace.trace_id"),
            ("/contexts/trace/status", json!("unknown_error"), "contexts.trace.status"),
            ("/tags/k", json!("x".repeat(200)), "tags"),
            ("/tags", json!({"k k": "v"}), "tags"),
            ("/sdk", json!({"name": "a"}), "sdk.version"),
            ("/sdk/name", json!(null), "sdk.name"),
        ] {
            let mut broken = transaction();
            *broken.pointer_mut(pointer).unwrap() = value;
            let places: Vec<_> =
                validate_transaction(broken.to_string().as_bytes()).unwrap_err().into_iter().map(|v| v.place).collect();
            assert_eq!(places, [place], "{pointer}");
        }
        let mut broken = transaction();
        broken["contexts"]["trace"]["client_sample_rate"] = json!(0.5);
        broken["spans"] = json!(vec![broken["spans"][0].clone(); 1001]);
        let rules = validate_transaction(broken.to_string().as_bytes()).unwrap_err();
        assert_eq!(
            rules.iter().map(|v| v.place.as_str()).collect::<Vec<_>>(),
            ["contexts.trace.client_sample_rate", "spans"]
        );
        let twice = transaction().to_string().replacen('{', "{\"type\":\"transaction\",", 1);
        assert!(validate_transaction(twice.as_bytes()).unwrap_err()[0].rule.contains("twice"));
        let lines = serde_json::to_vec_pretty(&transaction()).unwrap();
        assert!(validate_transaction(&lines).unwrap_err()[0].rule.contains("a line"));
    }
}
