//! The data of the process in a transaction, the same for every transaction of a resource.

use profbridge_model::Spans;
use profbridge_model::spans::SpanResource;

use super::limits::{
    MAX_DIST_BYTES, MAX_RELEASE_BYTES, MAX_TAG_KEY, MAX_TAG_VALUE, MAX_TAGS, MAX_TEXT_BYTES, MAX_TRANSACTION_BYTES,
};
use super::notes::Notes;
use super::value::{Json, UniqueKeys};
use crate::otlp::traces::{AnyValue, read};
use crate::sentry::about::About;
use crate::sentry::chunk::limits::MAX_ENVIRONMENT;
use crate::sentry::{ResourceAttributes, platform};

/// Keys that Sentry does not accept as tags, because it has fields for them (Sentry documentation, "Customize Tags").
const NO_TAGS: [&str; 5] = ["release", "dist", "environment", "server_name", "user"];

/// The data of a resource, prepared for its transactions.
#[derive(Debug)]
pub struct TransactionResource {
    /// The release, if the process names one that Sentry accepts.
    pub release: Option<String>,
    /// The environment, if Sentry accepts it.
    pub environment: Option<String>,
    /// Sentry's platform for the process's language.
    pub platform: &'static str,
    /// Top-level members of the event: server name, release, tags.
    pub(super) top: Vec<u8>,
    /// Contexts that describe it.
    pub(super) contexts: Vec<u8>,
    /// The context `otel` with all attributes.
    pub(super) otel: Vec<u8>,
    /// The data that its transactions lack.
    pub(super) notes: Notes,
}

