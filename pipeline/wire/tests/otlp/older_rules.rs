//! Tests of the rules by which earlier layouts are converted to 1.10, one by one.

use bytes::Bytes;
use opentelemetry_proto::tonic::collector::profiles::v1development::ExportProfilesServiceRequest;
use opentelemetry_proto::tonic::profiles::v1development as proto;
use opentelemetry_proto::tonic::resource::v1::Resource;
use profbridge_model::{LocationId, Profiles, Value};
use profbridge_testkit::T0;
use profbridge_testkit::releases::messages::{
    EarlierFunction, EarlierLabel, EarlierLocation, EarlierMapping, EarlierProfile, EarlierSample, EarlierTables,
    EarlierValueType,
};
use profbridge_testkit::releases::{Release::*, Way};
use profbridge_wire::otlp::{Decoded, Layout, Limits, decode};

use super::older::{one_profile, small};
use crate::attributes::{pair, text};

fn read(layout: Layout, bytes: Vec<u8>) -> Decoded {
    let decoded = decode(Bytes::from(bytes), &Limits::default()).unwrap();
    assert_eq!(decoded.layout, layout);
    decoded
}

/// The error of the only profile of a request.
fn refused(layout: Layout, bytes: Vec<u8>) -> String {
    let decoded = read(layout, bytes);
    assert_eq!((decoded.profiles.profiles().count(), decoded.refused_profiles()), (0, 1));
    decoded.refused[0].invalid.to_string()
}

/// The times and values of each sample, profile by profile.
fn observed(batch: &Profiles) -> Vec<Vec<(Vec<u64>, Vec<i64>)>> {
    let samples = |profile| batch.samples(profile).map(|of| (of.timestamps().collect(), of.values().collect()));
    batch.profiles().map(|profile| samples(profile).collect()).collect()
}

/// A request of one profile with these strings after the empty one.
fn request(strings: &[&str]) -> ExportProfilesServiceRequest {
    let mut request = small(0);
    let tables = request.dictionary.as_mut().unwrap();
    tables.string_table.extend(strings.iter().map(|&text| text.to_owned()));
    tables.attribute_table.truncate(1);
    tables.location_table.push(proto::Location { address: 5, ..Default::default() });
    tables.stack_table.push(proto::Stack { location_indices: vec![1] });
    let profile = one_profile(&mut request);
    (profile.time_unix_nano, profile.duration_nano, profile.profile_id) = (T0, 1_000, vec![7; 16]);
    profile.samples[0] = proto::Sample { stack_index: 1, timestamps_unix_nano: vec![T0], ..Default::default() };
    request
}

const TYPES: [&str; 4] = ["samples", "count", "cpu", "nanoseconds"];

fn value_type(kind: i64, unit: i64) -> EarlierValueType {
    EarlierValueType { type_strindex: kind, unit_strindex: unit, aggregation_temporality: 1 }
}

/// A request of 1.7 with a sample of these values at these times, of these types.
fn sample_1_7(types: &[(i64, i64)], values: &[i64], times: &[u64]) -> Vec<u8> {
    V1_7.write_with(&request(&TYPES), Way::BARE, &|profile| {
        profile.sample_type = types.iter().map(|&(kind, unit)| value_type(kind, unit)).collect();
        profile.samples[0].values = values.to_vec();
        profile.samples[0].timestamps_unix_nano = times.to_vec();
    })
}

