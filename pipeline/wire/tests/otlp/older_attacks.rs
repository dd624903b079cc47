//! Tests of hostile requests in earlier layouts. Each comment states what is amplified, the maximum (ceiling), and the
//! safe outcome.

use bytes::Bytes;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue};
use opentelemetry_proto::tonic::profiles::v1development as proto;
use opentelemetry_proto::tonic::resource::v1::Resource;
use profbridge_testkit::T0;
use profbridge_testkit::releases::messages::{
    AttributeUnit, EarlierFunction, EarlierLabel, EarlierLocation, EarlierProfile, EarlierSample, EarlierTables,
    EarlierValueType,
};
use profbridge_testkit::releases::{Release::*, Way, plain};
use profbridge_wire::otlp::{DecodeError, Decoded, EncodeOptions, Layout, Limits, decode, decode_as, encode};
use proptest::prelude::*;

use crate::attributes::{list, pair};
use crate::otlp::arbitrary::requests;
use crate::otlp::oracle::canonical;
use crate::scramble::{Random, field};

fn attack(layout: Layout, bytes: Vec<u8>) -> Result<Decoded, DecodeError> {
    let len = bytes.len();
    let outcome = decode_as(Bytes::from(bytes), layout, &Limits::default());
    if let Ok(decoded) = &outcome {
        // Columns whose length is not known in advance grow by doubling.
        assert!(decoded.memory() <= 2 * (8 * len + (1 << 20)), "{} of {len}", decoded.memory());
    }
    outcome
}

fn limit(outcome: Result<Decoded, DecodeError>) -> &'static str {
    match outcome {
        Err(DecodeError::LimitExceeded { what, .. }) => what,
        other => panic!("{:?}", other.map(|decoded| decoded.memory())),
    }
}

const MEMORY: &str = "bytes of memory for the decoded request";

fn nested(fields: &[u32], content: &[u8]) -> Vec<u8> {
    fields.iter().rev().fold(content.to_vec(), |bytes, &number| field(number, &bytes))
}

fn request_1_7(tables: &EarlierTables, profile: &EarlierProfile) -> Vec<u8> {
    [nested(&[2], &V1_7.dictionary(tables)), nested(&[1, 2, 2], &V1_7.profile(profile))].concat()
}

/// Amplification: an empty element of two bytes becomes up to a hundred in memory. Ceiling: eight times the request
/// plus a megabyte. Outcome: the request is refused, or stays within the ceiling.
#[test]
fn a_million_empty_elements() {
    for (layout, around, fields) in [
        (Layout::V1_7, &[2][..], 1..=7_u8),
        (Layout::V1_7, &[1, 2, 2], 1..=2),
        (Layout::V1_7, &[1, 2], 2..=2),
        (Layout::V1_7, &[1], 2..=2),
        (Layout::V1_7, &[], 1..=2),
        (Layout::V1_6, &[], 1..=8),
        (Layout::V1_4, &[1, 2, 2], 1..=15),
        (Layout::V1_4, &[1, 2], 2..=2),
        (Layout::V1_3, &[1, 2, 2, 8], 1..=15),
        (Layout::V1_3, &[1, 2, 2], 4..=4),
        (Layout::V1_3, &[1, 2, 2], 8..=8),
    ] {
        for field in fields {
            let million = [field << 3 | 2, 0].repeat(300_000);
            match attack(layout, nested(around, &million)) {
                Ok(_) | Err(DecodeError::Malformed { .. }) => {}
                other => assert_eq!(limit(other), MEMORY, "{} {around:?} {field}", layout.name()),
            }
        }
    }
}

