//! Encodes a batch as pprof profiles.
//!
//! A pprof profile has one process, one time and several types of values for each sample; an OTLP profile has one type,
//! and a batch has profiles of many processes. So adjacent profiles of a scope become one pprof profile if they only
//! differ in their types and have the same samples, as [`mod@super::decode`] creates them; all others become separate
//! pprof profiles ([`groups`]). Elements keep the order of the tables and are numbered from 1 on. A batch that becomes
//! a single pprof profile keeps all its mappings, functions and locations; otherwise only those that samples use are
//! written.
//!
//! `go tool pprof` shows one type of values and takes the first mapping for the program. So wall-clock time whose
//! samples have thread states becomes two types, `cpu`, which is shown, and `off_cpu`; and the mapping of the process's
//! executable is the first.
//!
//! Some OTLP data cannot be represented in pprof and is omitted: times of observations (a sample's value is the sum of
//! its values, or else the number of its observations), resources, scopes, attributes of elements other than samples
//! without a field in pprof, and attributes of samples that are lists or bytes.

mod marks;
mod sample;
mod text;

use std::ops::Range;

use profbridge_model::meaning::Mode;
use profbridge_model::thread::ThreadState;
use profbridge_model::{
    Attribute, AttributeSetId, Dictionary, Function, Location, LocationId, Mapping, Profile, Profiles,
    ResourceProfiles, Sample, Scope, ScopeProfiles, StringId, Value, ValueType, varint,
};

use self::marks::Marks;
use self::sample::Labels;
use self::text::Texts;
use super::keys::{BUILD_ID, COMMENT, DEFAULT_SAMPLE_TYPE, DOC_URL, DROP_FRAMES, HAS, IS_FOLDED, KEEP_FRAMES};
use crate::folded::main_executable;
use crate::otlp::encode::put::{bytes, encoded, int};

/// Profiles of a batch that form one pprof profile.
#[derive(Debug, Clone)]
pub struct Group<'a> {
    scope: &'a ScopeProfiles,
    profiles: Range<usize>,
    /// Whether this is the batch's only group.
    only: bool,
}

impl<'a> Group<'a> {
    /// The profiles, one for each type.
    pub fn profiles(&self) -> &'a [Profile] {
        self.scope.profiles.get(self.profiles.clone()).unwrap_or_default()
    }
}

/// An uncompressed pprof profile, and counts of the omitted data.
#[derive(Debug, Clone)]
pub struct EncodedProfile {
    /// The profile.
    pub bytes: Vec<u8>,
    /// Number of samples whose times were omitted.
    pub left_out_times: u64,
    /// Number of omitted sample attributes.
    pub left_out_attributes: u64,
}

/// Groups the profiles of a batch into pprof profiles, in order.
pub fn groups(batch: &Profiles) -> Vec<Group<'_>> {
    let mut groups: Vec<Group<'_>> = Vec::new();
    for scope in batch.resources().iter().flat_map(|resource| &resource.scopes) {
        let mut start = 0;
        for (p, profile) in scope.profiles.iter().enumerate() {
            let joins = p > start && are_one(batch, &scope.profiles[start], profile);
            match groups.last_mut() {
                Some(last) if joins => last.profiles.end = p + 1,
                _ => {
                    start = p;
                    groups.push(Group { scope, profiles: p..p + 1, only: false });
                }
            }
        }
    }
    if let [only] = &mut groups[..] {
        only.only = true;
    }
    groups
}

/// Whether two profiles only differ in their types and values.
fn are_one(batch: &Profiles, one: &Profile, other: &Profile) -> bool {
    // Each profile has its own id, so ids are not compared.
    let common = |profile: &Profile| Profile {
        sample_type: ValueType::default(),
        samples: 0..0,
        profile_id: None,
        ..profile.clone()
    };
    let rows = |profile: &Profile| profile.samples.start as usize..profile.samples.end as usize;
    let columns = batch.columns();
    let is_total = |row: u32| {
        let sample = batch.sample(row);
        sample.timestamps_bytes().is_empty() && varint::count(sample.values_bytes()) == 1
    };
    common(one) == common(other)
        && columns.ids[rows(one)] == columns.ids[rows(other)]
        && one.samples.clone().chain(other.samples.clone()).all(is_total)
}

/// Encodes a group of profiles of a batch.
pub fn encode(batch: &Profiles, group: &Group<'_>) -> EncodedProfile {
    let mut encoder = ProfileEncoder {
        batch,
        dictionary: batch.dictionary(),
        marks: Marks::new(batch.dictionary(), group.only),
        texts: Texts::default(),
        labels: Labels::default(),
        has_states: false,
        left_out_times: 0,
        left_out_attributes: 0,
    };
    let bytes = encoder.profile(group);
    let ProfileEncoder { left_out_times, left_out_attributes, .. } = encoder;
    EncodedProfile { bytes, left_out_times, left_out_attributes }
}

