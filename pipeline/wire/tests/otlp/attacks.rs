//! Tests of hostile requests. Each comment states what is amplified, the maximum (ceiling), and the safe outcome.

use bytes::Bytes;
use opentelemetry_proto::tonic::collector::profiles::v1development::ExportProfilesServiceRequest;
use opentelemetry_proto::tonic::common::v1::AnyValue;
use opentelemetry_proto::tonic::profiles::v1development as proto;
use opentelemetry_proto::tonic::resource::v1::Resource;
use profbridge_model::varint;
use profbridge_wire::otlp::{DecodeError, Decoded, EncodeOptions, Limits, decode, encode};
use prost::Message;

use crate::attributes::{int, list, map, pair};
use crate::scramble::field;

fn attack(bytes: Vec<u8>) -> Result<Decoded, DecodeError> {
    decode(Bytes::from(bytes), &Limits::default())
}

/// A request with only this dictionary.
fn dictionary(content: &[u8]) -> Vec<u8> {
    field(2, content)
}

/// A request with one profile of this content and no dictionary.
pub(super) fn profile(content: &[u8]) -> Vec<u8> {
    field(1, &field(2, &field(2, content)))
}

fn limit(outcome: Result<Decoded, DecodeError>) -> (&'static str, u64) {
    match outcome {
        Err(DecodeError::LimitExceeded { what, limit }) => (what, limit),
        other => panic!("{:?}", other.map(|decoded| decoded.memory())),
    }
}

fn rule(outcome: Result<Decoded, DecodeError>) -> String {
    match outcome {
        Err(DecodeError::Malformed { place, rule, .. }) => format!("{place}: {rule}"),
        other => panic!("{:?}", other.map(|decoded| decoded.memory())),
    }
}

const MEMORY: &str = "bytes of memory for the decoded request";

/// Amplification: an empty element of two bytes becomes up to a hundred in memory. Ceiling: eight times the request
/// plus a megabyte, checked before any allocation. Outcome: the request is refused.
#[test]
fn a_million_empty_elements() {
    let million = |element: &[u8]| element.repeat(1_000_000);
    for request in [
        // Resources, scopes, profiles, samples.
        million(&[0x0a, 0x00]),
        field(1, &million(&[0x12, 0x00])),
        field(1, &field(2, &million(&[0x12, 0x00]))),
        profile(&million(&[0x12, 0x00])),
        // Mappings, locations, functions, links, attributes.
        dictionary(&million(&[0x0a, 0x00])),
        dictionary(&million(&[0x12, 0x00])),
        dictionary(&million(&[0x1a, 0x00])),
        dictionary(&million(&[0x22, 0x00])),
        dictionary(&million(&[0x32, 0x00])),
        // Attributes and entities of a resource.
        field(1, &field(1, &million(&[0x0a, 0x00]))),
    ] {
        let most = (request.len() * 8 + (1 << 20)) as u64;
        assert_eq!(limit(attack(request)), (MEMORY, most));
    }
}

/// Amplification: strings and stacks take eight bytes each, four times the shortest element. Ceiling: the same as
/// above. Outcome: accepted, because this is within the ceiling.
#[test]
fn a_million_empty_strings_and_stacks() {
    for key in [0x2a, 0x3a] {
        let request = dictionary(&[key, 0x00].repeat(1_000_000));
        let decoded = attack(request.clone()).unwrap();
        assert!(decoded.memory() <= request.len() * 8 + (1 << 20), "{}", decoded.memory());
    }
}

/// Amplification: a thousand empty profiles are within the ceiling. Outcome: accepted.
#[test]
fn some_empty_elements_are_fine() {
    let decoded = attack(field(1, &field(2, &[0x12, 0x00].repeat(5_000)))).unwrap();
    assert_eq!(decoded.profiles.profiles().count(), 5_000);
}

/// Amplification: a length or a list claims 2^31 elements or more bytes than there are. Ceiling: nothing is allocated
/// because of a claim. Outcome: refused, with the place.
#[test]
fn huge_claims() {
    for claimed in [1u64 << 31, 1 << 32, 1 << 62, u64::MAX] {
        let mut claim = Vec::new();
        varint::put(&mut claim, claimed);
        let cases: [(Vec<u8>, &str); 5] = [
            ([&[0x0a][..], &claim].concat(), "request"),
            (dictionary(&[&[0x3a][..], &claim].concat()), "dictionary"),
            (dictionary(&field(7, &[&[0x0a][..], &claim].concat())), "dictionary.stack_table[0]"),
            (
                profile(&field(2, &[&[0x2a][..], &claim].concat())),
                "resource_profiles[0].scope_profiles[0].profiles[0].samples[0]",
            ),
            (
                profile(&field(2, &[&[0x22][..], &claim].concat())),
                "resource_profiles[0].scope_profiles[0].profiles[0].samples[0]",
            ),
        ];
        for (request, place) in cases {
            assert_eq!(rule(attack(request)), format!("{place}: claims {claimed} bytes where 0 are left"));
        }
    }
}

