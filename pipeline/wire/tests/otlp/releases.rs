//! The messages of earlier releases of opentelemetry-proto as prost writes them, field by field as in the release's
//! `profiles.proto`: an oracle that shares nothing with the readers.
//!
//! What has not changed (resources, scopes, attribute values) is that of the crate. Messages around profiles hold those
//! already encoded.

use opentelemetry_proto::tonic::collector::profiles::v1development::ExportProfilesServiceRequest;
use opentelemetry_proto::tonic::common::v1::InstrumentationScope;
use opentelemetry_proto::tonic::profiles::v1development as proto;
use opentelemetry_proto::tonic::resource::v1::Resource;
use prost::Message;

#[derive(Clone, PartialEq, Message)]
struct Request {
    #[prost(message, repeated, tag = "1")]
    resource_profiles: Vec<ResourceProfiles>,
    #[prost(message, optional, tag = "2")]
    dictionary: Option<proto::ProfilesDictionary>,
}

#[derive(Clone, PartialEq, Message)]
struct ResourceProfiles {
    #[prost(message, optional, tag = "1")]
    resource: Option<Resource>,
    #[prost(message, repeated, tag = "2")]
    scope_profiles: Vec<ScopeProfiles>,
    #[prost(string, tag = "3")]
    schema_url: String,
}

#[derive(Clone, PartialEq, Message)]
struct ScopeProfiles {
    #[prost(message, optional, tag = "1")]
    scope: Option<InstrumentationScope>,
    #[prost(bytes = "vec", repeated, tag = "2")]
    profiles: Vec<Vec<u8>>,
    #[prost(string, tag = "3")]
    schema_url: String,
}

/// The resources of a request, with each profile as `profile` writes it.
fn resources(request: &ExportProfilesServiceRequest, profile: &dyn Fn(&proto::Profile) -> Vec<u8>) -> Request {
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