/// The types of running and of waiting time.
const STATES: [&str; 2] = ["cpu", "off_cpu"];

/// The executable of a scope's process; empty if it is unknown.
fn executable<'a>(batch: &'a Profiles, scope: &ScopeProfiles) -> &'a str {
    let is_it = |resource: &&ResourceProfiles| resource.scopes.iter().any(|known| std::ptr::eq(known, scope));
    let resource = batch.resources().iter().find(is_it);
    resource.and_then(|resource| main_executable(batch, &resource.resource)).unwrap_or_default()
}

struct ProfileEncoder<'a> {
    batch: &'a Profiles,
    dictionary: &'a Dictionary,
    marks: Marks,
    texts: Texts<'a>,
    labels: Labels,
    /// Whether running and waiting time are written as two types.
    has_states: bool,
    left_out_times: u64,
    left_out_attributes: u64,
}

impl<'a> ProfileEncoder<'a> {
    fn profile(&mut self, group: &Group<'a>) -> Vec<u8> {
        let profiles = group.profiles();
        let Some(first) = profiles.first() else { return Vec::new() };
        for sample in self.batch.samples(first) {
            self.marks.stack(self.dictionary, sample.stack);
        }
        self.marks.number();
        let mut out = Vec::new();
        self.has_states = matches!(profiles, [only] if self.has_states(only));
        if self.has_states {
            for kind in STATES {
                let mut message = Vec::new();
                int(&mut message, 0x08, self.texts.index(kind.as_bytes()));
                int(&mut message, 0x10, self.string(first.sample_type.unit));
                encoded(&mut out, 0x0a, &message);
            }
        } else {
            for profile in profiles {
                self.value_type(&mut out, 0x0a, profile.sample_type);
            }
        }
        self.samples(&mut out, profiles);
        self.mappings(&mut out, executable(self.batch, group.scope));
        self.locations(&mut out);
        self.functions(&mut out);
        let mut rest = Vec::new();
        self.header(&mut rest, group.scope, first);
        for text in self.texts.all() {
            encoded(&mut out, 0x32, text);
        }
        out.extend_from_slice(&rest);
        out
    }

    fn value_type(&mut self, out: &mut Vec<u8>, key: u8, ValueType { kind, unit }: ValueType) {
        let mut message = Vec::new();
        int(&mut message, 0x08, self.string(kind));
        int(&mut message, 0x10, self.string(unit));
        encoded(out, key, &message);
    }

    /// The index of a string of the batch.
    fn string(&mut self, id: Option<StringId>) -> u64 {
        self.texts.index(self.dictionary.string_bytes(id))
    }

    /// Whether all samples of wall-clock time have a thread state.
    fn has_states(&self, profile: &Profile) -> bool {
        let state = |sample: Sample<'_>| ThreadState::of(self.dictionary, sample.attributes);
        Mode::of(self.dictionary, profile) == Mode::Wall
            && !profile.samples.is_empty()
            && self.batch.samples(profile).all(|sample| state(sample).is_some())
    }

    fn mappings(&mut self, out: &mut Vec<u8>, executable: &str) {
        let mut message = Vec::new();
        let name = |path: &'a str| path.rsplit('/').next().unwrap_or_default();
        let mut numbered: Vec<_> = self.marks.mappings.numbered().collect();
        numbered.sort_by_key(|&(_, index)| {
            let path = self.dictionary.string(self.dictionary.tables().mappings[index].filename);
            executable.is_empty() || name(path) != executable.rsplit('/').next().unwrap_or_default()
        });
        for (number, index) in numbered {
            let &Mapping { memory_start, memory_limit, file_offset, filename, attributes } =
                &self.dictionary.tables().mappings[index];
            message.clear();
            int(&mut message, 0x08, number);
            int(&mut message, 0x10, memory_start);
            int(&mut message, 0x18, memory_limit);
            int(&mut message, 0x20, file_offset);
            int(&mut message, 0x28, self.texts.index(self.dictionary.string_bytes(filename)));
            if let Some(Value::String(build_id)) = self.dictionary.find(attributes, BUILD_ID) {
                int(&mut message, 0x30, self.texts.index(self.dictionary.string_bytes(*build_id)));
            }
            for (key, field) in HAS.into_iter().zip([0x38, 0x40, 0x48, 0x50]) {
                int(&mut message, field, u64::from(self.is_so(attributes, key)));
            }
            encoded(out, 0x1a, &message);
        }
    }

    fn is_so(&self, attributes: Option<AttributeSetId>, key: &str) -> bool {
        self.dictionary.find(attributes, key) == Some(&Value::Bool(true))
    }

