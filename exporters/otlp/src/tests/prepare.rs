use std::collections::BTreeMap;
use std::collections::BTreeSet;

use bytes::Bytes;
use opentelemetry_proto::tonic::collector::profiles::v1development::ExportProfilesServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value as AnyValue;
use profbridge_engine::testing;
use profbridge_model::{Envelope, Item, Profile, Quantities, Reason};
use profbridge_net::compression::{Coding, decompress};
use proptest::prelude::*;
use prost::Message as _;

use super::*;

/// The message of a request, uncompressed.
fn message(request: &Request<Meta>) -> Vec<u8> {
    let coding = Coding::parse(request.meta.compression.content_encoding()).unwrap();
    decompress(coding, request.body.clone(), 1 << 30).unwrap().to_vec()
}

fn decoded(request: &Request<Meta>) -> ExportProfilesServiceRequest {
    ExportProfilesServiceRequest::decode(&*message(request)).unwrap()
}

/// What is said in requests, however it is cut: each observation with all that is known of it, and how often.
fn said(requests: &[ExportProfilesServiceRequest]) -> BTreeMap<String, u64> {
    let mut said = BTreeMap::new();
    for request in requests {
        let dictionary = request.dictionary.clone().unwrap_or_default();
        let string = |index: i32| dictionary.string_table[index as usize].as_str();
        for resource in &request.resource_profiles {
            let about = format!("{:?}", resource.resource.as_ref().map(|resource| &resource.attributes));
            for profile in resource.scope_profiles.iter().flat_map(|scope| &scope.profiles) {
                let about = format!("{about} {:?} {}", profile.profile_id, profile.time_unix_nano);
                for sample in &profile.samples {
                    let stack = &dictionary.stack_table[sample.stack_index as usize];
                    let functions: Vec<_> = stack
                        .location_indices
                        .iter()
                        .flat_map(|&location| &dictionary.location_table[location as usize].lines)
                        .map(|line| string(dictionary.function_table[line.function_index as usize].name_strindex))
                        .collect();
                    let mut tell = |time: Option<u64>, value: Option<i64>| {
                        *said.entry(format!("{about} {functions:?} {time:?} {value:?}")).or_default() += 1;
                    };
                    if sample.timestamps_unix_nano.is_empty() {
                        tell(None, sample.values.first().copied());
                    }
                    for (position, &time) in sample.timestamps_unix_nano.iter().enumerate() {
                        tell(Some(time), sample.values.get(position).copied());
                    }
                }
            }
        }
    }
    said
}

/// Guarantees: `in = requests + losses` for any telemetry, whatever the compression, and no request is empty.
#[test]
fn conserves() {
    for compression in ["none", "gzip", "zstd"] {
        for limit in ["1KiB", "64MiB"] {
            let yaml = format!("{{endpoint: 'c:1', compression: {compression}, max_request_bytes: {limit}}}");
            let exporter = exporter(Protocol::Grpc, &yaml);
            testing::check_prepare(&exporter, 5, |random, now| testing::telemetry(random, 80, now));
        }
    }
}

/// Guarantees: what nobody changed leaves as the bytes it came as, and what is not known of it too.
#[test]
fn unchanged_batches_are_forwarded() {
    let options = EncodeOptions { fill_profile_id: true, ..EncodeOptions::default() };
    let mut message = otlp::encode(&batch(&[3, 4]), &options);
    message.extend([0x7a, 1, 1]);
    let profiles = otlp::decode(message.into(), &Limits::default()).unwrap().profiles;
    let exporter = exporter(Protocol::Grpc, "{endpoint: 'c:1', compression: none}");
    let prepared = exporter.prepare(&profiles.clone().into(), ManualClock::default().now());
    assert_eq!(prepared.requests.len(), 1);
    assert_eq!(prepared.requests[0].body, profiles.received.unwrap());
    assert_eq!(prepared.requests[0].meta.profiles, 2);
    assert_eq!(prepared.notes, [("otlp_batches_forwarded_unchanged", 1)]);
}

