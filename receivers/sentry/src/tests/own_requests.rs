//! Spans that an SDK creates for its own posts to this receiver.

use profbridge_model::{Quantities, Reason};
use profbridge_wire::sentry::span_items;

use super::*;

/// What Sentry's Python SDK 3.0.0b2 streams from an idle process: two spans of its own posts.
const PYTHON: &str = include_str!("../../../../pipeline/wire/testdata/sentry/python-3.0b2-span-own-posts.envelope");

/// The receiver's name in the client's DSN.
const HOST: &str = "192.0.2.1:27511";

fn post_to(host: &'static str, body: impl Into<Bytes>) -> Post {
    post(body).header("x-forwarded-host", host)
}

/// Guarantees: a container that has only spans of posts to this receiver is answered and dropped, and its spans are
/// counted. Spans of posts to another host are kept, and with `drop_own_requests: false` all spans are kept.
#[tokio::test]
async fn nothing_else() {
    let rig = SentryRig::start(LOOPBACK).await;
    let answer = post_to(HOST, PYTHON).send(rig.http()).await;
    assert_eq!((answer.status, rig.consumer.memory_used()), (200, 0));
    assert_eq!(rig.consumer.totals().dropped.get(Reason::OwnRequests), Quantities::spans(2));
    for (yaml, host) in
        [(LOOPBACK.to_owned(), "other.example"), (format!("{{{LOOPBACK}, drop_own_requests: false}}"), HOST)]
    {
        let mut rig = SentryRig::start(&yaml).await;
        let (answer, envelope) = rig.taken(post_to(host, PYTHON)).await;
        assert_eq!((answer.status, envelope.spans().map(|spans| spans.spans().len()).sum::<usize>()), (200, 2));
        assert_eq!(&envelope.received.unwrap().body[..], PYTHON.as_bytes(), "byte for byte");
    }
}

/// Guarantees: only the spans of posts to an envelope path of this receiver are removed from a container or a
/// transaction. Spans with children, spans of other paths, server spans, and other items of the envelope are kept.
#[tokio::test]
async fn among_others() {
    let span = |id: u8, parent: u8, op: &str, url: &str| {
        format!(
            r#"{{"trace_id":"01010101010101010101010101010101","span_id":"{id:016x}","parent_span_id":"{parent:016x}",
                "name":"x","status":"ok","start_timestamp":1,"end_timestamp":2,"attributes":{{
                "sentry.op":{{"value":"{op}","type":"string"}},"url.full":{{"value":"{url}","type":"string"}}}}}}"#
        )
        .replace('\n', " ")
    };
    let own = "http://localhost/api/42/envelope/";
    let spans = [
        span(1, 9, "http.client", own),
        span(2, 9, "http.client", own),
        span(3, 2, "http.client", "http://localhost/other"),
        span(4, 9, "http.server", own),
        span(5, 9, "http.client", "http://localhost:1/api/42/envelope/"),
        span(6, 9, "http.client", "http://localhost/eu/api/42/envelope?sentry_key=x"),
    ];
    let transaction = r#"{"type":"transaction","transaction":"t","start_timestamp":1,"timestamp":2,"contexts":{"trace":
        {"trace_id":"01010101010101010101010101010101","span_id":"0000000000000009","op":"http.client"}},"spans":[
        {"trace_id":"01010101010101010101010101010101","span_id":"0000000000000008","op":"http.client",
         "description":"POST http://localhost/api/42/envelope/","start_timestamp":1,"timestamp":2}]}"#
        .replace('\n', " ");
    let body = format!(
        "{{}}\n{{\"type\":\"span\",\"item_count\":6,\"content_type\":\"application/vnd.sentry.items.span.v2+json\"}}\n\
         {{\"version\":2,\"items\":[{}]}}\n{{\"type\":\"transaction\"}}\n{transaction}\n",
        spans.join(",")
    );
    let mut rig = SentryRig::start(LOOPBACK).await;
    let (answer, envelope) = rig.taken(post(body)).await;
    let ids: Vec<Vec<u8>> =
        envelope.spans().map(|spans| spans.spans().iter().map(|span| span.span_id.bytes()[7]).collect()).collect();
    assert_eq!((answer.status, ids), (200, vec![vec![2, 3, 4, 5], vec![9]]));
    assert_eq!(rig.consumer.totals().dropped.get(Reason::OwnRequests), Quantities::spans(3));
    assert_eq!((envelope.items.len(), span_items::read_items(&envelope).count()), (2, 2));
}
