//! Tests that requests in earlier layouts are detected and never misread.

use bytes::Bytes;
use opentelemetry_proto::tonic::profiles::v1development as proto;
use profbridge_testkit::T0;
use profbridge_testkit::releases::messages::EarlierSample;
use profbridge_testkit::releases::{Release::*, Way};
use profbridge_wire::otlp::delimited::frames;
use profbridge_wire::otlp::{ContentKind, Limits, decode, sniff};
use prost::Message;

use super::older::{one_profile, resources_only, small, unclear};
use super::oracle::{canonical, to_prost};

/// The name of the layout that is detected for a request.
fn found(bytes: Vec<u8>) -> &'static str {
    decode(Bytes::from(bytes), &Limits::default()).unwrap().layout.name()
}

/// Guarantees: a request of each release is detected by any of its samples: with times, with values, with attributes
/// and a link.
/// rule: differences#otlp-layouts, otep-0239#container, otep-0239#container-profile
#[test]
fn each_release() {
    let mut request = small(3);
    let tables = request.dictionary.as_mut().unwrap();
    tables.location_table.push(proto::Location { address: 8, ..Default::default() });
    tables.stack_table.push(proto::Stack { location_indices: vec![1, 1] });
    tables.link_table.push(proto::Link { trace_id: vec![1; 16], span_id: vec![2; 8] });
    let profile = one_profile(&mut request);
    (profile.time_unix_nano, profile.duration_nano, profile.profile_id) = (T0, 9, vec![0x87; 16]);
    profile.samples[0] = proto::Sample { stack_index: 1, timestamps_unix_nano: vec![T0], ..Default::default() };
    let shapes: [fn(&mut EarlierSample); 3] = [
        |sample| sample.values.clear(),
        |sample| (sample.values, sample.timestamps_unix_nano) = (vec![1], Vec::new()),
        |sample| (sample.attribute_indices, sample.link_index) = (vec![1], Some(0)),
    ];
    for (release, name) in [
        (V1_3, "1.3 (v1experimental)"),
        (V1_4, "1.4 or 1.5"),
        (V1_5, "1.4 or 1.5"),
        (V1_6, "1.6"),
        (V1_7, "1.7"),
        (V1_8, "1.8"),
    ] {
        for shape in shapes {
            let bytes = release.write_with(&request, Way::BARE, &|profile| shape(&mut profile.samples[0]));
            assert_eq!(found(bytes), name);
        }
    }
    // 1.6 is detected by its tables alone, 1.7 by its samples alone.
    request.resource_profiles.clear();
    assert_eq!(found(V1_6.write(&request)), "1.6");
    let samples_only = V1_7.write_with(&small(3), Way::BARE, &|profile| {
        profile.samples[0].locations_length = 2;
        profile.location_indices.clear();
    });
    assert_eq!(found([samples_only, V1_7.write(&request)].concat()), "1.7");
}

#[derive(Clone, PartialEq, Message)]
struct ValueType1_8 {
    #[prost(int32, tag = "1")]
    type_strindex: i32,
    #[prost(int32, tag = "3")]
    aggregation_temporality: i32,
}

/// A sample of 1.8 and 1.9.
#[derive(Clone, PartialEq, Message)]
struct ValuesFirst {
    #[prost(int64, repeated, tag = "2")]
    values: Vec<i64>,
    #[prost(int32, repeated, tag = "3")]
    attribute_indices: Vec<i32>,
    #[prost(int32, tag = "4")]
    link_index: i32,
    #[prost(fixed64, repeated, tag = "5")]
    timestamps_unix_nano: Vec<u64>,
}

/// A profile of 1.8 without an id, which the Collector always writes, or a profile of 1.9.
#[derive(Clone, PartialEq, Message)]
struct OlderProfile {
    #[prost(message, optional, tag = "1")]
    sample_type: Option<ValueType1_8>,
    #[prost(message, repeated, tag = "2")]
    samples: Vec<ValuesFirst>,
    #[prost(bytes = "vec", tag = "7")]
    id_of_1_9: Vec<u8>,
    #[prost(uint32, tag = "9")]
    dropped_attributes_of_1_8: u32,
}

/// A request with this profile and with the tables of [`small`].
fn request(profile: &OlderProfile) -> Vec<u8> {
    let mut tables = small(3);
    tables.resource_profiles.clear();
    [super::attacks::profile(&profile.encode_to_vec()), tables.encode_to_vec()].concat()
}

fn values_first(values: &[i64], attributes: &[i32], link_index: i32, times: &[u64]) -> ValuesFirst {
    ValuesFirst {
        values: values.to_vec(),
        attribute_indices: attributes.to_vec(),
        link_index,
        timestamps_unix_nano: times.to_vec(),
    }
}

/// Guarantees: a request of 1.8 without an id is detected by its dropped count or by its temporality.
/// rule: differences#otlp-layouts
#[test]
fn version_1_8_without_an_id() {
    for sample in
        [values_first(&[1], &[1], 0, &[5]), values_first(&[1], &[], 1, &[5]), values_first(&[1], &[], 0, &[5])]
    {
        // The dropped count is field 8 in 1.10 and field 9 in 1.8, which is a string in 1.10.
        let profile = OlderProfile { samples: vec![sample], dropped_attributes_of_1_8: 3, ..Default::default() };
        assert_eq!(found(request(&profile)), "1.8");
    }
    let sample_type = Some(ValueType1_8 { type_strindex: 1, aggregation_temporality: 1 });
    let samples = vec![values_first(&[1], &[1], 0, &[5])];
    let profile = OlderProfile { sample_type, samples, ..Default::default() };
    assert_eq!(found(request(&profile)), "1.8");
}

