//! The messages, field by field as in each release's `profiles.proto`. What has not changed (resources, scopes,
//! attribute values) is that of the crate. Messages around profiles hold those already encoded.

#![allow(missing_docs, reason = "the names are those of the releases' definitions, which say what they mean")]

use opentelemetry_proto::tonic::common::v1::{InstrumentationScope, KeyValue};
use opentelemetry_proto::tonic::profiles::v1development as proto;
use opentelemetry_proto::tonic::resource::v1::Resource;
use prost::Message;

#[derive(Clone, PartialEq, Message)]
pub struct Request {
    #[prost(message, repeated, tag = "1")]
    pub resource_profiles: Vec<ResourceProfiles>,
    #[prost(message, optional, tag = "2")]
    pub dictionary: Option<proto::ProfilesDictionary>,
}

#[derive(Clone, PartialEq, Message)]
pub struct ResourceProfiles {
    #[prost(message, optional, tag = "1")]
    pub resource: Option<Resource>,
    #[prost(message, repeated, tag = "2")]
    pub scope_profiles: Vec<ScopeProfiles>,
    #[prost(string, tag = "3")]
    pub schema_url: String,
}

#[derive(Clone, PartialEq, Message)]
pub struct ScopeProfiles {
    #[prost(message, optional, tag = "1")]
    pub scope: Option<InstrumentationScope>,
    #[prost(bytes = "vec", repeated, tag = "2")]
    pub profiles: Vec<Vec<u8>>,
    #[prost(string, tag = "3")]
    pub schema_url: String,
}

/// `Sample` of 1.8 and 1.9.
#[derive(Clone, PartialEq, Message)]
pub struct Sample1_8 {
    #[prost(int32, tag = "1")]
    pub stack_index: i32,
    #[prost(int64, repeated, tag = "2")]
    pub values: Vec<i64>,
    #[prost(int32, repeated, tag = "3")]
    pub attribute_indices: Vec<i32>,
    #[prost(int32, tag = "4")]
    pub link_index: i32,
    #[prost(fixed64, repeated, tag = "5")]
    pub timestamps_unix_nano: Vec<u64>,
}

/// `Profile` of 1.9.
#[derive(Clone, PartialEq, Message)]
pub struct Profile1_9 {
    #[prost(message, optional, tag = "1")]
    pub sample_type: Option<proto::ValueType>,
    #[prost(message, repeated, tag = "2")]
    pub samples: Vec<Sample1_8>,
    #[prost(fixed64, tag = "3")]
    pub time_unix_nano: u64,
    #[prost(uint64, tag = "4")]
    pub duration_nano: u64,
    #[prost(message, optional, tag = "5")]
    pub period_type: Option<proto::ValueType>,
    #[prost(int64, tag = "6")]
    pub period: i64,
    #[prost(bytes = "vec", tag = "7")]
    pub profile_id: Vec<u8>,
    #[prost(uint32, tag = "8")]
    pub dropped_attributes_count: u32,
    #[prost(string, tag = "9")]
    pub original_payload_format: String,
    #[prost(bytes = "vec", tag = "10")]
    pub original_payload: Vec<u8>,
    #[prost(int32, repeated, tag = "11")]
    pub attribute_indices: Vec<i32>,
}

/// `ValueType` up to 1.8.
#[derive(Clone, PartialEq, Message)]
pub struct ValueType1_8 {
    #[prost(int32, tag = "1")]
    pub type_strindex: i32,
    #[prost(int32, tag = "2")]
    pub unit_strindex: i32,
    #[prost(int32, tag = "3")]
    pub aggregation_temporality: i32,
}

