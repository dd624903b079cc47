//! How profiles and spans are decoded, and how much memory is held.

use profbridge_model::envelope::Payload;
use profbridge_model::{Quantities, SpanForm};

use super::*;

const NODE: &[u8] = include_bytes!("../../../../pipeline/wire/testdata/sentry/node-10.75-profile_chunk.envelope");

const TRANSACTION: &[u8] = include_bytes!("../../../../pipeline/wire/testdata/sentry/python-2.75-transaction.envelope");
const V1: &[u8] =
    include_bytes!("../../../../pipeline/wire/testdata/sentry/node-10.75-v1-transaction+profile.envelope");
const SPANS: &[u8] = include_bytes!("../../../../pipeline/wire/testdata/sentry/node-11.1-span.envelope");

/// Guarantees: a chunk is decoded into a view of its item, compressed or not, from Python's SDK and Node's; the
/// envelope stays unchanged, and while the pipelines have it the memory of both is counted.
#[tokio::test]
async fn chunks() {
    let mut rig = SentryRig::start(LOOPBACK).await;
    for (body, samples) in [(CHUNK, 298), (NODE, 90)] {
        for coding in ["identity", "gzip"] {
            let came = if coding == "gzip" { gzip(body) } else { body.to_vec() };
            let request = post(came.clone()).header("content-encoding", coding).chunked();
            let (answer, taken) = rig.taken(request.clone()).await;
            assert_eq!(answer.status, 200);
            let [view] = &taken.views[..] else { panic!("{} views", taken.views.len()) };
            assert_eq!(view.item, 0);
            let observations: u64 = taken.profiles().map(|profiles| profiles.observations()).sum();
            assert_eq!((observations, taken.unread_items()), (samples, 0), "{coding}");
            assert_eq!(taken.received.as_ref().unwrap().body, came);
            assert_eq!(matches!(taken.items[0].payload, Payload::Packed(_)), coding == "gzip");

            let bytes = taken.size_bytes();
            let waiting = tokio::spawn(request.send(rig.http()));
            until(|| rig.consumer.memory_used() == bytes).await;
            rig.consumer.take().await.unwrap();
            waiting.await.unwrap();
            assert_eq!(rig.consumer.memory_used(), 0);
        }
    }
}

/// Guarantees: a profile that breaks a rule, or is of an unsupported kind, is forwarded unread with the other items:
/// Sentry decides about it.
/// rule: transport#unreadable-profile
#[tokio::test]
async fn unreadable() {
    let mut rig = SentryRig::start(LOOPBACK).await;
    let deep = "[".repeat(100_000);
    for payload in [
        "{}",
        "not JSON",
        "{\"version\":\"1\"}",
        "{\"version\":2}",
        "{\"version\":\"2\",\"version\":\"2\"}",
        "{\"version\":\"2\",\"profiler_id\":7}",
        "\u{0}",
        &deep,
        &"{".repeat(100_000),
    ] {
        let length = payload.len();
        let body = format!(
            "{{}}\n{{\"type\":\"profile_chunk\",\"length\":{length}}}\n{payload}\n\
             {{\"type\":\"attachment\",\"length\":2}}\nok\n"
        );
        let (answer, taken) = rig.taken(post(body.clone())).await;
        assert_eq!((answer.status, taken.views.len(), taken.unread_items()), (200, 0, 2));
        assert_eq!(taken.received.unwrap().body, body);
    }
    let perfetto = "{}\n{\"type\":\"profile_chunk\",\"content_type\":\"application/x-perfetto-trace\",\
                    \"meta_length\":2,\"length\":4}\n{}\u{1}\u{2}\n";
    assert_eq!(rig.taken(post(perfetto)).await.1.views.len(), 0);
    let other_platform = String::from_utf8(CHUNK.to_vec()).unwrap().replacen("\"python\"", "\"node\"", 1);
    assert_eq!(rig.taken(post(other_platform)).await.1.views.len(), 0);
}

