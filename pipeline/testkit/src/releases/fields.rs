//! The fields of each message, and their numbers in the releases.
//!
//! Numbers are listed in the order 1.3; 1.4 and 1.5; 1.6 and 1.7; 1.8; 1.9. A number is 0 if the release does not have
//! the field. Trailing numbers are omitted if no later release has the message or the field.

use opentelemetry_proto::tonic::resource::v1::Resource;
use prost::Message as _;
use prost::encoding::{bytes, fixed64, int64, uint64};

use super::Release;
use super::messages::{
    AttributeUnit, EarlierFunction, EarlierLabel, EarlierLocation, EarlierMapping, EarlierProfile, EarlierSample,
    EarlierTables, EarlierValueType,
};

/// The encoded fields of one message.
pub(super) struct MessageFields {
    release: Release,
    pub(super) bytes: Vec<u8>,
}

impl Release {
    pub(super) fn fields(self) -> MessageFields {
        MessageFields { release: self, bytes: Vec::new() }
    }

    /// The position of this release's numbers in a list.
    fn column(self) -> usize {
        match self {
            Self::V1_3 => 0,
            Self::V1_4 | Self::V1_5 => 1,
            Self::V1_6 | Self::V1_7 => 2,
            Self::V1_8 => 3,
            Self::V1_9 => 4,
        }
    }

    /// Encodes a profile; for 1.3, its container.
    pub fn profile(self, of: &EarlierProfile) -> Vec<u8> {
        let mut out = self.fields();
        out.messages(&[1, 1, 1, 1, 1], &of.sample_type, |of| self.value_type(of));
        out.messages(&[2, 2, 2, 2, 2], &of.samples, |of| self.sample(of));
        match self {
            Self::V1_3 => out.tables([3, 4, 5, 18, 6, 16, 17], &of.tables),
            Self::V1_4 | Self::V1_5 => out.tables([3, 4, 6, 9, 10, 7, 8], &of.tables),
            _ => {}
        }
        out.ints(&[15, 5, 3], &of.location_indices);
        out.int(&[7], of.drop_frames);
        out.int(&[8], of.keep_frames);
        out.time(&[0, 11, 4, 3, 3], of.time_unix_nano);
        out.int(&[0, 12, 5, 4, 4], of.duration_nano as i64);
        out.messages(&[11, 13, 6, 5, 5], of.period_type.as_slice(), |of| self.value_type(of));
        out.int(&[12, 14, 7, 6, 6], of.period);
        out.ints(&[13, 15, 8, 7], &of.comment_strindices);
        out.int(&[14, 16, 9], of.default_sample_type);
        let container = if self == Self::V1_3 {
            let profile = std::mem::replace(&mut out, self.fields()).bytes;
            out.message(&[8], &profile);
            out.fixed(&[2], of.time_unix_nano);
            out.fixed(&[3], of.time_unix_nano + of.duration_nano);
            [1, 4, 5, 6, 7]
        } else {
            [0; 5]
        };
        let [id, attributes, dropped, format, payload] = container;
        match self {
            // Go's Collector writes the field even if it is empty.
            Self::V1_8 => out.message(&[0, 0, 0, 8], &of.profile_id),
            _ => out.text(&[id, 17, 10, 0, 7], &of.profile_id),
        }
        out.messages(&[attributes, 18], &of.attributes, prost::Message::encode_to_vec);
        out.int(&[dropped, 19, 11, 9, 8], of.dropped_attributes_count.into());
        out.text(&[format, 20, 12, 10, 9], of.original_payload_format.as_bytes());
        out.text(&[payload, 21, 13, 11, 10], &of.original_payload);
        out.ints(&[0, 22, 14, 12, 11], &of.attribute_indices);
        out.bytes
    }

    fn value_type(self, of: &EarlierValueType) -> Vec<u8> {
        let mut out = self.fields();
        out.int(&[1, 1, 1, 1, 1], of.type_strindex);
        out.int(&[2, 2, 2, 2, 2], of.unit_strindex);
        out.int(&[3, 3, 3, 3], of.aggregation_temporality);
        out.bytes
    }

    fn sample(self, of: &EarlierSample) -> Vec<u8> {
        let mut out = self.fields();
        out.ints(&[1], &of.location_index);
        out.int(&[0, 0, 0, 1, 1], of.stack_index);
        out.int(&[7, 1, 1], of.locations_start_index);
        out.int(&[8, 2, 2], of.locations_length);
        out.ints(&[2, 3, 3, 2, 2], &of.values);
        out.messages(&[3], &of.labels, |of| self.label(of));
        out.int(&[9], of.stacktrace_id_index);
        out.ints(&[10, 4, 4, 3, 3], &of.attribute_indices);
        out.optional(&[12, 5, 5, 4, 4], of.link_index);
        out.times(&[13, 6, 6, 5, 5], &of.timestamps_unix_nano);
        out.bytes
    }

    fn label(self, of: &EarlierLabel) -> Vec<u8> {
        let mut out = self.fields();
        out.int(&[1], of.key);
        out.int(&[2], of.str);
        out.int(&[3], of.num);
        out.int(&[4], of.num_unit);
        out.bytes
    }

    fn mapping(self, of: &EarlierMapping) -> Vec<u8> {
        let mut out = self.fields();
        out.int(&[2, 1, 1], of.memory_start as i64);
        out.int(&[3, 2, 2], of.memory_limit as i64);
        out.int(&[4, 3, 3], of.file_offset as i64);
        out.int(&[5, 4, 4], of.filename_strindex);
        out.int(&[6], of.build_id);
        out.int(&[11], of.build_id_kind);
        out.ints(&[12, 5, 5], &of.attribute_indices);
        out.int(&[7, 6, 6], of.has_functions.into());
        out.int(&[8, 7, 7], of.has_filenames.into());
        out.int(&[9, 8, 8], of.has_line_numbers.into());
        out.int(&[10, 9, 9], of.has_inline_frames.into());
        out.bytes
    }

