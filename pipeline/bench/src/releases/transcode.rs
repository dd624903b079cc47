//! Requests of 1.10 as earlier releases write the same data.

use opentelemetry_proto::tonic::collector::profiles::v1development::ExportProfilesServiceRequest;
use opentelemetry_proto::tonic::common::v1::KeyValue;
use opentelemetry_proto::tonic::profiles::v1development as proto;
use opentelemetry_proto::tonic::resource::v1::Resource;
use prost::Message;

use super::messages::*;

/// The resources of a request, with each profile as `profile` writes it.
pub fn resources(request: &ExportProfilesServiceRequest, profile: &dyn Fn(&proto::Profile) -> Vec<u8>) -> Request {
    let scope = |of: &proto::ScopeProfiles| ScopeProfiles {
        scope: of.scope.clone(),
        profiles: of.profiles.iter().map(profile).collect(),
        schema_url: of.schema_url.clone(),
    };
    let resource = |of: &proto::ResourceProfiles| ResourceProfiles {
        resource: of.resource.clone(),
        scope_profiles: of.scope_profiles.iter().map(scope).collect(),
        schema_url: of.schema_url.clone(),
    };
    Request { resource_profiles: request.resource_profiles.iter().map(resource).collect(), dictionary: None }
}

fn sample_1_8(of: &proto::Sample) -> Sample1_8 {
    Sample1_8 {
        stack_index: of.stack_index,
        values: of.values.clone(),
        attribute_indices: of.attribute_indices.clone(),
        link_index: of.link_index,
        timestamps_unix_nano: of.timestamps_unix_nano.clone(),
    }
}

/// The same request as 1.9 writes it.
pub fn as_1_9(request: &ExportProfilesServiceRequest) -> Vec<u8> {
    let profile = |of: &proto::Profile| {
        Profile1_9 {
            sample_type: of.sample_type,
            samples: of.samples.iter().map(sample_1_8).collect(),
            time_unix_nano: of.time_unix_nano,
            duration_nano: of.duration_nano,
            period_type: of.period_type,
            period: of.period,
            profile_id: of.profile_id.clone(),
            dropped_attributes_count: of.dropped_attributes_count,
            original_payload_format: of.original_payload_format.clone(),
            original_payload: of.original_payload.clone(),
            attribute_indices: of.attribute_indices.clone(),
        }
        .encode_to_vec()
    };
    Request { dictionary: request.dictionary.clone(), ..resources(request, &profile) }.encode_to_vec()
}

fn value_type_1_8(of: &Option<proto::ValueType>) -> Option<ValueType1_8> {
    let of = of.as_ref()?;
    Some(ValueType1_8 {
        type_strindex: of.type_strindex,
        unit_strindex: of.unit_strindex,
        // DELTA.
        aggregation_temporality: 1,
    })
}

/// The same request as 1.8 writes it, with an id in each profile, empty or not, as Go's Collector does.
pub fn as_1_8(request: &ExportProfilesServiceRequest) -> Vec<u8> {
    as_1_8_with(request, &|_| {})
}

/// The same request as 1.8 writes it, each profile changed.
pub fn as_1_8_with(request: &ExportProfilesServiceRequest, change: &dyn Fn(&mut Profile1_8)) -> Vec<u8> {
    let profile = |of: &proto::Profile| {
        let mut profile = Profile1_8 {
            sample_type: value_type_1_8(&of.sample_type),
            sample: of.samples.iter().map(sample_1_8).collect(),
            time_unix_nano: of.time_unix_nano,
            duration_nano: of.duration_nano,
            period_type: value_type_1_8(&of.period_type),
            period: of.period,
            comment_strindices: Vec::new(),
            profile_id: Some(of.profile_id.clone()),
            dropped_attributes_count: of.dropped_attributes_count,
            original_payload_format: of.original_payload_format.clone(),
            original_payload: of.original_payload.clone(),
            attribute_indices: of.attribute_indices.clone(),
        };
        change(&mut profile);
        profile.encode_to_vec()
    };
    Request { dictionary: request.dictionary.clone(), ..resources(request, &profile) }.encode_to_vec()
}

