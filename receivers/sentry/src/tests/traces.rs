//! Spans that are sent to Sentry's OTLP endpoint.

use profbridge_engine::peer_limits::SpanLimits;
use profbridge_model::envelope::RequestMeta;
use profbridge_model::{Quantities, Reason, Spans};
use profbridge_testkit::ReadAnswer;
use profbridge_wire::otlp::json::{self, Message};
use profbridge_wire::otlp::traces;
use profbridge_wire::sentry::rate_limit::peer_key;
use serde_json::json;

use super::*;

/// What the OTLP integration of Sentry's Python SDK 3.0.0b2 sends.
const PYTHON: &[u8] =
    include_bytes!("../../../../pipeline/wire/testdata/sentry/python-3.0b2-otlpintegration-traces.otlp.pb");

const PATH: &str = "/api/42/integration/otlp/v1/traces";
const PROTOBUF: &str = "application/x-protobuf";

fn request(body: impl Into<Bytes>, media: &str) -> Post {
    bare(body).to(PATH).header("content-type", media)
}

async fn taken(rig: &mut SentryRig, post: Post) -> (ReadAnswer, Spans) {
    let (answer, taken) = tokio::join!(post.send(rig.http()), patiently(rig.consumer.take()));
    match taken {
        Some(Telemetry::Spans(spans)) => (answer, spans),
        other => panic!("{other:?}"),
    }
}

fn as_json(protobuf: &[u8]) -> String {
    let mut text = Vec::new();
    json::write(Message::TracesRequest, protobuf, usize::MAX, &mut text).unwrap();
    String::from_utf8(text).unwrap()
}

fn value(protobuf: &[u8]) -> Value {
    serde_json::from_str(&as_json(protobuf)).unwrap()
}

/// Guarantees: a client's spans are accepted with every form of authentication, with and without a slash at the end,
/// compressed or not, as protobuf and as JSON, and answered as by Relay: 200 without a body. The spans keep the
/// client's project, key, name and received bytes, also if compressed.
/// rule: transport#path-otlp
#[tokio::test]
async fn every_form() {
    let mut rig = SentryRig::start(LOOPBACK).await;
    let query = format!("{PATH}/?sentry_version=7&sentry_key={KEY}");
    let authenticated = |post: Post| post.header("x-sentry-auth", auth(KEY));
    let packed = gzip(PYTHON);
    for (request, is_named) in [
        (authenticated(request(PYTHON, PROTOBUF)), true),
        (authenticated(request(PYTHON, PROTOBUF)).to(format!("{PATH}/")), true),
        (authenticated(request(PYTHON, PROTOBUF)).to(format!("/eu/relay{PATH}/")).chunked(), true),
        (authenticated(request(packed.clone(), PROTOBUF)).header("content-encoding", "gzip"), true),
        (authenticated(request(as_json(PYTHON), "application/json; charset=utf-8")), true),
        (
            authenticated(request(gzip(as_json(PYTHON).as_bytes()), "application/json"))
                .header("content-encoding", "gzip"),
            true,
        ),
        (request(PYTHON, PROTOBUF).header("x-sentry-auth", format!("sentry sentry_key={KEY}")), false),
        (request(PYTHON, PROTOBUF).header("authorization", format!("Sentry sentry_key={KEY}")), false),
        (
            request(PYTHON, PROTOBUF).header("authorization", "Basic MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY6"),
            false,
        ),
        (request(PYTHON, PROTOBUF).to(query), false),
    ] {
        let media = request.headers[0].1.split(';').next().unwrap().to_owned();
        let is_packed = media == PROTOBUF && request.body == packed;
        let (answer, spans) = taken(&mut rig, request).await;
        assert_eq!((answer.status, answer.body.len(), answer.header("content-type")), (200, 0, Some(&*media)));
        let received = spans.received().unwrap();
        match &*media {
            PROTOBUF => assert_eq!(&received[..], PYTHON, "byte for byte"),
            // The fields are in another order.
            _ => assert_eq!(value(received), value(PYTHON)),
        }
        assert_eq!(
            spans.packed().map(|packed| (packed.coding, &packed.bytes[..])),
            is_packed.then_some(("gzip", &packed[..]))
        );
        let client = spans.client.as_deref().unwrap();
        assert_eq!((client.project_id, &*client.public_key.as_ref().unwrap().0), (Some(42), KEY));
        assert_eq!(client.sentry_client.is_some(), is_named);
        assert_eq!((spans.spans().len(), spans.peer.as_deref()), (4, Some("127.0.0.1")));
        drop(spans);
        assert_eq!(rig.consumer.memory_used(), 0);
    }
}

/// Guarantees: the text of a request in JSON takes no memory while its spans are decoded, for which all of it would not
/// be enough.
#[tokio::test]
async fn text_is_dropped() {
    let mut rig = SentryRig::start_with(settings(LOOPBACK), 15 << 18).await;
    let text = as_json(PYTHON) + &" ".repeat(3 << 20);
    let post = request(text, "application/json").header("x-sentry-auth", auth(KEY));
    let (answer, spans) = taken(&mut rig, post).await;
    assert_eq!((answer.status, spans.spans().is_empty()), (200, false));
}

