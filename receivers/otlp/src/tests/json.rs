//! OTLP over HTTP in JSON.

use profbridge_wire::otlp::json::{Message, write};
use serde_json::{Value, json};

use super::*;
use crate::http::PATH;

/// Encodes a request in JSON.
fn text(request: &ExportProfilesServiceRequest) -> Vec<u8> {
    let mut text = Vec::new();
    write(Message::ProfilesRequest, &request.encode_to_vec(), usize::MAX, &mut text).unwrap();
    text
}

fn post(encoding: Option<&str>, body: impl Into<Bytes>) -> Request<Feed> {
    post_to(PATH, "application/json; charset=utf-8", encoding, body)
}

/// The status of an answer, and its body parsed as JSON.
fn answered(answer: &ReadAnswer) -> (u16, Value) {
    assert_eq!(answer.header("content-type"), Some("application/json"));
    (answer.status, serde_json::from_slice(&answer.body).unwrap())
}

/// Guarantees: a request in JSON arrives as the same batch as in protobuf, in every encoding, small and large. The
/// answer is in JSON, and full success leaves `partialSuccess` unset.
/// rule: otlp#http-json, otlp#http-answer-type
#[tokio::test]
async fn exports() {
    let mut rig = OtlpRig::start(LOOPBACK).await;
    let (small, large) = (small(), heavy(100_000));
    for (request, encoding, body) in [
        (&small, None, text(&small)),
        (&small, Some("gzip"), gzip(&text(&small))),
        (&small, Some("zstd"), zstandard(&text(&small))),
        (&large, None, text(&large)),
    ] {
        let (answer, taken) = tokio::join!(http1(rig.http(), post(encoding, body)), rig.consumer.take());
        assert_eq!(answered(&answer), (200, json!({})), "{encoding:?}");
        let profiles = profiles(taken);
        let received = ExportProfilesServiceRequest::decode(profiles.received.unwrap()).unwrap();
        assert_eq!(&received, request);
        assert_eq!(profiles.peer.as_deref(), Some("127.0.0.1"));
    }
    assert_eq!((rig.samples("accepted", "http"), rig.requests("success", "http")), (7, 4));
    assert_eq!(rig.consumer.memory_used(), 0);
}