/// A request around these containers.
pub fn request_1_3(containers: &[ProfileContainer]) -> Vec<u8> {
    request_1_3_of(Resource::default(), containers)
}

/// A request of a resource with these containers.
pub fn request_1_3_of(resource: Resource, containers: &[ProfileContainer]) -> Vec<u8> {
    let profiles = containers.iter().map(Message::encode_to_vec).collect();
    let scope = ScopeProfiles { profiles, ..ScopeProfiles::default() };
    let resource = ResourceProfiles { resource: Some(resource), scope_profiles: vec![scope], ..Default::default() };
    Request { resource_profiles: vec![resource], dictionary: None }.encode_to_vec()
}

/// The data as an earlier release can say it: nothing refers to what is all zero, the unit of an attribute is that of
/// all with its key, a single time has no value of 1 beside it.
pub fn plain(mut request: ExportProfilesServiceRequest) -> ExportProfilesServiceRequest {
    let dictionary = request.dictionary.get_or_insert_default();
    let mut units: Vec<(i32, i32)> = Vec::new();
    for attribute in &mut dictionary.attribute_table {
        let key = dictionary.string_table[attribute.key_strindex as usize].clone();
        let same = |of: &&(i32, i32)| dictionary.string_table[of.0 as usize] == key;
        attribute.unit_strindex = match units.iter().find(same) {
            _ if key.is_empty() => 0,
            Some((_, unit)) => *unit,
            None => {
                units.push((attribute.key_strindex, attribute.unit_strindex));
                attribute.unit_strindex
            }
        };
    }
    let text = |index: i32| dictionary.string_table[index as usize].is_empty();
    let zero = |of: &proto::KeyValueAndUnit| text(of.key_strindex) && of.value.is_none() && text(of.unit_strindex);
    let zeros: Vec<bool> = dictionary.attribute_table.iter().map(zero).collect();
    let attributes = |list: &mut Vec<i32>| list.retain(|&index| index != 0 && !zeros[index as usize]);
    dictionary.mapping_table.iter_mut().for_each(|of| attributes(&mut of.attribute_indices));
    dictionary.location_table.iter_mut().for_each(|of| attributes(&mut of.attribute_indices));
    let unless = |index: &mut i32, zero: bool| *index = if zero { 0 } else { *index };
    for of in &mut dictionary.location_table {
        let mapping = &dictionary.mapping_table[of.mapping_index as usize];
        let unnamed = dictionary.string_table[mapping.filename_strindex as usize].is_empty();
        let rest = proto::Mapping { filename_strindex: 0, ..mapping.clone() };
        unless(&mut of.mapping_index, unnamed && rest == proto::Mapping::default());
        for line in &mut of.lines {
            let of = &dictionary.function_table[line.function_index as usize];
            let names = [of.name_strindex, of.system_name_strindex, of.filename_strindex];
            let unnamed = names.iter().all(|&name| dictionary.string_table[name as usize].is_empty());
            unless(&mut line.function_index, unnamed && of.start_line == 0);
        }
    }
    let zero_location: Vec<bool> =
        dictionary.location_table.iter().map(|of| *of == proto::Location::default()).collect();
    for of in &mut dictionary.stack_table {
        of.location_indices.iter_mut().for_each(|index| unless(index, zero_location[*index as usize]));
    }
    for resource in &mut request.resource_profiles {
        for scope in &mut resource.scope_profiles {
            for profile in &mut scope.profiles {
                attributes(&mut profile.attribute_indices);
                for sample in &mut profile.samples {
                    attributes(&mut sample.attribute_indices);
                    let empty = dictionary.stack_table[sample.stack_index as usize].location_indices.is_empty();
                    unless(&mut sample.stack_index, empty);
                    if sample.timestamps_unix_nano.len() == 1 && sample.values == [1] {
                        sample.values.clear();
                    }
                }
            }
        }
    }
    request
}