/// Guarantees: attributes that refer to the string table leave as what they refer to, whole or in parts, since a peer
/// that does not know references would read empty keys; a peer that is said to know them gets the bytes as they came.
#[test]
fn references_are_resolved() {
    let options = EncodeOptions { fill_profile_id: true, references: true, ..EncodeOptions::default() };
    // Through an arena, after which the strings of attributes stand in the string table.
    let whole = otlp::split(&batch(&[200, 200]), 4096, &EncodeOptions::default()).next().unwrap();
    let profiles = received(&whole, &options);
    let service = |message: &ExportProfilesServiceRequest| {
        let attribute = message.resource_profiles[0].resource.as_ref().unwrap().attributes[0].clone();
        (attribute.key, attribute.key_strindex != 0, attribute.value.and_then(|value| value.value))
    };
    let inline = AnyValue::StringValue("checkout".to_owned());
    let resolved = ("service.name".to_owned(), false, Some(inline));
    for yaml in
        ["{endpoint: 'c:1'}", "{endpoint: 'c:1', max_request_bytes: 1KiB}", "{endpoint: 'c:1', compression: none}"]
    {
        let requests = requests(&exporter(Protocol::Grpc, yaml), &profiles.clone().into());
        assert_eq!(requests.iter().map(|request| request.quantities.total()).sum::<u64>(), profiles.observations());
        for request in requests {
            assert_eq!(service(&decoded(&request)), resolved);
        }
    }
    let keep = "{endpoint: 'c:1', compression: none, attribute_references: keep}";
    let kept = requests(&exporter(Protocol::Grpc, keep), &profiles.clone().into());
    assert_eq!(kept[0].body, profiles.received.unwrap());
    let (key, by_reference, value) = service(&decoded(&kept[0]));
    assert!(key.is_empty() && by_reference && matches!(value, Some(AnyValue::StringValueStrindex(_))));
}

/// Guarantees: what holds no profile is not sent: neither a batch of resources alone nor an envelope without views,
/// which is counted as lost, in items.
#[test]
fn nothing_is_sent_for_nothing() {
    let mut builder = Builder::new();
    builder.resource(&[("service.name", "shop".into())]);
    builder.scope("test", "1");
    let empty = builder.finish().unwrap();
    let exporter = exporter(Protocol::Grpc, "endpoint: c:1");
    let view = Envelope { profiles: vec![empty.clone()], ..Envelope::default() };
    for telemetry in [Telemetry::from(empty), view.into()] {
        let prepared = exporter.prepare(&telemetry, ManualClock::default().now());
        assert!(prepared.requests.is_empty() && prepared.losses.is_none());
    }
    let item = Item { header: Bytes::from_static(b"{\"type\":\"event\"}"), payload: Bytes::new() };
    let envelope = Envelope { items: vec![item; 2], ..Envelope::default() };
    let prepared = exporter.prepare(&envelope.into(), ManualClock::default().now());
    assert_eq!((prepared.requests.len(), prepared.losses.get(Reason::Unroutable)), (0, Quantities::items(2)));
}

/// Guarantees: a profile without an id gets the hash of its content, in each of its parts the same; one that has an id
/// keeps it; and where that is switched off, the batch leaves as it came.
#[test]
fn ids_are_filled() {
    let without = received(&batch(&[2000]), &EncodeOptions::default());
    let ids = |yaml: &str| -> BTreeSet<Vec<u8>> {
        requests(&exporter(Protocol::Grpc, yaml), &without.clone().into())
            .iter()
            .flat_map(|request| decoded(request).resource_profiles)
            .flat_map(|resource| resource.scope_profiles)
            .flat_map(|scope| scope.profiles)
            .map(|profile| profile.profile_id)
            .collect()
    };
    let whole = ids("endpoint: c:1");
    assert_eq!(whole.len(), 1);
    assert_eq!(whole.first().unwrap().len(), 16);
    assert_eq!(ids("{endpoint: 'c:1', max_request_bytes: 1KiB}"), whole);
    assert_eq!(ids("{endpoint: 'c:1', fill_profile_id: false}"), [Vec::new()].into());

    let with = received(&without, &EncodeOptions { fill_profile_id: true, ..EncodeOptions::default() });
    let kept = with.profiles().map(|profile| profile.profile_id.unwrap().to_vec()).collect::<BTreeSet<_>>();
    assert_eq!(kept, whole);
}

