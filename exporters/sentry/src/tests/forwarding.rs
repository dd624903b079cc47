use std::time::Duration;

use bytes::Bytes;
use profbridge_engine::component::{Exporter, Observer as _};
use profbridge_model::envelope::{EnvelopeBody, RequestMeta};
use profbridge_model::{Envelope, ItemView, Quantities, Reason, Telemetry};
use profbridge_testkit::{ManualClock, START_UNIX_NANO};
use profbridge_wire::sentry::profile_items::read_items;
use profbridge_wire::sentry::{Category, Dsn, envelope, span_items};
use serde_json::json;

use super::server::{Reply, Server};
use super::{KEY, batch, exporter, exporter_to, prepare};

const TEXT: &str = "{\"event_id\":\"a\", \"x\":1.50}\n{\"type\":\"transaction\", \"y\":[ ]}\n{ \"a\" : 1 }\n\
    {\"type\":\"profile\",\"length\":3}\na\nb\n{\"type\":\"attachment\",\"length\":0}\n\n";

fn envelope(text: &str) -> Envelope {
    let mut envelope = envelope::read(Bytes::copy_from_slice(text.as_bytes())).unwrap().envelope;
    envelope.meta = RequestMeta {
        client_address: Some("2001:db8::7".parse().unwrap()),
        headers: vec![
            ("user-agent", "sentry.python/2.75.0".into()),
            ("origin", "https://shop.example".into()),
            ("sec-ch-ua", "\"Chromium\";v=\"140\"".into()),
        ],
        ..RequestMeta::default()
    };
    envelope
}

/// Guarantees: an envelope arrives unchanged, with its client's headers, under our key.
/// rule: profiles-sdk#v1-association, profiles-sdk#v1-envelope, event-schema#forwarded, tracing-sdk#envelope
#[tokio::test]
async fn unchanged() {
    let server = Server::always(Reply::status(200)).await;
    let exporter = exporter_to(&server, "").await;
    let prepared = prepare(&exporter, envelope(TEXT));
    assert_eq!(prepared.requests[0].quantities, Quantities::items(3));
    exporter.send(&prepared.requests[0]).await.unwrap();
    let received = &server.received()[0];
    assert_eq!(received.plain(), TEXT);
    assert_eq!(received.line, "POST /api/42/envelope/ HTTP/1.1");
    assert_eq!(received.header("content-type"), Some("application/x-sentry-envelope"));
    assert_eq!(received.header("user-agent"), Some("sentry.python/2.75.0"));
    assert_eq!(received.header("x-forwarded-for"), Some("2001:db8::7"));
    assert_eq!(received.header("origin"), Some("https://shop.example"));
    assert_eq!(received.header("sec-ch-ua"), Some("\"Chromium\";v=\"140\""));
    let auth = received.header("x-sentry-auth").unwrap();
    assert!(
        auth.starts_with(&format!("Sentry sentry_key={KEY}, sentry_version=7, sentry_client=profbridge/")),
        "{auth}"
    );
}

/// A DSN as clients write it into envelopes.
fn without_secret(dsn: &str) -> String {
    dsn.parse::<Dsn>().unwrap().without_secret()
}

/// Guarantees: a DSN in the header that differs from the destination's is replaced, since Relay refuses the difference;
/// all other bytes of the header stay.
/// rule: transport#header-dsn-replaced
#[tokio::test]
async fn foreign_dsn() {
    let server = Server::always(Reply::status(200)).await;
    let exporter = exporter_to(&server, "").await;
    let own = format!("{{\"dsn\":\"{}\" }}\n{{\"type\":\"x\"}}\n1\n", server.dsn(42));
    let foreign = format!("{{\"dsn\":\"{}\" , \"k\":1.50}}\n{{\"type\":\"x\"}}\n1\n", server.dsn(43));
    for text in [&own, &foreign] {
        exporter.send(&prepare(&exporter, envelope(text)).requests[0]).await.unwrap();
    }
    assert_eq!(server.received()[0].plain(), own);
    let readdressed =
        format!("{{\"dsn\":\"{}\" , \"k\":1.50}}\n{{\"type\":\"x\"}}\n1\n", without_secret(&server.dsn(42)));
    assert_eq!(server.received()[1].plain(), readdressed);
}

