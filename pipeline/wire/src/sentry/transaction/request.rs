//! Writes the user, the HTTP request and the response from a transaction's root span.

use std::borrow::Cow;

use profbridge_model::SpanKind;

use super::describe::{without_credentials, without_query};
use super::keys::{AttributeKey, KnownAttributes};
use super::limits::{MAX_DESCRIPTION_BYTES, MAX_HEADERS, MAX_TEXT_BYTES, MAX_TRANSACTION_BYTES};
use super::span::SpanFields;
use super::value::{Json, UniqueKeys};
use crate::otlp::traces::AnyValue;

/// Writes `,"user":{…}` if there is any user data (event schema, `User`; OpenTelemetry semantic conventions, registry,
/// `user` and `enduser`).
pub(super) fn user(known: &KnownAttributes<'_>, json: &mut Json) {
    object(
        ",\"user\":{",
        &[
            ("id", known.text(&[AttributeKey::UserId, AttributeKey::EnduserId])),
            ("username", known.text(&[AttributeKey::UserName])),
            ("name", known.text(&[AttributeKey::UserFullName])),
            ("email", known.text(&[AttributeKey::UserEmail])),
        ],
        json,
    );
}

/// Writes the context `,"browser":{…}` if a browser is named.
pub(super) fn browser(known: &KnownAttributes<'_>, json: &mut Json) {
    let version = known.text(&[AttributeKey::UserAgentVersion]);
    object(",\"browser\":{", &[("name", known.text(&[AttributeKey::UserAgentName])), ("version", version)], json);
}

/// Writes `,"request":{…}` for a span that handles an HTTP request (event schema, `Request`).
pub(super) fn request(root: &SpanFields<'_>, json: &mut Json) {
    let known = &root.known;
    let Some(method) = answered(root) else { return };
    json.full = json.out.len().saturating_add(MAX_TRANSACTION_BYTES);
    json.string(",\"request\":{\"method\":", method, MAX_TEXT_BYTES);
    if let Some(url) = url(known) {
        json.string(",\"url\":", &url, MAX_DESCRIPTION_BYTES);
    }
    if let Some(query) = query(known) {
        json.string(",\"query_string\":", query, MAX_DESCRIPTION_BYTES);
    }
    size(known.int(&[AttributeKey::HttpRequestBodySize]), json);
    let agent = known.text(&[AttributeKey::UserAgentOriginal, AttributeKey::HttpUserAgent]);
    headers(root, "http.request.header.", agent.map(|agent| ("user-agent", agent)), json);
    if let Some(address) = known.text(&[AttributeKey::ClientAddress, AttributeKey::HttpClientIp]) {
        json.string(",\"env\":{\"REMOTE_ADDR\":", address, MAX_TEXT_BYTES);
        json.out.push(b'}');
    }
    json.out.push(b'}');
}

/// Writes the context `,"response":{…}` for a span that handles an HTTP request (event schema, `ResponseContext`).
pub(super) fn response(root: &SpanFields<'_>, json: &mut Json) {
    if answered(root).is_none() {
        return;
    }
    json.full = json.out.len().saturating_add(MAX_TRANSACTION_BYTES);
    let start = json.out.len();
    if let Some(code) = root.known.int(&[AttributeKey::HttpResponseStatusCode, AttributeKey::HttpStatusCode]) {
        if (100..1000).contains(&code) {
            json.raw(",\"status_code\":");
            json.int(code);
        } else {
            json.notes.invalid_values += 1;
        }
    }
    size(root.known.int(&[AttributeKey::HttpResponseBodySize]), json);
    headers(root, "http.response.header.", None, json);
    if json.out.len() > start {
        json.out[start] = b'{';
        json.out.push(b'}');
        json.out.splice(start..start, *b",\"response\":");
    }
}

/// The HTTP method, if the span handles a request as the server.
fn answered<'a>(root: &SpanFields<'a>) -> Option<&'a str> {
    root.known
        .text(&[AttributeKey::HttpRequestMethod, AttributeKey::HttpMethod])
        .filter(|_| root.span.kind == SpanKind::Server)
}

