//! Tests that requests in earlier layouts are decoded to the same result as the same data in 1.10.

use bytes::Bytes;
use opentelemetry_proto::tonic::collector::profiles::v1development::ExportProfilesServiceRequest;
use opentelemetry_proto::tonic::profiles::v1development as proto;
use profbridge_model::content_hash::content_hashes;
use profbridge_model::{Profile, Value};
use profbridge_testkit::T0;
use profbridge_testkit::releases::messages::EarlierValueType;
use profbridge_testkit::releases::{Release::*, Way, plain};
use profbridge_testkit::workload::{self, Shape};
use profbridge_wire::otlp::{DecodeError, Decoded, Layout, LikelySignal, Limits, decode, decode_as, signal};
use proptest::prelude::*;
use prost::Message;

use crate::otlp::arbitrary::requests;
use crate::otlp::oracle::{canonical, to_prost};
use crate::otlp::round_trip::with_lawful_payloads;

/// Decodes a request of this known layout.
fn read_as(layout: Layout, bytes: Vec<u8>) -> Decoded {
    assert_ne!(signal(&bytes), LikelySignal::Traces, "profiles are not taken for spans");
    let decoded = decode_as(Bytes::from(bytes), layout, &Limits::default()).unwrap();
    assert_eq!(decoded.refused, []);
    assert_eq!(decoded.profiles.received.is_some(), layout == Layout::V1_10, "what came is not passed on");
    decoded
}

/// Decodes a request whose layout has to be detected.
fn found(layout: Layout, bytes: Vec<u8>) -> Decoded {
    assert_eq!(signal(&bytes), LikelySignal::Profiles);
    let decoded = decode(Bytes::from(bytes), &Limits::default()).unwrap();
    assert_eq!(decoded.refused, []);
    assert_eq!(decoded.layout, layout);
    assert!(decoded.profiles.received.is_none(), "what came is not passed on");
    decoded
}

/// The content of a batch, independent of its tables: the content hash of each profile, its id and its payload.
type BatchContents = Vec<([u8; 16], Option<[u8; 16]>, String, Vec<u8>)>;

fn batch_contents(decoded: &Decoded) -> BatchContents {
    let batch = &decoded.profiles;
    let dictionary = batch.dictionary();
    let of = |(profile, hash): (&Profile, _)| {
        let payload = dictionary.bytes(profile.original_payload).to_vec();
        (hash, profile.profile_id, dictionary.string(profile.original_payload_format).to_owned(), payload)
    };
    batch.profiles().zip(content_hashes(batch)).map(of).collect()
}

/// The request with times in whole milliseconds, in the range of their profiles.
fn timely(mut request: ExportProfilesServiceRequest) -> ExportProfilesServiceRequest {
    for resource in &mut request.resource_profiles {
        for profile in resource.scope_profiles.iter_mut().flat_map(|scope| &mut scope.profiles) {
            (profile.time_unix_nano, profile.duration_nano) = (T0, 5_000_000_000);
            for time in profile.samples.iter_mut().flat_map(|sample| &mut sample.timestamps_unix_nano) {
                *time = T0 + *time % 5_000 * 1_000_000;
            }
        }
    }
    request
}

/// The request without references to strings in attributes, which earlier layouts do not have.
fn without_references(request: ExportProfilesServiceRequest) -> ExportProfilesServiceRequest {
    canonical(with_lawful_payloads(request))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    /// Guarantees: any data sent in 1.3 to 1.7 is decoded to the same content as in 1.10: with and without zero
    /// elements in the tables, with and without totals in addition to times, with locations in ranges and in lists,
    /// with times in either unit.
    /// rule: differences#otlp-layouts, otep-0239#container, otep-0239#start-time, otep-0239#end-time
    /// rule: otep-0239#profile-attributes, otep-0239#dropped-attributes, otep-0239#payload-format
    /// rule: otep-0239#container-profile, otep-0239#samples, otep-0239#locations, otep-0239#attribute-table
    /// rule: otep-0239#time, otep-0239#sample-attributes, otep-0239#attribute-unit, otep-0239#same-layout
    #[test]
    fn any_data_in_1_3_to_1_7(request in requests(), bare: bool, no_totals: bool) {
        let way = Way { bare, no_totals, ..Way::default() };
        let request = plain(without_references(request));
        let expected = batch_contents(&read_as(Layout::V1_10, request.encode_to_vec()));
        for (layout, bytes) in [
            (Layout::V1_7, V1_7.write_as(&request, way)),
            (Layout::V1_6, V1_6.write_as(&request, way)),
            (Layout::V1_4, V1_5.write_as(&request, way)),
            (Layout::V1_4, V1_4.write_as(&request, way)),
        ] {
            prop_assert_eq!(&batch_contents(&read_as(layout, bytes)), &expected, "{}", layout.name());
        }
        let request = timely(request);
        let expected = batch_contents(&read_as(Layout::V1_10, request.encode_to_vec()));
        for other in [false, true] {
            let way = Way { one_by_one: other, milliseconds: other, ..way };
            let bytes = V1_3.write_as(&request, way);
            prop_assert_eq!(&batch_contents(&read_as(Layout::V1_3, bytes)), &expected, "1.3, {:?}", way);
        }
    }

    /// Guarantees: any data sent in 1.9 or 1.8 becomes the same batch as in 1.10, field by field.
    /// rule: differences#otlp-layouts
    #[test]
    fn any_data_in_1_9_and_1_8(request in requests()) {
        let request = without_references(request);
        for (layout, bytes) in [(Layout::V1_9, V1_9.write(&request)), (Layout::V1_8, V1_8.write(&request))] {
            prop_assert_eq!(&to_prost(&read_as(layout, bytes).profiles), &request);
        }
    }
}