/// Amplification: each sample refers to the same stack with a name of 4 MB. Ceiling: the name is stored once. Outcome:
/// accepted; code that writes the name out has its own budget.
#[test]
fn a_million_references_to_one_long_name() {
    let name = "x".repeat(4 << 20);
    let tables = proto::ProfilesDictionary {
        string_table: vec![String::new(), name],
        function_table: vec![proto::Function::default(), proto::Function { name_strindex: 1, ..Default::default() }],
        location_table: vec![
            proto::Location::default(),
            proto::Location {
                lines: vec![proto::Line { function_index: 1, ..Default::default() }],
                ..Default::default()
            },
        ],
        stack_table: vec![proto::Stack::default(), proto::Stack { location_indices: vec![1] }],
        ..Default::default()
    };
    let sample = proto::Sample { stack_index: 1, values: vec![1], ..Default::default() };
    let mut request = profile(&field(2, &sample.encode_to_vec()).repeat(1_000_000));
    request.extend(dictionary(&tables.encode_to_vec()));
    let decoded = attack(request.clone()).unwrap();
    assert_eq!(decoded.profiles.observations(), 1_000_000);
    assert!(decoded.memory() < 4 * request.len(), "{}", decoded.memory());
}

/// Amplification: a line takes four bytes, and a location with a million lines becomes a million frames. Ceiling: 4,096
/// lines. Outcome: refused.
#[test]
fn deep_inlining() {
    let lines = |count| dictionary(&[field(2, &[]), field(2, &field(3, &[0x10, 1]).repeat(count))].concat());
    assert_eq!(limit(attack(lines(4_097))), ("lines of one location", 4_096));
    assert!(attack(lines(4_096)).is_ok());
}

/// Amplification: a location in a stack takes one byte, and is written as a number once per chunk. Ceiling: 65,536
/// locations. Outcome: refused.
#[test]
fn deep_stacks() {
    let stack = |count: usize| dictionary(&[field(7, &[]), field(7, &field(1, &vec![0; count]))].concat());
    assert_eq!(limit(attack(stack(65_537))), ("locations of one stack", 65_536));
    assert!(attack(stack(65_536)).is_ok());
    // The same stack as an unpacked list, which takes twice the bytes.
    let unpacked = dictionary(&[field(7, &[]), field(7, &[0x08, 0x00].repeat(65_537))].concat());
    assert_eq!(limit(attack(unpacked)), ("locations of one stack", 65_536));
}

/// Amplification: pieces of two lists alternate, and joining a list could copy it for each piece. Ceiling: each byte is
/// copied once. Outcome: accepted, with the lists joined.
#[test]
fn lists_in_many_pieces() {
    const TIMES: usize = 300_000;
    let pair = [&[0x20, 0x01, 0x29][..], &7u64.to_le_bytes()].concat();
    let request = profile(&field(2, &pair.repeat(TIMES)));
    let decoded = attack(request.clone()).unwrap();
    let profile = decoded.profiles.profiles().next().unwrap();
    let sample = decoded.profiles.samples(profile).next().unwrap();
    assert_eq!((sample.values().count(), sample.timestamps().len()), (TIMES, TIMES));
    assert_eq!(decoded.profiles.dictionary().tables().buffer.len(), request.len() + 9 * TIMES);
}

fn resource_with(value: AnyValue) -> Vec<u8> {
    let resource = Resource { attributes: vec![pair("k", value)], ..Default::default() };
    let resource_profiles = vec![proto::ResourceProfiles { resource: Some(resource), ..Default::default() }];
    ExportProfilesServiceRequest { resource_profiles, dictionary: None }.encode_to_vec()
}

