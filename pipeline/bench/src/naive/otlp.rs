//! The control's other way: a chunk to OTLP and back, as one writes it in an afternoon. Tables are filled through maps,
//! what OTLP has no field for goes into attributes.

use std::collections::{BTreeMap, HashMap};

use opentelemetry_proto::tonic::common::v1::{AnyValue, InstrumentationScope, KeyValue, any_value::Value};
use opentelemetry_proto::tonic::profiles::v1development::{
    Function, KeyValueAndUnit, Line, Link, Location, Mapping, Profile, ProfilesDictionary, ResourceProfiles,
    Sample as OtlpSample, ScopeProfiles, Stack, ValueType,
};
use opentelemetry_proto::tonic::resource::v1::Resource;
use prost::Message;

use super::Error;
use super::chunk::{Chunk, ClientSdk, DebugMeta, Frame, Image, Profile as ChunkProfile, Sample, ThreadMetadata};
use crate::ExportProfilesServiceRequest;

/// The JSON of a chunk to an encoded request.
///
/// # Errors
/// The JSON is no chunk.
pub fn to_otlp(json: &[u8]) -> Result<Vec<u8>, Error> {
    let chunk: Chunk = serde_json::from_slice(json)?;
    Ok(request(&chunk).encode_to_vec())
}

/// An encoded request that [`to_otlp`] made to the JSON of the chunk.
///
/// # Errors
/// The bytes are no request, or none of a chunk.
pub fn from_otlp(bytes: &[u8]) -> Result<Vec<u8>, Error> {
    let request = ExportProfilesServiceRequest::decode(bytes)?;
    let chunk = chunk(&request).ok_or("the request holds no chunk")?;
    Ok(serde_json::to_vec(&chunk)?)
}

#[derive(Default)]
struct Tables {
    dictionary: ProfilesDictionary,
    strings: HashMap<String, i32>,
    functions: HashMap<(i32, i32), i32>,
    attributes: HashMap<(i32, String), i32>,
    stacks: HashMap<Vec<i32>, i32>,
}

impl Tables {
    fn new() -> Self {
        let mut tables = Self::default();
        let dictionary = &mut tables.dictionary;
        dictionary.mapping_table.push(Mapping::default());
        dictionary.location_table.push(Location::default());
        dictionary.function_table.push(Function::default());
        dictionary.link_table.push(Link::default());
        dictionary.attribute_table.push(KeyValueAndUnit::default());
        dictionary.stack_table.push(Stack::default());
        tables.string("");
        tables
    }

    fn string(&mut self, text: &str) -> i32 {
        if let Some(&known) = self.strings.get(text) {
            return known;
        }
        let index = self.dictionary.string_table.len() as i32;
        self.dictionary.string_table.push(text.to_owned());
        self.strings.insert(text.to_owned(), index);
        index
    }

    fn attribute(&mut self, key: &str, text: &str) -> i32 {
        let key_strindex = self.string(key);
        if let Some(&known) = self.attributes.get(&(key_strindex, text.to_owned())) {
            return known;
        }
        let index = self.dictionary.attribute_table.len() as i32;
        let value = Some(any(text));
        self.dictionary.attribute_table.push(KeyValueAndUnit { key_strindex, value, unit_strindex: 0 });
        self.attributes.insert((key_strindex, text.to_owned()), index);
        index
    }

    fn function(&mut self, name: &str, file: &str) -> i32 {
        let (name_strindex, filename_strindex) = (self.string(name), self.string(file));
        let table = &mut self.dictionary.function_table;
        *self.functions.entry((name_strindex, filename_strindex)).or_insert_with(|| {
            table.push(Function { name_strindex, filename_strindex, ..Function::default() });
            table.len() as i32 - 1
        })
    }

    fn location(&mut self, frame: &Frame) -> i32 {
        let file = frame.abs_path.as_deref().or(frame.filename.as_deref()).unwrap_or_default();
        let function_index = self.function(frame.function.as_deref().unwrap_or_default(), file);
        let mut attribute_indices = Vec::new();
        for (key, text) in [
            ("sentry.frame.filename", &frame.filename),
            ("sentry.frame.abs_path", &frame.abs_path),
            ("sentry.frame.module", &frame.module),
            ("sentry.frame.package", &frame.package),
            ("sentry.frame.platform", &frame.platform),
        ] {
            if let Some(text) = text {
                attribute_indices.push(self.attribute(key, text));
            }
        }
        if let Some(in_app) = frame.in_app {
            attribute_indices.push(self.attribute("sentry.frame.in_app", if in_app { "true" } else { "false" }));
        }
        let number = |number: Option<u32>| number.map_or(0, i64::from);
        let lines = vec![Line { function_index, line: number(frame.lineno), column: number(frame.colno) }];
        let address = frame.instruction_addr.as_deref().map_or(0, hexadecimal);
        self.dictionary.location_table.push(Location { address, lines, attribute_indices, mapping_index: 0 });
        self.dictionary.location_table.len() as i32 - 1
    }

