//! The messages of earlier releases of opentelemetry-proto as prost writes them, field by field as in the release's
//! `profiles.proto`: an oracle that shares nothing with the readers.
//!
//! What has not changed (resources, scopes, attribute values) is that of the crate. Messages around profiles hold those
//! already encoded.

use opentelemetry_proto::tonic::collector::profiles::v1development::ExportProfilesServiceRequest;
use opentelemetry_proto::tonic::common::v1::{InstrumentationScope, KeyValue};
use opentelemetry_proto::tonic::profiles::v1development as proto;
use opentelemetry_proto::tonic::resource::v1::Resource;
use prost::Message;

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Request {
    #[prost(message, repeated, tag = "1")]
    pub(crate) resource_profiles: Vec<ResourceProfiles>,
    #[prost(message, optional, tag = "2")]
    dictionary: Option<proto::ProfilesDictionary>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct ResourceProfiles {
    #[prost(message, optional, tag = "1")]
    resource: Option<Resource>,
    #[prost(message, repeated, tag = "2")]
    scope_profiles: Vec<ScopeProfiles>,
    #[prost(string, tag = "3")]
    schema_url: String,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct ScopeProfiles {
    #[prost(message, optional, tag = "1")]
    scope: Option<InstrumentationScope>,
    #[prost(bytes = "vec", repeated, tag = "2")]
    profiles: Vec<Vec<u8>>,
    #[prost(string, tag = "3")]
    schema_url: String,
}

/// The resources of a request, with each profile as `profile` writes it.
pub(crate) fn resources(
    request: &ExportProfilesServiceRequest,
    profile: &dyn Fn(&proto::Profile) -> Vec<u8>,
) -> Request {
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

/// `Sample` of 1.8 and 1.9.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Sample1_8 {
    #[prost(int32, tag = "1")]
    pub(crate) stack_index: i32,
    #[prost(int64, repeated, tag = "2")]
    pub(crate) values: Vec<i64>,
    #[prost(int32, repeated, tag = "3")]
    pub(crate) attribute_indices: Vec<i32>,
    #[prost(int32, tag = "4")]
    pub(crate) link_index: i32,
    #[prost(fixed64, repeated, tag = "5")]
    pub(crate) timestamps_unix_nano: Vec<u64>,
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

/// `Profile` of 1.9.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Profile1_9 {
    #[prost(message, optional, tag = "1")]
    pub(crate) sample_type: Option<proto::ValueType>,
    #[prost(message, repeated, tag = "2")]
    pub(crate) samples: Vec<Sample1_8>,
    #[prost(fixed64, tag = "3")]
    pub(crate) time_unix_nano: u64,
    #[prost(uint64, tag = "4")]
    pub(crate) duration_nano: u64,
    #[prost(message, optional, tag = "5")]
    pub(crate) period_type: Option<proto::ValueType>,
    #[prost(int64, tag = "6")]
    pub(crate) period: i64,
    #[prost(bytes = "vec", tag = "7")]
    pub(crate) profile_id: Vec<u8>,
    #[prost(uint32, tag = "8")]
    pub(crate) dropped_attributes_count: u32,
    #[prost(string, tag = "9")]
    pub(crate) original_payload_format: String,
    #[prost(bytes = "vec", tag = "10")]
    pub(crate) original_payload: Vec<u8>,
    #[prost(int32, repeated, tag = "11")]
    pub(crate) attribute_indices: Vec<i32>,
}

/// The same request as 1.9 writes it.
pub(crate) fn as_1_9(request: &ExportProfilesServiceRequest) -> Vec<u8> {
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

/// `ValueType` up to 1.8.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct ValueType1_8 {
    #[prost(int32, tag = "1")]
    pub(crate) type_strindex: i32,
    #[prost(int32, tag = "2")]
    pub(crate) unit_strindex: i32,
    #[prost(int32, tag = "3")]
    pub(crate) aggregation_temporality: i32,
}

pub(crate) fn value_type_1_8(of: &Option<proto::ValueType>) -> Option<ValueType1_8> {
    let of = of.as_ref()?;
    Some(ValueType1_8 {
        type_strindex: of.type_strindex,
        unit_strindex: of.unit_strindex,
        // DELTA.
        aggregation_temporality: 1,
    })
}

/// `Profile` of 1.8.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Profile1_8 {
    #[prost(message, optional, tag = "1")]
    pub(crate) sample_type: Option<ValueType1_8>,
    #[prost(message, repeated, tag = "2")]
    pub(crate) sample: Vec<Sample1_8>,
    #[prost(fixed64, tag = "3")]
    pub(crate) time_unix_nano: u64,
    #[prost(uint64, tag = "4")]
    pub(crate) duration_nano: u64,
    #[prost(message, optional, tag = "5")]
    pub(crate) period_type: Option<ValueType1_8>,
    #[prost(int64, tag = "6")]
    pub(crate) period: i64,
    #[prost(int32, repeated, tag = "7")]
    pub(crate) comment_strindices: Vec<i32>,
    #[prost(bytes = "vec", optional, tag = "8")]
    pub(crate) profile_id: Option<Vec<u8>>,
    #[prost(uint32, tag = "9")]
    pub(crate) dropped_attributes_count: u32,
    #[prost(string, tag = "10")]
    pub(crate) original_payload_format: String,
    #[prost(bytes = "vec", tag = "11")]
    pub(crate) original_payload: Vec<u8>,
    #[prost(int32, repeated, tag = "12")]
    pub(crate) attribute_indices: Vec<i32>,
}

/// The same request as 1.8 writes it, with an id in each profile, empty or not, as Go's Collector does.
pub(crate) fn as_1_8(request: &ExportProfilesServiceRequest) -> Vec<u8> {
    as_1_8_with(request, &|_| {})
}

/// The same request as 1.8 writes it, each profile changed.
pub(crate) fn as_1_8_with(request: &ExportProfilesServiceRequest, change: &dyn Fn(&mut Profile1_8)) -> Vec<u8> {
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

/// `Sample` of 1.4 to 1.7.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Sample1_4 {
    #[prost(int32, tag = "1")]
    pub(crate) locations_start_index: i32,
    #[prost(int32, tag = "2")]
    pub(crate) locations_length: i32,
    #[prost(int64, repeated, tag = "3")]
    pub(crate) value: Vec<i64>,
    #[prost(int32, repeated, tag = "4")]
    pub(crate) attribute_indices: Vec<i32>,
    #[prost(int32, optional, tag = "5")]
    pub(crate) link_index: Option<i32>,
    #[prost(uint64, repeated, tag = "6")]
    pub(crate) timestamps_unix_nano: Vec<u64>,
}

/// `Mapping` of 1.4 to 1.7.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Mapping1_4 {
    #[prost(uint64, tag = "1")]
    pub(crate) memory_start: u64,
    #[prost(uint64, tag = "2")]
    pub(crate) memory_limit: u64,
    #[prost(uint64, tag = "3")]
    pub(crate) file_offset: u64,
    #[prost(int32, tag = "4")]
    pub(crate) filename_strindex: i32,
    #[prost(int32, repeated, tag = "5")]
    pub(crate) attribute_indices: Vec<i32>,
    #[prost(bool, tag = "6")]
    pub(crate) has_functions: bool,
    #[prost(bool, tag = "7")]
    pub(crate) has_filenames: bool,
    #[prost(bool, tag = "8")]
    pub(crate) has_line_numbers: bool,
    #[prost(bool, tag = "9")]
    pub(crate) has_inline_frames: bool,
}