/// `Profile` of 1.8.
#[derive(Clone, PartialEq, Message)]
pub struct Profile1_8 {
    #[prost(message, optional, tag = "1")]
    pub sample_type: Option<ValueType1_8>,
    #[prost(message, repeated, tag = "2")]
    pub sample: Vec<Sample1_8>,
    #[prost(fixed64, tag = "3")]
    pub time_unix_nano: u64,
    #[prost(uint64, tag = "4")]
    pub duration_nano: u64,
    #[prost(message, optional, tag = "5")]
    pub period_type: Option<ValueType1_8>,
    #[prost(int64, tag = "6")]
    pub period: i64,
    #[prost(int32, repeated, tag = "7")]
    pub comment_strindices: Vec<i32>,
    #[prost(bytes = "vec", optional, tag = "8")]
    pub profile_id: Option<Vec<u8>>,
    #[prost(uint32, tag = "9")]
    pub dropped_attributes_count: u32,
    #[prost(string, tag = "10")]
    pub original_payload_format: String,
    #[prost(bytes = "vec", tag = "11")]
    pub original_payload: Vec<u8>,
    #[prost(int32, repeated, tag = "12")]
    pub attribute_indices: Vec<i32>,
}

/// `Sample` of 1.4 to 1.7.
#[derive(Clone, PartialEq, Message)]
pub struct Sample1_4 {
    #[prost(int32, tag = "1")]
    pub locations_start_index: i32,
    #[prost(int32, tag = "2")]
    pub locations_length: i32,
    #[prost(int64, repeated, tag = "3")]
    pub value: Vec<i64>,
    #[prost(int32, repeated, tag = "4")]
    pub attribute_indices: Vec<i32>,
    #[prost(int32, optional, tag = "5")]
    pub link_index: Option<i32>,
    #[prost(uint64, repeated, tag = "6")]
    pub timestamps_unix_nano: Vec<u64>,
}

/// `Mapping` of 1.4 to 1.7.
#[derive(Clone, PartialEq, Message)]
pub struct Mapping1_4 {
    #[prost(uint64, tag = "1")]
    pub memory_start: u64,
    #[prost(uint64, tag = "2")]
    pub memory_limit: u64,
    #[prost(uint64, tag = "3")]
    pub file_offset: u64,
    #[prost(int32, tag = "4")]
    pub filename_strindex: i32,
    #[prost(int32, repeated, tag = "5")]
    pub attribute_indices: Vec<i32>,
    #[prost(bool, tag = "6")]
    pub has_functions: bool,
    #[prost(bool, tag = "7")]
    pub has_filenames: bool,
    #[prost(bool, tag = "8")]
    pub has_line_numbers: bool,
    #[prost(bool, tag = "9")]
    pub has_inline_frames: bool,
}

/// `Location` of 1.4 to 1.7.
#[derive(Clone, PartialEq, Message)]
pub struct Location1_4 {
    #[prost(int32, optional, tag = "1")]
    pub mapping_index: Option<i32>,
    #[prost(uint64, tag = "2")]
    pub address: u64,
    #[prost(message, repeated, tag = "3")]
    pub line: Vec<proto::Line>,
    #[prost(bool, tag = "4")]
    pub is_folded: bool,
    #[prost(int32, repeated, tag = "5")]
    pub attribute_indices: Vec<i32>,
}

/// `AttributeUnit` of 1.4 to 1.7.
#[derive(Clone, PartialEq, Message)]
pub struct AttributeUnit {
    #[prost(int32, tag = "1")]
    pub attribute_key_strindex: i32,
    #[prost(int32, tag = "2")]
    pub unit_strindex: i32,
}

/// The tables, as each release has them somewhere.
#[derive(Clone, PartialEq, Message)]
pub struct Dictionary1_7 {
    #[prost(message, repeated, tag = "1")]
    pub mapping_table: Vec<Mapping1_4>,
    #[prost(message, repeated, tag = "2")]
    pub location_table: Vec<Location1_4>,
    #[prost(message, repeated, tag = "3")]
    pub function_table: Vec<proto::Function>,
    #[prost(message, repeated, tag = "4")]
    pub link_table: Vec<proto::Link>,
    #[prost(string, repeated, tag = "5")]
    pub string_table: Vec<String>,
    #[prost(message, repeated, tag = "6")]
    pub attribute_table: Vec<KeyValue>,
    #[prost(message, repeated, tag = "7")]
    pub attribute_units: Vec<AttributeUnit>,
}

