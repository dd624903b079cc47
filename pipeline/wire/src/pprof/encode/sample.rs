//! Encodes samples with their values and labels.

use std::collections::HashMap;

use profbridge_model::thread::ThreadState;
use profbridge_model::{Attribute, AttributeSetId, LinkId, Profile, Sample, Value, varint};

use super::super::span::{self, LabelValue, SpanLabels};
use super::ProfileEncoder;
use crate::otlp::encode::put::{bytes, encoded, int};

/// Encoded labels of samples.
#[derive(Debug, Default)]
pub(super) struct Labels {
    /// For each attribute set: its labels, the span that the labels name, and the number of attributes that cannot be
    /// labels.
    sets: HashMap<AttributeSetId, (Vec<u8>, SpanLabels, u64)>,
    links: HashMap<LinkId, Vec<u8>>,
}

impl<'a> ProfileEncoder<'a> {
    /// Writes the samples shared by these profiles.
    pub(super) fn samples(&mut self, out: &mut Vec<u8>, profiles: &[Profile]) {
        let rows = profiles.first().map_or(0, |profile| profile.samples.len() as u32);
        let (mut message, mut list) = (Vec::new(), Vec::new());
        for row in 0..rows {
            message.clear();
            list.clear();
            let first = self.batch.sample(profiles[0].samples.start + row);
            for location in self.dictionary.stack(first.stack) {
                varint::put(&mut list, self.location(location));
            }
            bytes(&mut message, 0x0a, &list);
            list.clear();
            for profile in profiles.iter().filter(|_| !self.has_states) {
                varint::put(&mut list, total(&self.batch.sample(profile.samples.start + row)) as u64);
            }
            if self.has_states {
                let is_waiting = ThreadState::of(self.dictionary, first.attributes) == Some(ThreadState::Waiting);
                let value = total(&first) as u64;
                for value in if is_waiting { [0, value] } else { [value, 0] } {
                    varint::put(&mut list, value);
                }
            }
            bytes(&mut message, 0x12, &list);
            self.left_out_times += u64::from(!first.timestamps_bytes().is_empty());
            self.labels_of(&mut message, &first);
            encoded(out, 0x12, &message);
        }
    }

    /// Writes the labels of a sample: its attributes, and its span unless the attributes already name the span.
    fn labels_of(&mut self, out: &mut Vec<u8>, sample: &Sample<'_>) {
        let mut named = None;
        if let Some(set) = sample.attributes {
            if !self.labels.sets.contains_key(&set) {
                let written = self.labels_of_set(set);
                self.labels.sets.insert(set, written);
            }
            let (labels, names, left_out) = &self.labels.sets[&set];
            out.extend_from_slice(labels);
            self.left_out_attributes += left_out;
            named = names.link();
        }
        let Some(id) = sample.link else { return };
        let link = *self.dictionary.link(id);
        if named == Some(link) {
            return;
        }
        if !self.labels.links.contains_key(&id) {
            let mut labels = Vec::new();
            if link.trace_id != [0; 16] {
                self.id_label(&mut labels, span::TRACE_ID, &link.trace_id);
            }
            if link.span_id != [0; 8] {
                self.id_label(&mut labels, span::SPAN_ID, &link.span_id);
            }
            self.labels.links.insert(id, labels);
        }
        out.extend_from_slice(&self.labels.links[&id]);
    }

    fn id_label(&mut self, out: &mut Vec<u8>, key: &'static str, id: &[u8]) {
        let key = self.texts.index(key.as_bytes());
        let text = self.texts.made(span::text(id));
        label(out, [key, text, 0, 0]);
    }

    fn labels_of_set(&mut self, set: AttributeSetId) -> (Vec<u8>, SpanLabels, u64) {
        let (mut out, mut named, mut left_out) = (Vec::new(), SpanLabels::default(), 0);
        let dictionary = self.dictionary;
        for Attribute { key, value, unit } in dictionary.attributes(Some(set)) {
            let name = dictionary.string_bytes(*key);
            let unit = dictionary.string_bytes(*unit);
            let (mut text, mut number, mut held) = (0, 0, None);
            match value {
                Value::String(id) => {
                    let bytes = dictionary.string_bytes(*id);
                    text = self.texts.index(bytes);
                    held = Some(LabelValue::Text(bytes));
                }
                Value::Int(value) => {
                    number = *value as u64;
                    held = Some(LabelValue::Number(*value));
                }
                Value::Bool(value) => text = self.texts.made(value.to_string()),
                Value::Double(value) => text = self.texts.made(value.to_string()),
                Value::Empty => {}
                Value::Bytes(_) | Value::Array(_) | Value::KeyValueList(_) => {
                    left_out += 1;
                    continue;
                }
            }
            held.and_then(|held| span::role(name, held)).into_iter().for_each(|role| named.add(role));
            let (key, unit) = (self.texts.index(name), self.texts.index(unit));
            label(&mut out, [key, text, number, unit]);
        }
        (out, named, left_out)
    }
}

fn label(out: &mut Vec<u8>, fields: [u64; 4]) {
    let mut message = Vec::new();
    for (key, field) in [0x08, 0x10, 0x18, 0x20].into_iter().zip(fields) {
        int(&mut message, key, field);
    }
    encoded(out, 0x1a, &message);
}

/// The total of a sample: the sum of its values, or else the number of its observations.
fn total(sample: &Sample<'_>) -> i64 {
    if sample.values_bytes().is_empty() {
        return i64::try_from(sample.observations()).unwrap_or(i64::MAX);
    }
    sample.values().fold(0, i64::saturating_add)
}
