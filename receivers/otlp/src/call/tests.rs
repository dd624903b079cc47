use std::future::Future as _;
use std::task::{Context, Poll, Waker};

use profbridge_engine::budget::Budget;
use profbridge_engine::telemetry::Metrics;
use profbridge_testkit::{RequestBuilder, intake, ms};
use prost::Message as _;

use super::*;
use crate::config::ResourceSettings;
use crate::host::ThisHost;

const PROFILES: RequestContent = RequestContent::Profiles(None);

const PEER: &str = "[::ffff:10.0.0.7]:4711";

fn handler(intake: &Intake, slots: usize) -> ExportHandler {
    let telemetry = Metrics::new(Budget::new(1)).receiver("otlp").transport("grpc");
    let slots = Arc::new(Semaphore::new(slots));
    let clock = crate::tests::clock();
    ExportHandler { intake: intake.clone(), telemetry, max_bytes: 64 << 20, slots, origin: origin(), clock }
}

/// An origin that adds no attributes.
fn origin() -> Arc<HostAttribution> {
    let settings = ResourceSettings { local_host: false, insert: Vec::new() };
    Arc::new(HostAttribution::new("otlp".to_owned(), settings, ThisHost::default()))
}

fn job(intake: &Intake, permit: Permit) -> DecodeJob {
    let (intake, origin) = (intake.clone(), origin());
    DecodeJob {
        intake,
        max_bytes: 64 << 20,
        content: PROFILES,
        form: RequestEncoding::Protobuf,
        permit,
        origin,
        sender: sender(peer()),
        arrival: crate::tests::ARRIVAL,
    }
}

fn received(intake: &Intake, bytes: Vec<u8>) -> ReceivedBody {
    ReceivedBody { permit: intake.admit(bytes.len() as u64).unwrap(), bytes: bytes.into() }
}

fn peer() -> Peer {
    Peer { addr: PEER.parse().unwrap(), own: None, tls: false }
}

/// A request whose profile contains this many bytes of payload.
fn heavy(bytes: usize) -> Vec<u8> {
    let builder =
        RequestBuilder::new().process("checkout", 42).on_cpu(20).sample(&["leaf"], 7, &ms([0])).thread_name("main");
    builder.with_profile(|profile| profile.original_payload = vec![0; bytes]).encode()
}

/// A request with one profile, given by its encoded fields.
fn profile(fields: &[u8]) -> Vec<u8> {
    fn nested(field: u8, inner: &[u8]) -> Vec<u8> {
        let mut length = inner.len();
        let mut out = vec![field << 3 | 2];
        while length >= 0x80 {
            out.push(length as u8 | 0x80);
            length >>= 7;
        }
        out.push(length as u8);
        out.extend_from_slice(inner);
        out
    }
    let dictionary = [nested(4, b""), nested(5, b""), nested(7, b""), nested(7, b"")].concat();
    [nested(1, &nested(2, &nested(2, fields))), nested(2, &dictionary)].concat()
}

/// Guarantees: large and compressed requests are decoded on other threads, at most one per slot at a time, while small
/// ones overtake them.
/// rule: otlp#concurrent-requests
#[tokio::test]
async fn large_requests_wait_for_a_slot() {
    let (intake, mut consumer) = intake(1 << 30);
    let handler = handler(&intake, 0);
    let small = received(&intake, heavy(0));
    let (taken, _) = tokio::join!(
        handler.call(small, Coding::Identity, PROFILES, RequestEncoding::Protobuf, peer()),
        consumer.take()
    );
    assert_eq!(taken.unwrap().items.samples, 1);

    let large = received(&intake, heavy(SMALL));
    let mut call = std::pin::pin!(handler.call(large, Coding::Identity, PROFILES, RequestEncoding::Protobuf, peer()));
    let mut context = Context::from_waker(Waker::noop());
    assert!(matches!(call.as_mut().poll(&mut context), Poll::Pending));
    // The small request is accepted although the large one still waits for its slot.
    let small = received(&intake, heavy(0));
    let (taken, _) = tokio::join!(
        handler.call(small, Coding::Identity, PROFILES, RequestEncoding::Protobuf, peer()),
        consumer.take()
    );
    assert_eq!(taken.unwrap().items.samples, 1);
    assert!(matches!(call.as_mut().poll(&mut context), Poll::Pending));
    handler.slots.add_permits(1);
    let (taken, _) = tokio::join!(call, consumer.take());
    assert_eq!(taken.unwrap().items.samples, 1);
    assert_eq!((handler.slots.available_permits(), consumer.memory_used()), (1, 0));
}

