//! Requests in earlier layouts are recognised and never misread.
//!
//! The messages of each generation are written down here as far as they matter, field numbers as in
//! opentelemetry-proto at that version.

use bytes::Bytes;
use profbridge_wire::otlp::delimited::frames;
use profbridge_wire::otlp::{Limits, decode};
use prost::Message;

/// What all generations have around their profiles, with what is inside already encoded.
#[derive(Clone, PartialEq, Message)]
struct Request {
    #[prost(bytes = "vec", repeated, tag = "1")]
    resource_profiles: Vec<Vec<u8>>,
    #[prost(bytes = "vec", optional, tag = "2")]
    dictionary: Option<Vec<u8>>,
}

/// `ResourceProfiles` or `ScopeProfiles`.
#[derive(Clone, PartialEq, Message)]
struct Around {
    #[prost(bytes = "vec", repeated, tag = "2")]
    inner: Vec<Vec<u8>>,
}

fn request<P: Message, D: Message>(profiles: Vec<P>, dictionary: Option<D>) -> Vec<u8> {
    let scope = Around { inner: profiles.iter().map(Message::encode_to_vec).collect() };
    let resource = Around { inner: vec![scope.encode_to_vec()] };
    Request {
        resource_profiles: vec![resource.encode_to_vec()],
        dictionary: dictionary.map(|dictionary| dictionary.encode_to_vec()),
    }
    .encode_to_vec()
}

/// The name of the layout that a request is found to have.
fn generation(bytes: Vec<u8>) -> &'static str {
    match decode(Bytes::from(bytes), &Limits::default()) {
        Ok(decoded) => decoded.layout.name(),
        other => panic!("{other:?}"),
    }
}

#[derive(Clone, PartialEq, Message)]
struct ValueType {
    #[prost(int32, tag = "1")]
    type_strindex: i32,
    #[prost(int32, tag = "2")]
    unit_strindex: i32,
    #[prost(int32, tag = "3")]
    aggregation_temporality: i32,
}

/// Any table's element: what is in it does not matter for these tests.
#[derive(Clone, PartialEq, Message)]
struct Element {
    #[prost(uint64, tag = "2")]
    number: u64,
}

/// 1.4 to 1.7.
#[derive(Clone, PartialEq, Message)]
struct RangeSample {
    #[prost(int32, tag = "1")]
    locations_start_index: i32,
    #[prost(int32, tag = "2")]
    locations_length: i32,
    #[prost(int64, repeated, tag = "3")]
    value: Vec<i64>,
    #[prost(int32, repeated, tag = "4")]
    attribute_indices: Vec<i32>,
    #[prost(int32, optional, tag = "5")]
    link_index: Option<i32>,
    #[prost(uint64, repeated, tag = "6")]
    timestamps_unix_nano: Vec<u64>,
}

/// The shapes in which a sample came: with values, with times, with attributes and a link.
fn range_samples() -> [RangeSample; 3] {
    let plain = RangeSample { locations_start_index: 0, locations_length: 2, ..Default::default() };
    let timed = RangeSample { timestamps_unix_nano: vec![1_700_000_000_000_000_000], ..plain.clone() };
    let valued = RangeSample { value: vec![1], ..plain };
    let full = RangeSample { attribute_indices: vec![1], link_index: Some(1), ..timed.clone() };
    [timed, valued, full]
}

/// 1.4 and 1.5.
#[derive(Clone, PartialEq, Message)]
struct Profile1_4 {
    #[prost(message, repeated, tag = "1")]
    sample_type: Vec<ValueType>,
    #[prost(message, repeated, tag = "2")]
    sample: Vec<RangeSample>,
    #[prost(message, repeated, tag = "3")]
    mapping_table: Vec<Element>,
    #[prost(message, repeated, tag = "4")]
    location_table: Vec<Element>,
    #[prost(int32, repeated, tag = "5")]
    location_indices: Vec<i32>,
    #[prost(string, repeated, tag = "10")]
    string_table: Vec<String>,
    #[prost(int64, tag = "11")]
    time_nanos: i64,
    #[prost(int64, tag = "12")]
    duration_nanos: i64,
    #[prost(bytes = "vec", tag = "17")]
    profile_id: Vec<u8>,
}

/// Guarantees: a profile of 1.4 or 1.5, with its tables in itself, is named.
/// rule: differences#otlp-layouts
#[test]
fn version_1_4() {
    for sample in range_samples() {
        let profile = Profile1_4 {
            sample_type: vec![ValueType::default()],
            sample: vec![sample],
            mapping_table: vec![Element::default()],
            location_table: vec![Element { number: 7 }, Element { number: 8 }],
            location_indices: vec![0, 1],
            string_table: vec![String::new(), "cpu".to_owned()],
            time_nanos: 1,
            duration_nanos: 2,
            profile_id: vec![1; 16],
        };
        assert_eq!(generation(request::<_, Element>(vec![profile], None)), "1.4 or 1.5");
    }
}