/// A request of 1.7.
#[derive(Clone, PartialEq, Message)]
pub struct Request1_7 {
    #[prost(message, repeated, tag = "1")]
    pub resource_profiles: Vec<ResourceProfiles>,
    #[prost(message, optional, tag = "2")]
    pub dictionary: Option<Dictionary1_7>,
}

/// `ProfilesData` of 1.6.
#[derive(Clone, PartialEq, Message)]
pub struct Request1_6 {
    #[prost(message, repeated, tag = "1")]
    pub resource_profiles: Vec<ResourceProfiles>,
    #[prost(message, repeated, tag = "2")]
    pub mapping_table: Vec<Mapping1_4>,
    #[prost(message, repeated, tag = "3")]
    pub location_table: Vec<Location1_4>,
    #[prost(message, repeated, tag = "4")]
    pub function_table: Vec<proto::Function>,
    #[prost(message, repeated, tag = "5")]
    pub link_table: Vec<proto::Link>,
    #[prost(string, repeated, tag = "6")]
    pub string_table: Vec<String>,
    #[prost(message, repeated, tag = "7")]
    pub attribute_table: Vec<KeyValue>,
    #[prost(message, repeated, tag = "8")]
    pub attribute_units: Vec<AttributeUnit>,
}

/// `Profile` of 1.6 and 1.7.
#[derive(Clone, PartialEq, Message)]
pub struct Profile1_6 {
    #[prost(message, repeated, tag = "1")]
    pub sample_type: Vec<ValueType1_8>,
    #[prost(message, repeated, tag = "2")]
    pub sample: Vec<Sample1_4>,
    #[prost(int32, repeated, tag = "3")]
    pub location_indices: Vec<i32>,
    #[prost(int64, tag = "4")]
    pub time_nanos: i64,
    #[prost(int64, tag = "5")]
    pub duration_nanos: i64,
    #[prost(message, optional, tag = "6")]
    pub period_type: Option<ValueType1_8>,
    #[prost(int64, tag = "7")]
    pub period: i64,
    #[prost(int32, repeated, tag = "8")]
    pub comment_strindices: Vec<i32>,
    #[prost(int32, tag = "9")]
    pub default_sample_type_index: i32,
    #[prost(bytes = "vec", tag = "10")]
    pub profile_id: Vec<u8>,
    #[prost(uint32, tag = "11")]
    pub dropped_attributes_count: u32,
    #[prost(string, tag = "12")]
    pub original_payload_format: String,
    #[prost(bytes = "vec", tag = "13")]
    pub original_payload: Vec<u8>,
    #[prost(int32, repeated, tag = "14")]
    pub attribute_indices: Vec<i32>,
}

