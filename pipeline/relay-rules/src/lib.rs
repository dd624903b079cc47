//! Strictly checks finished payloads of type `profile_chunk` by Relay's rules, those of type `transaction`
//! ([`validate_transaction`]), and containers of spans ([`validate_span_container`]).
//!
//! Relay answers 200 before it checks a chunk, and silently drops one that breaks a rule. This module reads a payload
//! independently, shares no code with the crates that write payloads, and reports every broken rule. Only tests and
//! fuzz targets use it, so no shipped crate depends on it; it is not fast.
//!
//! Source of the rules: getsentry/relay `relay-profiling/src/sample/v2.rs`, `sample/mod.rs`, `measurements.rs`,
//! `debug_image.rs`, `utils.rs` and `relay-server/src/processing/profile_chunks/process.rs`, and the behaviour of its
//! profile crate on crafted payloads. Some rules are stricter than Relay's and only apply to profbridge's own payloads:
//! a stack that no sample uses and a thread that Relay would drop are violations, since nobody would see their data,
//! and ids are UUIDs v4 in the form that Sentry documents.

mod json;
mod spans;
mod transaction;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde_json::{Map, Value};

pub use spans::validate_span_container;
pub use transaction::validate_transaction;

/// The largest payload, in bytes.
const MAX_BYTES: usize = 50 << 20;

/// The longest time from the first to the last sample, in seconds.
const MAX_SECONDS: f64 = 66.0;

/// The types of images in Relay's schema of a profile. `elf`, `pe` and `wasm` are not among them.
const IMAGE_TYPES: [&str; 5] = ["macho", "symbolic", "sourcemap", "proguard", "jvm"];

/// The allowed units of measurements.
const UNITS: [&str; 8] = ["nanosecond", "ns", "hertz", "hz", "byte", "percent", "nanojoule", "nj"];

/// A rule that a payload breaks, and the place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// The place, such as `profile.samples[3].stack_id`.
    pub place: String,
    /// The rule, and the value that broke it.
    pub rule: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place, self.rule)
    }
}

/// The set of rules to check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Strictness {
    /// Only Relay's rules. Payloads of other SDKs must keep them.
    Relay,
    /// Relay's rules, and those of profbridge's own payloads: no data that nobody would see.
    Own,
}

/// Checks a payload of profbridge, see [`Strictness::Own`].
///
/// # Errors
///
/// Every broken rule, at most a hundred.
pub fn validate_json(payload: &[u8]) -> Result<(), Vec<Violation>> {
    validate(payload, Strictness::Own)
}

/// Checks a payload.
///
/// # Errors
///
/// Every broken rule, at most a hundred.
pub fn validate(payload: &[u8], strictness: Strictness) -> Result<(), Vec<Violation>> {
    let mut checker = Checker { violations: Vec::new(), strict: strictness == Strictness::Own };
    if payload.len() > MAX_BYTES {
        checker.add("payload", format!("has {} bytes, Relay takes {MAX_BYTES}", payload.len()));
    }
    match serde_json::from_slice::<Value>(payload) {
        Ok(Value::Object(chunk)) => checker.chunk(&chunk),
        Ok(_) => checker.add("payload", "is not an object"),
        Err(error) => checker.add("payload", format!("is not JSON: {error}")),
    }
    if checker.violations.is_empty() { Ok(()) } else { Err(checker.violations) }
}

/// The maximum number of reported violations.
const MAX_VIOLATIONS: usize = 100;

struct Checker {
    violations: Vec<Violation>,
    strict: bool,
}

/// The fields of a sample that other rules need.
struct CheckedSample {
    timestamp: f64,
    thread: String,
    stack: usize,
}

impl Checker {
    fn add(&mut self, place: impl Into<String>, rule: impl Into<String>) {
        if self.violations.len() < MAX_VIOLATIONS {
            self.violations.push(Violation { place: place.into(), rule: rule.into() });
        }
    }

