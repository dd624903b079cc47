//! Converts a batch to prost's structs, and prost's structs to a canonical form, so that both can be compared.

use opentelemetry_proto::tonic::collector::profiles::v1development::ExportProfilesServiceRequest;
use opentelemetry_proto::tonic::common::v1::{
    AnyValue, ArrayValue, EntityRef, InstrumentationScope, KeyValue, KeyValueList, any_value,
};
use opentelemetry_proto::tonic::profiles::v1development as proto;
use opentelemetry_proto::tonic::resource::v1::Resource;
use profbridge_model::{
    Attribute, AttributeId, AttributeSetId, Dictionary, FunctionId, LinkId, LocationId, MappingId, Profile, Profiles,
    StackId, StringId, Value, ValueType,
};
use prost::Message;

/// Converts the batch, with all its fields, to the canonical form.
pub(crate) fn to_prost(profiles: &Profiles) -> ExportProfilesServiceRequest {
    let dictionary = &**profiles.dictionary();
    let resource_profiles = profiles
        .resources()
        .iter()
        .map(|of| proto::ResourceProfiles {
            resource: Some(Resource {
                attributes: key_values(dictionary, &of.resource.attributes),
                dropped_attributes_count: of.resource.dropped_attributes_count,
                entity_refs: of
                    .resource
                    .entity_refs
                    .iter()
                    .map(|&span| EntityRef::decode(dictionary.bytes(span)).unwrap())
                    .collect(),
            }),
            scope_profiles: of
                .scopes
                .iter()
                .map(|of| proto::ScopeProfiles {
                    scope: Some(InstrumentationScope {
                        name: text(dictionary, of.scope.name),
                        version: text(dictionary, of.scope.version),
                        attributes: key_values(dictionary, &of.scope.attributes),
                        dropped_attributes_count: of.scope.dropped_attributes_count,
                    }),
                    profiles: of.profiles.iter().map(|of| profile(profiles, of)).collect(),
                    schema_url: text(dictionary, of.schema_url),
                })
                .collect(),
            schema_url: text(dictionary, of.schema_url),
        })
        .collect();
    ExportProfilesServiceRequest { resource_profiles, dictionary: Some(tables(dictionary)) }
}

fn text(dictionary: &Dictionary, id: Option<StringId>) -> String {
    dictionary.string(id).to_owned()
}

fn string(id: Option<StringId>) -> i32 {
    StringId::wire(id) as i32
}

fn set(dictionary: &Dictionary, id: Option<AttributeSetId>) -> Vec<i32> {
    dictionary.attribute_set(id).iter().map(|&item| AttributeId::wire(item) as i32).collect()
}

fn key_values(dictionary: &Dictionary, list: &[Attribute]) -> Vec<KeyValue> {
    let one = |of: &Attribute| KeyValue {
        key: text(dictionary, of.key),
        value: any_value(dictionary, &of.value),
        key_strindex: 0,
    };
    list.iter().map(one).collect()
}

fn any_value(dictionary: &Dictionary, value: &Value) -> Option<AnyValue> {
    use any_value::Value as Any;
    let value = match value {
        Value::Empty => return None,
        Value::String(id) => Any::StringValue(text(dictionary, *id)),
        Value::Bool(flag) => Any::BoolValue(*flag),
        Value::Int(number) => Any::IntValue(*number),
        Value::Double(number) => Any::DoubleValue(*number),
        Value::Bytes(span) => Any::BytesValue(dictionary.bytes(*span).to_vec()),
        Value::Array(values) => Any::ArrayValue(ArrayValue {
            values: values.iter().map(|value| any_value(dictionary, value).unwrap_or_default()).collect(),
        }),
        Value::KeyValueList(list) => Any::KvlistValue(KeyValueList { values: key_values(dictionary, list) }),
    };
    Some(AnyValue { value: Some(value) })
}

fn value_type(of: ValueType) -> Option<proto::ValueType> {
    Some(proto::ValueType { type_strindex: string(of.kind), unit_strindex: string(of.unit) })
}

fn profile(profiles: &Profiles, of: &Profile) -> proto::Profile {
    let dictionary = &**profiles.dictionary();
    let samples = profiles.samples(of).map(|sample| proto::Sample {
        stack_index: StackId::wire(sample.stack) as i32,
        attribute_indices: set(dictionary, sample.attributes),
        link_index: LinkId::wire(sample.link) as i32,
        values: sample.values().collect(),
        timestamps_unix_nano: sample.timestamps().collect(),
    });
    proto::Profile {
        sample_type: value_type(of.sample_type),
        samples: samples.collect(),
        time_unix_nano: of.time_unix_nano,
        duration_nano: of.duration_nano,
        period_type: value_type(of.period_type),
        period: of.period,
        profile_id: of.profile_id.map(Vec::from).unwrap_or_default(),
        dropped_attributes_count: of.dropped_attributes_count,
        original_payload_format: text(dictionary, of.original_payload_format),
        original_payload: dictionary.bytes(of.original_payload).to_vec(),
        attribute_indices: set(dictionary, of.attributes),
    }
}

