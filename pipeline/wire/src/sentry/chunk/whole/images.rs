//! The images of a chunk that is written as it is.

use profbridge_model::{MappingId, Profile, Profiles, Value};
use serde_json::value::RawValue;

use super::text;
use crate::json;
use crate::sentry::chunk::report::Notes;
use crate::sentry::chunk::write::put_json;
use crate::sentry::sampled::MAX_ENTRIES;
use crate::sentry::sampled::model::Image;
use crate::sentry::sampled::text::{Entries, Text};

/// Types of images that Relay knows. Another one makes it refuse the chunk (getsentry/relay
/// `relay-profiling/src/debug_image.rs`).
const TYPES: [&str; 5] = ["macho", "symbolic", "sourcemap", "proguard", "jvm"];

/// The JSON of the images with separators and without brackets: of the mappings that frames lie in, and of the images
/// that an attribute kept. Those that would make Relay refuse the chunk are left out and counted.
pub(super) fn write(batch: &Profiles, profile: &Profile, mappings: &[MappingId], notes: &mut Notes) -> Vec<u8> {
    let mut out = Vec::new();
    for &mapping in mappings {
        if !mapped(batch, mapping, &mut out) {
            notes.left_out += 1;
        }
    }
    let dictionary = batch.dictionary();
    if let Some(Value::Array(others)) = dictionary.find(profile.attributes, "sentry.images") {
        for other in others.iter().take(MAX_ENTRIES) {
            match text(dictionary, other).filter(|json| is_valid(json)) {
                Some(json) => {
                    if !out.is_empty() {
                        out.push(b',');
                    }
                    put_json(&mut out, json);
                }
                None => notes.left_out += 1,
            }
        }
    }
    out
}

/// The keys of an image of which Relay takes no `null`.
const NEVER_NULL: [&str; 5] = ["debug_id", "id", "image_addr", "image_vmaddr", "image_size"];

fn is_valid(json: &str) -> bool {
    let image = serde_json::from_str::<Image<'_>>(json);
    let is_image = image.is_ok_and(|image| {
        TYPES.contains(&Text::of(&image.kind)) && image.debug_id.is_none_or(|id| is_debug_id(id.as_str()))
    });
    is_image
        && serde_json::from_str::<Entries<'_, &RawValue, MAX_ENTRIES>>(json).is_ok_and(|keys| {
            !keys.0.iter().any(|(key, value)| value.get() == "null" && NEVER_NULL.contains(&key.as_str()))
        })
}

/// Whether a text is a UUID, perhaps with an age behind it (Sentry's debug identifiers).
fn is_debug_id(text: &str) -> bool {
    uuid::Uuid::try_parse(text.get(..36).unwrap_or(text)).is_ok()
}

/// Appends the image that a mapping is. Returns whether it can be one.
fn mapped(batch: &Profiles, id: MappingId, out: &mut Vec<u8>) -> bool {
    let dictionary = batch.dictionary();
    let mapping = dictionary.mapping(id);
    let attribute = |key| dictionary.find(mapping.attributes, key).and_then(|value| text(dictionary, value));
    let kind = attribute("sentry.image_type").unwrap_or_default();
    let debug_id = attribute("sentry.debug_id");
    let vmaddr = attribute("sentry.image_vmaddr");
    let is_address = |text: &str| text.strip_prefix("0x").is_some_and(|digits| u64::from_str_radix(digits, 16).is_ok());
    if !TYPES.contains(&kind) || !debug_id.is_none_or(is_debug_id) || !vmaddr.is_none_or(is_address) {
        return false;
    }
    out.extend_from_slice(if out.is_empty() { b"{" } else { b",{" });
    let texts = [
        ("type", Some(kind)),
        ("code_file", Some(dictionary.string(mapping.filename)).filter(|file| !file.is_empty())),
        ("debug_id", debug_id),
        ("uuid", attribute("sentry.image_uuid")),
        ("image_vmaddr", vmaddr),
    ];
    for (key, text) in texts {
        let Some(text) = text else { continue };
        out.push(b'"');
        out.extend_from_slice(key.as_bytes());
        out.extend_from_slice(b"\":\"");
        json::escaped(out, text.as_bytes());
        out.extend_from_slice(b"\",");
    }
    out.extend_from_slice(b"\"image_addr\":");
    json::address(out, mapping.memory_start);
    out.extend_from_slice(b",\"image_size\":");
    json::number(out, mapping.memory_limit.saturating_sub(mapping.memory_start));
    out.push(b'}');
    true
}