/// 1.6 and 1.7.
#[derive(Clone, PartialEq, Message)]
struct Profile1_6 {
    #[prost(message, repeated, tag = "1")]
    sample_type: Vec<ValueType>,
    #[prost(message, repeated, tag = "2")]
    sample: Vec<RangeSample>,
    #[prost(int32, repeated, tag = "3")]
    location_indices: Vec<i32>,
    #[prost(int64, tag = "4")]
    time_nanos: i64,
    #[prost(int64, tag = "5")]
    duration_nanos: i64,
    #[prost(bytes = "vec", tag = "10")]
    profile_id: Vec<u8>,
}

fn profile_1_6(sample: RangeSample, location_indices: Vec<i32>) -> Profile1_6 {
    Profile1_6 {
        sample_type: vec![ValueType::default()],
        sample: vec![sample],
        location_indices,
        time_nanos: 1,
        duration_nanos: 2,
        profile_id: Vec::new(),
    }
}

/// The tables of 1.6, which stand beside the resources.
#[derive(Clone, PartialEq, Message)]
struct Tables1_6 {
    #[prost(message, repeated, tag = "2")]
    mapping_table: Vec<Element>,
    #[prost(message, repeated, tag = "3")]
    location_table: Vec<Element>,
    #[prost(message, repeated, tag = "4")]
    function_table: Vec<Element>,
    #[prost(message, repeated, tag = "5")]
    link_table: Vec<Element>,
    #[prost(string, repeated, tag = "6")]
    string_table: Vec<String>,
    #[prost(message, repeated, tag = "7")]
    attribute_table: Vec<Element>,
}

/// Guarantees: a request of 1.6, with its tables beside the resources, is named, also one without samples.
/// rule: differences#otlp-layouts
#[test]
fn version_1_6() {
    let tables = Tables1_6 {
        mapping_table: vec![Element::default()],
        location_table: vec![Element { number: 7 }, Element { number: 8 }],
        function_table: vec![Element::default()],
        link_table: vec![Element::default()],
        string_table: vec![String::new(), "cpu".to_owned()],
        attribute_table: vec![Element::default()],
    };
    for sample in range_samples() {
        let profile = profile_1_6(sample, vec![0, 1]);
        let mut bytes = request::<_, Element>(vec![profile], None);
        bytes.extend(tables.encode_to_vec());
        assert_eq!(generation(bytes), "1.6");
    }
    assert_eq!(generation(tables.encode_to_vec()), "1.6");
}

/// The dictionary of 1.7: no stacks, field 7 has the units of attributes.
#[derive(Clone, PartialEq, Message)]
struct Dictionary1_7 {
    #[prost(message, repeated, tag = "1")]
    mapping_table: Vec<Element>,
    #[prost(message, repeated, tag = "2")]
    location_table: Vec<Element>,
    #[prost(string, repeated, tag = "5")]
    string_table: Vec<String>,
    #[prost(message, repeated, tag = "7")]
    attribute_units: Vec<Element>,
}

/// Guarantees: a request of 1.7 is named, by its list of locations or by its samples alone.
/// rule: differences#otlp-layouts
#[test]
fn version_1_7() {
    let dictionary = Dictionary1_7 {
        mapping_table: vec![Element::default()],
        location_table: vec![Element::default(), Element { number: 8 }],
        string_table: vec![String::new(), "cpu".to_owned()],
        attribute_units: Vec::new(),
    };
    for sample in range_samples() {
        for locations in [vec![0, 1], Vec::new()] {
            let profile = profile_1_6(sample.clone(), locations);
            assert_eq!(generation(request(vec![profile], Some(dictionary.clone()))), "1.7");
        }
    }
}

/// 1.8 and 1.9.
#[derive(Clone, PartialEq, Message)]
struct ValuesFirst {
    #[prost(int32, tag = "1")]
    stack_index: i32,
    #[prost(int64, repeated, tag = "2")]
    values: Vec<i64>,
    #[prost(int32, repeated, tag = "3")]
    attribute_indices: Vec<i32>,
    #[prost(int32, tag = "4")]
    link_index: i32,
    #[prost(fixed64, repeated, tag = "5")]
    timestamps_unix_nano: Vec<u64>,
}

#[derive(Clone, PartialEq, Message)]
struct Profile1_8 {
    #[prost(message, optional, tag = "1")]
    sample_type: Option<ValueType>,
    #[prost(message, repeated, tag = "2")]
    sample: Vec<ValuesFirst>,
    #[prost(fixed64, tag = "3")]
    time_unix_nano: u64,
    #[prost(uint64, tag = "4")]
    duration_nano: u64,
    #[prost(bytes = "vec", tag = "8")]
    profile_id: Vec<u8>,
    #[prost(uint32, tag = "9")]
    dropped_attributes_count: u32,
}

