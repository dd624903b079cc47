//! Tests to which OTLP field each pprof field is converted, with prost as the decoder.

use bytes::Bytes;
use opentelemetry_proto::tonic::collector::profiles::v1development::ExportProfilesServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::profiles::v1development::ProfilesDictionary;
use profbridge_model::Builder;
use profbridge_wire::otlp::{EncodeOptions, Limits, encode};
use profbridge_wire::pprof::{self, decode, groups};
use prost::Message;

use crate::pprof::proto::{Label, PprofLocation, PprofMapping, PprofProfile, PprofSample};
use crate::pprof::refusals::valid;

fn otlp(profile: &PprofProfile) -> ExportProfilesServiceRequest {
    let batch = decode(Bytes::from(profile.encode_to_vec()), &Limits::default()).unwrap().profiles;
    ExportProfilesServiceRequest::decode(&encode(&batch, &EncodeOptions::default())[..]).unwrap()
}

/// Formats attributes as text.
fn attributes(dictionary: &ProfilesDictionary, indices: &[i32]) -> Vec<String> {
    let text = |index: i32| &dictionary.string_table[index as usize];
    let said = |&index: &i32| {
        let attribute = &dictionary.attribute_table[index as usize];
        let value = attribute.value.as_ref().and_then(|value| value.value.as_ref());
        let value = match value.unwrap() {
            Value::StringValue(text) => format!("{text:?}"),
            Value::IntValue(number) => number.to_string(),
            Value::BoolValue(flag) => flag.to_string(),
            Value::ArrayValue(array) => format!("{} values", array.values.len()),
            other => panic!("{other:?}"),
        };
        format!("{}={value}{}", text(attribute.key_strindex), text(attribute.unit_strindex))
    };
    indices.iter().map(said).collect()
}