/// Guarantees: a total in addition to times is dropped if it equals their number, and otherwise divided among them with
/// its sum preserved. A count of 1 with several times, and a value for each time, are converted as the eBPF profiler
/// means them.
/// rule: otep-0239#sample-values
#[test]
fn totals_are_divided() {
    let (count, cpu) = ((1, 2), (3, 4));
    let three = [T0, T0 + 1, T0 + 2];
    for (kind, values, times, expected) in [
        (count, &[3][..], &three[..], &[][..]),
        (cpu, &[3], &three, &[]),
        (cpu, &[10], &three, &[4, 3, 3]),
        (cpu, &[-10], &three, &[-3, -3, -4]),
        (cpu, &[0], &three, &[0, 0, 0]),
        (cpu, &[1], &three, &[1, 0, 0]),
        (cpu, &[i64::MIN], &three[..1], &[i64::MIN]),
        (count, &[2], &three, &[1, 1, 0]),
        (count, &[1], &three, &[]),
        (cpu, &[5, 6, 7], &three, &[5, 6, 7]),
        (cpu, &[], &three, &[]),
        (cpu, &[9], &[], &[9]),
    ] {
        let batch = read(Layout::V1_7, sample_1_7(&[kind], values, times)).profiles;
        assert_eq!(observed(&batch), [[(times.to_vec(), expected.to_vec())]], "{values:?}");
    }
    for (types, values, times) in
        [(&[count][..], &[1, 2][..], &three[..]), (&[count, cpu], &[1], &three), (&[count, cpu], &[], &three)]
    {
        let why = refused(Layout::V1_7, sample_1_7(types, values, times));
        assert!(why.contains("profiles[0].sample[0].value") && why.contains("types"), "{why}");
    }
}

/// Guarantees: each type becomes a profile with its values, which is otherwise equal; the first keeps the id and the
/// payload, the others have new ids, which are the same each time.
/// rule: otep-0239#profile-id, otep-0239#sample-type, otep-0239#default-sample-type
#[test]
fn a_profile_for_each_type() {
    let bytes = V1_7.write_with(&request(&TYPES), Way::BARE, &|profile| {
        profile.sample_type = vec![value_type(1, 2), value_type(3, 4), value_type(3, 4)];
        profile.samples[0].values = vec![2, 30, 31];
        profile.samples[0].timestamps_unix_nano = vec![T0, T0 + 1];
        profile.original_payload_format = "pprof".to_owned();
        profile.original_payload = vec![1, 2, 3];
        profile.default_sample_type = 2;
    });
    let decoded = read(Layout::V1_7, bytes.clone());
    assert_eq!(decoded.left_out, [("default_sample_type", 1)]);
    let batch = decoded.profiles;
    let times = vec![T0, T0 + 1];
    assert_eq!(observed(&batch), [[(times.clone(), vec![])], [(times.clone(), vec![15, 15])], [(times, vec![16, 15])]]);
    let profiles: Vec<_> = batch.profiles().collect();
    let kind = |of: usize| batch.dictionary().string(profiles[of].sample_type.kind);
    assert_eq!([kind(0), kind(1), kind(2)], ["samples", "cpu", "cpu"]);
    let ids: Vec<_> = profiles.iter().map(|profile| profile.profile_id.unwrap()).collect();
    assert_eq!(ids[0], [7; 16]);
    assert!(ids[1] != ids[0] && ids[1] != ids[2] && ids[2] != ids[0]);
    assert!(profiles.iter().map(|profile| profile.original_payload.len).eq([3, 0, 0]));
    let again = read(Layout::V1_7, bytes).profiles;
    assert!(again.profiles().map(|profile| profile.profile_id.unwrap()).eq(ids));
    // A refused profile counts once, as it was sent.
    let bytes = V1_7.write_with(&request(&TYPES), Way::BARE, &|profile| {
        profile.sample_type = vec![value_type(1, 2), value_type(3, 99)];
        profile.samples[0].values = vec![2, 30];
    });
    assert!(refused(Layout::V1_7, bytes).contains("sample_type.unit_strindex: index 99 is out of range"));
}