/// Guarantees: a payload goes out where it is asked for and nobody changed the profile, and never otherwise; one in
/// pprof's format, or without a format, never does, neither with the bytes that came nor encoded anew.
#[test]
fn payloads() {
    let made = |format: &str| {
        let mut builder = Builder::new();
        builder.resource(&[]);
        builder.scope("test", "1");
        let original_payload = builder.bytes(b"recording");
        let original_payload_format = builder.string(format);
        builder.profile(Profile { original_payload, original_payload_format, ..Profile::default() });
        let stack = builder.frame("parse", "main.rs", 7);
        let stack = builder.stack(&[stack]);
        builder.sample(stack, None, None, &[1, 2], &[]);
        builder.finish().unwrap()
    };
    let payload = |profiles: &Profiles, yaml: &str| {
        let requests = requests(&exporter(Protocol::Grpc, yaml), &profiles.clone().into());
        decoded(&requests[0]).resource_profiles[0].scope_profiles[0].profiles[0].original_payload.clone()
    };
    let asked = "{endpoint: 'c:1', original_payload: true}";
    let unchanged = "{endpoint: 'c:1', original_payload: true, fill_profile_id: false}";
    // The bytes that come hold the payload, whatever its format: nobody but the sender decides what comes.
    let came = |format: &str| {
        let request = ExportProfilesServiceRequest::decode(&*otlp::encode(&made(""), &EncodeOptions::default()));
        let mut request = request.unwrap();
        let profile = &mut request.resource_profiles[0].scope_profiles[0].profiles[0];
        (profile.original_payload, profile.original_payload_format) = (b"recording".to_vec(), format.to_owned());
        otlp::decode(request.encode_to_vec().into(), &Limits::default()).unwrap().profiles
    };
    assert_eq!(payload(&came("jfr"), "endpoint: c:1"), b"");
    assert_eq!(payload(&came("jfr"), "{endpoint: 'c:1', fill_profile_id: false}"), b"");
    assert_eq!(payload(&made("jfr"), asked), b"", "not what came");
    for yaml in [asked, unchanged] {
        assert_eq!(payload(&came("jfr"), yaml), b"recording");
        for format in ["pprof", "PPROF", "application/x-pprof", ""] {
            assert_eq!(payload(&came(format), yaml), b"", "{format:?}");
        }
    }
}

/// Guarantees: an envelope leaves as the profiles that were understood of it, one without any as nothing, and a batch
/// without profiles makes no empty request.
#[test]
fn views() {
    let exporter = exporter(Protocol::Grpc, "endpoint: c:1");
    let envelope = Envelope { profiles: vec![batch(&[2]), batch(&[3])], ..Envelope::default() };
    let observations: Vec<_> = requests(&exporter, &envelope.into()).iter().map(|r| r.quantities).collect();
    assert_eq!(observations, [2, 3].map(Quantities::observations));
    assert!(requests(&exporter, &Envelope::default().into()).is_empty());
    assert!(requests(&exporter, &Builder::new().finish().unwrap().into()).is_empty());
}

/// Guarantees: what cannot be cut below the limit is counted, and the rest leaves.
#[test]
fn too_large() {
    let mut builder = Builder::new();
    builder.resource(&[]);
    builder.scope("test", "1");
    builder.on_cpu(20);
    for name in ["short", &"x".repeat(4000)] {
        let frame = builder.frame(name, "main.rs", 7);
        let stack = builder.stack(&[frame]);
        builder.sample(stack, None, None, &[1], &[]);
    }
    let exporter = exporter(Protocol::Grpc, "{endpoint: 'c:1', max_request_bytes: 1KiB}");
    let prepared = exporter.prepare(&builder.finish().unwrap().into(), ManualClock::default().now());
    assert_eq!(prepared.requests.iter().map(|request| request.quantities.total()).sum::<u64>(), 1);
    assert_eq!(prepared.losses.get(Reason::TooLarge).total(), 1);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    /// Guarantees: whatever the limit, each request stays below it, and together they say what the batch said.
    #[test]
    fn splits_say_the_same(seed: u64, samples in 1_usize..200, limit in 1024_usize..20_000) {
        let now = ManualClock::default().now();
        let profiles = testing::profiles(&mut fastrand::Rng::with_seed(seed), samples, now);
        let prepare = |limit: usize| {
            let yaml = format!("{{endpoint: 'c:1', compression: zstd, max_request_bytes: {limit}}}");
            exporter(Protocol::Grpc, &yaml).prepare(&profiles.clone().into(), now)
        };
        let (whole, parts) = (prepare(64 << 20), prepare(limit));
        prop_assert!(parts.losses.is_none());
        for request in &parts.requests {
            prop_assert!(message(request).len() <= limit);
        }
        let decode = |requests: &[Request<Meta>]| requests.iter().map(decoded).collect::<Vec<_>>();
        prop_assert_eq!(said(&decode(&parts.requests)), said(&decode(&whole.requests)));
    }
}