/// `Location` of 1.4 to 1.7.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Location1_4 {
    #[prost(int32, optional, tag = "1")]
    pub(crate) mapping_index: Option<i32>,
    #[prost(uint64, tag = "2")]
    pub(crate) address: u64,
    #[prost(message, repeated, tag = "3")]
    pub(crate) line: Vec<proto::Line>,
    #[prost(bool, tag = "4")]
    pub(crate) is_folded: bool,
    #[prost(int32, repeated, tag = "5")]
    pub(crate) attribute_indices: Vec<i32>,
}

/// `AttributeUnit` of 1.4 to 1.7.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct AttributeUnit {
    #[prost(int32, tag = "1")]
    pub(crate) attribute_key_strindex: i32,
    #[prost(int32, tag = "2")]
    pub(crate) unit_strindex: i32,
}

/// The tables, as each release has them somewhere.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Dictionary1_7 {
    #[prost(message, repeated, tag = "1")]
    pub(crate) mapping_table: Vec<Mapping1_4>,
    #[prost(message, repeated, tag = "2")]
    pub(crate) location_table: Vec<Location1_4>,
    #[prost(message, repeated, tag = "3")]
    pub(crate) function_table: Vec<proto::Function>,
    #[prost(message, repeated, tag = "4")]
    pub(crate) link_table: Vec<proto::Link>,
    #[prost(string, repeated, tag = "5")]
    pub(crate) string_table: Vec<String>,
    #[prost(message, repeated, tag = "6")]
    pub(crate) attribute_table: Vec<KeyValue>,
    #[prost(message, repeated, tag = "7")]
    pub(crate) attribute_units: Vec<AttributeUnit>,
}

