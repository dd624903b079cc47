use opentelemetry_proto::tonic::common::v1::{AnyValue, any_value};
use opentelemetry_proto::tonic::profiles::v1development::{
    Function, KeyValueAndUnit, Line, Link, Location, Mapping, ResourceProfiles, ScopeProfiles, Stack,
};

use super::*;

/// A request that satisfies all rules, with an entry in each table.
fn valid() -> ExportProfilesServiceRequest {
    let strings = ["", "thread.id", "main", "a.out"].map(str::to_owned).to_vec();
    let value = AnyValue { value: Some(any_value::Value::IntValue(7)) };
    let attribute = KeyValueAndUnit { key_strindex: 1, value: Some(value), unit_strindex: 0 };
    let line = Line { function_index: 1, line: 3, column: 0 };
    let dictionary = ProfilesDictionary {
        mapping_table: vec![
            Mapping::default(),
            Mapping { memory_start: 1, memory_limit: 2, filename_strindex: 3, ..Mapping::default() },
            Mapping { filename_strindex: 3, ..Mapping::default() },
        ],
        location_table: vec![
            Location::default(),
            Location { mapping_index: 1, lines: vec![line], ..Location::default() },
        ],
        function_table: vec![Function::default(), Function { name_strindex: 2, ..Function::default() }],
        link_table: vec![Link::default(), Link { trace_id: vec![1; 16], span_id: vec![1; 8] }],
        string_table: strings,
        attribute_table: vec![KeyValueAndUnit::default(), attribute.clone(), attribute],
        stack_table: vec![Stack::default(), Stack { location_indices: vec![1] }],
    };
    let sample = |times: &[u64]| Sample {
        stack_index: 1,
        attribute_indices: vec![1],
        link_index: 1,
        values: times.iter().map(|_| 1).collect(),
        timestamps_unix_nano: times.to_vec(),
    };
    let samples = vec![sample(&[10, 19]), sample(&[12])];
    let profile = Profile { samples, time_unix_nano: 10, duration_nano: 10, ..Profile::default() };
    let scope = ScopeProfiles { profiles: vec![profile], ..ScopeProfiles::default() };
    let resource = ResourceProfiles { scope_profiles: vec![scope], ..ResourceProfiles::default() };
    ExportProfilesServiceRequest { resource_profiles: vec![resource], dictionary: Some(dictionary) }
}

/// A change that makes a valid request invalid, and the rule it breaks.
type BreakingChange = (fn(&mut Profile, &mut ProfilesDictionary), &'static str);

/// Guarantees: a valid request is accepted, and each broken rule is detected separately.
/// rule: round-trip#profcheck
#[test]
fn each_rule() {
    assert_eq!(check(&valid().encode_to_vec()), Ok(()));
    let broken: &[BreakingChange] = &[
        (|profile, _| profile.samples[0].timestamps_unix_nano[1] = 20, "has the time 20 outside of 10..20"),
        (|profile, _| profile.samples[0].timestamps_unix_nano[1] = 9, "has the time 9 outside of 10..20"),
        (|profile, _| profile.samples[0].stack_index = 2, "2 is out of range"),
        (|profile, _| profile.samples[0].link_index = -1, "-1 is out of range"),
        (|profile, _| profile.samples[0].attribute_indices = vec![1, 2], "has the attribute \"thread.id\" twice"),
        (|profile, _| profile.samples[1].values.clear(), "has Timestamps, the first sample has Some(Both)"),
        (|profile, _| profile.samples[0].values.push(1), "has 3 values and 2 timestamps"),
        (|profile, _| profile.samples[0] = Sample::default(), "has neither a value nor a timestamp"),
        (|profile, _| profile.attribute_indices = vec![9], "9 is out of range"),
        (
            |profile, _| profile.period_type = Some(ValueType { type_strindex: 4, unit_strindex: 0 }),
            "4 is out of range",
        ),
        (|_, tables| tables.mapping_table[1].memory_limit = 1, "not behind its start"),
        (|_, tables| tables.mapping_table.push(tables.mapping_table[1].clone()), "mapping_table[3] is there twice"),
        (|_, tables| tables.location_table[1].mapping_index = 3, "3 is out of range"),
        (|_, tables| tables.location_table[1].lines[0].line = -1, "has a negative line"),
        (|_, tables| tables.location_table[1].lines[0].function_index = 2, "2 is out of range"),
        (|_, tables| tables.function_table[1].filename_strindex = 4, "4 is out of range"),
        (|_, tables| tables.function_table[1].start_line = -1, "negative start_line"),
        (|_, tables| tables.link_table[1].span_id.clear(), "not of 16 and 8 bytes"),
        (|_, tables| tables.string_table[3] = "main".to_owned(), "string_table[3] is the same as [2]"),
        (|_, tables| tables.string_table[0] = "x".to_owned(), "string_table begins with \"x\""),
        (|_, tables| tables.attribute_table[1].unit_strindex = 4, "4 is out of range"),
        (|_, tables| tables.stack_table[1].location_indices = vec![2], "2 is out of range"),
        (|_, tables| tables.stack_table.remove(0).location_indices.clear(), "stack_table begins with"),
        (|_, tables| tables.function_table[0].start_line = 1, "function_table begins with"),
    ];
    for (breaks, rule) in broken {
        let mut request = valid();
        let mut dictionary = request.dictionary.take().unwrap();
        breaks(&mut request.resource_profiles[0].scope_profiles[0].profiles[0], &mut dictionary);
        request.dictionary = Some(dictionary);
        let found = check_request(&request).unwrap_err().join("\n");
        assert!(found.contains(rule), "{rule}: {found}");
    }
    assert_eq!(check(b"").unwrap_err()[0], "resource_profiles are empty");
    assert!(check(b"\x0a").unwrap_err()[0].contains("is no protobuf"));
}