/// Amplification: samples with overlapping ranges of one list each have a stack as long as the list. Ceiling: the
/// memory limit of the request, and the depth of a stack. Outcome: the request is refused.
/// rule: otep-0239#sample-stack
#[test]
fn overlapping_ranges() {
    let locations = 20_000;
    let dictionary = EarlierTables { location_table: vec![EarlierLocation::default(); 3], ..Default::default() };
    let sample = |start| EarlierSample {
        locations_start_index: start,
        locations_length: locations - start,
        values: vec![1],
        ..Default::default()
    };
    let profile = |samples| EarlierProfile {
        samples: (0..samples).map(sample).collect(),
        location_indices: (0..locations).map(|index| 1 + index % 2).collect(),
        ..Default::default()
    };
    // The table's elements must not be zero, because all stacks would otherwise consist of zeros.
    let mut dictionary = dictionary;
    dictionary.location_table.iter_mut().enumerate().for_each(|(i, of)| of.address = i as u64);
    let outcome = attack(Layout::V1_7, request_1_7(&dictionary, &profile(2_000)));
    assert_eq!(limit(outcome), MEMORY);
    // Repetitions of the same range result in one stack.
    let mut same = profile(2_000);
    same.samples.iter_mut().for_each(|of| (of.locations_start_index, of.locations_length) = (0, locations));
    let decoded = attack(Layout::V1_7, request_1_7(&dictionary, &same)).unwrap();
    assert_eq!(decoded.profiles.dictionary().tables().stacks.len(), 2);
    let mut deep = profile(1);
    deep.location_indices = vec![1; 70_000];
    deep.samples[0].locations_length = 70_000;
    assert_eq!(limit(attack(Layout::V1_7, request_1_7(&dictionary, &deep))), "locations of one stack");
}

/// Amplification: each of n types has each of m samples. Ceiling: the memory limit of the request, before the first
/// sample is decoded. Outcome: the request is refused.
#[test]
fn types_times_samples() {
    let sample = EarlierSample { values: vec![1; 1_000], timestamps_unix_nano: vec![T0], ..Default::default() };
    let profile = EarlierProfile {
        sample_type: vec![EarlierValueType::default(); 1_000],
        samples: vec![sample; 1_000],
        ..Default::default()
    };
    assert_eq!(limit(attack(Layout::V1_7, request_1_7(&EarlierTables::default(), &profile))), MEMORY);
}

/// Amplification: a time of one byte becomes eight, and one value becomes as many as there are times. Ceiling: the
/// memory limit of the request. Outcome: a request beyond the limit is refused.
#[test]
fn short_times() {
    let sample =
        |total| EarlierSample { values: vec![total], timestamps_unix_nano: vec![1; 400_000], ..Default::default() };
    let profile = |total| EarlierProfile { samples: vec![sample(total)], ..Default::default() };
    assert!(attack(Layout::V1_7, request_1_7(&EarlierTables::default(), &profile(400_000))).is_ok());
    assert_eq!(limit(attack(Layout::V1_7, request_1_7(&EarlierTables::default(), &profile(i64::MIN)))), MEMORY);
}

/// Amplification: units are looked up for each attribute, and labels for each sample. Ceiling: linear time. Outcome:
/// the request is accepted.
/// rule: otep-0239#attribute-table
#[test]
fn units_and_labels() {
    let count = 20_000;
    let strings = (0..count).map(|i| if i == 0 { String::new() } else { format!("key {i}") });
    let attribute = |i: i32| KeyValue { key: format!("key {i}"), ..Default::default() };
    let unit = |i: i32| AttributeUnit { attribute_key_strindex: i.into(), unit_strindex: i.into() };
    let dictionary = EarlierTables {
        string_table: strings.clone().collect(),
        attribute_table: (0..count).map(attribute).collect(),
        attribute_units: (0..count).map(unit).collect(),
        ..Default::default()
    };
    let decoded = attack(Layout::V1_7, request_1_7(&dictionary, &EarlierProfile::default())).unwrap();
    let tables = decoded.profiles.dictionary().tables();
    assert!(tables.attributes.iter().skip(2).all(|attribute| attribute.unit.is_some()));
    let label = |i: i32| EarlierLabel { key: i.into(), num: i.into(), ..Default::default() };
    let profile = EarlierProfile {
        samples: vec![
            EarlierSample { values: vec![1], labels: (0..count).map(label).collect(), ..Default::default() };
            3
        ],
        tables: EarlierTables { string_table: strings.collect(), ..Default::default() },
        sample_type: vec![EarlierValueType::default()],
        time_unix_nano: T0,
        ..Default::default()
    };
    let decoded = attack(Layout::V1_3, V1_3.request(&Resource::default(), &[profile])).unwrap();
    assert_eq!(decoded.profiles.dictionary().tables().attributes.len(), 1 + count as usize);
}

