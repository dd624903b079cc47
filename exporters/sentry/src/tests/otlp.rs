//! Spans that go to Sentry's OTLP endpoint, and the other forms of `spans`.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use profbridge_engine::component::{Exporter, Request, Retry};
use profbridge_model::envelope::{PublicKey, RequestMeta};
use profbridge_model::spans::Packed;
use profbridge_model::{Loss, Losses, Quantities, Reason, Spans};
use profbridge_relay_rules::validate_transaction;
use profbridge_testkit::{ManualClock, exporter_context};
use profbridge_wire::otlp::{Limits, traces};
use profbridge_wire::sentry::chunk;
use prost::Message as _;
use serde_json::json;

use super::logs::logged;
use super::server::{ReceivedRequest, Reply, Server};
use super::transactions::transactions;
use super::{KEY, exporter, exporter_to, prepare, settings};
use crate::prepare::Meta;
use crate::{SentryExporter, keep};

/// What the OTLP integration of Sentry's Python SDK 3.0.0b2 sends.
const PYTHON: &[u8] =
    include_bytes!("../../../../pipeline/wire/testdata/sentry/python-3.0b2-otlpintegration-traces.otlp.pb");

/// Spans of each of these services that no processor has grouped.
fn ungrouped(services: &[(&str, usize)]) -> Spans {
    let spans = transactions(services);
    let each = spans.spans().iter().map(|span| profbridge_model::Span { segment: None, ..span.clone() });
    spans.rearranged(each.collect())
}

/// Spans that a client sent to Sentry's OTLP endpoint.
fn of_client() -> Spans {
    let mut spans = traces::decode(PYTHON.into(), &Limits::default()).unwrap().spans;
    spans.client = Some(Arc::new(RequestMeta {
        project_id: Some(7),
        public_key: Some(PublicKey("fedcba9876543210fedcba9876543210".into())),
        sentry_client: Some("sentry.python/3.0.0b2".into()),
        headers: vec![("user-agent", "OTel-OTLP-Exporter-Python/1.45.2".into())],
        ..RequestMeta::default()
    }));
    spans
}

async fn send_all(exporter: &SentryExporter, requests: &[Request<Meta>]) {
    for request in requests {
        exporter.send(request).await.unwrap();
    }
}

fn sent_spans(received: &ReceivedRequest) -> usize {
    let request = ExportTraceServiceRequest::decode(&received.plain()[..]).unwrap();
    request.resource_spans.iter().flat_map(|of| &of.scope_spans).map(|of| of.spans.len()).sum()
}

/// Guarantees: ungrouped spans go to the OTLP endpoint of the project of their process, with its key, in one request
/// for each project; those without a destination are counted. Grouped ones still leave as transactions.
#[tokio::test]
async fn auto() {
    let server = Server::always(Reply::status(200)).await;
    let yaml = format!("routing: {{attribute_to_dsn: {{shop: '{}', stock: '{}'}}}}", server.dsn(1), server.dsn(2));
    let exporter = exporter(&yaml, &ManualClock::default()).await;
    let prepared = prepare(&exporter, ungrouped(&[("stock", 2), ("other", 5), ("shop", 1), ("stock", 1)]));
    assert_eq!(prepared.losses.get(Reason::Unroutable), Quantities::spans(5));
    send_all(&exporter, &prepared.requests).await;
    let received = server.received();
    let found: Vec<_> = received.iter().map(|request| (request.line.as_str(), sent_spans(request))).collect();
    assert_eq!(
        found,
        [
            ("POST /api/1/integration/otlp/v1/traces/ HTTP/1.1", 1),
            ("POST /api/2/integration/otlp/v1/traces/ HTTP/1.1", 3),
        ]
    );
    for request in &received {
        assert_eq!(request.header("content-type"), Some("application/x-protobuf"));
        assert!(request.header("x-sentry-auth").unwrap().contains(KEY), "{request:?}");
    }
    let grouped = prepare(&exporter, transactions(&[("shop", 3)]));
    send_all(&exporter, &grouped.requests).await;
    assert_eq!(server.received()[2].line, "POST /api/1/envelope/ HTTP/1.1");
}