    fn text<'a>(&mut self, object: &'a Map<String, Value>, key: &str, place: &str) -> Option<&'a str> {
        match object.get(key) {
            Some(Value::String(text)) => Some(text),
            Some(other) => {
                self.add(format!("{place}{key}"), format!("must be a string, is {other}"));
                None
            }
            None => {
                self.add(format!("{place}{key}"), "is missing");
                None
            }
        }
    }

    fn optional_text(&mut self, object: &Map<String, Value>, key: &str, place: &str) {
        if let Some(other) = object.get(key).filter(|value| !value.is_string() && !value.is_null()) {
            self.add(format!("{place}{key}"), format!("must be a string, is {other}"));
        }
    }

    fn chunk(&mut self, chunk: &Map<String, Value>) {
        for key in ["chunk_id", "profiler_id"] {
            if let Some(id) = self.text(chunk, key, "") {
                let simple = id.len() == 32 && id.bytes().all(|digit| matches!(digit, b'0'..=b'9' | b'a'..=b'f'));
                let version = simple && id.as_bytes()[12] == b'4' && b"89ab".contains(&id.as_bytes()[16]);
                // Relay accepts any text form of a UUID, including the nil UUID, and rewrites it.
                if self.strict && !version {
                    self.add(key, format!("must be a UUID v4 in 32 lower-case hexadecimal digits, is {id:?}"));
                } else if uuid::Uuid::try_parse(id).is_err() {
                    self.add(key, format!("must be a UUID, is {id:?}"));
                }
            }
        }
        match chunk.get("version") {
            Some(Value::String(version)) if version == "2" => {}
            other => self.add("version", format!("must be \"2\", is {other:?}")),
        }
        if let Some(platform) = self.text(chunk, "platform", "")
            && self.strict
            && matches!(platform, "" | "cocoa" | "android" | "javascript")
        {
            self.add("platform", format!("{platform:?} is no platform of a server"));
        }
        match chunk.get("client_sdk") {
            Some(Value::Object(sdk)) => {
                self.text(sdk, "name", "client_sdk.");
                self.text(sdk, "version", "client_sdk.");
            }
            _ => self.add("client_sdk", "must be an object"),
        }
        self.optional_text(chunk, "release", "");
        self.optional_text(chunk, "environment", "");
        self.debug_meta(chunk.get("debug_meta"));
        self.measurements(chunk.get("measurements"));
        match chunk.get("profile") {
            Some(Value::Object(profile)) => self.profile(profile),
            _ => self.add("profile", "must be an object"),
        }
    }

    fn debug_meta(&mut self, meta: Option<&Value>) {
        let Some(meta) = meta else { return };
        let Some(images) = meta.get("images").and_then(Value::as_array) else {
            return self.add("debug_meta.images", "must be an array");
        };
        let mut ranges: Vec<(u64, u64)> = Vec::new();
        for (position, image) in images.iter().enumerate() {
            let place = format!("debug_meta.images[{position}].");
            let Value::Object(image) = image else {
                self.add(place, "must be an object");
                continue;
            };
            if let Some(kind) = self.text(image, "type", &place)
                && !IMAGE_TYPES.contains(&kind)
            {
                self.add(format!("{place}type"), format!("{kind:?} makes Relay reject the whole chunk"));
            }
            if let Some(id) = image.get("debug_id")
                && id.as_str().and_then(|id| uuid::Uuid::parse_str(id.get(..36).unwrap_or(id)).ok()).is_none()
            {
                self.add(format!("{place}debug_id"), format!("must be a UUID, is {id}"));
            }
            for key in ["image_addr", "image_vmaddr"] {
                self.address(image.get(key), &format!("{place}{key}"));
            }
            let size = image.get("image_size");
            if size.is_some_and(|size| {
                size.as_u64().is_none() && size.as_str().and_then(|s| s.parse::<u64>().ok()).is_none()
            }) {
                self.add(format!("{place}image_size"), "must be a number");
            }
            if let (Some(start), Some(size)) = (image.get("image_addr").and_then(hex), size.and_then(Value::as_u64)) {
                ranges.push((start, start.saturating_add(size)));
            }
        }
        ranges.sort_unstable();
        if self.strict && ranges.windows(2).any(|pair| pair[0].1 > pair[1].0) {
            self.add("debug_meta.images", "two images overlap");
        }
    }

    fn address(&mut self, value: Option<&Value>, place: &str) {
        if let Some(value) = value
            && hex(value).is_none()
        {
            self.add(place, format!("must be a string with a number, is {value}"));
        }
    }

    fn measurements(&mut self, measurements: Option<&Value>) {
        let Some(measurements) = measurements else { return };
        let Value::Object(measurements) = measurements else {
            if !measurements.is_null() {
                self.add("measurements", "must be an object");
            }
            return;
        };
        for (name, measurement) in measurements {
            let unit = measurement.get("unit").and_then(Value::as_str).unwrap_or_default();
            if !UNITS.contains(&unit) {
                self.add(format!("measurements.{name}.unit"), format!("{unit:?} is not a unit that Relay knows"));
            }
            if !measurement.get("values").is_some_and(Value::is_array) {
                self.add(format!("measurements.{name}.values"), "must be an array");
            }
        }
    }

    fn profile(&mut self, profile: &Map<String, Value>) {
        let list = |key: &str| profile.get(key).and_then(Value::as_array);
        let (Some(samples), Some(stacks), Some(frames)) = (list("samples"), list("stacks"), list("frames")) else {
            return self.add("profile", "samples, stacks and frames must be arrays");
        };
        let idle = self.stacks(stacks, frames.len());
        for (position, frame) in frames.iter().enumerate() {
            self.frame(frame, &format!("profile.frames[{position}]."));
        }
        let samples = self.samples(samples, stacks.len());
        let threads = self.thread_rules(&samples, &idle);
        if self.strict {
            let used: BTreeSet<usize> = samples.iter().map(|sample| sample.stack).collect();
            if let Some(unused) = (0..stacks.len()).find(|stack| !used.contains(stack)) {
                self.add(format!("profile.stacks[{unused}]"), "no sample uses it");
            }
        }
        self.thread_metadata(profile.get("thread_metadata"), &threads);
    }

    /// Checks the stacks. Returns for each whether it is empty.
    fn stacks(&mut self, stacks: &[Value], frames: usize) -> Vec<bool> {
        let mut idle = Vec::with_capacity(stacks.len());
        for (position, stack) in stacks.iter().enumerate() {
            let Some(indices) = stack.as_array() else {
                self.add(format!("profile.stacks[{position}]"), "must be an array");
                idle.push(true);
                continue;
            };
            let valid = |index: &Value| index.as_u64().is_some_and(|index| index < frames as u64);
            if let Some(bad) = indices.iter().find(|index| !valid(index)) {
                self.add(format!("profile.stacks[{position}]"), format!("{bad} is not the index of a frame"));
            }
            idle.push(indices.is_empty());
        }
        idle
    }

    fn frame(&mut self, frame: &Value, place: &str) {
        let Value::Object(frame) = frame else { return self.add(place, "must be an object") };
        for key in ["function", "name", "abs_path", "filename", "file", "module", "package", "platform"] {
            self.optional_text(frame, key, place);
        }
        for key in ["lineno", "line", "colno", "column"] {
            let number = frame.get(key).filter(|value| !value.is_null());
            if number.is_some_and(|number| number.as_u64().is_none_or(|number| number > u64::from(u32::MAX))) {
                self.add(format!("{place}{key}"), "must be an unsigned number of 32 bits");
            }
        }
        if frame.get("in_app").is_some_and(|value| !value.is_boolean() && !value.is_null()) {
            self.add(format!("{place}in_app"), "must be a boolean");
        }
        self.address(
            frame.get("instruction_addr").filter(|value| !value.is_null()),
            &format!("{place}instruction_addr"),
        );
        // Node's unnamed functions have an empty name, as Sentry's SDK sends them, but a module and a file.
        let has = |key: &str| frame.get(key).and_then(Value::as_str).is_some_and(|text| !text.is_empty());
        let is_anonymous = frame.get("function").is_some_and(Value::is_string) && has("module") && has("filename");
        if self.strict && !has("function") && !is_anonymous {
            self.add(format!("{place}function"), "Sentry aggregates no frame without one");
        }
    }

    fn samples(&mut self, samples: &[Value], stacks: usize) -> Vec<CheckedSample> {
        let mut checked = Vec::with_capacity(samples.len());
        for (position, sample) in samples.iter().enumerate() {
            let place = format!("profile.samples[{position}].");
            let timestamp = sample.get("timestamp").and_then(Value::as_f64).filter(|time| time.is_finite());
            let thread = sample.get("thread_id").and_then(Value::as_str);
            let stack = sample.get("stack_id").and_then(Value::as_u64).filter(|&stack| stack < stacks as u64);
            if timestamp.is_none() {
                self.add(format!("{place}timestamp"), "must be a finite number");
            }
            if thread.is_none() {
                self.add(format!("{place}thread_id"), "must be a string");
            }
            if stack.is_none() {
                self.add(format!("{place}stack_id"), "must be the index of a stack");
            }
            if let (Some(timestamp), Some(thread), Some(stack)) = (timestamp, thread, stack) {
                checked.push(CheckedSample { timestamp, thread: thread.to_owned(), stack: stack as usize });
            }
        }
        checked
    }

    /// Applies Relay's normalisation: threads with fewer than two samples with frames are dropped. The remaining
    /// samples must not be empty, and may span 66 s. Returns the threads with samples.
    fn thread_rules(&mut self, samples: &[CheckedSample], idle: &[bool]) -> BTreeSet<String> {
        let mut busy: BTreeMap<&str, usize> = BTreeMap::new();
        for sample in samples {
            *busy.entry(&sample.thread).or_default() += usize::from(!idle[sample.stack]);
        }
        if self.strict {
            for (thread, count) in busy.iter().filter(|&(_, &count)| count < 2) {
                self.add(format!("thread {thread}"), format!("has {count} samples with frames, Relay drops it"));
            }
        }
        let kept = samples.iter().filter(|sample| busy.get(sample.thread.as_str()).is_some_and(|&count| count >= 2));
        let times = kept.map(|sample| sample.timestamp);
        let (first, last) = times.fold((f64::INFINITY, f64::NEG_INFINITY), |(a, b), time| (a.min(time), b.max(time)));
        if first > last {
            self.add("profile.samples", "no thread has two samples with frames (profiling_not_enough_samples)");
        } else if last - first > MAX_SECONDS {
            self.add("profile.samples", format!("span {} s, Relay takes {MAX_SECONDS}", last - first));
        }
        busy.into_keys().map(str::to_owned).collect()
    }

    fn thread_metadata(&mut self, metadata: Option<&Value>, threads: &BTreeSet<String>) {
        let Some(metadata) = metadata else { return };
        let Value::Object(metadata) = metadata else {
            return self.add("profile.thread_metadata", "must be an object");
        };
        for (thread, about) in metadata {
            let place = format!("profile.thread_metadata.{thread}.");
            match about {
                Value::Object(about) => {
                    self.optional_text(about, "name", &place);
                    let priority = about.get("priority").filter(|value| !value.is_null());
                    if priority.is_some_and(|value| value.as_u64().is_none_or(|value| value > u64::from(u32::MAX))) {
                        self.add(format!("{place}priority"), "must be an unsigned number of 32 bits");
                    }
                }
                _ => self.add(place, "must be an object"),
            }
            if self.strict && !threads.contains(thread) {
                self.add(format!("profile.thread_metadata.{thread}"), "no sample is of this thread");
            }
        }
    }
}

/// Parses a number as Relay parses addresses: `0x` and hexadecimal digits, or decimal digits.
fn hex(value: &Value) -> Option<u64> {
    let text = value.as_str()?;
    match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

#[cfg(test)]
mod tests;
