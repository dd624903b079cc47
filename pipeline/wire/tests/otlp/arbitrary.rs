//! Arbitrary requests that follow the rules.

use opentelemetry_proto::tonic::collector::profiles::v1development::ExportProfilesServiceRequest;
use opentelemetry_proto::tonic::common::v1::{AnyValue, EntityRef, InstrumentationScope, KeyValue, any_value};
use opentelemetry_proto::tonic::profiles::v1development as proto;
use opentelemetry_proto::tonic::resource::v1::Resource;
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;

use crate::traces::arbitrary::{any_values, key_value, text};

/// Requests in which every index is in range and every sample has a valid shape.
pub(crate) fn requests() -> impl Strategy<Value = ExportProfilesServiceRequest> {
    (option::weighted(0.9, dictionary()), vec(resource_profiles(), 0..4)).prop_map(|(dictionary, resource_profiles)| {
        let mut request = ExportProfilesServiceRequest { resource_profiles, dictionary };
        bring_into_range(&mut request);
        request
    })
}

fn index() -> impl Strategy<Value = i32> {
    0..1000i32
}

fn indices() -> impl Strategy<Value = Vec<i32>> {
    vec(index(), 0..4)
}

fn key_values(most: usize) -> impl Strategy<Value = Vec<KeyValue>> {
    vec(key_value(any_values(true), true), 0..most)
}

fn dictionary() -> impl Strategy<Value = proto::ProfilesDictionary> {
    let mapping =
        (any::<[u64; 3]>(), index(), indices()).prop_map(|([start, limit, offset], name, attributes)| proto::Mapping {
            memory_start: start,
            memory_limit: limit,
            file_offset: offset,
            filename_strindex: name,
            attribute_indices: attributes,
        });
    let line = (index(), any::<i64>(), 0..200i64).prop_map(|(function_index, line, column)| proto::Line {
        function_index,
        line,
        column,
    });
    let location = (index(), any::<u64>(), vec(line, 0..3), indices()).prop_map(
        |(mapping_index, address, lines, attribute_indices)| proto::Location {
            mapping_index,
            address,
            lines,
            attribute_indices,
        },
    );
    let function = (index(), index(), index(), any::<i64>()).prop_map(|(name, system, file, start_line)| {
        proto::Function { name_strindex: name, system_name_strindex: system, filename_strindex: file, start_line }
    });
    let link = (any::<[u8; 16]>(), any::<[u8; 8]>(), any::<bool>()).prop_map(|(trace, span, both)| proto::Link {
        trace_id: trace.to_vec(),
        span_id: if both { span.to_vec() } else { Vec::new() },
    });
    let attribute = (index(), option::of(any_values(true)), index())
        .prop_map(|(key_strindex, value, unit_strindex)| proto::KeyValueAndUnit { key_strindex, value, unit_strindex });
    let stack = vec(index(), 0..6).prop_map(|location_indices| proto::Stack { location_indices });
    (
        vec(mapping, 0..4),
        vec(location, 0..6),
        vec(function, 0..4),
        vec(link, 0..3),
        vec(text(), 0..8),
        vec(attribute, 0..6),
        vec(stack, 0..5),
    )
        .prop_map(|(mapping_table, location_table, function_table, link_table, strings, attributes, stacks)| {
            proto::ProfilesDictionary {
                mapping_table,
                location_table,
                function_table,
                link_table,
                string_table: strings,
                attribute_table: attributes,
                stack_table: stacks,
            }
        })
}