/// Guarantees: the layout of data like real producers' is detected, and the data becomes the same batch as in 1.10.
#[test]
fn workloads_are_recognised() {
    for shape in [Shape::Tiny, Shape::Avg] {
        let request = canonical(workload::request(shape));
        for (layout, bytes) in [(Layout::V1_9, V1_9.write(&request)), (Layout::V1_8, V1_8.write(&request))] {
            assert_eq!(to_prost(&found(layout, bytes).profiles), request, "{shape:?} in {}", layout.name());
        }
        let request = plain(request);
        let expected = batch_contents(&read_as(Layout::V1_10, request.encode_to_vec()));
        for (layout, bytes) in [
            (Layout::V1_7, V1_7.write(&request)),
            (Layout::V1_6, V1_6.write(&request)),
            (Layout::V1_4, V1_5.write(&request)),
            (Layout::V1_3, V1_3.write(&request)),
        ] {
            assert_eq!(batch_contents(&found(layout, bytes)), expected, "{shape:?} in {}", layout.name());
        }
    }
}

/// A small request with a string table of this many strings after the empty one, and a sample that has an attribute.
pub(super) fn small(strings: usize) -> ExportProfilesServiceRequest {
    let sample =
        proto::Sample { attribute_indices: vec![1], timestamps_unix_nano: vec![5], ..proto::Sample::default() };
    let profile = proto::Profile { samples: vec![sample], time_unix_nano: 4, duration_nano: 9, ..Default::default() };
    let scope = proto::ScopeProfiles { profiles: vec![profile], ..Default::default() };
    let dictionary = proto::ProfilesDictionary {
        string_table: (0..=strings).map(|i| if i == 0 { String::new() } else { format!("text {i}") }).collect(),
        attribute_table: vec![proto::KeyValueAndUnit::default(); 3],
        ..Default::default()
    };
    canonical(ExportProfilesServiceRequest {
        resource_profiles: vec![proto::ResourceProfiles { scope_profiles: vec![scope], ..Default::default() }],
        dictionary: Some(dictionary),
    })
}

/// The only profile of a request.
pub(super) fn one_profile(request: &mut ExportProfilesServiceRequest) -> &mut proto::Profile {
    &mut request.resource_profiles[0].scope_profiles[0].profiles[0]
}

fn refused(bytes: Vec<u8>) -> String {
    let decoded = decode(Bytes::from(bytes), &Limits::default()).unwrap();
    assert_eq!(decoded.profiles.profiles().count(), 0);
    decoded.refused[0].invalid.to_string()
}

/// Guarantees: cumulative values are refused with an error that names them, and an unset temporality means delta.
/// rule: otep-0239#temporality
#[test]
fn temporality_of_1_8() {
    let with = |temporality| {
        V1_8.write_with(&small(3), Way::BARE, &|profile| {
            profile.sample_type = vec![EarlierValueType { aggregation_temporality: temporality, ..Default::default() }];
        })
    };
    for fine in [0, 1] {
        found(Layout::V1_8, with(fine));
    }
    let why = refused(with(2));
    assert!(why.contains("aggregation_temporality") && why.contains("CUMULATIVE"), "{why}");
    assert!(refused(with(3)).contains("3 is no temporality"));
}

/// Guarantees: comments of 1.8 become the attribute that later releases use for comments.
/// rule: otep-0239#comment
#[test]
fn comments_of_1_8() {
    let bytes = V1_8.write_with(&small(3), Way::BARE, &|profile| {
        profile.comment_strindices = vec![2, 3];
        profile.attribute_indices = vec![2];
    });
    let batch = found(Layout::V1_8, bytes).profiles;
    let profile = batch.profiles().next().unwrap();
    let dictionary = batch.dictionary();
    let Some(Value::Array(comments)) = dictionary.find(profile.attributes, "pprof.profile.comment") else { panic!() };
    let texts = comments.iter().map(|comment| match comment {
        Value::String(id) => dictionary.string(*id),
        _ => panic!(),
    });
    assert_eq!(texts.collect::<Vec<_>>(), ["text 2", "text 3"]);
    assert_eq!(dictionary.attribute_set(profile.attributes).len(), 2);
    // A reference to a missing comment refuses the profile.
    assert!(
        refused(V1_8.write_with(&small(3), Way::BARE, &|profile| profile.comment_strindices = vec![4]))
            .contains("comment")
    );
}