/// A request of 1.7.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Request1_7 {
    #[prost(message, repeated, tag = "1")]
    pub(crate) resource_profiles: Vec<ResourceProfiles>,
    #[prost(message, optional, tag = "2")]
    pub(crate) dictionary: Option<Dictionary1_7>,
}

/// `ProfilesData` of 1.6.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Request1_6 {
    #[prost(message, repeated, tag = "1")]
    pub(crate) resource_profiles: Vec<ResourceProfiles>,
    #[prost(message, repeated, tag = "2")]
    pub(crate) mapping_table: Vec<Mapping1_4>,
    #[prost(message, repeated, tag = "3")]
    pub(crate) location_table: Vec<Location1_4>,
    #[prost(message, repeated, tag = "4")]
    pub(crate) function_table: Vec<proto::Function>,
    #[prost(message, repeated, tag = "5")]
    pub(crate) link_table: Vec<proto::Link>,
    #[prost(string, repeated, tag = "6")]
    pub(crate) string_table: Vec<String>,
    #[prost(message, repeated, tag = "7")]
    pub(crate) attribute_table: Vec<KeyValue>,
    #[prost(message, repeated, tag = "8")]
    pub(crate) attribute_units: Vec<AttributeUnit>,
}

/// `Profile` of 1.6 and 1.7.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Profile1_6 {
    #[prost(message, repeated, tag = "1")]
    pub(crate) sample_type: Vec<ValueType1_8>,
    #[prost(message, repeated, tag = "2")]
    pub(crate) sample: Vec<Sample1_4>,
    #[prost(int32, repeated, tag = "3")]
    pub(crate) location_indices: Vec<i32>,
    #[prost(int64, tag = "4")]
    pub(crate) time_nanos: i64,
    #[prost(int64, tag = "5")]
    pub(crate) duration_nanos: i64,
    #[prost(message, optional, tag = "6")]
    pub(crate) period_type: Option<ValueType1_8>,
    #[prost(int64, tag = "7")]
    pub(crate) period: i64,
    #[prost(int32, repeated, tag = "8")]
    pub(crate) comment_strindices: Vec<i32>,
    #[prost(int32, tag = "9")]
    pub(crate) default_sample_type_index: i32,
    #[prost(bytes = "vec", tag = "10")]
    pub(crate) profile_id: Vec<u8>,
    #[prost(uint32, tag = "11")]
    pub(crate) dropped_attributes_count: u32,
    #[prost(string, tag = "12")]
    pub(crate) original_payload_format: String,
    #[prost(bytes = "vec", tag = "13")]
    pub(crate) original_payload: Vec<u8>,
    #[prost(int32, repeated, tag = "14")]
    pub(crate) attribute_indices: Vec<i32>,
}

