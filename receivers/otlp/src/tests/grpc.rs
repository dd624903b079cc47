//! gRPC with the generated client.

use tonic::Code;
use tonic::codec::CompressionEncoding;
use tonic_types::StatusExt as _;

use super::*;

/// Guarantees: a request of the generated client arrives completely, uncompressed and compressed, full success leaves
/// `partial_success` unset, and the sender is the peer's address without its port.
/// rule: otlp#grpc-service, otlp#success
#[tokio::test]
async fn exports() {
    let mut rig = OtlpRig::start(LOOPBACK).await;
    let client = rig.client();
    let clients = [
        client.clone(),
        client.clone().send_compressed(CompressionEncoding::Gzip),
        client.send_compressed(CompressionEncoding::Zstd),
    ];
    for client in clients {
        let (response, profiles) = rig.export(client, small()).await;
        assert_eq!(response, ExportProfilesServiceResponse::default());
        assert_eq!((profiles.observations(), profiles.columns().len()), (3, 2));
        assert_eq!(profiles.peer.as_deref(), Some("127.0.0.1"));
        assert_eq!(profiles.received.unwrap(), small().encode_to_vec());
    }
    assert_eq!((rig.samples("accepted", "grpc"), rig.requests("success", "grpc")), (6, 3));
    assert_eq!((rig.requests("failure", "grpc"), rig.requests("refused", "grpc")), (0, 0));
    assert_eq!((rig.consumer.totals().inbound.total(), rig.consumer.memory_used()), (9, 0));
}

/// Guarantees: an empty request succeeds over both protocols and reaches no pipeline (opentelemetry-proto
/// docs/specification.md, "Full Success").
/// rule: otlp#empty-request
#[tokio::test]
async fn an_empty_request_succeeds() {
    let rig = OtlpRig::start(LOOPBACK).await;
    for request in [ExportProfilesServiceRequest::default(), RequestBuilder::new().process("checkout", 1).build()] {
        let response = rig.client().export(request).await.unwrap().into_inner();
        assert_eq!(response, ExportProfilesServiceResponse::default());
    }
    assert_eq!((rig.requests("success", "grpc"), rig.samples("accepted", "grpc")), (2, 0));
    assert_eq!(response(&http1(rig.http(), post(None, "")).await), ExportProfilesServiceResponse::default());
}

/// Guarantees: a message of 40 MB is accepted under the default limits, and its memory is released.
/// rule: otlp#size
#[tokio::test]
async fn forty_megabytes_pass() {
    let mut rig = OtlpRig::start(LOOPBACK).await;
    let (_, profiles) = rig.export(rig.client(), heavy(40_000_000)).await;
    let profile = profiles.profiles().next().unwrap();
    assert_eq!(profiles.dictionary().bytes(profile.original_payload).len(), 40_000_000);
    assert_eq!(rig.consumer.memory_used(), 0);
}

/// Guarantees: a message larger than the limit is RESOURCE_EXHAUSTED without RetryInfo, whether it exceeds the limit
/// compressed or after decompression; a message of exactly the limit is accepted.
/// rule: otlp#size-grpc
#[tokio::test]
async fn too_large_is_resource_exhausted() {
    let mut rig = OtlpRig::start(SMALL).await;
    let over = heavy(SMALL_LIMIT);
    // Random data, so that the message exceeds the limit even when compressed.
    let mut noise = heavy(0);
    let mut state = 1_u64;
    let random = std::iter::repeat_with(|| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    });
    noise.resource_profiles[0].scope_profiles[0].profiles[0].original_payload = random.take(2 * SMALL_LIMIT).collect();
    for (request, encoding) in [
        (over.clone(), None),
        (over.clone(), Some(CompressionEncoding::Gzip)),
        (over.clone(), Some(CompressionEncoding::Zstd)),
        (noise.clone(), Some(CompressionEncoding::Gzip)),
        (noise, None),
    ] {
        let mut client = rig.client();
        if let Some(encoding) = encoding {
            client = client.send_compressed(encoding);
        }
        let status = client.export(request).await.unwrap_err();
        assert_eq!(status.code(), Code::ResourceExhausted, "{encoding:?}: {status}");
        assert!(status.message().contains("1048576"), "{status}");
        assert!(status.get_details_retry_info().is_none());
    }
    assert_eq!((rig.requests("failure", "grpc"), rig.consumer.memory_used()), (5, 0));

    let slack = SMALL_LIMIT - heavy(SMALL_LIMIT / 2).encoded_len();
    let exact = heavy(SMALL_LIMIT / 2 + slack);
    assert_eq!(exact.encoded_len(), SMALL_LIMIT);
    rig.export(rig.client(), exact).await;
}

/// Guarantees: if some profiles break a rule, the answer is a partial success with the number of rejected profiles and
/// the place; the other profiles arrive, and the lost samples and observations are counted.
/// rule: otlp#partial-success
#[tokio::test]
async fn some_profiles_refused_is_partial_success() {
    let mut rig = OtlpRig::start(LOOPBACK).await;
    let (response, profiles) = rig.export(rig.client(), half_bad()).await;
    let partial = response.partial_success.unwrap();
    assert_eq!(partial.rejected_profiles, 1);
    let place = "resource_profiles[0].scope_profiles[0].profiles[1]";
    assert!(partial.error_message.starts_with(place), "{}", partial.error_message);
    assert_eq!((profiles.profiles().count(), profiles.observations()), (1, 3));
    assert_eq!((rig.samples("accepted", "grpc"), rig.samples("failed", "grpc")), (2, 1));
    assert_eq!((rig.requests("success", "grpc"), rig.requests("failure", "grpc")), (1, 0));
    let totals = rig.consumer.totals();
    assert_eq!((totals.inbound.total(), totals.outbound.total()), (5, 3));
    assert_eq!(totals.dropped.get(profbridge_model::Reason::Malformed).total(), 2);
}

/// Guarantees: a request without any acceptable profile is INVALID_ARGUMENT with the place in its details.
/// rule: otlp#bad-data-grpc
#[tokio::test]
async fn all_profiles_refused_is_invalid_argument() {
    let rig = OtlpRig::start(LOOPBACK).await;
    let mut request = half_bad();
    request.resource_profiles[0].scope_profiles[0].profiles.remove(0);
    let status = rig.client().export(request).await.unwrap_err();
    assert_eq!(status.code(), Code::InvalidArgument, "{status}");
    let violations = status.get_details_bad_request().unwrap().field_violations;
    assert!(violations[0].field.starts_with("resource_profiles[0].scope_profiles[0].profiles[0]"), "{violations:?}");
    assert!(violations[0].description.contains("999"), "{violations:?}");
    assert_eq!((rig.samples("failed", "grpc"), rig.requests("failure", "grpc")), (1, 1));
}

/// Guarantees: a receiver that serves one protocol does not listen for the other.
#[tokio::test]
async fn a_protocol_can_be_alone() {
    let rig = OtlpRig::start("{protocols: {grpc: {endpoint: '127.0.0.1:0'}}}").await;
    assert_eq!(rig.addresses[..], [("grpc", rig.grpc())]);
    let rig = OtlpRig::start("{protocols: {http: {endpoint: '127.0.0.1:0'}}}").await;
    assert_eq!(rig.addresses[..], [("http", rig.http())]);
}