/// Guarantees: an envelope that had to be encoded again is resent as gzip if the server refuses zstd, like chunks.
#[tokio::test]
async fn written_anew() {
    let server = Server::start(|received| match received.header("content-encoding") {
        Some("zstd") => Reply::status(415),
        _ => Reply::status(200),
    })
    .await;
    let exporter = exporter_to(&server, "").await;
    exporter.send(&prepare(&exporter, envelope(TEXT)).requests[0]).await.unwrap();
    let encodings: Vec<_> =
        server.received().iter().map(|one| one.header("content-encoding").map(str::to_owned)).collect();
    assert_eq!(encodings, [Some("zstd".to_owned()), Some("gzip".to_owned())]);
    assert_eq!(server.received()[1].plain(), TEXT);
}

/// Attack: data that a client controls beside the body counts towards the memory budget: headers of any length, and
/// items of which hundreds take only some bytes compressed.
#[tokio::test]
async fn what_clients_determine_is_counted() {
    let server = Server::always(Reply::status(200)).await;
    let exporter = exporter_to(&server, "").await;
    let bytes = |envelope: Envelope| exporter.meta_bytes(&prepare(&exporter, envelope).requests[0]);
    let small = bytes(envelope(TEXT));
    assert!(small < 1500, "{small}");
    let mut talkative = envelope(TEXT);
    talkative.meta.headers[0].1 = "x".repeat(8000).into();
    assert!((8000..8000 + small).contains(&bytes(talkative)));
    let many = format!("{{}}\n{}", "{\"type\":\"x\"}\n1\n".repeat(500));
    assert!(bytes(envelope(&many)) > 500 * 32);
}

/// Guarantees: an event, a transaction, and a chunk become requests of one exporter and one queue, in order of arrival,
/// the first two as unchanged envelopes.
/// rule: tracing-sdk#queue
#[tokio::test]
async fn events_and_transactions_go_one_way() {
    let server = Server::always(Reply::status(200)).await;
    let exporter = exporter_to(&server, "").await;
    let event = "{\"event_id\":\"a\"}\n{\"type\":\"event\",\"length\":2}\n{}\n";
    for telemetry in [envelope(event).into(), envelope(TEXT).into(), Telemetry::from(batch("shop"))] {
        let prepared = exporter.prepare(&telemetry, ManualClock::default().now());
        let [request] = &prepared.requests[..] else { panic!("{} requests", prepared.requests.len()) };
        exporter.send(request).await.unwrap();
    }
    let received = server.received();
    assert_eq!((received[0].plain(), received[1].plain()), (event.as_bytes().into(), TEXT.as_bytes().into()));
    assert_eq!(received[2].item("profile_chunk")["version"], "2");
}