/// Guarantees: a request that decodes to several times its size is accepted, and the permit covers its memory, and the
/// memory for encoding it again.
#[test]
fn dense_requests_get_their_memory() {
    let (intake, consumer) = intake(1 << 30);
    // stack_index 1 and one value: 7 bytes that decode to 28.
    let bytes = profile(&[0x12, 5, 0x08, 1, 0x22, 1, 1].repeat(400_000));
    let wire = bytes.len() as u64;
    let ReceivedBody { bytes, permit } = received(&intake, bytes);
    let job = job(&intake, permit);
    let (decoded, permit) = job.run(bytes, Coding::Identity).unwrap();
    let DecodedBody::Profiles(decoded) = decoded else { panic!("no profiles") };
    assert_eq!(decoded.profiles.observations(), 400_000);
    assert_eq!(permit.bytes(), 2 * wire + decoded.memory() as u64);
    assert!(permit.bytes() > 4 * wire, "{} for {wire}", permit.bytes());
    drop(permit);
    assert_eq!(consumer.memory_used(), 0);
}

/// Guarantees: samples of two bytes, each of which would decode to 28 bytes, are refused before memory is allocated for
/// them: as too large, not as retryable.
#[test]
fn amplification_is_refused() {
    let (intake, consumer) = intake(1 << 30);
    let ReceivedBody { bytes, permit } = received(&intake, profile(&[0x12, 0].repeat(1_000_000)));
    let job = job(&intake, permit);
    let fault = job.run(bytes, Coding::Identity).err().unwrap();
    assert_eq!((fault.kind, fault.refused), (FaultKind::TooLarge, None), "{fault:?}");
    assert_eq!(consumer.memory_used(), 0);
}

/// Guarantees: for spans in protobuf, the compressed request is kept beside the decompressed one, and the permit covers
/// both; for changed spans, spans in JSON and profiles it is not kept.
#[test]
fn compressed_spans_stay_compressed() {
    let request = profbridge_testkit::workload::traces::request(10, 7).encode_to_vec();
    let packed = zstd::encode_all(&request[..], 1).unwrap();
    let (intake, consumer) = intake(1 << 30);
    let run = |insert: &[(&str, &str)]| {
        let ReceivedBody { bytes, permit } = received(&intake, packed.clone());
        let insert = insert.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        let settings = ResourceSettings { local_host: false, insert };
        let origin = Arc::new(HostAttribution::new("otlp".to_owned(), settings, ThisHost::default()));
        let (decoded, permit) = DecodeJob { content: RequestContent::Traces, origin, ..job(&intake, permit) }
            .run(bytes, Coding::Zstd)
            .unwrap();
        let DecodedBody::Traces(decoded) = decoded else { panic!("no spans") };
        assert!(permit.bytes() >= (request.len() + packed.len()) as u64 + decoded.spans.size_bytes());
        decoded.spans
    };
    assert_eq!(run(&[]).received_packed("zstd").unwrap(), &packed[..]);
    assert!(run(&[("deployment.region", "eu-central")]).received_packed("zstd").is_none());
    for (content, form) in [(RequestContent::Traces, RequestEncoding::Json), (PROFILES, RequestEncoding::Protobuf)] {
        let ReceivedBody { bytes, permit } = received(&intake, packed.clone());
        let mut job = DecodeJob { content, form, ..job(&intake, permit) };
        assert!(job.unpack(bytes, Coding::Zstd).unwrap().1.is_none());
    }
    assert_eq!(consumer.memory_used(), 0);
}

/// Guarantees: the permit covers the decompressed request, and no longer the compressed one.
#[test]
fn unpacked_requests_are_counted() {
    let (intake, _consumer) = intake(1 << 30);
    let plain = heavy(1 << 20);
    let packed = zstd::encode_all(&plain[..], 1).unwrap();
    let ReceivedBody { bytes, permit } = received(&intake, packed);
    let mut job = job(&intake, permit);
    let (request, packed) = job.unpack(bytes, Coding::Zstd).unwrap();
    assert_eq!((request, packed), (plain.clone().into(), None));
    let counted = job.permit.bytes() as usize;
    assert!((plain.len()..=2 * plain.len()).contains(&counted), "{counted} for {}", plain.len());
}