/// Outcome: lines, and nested values, are limited as in 1.10.
#[test]
fn depth_is_bounded() {
    let attribute = pair("", (0..20).fold(AnyValue::default(), |inner, _| list(vec![inner])));
    let of = |tables| limit(attack(Layout::V1_7, request_1_7(&tables, &EarlierProfile::default())));
    let what = of(EarlierTables { attribute_table: vec![attribute.clone()], ..Default::default() });
    assert_eq!(what, "depth of attribute values");
    let lines = vec![proto::Line::default(); 5_000];
    let what = of(EarlierTables {
        location_table: vec![EarlierLocation { lines: lines.clone(), ..Default::default() }],
        function_table: vec![EarlierFunction::default()],
        ..Default::default()
    });
    assert_eq!(what, "lines of one location");
    let profile = EarlierProfile { attributes: vec![attribute], ..Default::default() };
    let outcome = attack(Layout::V1_4, nested(&[1, 2, 2], &V1_4.profile(&profile)));
    assert_eq!(limit(outcome), "depth of attribute values");
    let location = EarlierLocation { lines, ..Default::default() };
    let tables = EarlierTables { location_table: vec![location], ..Default::default() };
    let request = V1_3.request(&Resource::default(), &[EarlierProfile { tables, ..Default::default() }]);
    assert_eq!(limit(attack(Layout::V1_3, request)), "lines of one location");
}

/// Outcome: an index out of range in tables that all profiles share refuses the request, with the place of the index.
/// So does a field with a wrong type.
/// rule: otep-0239#string-table, otep-0239#line-function
#[test]
fn what_all_share_refuses_all() {
    let rule = |bytes| match attack(Layout::V1_7, bytes) {
        Err(DecodeError::Malformed { place, rule, .. }) => format!("{place}: {rule}"),
        other => panic!("{:?}", other.map(|decoded| decoded.memory())),
    };
    let of = |tables| rule(request_1_7(&tables, &EarlierProfile::default()));
    let location = EarlierLocation { mapping_index: Some(-1), ..Default::default() };
    assert_eq!(
        of(EarlierTables { location_table: vec![location], ..Default::default() }),
        "dictionary.location_table[0].mapping_index: index -1 is out of range, mapping_table has 0 elements"
    );
    let line = proto::Line { function_index: 1, ..Default::default() };
    let location = EarlierLocation { lines: vec![line], ..Default::default() };
    assert!(of(EarlierTables { location_table: vec![location], ..Default::default() }).contains("function_index"));
    let strings = vec!["no zero element".to_owned()];
    assert!(of(EarlierTables { string_table: strings, ..Default::default() }).contains("string_table[0]"));
    let link = proto::Link { trace_id: vec![1; 15], span_id: Vec::new() };
    assert!(of(EarlierTables { link_table: vec![link], ..Default::default() }).contains("has 15 bytes, not 16"));
    assert!(rule(nested(&[1, 2, 2], &[4 << 3 | 2, 0])).contains("field 4 has wire type 2"));
    assert!(rule(nested(&[1, 2, 2, 2], &[6 << 3 | 1, 0, 0, 0, 0, 0, 0, 0, 0])).contains("field 6 has wire type 1"));
}

/// Checks the properties that hold for any bytes, in each layout.
pub(super) fn holds(bytes: &[u8]) {
    for layout in Layout::ALL {
        let Ok(decoded) = attack(layout, bytes.to_vec()) else { continue };
        let options = EncodeOptions { original_payload: true, ..EncodeOptions::default() };
        let again = decode_as(encode(&decoded.profiles, &options).into(), Layout::V1_10, &Limits::default()).unwrap();
        assert_eq!(again.refused, []);
        assert_eq!(again.profiles.observations(), decoded.profiles.observations());
    }
    drop(decode(Bytes::copy_from_slice(bytes), &Limits::default()));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, failure_persistence: None, ..ProptestConfig::default() })]

    /// Guarantees: damaged requests of every layout are refused or decoded within their memory limit, whichever layout
    /// they are decoded as, and the result can be encoded.
    #[test]
    fn damaged(request in requests(), seed: u64, flips in 0..6usize) {
        let request = plain(canonical(request));
        let way = Way { bare: seed % 2 == 0, no_totals: seed % 3 == 0, ..Way::default() };
        let mut random = Random::new(seed);
        for mut bytes in [
            V1_9.write(&request),
            V1_8.write(&request),
            V1_7.write_as(&request, way),
            V1_6.write_as(&request, way),
            V1_5.write_as(&request, way),
            V1_3.write_as(&request, Way { one_by_one: true, ..Way::BARE }),
        ] {
            for _ in 0..flips.min(bytes.len()) {
                let at = random.below(bytes.len());
                bytes[at] = random.below(256) as u8;
            }
            if random.below(4) == 0 {
                bytes.truncate(random.below(bytes.len() + 1));
            }
            holds(&bytes);
        }
    }
}
