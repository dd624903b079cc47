//! Tests that a batch is split into parts that fit the limit.

use bytes::Bytes;
use opentelemetry_proto::tonic::collector::profiles::v1development::ExportProfilesServiceRequest;
use opentelemetry_proto::tonic::profiles::v1development as proto;
use profbridge_model::Profiles;
use profbridge_wire::otlp::{EncodeOptions, Limits, decode, encode, encoded_len, split};
use proptest::prelude::*;
use prost::Message;

use crate::otlp::arbitrary::requests;
use crate::otlp::round_trip::decoded;

/// A profile of `samples` samples with two timestamps each, on as many stacks, functions and names.
fn request(samples: i32, name: &str) -> Vec<u8> {
    let numbers = || 1..=samples;
    let mut dictionary = proto::ProfilesDictionary {
        string_table: vec![String::new()],
        function_table: vec![proto::Function::default()],
        location_table: vec![proto::Location::default()],
        stack_table: vec![proto::Stack::default()],
        ..Default::default()
    };
    dictionary.string_table.extend(numbers().map(|i| format!("{name}{i}")));
    dictionary.function_table.extend(numbers().map(|i| proto::Function { name_strindex: i, ..Default::default() }));
    dictionary.location_table.extend(numbers().map(|i| proto::Location {
        lines: vec![proto::Line { function_index: i, ..Default::default() }],
        ..Default::default()
    }));
    dictionary.stack_table.extend(numbers().map(|i| proto::Stack { location_indices: vec![i] }));
    let samples = numbers().map(|i| proto::Sample {
        stack_index: i,
        timestamps_unix_nano: vec![i as u64, i as u64 + 1],
        ..Default::default()
    });
    let profile = proto::Profile { samples: samples.collect(), time_unix_nano: 1, ..Default::default() };
    let scope = proto::ScopeProfiles { profiles: vec![profile], ..Default::default() };
    let resource = proto::ResourceProfiles { scope_profiles: vec![scope], ..Default::default() };
    ExportProfilesServiceRequest { resource_profiles: vec![resource], dictionary: Some(dictionary) }.encode_to_vec()
}

/// Name and time of each observation, in order.
fn observations(batch: &Profiles) -> Vec<(String, u64)> {
    let dictionary = batch.dictionary();
    let mut all = Vec::new();
    for sample in batch.profiles().flat_map(|profile| batch.samples(profile)) {
        let location = dictionary.stack(sample.stack).next().flatten().unwrap();
        let function = dictionary.lines(dictionary.location(location))[0].function.unwrap();
        let name = dictionary.string(dictionary.function(function).name).to_owned();
        all.extend(sample.timestamps().map(|time| (name.clone(), time)));
    }
    all
}

const OPTIONS: EncodeOptions = EncodeOptions { original_payload: false, references: false };

/// Guarantees: a single profile larger than the limit is split, every part fits, every observation is in exactly one
/// part and in order, and no part contains names that it does not need.
/// rule: otlp#send-size
#[test]
fn one_large_profile() {
    let whole = decoded(request(1_000, "function number "));
    let size = encoded_len(&whole, &OPTIONS);
    let limit = size / 10;
    let parts: Vec<_> = split(&whole, limit, &OPTIONS).collect();
    assert!((10..=20).contains(&parts.len()), "{}", parts.len());
    let sizes: Vec<_> = parts.iter().map(|part| encode(part, &OPTIONS).len()).collect();
    assert!(sizes.iter().all(|&size| size <= limit), "{sizes:?}");
    assert!(sizes.iter().sum::<usize>() < size * 11 / 10, "{sizes:?}");
    assert_eq!(parts.iter().flat_map(observations).collect::<Vec<_>>(), observations(&whole));
}

/// Guarantees: a batch that fits is the only part, and still has its received bytes.
#[test]
fn what_fits_is_left_alone() {
    let whole = decoded(request(10, ""));
    let parts: Vec<_> = split(&whole, 1 << 20, &OPTIONS).collect();
    assert_eq!(parts.len(), 1);
    assert_eq!(parts[0].received, whole.received);
    assert!(std::sync::Arc::ptr_eq(parts[0].dictionary(), whole.dictionary()));
}

/// Guarantees: a name longer than the limit, which every part needs, is not multiplied without limit. Amplification:
/// each split doubles it. Ceiling: nine times the batch. Outcome: parts above the limit, which the caller has to count.
#[test]
fn a_name_longer_than_the_limit() {
    let mut bytes = request(4_000, "");
    // All functions get the same name of 100 kB.
    let mut long = ExportProfilesServiceRequest::decode(&*bytes).unwrap();
    let dictionary = long.dictionary.as_mut().unwrap();
    dictionary.string_table[1] = "x".repeat(100_000);
    dictionary.function_table[1..].iter_mut().for_each(|function| function.name_strindex = 1);
    bytes = long.encode_to_vec();
    let whole = decoded(bytes);
    let size = encoded_len(&whole, &OPTIONS);
    let parts: Vec<_> = split(&whole, 10_000, &OPTIONS).collect();
    assert_eq!(parts.iter().map(Profiles::observations).sum::<u64>(), whole.observations());
    assert!(parts.iter().map(|part| encoded_len(part, &OPTIONS)).sum::<usize>() <= 9 * size);
}

proptest! {
    /// Guarantees: whatever the batch and the limit, no observation is lost or added, and a part above the limit cannot
    /// be split further.
    #[test]
    fn nothing_is_lost(request in requests(), limit in 1..2_000usize) {
        let whole = crate::otlp::round_trip::decoded(request.encode_to_vec());
        let parts: Vec<_> = split(&whole, limit, &OPTIONS).collect();
        prop_assert_eq!(parts.iter().map(Profiles::observations).sum::<u64>(), whole.observations());
        let times = |batch: &Profiles| -> Vec<u64> {
            let samples = batch.profiles().flat_map(|profile| batch.samples(profile));
            samples.flat_map(|sample| sample.timestamps().collect::<Vec<_>>()).collect()
        };
        prop_assert_eq!(parts.iter().flat_map(times).collect::<Vec<_>>(), times(&whole));
        for part in &parts {
            prop_assert!(decode(Bytes::from(encode(part, &OPTIONS)), &Limits::default()).unwrap().refused.is_empty());
        }
    }
}
