//! Looks up attributes: a sample's own attributes first, then its profile's, then its resource's.

use opentelemetry_proto::tonic::{
    common::v1::{AnyValue, KeyValue, any_value::Value},
    profiles::v1development::ProfilesDictionary,
};

/// The attributes that apply to one sample.
#[derive(Clone, Copy)]
pub(super) struct SampleAttributes<'a> {
    pub(super) dictionary: &'a ProfilesDictionary,
    pub(super) resource: &'a [KeyValue],
    pub(super) profile: &'a [i32],
    pub(super) sample: &'a [i32],
}

impl<'a> SampleAttributes<'a> {
    fn get(&self, key: &str) -> Option<&'a AnyValue> {
        indexed(self.dictionary, self.sample, key)
            .or_else(|| indexed(self.dictionary, self.profile, key))
            .or_else(|| in_resource(self.dictionary, self.resource, key))
    }

    /// The attribute as text; numbers are written in decimal. Empty text counts as absent.
    pub(super) fn text(&self, key: &str) -> Option<String> {
        text_of(self.dictionary, self.get(key)?).filter(|text| !text.is_empty())
    }

    /// The attribute as a number.
    pub(super) fn int(&self, key: &str) -> Option<i64> {
        match self.get(key)?.value.as_ref()? {
            Value::IntValue(number) => Some(*number),
            _ => self.text(key)?.parse().ok(),
        }
    }

    /// Whether the sample itself has attributes that may name another process than its resource.
    pub(super) fn sample_names_process(&self) -> bool {
        let process = ["process.pid", "container.id", "service.instance.id", "k8s.pod.uid", "k8s.container.name"];
        let mut keys = process.iter().chain(&["host.id", "host.name", "k8s.node.name"]);
        keys.any(|key| indexed(self.dictionary, self.sample, key).is_some())
    }
}

/// The value of `key` among entries of the attribute table. Invalid indices are skipped.
pub(super) fn indexed<'a>(dictionary: &'a ProfilesDictionary, indices: &[i32], key: &str) -> Option<&'a AnyValue> {
    indices
        .iter()
        .filter_map(|&index| dictionary.attribute_table.get(usize::try_from(index).ok()?))
        .find(|attribute| string(dictionary, attribute.key_strindex) == key)
        .and_then(|attribute| attribute.value.as_ref())
}

fn in_resource<'a>(dictionary: &'a ProfilesDictionary, resource: &'a [KeyValue], key: &str) -> Option<&'a AnyValue> {
    resource
        .iter()
        .find(|pair| pair.key == key || (pair.key_strindex > 0 && string(dictionary, pair.key_strindex) == key))
        .and_then(|pair| pair.value.as_ref())
}

/// A value as text, if it is text or a number.
pub(super) fn text_of(dictionary: &ProfilesDictionary, value: &AnyValue) -> Option<String> {
    match value.value.as_ref()? {
        Value::StringValue(text) => Some(text.clone()),
        Value::StringValueStrindex(index) => Some(string(dictionary, *index).to_owned()),
        Value::IntValue(number) => Some(number.to_string()),
        _ => None,
    }
}

/// A string of the table; empty for an invalid index.
pub(super) fn string(dictionary: &ProfilesDictionary, index: i32) -> &str {
    usize::try_from(index).ok().and_then(|index| dictionary.string_table.get(index)).map_or("", String::as_str)
}
