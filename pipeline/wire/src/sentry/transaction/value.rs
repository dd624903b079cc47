//! Writes values as JSON: attribute values, texts of bounded length, times.

use std::fmt::Display;
use std::hash::BuildHasher;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hashbrown::{DefaultHashBuilder, HashTable};

use super::limits::{MAX_VALUE_BYTES, MAX_VALUE_DEPTH};
use super::notes::Notes;
use crate::json;
use crate::otlp::traces::AnyValue;

/// Marks a truncated text.
const ELLIPSIS: &str = "…";

/// The JSON of a transaction that is being written.
#[derive(Debug, Default)]
pub(super) struct Json {
    pub(super) out: Vec<u8>,
    pub(super) notes: Notes,
    /// At this length lists and maps are cut off: the data around them is too large to be sent anyway.
    pub(super) full: usize,
}

impl Json {
    /// Appends text without escaping.
    #[inline]
    pub(super) fn raw(&mut self, text: &str) {
        self.out.extend_from_slice(text.as_bytes());
    }

    /// Appends a value whose text needs no escapes: an id, a number.
    pub(super) fn display(&mut self, what: impl Display) {
        self.raw(&what.to_string());
    }

    /// Appends the content of a string of at most `max` bytes.
    #[inline]
    pub(super) fn text(&mut self, text: &str, max: usize) {
        if text.len() <= max {
            return json::escaped(&mut self.out, text.as_bytes());
        }
        self.notes.truncated_texts += 1;
        json::escaped(&mut self.out, json::cut(text.as_bytes(), max - ELLIPSIS.len()));
        self.raw(ELLIPSIS);
    }

    /// Appends `BEFORE"TEXT"`.
    pub(super) fn string(&mut self, before: &str, text: &str, max: usize) {
        self.raw(before);
        self.out.push(b'"');
        self.text(text, max);
        self.out.push(b'"');
    }

    /// Appends a time in nanoseconds since the Unix epoch as seconds with six decimal places, Sentry's precision (event
    /// schema, `timestamp`).
    pub(super) fn time(&mut self, unix_nano: u64) {
        let micros = unix_nano / 1_000;
        json::number(&mut self.out, micros / 1_000_000);
        self.out.push(b'.');
        self.out.extend_from_slice(&json::six_digits((micros % 1_000_000) as u32));
    }

    /// Appends an integer.
    pub(super) fn int(&mut self, number: i64) {
        if number < 0 {
            self.out.push(b'-');
        }
        json::number(&mut self.out, number.unsigned_abs());
    }

    /// Appends `"KEY":VALUE,` unless the value has no JSON form, which is counted.
    #[inline]
    pub(super) fn member(&mut self, key: &str, value: AnyValue<'_>, depth: u32) {
        let start = self.out.len();
        self.out.push(b'"');
        self.text(key, MAX_VALUE_BYTES);
        self.end_of_member(start, value, depth);
    }

    /// Like `member`, for a key that needs no escapes.
    #[inline]
    pub(super) fn plain_member(&mut self, key: &str, value: AnyValue<'_>, depth: u32) {
        let start = self.out.len();
        self.out.push(b'"');
        self.raw(key);
        self.end_of_member(start, value, depth);
    }

    #[inline]
    fn end_of_member(&mut self, start: usize, value: AnyValue<'_>, depth: u32) {
        if let AnyValue::Text(text) = value {
            self.raw("\":\"");
            self.text(text, MAX_VALUE_BYTES);
            return self.raw("\",");
        }
        self.raw("\":");
        if self.value(value, depth) {
            self.out.push(b',');
        } else {
            self.out.truncate(start);
        }
    }

    /// Appends a value. Returns false if it has no JSON form; the appended text must then be removed.
    pub(super) fn value(&mut self, value: AnyValue<'_>, depth: u32) -> bool {
        match value {
            AnyValue::Text(text) => self.string("", text, MAX_VALUE_BYTES),
            AnyValue::Int(number) => self.int(number),
            AnyValue::Bool(value) => self.raw(if value { "true" } else { "false" }),
            AnyValue::Double(number) => return self.double(number),
            AnyValue::Empty => self.raw("null"),
            AnyValue::Bytes(bytes) => {
                // As in OTLP's own JSON (opentelemetry-proto, protobuf's JSON mapping).
                let cut = &bytes[..bytes.len().min(MAX_VALUE_BYTES)];
                self.notes.truncated_texts += u64::from(cut.len() < bytes.len());
                self.out.push(b'"');
                self.raw(&STANDARD.encode(cut));
                self.out.push(b'"');
            }
            AnyValue::Array(_) | AnyValue::KeyValueList(_) if depth >= MAX_VALUE_DEPTH => {
                self.notes.invalid_values += 1;
                return false;
            }
            AnyValue::Array(values) => {
                self.out.push(b'[');
                for value in values {
                    let start = self.out.len();
                    if !self.value(value, depth + 1) {
                        // A placeholder, so that the other elements keep their positions.
                        self.out.truncate(start);
                        self.raw("null");
                    }
                    self.out.push(b',');
                    if self.is_full() {
                        break;
                    }
                }
                self.end(b']');
            }
            AnyValue::KeyValueList(list) => {
                self.out.push(b'{');
                let mut names = UniqueKeys::default();
                for (key, value) in list {
                    if names.is_new(key) {
                        self.member(key, value, depth + 1);
                    }
                    if self.is_full() {
                        break;
                    }
                }
                self.end(b'}');
            }
        }
        true
    }

    fn double(&mut self, number: f64) -> bool {
        if number.is_finite() && serde_json::to_writer(&mut self.out, &number).is_ok() {
            return true;
        }
        self.notes.invalid_values += 1;
        false
    }

    /// Whether the current data exceeds the size of a transaction.
    pub(super) fn is_full(&self) -> bool {
        self.out.len() >= self.full
    }

    /// Ends a list or an object whose elements each end with a comma.
    pub(super) fn end(&mut self, bracket: u8) {
        if self.out.last() == Some(&b',') {
            self.out.pop();
        }
        self.out.push(bracket);
    }
}

/// The keys of an object so far: duplicate keys are not allowed.
#[derive(Default)]
pub(super) struct UniqueKeys<'a> {
    few: Vec<&'a str>,
    many: HashTable<&'a str>,
    hasher: DefaultHashBuilder,
}

impl<'a> UniqueKeys<'a> {
    /// Up to this many keys are compared one by one.
    const FEW: usize = 32;

    /// Adds a key, and returns whether it is new.
    pub(super) fn is_new(&mut self, key: &'a str) -> bool {
        if self.few.contains(&key) {
            return false;
        }
        if self.few.len() < Self::FEW {
            self.few.push(key);
            return true;
        }
        let hash = self.hasher.hash_one(key);
        if self.many.find(hash, |known| *known == key).is_some() {
            return false;
        }
        self.many.insert_unique(hash, key, |known| self.hasher.hash_one(known));
        true
    }
}