/// How the same data can be said in different ways.
#[derive(Debug, Clone, Copy)]
pub struct Way {
    /// The tables have no zero element in front, as far as nothing refers to it.
    pub bare: bool,
    /// The value beside times that count 1 is left out, or else their number.
    pub no_totals: bool,
}

/// The tables, and how far indices of mappings, links and attributes move.
fn dictionary(of: &proto::ProfilesDictionary, way: Way) -> Dictionary1_7 {
    let skip = usize::from(way.bare);
    let moved = |list: &[i32]| list.iter().map(|index| index - skip as i32).collect::<Vec<i32>>();
    let mapping = |of: &proto::Mapping| Mapping1_4 {
        memory_start: of.memory_start,
        memory_limit: of.memory_limit,
        file_offset: of.file_offset,
        filename_strindex: of.filename_strindex,
        attribute_indices: moved(&of.attribute_indices),
        ..Mapping1_4::default()
    };
    let location = |of: &proto::Location| Location1_4 {
        mapping_index: (of.mapping_index != 0).then(|| of.mapping_index - skip as i32),
        address: of.address,
        line: of.lines.clone(),
        is_folded: false,
        attribute_indices: moved(&of.attribute_indices),
    };
    let attribute = |attribute: &proto::KeyValueAndUnit| KeyValue {
        key: of.string_table[attribute.key_strindex as usize].clone(),
        value: attribute.value.clone(),
        key_strindex: 0,
    };
    let with_unit = of.attribute_table.iter().filter(|of| of.unit_strindex != 0);
    let unit = |of: &proto::KeyValueAndUnit| AttributeUnit {
        attribute_key_strindex: of.key_strindex,
        unit_strindex: of.unit_strindex,
    };
    Dictionary1_7 {
        mapping_table: of.mapping_table.iter().skip(skip).map(mapping).collect(),
        location_table: of.location_table.iter().map(location).collect(),
        function_table: of.function_table.clone(),
        link_table: of.link_table.iter().skip(skip).cloned().collect(),
        string_table: of.string_table.clone(),
        attribute_table: of.attribute_table.iter().skip(skip).map(attribute).collect(),
        attribute_units: with_unit.map(unit).collect(),
    }
}

fn samples(request: &proto::ProfilesDictionary, of: &proto::Profile, way: Way) -> (Vec<Sample1_4>, Vec<i32>) {
    let skip = i32::from(way.bare);
    let mut locations = Vec::new();
    let samples = of.samples.iter().map(|of| {
        let stack = &request.stack_table[of.stack_index as usize].location_indices;
        let start = locations.len() as i32;
        locations.extend(stack);
        let count = of.timestamps_unix_nano.len();
        Sample1_4 {
            locations_start_index: start,
            locations_length: stack.len() as i32,
            value: if of.values.is_empty() && !way.no_totals { vec![count as i64] } else { of.values.clone() },
            attribute_indices: of.attribute_indices.iter().map(|index| index - skip).collect(),
            link_index: (of.link_index != 0).then(|| of.link_index - skip),
            timestamps_unix_nano: of.timestamps_unix_nano.clone(),
        }
    });
    (samples.collect(), locations)
}

fn profile_1_6(request: &proto::ProfilesDictionary, of: &proto::Profile, way: Way) -> Profile1_6 {
    let (sample, location_indices) = samples(request, of, way);
    Profile1_6 {
        sample_type: value_type_1_8(&of.sample_type).into_iter().collect(),
        sample,
        location_indices,
        time_nanos: of.time_unix_nano as i64,
        duration_nanos: of.duration_nano as i64,
        period_type: value_type_1_8(&of.period_type),
        period: of.period,
        profile_id: of.profile_id.clone(),
        dropped_attributes_count: of.dropped_attributes_count,
        original_payload_format: of.original_payload_format.clone(),
        original_payload: of.original_payload.clone(),
        attribute_indices: of.attribute_indices.iter().map(|index| index - i32::from(way.bare)).collect(),
        ..Profile1_6::default()
    }
}

