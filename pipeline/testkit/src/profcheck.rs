//! Checks the OTLP rules for profiles as the official checker does.
//!
//! The rules are those of `profcheck` (open-telemetry/sig-profiling, `profcheck/check.go`) with all of its options
//! except the search for orphans, which OTLP only advises against. They are reimplemented here on prost's types,
//! independently of profbridge's own codec. Tests pass every OTLP output to [`assert_valid`].

use std::collections::{HashMap, HashSet};
use std::fmt::Debug;

use opentelemetry_proto::tonic::collector::profiles::v1development::ExportProfilesServiceRequest;
use opentelemetry_proto::tonic::profiles::v1development::{Profile, ProfilesDictionary, Sample, ValueType};
use prost::Message;

/// The maximum number of violations reported.
const MOST: usize = 100;

/// Checks a request, and panics with all rules that it breaks.
///
/// # Panics
///
/// If the bytes are no request, or break a rule.
#[track_caller]
pub fn assert_valid(request: &[u8]) {
    if let Err(violations) = check(request) {
        panic!("profcheck:\n{}", violations.join("\n"));
    }
}

/// Checks an encoded request, which has the same encoding as `ProfilesData`.
///
/// # Errors
///
/// All broken rules with their places, at most a hundred.
pub fn check(request: &[u8]) -> Result<(), Vec<String>> {
    match ExportProfilesServiceRequest::decode(request) {
        Ok(request) => check_request(&request),
        Err(error) => Err(vec![format!("the request is no protobuf: {error}")]),
    }
}

/// Checks a request.
///
/// # Errors
///
/// Like [`check`].
pub fn check_request(request: &ExportProfilesServiceRequest) -> Result<(), Vec<String>> {
    let nothing = ProfilesDictionary::default();
    let mut checker = Checker { dictionary: request.dictionary.as_ref().unwrap_or(&nothing), violations: Vec::new() };
    if request.resource_profiles.is_empty() {
        checker.add("resource_profiles", "are empty");
    }
    for (r, resource) in request.resource_profiles.iter().enumerate() {
        let place = format!("resource_profiles[{r}]");
        if resource.scope_profiles.is_empty() {
            checker.add(&place, "has no scope_profiles");
        }
        for (s, scope) in resource.scope_profiles.iter().enumerate() {
            let place = format!("{place}.scope_profiles[{s}]");
            if scope.profiles.is_empty() {
                checker.add(&place, "has no profiles");
            }
            for (p, profile) in scope.profiles.iter().enumerate() {
                checker.profile(profile, &format!("{place}.profiles[{p}]"));
            }
        }
    }
    checker.tables();
    if checker.violations.is_empty() { Ok(()) } else { Err(checker.violations) }
}

/// Whether a sample has timestamps, values or both. All samples of a profile must have the same shape.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SampleShape {
    Values,
    Timestamps,
    Both,
    Nothing,
}

struct Checker<'a> {
    dictionary: &'a ProfilesDictionary,
    violations: Vec<String>,
}