/// Guarantees: each field of pprof is converted to the OTLP field or attribute that the Collector's translator and the
/// semantic conventions define, and each sample type becomes a separate profile.
/// rule: otep-0239#pprof
#[test]
fn fields() {
    let mut profile = valid();
    let second = profile.value_type("samples", "count");
    profile.sample_type.insert(0, second);
    profile.sample[0].value.insert(0, 3);
    profile.mapping.push(PprofMapping { id: 2, ..PprofMapping::default() });
    profile.location.push(PprofLocation { id: 2, mapping_id: 2, is_folded: true, ..PprofLocation::default() });
    profile.sample[0].location_id.push(2);
    let mut text = |text: &str| profile.text(text);
    let texts =
        ["runtime\\..*", "main\\.main", "https://pprof", "one", "two", "abc123", "cpu", "size", "bytes", "/bin/x"];
    let [drop, keep, url, one, two, build_id, cpu, size, bytes, file] = texts.map(&mut text);
    let [key, value, trace, trace_id, span, span_id] =
        ["worker", "w1", "trace_id", "0102030405060708090a0b0c0d0e0f10", "span_id", "0102030405060708"].map(&mut text);
    (profile.drop_frames, profile.keep_frames, profile.doc_url) = (drop, keep, url);
    (profile.comment, profile.default_sample_type) = (vec![one, two], cpu);
    (profile.time_nanos, profile.duration_nanos, profile.period) = (1_000, 2_000, 10_000_000);
    profile.period_type = Some(profile.sample_type[1]);
    profile.mapping[0] = PprofMapping {
        filename: file,
        build_id,
        has_functions: true,
        has_inline_frames: true,
        file_offset: 64,
        ..profile.mapping[0]
    };
    profile.sample[0].label =
        [[key, value, 0, 0], [size, 0, 64, bytes], [trace, trace_id, 0, 0], [span, span_id, 0, 0]]
            .map(|[key, str, num, num_unit]| Label { key, str, num, num_unit })
            .to_vec();

    let request = otlp(&profile);
    let dictionary = request.dictionary.as_ref().unwrap();
    let text = |index: i32| dictionary.string_table[index as usize].as_str();
    let scope = &request.resource_profiles[0].scope_profiles[0];
    let of_scope: Vec<_> = scope.scope.iter().flat_map(|scope| &scope.attributes).map(|kv| kv.key.clone()).collect();
    assert_eq!(of_scope, ["pprof.scope.default_sample_type"]);
    let types: Vec<_> = scope
        .profiles
        .iter()
        .map(|profile| {
            let sample_type = profile.sample_type.as_ref().unwrap();
            (text(sample_type.type_strindex), text(sample_type.unit_strindex), profile.samples[0].values.clone())
        })
        .collect();
    assert_eq!(types, [("samples", "count", vec![3]), ("cpu", "nanoseconds", vec![10_000_000])]);
    for profile in &scope.profiles {
        assert_eq!((profile.time_unix_nano, profile.duration_nano, profile.period), (1_000, 2_000, 10_000_000));
        assert_eq!(text(profile.period_type.as_ref().unwrap().type_strindex), "cpu");
        assert_eq!(
            attributes(dictionary, &profile.attribute_indices),
            [
                r#"pprof.profile.drop_frames="runtime\\..*""#,
                r#"pprof.profile.keep_frames="main\\.main""#,
                r#"pprof.profile.doc_url="https://pprof""#,
                "pprof.profile.comment=2 values",
            ]
        );
        let sample = &profile.samples[0];
        assert!(sample.timestamps_unix_nano.is_empty());
        assert_eq!(attributes(dictionary, &sample.attribute_indices), [r#"worker="w1""#, "size=64bytes"]);
        let link = &dictionary.link_table[sample.link_index as usize];
        assert_eq!((link.trace_id[15], &link.span_id[..]), (0x10, &[1, 2, 3, 4, 5, 6, 7, 8][..]));
        assert_eq!(dictionary.stack_table[sample.stack_index as usize].location_indices, [1, 2]);
    }
    let mapping = &dictionary.mapping_table[1];
    assert_eq!((mapping.memory_start, mapping.memory_limit, mapping.file_offset), (0x1000, 0x2000, 64));
    assert_eq!(text(mapping.filename_strindex), "/bin/x");
    assert_eq!(
        attributes(dictionary, &mapping.attribute_indices),
        [
            r#"process.executable.build_id.gnu="abc123""#,
            "pprof.mapping.has_functions=true",
            "pprof.mapping.has_inline_frames=true"
        ]
    );
    let folded = &dictionary.location_table[2];
    assert_eq!(attributes(dictionary, &folded.attribute_indices), ["pprof.location.is_folded=true"]);
    assert_eq!((folded.mapping_index, folded.lines.len()), (2, 0));
    let named = &dictionary.location_table[1];
    let function = &dictionary.function_table[named.lines[0].function_index as usize];
    assert_eq!((text(function.name_strindex), named.lines[0].line), ("main.work", 7));
}

/// Guarantees: profiles that do not belong to one pprof profile are written separately, each with only the elements
/// that its samples need; a sample with times counts their number, or the sum of its values; data that pprof cannot
/// represent is counted.
#[test]
fn from_otlp() {
    let mut builder = Builder::new();
    builder.resource(&[]);
    builder.scope("", "");
    builder.on_cpu(100);
    let [leaf, root] = ["leaf", "root"].map(|name| builder.frame(name, "x.go", 1));
    let (deep, flat) = (builder.stack(&[leaf, root]), builder.stack(&[root, None]));
    let thread = builder.attributes(&[
        ("thread.id", 7.into()),
        ("ok", true.into()),
        ("list", profbridge_model::builder::Any::Array(&[])),
    ]);
    builder.sample(deep, thread, None, &[5, 6, 7], &[]);
    builder.on_cpu(100);
    let link = builder.link([1; 16], [2; 8]);
    builder.sample(flat, None, link, &[5, 6], &[10, -3]);
    let batch = builder.finish().unwrap();
    let groups = groups(&batch);
    let written: Vec<_> = groups.iter().map(|group| pprof::encode(&batch, group)).collect();
    let left_out: Vec<_> = written.iter().map(|one| (one.left_out_times, one.left_out_attributes)).collect();
    assert_eq!(left_out, [(1, 1), (1, 0)]);
    let profiles: Vec<_> = written.iter().map(|one| PprofProfile::decode(&one.bytes[..]).unwrap()).collect();
    let of = |profile: &PprofProfile| (profile.sample[0].value.clone(), profile.location.len(), profile.function.len());
    assert_eq!((of(&profiles[0]), of(&profiles[1])), ((vec![3], 2, 2), (vec![7], 2, 1)));
    let labels = |profile: &PprofProfile| -> Vec<String> {
        let PprofSample { label, .. } = &profile.sample[0];
        let text = |index: i64| &profile.string_table[index as usize];
        label.iter().map(|label| format!("{}={}{}", text(label.key), text(label.str), label.num)).collect()
    };
    assert_eq!(labels(&profiles[0]), ["thread.id=7", "ok=true0"]);
    assert_eq!(labels(&profiles[1]), ["trace_id=010101010101010101010101010101010", "span_id=02020202020202020"]);
    assert_eq!(profiles[1].location[0], PprofLocation { id: 1, ..PprofLocation::default() });
}