/// The same data as 1.7 writes it.
pub fn as_1_7(request: &ExportProfilesServiceRequest, way: Way) -> Vec<u8> {
    as_1_7_with(request, way, &|_| {})
}

/// The same data as 1.7 writes it, each profile changed.
pub fn as_1_7_with(request: &ExportProfilesServiceRequest, way: Way, change: &dyn Fn(&mut Profile1_6)) -> Vec<u8> {
    let tables = &request.dictionary.clone().unwrap_or_default();
    let profile = |of: &proto::Profile| {
        let mut profile = profile_1_6(tables, of, way);
        change(&mut profile);
        profile.encode_to_vec()
    };
    let resource_profiles = resources(request, &profile).resource_profiles;
    Request1_7 { resource_profiles, dictionary: Some(dictionary(tables, way)) }.encode_to_vec()
}

/// The same data as 1.6 writes it.
pub fn as_1_6(request: &ExportProfilesServiceRequest, way: Way) -> Vec<u8> {
    let tables = &request.dictionary.clone().unwrap_or_default();
    let profile = |of: &proto::Profile| profile_1_6(tables, of, way).encode_to_vec();
    let Dictionary1_7 {
        mapping_table,
        location_table,
        function_table,
        link_table,
        string_table,
        attribute_table,
        attribute_units,
    } = dictionary(tables, way);
    Request1_6 {
        resource_profiles: resources(request, &profile).resource_profiles,
        mapping_table,
        location_table,
        function_table,
        link_table,
        string_table,
        attribute_table,
        attribute_units,
    }
    .encode_to_vec()
}

/// The same data as 1.4 writes it, or 1.5 where `indices` says so.
pub fn as_1_4(request: &ExportProfilesServiceRequest, way: Way, indices: bool) -> Vec<u8> {
    let tables = &request.dictionary.clone().unwrap_or_default();
    let profile = |of: &proto::Profile| {
        let Dictionary1_7 {
            mapping_table,
            location_table,
            function_table,
            link_table,
            string_table,
            attribute_table,
            attribute_units,
        } = dictionary(tables, way);
        let of = profile_1_6(tables, of, way);
        let own = |index: &i32| attribute_table[*index as usize].clone();
        Profile1_4 {
            sample_type: of.sample_type,
            sample: of.sample,
            location_indices: of.location_indices,
            time_nanos: of.time_nanos,
            duration_nanos: of.duration_nanos,
            period_type: of.period_type,
            period: of.period,
            comment_strindices: Vec::new(),
            default_sample_type_strindex: 0,
            profile_id: of.profile_id,
            attributes: if indices { Vec::new() } else { of.attribute_indices.iter().map(own).collect() },
            dropped_attributes_count: of.dropped_attributes_count,
            original_payload_format: of.original_payload_format,
            original_payload: of.original_payload,
            attribute_indices: if indices { of.attribute_indices } else { Vec::new() },
            mapping_table,
            location_table,
            function_table,
            link_table,
            string_table,
            attribute_table,
            attribute_units,
        }
        .encode_to_vec()
    };
    resources(request, &profile).encode_to_vec()
}

/// How 1.3 writes locations and times.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Locations {
    /// Ranges of `location_indices`.
    Ranges,
    /// One by one.
    Each,
}