/// Guarantees: a server without the endpoint gets the same spans as transactions, grouped within their batch. Later
/// spans are sent as transactions from the start, and this is logged once. With `spans: otlp` the answer counts.
#[tokio::test]
async fn without_an_endpoint() {
    let script = |request: &ReceivedRequest| Reply::status(if request.line.contains("otlp") { 404 } else { 200 });
    let server = Server::start(script).await;
    let exporter = exporter_to(&server, "").await;
    let spans = ungrouped(&[("shop", 3), ("stock", 2)]);
    let first = prepare(&exporter, spans.clone());
    assert_eq!(first.requests.len(), 1);
    send_all(&exporter, &first.requests).await;
    let lines: Vec<_> = server.received().iter().map(|received| received.line.clone()).collect();
    let (otlp, envelope) = ("POST /api/42/integration/otlp/v1/traces/ HTTP/1.1", "POST /api/42/envelope/ HTTP/1.1");
    assert_eq!(lines, [otlp, envelope, envelope]);
    let events: Vec<_> = server.received()[1..].iter().map(|received| received.item("transaction")).collect();
    for (event, (service, spans)) in events.iter().zip([("shop", 2), ("stock", 1)]) {
        assert_eq!((&event["release"], event["spans"].as_array().unwrap().len()), (&json!(service), spans));
        validate_transaction(event.to_string().as_bytes()).unwrap();
    }
    let later = prepare(&exporter, spans.clone());
    assert_eq!(later.requests.iter().map(|request| request.quantities.spans).collect::<Vec<_>>(), [3, 2]);
    send_all(&exporter, &later.requests).await;
    let again: Vec<_> = server.received()[3..].iter().map(|received| received.item("transaction")).collect();
    assert_eq!(again[0]["event_id"], events[0]["event_id"], "what is sent twice is stored once");
    send_all(&exporter, &first.requests).await;
    assert_eq!(logged().matches("no endpoint for OTLP").count(), 1, "{}", logged());

    let exporter = exporter_to(&server, "spans: otlp").await;
    let error = exporter.send(&prepare(&exporter, spans).requests[0]).await.unwrap_err();
    assert_eq!(error.reason, Reason::RejectedByPeer);
}

/// Guarantees: a server without an OTLP endpoint gets the next spans as transactions for about an hour, and is then
/// tried again: still without one it is as before, with one it keeps getting OTLP. Each change is logged once.
#[tokio::test]
async fn an_endpoint_later() {
    let has_otlp = Arc::new(AtomicBool::new(false));
    let upgraded = Arc::clone(&has_otlp);
    let server = Server::start(move |request: &ReceivedRequest| {
        let is_known = !request.line.contains("otlp") || upgraded.load(Ordering::Relaxed);
        Reply::status(if is_known { 200 } else { 404 })
    })
    .await;
    let clock = ManualClock::default();
    let exporter = exporter(&format!("dsn: {}", server.dsn(42)), &clock).await;
    let mut minutes = 0;
    for (until, is_upgraded, paths) in [
        (0, false, &["otlp", "envelope"][..]),
        (29, false, &["envelope"]),
        (91, false, &["otlp", "envelope"]),
        (119, true, &["envelope"]),
        (182, true, &["otlp"]),
        (183, true, &["otlp"]),
    ] {
        clock.advance(Duration::from_secs(60 * (until - minutes)));
        minutes = until;
        has_otlp.store(is_upgraded, Ordering::Relaxed);
        let before = server.received().len();
        let prepared = exporter.prepare(&ungrouped(&[("shop", 3)]).into(), clock.now());
        send_all(&exporter, &prepared.requests).await;
        let received = server.received();
        let found = received[before..].iter().map(|request| request.line.split('/').nth(3).unwrap().to_owned());
        let found: Vec<_> = found.map(|path| path.replace("integration", "otlp")).collect();
        assert_eq!(found, paths, "after {until} minutes");
    }
    for said in ["no endpoint for OTLP", "has an endpoint for OTLP now"] {
        assert_eq!(logged().matches(said).count(), 1, "{}", logged());
    }
}