/// Amplification: each level of nesting takes a stack frame of the decoder. Ceiling: 16 levels. Outcome: refused.
/// rule: otlp-profiles#any-value
#[test]
fn deep_values() {
    let array = |inner| list(vec![inner]);
    let key_values = |inner| map(vec![pair("", inner)]);
    for wrap in [array as fn(AnyValue) -> AnyValue, key_values] {
        let nested = |depth| (1..depth).fold(int(1), |inner, _| wrap(inner));
        assert!(attack(resource_with(nested(16))).is_ok());
        assert_eq!(limit(attack(resource_with(nested(17)))), ("depth of attribute values", 16));
    }
    // Deeper than any stack allows.
    let mut value = Vec::new();
    for _ in 0..10_000 {
        value = field(5, &field(1, &value));
    }
    let attribute = field(1, &field(2, &value));
    assert_eq!(limit(attack(field(1, &field(1, &attribute)))), ("depth of attribute values", 16));
}

/// Amplification: an empty value takes two bytes on the wire and 24 in memory. Ceiling: the memory limit of the
/// request, and a million values. Outcome: refused.
#[test]
fn many_values() {
    let array = |count: usize| field(1, &field(1, &field(1, &field(2, &field(5, &[0x0a, 0x00].repeat(count))))));
    let request = array(200_000);
    let most = (request.len() * 8 + (1 << 20)) as u64;
    assert_eq!(limit(attack(request)), (MEMORY, most));
    let limits = Limits { memory_factor: 100, ..Limits::default() };
    assert_eq!(limit(decode(Bytes::from(array(1 << 20)), &limits)), ("attribute values", 1 << 20));
}

/// Amplification: a value that occurs a million times has to be merged, and a bad implementation copies it each time.
/// Ceiling: each element is moved a bounded number of times. Outcome: accepted, merged.
#[test]
fn a_value_in_many_parts() {
    let part = field(2, &field(5, &field(1, &[0x18, 0x07])));
    let attribute = field(1, &part.repeat(100_000));
    let decoded = attack(field(1, &field(1, &attribute))).unwrap();
    let value = &decoded.profiles.resources()[0].resource.attributes[0].value;
    let profbridge_model::Value::Array(values) = value else { panic!("{value:?}") };
    assert_eq!(values.len(), 100_000);
}

/// Amplification: none, but groups nest without a length, so skipping a group recurses. Ceiling: 100 levels. Outcome:
/// refused.
#[test]
fn group_bombs() {
    let group = |depth: usize| [[0xa3, 0x06].repeat(depth), [0xa4, 0x06].repeat(depth)].concat();
    assert!(attack(group(100)).is_ok());
    assert_eq!(limit(attack(group(101))), ("nested groups", 100));
    assert_eq!(limit(attack([0xa3, 0x06].repeat(1_000_000))), ("nested groups", 100));
    assert_eq!(rule(attack([0xa3, 0x06].repeat(5))), "request: a group does not end");
    assert_eq!(rule(attack(vec![0xa3, 0x06, 0xac, 0x06])), "request: a group ends as another one");
    assert_eq!(rule(attack(vec![0xa4, 0x06])), "request: a group ends that did not start");
}