/// Guarantees: an envelope counts the observations of its views and the items without a view, follows their routing
/// attribute, and is blocked only if every item is rate limited.
/// rule: transport#client-reports, tracing-sdk#rate-limits
#[tokio::test]
async fn views_and_limits() {
    let limits = "60:transaction";
    let server = Server::always(Reply::status(200).with("x-sentry-rate-limits", limits)).await;
    let yaml = format!("routing: {{attribute_to_dsn: {{shop: '{}'}}}}", server.dsn(1));
    let exporter = exporter(&yaml, &ManualClock::default()).await;
    let mut known = envelope(TEXT);
    known.views = vec![ItemView::profiles(0, batch("shop"))];
    let mut unknown = envelope(TEXT);
    unknown.views = vec![ItemView::profiles(0, batch("other"))];
    let prepared = prepare(&exporter, known);
    // One of its three items was parsed.
    let quantities = Quantities { observations: 4, ..Quantities::items(2) };
    assert_eq!((prepared.requests[0].quantities, prepared.requests[0].samples), (quantities, 1));
    let lost = prepare(&exporter, unknown);
    assert_eq!((lost.requests.len(), lost.losses.get(Reason::Unroutable)), (0, quantities));

    exporter.send(&prepared.requests[0]).await.unwrap();
    assert_eq!(exporter.refuses(&prepared.requests[0]), None, "the attachment is free");
    let mut limited = envelope("{}\n{\"type\":\"transaction\"}\n{}\n{\"type\":\"profile\"}\n{}\n");
    limited.views = vec![ItemView::profiles(0, batch("shop"))];
    let limited = prepare(&exporter, limited);
    assert_eq!(exporter.refuses(&limited.requests[0]), Some(Reason::RateLimited));
    exporter.lost(&limited.requests[0], Reason::RateLimited);
    exporter.close().await;
    let report = server.received()[1].item("client_report");
    assert_eq!(
        report["discarded_events"],
        json!([
            {"reason": "ratelimit_backoff", "category": "transaction", "quantity": 1},
            {"reason": "ratelimit_backoff", "category": "profile", "quantity": 1},
        ])
    );
}

/// Guarantees: an envelope is sent unchanged. If it had to wait, its time of sending is moved by the delay, since
/// Sentry would take the delay for a wrong clock.
#[tokio::test]
async fn after_an_outage() {
    let server = Server::always(Reply::status(200)).await;
    let clock = ManualClock::default();
    let exporter = super::exporter(&format!("dsn: {}", server.dsn(42)), &clock).await;
    let text = "{\"sent_at\":\"2026-01-01T00:00:00Z\",\"k\":1.50}\n{\"type\":\"event\"}\n{ }\n";
    let mut envelope = envelope(text);
    envelope.meta.arrival_unix_nano = Some(START_UNIX_NANO);
    let body = Bytes::from_static(text.as_bytes());
    envelope.received = Some(EnvelopeBody { body, content_encoding: None, changed: false });
    let prepared = prepare(&exporter, envelope);
    for wait in [Duration::from_secs(59), Duration::from_secs(2 * 3600 - 59)] {
        clock.advance(wait);
        exporter.send(&prepared.requests[0]).await.unwrap();
    }
    assert_eq!((server.received()[0].plain(), server.received()[0].header("content-encoding")), (text.into(), None));
    assert_eq!(server.received()[1].plain(), text.replace("00:00:00Z", "02:00:00.000Z"));
}

/// What Node's SDK 10.75 sent: a transaction, and its profile of sample format V1.
const V1: &[u8] =
    include_bytes!("../../../../pipeline/wire/testdata/sentry/node-10.75-v1-transaction+profile.envelope");

/// Guarantees: if V1 profiles are upgraded, the profile is sent as a chunk, and its transaction names the chunk's
/// profiler and one of its threads. Everything else in the transaction stays. Otherwise the envelope is sent unchanged.
#[tokio::test]
async fn v1_profiles() {
    let server = Server::always(Reply::status(200)).await;
    for (upgrade, more) in [(false, ""), (true, "upgrade_v1: true")] {
        let exporter = exporter_to(&server, more).await;
        let mut envelope = envelope::read(Bytes::from_static(V1)).unwrap().envelope;
        let views = read_items(&envelope).map(|(item, read)| ItemView::profiles(item, read.unwrap()));
        let spans = span_items::read_items(&envelope).map(|(item, read)| ItemView::spans(item, read.unwrap().spans));
        envelope.views = views.chain(spans).collect();
        envelope.received = Some(EnvelopeBody { body: Bytes::from_static(V1), content_encoding: None, changed: false });
        let quantities = envelope.quantities();
        let before = server.received().len();
        let prepared = prepare(&exporter, envelope);
        let out: Quantities = prepared.requests.iter().map(|request| request.quantities).sum();
        assert_eq!(quantities + prepared.synthesized, out + prepared.losses.total());
        for request in &prepared.requests {
            exporter.send(request).await.unwrap();
        }
        let received = &server.received()[before..];
        if !upgrade {
            assert_eq!((received.len(), received[0].plain()), (1, Bytes::from_static(V1)));
            continue;
        }
        assert_eq!(received.len(), 2);
        let (chunk, transaction) = (received[0].item("profile_chunk"), received[1].item("transaction"));
        assert_eq!(transaction["contexts"]["profile"]["profiler_id"], chunk["profiler_id"]);
        let thread = transaction["contexts"]["trace"]["data"]["thread.id"].as_str().unwrap();
        assert!(chunk["profile"]["thread_metadata"][thread].is_object(), "{thread}");
        assert_eq!(received[1].envelope().items.len(), 1);
    }
}