#[derive(Clone, PartialEq, Message)]
struct Profile1_9 {
    #[prost(message, repeated, tag = "2")]
    samples: Vec<ValuesFirst>,
    #[prost(fixed64, tag = "3")]
    time_unix_nano: u64,
    #[prost(uint64, tag = "4")]
    duration_nano: u64,
    #[prost(bytes = "vec", tag = "7")]
    profile_id: Vec<u8>,
}

/// The dictionary since 1.8.
#[derive(Clone, PartialEq, Message)]
struct Dictionary {
    #[prost(message, repeated, tag = "4")]
    link_table: Vec<Element>,
    #[prost(string, repeated, tag = "5")]
    string_table: Vec<String>,
    #[prost(message, repeated, tag = "6")]
    attribute_table: Vec<Empty>,
    #[prost(message, repeated, tag = "7")]
    stack_table: Vec<Empty>,
}

#[derive(Clone, PartialEq, Message)]
struct Empty {}

fn dictionary(attributes: usize) -> Option<Dictionary> {
    Some(Dictionary {
        link_table: Vec::new(),
        string_table: vec![String::new(), "cpu".to_owned()],
        attribute_table: vec![Empty {}; attributes],
        stack_table: vec![Empty {}; 2],
    })
}

fn values_first(values: &[i64], attributes: &[i32], link_index: i32, times: &[u64]) -> ValuesFirst {
    ValuesFirst {
        stack_index: 1,
        values: values.to_vec(),
        attribute_indices: attributes.to_vec(),
        link_index,
        timestamps_unix_nano: times.to_vec(),
    }
}

/// Guarantees: a request of 1.8 is named by the place of its profile's id, of its dropped count, or of its samples.
/// rule: differences#otlp-layouts
#[test]
fn version_1_8() {
    let samples =
        [values_first(&[1], &[1], 0, &[5]), values_first(&[1], &[], 1, &[5]), values_first(&[1], &[], 0, &[5])];
    for sample in samples {
        let with_id = Profile1_8 { sample: vec![sample.clone()], profile_id: vec![7; 16], ..Default::default() };
        assert_eq!(generation(request(vec![with_id], dictionary(3))), "1.8");
        // 1.10 has the dropped count in field 8, 1.8 in 9, where 1.10 has a string.
        let dropped = Profile1_8 { sample: vec![sample], dropped_attributes_count: 3, ..Default::default() };
        assert_eq!(generation(request(vec![dropped], dictionary(3))), "1.8");
    }
    let sample_type = Some(ValueType { type_strindex: 1, unit_strindex: 0, aggregation_temporality: 1 });
    let sample = vec![values_first(&[1], &[1], 0, &[5])];
    let profile = Profile1_8 { sample_type, sample, ..Default::default() };
    assert_eq!(generation(request(vec![profile], dictionary(3))), "1.8");
}

fn request_1_9(samples: Vec<ValuesFirst>, attributes: usize) -> Vec<u8> {
    let profile = Profile1_9 { samples, time_unix_nano: 4, duration_nano: 10, profile_id: vec![7; 16] };
    request(vec![profile], dictionary(attributes))
}

/// Guarantees: a request of 1.9 is named if a single sample has attributes, whose place 1.10 gave to links.
/// rule: differences#otlp-layouts
#[test]
fn version_1_9() {
    let samples = vec![values_first(&[1], &[], 0, &[5]), values_first(&[1], &[1], 0, &[5])];
    assert_eq!(generation(request_1_9(samples, 3)), "1.9");
}

/// Guarantees: without attributes, where wire types fit both layouts, 1.9 is named if what would be attributes cannot
/// be any: there are no such elements, an element stands twice, it is element 0, or no time is left.
#[test]
fn version_1_9_without_attributes() {
    for sample in [
        values_first(&[30_000_000], &[], 0, &[5]),
        values_first(&[-1], &[], 0, &[5]),
        values_first(&[1, 1], &[], 0, &[5, 6]),
        values_first(&[0], &[], 0, &[5]),
        values_first(&[1], &[], 0, &[]),
        values_first(&[30_000_000, 2], &[], 1, &[5, 6]),
    ] {
        assert_eq!(generation(request_1_9(vec![sample.clone()], 3)), "1.9", "{sample:?}");
        let many = vec![sample.clone(), values_first(&[1], &[], 0, &[7]), sample.clone()];
        assert_eq!(generation(request_1_9(many, 3)), "1.9", "{sample:?}");
    }
}