/// A member of a context, and the attributes that may provide it.
type Member = (&'static str, &'static [&'static str]);

/// The contexts: name and members. A member is the text of the first attribute that exists (event schema, `OSContext`
/// and the following ones; OpenTelemetry semantic conventions, registry).
const CONTEXTS: &[(&str, &[Member])] = &[
    (
        "os",
        &[
            ("name", &["os.name", "os.type"]),
            ("version", &["os.version"]),
            ("build", &["os.build_id"]),
            ("raw_description", &["os.description"]),
        ],
    ),
    (
        "runtime",
        &[
            ("name", &["process.runtime.name"]),
            ("version", &["process.runtime.version"]),
            ("raw_description", &["process.runtime.description"]),
        ],
    ),
    (
        "device",
        &[
            ("arch", &["host.arch"]),
            ("model", &["device.model.name"]),
            ("model_id", &["device.model.identifier"]),
            ("manufacturer", &["device.manufacturer"]),
            ("device_unique_identifier", &["device.id"]),
            ("cpu_description", &["host.cpu.model.name"]),
        ],
    ),
    (
        "app",
        &[
            ("app_name", &["service.name"]),
            ("app_version", &["service.version"]),
            ("app_build", &["app.build_id"]),
            ("app_start_time", &["process.creation.time"]),
        ],
    ),
    (
        "cloud_resource",
        &[
            ("cloud.account.id", &["cloud.account.id"]),
            ("cloud.availability_zone", &["cloud.availability_zone"]),
            ("cloud.platform", &["cloud.platform"]),
            ("cloud.provider", &["cloud.provider"]),
            ("cloud.region", &["cloud.region"]),
            ("host.id", &["host.id"]),
            ("host.type", &["host.type"]),
        ],
    ),
];

impl TransactionResource {
    /// Prepares a resource of a batch. `environment` is the default for processes without one.
    pub fn of(spans: &Spans, resource: &SpanResource, environment: &str) -> Self {
        let attributes = ResourceAttributes::of_resource(spans, resource);
        let mut json = Json::default();
        let (release, environment) = release_and_environment(&attributes, environment, &mut json.notes);
        let dist = attributes.attribute("sentry.dist").and_then(|text| valid(text, is_dist, &mut json.notes));
        let added = resource.added.iter().map(|(key, value)| (&**key, AnyValue::Text(value)));
        let mut names = UniqueKeys::default();
        let attributes: Vec<(&str, AnyValue<'_>)> =
            read::resource_attributes(spans, resource).chain(added).filter(|(key, _)| names.is_new(key)).collect();
        let text = |key: &str| {
            let found = attributes.iter().find(|(known, _)| *known == key);
            found.and_then(|(_, value)| value.text()).filter(|text| !text.is_empty())
        };
        let members = [
            (",\"server_name\":", text("host.name")),
            (",\"release\":", release.as_deref()),
            (",\"dist\":", dist.as_deref()),
            (",\"environment\":", environment.as_deref()),
        ];
        for (before, text) in members {
            if let Some(text) = text {
                json.string(before, text, MAX_TEXT_BYTES);
            }
        }
        tags(&attributes, &mut json);
        let top = std::mem::take(&mut json.out);
        for (name, members) in CONTEXTS {
            let mut present =
                members.iter().filter_map(|(member, keys)| Some((member, keys.iter().find_map(|key| text(key))?)));
            let Some(first) = present.next() else { continue };
            json.raw(",\"");
            json.raw(name);
            json.raw("\":{");
            for (member, value) in std::iter::once(first).chain(present) {
                json.out.push(b'"');
                json.raw(member);
                json.string("\":", value, MAX_TEXT_BYTES);
                json.out.push(b',');
            }
            json.end(b'}');
        }
        let contexts = std::mem::take(&mut json.out);
        json.full = MAX_TRANSACTION_BYTES;
        if !attributes.is_empty() {
            json.raw(",\"otel\":{\"resource\":{");
            for (key, value) in &attributes {
                if !json.is_full() {
                    json.member(key, *value, 0);
                }
            }
            json.end(b'}');
            json.out.push(b'}');
        }
        let platform = platform::of_language(text("telemetry.sdk.language").unwrap_or_default());
        Self { release, environment, platform, top, contexts, otel: json.out, notes: json.notes }
    }
}

/// The release and the environment of a process, if Sentry accepts them. `default` is the environment of a process
/// without one.
pub(in crate::sentry) fn release_and_environment(
    attributes: &ResourceAttributes<'_>,
    default: &str,
    notes: &mut Notes,
) -> (Option<String>, Option<String>) {
    let About { release, environment, .. } = About::of(attributes, default);
    let release = release.and_then(|text| valid(text, is_release, notes));
    (release, valid(environment, is_environment, notes))
}

/// Writes `,"tags":{…}`: the attributes that are valid as tags. Nothing is lost, because all of them are also in the
/// context `otel`.
fn tags(attributes: &[(&str, AnyValue<'_>)], json: &mut Json) {
    let mut tags = 0;
    for (key, value) in attributes {
        let number;
        let value = match value {
            AnyValue::Text(text) => *text,
            AnyValue::Int(value) => {
                number = value.to_string();
                &number
            }
            AnyValue::Bool(true) => "true",
            AnyValue::Bool(false) => "false",
            _ => continue,
        };
        if !is_tag_key(key) || !is_tag_value(value) || tags == MAX_TAGS {
            continue;
        }
        json.raw(if tags == 0 { ",\"tags\":{\"" } else { "\"" });
        json.raw(key);
        json.string("\":", value, MAX_TEXT_BYTES);
        json.out.push(b',');
        tags += 1;
    }
    if tags > 0 {
        json.end(b'}');
    }
}

fn is_tag_key(key: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"_.:-".contains(&byte);
    (1..=MAX_TAG_KEY).contains(&key.len()) && key.bytes().all(allowed) && !NO_TAGS.contains(&key)
}

fn is_tag_value(value: &str) -> bool {
    !value.trim().is_empty() && !value.contains(char::is_control) && value.chars().nth(MAX_TAG_VALUE - 1).is_none()
}

/// The text if it follows a rule; otherwise it is dropped and counted.
fn valid(text: String, rule: impl Fn(&str) -> bool, notes: &mut Notes) -> Option<String> {
    let keeps = rule(&text);
    notes.invalid_values += u64::from(!keeps);
    keeps.then_some(text)
}

/// Whether Sentry accepts a release (getsentry/sentry-release-parser `src/parser.rs`, `validate_release`; Sentry
/// documentation, "Releases").
fn is_release(text: &str) -> bool {
    is_name(text, MAX_RELEASE_BYTES) && !text.eq_ignore_ascii_case("latest") && !text.contains('\\')
}

/// Whether Sentry accepts an environment (getsentry/sentry-release-parser `src/parser.rs`, `validate_environment`).
fn is_environment(text: &str) -> bool {
    is_name(text, MAX_ENVIRONMENT) && !text.eq_ignore_ascii_case("none")
}

/// The rules that releases and environments share.
fn is_name(text: &str, max: usize) -> bool {
    text.len() <= max
        && !text.trim().is_empty()
        && !matches!(text, "." | "..")
        && !text.contains(['\n', '\r', '\t', '\x0c', '/'])
}

/// Whether Sentry accepts a distribution (Sentry developer documentation, "Event Payloads", `dist`).
fn is_dist(text: &str) -> bool {
    text.len() <= MAX_DIST_BYTES && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_.-".contains(&byte))
}