/// Guarantees: of several transactions that take the place of a request one that fails for good is lost alone, under
/// its own reason and in the next client report. Another attempt sends none twice. If all fail, the request does.
#[tokio::test]
async fn some_transactions_fail() {
    let posts = Arc::new(AtomicUsize::new(0));
    let server = Server::start(move |request: &ReceivedRequest| match request.line.contains("otlp") {
        true => Reply::status(404),
        false => Reply::status([200, 413, 503, 200, 413, 403][posts.fetch_add(1, Ordering::Relaxed)]),
    })
    .await;
    let exporter = exporter_to(&server, "").await;
    let requests = prepare(&exporter, ungrouped(&[("shop", 1), ("stock", 2), ("cart", 4)])).requests;
    let error = exporter.send(&requests[0]).await.unwrap_err();
    assert_eq!((error.retry, error.reason), (Retry::Later, Reason::RetriesExhausted));
    let too_large = Loss { reason: Reason::TooLarge, quantities: Quantities::spans(2) };
    let settled = exporter.observer().unwrap().settled(&requests[0]).unwrap();
    assert_eq!((settled.delivered, settled.losses.iter().collect()), (Quantities::spans(1), vec![too_large]));
    let accepted = exporter.send(&requests[0]).await.unwrap();
    assert_eq!((accepted.losses, accepted.message.unwrap().contains("413")), (vec![too_large], true));
    assert_eq!(server.received().len(), 5, "OTLP once, three transactions, and the last again");
    let report = exporter.settings.destinations.configured(0).take_last_report().unwrap();
    let item = report.item(1.0).unwrap();
    let report: serde_json::Value = serde_json::from_slice(item.payload.plain().unwrap()).unwrap();
    let discarded = |category, quantity| json!({"reason": "send_error", "category": category, "quantity": quantity});
    assert_eq!(report["discarded_events"], json!([discarded("transaction", 1), discarded("span", 2)]));

    let exporter = exporter_to(&server, "").await;
    let requests = prepare(&exporter, ungrouped(&[("shop", 1), ("stock", 2)])).requests;
    let error = exporter.send(&requests[0]).await.unwrap_err();
    assert_eq!((error.retry, error.reason), (Retry::Never, Reason::TooLarge));
    let mut losses = Losses::default();
    losses.add(Reason::TooLarge, Quantities::spans(1));
    losses.add(Reason::RejectedByPeer, Quantities::spans(2));
    assert_eq!(exporter.observer().unwrap().settled(&requests[0]).unwrap().losses, losses);
}

/// Guarantees: `spans` decides about grouped spans too, and each form conserves the number of spans.
#[tokio::test]
async fn every_form() {
    let server = Server::always(Reply::status(200)).await;
    for (form, path, requests) in
        [("otlp", "integration/otlp/v1/traces", 1), ("streamed", "envelope", 2), ("transactions", "envelope", 2)]
    {
        let exporter = exporter_to(&server, &format!("spans: {form}")).await;
        for spans in [transactions(&[("shop", 3), ("stock", 2)]), ungrouped(&[("shop", 3), ("stock", 2)])] {
            let prepared = prepare(&exporter, spans);
            assert_eq!((prepared.requests.len(), prepared.losses.is_none()), (requests, true), "{form}");
            assert_eq!(prepared.requests.iter().map(|request| request.quantities.spans).sum::<u64>(), 5, "{form}");
            send_all(&exporter, &prepared.requests).await;
            let received = server.received().pop().unwrap();
            assert_eq!(received.line, format!("POST /api/42/{path}/ HTTP/1.1"), "{form}");
        }
    }
    let received = server.received();
    let containers = received[2..4].iter().map(|received| received.item("span")["items"].as_array().unwrap().len());
    assert_eq!(containers.collect::<Vec<_>>(), [3, 2]);
    assert_eq!(logged().matches("puts spans together by the batch").count(), 1, "{}", logged());
}

/// Guarantees: a client's request goes to the client's own project with its own key, name and user agent, byte for
/// byte, also compressed; without an `upstream` it goes to `dsn`.
#[tokio::test]
async fn clients() {
    let server = Server::always(Reply::status(200)).await;
    let yaml = format!("upstream: http://{}", server.address());
    let exporter = exporter(&yaml, &ManualClock::default()).await;
    let mut packed = of_client();
    let gzip = profbridge_testkit::gzip(PYTHON);
    packed.keep_packed(Packed { coding: "gzip", bytes: gzip.clone().into() });
    for (spans, coding) in [(of_client(), "zstd"), (packed, "gzip")] {
        send_all(&exporter, &prepare(&exporter, spans).requests).await;
        let received = server.received().pop().unwrap();
        assert_eq!(received.line, "POST /api/7/integration/otlp/v1/traces/ HTTP/1.1");
        assert_eq!((&received.plain()[..], received.header("content-encoding")), (PYTHON, Some(coding)));
        let auth = received.header("x-sentry-auth").unwrap();
        assert!(auth.contains("fedcba9876543210fedcba9876543210") && auth.contains("sentry.python/3.0.0b2"), "{auth}");
        assert_eq!(received.header("user-agent"), Some("OTel-OTLP-Exporter-Python/1.45.2"));
    }
    assert_eq!(server.received()[1].body, gzip);
    let own = exporter_to(&server, "").await;
    send_all(&own, &prepare(&own, of_client()).requests).await;
    let received = server.received().pop().unwrap();
    assert_eq!(
        (received.line.as_str(), &received.plain()[..]),
        ("POST /api/42/integration/otlp/v1/traces/ HTTP/1.1", PYTHON)
    );
    assert!(received.header("x-sentry-auth").unwrap().contains(KEY));
}

