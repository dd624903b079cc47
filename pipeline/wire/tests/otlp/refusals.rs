//! Tests of what is refused and what is not: the rules of single profiles, resources and scopes, and of the dictionary.

use bytes::Bytes;
use opentelemetry_proto::tonic::collector::profiles::v1development::ExportProfilesServiceRequest;
use opentelemetry_proto::tonic::common::v1::{AnyValue, InstrumentationScope, KeyValue, any_value};
use opentelemetry_proto::tonic::profiles::v1development as proto;
use opentelemetry_proto::tonic::resource::v1::Resource;
use profbridge_wire::otlp::{DecodeError, Decoded, EncodeOptions, Limits, decode, encode};
use prost::Message;

use crate::attributes::{int, pair, texts, value_of};

/// A request with a resource, a scope and two profiles of two samples each, with small tables.
pub(crate) fn request() -> ExportProfilesServiceRequest {
    let sample = |times: &[u64]| proto::Sample {
        stack_index: 1,
        attribute_indices: vec![1, 2],
        link_index: 1,
        timestamps_unix_nano: times.to_vec(),
        ..Default::default()
    };
    let profile = proto::Profile {
        sample_type: Some(proto::ValueType { type_strindex: 1, unit_strindex: 2 }),
        samples: vec![sample(&[10, 11, 12]), sample(&[13])],
        time_unix_nano: 10,
        duration_nano: 5,
        ..Default::default()
    };
    let scope = proto::ScopeProfiles {
        scope: Some(InstrumentationScope { name: "test".to_owned(), ..Default::default() }),
        profiles: vec![profile.clone(), profile],
        ..Default::default()
    };
    let resource = proto::ResourceProfiles {
        resource: Some(Resource { attributes: texts(&[("service.name", "checkout")]), ..Default::default() }),
        scope_profiles: vec![scope],
        ..Default::default()
    };
    let attributes = [0, 3, 4].map(|key_strindex| proto::KeyValueAndUnit { key_strindex, ..Default::default() });
    let dictionary = proto::ProfilesDictionary {
        mapping_table: vec![proto::Mapping::default(); 2],
        location_table: vec![proto::Location::default(); 2],
        function_table: vec![proto::Function::default(); 2],
        link_table: vec![proto::Link::default(), proto::Link { trace_id: vec![1; 16], span_id: vec![2; 8] }],
        string_table: ["", "samples", "count", "thread.id", "thread.name"].map(str::to_owned).to_vec(),
        attribute_table: attributes.to_vec(),
        stack_table: vec![proto::Stack::default(), proto::Stack { location_indices: vec![1, 1] }],
    };
    ExportProfilesServiceRequest { resource_profiles: vec![resource], dictionary: Some(dictionary) }
}

fn decode_it(request: &ExportProfilesServiceRequest) -> Result<Decoded, DecodeError> {
    decode(Bytes::from(request.encode_to_vec()), &Limits::default())
}

fn first_profile(request: &mut ExportProfilesServiceRequest) -> &mut proto::Profile {
    &mut request.resource_profiles[0].scope_profiles[0].profiles[0]
}

/// Changes the first of the two profiles. Checks that only this one is refused, with its observations, and returns the
/// rule.
fn refused(change: impl FnOnce(&mut proto::Profile)) -> String {
    let mut request = request();
    change(first_profile(&mut request));
    let decoded = decode_it(&request).unwrap();
    assert_eq!(decoded.profiles.profiles().count(), 1, "the other profile is still there");
    assert_eq!(decoded.profiles.observations(), 4);
    assert_eq!(decoded.refused_profiles(), 1);
    assert!(decoded.profiles.received.is_none(), "the batch no longer says what was received");
    assert!(decode(Bytes::from(encode(&decoded.profiles, &EncodeOptions::default())), &Limits::default()).is_ok());
    assert_eq!(decoded.refused.len(), 1);
    decoded.refused[0].invalid.to_string()
}

const FIRST: &str = "resource_profiles[0].scope_profiles[0].profiles[0]";

