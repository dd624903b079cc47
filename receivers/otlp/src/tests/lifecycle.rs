//! Start and shutdown.

use profbridge_engine::registry::ReceiverFactory;

use super::*;
use crate::FACTORY;

/// Guarantees: a shutdown frees both ports at once, lets a running request finish with its answer, and completes.
#[tokio::test]
async fn a_shutdown_drains() {
    let mut rig = OtlpRig::start(LOOPBACK).await;
    let mut client = rig.client();
    let under_way = tokio::spawn(async move { client.export(small()).await });
    // The request waits for the pipelines and occupies its memory.
    until(|| rig.consumer.memory_used() > 0).await;
    rig.trigger.trigger();
    for address in [rig.grpc(), rig.http()] {
        patiently(async {
            while tokio::net::TcpListener::bind(address).await.is_err() {
                tokio::task::yield_now().await;
            }
        })
        .await;
    }
    assert!(!rig.stopped.is_finished());
    assert_eq!(profiles(rig.consumer.take().await).observations(), 3);
    assert!(under_way.await.unwrap().is_ok());
    patiently(&mut rig.stopped).await.unwrap();
}

/// Guarantees: if the pipelines stop first, a request is refused with permission to retry.
#[tokio::test]
async fn stopped_pipelines_mean_later() {
    let mut rig = OtlpRig::start(LOOPBACK).await;
    rig.consumer.close();
    let status = rig.client().export(small()).await.unwrap_err();
    assert_eq!(status.code(), tonic::Code::Unavailable);
    assert!(tonic_types::StatusExt::get_details_retry_info(&status).is_some());
}

/// Guarantees: if a port is in use, the start fails with the key, the endpoint and advice, and the other port is not
/// occupied.
#[tokio::test]
async fn a_port_in_use_fails_the_start() {
    let taken = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut settings = settings(LOOPBACK);
    settings.http.as_mut().unwrap().endpoint = taken.local_addr().unwrap().to_string();
    let error = OtlpRig::start_with(settings, PLENTY).await.err().unwrap().to_string();
    assert!(error.starts_with("protocols.http.endpoint: cannot listen on 127.0.0.1:"), "{error}");
    assert!(error.contains("stop the process that listens there"), "{error}");
}

/// Guarantees: the factory has the type `otlp` and checks a configuration section without I/O.
#[tokio::test]
async fn the_factory_checks() {
    let ReceiverFactory { description, create } = FACTORY;
    assert_eq!((description.kind, description.emits), ("otlp", &[TelemetryKind::Profiles, TelemetryKind::Spans][..]));
    assert!(create(&Section::defaults()).is_ok());
    let missing = "{protocols: {grpc: {tls: {cert_file: /missing.pem, key_file: /missing.key}}}}";
    assert!(create(&Section::from_yaml(missing).unwrap()).is_ok());
    assert!(create(&Section::from_yaml("{protocol: {}}").unwrap()).is_err());
}