impl Checker<'_> {
    fn add(&mut self, place: &str, rule: impl AsRef<str>) {
        if self.violations.len() < MOST {
            self.violations.push(format!("{place} {}", rule.as_ref()));
        }
    }

    fn index(&mut self, index: i32, len: usize, place: &str) {
        if usize::try_from(index).is_ok_and(|index| index < len) {
            return;
        }
        self.add(place, format!("{index} is out of range, there are {len}"));
    }

    fn string(&mut self, index: i32, place: &str) {
        self.index(index, self.dictionary.string_table.len(), place);
    }

    /// Checks indices of attributes, which must have different keys.
    fn attributes(&mut self, indices: &[i32], place: &str) {
        let mut keys = HashSet::new();
        for &index in indices {
            self.index(index, self.dictionary.attribute_table.len(), &format!("{place}.attribute_indices"));
            let found = usize::try_from(index).ok().and_then(|index| self.dictionary.attribute_table.get(index));
            let key =
                found.and_then(|found| self.dictionary.string_table.get(usize::try_from(found.key_strindex).ok()?));
            if let Some(key) = key
                && !keys.insert(key)
            {
                self.add(place, format!("has the attribute {key:?} twice"));
            }
        }
    }

    fn value_type(&mut self, value_type: Option<&ValueType>, place: &str) {
        let Some(value_type) = value_type else { return };
        self.string(value_type.type_strindex, &format!("{place}.type_strindex"));
        self.string(value_type.unit_strindex, &format!("{place}.unit_strindex"));
    }

    fn profile(&mut self, profile: &Profile, place: &str) {
        self.attributes(&profile.attribute_indices, place);
        self.value_type(profile.sample_type.as_ref(), &format!("{place}.sample_type"));
        self.value_type(profile.period_type.as_ref(), &format!("{place}.period_type"));
        let mut expected = None;
        for (i, sample) in profile.samples.iter().enumerate() {
            let place = format!("{place}.samples[{i}]");
            let shape = self.sample(sample, profile, &place);
            if *expected.get_or_insert(shape) != shape {
                self.add(&place, format!("has {shape:?}, the first sample has {expected:?}"));
            }
        }
    }

    fn sample(&mut self, sample: &Sample, profile: &Profile, place: &str) -> SampleShape {
        self.index(sample.stack_index, self.dictionary.stack_table.len(), &format!("{place}.stack_index"));
        self.index(sample.link_index, self.dictionary.link_table.len(), &format!("{place}.link_index"));
        self.attributes(&sample.attribute_indices, place);
        let range = profile.time_unix_nano..profile.time_unix_nano.wrapping_add(profile.duration_nano);
        if let Some(time) = sample.timestamps_unix_nano.iter().find(|time| !range.contains(time)) {
            self.add(place, format!("has the time {time} outside of {range:?}"));
        }
        let (values, times) = (sample.values.len(), sample.timestamps_unix_nano.len());
        match (values, times) {
            (0, 0) => {
                self.add(place, "has neither a value nor a timestamp");
                SampleShape::Nothing
            }
            (0, _) => SampleShape::Timestamps,
            (values, 0) => {
                if values != 1 {
                    self.add(place, format!("has {values} values and no timestamps"));
                }
                SampleShape::Values
            }
            _ => {
                if values != times {
                    self.add(place, format!("has {values} values and {times} timestamps"));
                }
                SampleShape::Both
            }
        }
    }

    /// Checks that the first element of a table exists and is zero.
    fn zero<T: Default + PartialEq + Debug>(&mut self, table: &[T], name: &str) {
        match table.first() {
            None => self.add(name, "is empty: its first element must be zero"),
            Some(first) if *first != T::default() => self.add(name, format!("begins with {first:?}")),
            Some(_) => {}
        }
    }

    fn tables(&mut self) {
        let dictionary = self.dictionary;
        self.zero(&dictionary.mapping_table, "mapping_table");
        self.zero(&dictionary.location_table, "location_table");
        self.zero(&dictionary.function_table, "function_table");
        self.zero(&dictionary.link_table, "link_table");
        self.zero(&dictionary.string_table, "string_table");
        self.zero(&dictionary.attribute_table, "attribute_table");
        self.zero(&dictionary.stack_table, "stack_table");
        let mut strings: HashMap<&str, usize> = HashMap::new();
        for (i, string) in dictionary.string_table.iter().enumerate() {
            if let Some(before) = strings.insert(string, i) {
                self.add(&format!("string_table[{i}]"), format!("is the same as [{before}]: {string:?}"));
            }
        }
        self.mappings();
        self.locations();
        for (i, function) in dictionary.function_table.iter().enumerate() {
            let place = format!("function_table[{i}]");
            for index in [function.name_strindex, function.system_name_strindex, function.filename_strindex] {
                self.string(index, &place);
            }
            if function.start_line < 0 {
                self.add(&place, "has a negative start_line");
            }
        }
        for (i, link) in dictionary.link_table.iter().enumerate().skip(1) {
            if (link.trace_id.len(), link.span_id.len()) != (16, 8) {
                self.add(&format!("link_table[{i}]"), "has ids that are not of 16 and 8 bytes");
            }
        }
        for (i, attribute) in dictionary.attribute_table.iter().enumerate() {
            self.string(attribute.key_strindex, &format!("attribute_table[{i}].key_strindex"));
            self.string(attribute.unit_strindex, &format!("attribute_table[{i}].unit_strindex"));
        }
        for (i, stack) in dictionary.stack_table.iter().enumerate() {
            for &location in &stack.location_indices {
                self.index(location, dictionary.location_table.len(), &format!("stack_table[{i}]"));
            }
        }
    }

    fn mappings(&mut self) {
        let mut seen = HashSet::new();
        for (i, mapping) in self.dictionary.mapping_table.iter().enumerate().skip(1) {
            let place = format!("mapping_table[{i}]");
            self.string(mapping.filename_strindex, &place);
            self.attributes(&mapping.attribute_indices, &place);
            let (start, limit) = (mapping.memory_start, mapping.memory_limit);
            if (start, limit) != (0, 0) && start >= limit {
                self.add(&place, format!("ends at {limit:#x}, not behind its start {start:#x}"));
            }
            let mut attributes = mapping.attribute_indices.clone();
            attributes.sort_unstable();
            if !seen.insert((start, limit, mapping.file_offset, mapping.filename_strindex, attributes)) {
                self.add(&place, "is there twice");
            }
        }
    }

    fn locations(&mut self) {
        for (i, location) in self.dictionary.location_table.iter().enumerate() {
            let place = format!("location_table[{i}]");
            self.index(location.mapping_index, self.dictionary.mapping_table.len(), &place);
            self.attributes(&location.attribute_indices, &place);
            for line in &location.lines {
                self.index(line.function_index, self.dictionary.function_table.len(), &place);
                if line.line < 0 || line.column < 0 {
                    self.add(&place, "has a negative line or column");
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
