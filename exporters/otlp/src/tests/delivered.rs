use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use opentelemetry_proto::tonic::collector::profiles::v1development::{
    ExportProfilesPartialSuccess, ExportProfilesServiceResponse,
};
use profbridge_engine::delivery::Stop;
use profbridge_model::Reason;
use profbridge_testkit::exporter_context;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::time::Instant;
use tonic::{Code, Status};
use tonic_types::{ErrorDetails, StatusExt as _};

use super::peer::collector;
use super::*;
use crate::{FACTORY, OTLP_HTTP};

/// Guarantees: with the engine's queue, a request that a busy peer postpones arrives once, rejected items are counted
/// under their reason, and every observation is accounted for.
#[tokio::test]
async fn a_busy_peer_gets_it_later() {
    let calls = AtomicUsize::new(0);
    let mut peer = collector(None, move || match calls.fetch_add(1, Ordering::Relaxed) {
        0 => Err(Status::unavailable("starting")),
        1 => {
            let details = ErrorDetails::with_retry_info(Some(Duration::from_millis(2)));
            Err(Status::with_error_details(Code::ResourceExhausted, "busy", details))
        }
        _ => {
            let partial = ExportProfilesPartialSuccess { rejected_profiles: 1, error_message: "one is odd".into() };
            Ok(ExportProfilesServiceResponse { partial_success: Some(partial) })
        }
    })
    .await;
    let yaml = format!(
        "{{endpoint: '{}', tls: {{insecure: true}}, retry_on_failure: {{initial_interval: 1ms, max_interval: 2ms}}}}",
        peer.address
    );
    let context = exporter_context("otlp");
    let telemetry = context.telemetry.clone();
    let exporter = (FACTORY.create)(&Section::from_yaml(&yaml).unwrap()).unwrap();
    let running = exporter.start(context).await.unwrap();
    running.sink().accept(&batch(&[4, 6]).into(), ManualClock::default().now());
    for _ in 0..3 {
        peer.seen.recv().await.unwrap();
    }
    let deadline = Instant::now() + Duration::from_secs(120);
    running.stop(Stop { deadline, close_by: deadline }).await;
    assert!(peer.seen.try_recv().is_err());
    assert_eq!((telemetry.totals().retries, telemetry.totals().requests), (2, 1));
    let totals = telemetry.edge().totals();
    assert_eq!((totals.inbound.total(), totals.outbound.total()), (10, 5));
    assert_eq!((totals.dropped.get(Reason::RejectedByPeer).total(), totals.dropped.total().total()), (5, 5));
    assert!(totals.unaccounted.is_none());
}

/// Guarantees: a request whose answer starts with 200 and then stalls was accepted: it is sent once, and counts as
/// sent.
#[tokio::test]
async fn an_answer_that_trickles_is_an_answer() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let requests = Arc::new(AtomicUsize::new(0));
    let seen = Arc::clone(&requests);
    let peer = tokio::spawn(async move {
        let mut open = Vec::new();
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut request = vec![0; 64 << 10];
            let length = stream.read(&mut request).await.unwrap();
            assert!(request[..length].starts_with(b"POST "));
            seen.fetch_add(1, Ordering::Relaxed);
            let head = b"HTTP/1.1 200 OK\r\ncontent-type: application/x-protobuf\r\ncontent-length: 10\r\n\r\n\n";
            stream.write_all(head).await.unwrap();
            open.push(stream);
        }
    });
    let retry = "retry_on_failure: {initial_interval: 1ms, max_interval: 2ms, max_elapsed_time: 10s}";
    let yaml = format!("{{endpoint: 'http://{address}', timeout: 2s, {retry}}}");
    let context = exporter_context("otlp_http");
    let telemetry = context.telemetry.clone();
    let exporter = (OTLP_HTTP.create)(&Section::from_yaml(&yaml).unwrap()).unwrap();
    let running = exporter.start(context).await.unwrap();
    running.sink().accept(&batch(&[4]).into(), ManualClock::default().now());
    let deadline = Instant::now() + Duration::from_secs(60);
    running.stop(Stop { deadline, close_by: deadline }).await;
    peer.abort();
    assert_eq!(requests.load(Ordering::Relaxed), 1);
    assert_eq!((telemetry.totals().retries, telemetry.totals().requests), (0, 1));
    let totals = telemetry.edge().totals();
    assert_eq!((totals.inbound.total(), totals.outbound.total(), totals.dropped.total().total()), (4, 4, 0));
    assert_eq!(totals.notes, [("otlp_answers_unreadable", 1)]);
}