/// Guarantees: an index that is out of range or negative refuses only its profile, and the error names place, index and
/// table.
/// rule: otep-0239#type, otep-0239#sample-stack, otep-0239#sample-attributes, otep-0239#sample-link
#[test]
fn indices_of_a_profile() {
    type ProfileChange = fn(&mut proto::Profile, i32);
    let cases: [(&str, &str, ProfileChange); 6] = [
        ("samples[1].stack_index", "stack_table has 2", |profile, index| profile.samples[1].stack_index = index),
        ("samples[1].link_index", "link_table has 2", |profile, index| profile.samples[1].link_index = index),
        ("samples[1].attribute_indices", "attribute_table has 3", |profile, index| {
            profile.samples[1].attribute_indices[1] = index;
        }),
        ("attribute_indices", "attribute_table has 3", |profile, index| profile.attribute_indices = vec![index]),
        ("sample_type.unit_strindex", "string_table has 5", |profile, index| {
            profile.sample_type.as_mut().unwrap().unit_strindex = index;
        }),
        ("period_type.type_strindex", "string_table has 5", |profile, index| {
            profile.period_type = Some(proto::ValueType { type_strindex: index, unit_strindex: 0 });
        }),
    ];
    for (place, table, change) in cases {
        for index in [-1, 5, 6, i32::MAX, i32::MIN] {
            let text = refused(|profile| change(profile, index));
            assert_eq!(text, format!("{FIRST}.{place}: index {index} is out of range, {table} elements"));
        }
    }
}

/// Guarantees: a profile is refused if a sample has neither values nor times, or a number of values that differs from
/// that of times; if its duration is negative when read as signed, or ends beyond 64 bits; or if the length of its id
/// is not 16. An id of zeros means none.
/// rule: otep-0239#sample-values, otlp-profiles#sample-shape, otep-0239#end-time, otep-0239#duration
/// rule: otep-0239#profile-id
#[test]
fn rules_of_a_profile() {
    type Damage = fn(&mut proto::Profile);
    let cases: [(&str, Damage); 6] = [
        ("samples[1].values: the sample has neither values nor timestamps", |profile| {
            profile.samples[1].timestamps_unix_nano.clear();
        }),
        ("samples[0].values: there are 2 values for 3 timestamps", |profile| profile.samples[0].values = vec![1, 2]),
        ("samples[1].values: there are 2 values for 1 timestamps", |profile| profile.samples[1].values = vec![1, 2]),
        ("duration_nano: 18446744073709551615 ns after 10 ns is no time", |profile| profile.duration_nano = u64::MAX),
        ("duration_nano: 1 ns after 18446744073709551615 ns is no time", |profile| {
            (profile.time_unix_nano, profile.duration_nano) = (u64::MAX, 1);
        }),
        ("profile_id: has 15 bytes, not 16", |profile| profile.profile_id = vec![1; 15]),
    ];
    for (expected, change) in cases {
        assert_eq!(refused(change), format!("{FIRST}.{expected}"));
    }
    let mut zeros = request();
    first_profile(&mut zeros).profile_id = vec![0; 16];
    assert_eq!(decode_it(&zeros).unwrap().profiles.profiles().next().unwrap().profile_id, None);
}

/// Guarantees: an error in a resource refuses all its profiles, and one in a scope all profiles of the scope. All of
/// them are counted.
#[test]
fn resources_and_scopes() {
    let dangling = KeyValue { key_strindex: 5, ..Default::default() };
    let mut bad = request();
    let other = bad.resource_profiles[0].clone();
    bad.resource_profiles.push(other);
    bad.resource_profiles[0].resource.as_mut().unwrap().attributes.push(dangling.clone());
    // A profile of this resource is faulty as well, but is refused with the resource.
    bad.resource_profiles[0].scope_profiles[0].profiles[1].duration_nano = u64::MAX;
    let decoded = decode_it(&bad).unwrap();
    assert_eq!((decoded.refused_profiles(), decoded.refused_observations()), (2, 8));
    assert_eq!(decoded.profiles.observations(), 8);
    assert_eq!(
        decoded.refused[0].invalid.to_string(),
        "resource_profiles[0].resource.attributes[1].key_strindex: index 5 is out of range, string_table has 5 elements"
    );

    let mut bad = request();
    let other = bad.resource_profiles[0].scope_profiles[0].clone();
    bad.resource_profiles[0].scope_profiles.push(other);
    let dangling = pair("", value_of(any_value::Value::StringValueStrindex(-1)));
    bad.resource_profiles[0].scope_profiles[1].scope.as_mut().unwrap().attributes.push(dangling);
    let decoded = decode_it(&bad).unwrap();
    assert_eq!((decoded.refused_profiles(), decoded.refused_observations()), (2, 8));
    assert_eq!(decoded.profiles.observations(), 8);
    assert_eq!(
        decoded.refused[0].invalid.to_string(),
        "resource_profiles[0].scope_profiles[1].scope.attributes[0].value.string_value_strindex: index -1 is out of \
         range, string_table has 5 elements"
    );
}