pub(super) fn unclear(bytes: Vec<u8>) -> String {
    match decode(Bytes::from(bytes), &Limits::default()) {
        Err(error @ DecodeError::UnclearLayout { .. }) => error.to_string(),
        other => panic!("{other:?}"),
    }
}

/// The request without its dictionary, to be appended to another request with the same dictionary.
pub(super) fn resources_only(request: &ExportProfilesServiceRequest) -> ExportProfilesServiceRequest {
    ExportProfilesServiceRequest { dictionary: None, ..request.clone() }
}

/// Guarantees: a request with profiles of several layouts is refused, and the error names the layouts.
/// rule: differences#otlp-layouts
#[test]
fn mixed_layouts() {
    let mut linked = small(3);
    linked.dictionary.as_mut().unwrap().link_table.push(proto::Link { trace_id: vec![1; 16], span_id: vec![2; 8] });
    one_profile(&mut linked).samples[0].link_index = 1;
    let current = resources_only(&linked).encode_to_vec();
    let mut dropped = resources_only(&small(3));
    one_profile(&mut dropped).dropped_attributes_count = 1;
    for (parts, candidates) in [
        ([V1_9.write(&linked), current.clone()], "1.9, 1.10"),
        ([current, V1_9.write(&linked)], "1.9, 1.10"),
        ([V1_8.write(&linked), V1_9.write(&dropped)], "1.8, 1.9"),
    ] {
        let why = unclear(parts.concat());
        assert!(why.contains(candidates), "{why}");
    }
}

/// Guarantees: sixteen bytes that are an id in 1.9 and valid comments in 1.8 are refused as unclear; an id of random
/// bytes is decoded as an id.
#[test]
fn an_id_that_could_be_comments() {
    let with_id = |id: u8| {
        let mut request = small(9);
        one_profile(&mut request).profile_id = vec![id; 16];
        request
    };
    let why = unclear(V1_9.write(&with_id(7)));
    assert!(why.contains("1.8, 1.9") && why.contains("comments"), "{why}");
    for id in [10, 0x87] {
        assert_eq!(to_prost(&found(Layout::V1_9, V1_9.write(&with_id(id))).profiles), with_id(id));
    }
}

/// Guarantees: values of 1.9 that are valid indices of attributes in 1.10 are detected by the kinds of these
/// attributes.
#[test]
fn values_that_are_indices_of_attributes() {
    let mut request = small(3);
    let dictionary = request.dictionary.as_mut().unwrap();
    dictionary.string_table[1] = "profile.frame.type".to_owned();
    dictionary.attribute_table[1].key_strindex = 1;
    let sample = &mut one_profile(&mut request).samples[0];
    sample.attribute_indices.clear();
    sample.values = vec![1];
    assert_eq!(to_prost(&found(Layout::V1_9, V1_9.write(&request)).profiles), request);
}

/// Guarantees: if fewer than half of the samples have values that cannot be attributes, neither 1.9 nor 1.10 is
/// guessed.
#[test]
fn a_few_impossible_attributes() {
    let mut request = small(3);
    let samples = &mut one_profile(&mut request).samples;
    samples.extend(vec![samples[0].clone(); 2]);
    samples[2].attribute_indices = vec![9];
    let why = unclear(request.encode_to_vec());
    assert!(why.contains("1.9, 1.10") && why.contains("attributes"), "{why}");
}

/// Guarantees: a request of 1.9 that has only values is detected by its first samples, and a request of 1.10 whose
/// first samples are as unusual is still decoded as 1.10.
#[test]
fn odd_first_samples() {
    let mut request = small(3);
    let samples = &mut one_profile(&mut request).samples;
    samples[0].attribute_indices.clear();
    samples[0].values = vec![30_000_000];
    samples.extend(vec![samples[0].clone(); 40]);
    assert_eq!(to_prost(&found(Layout::V1_9, V1_9.write(&request)).profiles), request);
    let samples = &mut one_profile(&mut request).samples;
    for sample in &mut samples[..20] {
        (sample.attribute_indices, sample.values) = (vec![30_000_000], Vec::new());
    }
    let decoded = decode(request.encode_to_vec().into(), &Limits::default()).unwrap();
    assert_eq!((decoded.layout, decoded.refused_profiles()), (Layout::V1_10, 1));
}