/// Guarantees: a request whose samples have the same value of 1.9 or attribute of 1.10 for each time is refused with
/// both names, whichever it is; samples that differ are of 1.10, and so is what the encoder writes.
#[test]
fn values_that_read_as_attributes() {
    let one = || values_first(&[1], &[], 0, &[5]);
    for samples in [vec![one()], vec![one(), values_first(&[1], &[], 0, &[6])]] {
        let error = decode(Bytes::from(request_1_9(samples, 3)), &Limits::default()).unwrap_err().to_string();
        assert!(error.contains("1.9, 1.10"), "{error}");
    }
    assert_eq!(generation(request_1_9(vec![one(), values_first(&[2, 1], &[], 0, &[6, 7])], 3)), "1.10");
    let mut builder = profbridge_model::Builder::new();
    builder.resource(&[]);
    builder.scope("", "");
    builder.on_cpu(20);
    let thread = builder.attributes(&[("thread.id", 10.into())]);
    builder.sample(None, thread, None, &[5], &[]);
    let batch = builder.finish().unwrap();
    let bytes = profbridge_wire::otlp::encode(&batch, &profbridge_wire::otlp::EncodeOptions::default());
    let decoded = decode(Bytes::from(bytes), &Limits::default()).unwrap();
    assert_eq!((decoded.layout.name(), decoded.profiles.sample(0).link), ("1.10", None));
}

/// Guarantees: a request of 1.10 with a fault like that is not taken for 1.9, as long as one sample shows that it is
/// not: only the faulty profile is refused.
#[test]
fn a_fault_is_no_layout() {
    use opentelemetry_proto::tonic::profiles::v1development as proto;
    let sample = |attributes: &[i32], times: &[u64]| proto::Sample {
        attribute_indices: attributes.to_vec(),
        timestamps_unix_nano: times.to_vec(),
        ..Default::default()
    };
    let profile = |samples: Vec<proto::Sample>| proto::Profile { samples, ..Default::default() };
    let whole = profile(vec![sample(&[1, 2], &[5])]);
    let faulty = profile(vec![sample(&[9], &[5])]);
    let bytes = request(vec![whole, faulty], dictionary(3));
    let decoded = decode(Bytes::from(bytes), &Limits::default()).unwrap();
    assert_eq!(decoded.profiles.profiles().count(), 1);
    assert_eq!(decoded.refused.len(), 1);
}

/// `v1experimental`, up to 1.3.
#[derive(Clone, PartialEq, Message)]
struct ProfileContainer {
    #[prost(bytes = "vec", tag = "1")]
    profile_id: Vec<u8>,
    #[prost(fixed64, tag = "2")]
    start_time_unix_nano: u64,
    #[prost(fixed64, tag = "3")]
    end_time_unix_nano: u64,
    #[prost(message, optional, tag = "8")]
    profile: Option<Profile1_4>,
}

/// Guarantees: a request of `v1experimental` on the later path is named.
/// rule: differences#otlp-layouts, otep-0239#container, otep-0239#container-profile
#[test]
fn version_1_3() {
    let container = ProfileContainer {
        profile_id: vec![1; 16],
        start_time_unix_nano: 1,
        end_time_unix_nano: 2,
        profile: Some(Profile1_4::default()),
    };
    assert_eq!(generation(request::<_, Element>(vec![container], None)), "1.3 (v1experimental)");
}

/// The captures of a real eBPF profiler, which lie beside the work tree and not in it.
fn capture(name: &str) -> Option<Bytes> {
    let path = format!("{}/../../../shared/fixtures/otlp/{name}", env!("CARGO_MANIFEST_DIR"));
    match std::fs::read(&path) {
        Ok(bytes) => Some(bytes.into()),
        Err(error) => {
            std::io::Write::write_fmt(&mut std::io::stderr(), format_args!("untested here: {name}: {error}\n")).ok();
            None
        }
    }
}

/// Guarantees: a real capture of 1.8 is named, framed or not.
/// rule: differences#otlp-layouts, otlp#layouts
#[test]
fn real_capture_of_1_8() {
    let Some(file) = capture("ebpf-profiler.wire-1.8.otlp") else { return };
    let messages = match profbridge_wire::otlp::sniff(&file) {
        profbridge_wire::otlp::Kind::Frames => frames(file).collect::<Result<Vec<_>, _>>().unwrap(),
        _ => vec![file],
    };
    for message in messages {
        assert_eq!(generation(message.to_vec()), "1.8");
    }
}

/// Guarantees: a real capture of 1.10 is read as prost reads it, with its 189 observations.
#[test]
fn real_capture_of_1_10() {
    let Some(file) = capture("ebpf-profiler.wire-1.10.otlp") else { return };
    let profiles = crate::round_trip::decoded(file.to_vec());
    assert_eq!(profiles.observations(), 189);
    let request = Message::decode(file).unwrap();
    assert_eq!(crate::oracle::to_prost(&profiles), crate::oracle::canonical(request));
}
