//! Earlier layouts of OTLP profiles, in their producers' encoding.

use profbridge_model::content_hash::content_hashes;
use profbridge_testkit::releases::{Release::*, Way, plain};
use tonic::Code;

use super::grpc_raw::{call, framed, outcome};
use super::*;
use crate::{grpc, http as over_http, version};

/// The number of observations and the content hashes of a request, as the receiver decodes it.
async fn decoded_data(rig: &mut OtlpRig, path: &str, bytes: &[u8]) -> (u64, Vec<[u8; 16]>) {
    let request = post_to(path, PROTOBUF, None, bytes.to_vec());
    let (answer, taken) = tokio::join!(http1(rig.http(), request), rig.consumer.take());
    assert_eq!(response(&answer), ExportProfilesServiceResponse::default());
    let profiles = profiles(taken);
    (profiles.observations(), content_hashes(&profiles))
}

/// Guarantees: the same data arrives equally in every layout, and the metric names the layout.
/// rule: otlp#layouts
#[tokio::test]
async fn every_layout_is_taken() {
    let mut rig = OtlpRig::start(LOOPBACK).await;
    let request = plain(small());
    let expected = decoded_data(&mut rig, over_http::PATH, &request.encode_to_vec()).await;
    assert_eq!(expected.0, 3);
    let v1_3 = V1_3.write(&request);
    for (layout, path, bytes) in [
        ("1.9", over_http::PATH, V1_9.write(&request)),
        ("1.8", over_http::PATH, V1_8.write(&request)),
        ("1.7", over_http::PATH, V1_7.write(&request)),
        ("1.6", over_http::PATH, V1_6.write(&request)),
        ("1.4 or 1.5", over_http::PATH, V1_5.write(&request)),
        ("1.3 (v1experimental)", over_http::PATH, v1_3.clone()),
        ("1.3 (v1experimental)", over_http::EXPERIMENTAL, v1_3),
    ] {
        assert_eq!(decoded_data(&mut rig, path, &bytes).await, expected, "{layout} on {path}");
    }
    let scope = &request.resource_profiles[0].scope_profiles[0].scope.clone().unwrap_or_default();
    for (layout, count) in [("1.10", 1), ("1.9", 1), ("1.7", 1), ("1.3 (v1experimental)", 2)] {
        let labels = format!("layout=\"{layout}\",producer=\"{}\",version=\"{}\"", scope.name, scope.version);
        let line = format!("profbridge_receiver_producer_requests_total{{receiver=\"otlp\",{labels}}} {count}");
        assert!(rig.metrics.encode().lines().any(|known| known == line), "{line}");
    }
}

/// Guarantees: the gRPC service of opentelemetry-proto 1.3 is served, and its requests are always decoded as 1.3.
/// rule: otlp#layouts
#[tokio::test]
async fn the_experimental_service_is_served() {
    let mut rig = OtlpRig::start(LOOPBACK).await;
    let request = plain(small());
    let bytes = V1_3.write_as(&request, Way { one_by_one: true, no_totals: true, ..Way::BARE });
    let message = whole(framed(0, bytes.len(), &bytes));
    let answer = outcome(rig.grpc(), call(grpc::EXPERIMENTAL, "application/grpc", None, message));
    let ((_, status), taken) = tokio::join!(answer, rig.consumer.take());
    assert_eq!(status.code(), Code::Ok, "{status}");
    assert_eq!(profiles(taken).observations(), 3);
    let bytes = request.encode_to_vec();
    let message = whole(framed(0, bytes.len(), &bytes));
    let (_, status) = outcome(rig.grpc(), call(grpc::EXPERIMENTAL, "application/grpc", None, message)).await;
    assert_eq!(status.code(), Code::InvalidArgument, "{status}");
}

/// Guarantees: the version in the metadata is respected: 1 means the current layout without detection; every other
/// value is refused, over gRPC and HTTP.
/// rule: otlp-profiles#development-version, otlp#development-version
#[tokio::test]
async fn the_announced_version_is_honoured() {
    let mut rig = OtlpRig::start(LOOPBACK).await;
    let current = small().encode_to_vec();
    let older = V1_9.write(&small());
    for (value, bytes, taken) in
        [("1", &current, true), ("1", &older, false), ("2", &current, false), ("x", &current, false)]
    {
        let mut request = post(None, bytes.clone());
        request.headers_mut().insert(version::HEADER, value.parse().unwrap());
        let mut grpc = call(grpc::PATH, "application/grpc", None, whole(framed(0, bytes.len(), bytes)));
        grpc.headers_mut().insert(version::HEADER, value.parse().unwrap());
        if taken {
            let (answer, profiles) = tokio::join!(http1(rig.http(), request), rig.consumer.take());
            assert_eq!((answer.status, profiles.is_some()), (200, true));
            let ((_, status), profiles) = tokio::join!(outcome(rig.grpc(), grpc), rig.consumer.take());
            assert_eq!((status.code(), profiles.is_some()), (Code::Ok, true));
        } else {
            assert_eq!(http1(rig.http(), request).await.status, 400, "{value}");
            assert_eq!(outcome(rig.grpc(), grpc).await.1.code(), Code::InvalidArgument, "{value}");
        }
    }
}