/// Guarantees: flags of mappings and locations, and comments, become the attributes that later releases use for them.
/// rule: otep-0239#drop-frames, otep-0239#comment, otep-0239#mapping-flags, otep-0239#is-folded
#[test]
fn flags_and_comments_are_attributes() {
    let mut profile = profile(&["a comment", "runtime.*"]);
    profile.tables.mapping_table = vec![
        EarlierMapping::default(),
        EarlierMapping { has_functions: true, has_inline_frames: true, memory_limit: 9, ..Default::default() },
    ];
    profile.tables.location_table =
        vec![EarlierLocation { is_folded: true, mapping_index: Some(1), ..Default::default() }];
    let bytes = request_1_3(&[EarlierProfile { comment_strindices: vec![1], drop_frames: 2, ..profile }]);
    let batch = read(Layout::V1_3, bytes).profiles;
    let dictionary = batch.dictionary();
    let location = dictionary.location(LocationId::new(1).unwrap());
    assert_eq!(dictionary.find(location.attributes, "pprof.location.is_folded"), Some(&Value::Bool(true)));
    let mapping = dictionary.mapping(location.mapping.unwrap());
    assert_eq!(dictionary.find(mapping.attributes, "pprof.mapping.has_functions"), Some(&Value::Bool(true)));
    assert_eq!(dictionary.find(mapping.attributes, "pprof.mapping.has_filenames"), None);
    let profile = batch.profiles().next().unwrap();
    let Some(Value::Array(comments)) = dictionary.find(profile.attributes, "pprof.profile.comment") else { panic!() };
    assert_eq!(texts(&batch, comments), ["a comment"]);
    let drop = dictionary.find(profile.attributes, "pprof.profile.drop_frames").cloned().unwrap();
    assert_eq!(texts(&batch, &[drop]), ["runtime.*"]);
}

fn texts<'a>(batch: &'a Profiles, values: &[Value]) -> Vec<&'a str> {
    let text = |value: &Value| match value {
        Value::String(id) => batch.dictionary().string(*id),
        other => panic!("{other:?}"),
    };
    values.iter().map(text).collect()
}

fn text_of<'a>(batch: &'a Profiles, value: Option<&Value>) -> &'a str {
    texts(batch, &[value.unwrap().clone()])[0]
}

/// A profile of 1.3 with one sample at one time, and with these strings after the empty one.
fn profile(strings: &[&str]) -> EarlierProfile {
    let string_table = [""].iter().chain(strings).map(|&text| text.to_owned()).collect();
    EarlierProfile {
        sample_type: vec![value_type(0, 0)],
        samples: vec![EarlierSample { timestamps_unix_nano: vec![T0], values: vec![1], ..Default::default() }],
        tables: EarlierTables { string_table, ..Default::default() },
        profile_id: vec![7; 16],
        time_unix_nano: T0,
        duration_nano: 1_000_000_000,
        ..Default::default()
    }
}

fn request_1_3(profiles: &[EarlierProfile]) -> Vec<u8> {
    V1_3.request(&Resource::default(), profiles)
}

/// Guarantees: labels become attributes with their unit, each distinct one once; the stack's own id is dropped and
/// counted.
/// rule: otep-0239#stacktrace-id, otep-0239#labels
#[test]
fn labels_are_attributes() {
    let mut profile = profile(&["thread.name", "main", "size", "By"]);
    let labels = vec![
        EarlierLabel { key: 1, str: 2, ..Default::default() },
        EarlierLabel { key: 3, num: 12, num_unit: 4, ..Default::default() },
    ];
    let sample = EarlierSample { labels, stacktrace_id_index: 2, ..profile.samples[0].clone() };
    profile.samples = vec![sample.clone(), sample];
    let decoded = read(Layout::V1_3, request_1_3(&[profile.clone()]));
    assert_eq!(decoded.left_out, [("stacktrace_id_index", 2)]);
    let batch = decoded.profiles;
    let dictionary = batch.dictionary();
    let set = batch.sample(0).attributes;
    assert_eq!(batch.sample(1).attributes, set);
    assert_eq!(text_of(&batch, dictionary.find(set, "thread.name")), "main");
    let size = dictionary.attributes(set).find(|of| dictionary.string(of.key) == "size").unwrap();
    assert_eq!((&size.value, dictionary.string(size.unit)), (&Value::Int(12), "By"));
    assert_eq!(dictionary.tables().attributes.len(), 3);
    profile.samples[0].labels[0].str = 9;
    assert!(refused(Layout::V1_3, request_1_3(&[profile])).contains("sample[0].label.str"));
}

