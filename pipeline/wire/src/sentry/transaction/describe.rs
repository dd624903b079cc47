//! What a span is called in Sentry: its operation, its description, and where that comes from.
//!
//! The rules are those of Sentry's SDKs on OpenTelemetry (getsentry/sentry-javascript
//! `packages/opentelemetry/src/utils/parseSpanDescription.ts`) and of the Collector's exporter
//! (opentelemetry-collector-contrib `exporter/sentryexporter/docs/transformation.md`), which read the same conventions
//! in the same order.

use std::borrow::Cow;

use profbridge_model::SpanKind;

use super::keys::{Key, Known};
use super::limits::MAX_OP_BYTES;
use super::notes::Notes;

/// What a transaction without a name is called (Sentry documentation, "Transaction Summary").
const UNNAMED: &str = "<unlabeled transaction>";

/// How the name of a transaction was found, so that Sentry knows whether identifiers may be in it (event schema,
/// `TransactionSource`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Source {
    /// Somebody chose it.
    Custom,
    /// The path of a URL, with identifiers in it.
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

impl Source {
    const ALL: [Self; 6] = [Self::Custom, Self::Url, Self::Route, Self::Component, Self::View, Self::Task];

    /// The name in Sentry.
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

    /// The one of this name.
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|source| source.as_str() == text)
    }
}

/// What a span is called.
#[derive(Debug, PartialEq)]
pub(super) struct Described<'a> {
    /// Its operation, such as `http.server`.
    pub(super) op: Option<Cow<'a, str>>,
    /// What it did: the name of a transaction, the description of another span.
    pub(super) description: Cow<'a, str>,
    /// Where the description comes from.
    pub(super) source: Source,
}

impl<'a> Described<'a> {
    /// Describes a span of this name.
    pub(super) fn of(name: &'a str, kind: SpanKind, known: &Known<'a>, notes: &mut Notes) -> Self {
        let mut described = inferred(name, kind, known);
        // What a span says of itself in Sentry's own words wins.
        if let Some(op) = known.text(&[Key::SentryOp]) {
            if op.len() <= MAX_OP_BYTES && !op.contains(char::is_control) {
                described.op = Some(op.into());
            } else {
                notes.invalid_values += 1;
            }
        }
        if let Some(written) = known.text(&[Key::SentrySource, Key::SentrySegmentNameSource]) {
            match Source::parse(written) {
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

fn inferred<'a>(name: &'a str, kind: SpanKind, known: &Known<'a>) -> Described<'a> {
    let named = |op: Option<Cow<'a, str>>, source| Described { op, description: name.into(), source };
    let custom = known.text(&[Key::SentryCustomSpanName]);
    let mut described = if let Some(method) = known.text(&[Key::HttpRequestMethod, Key::HttpMethod]) {
        http(name, kind, method, known)
    } else if known.has(Key::DbSystemName) || known.has(Key::DbSystem) {
        let is_cache = known.text(&[Key::SentryOp]).is_some_and(|op| op.starts_with("cache."));
        let query = known.text(&[Key::DbQueryText, Key::DbStatement]).filter(|_| !is_cache && !is_custom(known));
        Described { op: Some("db".into()), description: query.unwrap_or(name).into(), source: Source::Task }
    } else if let Some(operation) = known.text(&[Key::GenAiOperationName]) {
        named(bounded("gen_ai.", operation), Source::Task)
    } else if known.has(Key::RpcService) || known.has(Key::RpcSystem) || known.has(Key::RpcSystemName) {
        named(Some("rpc".into()), Source::Route)
    } else if known.has(Key::MessagingSystem) {
        named(Some("message".into()), Source::Route)
    } else if let Some(trigger) = known.text(&[Key::FaasTrigger]) {
        named(bounded("", trigger), Source::Route)
    } else {
        named(None, Source::Custom)
    };
    if let Some(custom) = custom {
        (described.description, described.source) = (custom.into(), Source::Custom);
    }
    described
}

/// An operation that a value names; a value that cannot be part of one names none.
fn bounded<'a>(prefix: &str, name: &'a str) -> Option<Cow<'a, str>> {
    if prefix.len() + name.len() > MAX_OP_BYTES || name.contains(|c: char| c.is_control() || c.is_whitespace()) {
        return None;
    }
    Some(if prefix.is_empty() { name.into() } else { format!("{prefix}{name}").into() })
}

/// Whether the span's name was chosen, so that nothing better can be found.
fn is_custom(known: &Known<'_>) -> bool {
    known.text(&[Key::SentrySource, Key::SentrySegmentNameSource]) == Some("custom")
}

fn http<'a>(name: &'a str, kind: SpanKind, method: &'a str, known: &Known<'a>) -> Described<'a> {
    let op = match kind {
        SpanKind::Client => "http.client",
        SpanKind::Server => "http.server",
        _ => "http",
    };
    let target = || known.text(&[Key::UrlPath, Key::HttpTarget]).map(|target| without_query(target).into());
    let url = || known.text(&[Key::UrlFull, Key::HttpUrl]).map(|url| without_credentials(without_query(url)));
    let (place, has_route): (Option<Cow<'a, str>>, _) = match known.text(&[Key::HttpRoute, Key::UrlTemplate]) {
        Some(route) => (Some(route.into()), true),
        // A server knows where it is; whom a client calls is in the whole URL only.
        None if kind == SpanKind::Server => (target().or_else(url), false),
        None => (url().or_else(target), false),
    };
    let op = Some(op.into());
    // A span of another kind was begun by hand, under the name that it should have.
    let by_hand = !matches!(kind, SpanKind::Client | SpanKind::Server);
    match place {
        Some(place) if !by_hand && !is_custom(known) => {
            let source = if has_route || place == "/" { Source::Route } else { Source::Url };
            Described { op, description: format!("{method} {place}").into(), source }
        }
        _ => Described { op, description: name.into(), source: Source::Custom },
    }
}

/// A URL, or the path of one, up to its query and fragment.
pub(super) fn without_query(url: &str) -> &str {
    let end = url.find(['?', '#']).unwrap_or(url.len());
    &url[..end]
}

/// A URL without the user and password that may be in it (RFC 3986 section 3.2.1).
pub(super) fn without_credentials(url: &str) -> Cow<'_, str> {
    let Some(start) = url.find("://").map(|at| at + 3) else { return url.into() };
    let authority = url[start..].find(['/', '?', '#']).map_or(&url[start..], |end| &url[start..start + end]);
    match authority.rfind('@') {
        Some(at) => format!("{}{}", &url[..start], &url[start + at + 1..]).into(),
        None => url.into(),
    }
}