/// Guarantees: invalid JSON, or JSON of another message, is 400 with a status in JSON that names the place; a too large
/// body is 413; neither occupies memory afterwards.
/// rule: otlp#http-json
#[tokio::test]
async fn bad_requests() {
    let rig = OtlpRig::start(SMALL).await;
    for (body, code, says) in [
        (b"{\"resourceProfiles\":[{},".to_vec(), 400, "resource_profiles[1] (at byte 23): EOF while parsing a value"),
        (b"{}{}".to_vec(), 400, "trailing characters"),
        (b"\xff".to_vec(), 400, "the text is not UTF-8"),
        (br#"{"dictionary":{},"dictionary":{}}"#.to_vec(), 400, r#"the field "dictionary" stands twice"#),
        (br#"{"dictionary":{"stackTable":[{},{"locationIndices":[1]}]}}"#.to_vec(), 400, "dictionary.stack_table[1]"),
        (small().encode_to_vec(), 400, "the text is not UTF-8"),
        (vec![b' '; SMALL_LIMIT + 1], 413, "1048576"),
        (text(&heavy(SMALL_LIMIT)), 413, "1048576"),
    ] {
        let answer = patiently(http1(rig.http(), post(None, body))).await;
        let (status, answer_json) = answered(&answer);
        assert_eq!(status, code, "{answer_json}");
        assert!(answer_json["message"].as_str().unwrap().contains(says), "{says}: {answer_json}");
        assert_eq!(answer_json["code"], json!(if code == 400 { 3 } else { 8 }));
    }
    assert_eq!(rig.consumer.memory_used(), 0);
}

/// Guarantees: traces in JSON arrive as spans; those that break a rule are rejected by a partial success that mentions
/// spans; a request without an acceptable span is 400 with the place.
#[tokio::test]
async fn traces() {
    let mut rig = OtlpRig::start(LOOPBACK).await;
    let post = |spans: Value| {
        let body = json!({ "resourceSpans": [{ "scopeSpans": [{ "spans": spans }] }] }).to_string();
        post_to("/v1/traces", "application/json", None, body)
    };
    let good = json!({ "traceId": "5b8efff798038103d269b633813fc60c", "spanId": "eee19b7ec3c1b174", "kind": 2 });
    let bad = json!({ "traceId": "5b8e", "spanId": "eee19b7ec3c1b174" });
    let (answer, taken) = tokio::join!(http1(rig.http(), post(json!([good]))), rig.consumer.take());
    assert_eq!(answered(&answer), (200, json!({})));
    let Some(Telemetry::Spans(spans)) = taken else { panic!("{taken:?}") };
    assert_eq!(spans.spans().len(), 1);
    let (answer, _) = tokio::join!(http1(rig.http(), post(json!([good, bad]))), rig.consumer.take());
    let place = "resource_spans[0].scope_spans[0].spans[1].trace_id: has 2 bytes where an id has 16";
    let answer_json = json!({ "partialSuccess": { "rejectedSpans": "1", "errorMessage": place } });
    assert_eq!(answered(&answer), (200, answer_json));
    let (status, answer_json) = answered(&http1(rig.http(), post(json!([bad]))).await);
    assert_eq!((status, answer_json["code"].clone()), (400, json!(3)));
    assert!(answer_json["message"].as_str().unwrap().contains("spans[0].trace_id: has 2 bytes"), "{answer_json}");
    let (status, answer_json) = answered(&http1(rig.http(), post(json!([{ "traceId": "xy" }]))).await);
    assert_eq!(status, 400);
    assert!(
        answer_json["message"]
            .as_str()
            .unwrap()
            .contains("resource_spans[0].scope_spans[0].spans[0].trace_id (at byte ")
    );
}

/// Guarantees: if memory runs out while JSON is decoded, the answer allows a retry.
/// rule: otlp#http-json
#[tokio::test]
async fn memory_is_asked_for() {
    let rig = OtlpRig::start_with(settings(LOOPBACK), 8 << 20).await.unwrap();
    let held = rig.intake.admit(5 << 20).unwrap();
    let body = text(&heavy(1 << 20));
    let answer = http1(rig.http(), post(None, body)).await;
    let (status, answer_json) = answered(&answer);
    assert_eq!((status, &answer_json["code"]), (503, &json!(14)), "{answer_json}");
    assert!(answer.header("retry-after").is_some());
    drop(held);
    assert_eq!(rig.consumer.memory_used(), 0);
}

/// Guarantees: impossible times of profiles (in microseconds) are replaced, over gRPC and in JSON: each profile ends at
/// its arrival, and the distances between its times stay. The profiles are counted, and not forwarded as received.
#[tokio::test]
async fn times_that_cannot_be() {
    let mut rig = OtlpRig::start(LOOPBACK).await;
    let mut request = small();
    let profile = &mut request.resource_profiles[0].scope_profiles[0].profiles[0];
    profile.time_unix_nano /= 1000;
    profile.samples.iter_mut().flat_map(|sample| &mut sample.timestamps_unix_nano).for_each(|time| *time /= 1000);
    let (_, taken) = tokio::join!(http1(rig.http(), post(None, text(&request))), rig.consumer.take());
    for profiles in [profiles(taken), rig.export(rig.client(), request).await.1] {
        let profile = profiles.profiles().next().unwrap();
        let samples: Vec<Vec<u64>> = profiles.samples(profile).map(|sample| sample.timestamps().collect()).collect();
        // The profile lasts five seconds.
        let start = ARRIVAL - 5_000_000_000;
        assert_eq!(profile.time_unix_nano, start);
        assert_eq!(samples, [vec![start, start + 50_000], vec![start + 10_000]]);
        assert_eq!(profiles.received, None);
    }
    assert_eq!((rig.consumer.totals().notes, rig.consumer.memory_used()), (vec![("time_skew", 6)], 0));
}