/// Guarantees: build ids and frame types become the attributes of the semantic conventions; index 0 of a mapping and of
/// a link means none.
/// rule: otep-0239#sample-link, otep-0239#build-id-kind, otep-0239#build-id, otep-0239#location-mapping
/// rule: otep-0239#frame-type
#[test]
fn fields_of_1_3_are_attributes() {
    let mut profile = profile(&["app", "aa11", "bb22", "hotspot", "native"]);
    profile.tables.mapping_table = vec![
        EarlierMapping { filename_strindex: 1, ..Default::default() },
        EarlierMapping { build_id: 2, ..Default::default() },
        EarlierMapping { build_id: 3, build_id_kind: 1, ..Default::default() },
    ];
    let location =
        |mapping, kind| EarlierLocation { mapping_index: Some(mapping), type_index: kind, ..Default::default() };
    profile.tables.location_table = vec![location(0, 4), location(1, 5), location(2, 4)];
    profile.tables.link_table = vec![proto::Link { trace_id: vec![1; 16], span_id: vec![2; 8] }];
    let batch = read(Layout::V1_3, request_1_3(&[profile])).profiles;
    let dictionary = batch.dictionary();
    let location = |index| dictionary.location(LocationId::new(index).unwrap());
    assert_eq!(location(1).mapping, None);
    assert_eq!(batch.sample(0).link, None);
    let id = |index, key| {
        let mapping = dictionary.mapping(location(index).mapping.unwrap());
        text_of(&batch, dictionary.find(mapping.attributes, key))
    };
    assert_eq!(id(2, "process.executable.build_id.gnu"), "aa11");
    assert_eq!(id(3, "process.executable.build_id.profiling"), "bb22");
    let kind = |index| text_of(&batch, dictionary.find(location(index).attributes, "profile.frame.type"));
    assert_eq!([kind(1), kind(2), kind(3)], ["jvm", "native", "jvm"]);
}

/// Guarantees: locations are given as a range of `location_indices`, as a list, or, if the profile has no
/// `location_indices`, as a range of the table; an index or a range outside refuses the profile.
/// rule: otep-0239#location-indices, otep-0239#sample-stack
#[test]
fn locations_of_1_3() {
    let table: Vec<EarlierLocation> =
        (1..=3).map(|address| EarlierLocation { address, ..Default::default() }).collect();
    let bytes = |indices: &[i64], range: [i64; 2], list: &[i64]| {
        let mut profile = EarlierProfile { location_indices: indices.to_vec(), ..profile(&[]) };
        profile.tables.location_table = table.clone();
        let sample = &mut profile.samples[0];
        (sample.locations_start_index, sample.locations_length) = (range[0], range[1]);
        sample.location_index = list.to_vec();
        request_1_3(&[profile])
    };
    for (indices, range, list, expected) in [
        (&[2, 0, 1][..], [1, 2], &[][..], &[1, 2][..]),
        (&[], [1, 2], &[], &[2, 3]),
        (&[], [0, 0], &[2, 2, 0], &[3, 3, 1]),
        (&[2], [0, 1], &[0, 1], &[3]),
        (&[], [0, 0], &[], &[]),
    ] {
        let batch = read(Layout::V1_3, bytes(indices, range, list)).profiles;
        let dictionary = batch.dictionary();
        let stack = dictionary.stack(batch.sample(0).stack).map(|id| dictionary.location(id.unwrap()).address);
        assert!(stack.eq(expected.iter().copied()), "{indices:?} {range:?} {list:?}");
    }
    for (indices, range, list, place) in [
        (&[2, 0][..], [1, 2], &[][..], "locations_start_index"),
        // This is 2^64 - 1, since the field is unsigned.
        (&[], [1, -1], &[], "locations_start_index"),
        (&[3], [0, 1], &[], "location_indices[0]"),
        (&[], [0, 0], &[3], "sample[0].location_index"),
    ] {
        let why = refused(Layout::V1_3, bytes(indices, range, list));
        assert!(why.contains(place), "{why}");
    }
}

