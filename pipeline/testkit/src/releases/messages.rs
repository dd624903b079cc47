//! The messages of `profiles.proto` with the fields of all releases from 1.3 to 1.9, named as in the latest release
//! with the field. A release writes only the fields that it has.

#![allow(missing_docs, reason = "the names are those of the releases' definitions, which say what they mean")]

use opentelemetry_proto::tonic::common::v1::KeyValue;
use opentelemetry_proto::tonic::profiles::v1development as proto;

/// `Profile`; for 1.3 also its `ProfileContainer`, which contains the times, the id, the attributes and the payload.
#[derive(Clone, Debug, Default)]
pub struct EarlierProfile {
    pub sample_type: Vec<EarlierValueType>,
    pub samples: Vec<EarlierSample>,
    pub location_indices: Vec<i64>,
    pub time_unix_nano: u64,
    pub duration_nano: u64,
    pub period_type: Option<EarlierValueType>,
    pub period: i64,
    pub comment_strindices: Vec<i64>,
    pub default_sample_type: i64,
    pub drop_frames: i64,
    pub keep_frames: i64,
    pub profile_id: Vec<u8>,
    pub dropped_attributes_count: u32,
    pub original_payload_format: String,
    pub original_payload: Vec<u8>,
    pub attribute_indices: Vec<i64>,
    /// The attributes as messages instead of indices, in 1.3 and 1.4.
    pub attributes: Vec<KeyValue>,
    /// The profile's own tables, up to 1.5; later releases have tables outside of profiles.
    pub tables: EarlierTables,
}

/// The tables of releases up to 1.7.
#[derive(Clone, Debug, Default)]
pub struct EarlierTables {
    pub mapping_table: Vec<EarlierMapping>,
    pub location_table: Vec<EarlierLocation>,
    pub function_table: Vec<EarlierFunction>,
    pub link_table: Vec<proto::Link>,
    pub string_table: Vec<String>,
    pub attribute_table: Vec<KeyValue>,
    pub attribute_units: Vec<AttributeUnit>,
}

#[derive(Clone, Debug, Default)]
pub struct EarlierValueType {
    pub type_strindex: i64,
    pub unit_strindex: i64,
    pub aggregation_temporality: i64,
}

#[derive(Clone, Debug, Default)]
pub struct EarlierSample {
    /// The stack, from 1.8 on.
    pub stack_index: i64,
    /// The range of locations, up to 1.7.
    pub locations_start_index: i64,
    pub locations_length: i64,
    /// The locations as a list instead of a range, in 1.3.
    pub location_index: Vec<i64>,
    pub values: Vec<i64>,
    pub labels: Vec<EarlierLabel>,
    pub stacktrace_id_index: i64,
    pub attribute_indices: Vec<i64>,
    pub link_index: Option<i64>,
    pub timestamps_unix_nano: Vec<u64>,
}

#[derive(Clone, Debug, Default)]
pub struct EarlierLabel {
    pub key: i64,
    pub str: i64,
    pub num: i64,
    pub num_unit: i64,
}

#[derive(Clone, Debug, Default)]
pub struct EarlierMapping {
    pub memory_start: u64,
    pub memory_limit: u64,
    pub file_offset: u64,
    pub filename_strindex: i64,
    pub build_id: i64,
    pub build_id_kind: i64,
    pub attribute_indices: Vec<i64>,
    pub has_functions: bool,
    pub has_filenames: bool,
    pub has_line_numbers: bool,
    pub has_inline_frames: bool,
}

#[derive(Clone, Debug, Default)]
pub struct EarlierLocation {
    pub mapping_index: Option<i64>,
    pub address: u64,
    pub lines: Vec<proto::Line>,
    pub is_folded: bool,
    pub type_index: i64,
    pub attribute_indices: Vec<i64>,
}

#[derive(Clone, Debug, Default)]
pub struct EarlierFunction {
    pub name_strindex: i64,
    pub system_name_strindex: i64,
    pub filename_strindex: i64,
    pub start_line: i64,
}

#[derive(Clone, Debug, Default)]
pub struct AttributeUnit {
    pub attribute_key_strindex: i64,
    pub unit_strindex: i64,
}
