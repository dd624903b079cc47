//! Drops the spans that an SDK creates for its own posts to this receiver.
//!
//! Sentry's Python SDK does not recognise its own server if the DSN has a port, which every sidecar's DSN has
//! (getsentry/sentry-python `sentry_sdk/utils.py`, `is_sentry_url`), so each post becomes a span. If the SDK streams
//! spans, posting that span creates the next one, even in an idle process. OpenTelemetry's instrumentation of HTTP
//! clients creates spans for the posts of every SDK of Sentry in the same process.

use std::collections::HashSet;

use profbridge_model::{Envelope, Span, SpanId, Spans, Viewed};
use profbridge_wire::spans::{SpanValue, SpanView};

use crate::endpoint::Endpoint;

/// Removes the spans of posts to this receiver, which the client knows by one of `hosts`, and the items that contain
/// nothing else. Returns the number of removed spans, and whether an item was removed.
pub(crate) fn remove(envelope: &mut Envelope, hosts: &[String]) -> (u64, bool) {
    let (mut removed, mut empty) = (0, Vec::new());
    for view in &mut envelope.views {
        let Viewed::Spans(spans) = &mut view.what else { continue };
        let count = remove_spans(spans, hosts);
        removed += count;
        if count > 0 && spans.is_empty() {
            empty.push(view.item);
        }
    }
    empty.sort_unstable();
    empty.iter().rev().for_each(|item| envelope.remove_item(*item));
    (removed, !empty.is_empty())
}

/// Removes the spans of posts to this receiver. Returns their number.
pub(crate) fn remove_spans(spans: &mut Spans, hosts: &[String]) -> u64 {
    // Most requests do not contain the receiver's name, and are not parsed again.
    let is_named = |text: &str| hosts.iter().any(|host| text.contains(&**host));
    if !spans.bytes().utf8_chunks().any(|chunk| is_named(chunk.valid())) {
        return 0;
    }
    let parents: HashSet<SpanId> = spans.spans().iter().filter_map(|span| span.parent_span_id).collect();
    let is_own = |span: &Span| !parents.contains(&span.span_id) && is_own_request(spans, span, hosts);
    let own: Vec<bool> = spans.spans().iter().map(is_own).collect();
    spans.retain(|position, _| !own[position]);
    own.iter().filter(|is_own| **is_own).count() as u64
}

/// Whether a span is a request to one of these hosts on a path of envelopes. Transactions never count as such.
fn is_own_request(spans: &Spans, span: &Span, hosts: &[String]) -> bool {
    let view = SpanView::of(spans, span);
    let text = |key: &str| view.attribute(key).and_then(SpanValue::into_text);
    let is_of_client = view.op().as_deref() == Some("http.client")
        && text("sentry.origin").is_none_or(|origin| origin.starts_with("auto.http."));
    if !is_of_client || view.is_transaction() {
        return false;
    }
    let of_name = || Some(view.name().strip_prefix("POST ")?.to_owned());
    let url = ["url.full", "http.url", "url"].iter().find_map(|key| text(key)).or_else(of_name).unwrap_or_default();
    let Some((_, behind)) = url.split_once("://") else { return false };
    let (host, path) = behind.split_at(behind.find('/').unwrap_or(behind.len()));
    let path = path.split(['?', '#']).next().unwrap_or_default();
    let is_here = hosts.iter().any(|known| known.eq_ignore_ascii_case(host));
    let is_post = matches!(Endpoint::of(path), Endpoint::Envelope(_) | Endpoint::Store(_) | Endpoint::Traces(_));
    is_here && is_post
}