fn tables(dictionary: &Dictionary) -> proto::ProfilesDictionary {
    let tables = dictionary.tables();
    let strings = (0..tables.table_strings).map(|index| text(dictionary, StringId::new(index)));
    let locations = tables.locations.iter().map(|of| proto::Location {
        mapping_index: MappingId::wire(of.mapping) as i32,
        address: of.address,
        lines: dictionary
            .lines(of)
            .iter()
            .map(|line| proto::Line {
                function_index: FunctionId::wire(line.function) as i32,
                line: line.line,
                column: line.column,
            })
            .collect(),
        attribute_indices: set(dictionary, of.attributes),
    });
    let mappings = tables.mappings.iter().map(|of| proto::Mapping {
        memory_start: of.memory_start,
        memory_limit: of.memory_limit,
        file_offset: of.file_offset,
        filename_strindex: string(of.filename),
        attribute_indices: set(dictionary, of.attributes),
    });
    let functions = tables.functions.iter().map(|of| proto::Function {
        name_strindex: string(of.name),
        system_name_strindex: string(of.system_name),
        filename_strindex: string(of.filename),
        start_line: of.start_line,
    });
    let links = tables.links.iter().map(|of| proto::Link {
        trace_id: unless_zero(of.trace_id.to_vec()),
        span_id: unless_zero(of.span_id.to_vec()),
    });
    let attributes = tables.attributes.iter().map(|of| proto::KeyValueAndUnit {
        key_strindex: string(of.key),
        value: any_value(dictionary, &of.value),
        unit_strindex: string(of.unit),
    });
    let stacks = (0..tables.stacks.len() as u32).map(|index| proto::Stack {
        location_indices: dictionary.stack(StackId::new(index)).map(|id| LocationId::wire(id) as i32).collect(),
    });
    proto::ProfilesDictionary {
        mapping_table: mappings.collect(),
        location_table: locations.collect(),
        function_table: functions.collect(),
        link_table: links.collect(),
        string_table: strings.collect(),
        attribute_table: attributes.collect(),
        stack_table: stacks.collect(),
    }
}

fn unless_zero(id: Vec<u8>) -> Vec<u8> {
    if id.iter().all(|&byte| byte == 0) { Vec::new() } else { id }
}

/// Returns the request with OTLP's meaning made explicit: references of attributes resolved, element 0 in each table,
/// and equal forms for encodings that protobuf does not distinguish.
pub(crate) fn canonical(mut request: ExportProfilesServiceRequest) -> ExportProfilesServiceRequest {
    let dictionary = request.dictionary.get_or_insert_default();
    fn lead<T: Default>(table: &mut Vec<T>) {
        if table.is_empty() {
            table.push(T::default());
        }
    }
    lead(&mut dictionary.mapping_table);
    lead(&mut dictionary.location_table);
    lead(&mut dictionary.function_table);
    lead(&mut dictionary.link_table);
    lead(&mut dictionary.string_table);
    lead(&mut dictionary.attribute_table);
    lead(&mut dictionary.stack_table);
    for link in &mut dictionary.link_table {
        link.trace_id = unless_zero(std::mem::take(&mut link.trace_id));
        link.span_id = unless_zero(std::mem::take(&mut link.span_id));
    }
    let strings = dictionary.string_table.clone();
    for attribute in &mut dictionary.attribute_table {
        resolve(&mut attribute.value, &strings);
    }
    for resource in &mut request.resource_profiles {
        resolve_all(&mut resource.resource.get_or_insert_default().attributes, &strings);
        for scope in &mut resource.scope_profiles {
            resolve_all(&mut scope.scope.get_or_insert_default().attributes, &strings);
            for profile in &mut scope.profiles {
                profile.sample_type.get_or_insert_default();
                profile.period_type.get_or_insert_default();
                profile.profile_id = unless_zero(std::mem::take(&mut profile.profile_id));
            }
        }
    }
    request
}

fn resolve_all(list: &mut [KeyValue], strings: &[String]) {
    for attribute in list {
        let index = std::mem::take(&mut attribute.key_strindex);
        if attribute.key.is_empty() {
            attribute.key.clone_from(&strings[index as usize]);
        }
        resolve(&mut attribute.value, strings);
    }
}

fn resolve(value: &mut Option<AnyValue>, strings: &[String]) {
    if let Some(AnyValue { value: None }) = value {
        *value = None;
    }
    if let Some(value) = value {
        resolve_value(value, strings);
    }
}

fn resolve_value(value: &mut AnyValue, strings: &[String]) {
    use any_value::Value as Any;
    match &mut value.value {
        Some(Any::StringValueStrindex(index)) => {
            value.value = Some(Any::StringValue(strings[*index as usize].clone()));
        }
        Some(Any::ArrayValue(array)) => {
            array.values.iter_mut().for_each(|value| resolve_value(value, strings));
        }
        Some(Any::KvlistValue(list)) => resolve_all(&mut list.values, strings),
        _ => {}
    }
}