fn resource_profiles() -> impl Strategy<Value = proto::ResourceProfiles> {
    let entity = (text(), text(), vec(text(), 0..2), vec(text(), 0..2)).prop_map(|(schema_url, kind, ids, texts)| {
        EntityRef { schema_url, r#type: kind, id_keys: ids, description_keys: texts }
    });
    let resource = (key_values(4), any::<u32>(), vec(entity, 0..2)).prop_map(
        |(attributes, dropped_attributes_count, entity_refs)| Resource {
            attributes,
            dropped_attributes_count,
            entity_refs,
        },
    );
    (option::of(resource), vec(scope_profiles(), 0..3), text()).prop_map(|(resource, scope_profiles, schema_url)| {
        proto::ResourceProfiles { resource, scope_profiles, schema_url }
    })
}

fn scope_profiles() -> impl Strategy<Value = proto::ScopeProfiles> {
    let scope = (text(), text(), key_values(2), any::<u32>()).prop_map(
        |(name, version, attributes, dropped_attributes_count)| InstrumentationScope {
            name,
            version,
            attributes,
            dropped_attributes_count,
        },
    );
    (option::of(scope), vec(profile(), 0..3), text()).prop_map(|(scope, profiles, schema_url)| proto::ScopeProfiles {
        scope,
        profiles,
        schema_url,
    })
}

fn value_type() -> impl Strategy<Value = Option<proto::ValueType>> {
    option::of(
        (index(), index()).prop_map(|(kind, unit)| proto::ValueType { type_strindex: kind, unit_strindex: unit }),
    )
}

fn profile() -> impl Strategy<Value = proto::Profile> {
    let id = prop_oneof![Just(Vec::new()), Just(vec![0; 16]), any::<[u8; 16]>().prop_map(Vec::from)];
    let rest = (any::<u32>(), text(), vec(any::<u8>(), 0..5), indices());
    (value_type(), vec(sample(), 0..6), 0..1u64 << 62, 0..1u64 << 62, value_type(), any::<i64>(), id, rest).prop_map(
        |(sample_type, samples, time, duration, period_type, period, profile_id, rest)| proto::Profile {
            sample_type,
            samples,
            time_unix_nano: time,
            duration_nano: duration,
            period_type,
            period,
            profile_id,
            dropped_attributes_count: rest.0,
            original_payload_format: rest.1,
            original_payload: rest.2,
            attribute_indices: rest.3,
        },
    )
}

fn sample() -> impl Strategy<Value = proto::Sample> {
    let shape = prop_oneof![
        vec(any::<u64>(), 1..5).prop_map(|times| (times, Vec::new())),
        vec((any::<u64>(), any::<i64>()), 1..5).prop_map(|both| both.into_iter().unzip()),
        any::<i64>().prop_map(|value| (Vec::new(), vec![value])),
    ];
    (index(), indices(), index(), shape).prop_map(|(stack_index, attribute_indices, link_index, (times, values))| {
        proto::Sample { stack_index, attribute_indices, link_index, values, timestamps_unix_nano: times }
    })
}

/// Inserts the zero value at the front of every table, and reduces every index to the range of its table.
fn bring_into_range(request: &mut ExportProfilesServiceRequest) {
    let mut none = proto::ProfilesDictionary::default();
    let dictionary = request.dictionary.as_mut().unwrap_or(&mut none);
    // A table may be missing as a whole; otherwise its element 0 is the zero value.
    fn lead<T: Default>(table: &mut Vec<T>) -> i32 {
        if !table.is_empty() {
            table.insert(0, T::default());
        }
        table.len().max(1) as i32
    }
    let mappings = lead(&mut dictionary.mapping_table);
    let locations = lead(&mut dictionary.location_table);
    let functions = lead(&mut dictionary.function_table);
    let links = lead(&mut dictionary.link_table);
    let strings = lead(&mut dictionary.string_table);
    let attributes = lead(&mut dictionary.attribute_table);
    let stacks = lead(&mut dictionary.stack_table);
    let all = |list: &mut Vec<i32>, len: i32| list.iter_mut().for_each(|index| *index %= len);
    for of in &mut dictionary.mapping_table {
        of.filename_strindex %= strings;
        all(&mut of.attribute_indices, attributes);
    }
    for of in &mut dictionary.location_table {
        of.mapping_index %= mappings;
        of.lines.iter_mut().for_each(|line| line.function_index %= functions);
        all(&mut of.attribute_indices, attributes);
    }
    for of in &mut dictionary.function_table {
        of.name_strindex %= strings;
        of.system_name_strindex %= strings;
        of.filename_strindex %= strings;
    }
    for of in &mut dictionary.attribute_table {
        of.key_strindex %= strings;
        of.unit_strindex %= strings;
        of.value.iter_mut().for_each(|value| fold_value(value, strings));
    }
    for of in &mut dictionary.stack_table {
        all(&mut of.location_indices, locations);
    }
    let types = |of: &mut Option<proto::ValueType>| {
        if let Some(of) = of {
            of.type_strindex %= strings;
            of.unit_strindex %= strings;
        }
    };
    for resource in &mut request.resource_profiles {
        resource.resource.iter_mut().for_each(|of| fold_all(&mut of.attributes, strings));
        for scope in &mut resource.scope_profiles {
            scope.scope.iter_mut().for_each(|of| fold_all(&mut of.attributes, strings));
            for profile in &mut scope.profiles {
                types(&mut profile.sample_type);
                types(&mut profile.period_type);
                all(&mut profile.attribute_indices, attributes);
                for sample in &mut profile.samples {
                    sample.stack_index %= stacks;
                    sample.link_index %= links;
                    all(&mut sample.attribute_indices, attributes);
                    // Keys have to be unique, and 0 is not an attribute.
                    sample.attribute_indices.sort_unstable();
                    sample.attribute_indices.dedup();
                    sample.attribute_indices.retain(|&index| index != 0);
                }
            }
        }
    }
}

fn fold_all(list: &mut [KeyValue], strings: i32) {
    for of in list {
        of.key_strindex %= strings;
        of.value.iter_mut().for_each(|value| fold_value(value, strings));
    }
}

fn fold_value(value: &mut AnyValue, strings: i32) {
    use any_value::Value as Any;
    match &mut value.value {
        Some(Any::StringValueStrindex(index)) => *index %= strings,
        Some(Any::ArrayValue(array)) => array.values.iter_mut().for_each(|value| fold_value(value, strings)),
        Some(Any::KvlistValue(list)) => fold_all(&mut list.values, strings),
        _ => {}
    }
}