/// `Profile` of 1.4 and 1.5; 1.4 has `attributes`, 1.5 `attribute_indices`.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Profile1_4 {
    #[prost(message, repeated, tag = "1")]
    pub(crate) sample_type: Vec<ValueType1_8>,
    #[prost(message, repeated, tag = "2")]
    pub(crate) sample: Vec<Sample1_4>,
    #[prost(message, repeated, tag = "3")]
    pub(crate) mapping_table: Vec<Mapping1_4>,
    #[prost(message, repeated, tag = "4")]
    pub(crate) location_table: Vec<Location1_4>,
    #[prost(int32, repeated, tag = "5")]
    pub(crate) location_indices: Vec<i32>,
    #[prost(message, repeated, tag = "6")]
    pub(crate) function_table: Vec<proto::Function>,
    #[prost(message, repeated, tag = "7")]
    pub(crate) attribute_table: Vec<KeyValue>,
    #[prost(message, repeated, tag = "8")]
    pub(crate) attribute_units: Vec<AttributeUnit>,
    #[prost(message, repeated, tag = "9")]
    pub(crate) link_table: Vec<proto::Link>,
    #[prost(string, repeated, tag = "10")]
    pub(crate) string_table: Vec<String>,
    #[prost(int64, tag = "11")]
    pub(crate) time_nanos: i64,
    #[prost(int64, tag = "12")]
    pub(crate) duration_nanos: i64,
    #[prost(message, optional, tag = "13")]
    pub(crate) period_type: Option<ValueType1_8>,
    #[prost(int64, tag = "14")]
    pub(crate) period: i64,
    #[prost(int32, repeated, tag = "15")]
    pub(crate) comment_strindices: Vec<i32>,
    #[prost(int32, tag = "16")]
    pub(crate) default_sample_type_strindex: i32,
    #[prost(bytes = "vec", tag = "17")]
    pub(crate) profile_id: Vec<u8>,
    #[prost(message, repeated, tag = "18")]
    pub(crate) attributes: Vec<KeyValue>,
    #[prost(uint32, tag = "19")]
    pub(crate) dropped_attributes_count: u32,
    #[prost(string, tag = "20")]
    pub(crate) original_payload_format: String,
    #[prost(bytes = "vec", tag = "21")]
    pub(crate) original_payload: Vec<u8>,
    #[prost(int32, repeated, tag = "22")]
    pub(crate) attribute_indices: Vec<i32>,
}

/// `ProfileContainer` of 1.3.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct ProfileContainer {
    #[prost(bytes = "vec", tag = "1")]
    pub(crate) profile_id: Vec<u8>,
    #[prost(fixed64, tag = "2")]
    pub(crate) start_time_unix_nano: u64,
    #[prost(fixed64, tag = "3")]
    pub(crate) end_time_unix_nano: u64,
    #[prost(message, repeated, tag = "4")]
    pub(crate) attributes: Vec<KeyValue>,
    #[prost(uint32, tag = "5")]
    pub(crate) dropped_attributes_count: u32,
    #[prost(string, tag = "6")]
    pub(crate) original_payload_format: String,
    #[prost(bytes = "vec", tag = "7")]
    pub(crate) original_payload: Vec<u8>,
    #[prost(message, optional, tag = "8")]
    pub(crate) profile: Option<Profile1_3>,
}

/// `Profile` of 1.3.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Profile1_3 {
    #[prost(message, repeated, tag = "1")]
    pub(crate) sample_type: Vec<ValueType1_3>,
    #[prost(message, repeated, tag = "2")]
    pub(crate) sample: Vec<Sample1_3>,
    #[prost(message, repeated, tag = "3")]
    pub(crate) mapping: Vec<Mapping1_3>,
    #[prost(message, repeated, tag = "4")]
    pub(crate) location: Vec<Location1_3>,
    #[prost(message, repeated, tag = "5")]
    pub(crate) function: Vec<Function1_3>,
    #[prost(string, repeated, tag = "6")]
    pub(crate) string_table: Vec<String>,
    #[prost(int64, tag = "7")]
    pub(crate) drop_frames: i64,
    #[prost(int64, tag = "8")]
    pub(crate) keep_frames: i64,
    #[prost(int64, tag = "9")]
    pub(crate) time_nanos: i64,
    #[prost(int64, tag = "10")]
    pub(crate) duration_nanos: i64,
    #[prost(message, optional, tag = "11")]
    pub(crate) period_type: Option<ValueType1_3>,
    #[prost(int64, tag = "12")]
    pub(crate) period: i64,
    #[prost(int64, repeated, tag = "13")]
    pub(crate) comment: Vec<i64>,
    #[prost(int64, tag = "14")]
    pub(crate) default_sample_type: i64,
    #[prost(int64, repeated, tag = "15")]
    pub(crate) location_indices: Vec<i64>,
    #[prost(message, repeated, tag = "16")]
    pub(crate) attribute_table: Vec<KeyValue>,
    #[prost(message, repeated, tag = "17")]
    pub(crate) attribute_units: Vec<AttributeUnit>,
    #[prost(message, repeated, tag = "18")]
    pub(crate) link_table: Vec<proto::Link>,
}

/// `ValueType` of 1.3.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct ValueType1_3 {
    #[prost(int64, tag = "1")]
    pub(crate) r#type: i64,
    #[prost(int64, tag = "2")]
    pub(crate) unit: i64,
    #[prost(int32, tag = "3")]
    pub(crate) aggregation_temporality: i32,
}