/// Attack: a profile with many empty frames is decoded within the granted memory, or not at all.
#[tokio::test]
async fn many_frames() {
    let mut rig = SentryRig::start(LOOPBACK).await;
    let frames = vec!["{}"; 1_000_000].join(",");
    let stack = (0..100).map(|index| index.to_string()).collect::<Vec<_>>().join(",");
    let chunk = format!(
        "{{\"version\":\"2\",\"chunk_id\":\"{KEY}\",\"profiler_id\":\"{KEY}\",\"platform\":\"python\",\
         \"client_sdk\":{{\"name\":\"x\",\"version\":\"1\"}},\
         \"profile\":{{\"frames\":[{frames}],\"stacks\":[[{stack}]],\
         \"samples\":[{{\"timestamp\":1,\"stack_id\":0,\"thread_id\":\"1\"}},\
         {{\"timestamp\":1.01,\"stack_id\":0,\"thread_id\":\"1\"}}]}}}}"
    );
    let body = format!("{{}}\n{{\"type\":\"profile_chunk\",\"platform\":\"python\"}}\n{chunk}\n");
    let (answer, _) = rig.taken(post(gzip(body.as_bytes())).header("content-encoding", "gzip")).await;
    assert_eq!(answer.status, 200);
}

/// Guarantees: transactions and span containers are decoded into views of their items, also beside a profile. Such an
/// item counts as its spans. The envelope stays unchanged, and memory that the envelope and its views share is counted
/// once.
#[tokio::test]
async fn spans() {
    let mut rig = SentryRig::start(LOOPBACK).await;
    let transaction = SpanForm::SentryTransaction;
    for (body, form, counted) in [
        (TRANSACTION, transaction, Quantities::spans(2)),
        (V1, transaction, Quantities { observations: 89, ..Quantities::spans(2) }),
        (SPANS, SpanForm::SentrySpans, Quantities::spans(2)),
    ] {
        for coding in ["identity", "gzip"] {
            let came = if coding == "gzip" { gzip(body) } else { body.to_vec() };
            let request = post(came.clone()).header("content-encoding", coding);
            let (answer, taken) = rig.taken(request.clone()).await;
            assert_eq!((answer.status, taken.quantities()), (200, counted));
            let spans = taken.spans().next().unwrap();
            assert_eq!((spans.form(), spans.peer.as_deref()), (form, Some("127.0.0.1")));
            assert!(taken.views.is_sorted_by_key(|view| view.item) && spans.received().is_some());
            assert_eq!(taken.received.as_ref().unwrap().body, came);
            let payload = taken.items[0].payload.len() as u64;
            let around = spans.size_bytes() - payload;
            let profiles: u64 = taken.profiles().map(|profiles| profiles.size_bytes()).sum();
            let expected = if coding == "gzip" { around + payload } else { around };
            assert_eq!(taken.views_bytes(), expected + profiles, "{coding}");

            let bytes = taken.size_bytes();
            let waiting = tokio::spawn(request.send(rig.http()));
            until(|| rig.consumer.memory_used() == bytes).await;
            rig.consumer.take().await.unwrap();
            waiting.await.unwrap();
            assert_eq!(rig.consumer.memory_used(), 0);
        }
    }
}

/// Guarantees: the spans of a transaction that is sent as a single event are decoded too.
#[tokio::test]
async fn spans_of_an_event() {
    let mut rig = SentryRig::start(LOOPBACK).await;
    let event = TRANSACTION.split(|byte| *byte == b'\n').nth(2).unwrap();
    for coding in ["identity", "gzip"] {
        let came = if coding == "gzip" { gzip(event) } else { event.to_vec() };
        let (_, taken) = rig.taken(post(came).header("content-encoding", coding).to("/api/42/store/")).await;
        assert_eq!(taken.quantities(), Quantities::spans(2));
        assert_eq!(taken.items[0].payload.plain().unwrap(), event);
        assert!(taken.views_bytes() < event.len() as u64, "{coding}");
    }
}

