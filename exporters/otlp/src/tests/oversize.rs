use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use opentelemetry_proto::tonic::collector::profiles::v1development::{
    ExportProfilesServiceRequest, ExportProfilesServiceResponse,
};
use profbridge_engine::component::Retry;
use prost::Message as _;
use tonic::Status;

use super::peer::{collector_that, raw, response};
use super::*;

fn observations(message: &ExportProfilesServiceRequest) -> usize {
    let scopes = message.resource_profiles.iter().flat_map(|resource| &resource.scope_profiles);
    let samples = scopes.flat_map(|scope| &scope.profiles).flat_map(|profile| &profile.samples);
    samples.map(|sample| sample.timestamps_unix_nano.len()).sum()
}

/// A peer that accepts messages of at most `limit` bytes, and the observations that it has accepted.
async fn small(
    limit: usize,
    refuse: fn(usize, usize) -> Status,
) -> (super::peer::TestPeer<super::peer::ReceivedCall>, Arc<AtomicUsize>) {
    let taken = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&taken);
    let peer = collector_that(None, move |message| {
        let size = message.encoded_len();
        if size > limit {
            return Err(refuse(size, limit));
        }
        count.fetch_add(observations(message), Ordering::Relaxed);
        Ok(ExportProfilesServiceResponse::default())
    });
    (peer.await, taken)
}

fn grpc_go(size: usize, limit: usize) -> Status {
    Status::resource_exhausted(format!("grpc: received message larger than max ({size} vs. {limit})"))
}

fn tonic_rs(size: usize, limit: usize) -> Status {
    let text = format!("Error, decoded message length too large: found {size} bytes, the limit is: {limit} bytes");
    Status::out_of_range(text)
}

/// Guarantees: a request refused as too large arrives in parts, each observation once, and the next request is small
/// enough from the start.
#[tokio::test]
async fn what_is_too_large_is_sent_in_parts() {
    for refuse in [grpc_go as fn(usize, usize) -> Status, tonic_rs] {
        let (mut peer, taken) = small(150_000, refuse).await;
        let exporter = exporter(Protocol::Grpc, &format!("{{endpoint: '{}', tls: {{insecure: true}}}}", peer.address));
        let profiles = batch(&[30_000, 20_000]);
        assert_eq!(send(&exporter, &profiles).await, Ok(Accepted::default()));
        assert_eq!(taken.swap(0, Ordering::Relaxed), 50_000);
        while peer.seen.try_recv().is_ok() {}

        let outcomes = send_all(&exporter, &profiles.into()).await;
        assert!(outcomes.len() == 4 && outcomes.iter().all(|outcome| *outcome == Ok(Accepted::default())));
        assert_eq!(taken.load(Ordering::Relaxed), 50_000);
        while let Ok((_, message)) = peer.seen.try_recv() {
            assert!(message.encoded_len() <= 150_000);
        }
    }
}

/// Guarantees: the same over HTTP, for the specification's 413 and for the Collector's 400.
#[tokio::test]
async fn over_http() {
    for (status, text) in [(413, ""), (400, "http: request body too large")] {
        let peer = super::peer::raw_that(None, move |body| match body.len() > 150_000 {
            true => response(status, &[("content-type", "text/plain")], text),
            false => response(200, &[], ""),
        });
        let mut peer = peer.await;
        let yaml = format!("{{endpoint: 'http://{}', compression: none}}", peer.address);
        assert_eq!(send(&exporter(Protocol::Http, &yaml), &batch(&[50_000])).await, Ok(Accepted::default()));
        let mut arrived = 0;
        while let Ok((_, body)) = peer.seen.try_recv() {
            if body.len() <= 150_000 {
                arrived += observations(&ExportProfilesServiceRequest::decode(body).unwrap());
            }
        }
        assert_eq!(arrived, 50_000);
    }
}

/// Guarantees: the same for JSON, by the size of the JSON.
/// rule: otlp#send-http-type
#[tokio::test]
async fn in_json() {
    let peer = super::peer::raw_that(None, move |body| match body.len() > 300_000 {
        true => response(413, &[], ""),
        false => response(200, &[], ""),
    });
    let mut peer = peer.await;
    let yaml = format!("{{endpoint: 'http://{}', compression: none, encoding: json}}", peer.address);
    let exporter = exporter(Protocol::Http, &yaml);
    let mut arrived = 0;
    for expected in [50_000, 100_000] {
        let outcomes = send_all(&exporter, &batch(&[50_000]).into()).await;
        assert!(outcomes.iter().all(|outcome| *outcome == Ok(Accepted::default())));
        while let Ok((_, body)) = peer.seen.try_recv() {
            // Once the peer's limit is known, nothing larger is sent.
            assert!(body.len() <= 300_000 || expected == 50_000);
            if body.len() <= 300_000 {
                arrived += otlp::json::decode(&body, &Limits::default()).unwrap().profiles.observations();
            }
        }
        assert_eq!(arrived, expected);
    }
}

/// Guarantees: if a peer finds everything too large, splitting ends and the request is refused for good.
#[tokio::test]
async fn a_peer_that_takes_nothing() {
    let mut peer = raw(None, || response(413, &[], "")).await;
    let yaml = format!("{{endpoint: 'http://{}', compression: none}}", peer.address);
    let exporter = exporter(Protocol::Http, &yaml);
    let accepted = send(&exporter, &batch(&[50_000])).await.unwrap();
    assert_eq!(accepted.lost().total(), 50_000);
    assert!(accepted.message.unwrap().contains("413"));
    let mut attempts = 0;
    while peer.seen.try_recv().is_ok() {
        attempts += 1;
    }
    assert!(attempts < 20, "{attempts}");
    let error = send(&exporter, &batch(&[1])).await.unwrap_err();
    assert_eq!(error.retry, Retry::Never);
}

/// Guarantees: if a part fails and is retried, parts that were accepted before are not sent again.
#[tokio::test]
async fn retries_go_on_where_they_were() {
    let calls = AtomicUsize::new(0);
    let peer =
        super::peer::raw_that(None, move |body| match (body.len() > 300_000, calls.fetch_add(1, Ordering::Relaxed)) {
            (true, _) => response(413, &[], ""),
            (false, 2) => response(503, &[], ""),
            (false, _) => response(200, &[], ""),
        });
    let mut peer = peer.await;
    let yaml = format!("{{endpoint: 'http://{}', compression: none}}", peer.address);
    let exporter = exporter(Protocol::Http, &yaml);
    exporter.start(&profbridge_testkit::exporter_context("otlp")).await.unwrap();
    let requests = requests(&exporter, &batch(&[50_000]).into());
    assert_eq!(exporter.send(&requests[0]).await.unwrap_err().retry, Retry::Later);
    assert_eq!(exporter.send(&requests[0]).await, Ok(Accepted::default()));
    let mut sizes = Vec::new();
    while let Ok((_, body)) = peer.seen.try_recv() {
        sizes.push(observations(&ExportProfilesServiceRequest::decode(body).unwrap()));
    }
    assert_eq!(sizes, [50_000, 25_000, 25_000, 25_000]);
}