/// `Sample` of 1.3.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Sample1_3 {
    #[prost(uint64, repeated, tag = "1")]
    pub(crate) location_index: Vec<u64>,
    #[prost(int64, repeated, tag = "2")]
    pub(crate) value: Vec<i64>,
    #[prost(message, repeated, tag = "3")]
    pub(crate) label: Vec<Label>,
    #[prost(uint64, tag = "7")]
    pub(crate) locations_start_index: u64,
    #[prost(uint64, tag = "8")]
    pub(crate) locations_length: u64,
    #[prost(uint32, tag = "9")]
    pub(crate) stacktrace_id_index: u32,
    #[prost(uint64, repeated, tag = "10")]
    pub(crate) attributes: Vec<u64>,
    #[prost(uint64, tag = "12")]
    pub(crate) link: u64,
    #[prost(uint64, repeated, tag = "13")]
    pub(crate) timestamps_unix_nano: Vec<u64>,
}

/// `Label` of 1.3.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Label {
    #[prost(int64, tag = "1")]
    pub(crate) key: i64,
    #[prost(int64, tag = "2")]
    pub(crate) str: i64,
    #[prost(int64, tag = "3")]
    pub(crate) num: i64,
    #[prost(int64, tag = "4")]
    pub(crate) num_unit: i64,
}

/// `Mapping` of 1.3.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Mapping1_3 {
    #[prost(uint64, tag = "1")]
    pub(crate) id: u64,
    #[prost(uint64, tag = "2")]
    pub(crate) memory_start: u64,
    #[prost(uint64, tag = "3")]
    pub(crate) memory_limit: u64,
    #[prost(uint64, tag = "4")]
    pub(crate) file_offset: u64,
    #[prost(int64, tag = "5")]
    pub(crate) filename: i64,
    #[prost(int64, tag = "6")]
    pub(crate) build_id: i64,
    #[prost(bool, tag = "7")]
    pub(crate) has_functions: bool,
    #[prost(bool, tag = "8")]
    pub(crate) has_filenames: bool,
    #[prost(bool, tag = "9")]
    pub(crate) has_line_numbers: bool,
    #[prost(bool, tag = "10")]
    pub(crate) has_inline_frames: bool,
    #[prost(int32, tag = "11")]
    pub(crate) build_id_kind: i32,
    #[prost(uint64, repeated, tag = "12")]
    pub(crate) attributes: Vec<u64>,
}

/// `Location` of 1.3.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Location1_3 {
    #[prost(uint64, tag = "1")]
    pub(crate) id: u64,
    #[prost(uint64, tag = "2")]
    pub(crate) mapping_index: u64,
    #[prost(uint64, tag = "3")]
    pub(crate) address: u64,
    #[prost(message, repeated, tag = "4")]
    pub(crate) line: Vec<proto::Line>,
    #[prost(bool, tag = "5")]
    pub(crate) is_folded: bool,
    #[prost(uint32, tag = "6")]
    pub(crate) type_index: u32,
    #[prost(uint64, repeated, tag = "7")]
    pub(crate) attributes: Vec<u64>,
}

/// `Function` of 1.3.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Function1_3 {
    #[prost(uint64, tag = "1")]
    pub(crate) id: u64,
    #[prost(int64, tag = "2")]
    pub(crate) name: i64,
    #[prost(int64, tag = "3")]
    pub(crate) system_name: i64,
    #[prost(int64, tag = "4")]
    pub(crate) filename: i64,
    #[prost(int64, tag = "5")]
    pub(crate) start_line: i64,
}

/// A request around these containers.
pub(crate) fn request_1_3(containers: &[ProfileContainer]) -> Vec<u8> {
    request_1_3_of(Resource::default(), containers)
}

/// A request of a resource with these containers.
pub(crate) fn request_1_3_of(resource: Resource, containers: &[ProfileContainer]) -> Vec<u8> {
    let profiles = containers.iter().map(Message::encode_to_vec).collect();
    let scope = ScopeProfiles { profiles, ..ScopeProfiles::default() };
    let resource = ResourceProfiles { resource: Some(resource), scope_profiles: vec![scope], ..Default::default() };
    Request { resource_profiles: vec![resource], dictionary: None }.encode_to_vec()
}