/// `Profile` of 1.4 and 1.5; 1.4 has `attributes`, 1.5 `attribute_indices`.
#[derive(Clone, PartialEq, Message)]
pub struct Profile1_4 {
    #[prost(message, repeated, tag = "1")]
    pub sample_type: Vec<ValueType1_8>,
    #[prost(message, repeated, tag = "2")]
    pub sample: Vec<Sample1_4>,
    #[prost(message, repeated, tag = "3")]
    pub mapping_table: Vec<Mapping1_4>,
    #[prost(message, repeated, tag = "4")]
    pub location_table: Vec<Location1_4>,
    #[prost(int32, repeated, tag = "5")]
    pub location_indices: Vec<i32>,
    #[prost(message, repeated, tag = "6")]
    pub function_table: Vec<proto::Function>,
    #[prost(message, repeated, tag = "7")]
    pub attribute_table: Vec<KeyValue>,
    #[prost(message, repeated, tag = "8")]
    pub attribute_units: Vec<AttributeUnit>,
    #[prost(message, repeated, tag = "9")]
    pub link_table: Vec<proto::Link>,
    #[prost(string, repeated, tag = "10")]
    pub string_table: Vec<String>,
    #[prost(int64, tag = "11")]
    pub time_nanos: i64,
    #[prost(int64, tag = "12")]
    pub duration_nanos: i64,
    #[prost(message, optional, tag = "13")]
    pub period_type: Option<ValueType1_8>,
    #[prost(int64, tag = "14")]
    pub period: i64,
    #[prost(int32, repeated, tag = "15")]
    pub comment_strindices: Vec<i32>,
    #[prost(int32, tag = "16")]
    pub default_sample_type_strindex: i32,
    #[prost(bytes = "vec", tag = "17")]
    pub profile_id: Vec<u8>,
    #[prost(message, repeated, tag = "18")]
    pub attributes: Vec<KeyValue>,
    #[prost(uint32, tag = "19")]
    pub dropped_attributes_count: u32,
    #[prost(string, tag = "20")]
    pub original_payload_format: String,
    #[prost(bytes = "vec", tag = "21")]
    pub original_payload: Vec<u8>,
    #[prost(int32, repeated, tag = "22")]
    pub attribute_indices: Vec<i32>,
}

/// `ProfileContainer` of 1.3.
#[derive(Clone, PartialEq, Message)]
pub struct ProfileContainer {
    #[prost(bytes = "vec", tag = "1")]
    pub profile_id: Vec<u8>,
    #[prost(fixed64, tag = "2")]
    pub start_time_unix_nano: u64,
    #[prost(fixed64, tag = "3")]
    pub end_time_unix_nano: u64,
    #[prost(message, repeated, tag = "4")]
    pub attributes: Vec<KeyValue>,
    #[prost(uint32, tag = "5")]
    pub dropped_attributes_count: u32,
    #[prost(string, tag = "6")]
    pub original_payload_format: String,
    #[prost(bytes = "vec", tag = "7")]
    pub original_payload: Vec<u8>,
    #[prost(message, optional, tag = "8")]
    pub profile: Option<Profile1_3>,
}

/// `Profile` of 1.3.
#[derive(Clone, PartialEq, Message)]
pub struct Profile1_3 {
    #[prost(message, repeated, tag = "1")]
    pub sample_type: Vec<ValueType1_3>,
    #[prost(message, repeated, tag = "2")]
    pub sample: Vec<Sample1_3>,
    #[prost(message, repeated, tag = "3")]
    pub mapping: Vec<Mapping1_3>,
    #[prost(message, repeated, tag = "4")]
    pub location: Vec<Location1_3>,
    #[prost(message, repeated, tag = "5")]
    pub function: Vec<Function1_3>,
    #[prost(string, repeated, tag = "6")]
    pub string_table: Vec<String>,
    #[prost(int64, tag = "7")]
    pub drop_frames: i64,
    #[prost(int64, tag = "8")]
    pub keep_frames: i64,
    #[prost(int64, tag = "9")]
    pub time_nanos: i64,
    #[prost(int64, tag = "10")]
    pub duration_nanos: i64,
    #[prost(message, optional, tag = "11")]
    pub period_type: Option<ValueType1_3>,
    #[prost(int64, tag = "12")]
    pub period: i64,
    #[prost(int64, repeated, tag = "13")]
    pub comment: Vec<i64>,
    #[prost(int64, tag = "14")]
    pub default_sample_type: i64,
    #[prost(int64, repeated, tag = "15")]
    pub location_indices: Vec<i64>,
    #[prost(message, repeated, tag = "16")]
    pub attribute_table: Vec<KeyValue>,
    #[prost(message, repeated, tag = "17")]
    pub attribute_units: Vec<AttributeUnit>,
    #[prost(message, repeated, tag = "18")]
    pub link_table: Vec<proto::Link>,
}