    fn location(self, of: &EarlierLocation) -> Vec<u8> {
        let mut out = self.fields();
        out.optional(&[2, 1, 1], of.mapping_index);
        out.int(&[3, 2, 2], of.address as i64);
        out.messages(&[4, 3, 3], &of.lines, prost::Message::encode_to_vec);
        out.int(&[5, 4, 4], of.is_folded.into());
        out.int(&[6], of.type_index);
        out.ints(&[7, 5, 5], &of.attribute_indices);
        out.bytes
    }

    fn function(self, of: &EarlierFunction) -> Vec<u8> {
        let mut out = self.fields();
        out.int(&[2, 1, 1], of.name_strindex);
        out.int(&[3, 2, 2], of.system_name_strindex);
        out.int(&[4, 3, 3], of.filename_strindex);
        out.int(&[5, 4, 4], of.start_line);
        out.bytes
    }

    fn attribute_unit(self, of: &AttributeUnit) -> Vec<u8> {
        let mut out = self.fields();
        out.int(&[1, 1, 1], of.attribute_key_strindex);
        out.int(&[2, 2, 2], of.unit_strindex);
        out.bytes
    }

    /// Encodes a request of 1.3 to 1.5, whose tables are in the profiles, with these profiles of one resource.
    pub fn request(self, resource: &Resource, profiles: &[EarlierProfile]) -> Vec<u8> {
        let mut scope = self.fields();
        scope.messages(&[2, 2], profiles, |of| self.profile(of));
        let mut out = self.fields();
        out.message(&[1, 1], &resource.encode_to_vec());
        out.message(&[2, 2], &scope.bytes);
        let resource = std::mem::replace(&mut out, self.fields()).bytes;
        out.message(&[1, 1], &resource);
        out.bytes
    }

    /// The tables as encoded in the dictionary of 1.7.
    pub fn dictionary(self, tables: &EarlierTables) -> Vec<u8> {
        let mut out = self.fields();
        out.tables([1, 2, 3, 4, 5, 6, 7], tables);
        out.bytes
    }
}

impl MessageFields {
    /// The number of a field in this release, if the release has the field.
    fn number(&self, numbers: &[u32]) -> Option<u32> {
        numbers.get(self.release.column()).copied().filter(|&number| number != 0)
    }

    /// Writes an integer or a flag, unless it is 0.
    fn int(&mut self, numbers: &[u32], value: i64) {
        self.present(numbers, Some(value).filter(|&value| value != 0));
    }

    /// Writes an optional index, which 1.4 to 1.7 write even if it is 0.
    fn optional(&mut self, numbers: &[u32], value: Option<i64>) {
        let has_presence = (Release::V1_4..=Release::V1_7).contains(&self.release);
        self.present(numbers, value.filter(|&value| value != 0 || has_presence));
    }

    fn present(&mut self, numbers: &[u32], value: Option<i64>) {
        if let (Some(number), Some(value)) = (self.number(numbers), value) {
            int64::encode(number, &value, &mut self.bytes);
        }
    }

    fn ints(&mut self, numbers: &[u32], values: &[i64]) {
        if let Some(number) = self.number(numbers) {
            int64::encode_packed(number, values, &mut self.bytes);
        }
    }

    fn fixed(&mut self, numbers: &[u32], value: u64) {
        if let (Some(number), true) = (self.number(numbers), value != 0) {
            fixed64::encode(number, &value, &mut self.bytes);
        }
    }

    /// Writes a time, which has a fixed length from 1.8 on.
    fn time(&mut self, numbers: &[u32], value: u64) {
        if self.release < Release::V1_8 { self.int(numbers, value as i64) } else { self.fixed(numbers, value) }
    }

    fn times(&mut self, numbers: &[u32], values: &[u64]) {
        match self.number(numbers) {
            Some(number) if self.release < Release::V1_8 => uint64::encode_packed(number, values, &mut self.bytes),
            Some(number) => fixed64::encode_packed(number, values, &mut self.bytes),
            None => {}
        }
    }

    /// Writes a string or bytes, unless empty.
    pub(super) fn text(&mut self, numbers: &[u32], value: &[u8]) {
        if !value.is_empty() {
            self.message(numbers, value);
        }
    }

    /// Writes a message, even if it is empty.
    pub(super) fn message(&mut self, numbers: &[u32], message: &[u8]) {
        if let Some(number) = self.number(numbers) {
            bytes::encode(number, &message.to_vec(), &mut self.bytes);
        }
    }

    pub(super) fn messages<T>(&mut self, numbers: &[u32], all: &[T], encode: impl Fn(&T) -> Vec<u8>) {
        all.iter().for_each(|one| self.message(numbers, &encode(one)));
    }

    /// Writes the tables, whose field numbers in the enclosing message are `numbers`.
    pub(super) fn tables(&mut self, numbers: [u32; 7], of: &EarlierTables) {
        let release = self.release;
        let [mapping, location, function, link, string, attribute, unit] = numbers.map(|number| [number; 5]);
        self.messages(&mapping, &of.mapping_table, |of| release.mapping(of));
        self.messages(&location, &of.location_table, |of| release.location(of));
        self.messages(&function, &of.function_table, |of| release.function(of));
        self.messages(&link, &of.link_table, prost::Message::encode_to_vec);
        self.messages(&string, &of.string_table, |of| of.clone().into_bytes());
        self.messages(&attribute, &of.attribute_table, prost::Message::encode_to_vec);
        self.messages(&unit, &of.attribute_units, |of| release.attribute_unit(of));
    }
}
