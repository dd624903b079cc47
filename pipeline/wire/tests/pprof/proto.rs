//! The messages of google/pprof's `profile.proto`, and the content of a profile independent of its ids and indices.

use std::collections::HashMap;

use prost::Message;

#[derive(Clone, PartialEq, Message)]
pub(crate) struct PprofProfile {
    #[prost(message, repeated, tag = "1")]
    pub(crate) sample_type: Vec<ValueType>,
    #[prost(message, repeated, tag = "2")]
    pub(crate) sample: Vec<PprofSample>,
    #[prost(message, repeated, tag = "3")]
    pub(crate) mapping: Vec<PprofMapping>,
    #[prost(message, repeated, tag = "4")]
    pub(crate) location: Vec<PprofLocation>,
    #[prost(message, repeated, tag = "5")]
    pub(crate) function: Vec<PprofFunction>,
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
    pub(crate) period_type: Option<ValueType>,
    #[prost(int64, tag = "12")]
    pub(crate) period: i64,
    #[prost(int64, repeated, tag = "13")]
    pub(crate) comment: Vec<i64>,
    #[prost(int64, tag = "14")]
    pub(crate) default_sample_type: i64,
    #[prost(int64, tag = "15")]
    pub(crate) doc_url: i64,
}

#[derive(Clone, Copy, PartialEq, Message)]
pub(crate) struct ValueType {
    #[prost(int64, tag = "1")]
    pub(crate) r#type: i64,
    #[prost(int64, tag = "2")]
    pub(crate) unit: i64,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct PprofSample {
    #[prost(uint64, repeated, tag = "1")]
    pub(crate) location_id: Vec<u64>,
    #[prost(int64, repeated, tag = "2")]
    pub(crate) value: Vec<i64>,
    #[prost(message, repeated, tag = "3")]
    pub(crate) label: Vec<Label>,
}

#[derive(Clone, Copy, PartialEq, Message)]
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

#[derive(Clone, Copy, PartialEq, Message)]
pub(crate) struct PprofMapping {
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
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct PprofLocation {
    #[prost(uint64, tag = "1")]
    pub(crate) id: u64,
    #[prost(uint64, tag = "2")]
    pub(crate) mapping_id: u64,
    #[prost(uint64, tag = "3")]
    pub(crate) address: u64,
    #[prost(message, repeated, tag = "4")]
    pub(crate) line: Vec<Line>,
    #[prost(bool, tag = "5")]
    pub(crate) is_folded: bool,
}

#[derive(Clone, Copy, PartialEq, Message)]
pub(crate) struct Line {
    #[prost(uint64, tag = "1")]
    pub(crate) function_id: u64,
    #[prost(int64, tag = "2")]
    pub(crate) line: i64,
    #[prost(int64, tag = "3")]
    pub(crate) column: i64,
}

#[derive(Clone, Copy, PartialEq, Message)]
pub(crate) struct PprofFunction {
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

impl PprofProfile {
    /// The index of a text.
    pub(crate) fn text(&mut self, text: &str) -> i64 {
        if self.string_table.is_empty() {
            self.string_table.push(String::new());
        }
        if let Some(known) = self.string_table.iter().position(|known| known == text) {
            return known as i64;
        }
        self.string_table.push(text.to_owned());
        self.string_table.len() as i64 - 1
    }

    pub(crate) fn value_type(&mut self, kind: &str, unit: &str) -> ValueType {
        ValueType { r#type: self.text(kind), unit: self.text(unit) }
    }

    /// The content: every reference is replaced by its target, and data whose order is irrelevant is sorted.
    pub(crate) fn contents(&self) -> ProfileContents {
        let text = |index: i64| self.string_table[index as usize].clone();
        let value_type = |value: &ValueType| [text(value.r#type), text(value.unit)];
        let functions: HashMap<u64, String> = self
            .function
            .iter()
            .map(|f| {
                let names = [f.name, f.system_name, f.filename].map(text);
                (f.id, format!("{names:?} {}", f.start_line))
            })
            .collect();
        let mappings: HashMap<u64, String> = self
            .mapping
            .iter()
            .map(|m| {
                let plain = PprofMapping { id: 0, filename: 0, build_id: 0, ..*m };
                (m.id, format!("{plain:?} {:?}", [text(m.filename), text(m.build_id)]))
            })
            .collect();
        let locations: HashMap<u64, String> = self
            .location
            .iter()
            .map(|l| {
                let line = |line: &Line| (functions.get(&line.function_id), line.line, line.column);
                let lines: Vec<_> = l.line.iter().map(line).collect();
                (l.id, format!("{:?} {} {lines:?} {}", mappings.get(&l.mapping_id), l.address, l.is_folded))
            })
            .collect();
        let samples = self.sample.iter().map(|sample| {
            let stack = sample.location_id.iter().map(|id| locations[id].clone()).collect();
            let label = |label: &Label| {
                // If there is a text, the number means nothing.
                let number = if label.str == 0 { label.num } else { 0 };
                format!("{:?} {number}", [label.key, label.str, label.num_unit].map(text))
            };
            let mut labels: Vec<_> = sample.label.iter().map(label).collect();
            labels.sort();
            (stack, sample.value.clone(), labels)
        });
        let sorted = |table: HashMap<u64, String>| {
            let mut all: Vec<_> = table.into_values().collect();
            all.sort();
            all
        };
        ProfileContents {
            types: self.sample_type.iter().map(value_type).collect(),
            samples: samples.collect(),
            period_type: self.period_type.as_ref().map(value_type).unwrap_or_default(),
            numbers: [self.time_nanos, self.duration_nanos, self.period],
            texts: [self.drop_frames, self.keep_frames, self.default_sample_type, self.doc_url].map(text),
            comments: self.comment.iter().map(|&comment| text(comment)).collect(),
            tables: [sorted(functions), sorted(mappings), sorted(locations)],
        }
    }
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ProfileContents {
    types: Vec<[String; 2]>,
    samples: Vec<(Vec<String>, Vec<i64>, Vec<String>)>,
    period_type: [String; 2],
    numbers: [i64; 3],
    texts: [String; 4],
    comments: Vec<String>,
    tables: [Vec<String>; 3],
}
