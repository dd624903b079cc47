//! The name of a span in Sentry: its operation, its description, and the source of the description.
//!
//! The rules are those of Sentry's SDKs on OpenTelemetry (getsentry/sentry-javascript
//! `packages/opentelemetry/src/utils/parseSpanDescription.ts`) and of the Collector's exporter
//! (opentelemetry-collector-contrib `exporter/sentryexporter/docs/transformation.md`), which evaluate the same
//! conventions in the same order.

use std::borrow::Cow;

use profbridge_model::SpanKind;

use super::keys::{AttributeKey, KnownAttributes};
use super::limits::MAX_OP_BYTES;
use super::notes::Notes;

/// The name of a transaction without a name (Sentry documentation, "Transaction Summary").
const UNNAMED: &str = "<unlabeled transaction>";

/// The source of a transaction's name. It tells Sentry whether the name may contain identifiers (event schema,
/// `TransactionSource`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum NameSource {
    /// Chosen by the user.
    Custom,
    /// The path of a URL, possibly with identifiers.
    Url,
    /// The pattern of a URL, or the name of a method or a destination.
    Route,
    /// The name of a component.
    Component,
    /// The name of a view.
    View,
    /// The name of a task, or a query.
    Task,
}

impl NameSource {
    const ALL: [Self; 6] = [Self::Custom, Self::Url, Self::Route, Self::Component, Self::View, Self::Task];

    /// The source's name in Sentry.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Custom => "custom",
            Self::Url => "url",
            Self::Route => "route",
            Self::Component => "component",
            Self::View => "view",
            Self::Task => "task",
        }
    }

    /// The source with this name.
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|source| source.as_str() == text)
    }
}

/// The name of a span in Sentry.
#[derive(Debug, PartialEq)]
pub(super) struct Described<'a> {
    /// The operation, such as `http.server`.
    pub(super) op: Option<Cow<'a, str>>,
    /// The name of a transaction, or the description of another span.
    pub(super) description: Cow<'a, str>,
    /// The source of the description.
    pub(super) source: NameSource,
}

impl<'a> Described<'a> {
    /// Describes a span with this name.
    pub(super) fn of(name: &'a str, kind: SpanKind, known: &KnownAttributes<'a>, notes: &mut Notes) -> Self {
        let mut described = inferred(name, kind, known);
        // Explicit Sentry attributes of the span win.
        if let Some(op) = known.text(&[AttributeKey::SentryOp]) {
            if op.len() <= MAX_OP_BYTES && !op.contains(char::is_control) {
                described.op = Some(op.into());
            } else {
                notes.invalid_values += 1;
            }
        }
        if let Some(written) = known.text(&[AttributeKey::SentrySource, AttributeKey::SentrySegmentNameSource]) {
            match NameSource::parse(written) {
                Some(source) => described.source = source,
                None => notes.invalid_values += 1,
            }
        }
        if described.description.is_empty() {
            described.description = UNNAMED.into();
        }
        described
    }
}

fn inferred<'a>(name: &'a str, kind: SpanKind, known: &KnownAttributes<'a>) -> Described<'a> {
    let named = |op: Option<Cow<'a, str>>, source| Described { op, description: name.into(), source };
    let custom = known.text(&[AttributeKey::SentryCustomSpanName]);
    let mut described = if let Some(method) = known.text(&[AttributeKey::HttpRequestMethod, AttributeKey::HttpMethod]) {
        http(name, kind, method, known)
    } else if known.has(AttributeKey::DbSystemName) || known.has(AttributeKey::DbSystem) {
        let is_cache = known.text(&[AttributeKey::SentryOp]).is_some_and(|op| op.starts_with("cache."));
        let query = known
            .text(&[AttributeKey::DbQueryText, AttributeKey::DbStatement])
            .filter(|_| !is_cache && !is_custom(known));
        Described { op: Some("db".into()), description: query.unwrap_or(name).into(), source: NameSource::Task }
    } else if let Some(operation) = known.text(&[AttributeKey::GenAiOperationName]) {
        named(bounded("gen_ai.", operation), NameSource::Task)
    } else if known.has(AttributeKey::RpcService)
        || known.has(AttributeKey::RpcSystem)
        || known.has(AttributeKey::RpcSystemName)
    {
        named(Some("rpc".into()), NameSource::Route)
    } else if known.has(AttributeKey::MessagingSystem) {
        named(Some("message".into()), NameSource::Route)
    } else if let Some(trigger) = known.text(&[AttributeKey::FaasTrigger]) {
        named(bounded("", trigger), NameSource::Route)
    } else {
        named(None, NameSource::Custom)
    };
    if let Some(custom) = custom {
        (described.description, described.source) = (custom.into(), NameSource::Custom);
    }
    described
}

/// An operation with this prefix and name; `None` if the name is too long or has invalid characters.
fn bounded<'a>(prefix: &str, name: &'a str) -> Option<Cow<'a, str>> {
    if prefix.len() + name.len() > MAX_OP_BYTES || name.contains(|c: char| c.is_control() || c.is_whitespace()) {
        return None;
    }
    Some(if prefix.is_empty() { name.into() } else { format!("{prefix}{name}").into() })
}

/// Whether the user chose the span's name, so that it must not be replaced.
fn is_custom(known: &KnownAttributes<'_>) -> bool {
    known.text(&[AttributeKey::SentrySource, AttributeKey::SentrySegmentNameSource]) == Some("custom")
}

fn http<'a>(name: &'a str, kind: SpanKind, method: &'a str, known: &KnownAttributes<'a>) -> Described<'a> {
    let op = match kind {
        SpanKind::Client => "http.client",
        SpanKind::Server => "http.server",
        _ => "http",
    };
    let target =
        || known.text(&[AttributeKey::UrlPath, AttributeKey::HttpTarget]).map(|target| without_query(target).into());
    let url = || {
        known.text(&[AttributeKey::UrlFull, AttributeKey::HttpUrl]).map(|url| without_credentials(without_query(url)))
    };
    let (place, has_route): (Option<Cow<'a, str>>, _) =
        match known.text(&[AttributeKey::HttpRoute, AttributeKey::UrlTemplate]) {
            Some(route) => (Some(route.into()), true),
            // A server knows its own address; for a client only the whole URL has the peer's.
            None if kind == SpanKind::Server => (target().or_else(url), false),
            None => (url().or_else(target), false),
        };
    let op = Some(op.into());
    // A span of another kind was started manually, with the name that it should have.
    let by_hand = !matches!(kind, SpanKind::Client | SpanKind::Server);
    match place {
        Some(place) if !by_hand && !is_custom(known) => {
            let source = if has_route || place == "/" { NameSource::Route } else { NameSource::Url };
            Described { op, description: format!("{method} {place}").into(), source }
        }
        _ => Described { op, description: name.into(), source: NameSource::Custom },
    }
}

/// The URL or path without query and fragment.
pub(super) fn without_query(url: &str) -> &str {
    let end = url.find(['?', '#']).unwrap_or(url.len());
    &url[..end]
}

/// The URL without user and password (RFC 3986 section 3.2.1).
pub(super) fn without_credentials(url: &str) -> Cow<'_, str> {
    let Some(start) = url.find("://").map(|at| at + 3) else { return url.into() };
    let authority = url[start..].find(['/', '?', '#']).map_or(&url[start..], |end| &url[start..start + end]);
    match authority.rfind('@') {
        Some(at) => format!("{}{}", &url[..start], &url[start + at + 1..]).into(),
        None => url.into(),
    }
}