/// `ValueType` of 1.3.
#[derive(Clone, PartialEq, Message)]
pub struct ValueType1_3 {
    #[prost(int64, tag = "1")]
    pub r#type: i64,
    #[prost(int64, tag = "2")]
    pub unit: i64,
    #[prost(int32, tag = "3")]
    pub aggregation_temporality: i32,
}

/// `Sample` of 1.3.
#[derive(Clone, PartialEq, Message)]
pub struct Sample1_3 {
    #[prost(uint64, repeated, tag = "1")]
    pub location_index: Vec<u64>,
    #[prost(int64, repeated, tag = "2")]
    pub value: Vec<i64>,
    #[prost(message, repeated, tag = "3")]
    pub label: Vec<Label>,
    #[prost(uint64, tag = "7")]
    pub locations_start_index: u64,
    #[prost(uint64, tag = "8")]
    pub locations_length: u64,
    #[prost(uint32, tag = "9")]
    pub stacktrace_id_index: u32,
    #[prost(uint64, repeated, tag = "10")]
    pub attributes: Vec<u64>,
    #[prost(uint64, tag = "12")]
    pub link: u64,
    #[prost(uint64, repeated, tag = "13")]
    pub timestamps_unix_nano: Vec<u64>,
}

/// `Label` of 1.3.
#[derive(Clone, PartialEq, Message)]
pub struct Label {
    #[prost(int64, tag = "1")]
    pub key: i64,
    #[prost(int64, tag = "2")]
    pub str: i64,
    #[prost(int64, tag = "3")]
    pub num: i64,
    #[prost(int64, tag = "4")]
    pub num_unit: i64,
}

/// `Mapping` of 1.3.
#[derive(Clone, PartialEq, Message)]
pub struct Mapping1_3 {
    #[prost(uint64, tag = "1")]
    pub id: u64,
    #[prost(uint64, tag = "2")]
    pub memory_start: u64,
    #[prost(uint64, tag = "3")]
    pub memory_limit: u64,
    #[prost(uint64, tag = "4")]
    pub file_offset: u64,
    #[prost(int64, tag = "5")]
    pub filename: i64,
    #[prost(int64, tag = "6")]
    pub build_id: i64,
    #[prost(bool, tag = "7")]
    pub has_functions: bool,
    #[prost(bool, tag = "8")]
    pub has_filenames: bool,
    #[prost(bool, tag = "9")]
    pub has_line_numbers: bool,
    #[prost(bool, tag = "10")]
    pub has_inline_frames: bool,
    #[prost(int32, tag = "11")]
    pub build_id_kind: i32,
    #[prost(uint64, repeated, tag = "12")]
    pub attributes: Vec<u64>,
}

/// `Location` of 1.3.
#[derive(Clone, PartialEq, Message)]
pub struct Location1_3 {
    #[prost(uint64, tag = "1")]
    pub id: u64,
    #[prost(uint64, tag = "2")]
    pub mapping_index: u64,
    #[prost(uint64, tag = "3")]
    pub address: u64,
    #[prost(message, repeated, tag = "4")]
    pub line: Vec<proto::Line>,
    #[prost(bool, tag = "5")]
    pub is_folded: bool,
    #[prost(uint32, tag = "6")]
    pub type_index: u32,
    #[prost(uint64, repeated, tag = "7")]
    pub attributes: Vec<u64>,
}

/// `Function` of 1.3.
#[derive(Clone, PartialEq, Message)]
pub struct Function1_3 {
    #[prost(uint64, tag = "1")]
    pub id: u64,
    #[prost(int64, tag = "2")]
    pub name: i64,
    #[prost(int64, tag = "3")]
    pub system_name: i64,
    #[prost(int64, tag = "4")]
    pub filename: i64,
    #[prost(int64, tag = "5")]
    pub start_line: i64,
}
