//! Content that is something else than what is read, called by its name: "not supported" helps more than "not
//! known", and most of them come with a way to go.

use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, Visitor};

/// What content begins with, what it is, and what to do instead.
const BEGINNINGS: [(&[u8], &str, &str); 12] = [
    (b"PERFILE2", "a recording of Linux perf (perf.data)", SAMPLE),
    (b"FLR\0", "a recording of Java Flight Recorder (JFR)", SAMPLE),
    (b"\x7fELF", "a program", "`profbridge sample -- PROGRAM` runs it and samples it"),
    (b"PK\x03\x04", "a zip archive", "unpack it first"),
    (b"\xfd7zXZ\0", "compressed with xz", "unpack it first: `xz -d`"),
    (b"BZh", "compressed with bzip2", "unpack it first: `bzip2 -d`"),
    (b"SQLite format 3\0", "a database of SQLite, perhaps of a profiler", SAMPLE),
    (b"# callgrind format", "a profile of Callgrind", SAMPLE),
    (b"<svg", "an image", IMAGE),
    (b"<?xml", "an image or another XML document", IMAGE),
    (b"<!DOCTYPE", "a page of HTML", IMAGE),
    (b"<!doctype", "a page of HTML", IMAGE),
];

const SAMPLE: &str = "`profbridge sample` makes a profile of a process that can be converted";
const IMAGE: &str = "convert the profile from which it was made";

/// What some programs of Windows put in front of text in UTF-8.
pub(super) const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// Formats in JSON, told by keys of the outermost object; each needs all of its keys.
const OBJECTS: [(&[&str], &str, &str); 8] = [
    (&["nodes", "startTime", "endTime"], "a CPU profile of V8 (.cpuprofile)", SAMPLE),
    (&["nodes", "timeDeltas"], "a CPU profile of V8 (.cpuprofile)", SAMPLE),
    (&["head", "selfSize"], "a heap profile of V8 (.heapprofile)", SAMPLE),
    (&["traceEvents"], "a trace in Chrome's format", SAMPLE),
    (&["$schema", "shared", "profiles"], "a profile of speedscope", SAMPLE),
    (&["meta", "threads"], "a profile of the Firefox Profiler", SAMPLE),
    (&["profile", "transaction"], V1, ENVELOPE),
    (&["profile", "transactions"], V1, ENVELOPE),
];

/// A profile of Sentry's first format.
const V1: &str = "a V1 profile of Sentry, which belongs to a transaction";

/// What has the transaction.
const ENVELOPE: &str = "convert the envelope that it came in";

/// What content is, and what to do instead of converting it; `None` where it is nothing that is known here.
pub(super) fn name(bytes: &[u8]) -> Option<(&'static str, &'static str)> {
    let bytes = bytes.strip_prefix(BYTE_ORDER_MARK).unwrap_or(bytes);
    let found = |&(_, what, way): &(_, &'static str, &'static str)| (what, way);
    if let Some(known) = BEGINNINGS.iter().find(|(beginning, ..)| bytes.starts_with(beginning)) {
        return Some((known.1, known.2));
    }
    match bytes.iter().find(|byte| !byte.is_ascii_whitespace()) {
        Some(b'{') => {
            let keys = keys(bytes);
            let has = |wanted: &&str| keys.iter().any(|key| key == wanted);
            if has(&"profiler_id") {
                return None;
            }
            OBJECTS.iter().find(|(wanted, ..)| wanted.iter().all(has)).map(found)
        }
        // A request in protobuf begins like that where its first message has 91 bytes.
        Some(b'[') if super::is_text(bytes) => Some(("a list in JSON, perhaps a trace in Chrome's format", SAMPLE)),
        _ => None,
    }
}

/// The keys of the first JSON value, if it is an object: those in front of what is no JSON.
pub(super) fn keys(bytes: &[u8]) -> Vec<String> {
    struct Keys<'a>(&'a mut Vec<String>);

    impl<'de> DeserializeSeed<'de> for Keys<'_> {
        type Value = ();

        fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
            deserializer.deserialize_map(self)
        }
    }

    impl<'de> Visitor<'de> for Keys<'_> {
        type Value = ();

        fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("an object")
        }

        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
            while let Some(key) = map.next_key::<String>()? {
                // An object with more is none of those that are told apart by their keys.
                if self.0.len() < MOST_KEYS {
                    self.0.push(key);
                }
                map.next_value::<IgnoredAny>()?;
            }
            Ok(())
        }
    }

    let bytes = bytes.strip_prefix(BYTE_ORDER_MARK).unwrap_or(bytes);
    let mut keys = Vec::new();
    // What comes after the first value, or is no JSON, is for its reader to refuse.
    drop(Keys(&mut keys).deserialize(&mut serde_json::Deserializer::from_slice(bytes)));
    keys
}

/// The most keys of an object that are looked at.
const MOST_KEYS: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    /// Guarantees: each format that is known and not read is called by its name, wherever its keys stand, and comes
    /// with a way to go.
    #[test]
    fn names() {
        for (bytes, expected) in [
            (&b"PERFILE2\x68\0\0"[..], "perf.data"),
            (b"FLR\0\0\x02", "JFR"),
            (b"\x7fELF\x02", "program"),
            (b"PK\x03\x04", "zip"),
            (b"<svg version=\"1.1\"", "image"),
            (b"\xef\xbb\xbf{\"traceEvents\":[]}", "Chrome"),
            (b"{\"nodes\":[],\"startTime\":1,\"endTime\":2,\"samples\":[]}", ".cpuprofile"),
            (b"{\"traceEvents\":[]}", "Chrome"),
            (b"[{\"ph\":\"X\"}]", "Chrome"),
            (
                b"{\"$schema\":\"https://www.speedscope.app/file-format-schema.json\",\"shared\":{},\"profiles\":[]}",
                "speedscope",
            ),
            (b"{\"version\":\"1\",\"transaction\":{\"name\":\"t\"},\"profile\":{}}", "V1 profile"),
        ] {
            let (what, way) = name(bytes).unwrap_or_else(|| panic!("{expected}"));
            assert!(what.contains(expected) && way.len() > 10, "{what}: {way}");
        }
    }

    /// Guarantees: what is read, and what is nothing known, is not taken for something else.
    #[test]
    fn no_names() {
        for bytes in [
            &b""[..],
            b"name,value\n",
            b"{}",
            b"{\"event_id\":\"a\"}\n{\"type\":\"profile_chunk\"}\n{}",
            b"{\"profiler_id\":\"a\",\"profile\":{},\"transaction\":{}}",
            b"{\"resourceProfiles\":",
            b"{\"resourceProfiles\":[]}",
            b"{\"resourceSpans\":[]}",
            b"a b",
        ] {
            assert_eq!(name(bytes), None, "{}", String::from_utf8_lossy(bytes));
        }
    }
}