/// Guarantees: several errors are each reported once, in order.
#[test]
fn several_faults() {
    let mut bad = request();
    let scope = &mut bad.resource_profiles[0].scope_profiles[0];
    scope.profiles.push(scope.profiles[0].clone());
    scope.profiles[0].samples[0].stack_index = 9;
    scope.profiles[0].profile_id = vec![1];
    scope.profiles[2].attribute_indices = vec![9];
    let decoded = decode_it(&bad).unwrap();
    let places: Vec<_> = decoded.refused.iter().map(|refusal| refusal.invalid.place.clone()).collect();
    assert_eq!(
        places,
        [
            format!("{FIRST}.profile_id"),
            "resource_profiles[0].scope_profiles[0].profiles[2].attribute_indices".to_owned()
        ]
    );
}

type DictionaryChange<T> = fn(&mut proto::ProfilesDictionary, T);

/// Returns the rule by which a request with this dictionary is refused.
fn dictionary_fault(change: impl FnOnce(&mut proto::ProfilesDictionary)) -> String {
    let mut request = request();
    change(request.dictionary.as_mut().unwrap());
    match decode_it(&request) {
        Err(DecodeError::Malformed { place, rule, .. }) => format!("{place}: {rule}"),
        other => panic!("{other:?}"),
    }
}

/// Guarantees: an index in the dictionary that is out of range refuses the request and is named in the error. A string
/// of an attribute, which the batch stores after the table, is not mistaken for an element of the table.
/// rule: otep-0239#mapping-filename, otep-0239#location-mapping, otep-0239#line-function
#[test]
fn indices_of_the_dictionary() {
    let cases: [(&str, &str, DictionaryChange<i32>); 7] = [
        ("function_table[1].system_name_strindex", "string_table has 5", |tables, index| {
            tables.function_table[1].system_name_strindex = index;
        }),
        ("mapping_table[1].filename_strindex", "string_table has 5", |tables, index| {
            tables.mapping_table[1].filename_strindex = index;
        }),
        ("attribute_table[2].unit_strindex", "string_table has 5", |tables, index| {
            tables.attribute_table[2].unit_strindex = index;
        }),
        ("location_table[1].mapping_index", "mapping_table has 2", |tables, index| {
            tables.location_table[1].mapping_index = index;
        }),
        ("location_table[1].lines[0].function_index", "function_table has 2", |tables, function_index| {
            tables.location_table[1].lines.push(proto::Line { function_index, ..Default::default() });
        }),
        ("stack_table[1].location_indices[1]", "location_table has 2", |tables, index| {
            tables.stack_table[1].location_indices = vec![1, index];
        }),
        ("mapping_table[1].attribute_indices", "attribute_table has 3", |tables, index| {
            tables.mapping_table[1].attribute_indices = vec![index];
        }),
    ];
    for (place, table, change) in cases {
        for index in [-1, 5, 6, 7] {
            let text = dictionary_fault(|tables| change(tables, index));
            assert_eq!(text, format!("dictionary.{place}: index {index} is out of range, {table} elements"));
        }
    }
}

/// Guarantees: an element 0 that is not the zero value refuses the request, because a reference to 0 means "not set".
/// An id of zeros is a zero value. Ids of links have 16 and 8 bytes, or none.
/// rule: otep-0239#mappings, otep-0239#string-table, otlp-profiles#element-zero, otlp-profiles#link-zero
/// rule: otep-0239#link-ids
#[test]
fn element_zero() {
    let rule = "is not the zero value, which element 0 has to be";
    let cases: [(&str, &str, DictionaryChange<()>); 9] = [
        ("string_table[0]", rule, |tables, ()| tables.string_table[0] = "x".to_owned()),
        ("function_table[0]", rule, |tables, ()| tables.function_table[0].start_line = 1),
        ("location_table[0]", rule, |tables, ()| tables.location_table[0].lines.push(proto::Line::default())),
        ("mapping_table[0]", rule, |tables, ()| tables.mapping_table[0].memory_limit = 1),
        ("stack_table[0]", rule, |tables, ()| tables.stack_table[0].location_indices.push(0)),
        ("attribute_table[0]", rule, |tables, ()| tables.attribute_table[0].key_strindex = 1),
        ("link_table[0]", rule, |tables, ()| tables.link_table[0].trace_id = vec![1; 16]),
        ("link_table[1].trace_id", "has 17 bytes, not 16", |tables, ()| tables.link_table[1].trace_id.push(0)),
        ("link_table[1].span_id", "has 1 bytes, not 8", |tables, ()| tables.link_table[1].span_id = vec![1]),
    ];
    for (place, rule, change) in cases {
        assert_eq!(dictionary_fault(|tables| change(tables, ())), format!("dictionary.{place}: {rule}"));
    }
    let mut zeros = request();
    let tables = zeros.dictionary.as_mut().unwrap();
    tables.link_table[0] = proto::Link { trace_id: vec![0; 16], span_id: vec![0; 8] };
    // The Collector writes a missing value of an attribute as an empty message.
    tables.attribute_table[0].value = Some(AnyValue { value: None });
    assert_eq!(decode_it(&zeros).unwrap().refused, []);
}