/// A request of 1.9 with these samples.
fn version_1_9(samples: Vec<ValuesFirst>) -> Vec<u8> {
    request(&OlderProfile { samples, id_of_1_9: vec![7; 16], ..Default::default() })
}

/// Guarantees: a request of 1.9 is detected if a single sample has attributes, whose field number 1.10 gave to links;
/// or else if its values cannot be attributes of 1.10: there are no such elements, an element occurs twice, it is
/// element 0, or no times would be left.
/// rule: differences#otlp-layouts
#[test]
fn version_1_9_by_its_samples() {
    let attributes = vec![values_first(&[1], &[], 0, &[5]), values_first(&[1], &[1], 0, &[5])];
    assert_eq!(found(version_1_9(attributes)), "1.9");
    for sample in [
        values_first(&[30_000_000], &[], 0, &[5]),
        values_first(&[-1], &[], 0, &[5]),
        values_first(&[1, 1], &[], 0, &[5, 6]),
        values_first(&[0], &[], 0, &[5]),
        values_first(&[1], &[], 0, &[]),
        values_first(&[30_000_000, 2], &[], 1, &[5, 6]),
    ] {
        assert_eq!(found(version_1_9(vec![sample.clone()])), "1.9", "{sample:?}");
        let many = vec![sample.clone(), values_first(&[1], &[], 0, &[7]), sample.clone()];
        assert_eq!(found(version_1_9(many)), "1.9", "{sample:?}");
    }
}

/// Guarantees: a request whose samples have the same values of 1.9, or attributes of 1.10, for each time is refused
/// with both names, whichever it is. Samples that differ are of 1.10, and so are those that the encoder writes.
#[test]
fn values_that_read_as_attributes() {
    let one = |time| values_first(&[1], &[], 0, &[time]);
    for samples in [vec![one(5)], vec![one(5), one(6)]] {
        let why = unclear(version_1_9(samples));
        assert!(why.contains("1.9, 1.10"), "{why}");
    }
    assert_eq!(found(version_1_9(vec![one(5), values_first(&[2, 1], &[], 0, &[6, 7])])), "1.10");
    let mut builder = profbridge_model::Builder::new();
    builder.resource(&[]);
    builder.scope("", "");
    builder.on_cpu(20);
    let thread = builder.attributes(&[("thread.id", 10.into())]);
    builder.sample(None, thread, None, &[5], &[]);
    let bytes = profbridge_wire::otlp::encode(&builder.finish().unwrap(), &Default::default());
    let decoded = decode(Bytes::from(bytes), &Limits::default()).unwrap();
    assert_eq!((decoded.layout.name(), decoded.profiles.sample(0).link), ("1.10", None));
}

/// Guarantees: an error of this kind in a 1.10 request is not taken for 1.9, as long as one sample shows that the
/// layout is 1.10: only the faulty profile is refused.
#[test]
fn a_fault_is_no_layout() {
    let mut whole = small(3);
    let mut faulty = whole.clone();
    one_profile(&mut whole).samples[0].attribute_indices = vec![1, 2];
    one_profile(&mut faulty).samples[0].attribute_indices = vec![9];
    let bytes = [whole.encode_to_vec(), resources_only(&faulty).encode_to_vec()].concat();
    let decoded = decode(Bytes::from(bytes), &Limits::default()).unwrap();
    assert_eq!((decoded.profiles.profiles().count(), decoded.refused.len()), (1, 1));
}

/// A capture of a real eBPF profiler. Captures are stored beside the work tree, not in it.
pub(crate) fn capture(name: &str) -> Option<Bytes> {
    let path = format!("{}/../../../shared/fixtures/otlp/{name}", env!("CARGO_MANIFEST_DIR"));
    let bytes = std::fs::read(&path);
    if let Err(error) = &bytes {
        std::io::Write::write_fmt(&mut std::io::stderr(), format_args!("untested here: {name}: {error}\n")).ok();
    }
    bytes.ok().map(Bytes::from)
}

/// Guarantees: a real capture of 1.8 is detected, framed or not.
/// rule: differences#otlp-layouts, otlp#layouts
#[test]
fn real_capture_of_1_8() {
    let Some(file) = capture("ebpf-profiler.wire-1.8.otlp") else { return };
    let messages = match sniff(&file) {
        ContentKind::Frames => frames(file).collect::<Result<Vec<_>, _>>().unwrap(),
        _ => vec![file],
    };
    for message in messages {
        assert_eq!(found(message.to_vec()), "1.8");
    }
}

/// Guarantees: a real capture of 1.10 is decoded as prost decodes it, with its 189 observations.
#[test]
fn real_capture_of_1_10() {
    let Some(file) = capture("ebpf-profiler.wire-1.10.otlp") else { return };
    let profiles = super::round_trip::decoded(file.to_vec());
    assert_eq!(profiles.observations(), 189);
    let request = Message::decode(file).unwrap();
    assert_eq!(to_prost(&profiles), canonical(request));
}