/// Guarantees: if some spans of an envelope were sampled out, the others are sent, and only they are counted if it is
/// lost. An envelope without any remaining item is not sent.
#[tokio::test]
async fn thinned_out_spans() {
    const SPANS: &[u8] = include_bytes!("../../../../pipeline/wire/testdata/sentry/node-11.1-span.envelope");
    let server = Server::always(Reply::status(200)).await;
    let exporter = exporter_to(&server, "").await;
    for left in [1, 0] {
        let mut envelope = envelope::read(Bytes::from_static(SPANS)).unwrap().envelope;
        let mut spans = span_items::read_items(&envelope).next().unwrap().1.unwrap().spans;
        spans.retain(|position, _| position < left);
        envelope.views = vec![ItemView::spans(0, spans)];
        envelope.received =
            Some(EnvelopeBody { body: Bytes::from_static(SPANS), content_encoding: None, changed: false });
        let prepared = prepare(&exporter, envelope);
        assert_eq!((prepared.requests.len(), prepared.losses.is_none()), (left, true));
        for request in &prepared.requests {
            assert_eq!(request.quantities, Quantities::spans(1));
            assert_eq!(request.meta.items[0].counted, Some((Category::Span, 1)));
            exporter.send(request).await.unwrap();
            assert_eq!(server.received()[0].item("span")["items"].as_array().unwrap().len(), 1);
        }
    }
}

/// Guarantees: a lost transaction is reported as one transaction and as its spans, and only a rate limit on
/// transactions blocks it. A container is reported as its spans.
#[tokio::test]
async fn lost_transactions() {
    const TRANSACTION: &[u8] =
        include_bytes!("../../../../pipeline/wire/testdata/sentry/python-2.75-transaction.envelope");
    const SPANS: &[u8] = include_bytes!("../../../../pipeline/wire/testdata/sentry/node-11.1-span.envelope");
    for (bytes, limit, counted) in
        [(TRANSACTION, "transaction", &[("transaction", 1), ("span", 2)][..]), (SPANS, "span", &[("span", 2)])]
    {
        let server = Server::always(Reply::status(200).with("x-sentry-rate-limits", format!("60:{limit}"))).await;
        let exporter = exporter_to(&server, "").await;
        let mut envelope = envelope::read(Bytes::from_static(bytes)).unwrap().envelope;
        let views = span_items::read_items(&envelope).map(|(item, read)| ItemView::spans(item, read.unwrap().spans));
        envelope.views = views.collect();
        let request = prepare(&exporter, envelope).requests.remove(0);
        assert_eq!(exporter.refuses(&request), None);
        exporter.send(&request).await.unwrap();
        assert_eq!(exporter.refuses(&request), Some(Reason::RateLimited));
        exporter.lost(&request, Reason::RateLimited);
        exporter.close().await;
        let reported = counted.iter().map(
            |(category, quantity)| json!({"reason": "ratelimit_backoff", "category": category, "quantity": quantity}),
        );
        let report = server.received()[1].item("client_report");
        assert_eq!(report["discarded_events"], reported.collect::<serde_json::Value>());
    }
}