/// Guarantees: a profile without references needs no dictionary; one with references but without a dictionary is
/// refused.
/// rule: otlp-profiles#element-zero
#[test]
fn missing_dictionary() {
    let mut bare = request();
    bare.dictionary = None;
    let decoded = decode_it(&bare).unwrap();
    assert_eq!(decoded.refused_profiles(), 2);
    for profile in &mut bare.resource_profiles[0].scope_profiles[0].profiles {
        profile.sample_type = None;
        for sample in &mut profile.samples {
            (sample.stack_index, sample.link_index) = (0, 0);
            sample.attribute_indices.clear();
        }
    }
    let decoded = decode_it(&bare).unwrap();
    assert_eq!(decoded.refused, []);
    assert_eq!(decoded.profiles.observations(), 8);
}

/// Guarantees: if a `KeyValue` has both `key` and `key_strindex`, which the protocol forbids, the inline key is used,
/// whatever their order, and only this key is sent.
/// rule: otlp-profiles#one-key
#[test]
fn two_keys_of_an_attribute() {
    let mut both = request();
    let resource = both.resource_profiles[0].resource.as_mut().unwrap();
    resource.attributes[0].key_strindex = 3;
    let bytes = both.encode_to_vec();
    let inline = [&[0x0a, 12][..], b"service.name"].concat();
    let at = bytes.windows(inline.len()).position(|window| window == inline).unwrap();
    // prost writes the key, the value and then the reference. This test moves the reference to the front.
    let end = at + inline.len() + 2 + 2 + "checkout".len();
    assert_eq!(bytes[end..end + 2], [0x18, 3], "the reference is last");
    let mut turned = bytes.clone();
    turned[at..end + 2].rotate_right(2);
    assert_ne!(turned, bytes);
    for bytes in [bytes, turned] {
        let decoded = decode(Bytes::from(bytes), &Limits::default()).unwrap();
        assert_eq!(decoded.refused, []);
        let again = encode(&decoded.profiles, &EncodeOptions { references: false, ..EncodeOptions::default() });
        let again = ExportProfilesServiceRequest::decode(&*again).unwrap();
        let attribute = &again.resource_profiles[0].resource.as_ref().unwrap().attributes[0];
        assert_eq!((&*attribute.key, attribute.key_strindex), ("service.name", 0));
    }
}

/// Guarantees: a list of attributes that contains a key twice, which the protocol forbids, is not refused: a lookup
/// finds the first entry, and both are sent as received.
/// rule: otep-0239#profile-attributes, otlp-profiles#unique-keys
#[test]
fn repeated_keys() {
    let mut repeated = request();
    let dictionary = repeated.dictionary.as_mut().unwrap();
    dictionary.attribute_table[1].value = Some(int(7));
    let second = proto::KeyValueAndUnit { key_strindex: 3, value: Some(int(8)), unit_strindex: 0 };
    dictionary.attribute_table.push(second);
    for sample in &mut first_profile(&mut repeated).samples {
        sample.attribute_indices = vec![1, 3];
    }
    let decoded = decode_it(&repeated).unwrap();
    assert_eq!(decoded.refused, []);
    let profiles = &decoded.profiles;
    let first = profiles.profiles().next().unwrap();
    for sample in profiles.samples(first) {
        let found = profiles.dictionary().find(sample.attributes, "thread.id");
        assert!(matches!(found, Some(profbridge_model::Value::Int(7))), "{found:?}");
    }
    let mut again = ExportProfilesServiceRequest::decode(&*encode(profiles, &EncodeOptions::default())).unwrap();
    for sample in &first_profile(&mut again).samples {
        assert_eq!(sample.attribute_indices, [1, 3]);
    }
}

/// Guarantees: the error for a pprof profile says that it is one, and does not advise its sender to upgrade.
#[test]
fn pprof() {
    let profile = b"\x0a\x04\x08\x01\x10\x02\x12\x06\x0a\x01\x01\x12\x01\x05\x22\x02\x08\x01\x32\x00\x32\x03cpu";
    let error = decode(bytes::Bytes::from_static(profile), &Limits::default()).unwrap_err().to_string();
    assert!(error.contains("it is a pprof profile, not OTLP") && !error.contains("upgrade"), "{error}");
}