/// Guarantees: spans in OTLP that are unsent at shutdown are kept exactly as they would have been sent, however many
/// they are. If `profbridge send` has to turn them into transactions, it is told which spans these lack.
#[tokio::test]
async fn kept() {
    let server = Server::always(Reply::status(200)).await;
    let folder = tempfile::tempdir().unwrap();
    let path = serde_json::to_string(&folder.path().join("unsent")).unwrap();
    let exporter = exporter_to(&server, &format!("on_shutdown: {path}")).await;
    let prepared = prepare(&exporter, ungrouped(&[("shop", 1500), ("stock", 1)]));
    let [request] = &prepared.requests[..] else { panic!("one request") };
    assert_eq!(exporter.observer().unwrap().keep(vec![request]).await, 1);
    let projects = std::fs::read_dir(folder.path().join("unsent")).unwrap().flatten();
    let files = projects.flat_map(|project| std::fs::read_dir(project.path()).unwrap().flatten());
    let files: Vec<_> = files.map(|file| file.path()).filter(|path| !path.ends_with("dsn")).collect();
    let [file] = &files[..] else { panic!("{files:?}") };
    assert!(file.to_str().unwrap().ends_with(".spans.otlp.zstd"), "{file:?}");
    let body = bytes::Bytes::from(std::fs::read(file).unwrap());
    assert_eq!(body, request.body);

    let dsn = server.dsn(42).parse().unwrap();
    let written = keep::as_transactions(body, Some("zstd"), &dsn, |_| chunk::Settings::default()).unwrap();
    let sent: Vec<u64> = written.messages.iter().map(|message| message.quantities.spans).collect();
    assert_eq!((sent, written.report.losses.get(Reason::LimitExceeded)), (vec![1001, 1], Quantities::spans(499)));
    for message in written.messages {
        let gzip = profbridge_net::compression::Coding::Gzip;
        let plain = profbridge_net::compression::decompress(gzip, message.body, 1 << 20).unwrap();
        let envelope = profbridge_wire::sentry::envelope::read(plain).unwrap().envelope;
        validate_transaction(envelope.items[0].payload.plain().unwrap()).unwrap();
    }
}

/// Guarantees: receivers hear whether a client's spans would be dropped by the limits on the category in which they
/// leave: transactions with `spans: transactions` and if the server has no OTLP endpoint, else spans. Other projects are
/// not affected.
/// rule: transport#rate-limits
#[tokio::test]
async fn limits_on_each_form() {
    let minute = std::time::Duration::from_secs(60);
    for (mode, otlp, category) in [
        ("otlp", 200, "span"),
        ("streamed", 200, "span"),
        ("transactions", 200, "transaction"),
        ("auto", 200, "span"),
        ("auto", 404, "transaction"),
    ] {
        for limited in ["span", "transaction"] {
            let server = Server::start(move |request| {
                if request.line.contains("otlp") && otlp == 404 {
                    return Reply::status(404);
                }
                Reply::status(200).with("x-sentry-rate-limits", format!("60:{limited}:organization"))
            })
            .await;
            let yaml = format!("upstream: http://{}\nspans: {mode}", server.address());
            let clock = ManualClock::default();
            let exporter =
                SentryExporter::with(settings(&yaml), clock.clock(), profbridge_net::client::Proxies::none());
            let context = exporter_context("sentry");
            exporter.start(&context).await.unwrap();
            let blocked = |client: &RequestMeta| context.peer_limits.spans_blocked(["sentry"], client);
            let client = of_client().client.unwrap();
            assert_eq!(blocked(&client), None);
            send_all(&exporter, &prepare(&exporter, of_client()).requests).await;
            let expected = (limited == category).then_some(minute);
            assert_eq!(blocked(&client), expected, "{mode}, {otlp}, {limited}");
            assert_eq!(blocked(&RequestMeta { project_id: Some(8), ..RequestMeta::clone(&client) }), None);
            clock.advance(minute);
            assert_eq!(blocked(&client), None, "the limit ends");
        }
    }
}
