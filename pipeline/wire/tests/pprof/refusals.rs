//! Tests of what is refused, and of the errors.

use bytes::Bytes;
use profbridge_wire::otlp::Limits;
use profbridge_wire::pprof::{DecodeError, DecodedProfile, decode};
use prost::Message;

use crate::pprof::proto::{Label, Line, PprofFunction, PprofLocation, PprofMapping, PprofProfile, PprofSample};

fn read(profile: &PprofProfile) -> Result<DecodedProfile, DecodeError> {
    decode(Bytes::from(profile.encode_to_vec()), &Limits::default())
}

/// A profile of one sample.
pub(crate) fn valid() -> PprofProfile {
    let mut profile = PprofProfile::default();
    let sample_type = profile.value_type("cpu", "nanoseconds");
    let name = profile.text("main.work");
    profile.sample_type.push(sample_type);
    profile.function.push(PprofFunction { id: 1, name, ..PprofFunction::default() });
    profile.mapping.push(PprofMapping { id: 1, memory_start: 0x1000, memory_limit: 0x2000, ..PprofMapping::default() });
    let line = Line { function_id: 1, line: 7, column: 0 };
    profile.location.push(PprofLocation { id: 1, mapping_id: 1, line: vec![line], ..PprofLocation::default() });
    profile.sample.push(PprofSample { location_id: vec![1], value: vec![10_000_000], label: Vec::new() });
    profile
}

/// Guarantees: a profile that breaks a rule is refused, and the error has the place in pprof's terms and the rule.
/// rule: otep-0239#pprof
#[test]
fn rules() {
    type Break = fn(&mut PprofProfile);
    let cases: [(Break, &str); 16] = [
        (|p| p.string_table.clear(), "string_table: is empty, its first element has to be the empty string"),
        (|p| p.string_table[0] = "x".to_owned(), "string_table[0]: is not the empty string, which it has to be"),
        (|p| p.location[0].id = 0, "location[0].id: is 0, which stands for none"),
        (|p| p.function.push(p.function[0]), "function[1].id: is 1, as that of function[0]"),
        (
            |p| {
                p.mapping[0].id = u64::MAX;
                p.mapping.push(p.mapping[0]);
            },
            "mapping[1].id: is 18446744073709551615, as that of mapping[0]",
        ),
        (|p| p.location.push(p.location[0].clone()), "location[1].id: is 1, as that of location[0]"),
        (|p| p.sample[0].location_id.push(0), "sample[0].location_id[1]: there is no location with the id 0"),
        (
            |p| p.sample[0].location_id.push(1 << 40),
            "sample[0].location_id[1]: there is no location with the id 1099511627776",
        ),
        (|p| p.sample[0].value.push(1), "sample[0].value: there are 2 values for 1 types"),
        (|p| p.sample[0].value.clear(), "sample[0].value: there are 0 values for 1 types"),
        (|p| p.sample_type.clear(), "sample_type: there is none, and there are samples"),
        (|p| p.time_nanos = -1, "time_nanos: -1 ns is no time"),
        (|p| p.duration_nanos = -5, "duration_nanos: -5 ns is no time"),
        (|p| p.function[0].name = 4, "function[0].name: index 4 is out of range, string_table has 4 elements"),
        (|p| p.drop_frames = -1, "drop_frames: index -1 is out of range, string_table has 4 elements"),
        (
            |p| p.sample[0].label.push(Label { key: 99, ..Label::default() }),
            "sample[0].label[0].key: index 99 is out of range, string_table has 4 elements",
        ),
    ];
    assert_eq!(read(&valid()).unwrap().profiles.observations(), 1);
    for (damage, message) in cases {
        let mut profile = valid();
        damage(&mut profile);
        assert_eq!(read(&profile).unwrap_err().to_string(), format!("malformed pprof profile: {message}"));
    }
}

/// Guarantees: a reference to a missing mapping or function only loses the reference, and is counted; so is an element
/// with the id 0, to which nothing can refer, whatever ids the others have.
#[test]
fn references_that_name_nothing() {
    type Change = fn(&mut PprofProfile);
    let cases: [(Change, [usize; 2], u64); 7] = [
        (|_| {}, [1, 1], 0),
        (|p| p.location[0].mapping_id = 2, [0, 1], 1),
        (|p| p.location[0].line[0].function_id = 9, [1, 0], 1),
        (|p| p.location[0].line[0].function_id = 0, [1, 0], 1),
        (|p| (p.mapping[0].id, p.location[0].mapping_id) = (0, 0), [0, 1], 1),
        (|p| (p.function[0].id, p.location[0].line[0].function_id) = (0, 0), [1, 0], 2),
        (|p| p.function.insert(0, PprofFunction { name: 1, ..PprofFunction::default() }), [1, 1], 1),
    ];
    for (change, expected, left_out) in cases {
        let mut profile = valid();
        change(&mut profile);
        let decoded = read(&profile).unwrap();
        let dictionary = decoded.profiles.dictionary();
        let location =
            dictionary.location(dictionary.stack(decoded.profiles.sample(0).stack).flatten().next().unwrap());
        let functions = dictionary.lines(location).iter().filter_map(|line| line.function);
        let named = functions.filter(|&id| dictionary.string(dictionary.function(id).name) == "main.work").count();
        let found = [location.mapping.iter().count(), named];
        assert_eq!((found, decoded.left_out_references, decoded.profiles.observations()), (expected, left_out, 1));
    }
}

/// Guarantees: a profile without samples, or without types, is valid and empty; ids may be in any order.
#[test]
fn what_is_valid() {
    let mut profile = valid();
    profile.sample.clear();
    assert_eq!(read(&profile).unwrap().profiles.profiles().count(), 1);
    profile.sample_type.clear();
    assert_eq!(read(&profile).unwrap().profiles.profiles().count(), 0);
    let mut profile = valid();
    profile.location.insert(0, PprofLocation { id: 5, ..PprofLocation::default() });
    let batch = read(&profile).unwrap().profiles;
    let stack = batch.sample(0).stack;
    let named =
        batch.dictionary().stack(stack).flatten().map(|location| batch.dictionary().location(location).lines_len);
    assert_eq!(named.collect::<Vec<_>>(), [1]);
}

/// Guarantees: negative values and counts of 2^40 are unchanged. Invalid UTF-8 is replaced in its string and counted. A
/// number of a label that also has text, which pprof forbids, is dropped and counted.
#[test]
fn kept() {
    let mut profile = valid();
    profile.sample.push(PprofSample { location_id: vec![1], value: vec![-(1 << 40)], label: Vec::new() });
    profile.sample.push(PprofSample { location_id: vec![1], value: vec![1 << 40], label: Vec::new() });
    let key = profile.text("key");
    profile.sample[2].label.push(Label { key, str: key, num: 5, num_unit: 0 });
    let mut bytes = profile.encode_to_vec();
    let at = bytes.windows(9).position(|window| window == b"main.work").unwrap();
    bytes[at] = 0xff;
    let decoded = decode(bytes.into(), &Limits::default()).unwrap();
    assert_eq!((decoded.replaced_strings, decoded.left_out_numbers), (1, 1));
    let values: Vec<i64> = (0..3).flat_map(|row| decoded.profiles.sample(row).values().collect::<Vec<_>>()).collect();
    assert_eq!(values, [10_000_000, -(1 << 40), 1 << 40]);
    let dictionary = decoded.profiles.dictionary();
    assert_eq!(dictionary.string(dictionary.tables().functions[1].name), "\u{fffd}ain.work");
}
