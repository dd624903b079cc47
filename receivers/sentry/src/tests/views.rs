//! What is read of profiles, and what is held.

use profbridge_model::envelope::Payload;

use super::*;

const NODE: &[u8] = include_bytes!("../../../../pipeline/wire/testdata/sentry/node-10.75-profile_chunk.envelope");

/// Guarantees: a chunk is read into a view of its item, compressed or not, of Python's SDK or Node's; the envelope
/// stays as it came, and while the pipelines have it the memory of both is counted.
#[tokio::test]
async fn chunks() {
    let mut rig = Rig::start(LOOPBACK).await;
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
            let waiting = tokio::spawn(request.send(rig.address));
            until(|| rig.consumer.memory_used() == bytes).await;
            rig.consumer.take().await.unwrap();
            waiting.await.unwrap();
            assert_eq!(rig.consumer.memory_used(), 0);
        }
    }
}

/// Guarantees: a profile that breaks a rule, or is of a kind that is not read, goes on unread with the items beside it:
/// what it is worth is for Sentry to say.
#[tokio::test]
async fn unreadable() {
    let mut rig = Rig::start(LOOPBACK).await;
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

/// Attack: a profile of many empty frames is read within the memory that it was given, or not at all.
#[tokio::test]
async fn many_frames() {
    let mut rig = Rig::start(LOOPBACK).await;
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