/// Guarantees: of the spans that OpenTelemetry's instrumentation makes of posts of an SDK of Sentry, those to this
/// receiver are dropped and counted, those to another host stay, and a request with nothing else goes no further.
#[tokio::test]
async fn own_requests() {
    let post_to = |host: &str| {
        let text = |key: &str, value: &str| json!({ "key": key, "value": { "stringValue": value } });
        let url = format!("http://{host}/api/42/envelope/?sentry_key={KEY}");
        json!({
            "traceId": "5b8efff798038103d269b633813fc60c", "spanId": "eee19b7ec3c1b174", "name": "POST", "kind": 3,
            "startTimeUnixNano": "1", "endTimeUnixNano": "2",
            "attributes": [text("http.request.method", "POST"), text("url.full", &url)],
        })
    };
    let request_of = |spans: &[Value]| {
        let body = json!({ "resourceSpans": [{ "scopeSpans": [{ "spans": spans }] }] }).to_string();
        let authenticated = request(body, "application/json").header("x-sentry-auth", auth(KEY));
        authenticated.header("x-forwarded-host", "sidecar:9000")
    };
    let (own, other) = (post_to("sidecar:9000"), post_to("shop:9000"));
    let mut rig = SentryRig::start(LOOPBACK).await;
    let answer = request_of(std::slice::from_ref(&own)).send(rig.http()).await;
    assert_eq!((answer.status, rig.consumer.memory_used()), (200, 0));
    let (_, spans) = taken(&mut rig, request_of(&[own, other])).await;
    assert_eq!((spans.spans().len(), spans.received()), (1, None));
    assert_eq!(rig.consumer.totals().dropped.get(Reason::OwnRequests), Quantities::spans(2));
}

/// The code and the message of a refusal.
fn refusal(answer: &ReadAnswer) -> (i64, String) {
    let refusal = json(answer);
    (refusal["code"].as_i64().unwrap(), refusal["message"].as_str().unwrap().to_owned())
}

/// Guarantees: an invalid request is refused with Relay's status and a `google.rpc.Status` that names the rule, in the
/// encoding of the request. A request larger than Relay's limit is refused before it is read, one with another method
/// whatever its content type.
/// rule: transport#path-otlp
#[tokio::test]
async fn refused() {
    let rig = SentryRig::start(&format!("{{{LOOPBACK}, public_keys: [{KEY}]}}")).await;
    let post = |body: &str| request(body.to_owned(), "application/json").header("x-sentry-auth", auth(KEY));
    let no_span = r#"{"resourceSpans":[{"scopeSpans":[{"spans":[{"traceId":"00","spanId":"0000000000000001"}]}]}]}"#;
    let large = "x".repeat(13 << 20);
    for (request, status, code, part) in [
        (post("{\"resourceSpans\":7}"), 400, 3, "resource_spans"),
        (post(no_span), 400, 3, "trace_id"),
        (request("{}", "application/json"), 401, 16, "no authentication"),
        (request("{}", "application/json").header("x-sentry-auth", auth(OTHER_KEY)), 403, 7, "public_keys"),
        (post("{}").method(Method::GET), 405, 3, "POST"),
        (post(&large), 413, 8, "12582912"),
        (post(&large).chunked(), 413, 8, "12582912"),
        (post("{}").header("content-encoding", "lz4"), 415, 3, "lz4"),
        (post("{").header("content-encoding", "gzip"), 400, 3, "gzip"),
    ] {
        let answer = rig.refused(request).await;
        let (found, message) = refusal(&answer);
        assert_eq!((answer.status, found), (status, code), "{message}");
        assert!(message.contains(part), "{message}");
    }
    let answer = rig.refused(request(&b"\x0a"[..], PROTOBUF).header("x-sentry-auth", auth(KEY))).await;
    assert_eq!((answer.status, answer.header("content-type")), (400, Some(PROTOBUF)));
    for method in [Method::GET, Method::HEAD, Method::PUT] {
        let answer = rig.refused(bare("").to(PATH).method(method)).await;
        assert_eq!((answer.status, answer.header("allow")), (405, Some("POST, OPTIONS")));
        assert!(answer.header("x-sentry-error").unwrap().ends_with("spans are sent with POST"), "{answer:?}");
    }
    for media in ["text/plain", "application/grpc"] {
        let answer = rig.refused(request("x", media).header("x-sentry-auth", auth(KEY))).await;
        assert_eq!((answer.status, answer.header("content-type")), (415, Some(PROTOBUF)), "{media}");
    }
}