/// The same data as 1.3 writes it, with times of this many nanoseconds. What has index 0 there is none, so the tables
/// keep their zero elements.
pub fn as_1_3(request: &ExportProfilesServiceRequest, locations: Locations, unit: u64, no_totals: bool) -> Vec<u8> {
    let tables = &request.dictionary.clone().unwrap_or_default();
    let way = Way { bare: false, no_totals };
    let value_type = |of: &ValueType1_8| ValueType1_3 {
        r#type: of.type_strindex.into(),
        unit: of.unit_strindex.into(),
        aggregation_temporality: of.aggregation_temporality,
    };
    let indices = |list: &[i32]| list.iter().map(|&index| index as u64).collect::<Vec<_>>();
    let profile = |profile: &proto::Profile| {
        let of = profile_1_6(tables, profile, way);
        let tables = dictionary(tables, way);
        let sample = |sample: &Sample1_4| {
            let range = sample.locations_start_index as usize..;
            let list = indices(&of.location_indices[range][..sample.locations_length as usize]);
            let ranges = locations == Locations::Ranges;
            Sample1_3 {
                location_index: if ranges { Vec::new() } else { list },
                value: sample.value.clone(),
                locations_start_index: if ranges { sample.locations_start_index as u64 } else { 0 },
                locations_length: if ranges { sample.locations_length as u64 } else { 0 },
                attributes: indices(&sample.attribute_indices),
                link: sample.link_index.unwrap_or(0) as u64,
                timestamps_unix_nano: sample.timestamps_unix_nano.iter().map(|time| time / unit).collect(),
                ..Sample1_3::default()
            }
        };
        let mapping = |of: &Mapping1_4| Mapping1_3 {
            memory_start: of.memory_start,
            memory_limit: of.memory_limit,
            file_offset: of.file_offset,
            filename: of.filename_strindex.into(),
            attributes: indices(&of.attribute_indices),
            ..Mapping1_3::default()
        };
        let location = |of: &Location1_4| Location1_3 {
            mapping_index: of.mapping_index.unwrap_or(0) as u64,
            address: of.address,
            line: of.line.clone(),
            attributes: indices(&of.attribute_indices),
            ..Location1_3::default()
        };
        let function = |of: &proto::Function| Function1_3 {
            id: 0,
            name: of.name_strindex.into(),
            system_name: of.system_name_strindex.into(),
            filename: of.filename_strindex.into(),
            start_line: of.start_line,
        };
        ProfileContainer {
            profile_id: of.profile_id.clone(),
            start_time_unix_nano: profile.time_unix_nano,
            end_time_unix_nano: profile.time_unix_nano + profile.duration_nano,
            attributes: of.attribute_indices.iter().map(|&i| tables.attribute_table[i as usize].clone()).collect(),
            dropped_attributes_count: of.dropped_attributes_count,
            original_payload_format: of.original_payload_format.clone(),
            original_payload: of.original_payload.clone(),
            profile: Some(Profile1_3 {
                sample_type: of.sample_type.iter().map(value_type).collect(),
                sample: of.sample.iter().map(sample).collect(),
                mapping: tables.mapping_table.iter().map(mapping).collect(),
                location: tables.location_table.iter().map(location).collect(),
                function: tables.function_table.iter().map(function).collect(),
                string_table: tables.string_table,
                period_type: of.period_type.as_ref().map(value_type),
                period: of.period,
                location_indices: of.location_indices.iter().map(|&index| index.into()).collect(),
                attribute_table: tables.attribute_table,
                attribute_units: tables.attribute_units,
                link_table: tables.link_table,
                ..Profile1_3::default()
            }),
        }
        .encode_to_vec()
    };
    resources(request, &profile).encode_to_vec()
}

/// The same data in each earlier layout, the oldest first, with the versions that have it.
pub fn earlier(request: &ExportProfilesServiceRequest) -> [(&'static str, Vec<u8>); 6] {
    let way = Way { bare: true, no_totals: false };
    [
        ("1.3", as_1_3(request, Locations::Ranges, 1, false)),
        ("1.4", as_1_4(request, way, true)),
        ("1.6", as_1_6(request, way)),
        ("1.7", as_1_7(request, way)),
        ("1.8", as_1_8(request)),
        ("1.9", as_1_9(request)),
    ]
}
