//! Compares chunks by the content that Sentry keeps: the order of tables has no effect, and empty values count as
//! missing.

use std::collections::BTreeMap;

use serde_json::{Value, json};

/// A chunk in which indices are replaced by the elements to which they refer.
#[derive(Debug, PartialEq)]
pub(crate) struct ComparableChunk {
    /// All keys except the profile and the images.
    about: BTreeMap<&'static str, Value>,
    /// The images as text, sorted.
    images: Vec<String>,
    threads: BTreeMap<String, ComparableThread>,
}

#[derive(Debug, Default, PartialEq)]
struct ComparableThread {
    about: BTreeMap<&'static str, Value>,
    /// Sorted by time. Samples with equal times keep their order.
    samples: Vec<ComparableSample>,
}

#[derive(Debug, PartialEq)]
struct ComparableSample {
    /// The time in microseconds since the Unix epoch. A double holds about four digits after the decimal point.
    micros: f64,
    frames: Vec<String>,
}

impl ComparableChunk {
    pub(crate) fn read(payload: &[u8]) -> Self {
        let chunk: Value = serde_json::from_slice(payload).unwrap();
        let mut about = some(&chunk, &["version", "platform", "release", "environment", "client_sdk", "measurements"]);
        for key in ["chunk_id", "profiler_id"] {
            let id = uuid::Uuid::parse_str(chunk[key].as_str().unwrap()).unwrap();
            about.insert(key, json!(id.simple().to_string()));
        }
        // An empty platform is a value, unlike other empty texts.
        about.insert("platform", chunk["platform"].clone());
        let empty = Vec::new();
        let images = chunk["debug_meta"]["images"].as_array().unwrap_or(&empty);
        let mut images: Vec<String> = images.iter().map(image).collect();
        images.sort();
        Self { about, images, threads: threads(&chunk["profile"]) }
    }

    /// Whether two chunks are equal, except for time differences of at most a microsecond.
    pub(crate) fn equals(&self, other: &Self) -> bool {
        let samples = |a: &ComparableThread, b: &ComparableThread| {
            let close = |a: &ComparableSample, b: &ComparableSample| {
                (a.micros - b.micros).abs() <= 1.001 && a.frames == b.frames
            };
            a.samples.len() == b.samples.len() && a.samples.iter().zip(&b.samples).all(|(a, b)| close(a, b))
        };
        self.about == other.about
            && self.images == other.images
            && self.threads.keys().eq(other.threads.keys())
            && self.threads.values().zip(other.threads.values()).all(|(a, b)| a.about == b.about && samples(a, b))
    }
}

/// The values of these keys that are neither missing, null nor empty.
fn some(object: &Value, keys: &[&'static str]) -> BTreeMap<&'static str, Value> {
    let known = |key: &&'static str| {
        let value = object.get(*key)?;
        (!value.is_null() && value != "").then(|| (*key, value.clone()))
    };
    keys.iter().filter_map(known).collect()
}

fn number(value: &Value) -> Option<u64> {
    match value {
        Value::String(text) => match text.strip_prefix("0x") {
            Some(digits) => u64::from_str_radix(digits, 16).ok(),
            None => text.parse().ok(),
        },
        value => value.as_u64(),
    }
}

fn image(image: &Value) -> String {
    let mut known = some(image, &["type", "code_file", "debug_id", "uuid"]);
    for key in ["image_addr", "image_vmaddr", "image_size"] {
        known.extend(image.get(key).and_then(number).map(|number| (key, json!(number))));
    }
    format!("{known:?}")
}

fn frame(frame: &Value) -> String {
    let mut known = some(frame, &["function", "filename", "abs_path"]);
    for key in ["module", "package", "platform", "lineno", "colno", "in_app"] {
        known.extend(frame.get(key).filter(|value| !value.is_null()).map(|value| (key, value.clone())));
    }
    known.extend(frame.get("instruction_addr").and_then(number).map(|number| ("instruction_addr", json!(number))));
    format!("{known:?}")
}

fn threads(profile: &Value) -> BTreeMap<String, ComparableThread> {
    let mut threads: BTreeMap<String, ComparableThread> = BTreeMap::new();
    for sample in profile["samples"].as_array().unwrap() {
        let id = sample["thread_id"].as_str().unwrap();
        let stack = profile["stacks"][sample["stack_id"].as_u64().unwrap() as usize].as_array().unwrap();
        let frames = stack.iter().map(|index| frame(&profile["frames"][index.as_u64().unwrap() as usize])).collect();
        let thread = threads.entry(id.to_owned()).or_default();
        thread.samples.push(ComparableSample { micros: sample["timestamp"].as_f64().unwrap() * 1e6, frames });
        thread.about = some(&profile["thread_metadata"][id], &["name", "priority"]);
    }
    for thread in threads.values_mut() {
        thread.samples.sort_by(|a, b| a.micros.total_cmp(&b.micros));
    }
    threads
}