/// Guarantees: the valid spans of a request are accepted, invalid ones are counted, and the sender is told the first
/// rule that was broken.
#[tokio::test]
async fn some_invalid() {
    let mut rig = SentryRig::start(LOOPBACK).await;
    let text = as_json(PYTHON).replacen("\"startTimeUnixNano\":\"1", "\"startTimeUnixNano\":\"9", 1);
    let (answer, spans) = taken(&mut rig, request(text, "application/json").header("x-sentry-auth", auth(KEY))).await;
    assert_eq!((answer.status, spans.spans().len()), (200, 3));
    let partial = &json(&answer)["partialSuccess"];
    assert_eq!(partial["rejectedSpans"], json!("1"));
    assert!(partial["errorMessage"].as_str().unwrap().contains("end_time_unix_nano"), "{partial}");
    assert_eq!(rig.consumer.totals().dropped.get(Reason::Malformed), Quantities::spans(1));
}

/// Guarantees: all spans of a request with base64 ids are accepted, and the sender is warned.
/// rule: transport#otlp-base64-ids
#[tokio::test]
async fn base64_ids() {
    let mut rig = SentryRig::start(LOOPBACK).await;
    let text = r#"{"resourceSpans":[{"scopeSpans":[{"spans":[
        {"traceId":"AQEBAQEBAQEBAQEBAQEBAQ==","spanId":"AgICAgICAgI=","name":"x"}]}]}]}"#;
    let (answer, spans) = taken(&mut rig, request(text, "application/json").header("x-sentry-auth", auth(KEY))).await;
    assert_eq!(spans.spans()[0].trace_id.bytes(), &[1; 16]);
    let partial = &json(&answer)["partialSuccess"];
    assert_eq!((answer.status, &partial["rejectedSpans"]), (200, &json!("0")));
    assert!(partial["errorMessage"].as_str().unwrap().contains("base64"), "{partial}");
}

/// An exporter that drops the spans of one key.
#[derive(Debug)]
struct DropsSpansOf(&'static str);

impl SpanLimits for DropsSpansOf {
    fn blocked(&self, sender: &RequestMeta) -> Option<Duration> {
        let is_it = sender.project_id == Some(42) && &*sender.public_key.as_ref()?.0 == self.0;
        is_it.then_some(Duration::from_secs(50))
    }
}

/// Guarantees: a request whose spans all exporters would drop is refused with the time and Sentry's limits, and its
/// spans do not reach the pipelines, because its sender may send them again. A request whose spans an exporter sends is
/// accepted, whatever limits there are, and its client is told these.
/// rule: transport#rate-limits, transport#rate-limits-otlp
#[tokio::test]
async fn rate_limits() {
    let (pipeline, limits) = (intake(PLENTY), PeerLimits::default());
    for key in [KEY, OTHER_KEY] {
        limits.publish(&peer_key(42, key), "span:organization", Duration::from_secs(60));
    }
    limits.offer_span_limits("test", Arc::new(DropsSpansOf(KEY)));
    let receiver = SentryReceiver::new(settings(LOOPBACK));
    let rig = ReceiverRig::start_before(pipeline, "sentry", receiver, PLENTY, limits).await.unwrap();
    let mut rig = SentryRig(rig);
    let post = |key| request(as_json(PYTHON), "application/json").header("x-sentry-auth", auth(key));
    let answer = rig.refused(post(KEY)).await;
    assert_eq!((answer.status, refusal(&answer).0, answer.header("retry-after")), (429, 8, Some("50")));
    assert!(answer.header("x-sentry-rate-limits").unwrap().ends_with(":span:organization"), "{answer:?}");
    let (answer, spans) = taken(&mut rig, post(OTHER_KEY)).await;
    assert_eq!((answer.status, &*spans.client.unwrap().public_key.as_ref().unwrap().0), (200, OTHER_KEY));
    assert!(answer.header("x-sentry-rate-limits").unwrap().ends_with(":span:organization"), "{answer:?}");
    assert_eq!((rig.requests("success", "http"), rig.requests("refused", "http")), (1, 1));
}

/// Attack: cut and flipped bytes of a request, in both encodings.
/// Guarantees: the request is accepted or refused, without a panic and without memory left over.
#[tokio::test]
async fn damaged() {
    let mut rig = SentryRig::start(LOOPBACK).await;
    let text = as_json(PYTHON);
    for (body, media) in [(PYTHON, PROTOBUF), (text.as_bytes(), "application/json")] {
        for position in (0..body.len()).step_by(37) {
            let mut flipped = body.to_vec();
            flipped[position] ^= 0x55;
            for damaged in [body[..position].to_vec(), flipped] {
                let post = request(damaged, media).header("x-sentry-auth", auth(KEY));
                let answer = {
                    let sent = post.send(rig.http());
                    let consumer = &mut rig.consumer;
                    tokio::pin!(sent);
                    tokio::select! {
                        answer = &mut sent => answer,
                        taken = consumer.take() => {
                            drop(taken);
                            sent.await
                        }
                    }
                };
                assert!(matches!(answer.status, 200 | 400), "{answer:?}");
            }
        }
    }
    let decoded = traces::decode(Bytes::from_static(PYTHON), &Default::default()).unwrap();
    assert_eq!((decoded.spans.spans().len(), rig.consumer.memory_used()), (4, 0));
}