/// Guarantees: spans, transactions and containers that break a rule, single spans of the older protocol and containers
/// without spans are forwarded unread, and each such item is counted as one.
/// rule: transport#span-invalid
#[tokio::test]
async fn unreadable_spans() {
    let mut rig = SentryRig::start(LOOPBACK).await;
    let deep = "[".repeat(100_000);
    let container =
        "{\"type\":\"span\",\"item_count\":1,\"content_type\":\"application/vnd.sentry.items.span.v2+json\"";
    for (header, payload) in [
        ("{\"type\":\"transaction\"", "{}"),
        ("{\"type\":\"transaction\"", "not JSON"),
        ("{\"type\":\"transaction\"", &*deep),
        (container, "{\"version\":2,\"items\":[]}"),
        (container, "{\"version\":2,\"items\":[{}]}"),
        (container, "{\"version\":3,\"items\":[{}]}"),
        ("{\"type\":\"span\"", "{\"span_id\":\"00000000000000aa\"}"),
    ] {
        let length = payload.len();
        let body = format!("{{}}\n{header},\"length\":{length}}}\n{payload}\n{{\"type\":\"x\",\"length\":2}}\nok\n");
        let (answer, taken) = rig.taken(post(body.clone())).await;
        assert_eq!((answer.status, taken.quantities()), (200, Quantities::items(2)), "{payload}");
        assert_eq!(taken.received.unwrap().body, body);
    }
    let broken = String::from_utf8(TRANSACTION.to_vec()).unwrap().replace("82461913a4c244a5", "82461913a4c244a?");
    let (_, taken) = rig.taken(post(broken)).await;
    assert_eq!(taken.quantities(), Quantities::spans(1));
}

/// Attack: a container with the maximum number of spans is decoded within the granted memory.
/// rule: transport#span-many
#[tokio::test]
async fn many_spans() {
    let mut rig = SentryRig::start(LOOPBACK).await;
    let span = "{\"trace_id\":\"745e5a279d06439a81f3ebd9c4fdee8c\",\"span_id\":\"9aa541f6c13dbf68\",\
                \"start_timestamp\":1,\"end_timestamp\":2}";
    let spans = vec![span; 90_000].join(",");
    let body = format!(
        "{{}}\n{{\"type\":\"span\",\"item_count\":90000,\
         \"content_type\":\"application/vnd.sentry.items.span.v2+json\"}}\n{{\"items\":[{spans}]}}\n"
    );
    let (answer, taken) = rig.taken(post(gzip(body.as_bytes())).header("content-encoding", "gzip")).await;
    assert_eq!((answer.status, taken.quantities()), (200, Quantities::spans(90_000)));
}

/// Guarantees: with `resolve_clients` the process that sent spans is found by its connection. It is not looked up
/// without this option, for requests without spans, and for requests through a proxy.
#[tokio::test]
async fn clients() {
    let mut rig = SentryRig::start(&format!("{{{LOOPBACK}, resolve_clients: true}}")).await;
    for body in [TRANSACTION, SPANS] {
        let client = rig.taken(post(body.to_vec())).await.1.meta.client_process.unwrap();
        assert_eq!(client.pid, std::process::id());
        let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
        assert_eq!(&*client.host, host.trim());
    }
    assert_eq!(rig.taken(post(CHUNK.to_vec())).await.1.meta.client_process, None);
    // Comes from another client: the process that has the socket is a proxy.
    let forwarded = post(SPANS.to_vec()).header("x-forwarded-for", "203.0.113.7");
    assert_eq!(rig.taken(forwarded).await.1.meta.client_process, None);
    let mut rig = SentryRig::start(LOOPBACK).await;
    assert_eq!(rig.taken(post(TRANSACTION.to_vec())).await.1.meta.client_process, None);
}