    fn stack(&mut self, location_indices: Vec<i32>) -> i32 {
        let table = &mut self.dictionary.stack_table;
        *self.stacks.entry(location_indices.clone()).or_insert_with(|| {
            table.push(Stack { location_indices });
            table.len() as i32 - 1
        })
    }
}

fn any(text: &str) -> AnyValue {
    AnyValue { value: Some(Value::StringValue(text.to_owned())) }
}

fn hexadecimal(text: &str) -> u64 {
    u64::from_str_radix(text.trim_start_matches("0x"), 16).unwrap_or_default()
}

fn request(chunk: &Chunk) -> ExportProfilesServiceRequest {
    let mut tables = Tables::new();
    let locations: Vec<i32> = chunk.profile.frames.iter().map(|frame| tables.location(frame)).collect();
    let stacks: Vec<i32> = (chunk.profile.stacks.iter())
        .map(|stack| if stack.is_empty() { 0 } else { tables.stack(stack.iter().map(|&f| locations[f]).collect()) })
        .collect();
    for image in &chunk.debug_meta.images {
        let (memory_start, filename_strindex) = (hexadecimal(&image.image_addr), tables.string(&image.code_file));
        let attribute_indices = vec![
            tables.attribute("sentry.debug_id", &image.debug_id),
            tables.attribute("sentry.image_type", &image.kind),
            tables.attribute("sentry.image_vmaddr", &image.image_vmaddr),
        ];
        let memory_limit = memory_start + image.image_size;
        let mapping = Mapping { memory_start, memory_limit, filename_strindex, attribute_indices, file_offset: 0 };
        tables.dictionary.mapping_table.push(mapping);
    }
    let mut ordered: Vec<(u64, &Sample)> =
        chunk.profile.samples.iter().map(|sample| ((sample.timestamp * 1e9).round() as u64, sample)).collect();
    ordered.sort_by_key(|(time, _)| *time);
    let mut next: HashMap<&str, u64> = HashMap::new();
    let mut owned = vec![0; ordered.len()];
    for (position, (time, sample)) in ordered.iter().enumerate().rev() {
        owned[position] = next.insert(&sample.thread_id, *time).unwrap_or(*time) - time;
    }
    let mut samples: BTreeMap<(i32, &str), OtlpSample> = BTreeMap::new();
    for ((time, sample), owned) in ordered.iter().zip(owned) {
        let stack_index = stacks[sample.stack_id];
        let row = samples.entry((stack_index, &*sample.thread_id)).or_insert_with(|| {
            let mut attribute_indices = vec![tables.attribute("thread.id", &sample.thread_id)];
            let thread = chunk.profile.thread_metadata.get(&sample.thread_id);
            if let Some(name) = thread.and_then(|thread| thread.name.as_ref()) {
                attribute_indices.push(tables.attribute("thread.name", name));
            }
            OtlpSample { stack_index, attribute_indices, ..OtlpSample::default() }
        });
        row.timestamps_unix_nano.push(*time);
        row.values.push(owned as i64);
    }
    let (first, last) = (ordered.first().map_or(0, |(time, _)| *time), ordered.last().map_or(0, |(time, _)| *time));
    let sample_type = ValueType { type_strindex: tables.string("wall"), unit_strindex: tables.string("nanoseconds") };
    let profile = Profile {
        sample_type: Some(sample_type),
        samples: samples.into_values().collect(),
        time_unix_nano: first,
        duration_nano: last - first + 1,
        profile_id: hex_bytes(&chunk.chunk_id),
        ..Profile::default()
    };
    let attribute = |key: &str, text: &str| KeyValue { key: key.to_owned(), value: Some(any(text)), key_strindex: 0 };
    let mut attributes =
        vec![attribute("sentry.profiler_id", &chunk.profiler_id), attribute("sentry.platform", &chunk.platform)];
    attributes.extend(chunk.release.iter().map(|release| attribute("sentry.release", release)));
    attributes.extend(chunk.environment.iter().map(|name| attribute("deployment.environment.name", name)));
    let ClientSdk { name, version } = chunk.client_sdk.clone();
    let scope = InstrumentationScope { name, version, ..InstrumentationScope::default() };
    let scope = ScopeProfiles { scope: Some(scope), profiles: vec![profile], ..ScopeProfiles::default() };
    let resource = Resource { attributes, ..Resource::default() };
    let resource = ResourceProfiles { resource: Some(resource), scope_profiles: vec![scope], ..Default::default() };
    ExportProfilesServiceRequest { resource_profiles: vec![resource], dictionary: Some(tables.dictionary) }
}

