//! Requests while memory is short, an exporter's queue is full, or during a shutdown.

use profbridge_engine::delivery::Overflow;

use super::*;

/// Waits longer than any test.
const PATIENT: &str = "{endpoint: '127.0.0.1:0', admission_timeout: 10m}";

/// Waits only briefly.
const BRIEF: &str = "{endpoint: '127.0.0.1:0', admission_timeout: 50ms}";

/// Guarantees: while memory is short a request waits, and gets 503 with Retry-After at its deadline, whether the memory
/// is for its body, for decompression, or for a profile in it.
/// rule: transport#answer-errors, transport#answer-503
#[tokio::test]
async fn no_memory_means_later() {
    for request in
        [post(SMALL), post(vec![b' '; 80_000]), post(gzip(CHUNK)).header("content-encoding", "gzip"), post(CHUNK)]
    {
        let rig = SentryRig::start_with(settings(BRIEF), 1 << 20).await;
        let needed = if request.body.len() < 30_000 && request.body.len() > 1000 { 30_000 } else { 0 };
        let held = rig.intake.admit((1 << 20) - needed).unwrap();
        let answer = request.send(rig.http()).await;
        assert_eq!((answer.status, answer.header("retry-after")), (503, Some("2")), "{answer:?}");
        assert!(detail(&answer).contains("bytes of memory are used"), "{answer:?}");
        drop(held);
        assert_eq!((rig.consumer.memory_used(), rig.requests("refused", "http")), (0, 1));
    }
}

/// Guarantees: memory that is released while a request waits is used, for an uncompressed profile and for one that must
/// be decompressed.
/// rule: transport#answer-503
#[tokio::test]
async fn memory_that_becomes_free_is_taken() {
    for request in [post(CHUNK), post(gzip(CHUNK)).header("content-encoding", "gzip"), post(SMALL)] {
        let mut rig = SentryRig::start_with(settings(PATIENT), 1 << 20).await;
        // The rest is enough for the body.
        let left = request.body.len() as u64 + 64;
        let held = rig.intake.admit((1 << 20) - left).unwrap();
        let small = request.body.len() < 1000;
        let more = small.then(|| rig.intake.admit(left).unwrap());
        let waiting = tokio::spawn(request.send(rig.http()));
        if !small {
            until(|| rig.consumer.memory_used() > (1 << 20) - left).await;
        }
        drop((held, more));
        let taken = envelope(patiently(rig.consumer.take()).await);
        assert_eq!(taken.views.len(), usize::from(!small));
        assert_eq!((waiting.await.unwrap().status, rig.consumer.memory_used()), (200, 0));
    }
}

/// Attack: compressed profiles, each of which fits into memory alone, arrive at the same time. No request waits for
/// memory that another one holds, and all are accepted.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn decoding_waits_for_no_other() {
    const EACH: usize = 6;
    let mut rig = SentryRig::start_with(settings(PATIENT), 10 << 20).await;
    // Decompressed it takes 4 MiB, and 5 more to be decoded.
    let payload = "{}".repeat(5_000) + &" ".repeat((39 << 20) / 10);
    let head = format!("{{}}\n{{\"type\":\"profile_chunk\",\"length\":{}}}\n", payload.len());
    let body = gzip((head + &payload).as_bytes());
    let mut senders = tokio::task::JoinSet::new();
    for _ in 0..EACH {
        senders.spawn(post(body.clone()).header("content-encoding", "gzip").send(rig.http()));
    }
    for _ in 0..EACH {
        assert!(patiently(rig.consumer.take()).await.is_some());
    }
    assert!(senders.join_all().await.iter().all(|answer| answer.status == 200));
    assert_eq!(rig.consumer.memory_used(), 0);
}

/// Guarantees: a request that can never fit is refused at once and permanently.
#[tokio::test]
async fn what_never_fits() {
    let rig = SentryRig::start_with(settings(PATIENT), 100_000).await;
    for body in [vec![b' '; 200_000], gzip(&vec![b' '; 200_000])] {
        let coding = if body[0] == b' ' { "identity" } else { "gzip" };
        let answer = rig.refused(post(body).header("content-encoding", coding)).await;
        assert_eq!((answer.status, answer.header("retry-after")), (413, None), "{coding}: {answer:?}");
    }
}

/// Guarantees: while an exporter's queue is full a request waits unread, and gets 503 at its deadline; room that
/// appears earlier is used.
/// rule: transport#answer-503
#[tokio::test]
async fn a_full_queue() {
    let rig = SentryRig::start(BRIEF).await;
    rig.consumer.set_full(Some(Overflow::Refuse));
    let answer = rig.refused(post(SMALL)).await;
    assert_eq!((answer.status, answer.header("retry-after")), (503, Some("5")));
    assert!(detail(&answer).contains("the queue of exporter test is full"));
    assert!(rig.consumer.totals().dropped.is_none(), "its sender has it");

    let mut rig = SentryRig::start(PATIENT).await;
    rig.consumer.set_full(Some(Overflow::Refuse));
    let waiting = tokio::spawn(post(SMALL).send(rig.http()));
    until(|| rig.consumer.waiting() == 1).await;
    assert_eq!(rig.consumer.memory_used(), 0);
    rig.consumer.set_full(None);
    assert!(patiently(rig.consumer.take()).await.is_some());
    assert_eq!(waiting.await.unwrap().status, 200);
}

/// Guarantees: with `admission_timeout: 0s` a request is refused at once.
#[tokio::test]
async fn without_patience() {
    let rig = SentryRig::start_with(settings("{endpoint: '127.0.0.1:0', admission_timeout: 0s}"), 1 << 20).await;
    rig.consumer.set_full(Some(Overflow::Refuse));
    assert_eq!(rig.refused(post(SMALL)).await.status, 503);
    rig.consumer.set_full(None);
    let held = rig.intake.admit(1 << 20).unwrap();
    assert_eq!(post(SMALL).send(rig.http()).await.status, 503);
    drop(held);
}

/// Guarantees: a shutdown frees the port, lets a request that the pipelines already have finish with its answer, and
/// tells a request that waits for room to retry.
#[tokio::test]
async fn a_shutdown() {
    let mut rig = SentryRig::start(LOOPBACK).await;
    let under_way = tokio::spawn(post(SMALL).send(rig.http()));
    until(|| rig.consumer.memory_used() > 0).await;
    rig.trigger.trigger();
    patiently(async {
        while tokio::net::TcpListener::bind(rig.http()).await.is_err() {
            tokio::task::yield_now().await;
        }
    })
    .await;
    assert!(!rig.stopped.is_finished());
    assert!(patiently(rig.consumer.take()).await.is_some());
    assert_eq!(under_way.await.unwrap().status, 200);
    patiently(&mut rig.stopped).await.unwrap();

    let mut rig = SentryRig::start(LOOPBACK).await;
    rig.consumer.close();
    let answer = rig.refused(post(SMALL)).await;
    assert_eq!((answer.status, answer.header("retry-after")), (503, Some("2")));
}