/// Outcome: text that is not UTF-8 causes no refusal, wherever it is. It is replaced in that string, which is counted.
/// The batch is encoded anew, because protobuf's readers would refuse the received bytes.
#[test]
fn invalid_utf8() {
    let bad = [b'a', 0xff];
    let good = "a\u{fffd}";
    let in_table = dictionary(&[field(5, &[]), field(5, &bad)].concat());
    let key = field(1, &field(1, &field(1, &field(1, &bad))));
    let value = field(1, &field(1, &field(1, &field(2, &field(1, &bad)))));
    let scope = field(1, &field(2, &field(1, &field(1, &bad))));
    let schema = field(1, &field(3, &bad));
    let format = profile(&field(9, &bad));
    let entity = field(1, &field(1, &field(3, &[field(1, b"schema"), field(2, &bad), field(3, b"id")].concat())));
    for request in [in_table, key, value, scope, schema, format, entity.clone()] {
        let decoded = attack(request.clone()).unwrap();
        assert!(decoded.refused.is_empty());
        assert_eq!(decoded.replaced_strings, 1);
        assert!(decoded.profiles.received.is_none());
        assert!(ExportProfilesServiceRequest::decode(&*request).is_err(), "protobuf refuses it");
        let options = EncodeOptions { original_payload: true, ..EncodeOptions::default() };
        let written = encode(&decoded.profiles, &options);
        // A format is only sent with a payload.
        if request != profile(&field(9, &bad)) {
            assert!(written.windows(good.len()).any(|bytes| bytes == good.as_bytes()), "{request:?}");
        }
        assert!(ExportProfilesServiceRequest::decode(&*written).is_ok(), "and reads what is written");
    }
    let written = encode(&attack(entity).unwrap().profiles, &EncodeOptions::default());
    let read = ExportProfilesServiceRequest::decode(&*written).unwrap();
    let entity = &read.resource_profiles[0].resource.as_ref().unwrap().entity_refs[0];
    assert_eq!((&*entity.schema_url, &*entity.r#type, &*entity.id_keys), ("schema", good, &["id".to_owned()][..]));
}

/// Outcome: only invalid text is replaced, and all references to other strings are still correct.
#[test]
fn invalid_utf8_among_text() {
    let strings: [&[u8]; 5] = [b"", b"parse", b"\xf0\x9f\x98", b"r\xc3\xa9nder", b"a\xc0b"];
    let tables = strings.map(|string| field(5, string)).concat();
    let functions: Vec<u8> =
        (0..5_u8).flat_map(|index| field(3, &[0x08, index][..2 * usize::from(index > 0)])).collect();
    let decoded = attack(dictionary(&[tables, functions].concat())).unwrap();
    assert_eq!(decoded.replaced_strings, 2);
    let dictionary = decoded.profiles.dictionary();
    let names: Vec<_> = dictionary.tables().functions.iter().map(|function| dictionary.string(function.name)).collect();
    assert_eq!(names, ["", "parse", "\u{fffd}", "r\u{e9}nder", "a\u{fffd}b"]);
}

/// Amplification: an invalid byte becomes three. Ceiling: the memory limit of a request, charged before the allocation.
/// Outcome: the request is refused.
#[test]
fn invalid_utf8_is_paid_for() {
    let request = dictionary(&[field(5, &[]), field(5, &vec![0xff; 1 << 20])].concat());
    let limits = Limits { memory_factor: 1, ..Limits::default() };
    let memory = request.len() as u64 + limits.memory_base as u64;
    assert_eq!(limit(decode(Bytes::from(request.clone()), &limits)), (MEMORY, memory));
    let decoded = decode(Bytes::from(request), &Limits::default()).unwrap();
    assert_eq!(decoded.replaced_strings, 1);
    assert!(decoded.memory() >= 3 << 20, "what was written anew is counted: {}", decoded.memory());
}

/// Outcome: bytes that are not protobuf are refused, with the position at which they become invalid.
#[test]
fn not_protobuf() {
    assert_eq!(rule(attack(vec![0x00])), "request: is not a field number");
    assert_eq!(rule(attack(vec![0x0f])), "request: field 1 has wire type 7, which is not its own");
    assert_eq!(rule(attack(vec![0x7f])), "request: there is no wire type 7");
    assert_eq!(rule(attack(vec![0x80; 11])), "request: an integer is cut off or too long");
    assert_eq!(rule(attack(vec![0xff, 0xff, 0xff, 0xff, 0xff, 0x01])), "request: is not a field number");
    assert_eq!(rule(attack(b"\0\0\0\x02\x0a\0".to_vec())), "request: is not a field number");
    assert!(rule(attack(b"{\"resourceProfiles\":[]}".to_vec())).starts_with("request: claims 114 bytes"));
    let halves = field(2, &[field(2, &[0x80]), field(2, &[0x01]), field(5, &[0; 8])].concat());
    assert!(rule(attack(profile(&halves))).ends_with("an integer is cut off at the end of a packed list"));
}

/// Outcome: a request above the limit is refused before it is read.
#[test]
fn a_request_that_is_too_long() {
    let limits = Limits { max_request: 3, ..Limits::default() };
    assert_eq!(limit(decode(Bytes::from_static(&[0xff; 4]), &limits)), ("bytes of the request", 3));
}

/// Amplification: each distinct list of attributes is stored. Ceiling: the memory limit of the request. Outcome:
/// accepted within the limit, with each list stored once.
#[test]
fn distinct_lists_of_attributes() {
    let attributes = 2_000;
    let mut request = dictionary(&field(6, &[]).repeat(attributes));
    let mut samples = Vec::new();
    for a in 1..attributes as u64 {
        for b in 1..40u64 {
            let mut packed = Vec::new();
            varint::put(&mut packed, a);
            varint::put(&mut packed, b % a + 1);
            samples.extend(field(2, &[field(2, &packed), field(5, &[1; 24])].concat()));
        }
    }
    request.extend(profile(&samples));
    let decoded = attack(request.clone()).unwrap();
    assert!(decoded.memory() <= request.len() * 8 + (1 << 20), "{}", decoded.memory());
    let sets = &decoded.profiles.dictionary().tables().attribute_sets;
    assert!((60_000..=78_000).contains(&sets.len()), "{}", sets.len());
}