fn hex_bytes(text: &str) -> Vec<u8> {
    (0..text.len() / 2).filter_map(|at| u8::from_str_radix(text.get(at * 2..at * 2 + 2)?, 16).ok()).collect()
}

/// The texts of some attributes by their keys.
fn texts<'a>(dictionary: &'a ProfilesDictionary, indices: &[i32]) -> HashMap<&'a str, &'a str> {
    let text = |&index: &i32| {
        let attribute = dictionary.attribute_table.get(index as usize)?;
        match attribute.value.as_ref()?.value.as_ref()? {
            Value::StringValue(text) => Some((string(dictionary, attribute.key_strindex), text.as_str())),
            _ => None,
        }
    };
    indices.iter().filter_map(text).collect()
}

fn string(dictionary: &ProfilesDictionary, index: i32) -> &str {
    dictionary.string_table.get(index as usize).map_or("", String::as_str)
}

fn frame(dictionary: &ProfilesDictionary, location: &Location) -> Frame {
    let kept = texts(dictionary, &location.attribute_indices);
    let text = |key: &str| kept.get(key).map(|&text| text.to_owned());
    let line = location.lines.first().copied().unwrap_or_default();
    let function = dictionary.function_table.get(line.function_index as usize).copied().unwrap_or_default();
    let number = |number: i64| u32::try_from(number).ok().filter(|&number| number > 0);
    let name = string(dictionary, function.name_strindex);
    Frame {
        function: (!name.is_empty()).then(|| name.to_owned()),
        module: text("sentry.frame.module"),
        filename: text("sentry.frame.filename"),
        abs_path: text("sentry.frame.abs_path"),
        lineno: number(line.line),
        colno: number(line.column),
        instruction_addr: (location.address != 0).then(|| format!("{:#x}", location.address)),
        package: text("sentry.frame.package"),
        platform: text("sentry.frame.platform"),
        in_app: kept.get("sentry.frame.in_app").map(|&text| text == "true"),
    }
}

fn chunk(request: &ExportProfilesServiceRequest) -> Option<Chunk> {
    let dictionary = request.dictionary.as_ref()?;
    let resource = request.resource_profiles.first()?;
    let scope = resource.scope_profiles.first()?;
    let profile = scope.profiles.first()?;
    let attribute = |key: &str| {
        let found = resource.resource.as_ref()?.attributes.iter().find(|attribute| attribute.key == key)?;
        match found.value.as_ref()?.value.as_ref()? {
            Value::StringValue(text) => Some(text.clone()),
            _ => None,
        }
    };
    let mut samples = Vec::new();
    let mut thread_metadata = BTreeMap::new();
    for sample in &profile.samples {
        let kept = texts(dictionary, &sample.attribute_indices);
        let thread_id = kept.get("thread.id").copied().unwrap_or_default().to_owned();
        let name = kept.get("thread.name").map(|&name| name.to_owned());
        for &time in &sample.timestamps_unix_nano {
            let (thread_id, stack_id) = (thread_id.clone(), sample.stack_index as usize);
            samples.push(Sample { timestamp: (time / 1000) as f64 / 1e6, thread_id, stack_id });
        }
        thread_metadata.entry(thread_id).or_insert(ThreadMetadata { name });
    }
    samples.sort_by(|a, b| a.timestamp.total_cmp(&b.timestamp));
    let image = |mapping: &Mapping| {
        let kept = texts(dictionary, &mapping.attribute_indices);
        let text = |key: &str| kept.get(key).copied().unwrap_or_default().to_owned();
        Image {
            kind: text("sentry.image_type"),
            debug_id: text("sentry.debug_id"),
            code_file: string(dictionary, mapping.filename_strindex).to_owned(),
            image_addr: format!("{:#x}", mapping.memory_start),
            image_vmaddr: text("sentry.image_vmaddr"),
            image_size: mapping.memory_limit - mapping.memory_start,
        }
    };
    let stack = |stack: &Stack| stack.location_indices.iter().map(|&location| location as usize).collect();
    let scope = scope.scope.as_ref()?;
    Some(Chunk {
        chunk_id: profile.profile_id.iter().map(|byte| format!("{byte:02x}")).collect(),
        profiler_id: attribute("sentry.profiler_id")?,
        platform: attribute("sentry.platform")?,
        release: attribute("sentry.release"),
        environment: attribute("deployment.environment.name"),
        client_sdk: ClientSdk { name: scope.name.clone(), version: scope.version.clone() },
        version: "2".to_owned(),
        debug_meta: DebugMeta { images: dictionary.mapping_table.iter().skip(1).map(image).collect() },
        profile: ChunkProfile {
            samples,
            stacks: dictionary.stack_table.iter().map(stack).collect(),
            frames: dictionary.location_table.iter().map(|location| frame(dictionary, location)).collect(),
            thread_metadata,
        },
    })
}