/// Guarantees: times of 1.3 are nanoseconds or milliseconds, which the range of their container shows; all times of a
/// profile have the same unit, and times that fit neither unit are refused with an error that names both.
/// rule: otep-0239#timestamps
#[test]
fn times_of_1_3() {
    let bytes = |times: &[u64], start: u64| {
        let mut profile = profile(&[]);
        profile.samples[0].timestamps_unix_nano = times.to_vec();
        profile.samples[0].values = vec![times.len() as i64];
        let duration_nano = if start == 0 { 0 } else { 60_000_000_000 };
        request_1_3(&[EarlierProfile { time_unix_nano: start, duration_nano, ..profile }])
    };
    let ms = T0 / 1_000_000;
    for times in [[T0, T0 + 7], [ms * 1_000_000, (ms + 7) * 1_000_000]] {
        let sent = if times[0] == T0 { times } else { times.map(|time| time / 1_000_000) };
        let batch = read(Layout::V1_3, bytes(&sent, T0)).profiles;
        assert_eq!(observed(&batch), [[(times.to_vec(), vec![])]]);
    }
    for (times, start) in [
        (&[T0, ms][..], T0),
        (&[T0 / 1_000], T0),
        (&[T0 / 1_000_000_000], T0),
        (&[0, T0], T0),
        (&[u64::MAX], T0),
        (&[T0], 0),
    ] {
        let why = refused(Layout::V1_3, bytes(times, start));
        assert!(why.contains("nanoseconds") && why.contains("milliseconds"), "{why}");
    }
}

/// Guarantees: the first mapping of 1.3 becomes the executable if the resource has none, no other attribute identifies
/// the process, and all profiles of the resource agree.
/// rule: otep-0239#mappings
#[test]
fn the_main_binary_of_1_3() {
    let attribute = |key: &str| pair(key, text("x"));
    let of = |file: &str, attributes: &[&str]| {
        let mut profile = profile(&[file]);
        profile.tables.mapping_table = vec![EarlierMapping { filename_strindex: 1, ..Default::default() }];
        profile.tables.attribute_table = attributes.iter().map(|key| attribute(key)).collect();
        profile
    };
    let read = |resource: &[&str], profiles: &[EarlierProfile]| {
        let attributes = resource.iter().map(|key| attribute(key)).collect();
        let resource = Resource { attributes, ..Default::default() };
        let batch = read(Layout::V1_3, V1_3.request(&resource, profiles)).profiles;
        let attributes = &batch.resources()[0].resource.attributes;
        let text = |key| batch.find(attributes, key).map(|value| text_of(&batch, Some(value)).to_owned());
        [text("process.executable.path"), text("process.executable.name")]
    };
    let some = |text: &str| Some(text.to_owned());
    assert_eq!(read(&[], &[of("/bin/app", &[])]), [some("/bin/app"), some("app")]);
    assert_eq!(read(&["service.name"], &[of("app", &[]), of("app", &["size"])]), [None, some("app")]);
    assert_eq!(read(&[], &[of("/bin/app", &[]), of("/bin/other", &[])]), [None, None]);
    assert_eq!(read(&[], &[of("/lib/libc.so", &["process.pid"])]), [None, None]);
    assert_eq!(read(&[], &[of("[vdso]", &[])]), [None, None]);
    assert_eq!(read(&["process.executable.name"], &[of("/bin/app", &[])]), [None, some("x")]);
}

/// Guarantees: an error in a profile's own tables refuses only that profile, and no index refers to the tables of
/// another profile.
/// rule: otep-0239#functions
#[test]
fn own_tables_are_own() {
    let with = |name_strindex| {
        let mut profile = profile(&["f", "g", "h"]);
        profile.tables.function_table = vec![EarlierFunction { name_strindex, ..Default::default() }];
        profile
    };
    let (good, bad) = (with(3), with(4));
    let decoded = read(Layout::V1_3, request_1_3(&[good.clone(), bad, good]));
    assert_eq!((decoded.profiles.profiles().count(), decoded.refused_profiles()), (2, 1));
    let why = decoded.refused[0].invalid.to_string();
    assert!(why.contains("profiles[1].function_table[0].name_strindex: index 4 is out of range"), "{why}");
}