    fn locations(&mut self, out: &mut Vec<u8>) {
        let (mut message, mut inner) = (Vec::new(), Vec::new());
        for (number, index) in self.marks.locations.numbered() {
            let location = &self.dictionary.tables().locations[index];
            let &Location { mapping, address, attributes, lines_start: _, lines_len: _ } = location;
            message.clear();
            int(&mut message, 0x08, number);
            int(&mut message, 0x10, mapping.map_or(0, |mapping| self.marks.mappings.get(mapping.index())));
            int(&mut message, 0x18, address);
            for line in self.dictionary.lines(location) {
                inner.clear();
                let function = line.function.map_or(0, |function| self.marks.functions.get(function.index()));
                int(&mut inner, 0x08, function);
                int(&mut inner, 0x10, line.line as u64);
                int(&mut inner, 0x18, line.column as u64);
                encoded(&mut message, 0x22, &inner);
            }
            int(&mut message, 0x28, u64::from(self.is_so(attributes, IS_FOLDED)));
            encoded(out, 0x22, &message);
        }
    }

    fn functions(&mut self, out: &mut Vec<u8>) {
        let mut message = Vec::new();
        for (number, index) in self.marks.functions.numbered() {
            let &Function { name, system_name, filename, start_line } = &self.dictionary.tables().functions[index];
            message.clear();
            int(&mut message, 0x08, number);
            for (key, id) in [(0x10, name), (0x18, system_name), (0x20, filename)] {
                int(&mut message, key, self.texts.index(self.dictionary.string_bytes(id)));
            }
            int(&mut message, 0x28, start_line as u64);
            encoded(out, 0x2a, &message);
        }
    }

    /// Writes the fields after the string table, and adds strings for them.
    fn header(&mut self, out: &mut Vec<u8>, scope: &ScopeProfiles, profile: &Profile) {
        for (key, field) in [(DROP_FRAMES, 0x38), (KEEP_FRAMES, 0x40)] {
            int(out, field, self.text_of(profile.attributes, key));
        }
        int(out, 0x48, profile.time_unix_nano);
        int(out, 0x50, profile.duration_nano);
        let ValueType { kind, unit } = profile.period_type;
        if [kind, unit].iter().any(|&id| !self.dictionary.string_bytes(id).is_empty()) {
            self.value_type(out, 0x5a, profile.period_type);
        }
        int(out, 0x60, profile.period as u64);
        let mut comments = Vec::new();
        for comment in comments_of(self.dictionary, profile.attributes) {
            varint::put(&mut comments, self.string(comment));
        }
        bytes(out, 0x6a, &comments);
        let default = self.default_sample_type(&scope.scope);
        int(out, 0x70, default);
        int(out, 0x78, self.text_of(profile.attributes, DOC_URL));
    }

    fn text_of(&mut self, attributes: Option<AttributeSetId>, key: &str) -> u64 {
        match self.dictionary.find(attributes, key) {
            Some(Value::String(text)) => self.string(*text),
            _ => 0,
        }
    }

    fn default_sample_type(&mut self, scope: &Scope) -> u64 {
        match self.batch.find(&scope.attributes, DEFAULT_SAMPLE_TYPE) {
            _ if self.has_states => self.texts.index(STATES[0].as_bytes()),
            Some(Value::String(text)) => self.string(*text),
            _ => 0,
        }
    }

    /// The number of a location; `None` refers to the empty location.
    fn location(&self, id: Option<LocationId>) -> u64 {
        self.marks.locations.get(LocationId::wire(id) as usize)
    }
}

/// The comments of a profile: a list under one key, or, as the Collector's translator writes them, one key per comment,
/// with the comment's position as the suffix.
fn comments_of(dictionary: &Dictionary, attributes: Option<AttributeSetId>) -> Vec<Option<StringId>> {
    let mut single: Vec<(u32, Option<StringId>)> = Vec::new();
    for Attribute { key, value, unit: _ } in dictionary.attributes(attributes) {
        let Some(rest) = dictionary.string(*key).strip_prefix(COMMENT) else { continue };
        match (rest, value) {
            ("", Value::Array(texts)) => {
                let text = |value: &Value| match value {
                    Value::String(text) => Some(*text),
                    _ => None,
                };
                return texts.iter().filter_map(text).collect();
            }
            ("", Value::String(text)) => return vec![*text],
            (position, Value::String(text)) => {
                if let Some(position) = position.strip_prefix('.').and_then(|position| position.parse().ok()) {
                    single.push((position, *text));
                }
            }
            _ => {}
        }
    }
    single.sort_by_key(|&(position, _)| position);
    single.into_iter().map(|(_, text)| text).collect()
}