/// The URL without its query: the full one, or composed of its parts.
fn url<'a>(known: &KnownAttributes<'a>) -> Option<Cow<'a, str>> {
    if let Some(url) = known.text(&[AttributeKey::UrlFull, AttributeKey::HttpUrl]) {
        return Some(without_credentials(without_query(url)));
    }
    let path = without_query(known.text(&[AttributeKey::UrlPath, AttributeKey::HttpTarget])?);
    let Some(host) = known.text(&[AttributeKey::HttpHost, AttributeKey::ServerAddress, AttributeKey::NetHostName])
    else {
        return Some(path.into());
    };
    let scheme = known.text(&[AttributeKey::UrlScheme, AttributeKey::HttpScheme]).unwrap_or("http");
    // `http.host` includes a non-default port.
    let usual = if scheme == "https" { 443 } else { 80 };
    let port = known.int(&[AttributeKey::ServerPort, AttributeKey::NetHostPort]).filter(|port| *port != usual);
    let is_address = host.contains(':') && !host.starts_with('[') && host.parse::<std::net::Ipv6Addr>().is_ok();
    Some(match port.filter(|_| !known.has(AttributeKey::HttpHost)) {
        Some(port) if is_address => format!("{scheme}://[{host}]:{port}{path}").into(),
        Some(port) => format!("{scheme}://{host}:{port}{path}").into(),
        None if is_address => format!("{scheme}://[{host}]{path}").into(),
        None => format!("{scheme}://{host}{path}").into(),
    })
}

fn query<'a>(known: &KnownAttributes<'a>) -> Option<&'a str> {
    let of = |url: &'a str| {
        let (_, query) = url.split('#').next()?.split_once('?')?;
        Some(query).filter(|query| !query.is_empty())
    };
    let whole = known.text(&[AttributeKey::UrlQuery]).map(|query| query.trim_start_matches('?'));
    let whole = whole.filter(|query| !query.is_empty());
    whole.or_else(|| of(known.text(&[AttributeKey::UrlFull, AttributeKey::HttpUrl, AttributeKey::HttpTarget])?))
}

/// Writes `,"body_size":…`, unless it is negative.
fn size(size: Option<i64>, json: &mut Json) {
    match size {
        Some(size) if size >= 0 => {
            json.raw(",\"body_size\":");
            json.int(size);
        }
        Some(_) => json.notes.invalid_values += 1,
        None => {}
    }
}

/// Writes `,"headers":{…}` from the attributes with this prefix, each a list of the header's values (OpenTelemetry
/// semantic conventions, `http.request.header.<key>`). `more` is added unless there is a header of that name.
fn headers(root: &SpanFields<'_>, prefix: &str, more: Option<(&str, &str)>, json: &mut Json) {
    let mut names = UniqueKeys::default();
    let mut written = 0;
    let mut write = |name: &str, values: &mut dyn Iterator<Item = &str>, json: &mut Json| {
        if written >= MAX_HEADERS || json.is_full() {
            json.notes.invalid_values += 1;
            return;
        }
        json.string(if written == 0 { ",\"headers\":{" } else { "," }, name, MAX_TEXT_BYTES);
        json.raw(":\"");
        for (position, value) in values.enumerate() {
            if position > 0 {
                json.raw(", ");
            }
            json.text(value, MAX_DESCRIPTION_BYTES);
            if json.is_full() {
                break;
            }
        }
        json.out.push(b'"');
        written += 1;
    };
    for (key, value) in root.fields.attributes() {
        let Some(name) = key.strip_prefix(prefix).filter(|name| !name.is_empty()) else { continue };
        if !names.is_new(name) {
            continue;
        }
        match value {
            AnyValue::Text(text) => write(name, &mut std::iter::once(text), json),
            AnyValue::Array(values) => write(name, &mut values.filter_map(AnyValue::text), json),
            _ => json.notes.invalid_values += 1,
        }
    }
    if let Some((name, value)) = more
        && names.is_new(name)
    {
        write(name, &mut std::iter::once(value), json);
    }
    if written > 0 {
        json.out.push(b'}');
    }
}

/// Writes an object with the members that have a value; nothing if there are none.
fn object(open: &str, members: &[(&str, Option<&str>)], json: &mut Json) {
    let mut present = members.iter().filter_map(|(member, value)| Some((member, (*value)?))).peekable();
    if present.peek().is_none() {
        return;
    }
    json.raw(open);
    for (member, value) in present {
        json.string("", member, MAX_TEXT_BYTES);
        json.string(":", value, MAX_TEXT_BYTES);
        json.out.push(b',');
    }
    json.end(b'}');
}
