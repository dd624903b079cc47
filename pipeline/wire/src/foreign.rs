//! Names content in unsupported formats: "not supported" helps more than "unknown", and each name comes with a remedy.

use crate::otlp::reader::ProtobufReader;
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, Visitor};

/// The first bytes of a format, its name, and the remedy.
const BEGINNINGS: [(&[u8], &str, &str); 39] = [
    (b"PERFILE2", "a recording of Linux perf (perf.data)", PERF),
    (
        b"FLR\0",
        "a recording of Java Flight Recorder (JFR)",
        "`jfrconv FILE x.collapsed` of async-profiler makes stacks of it",
    ),
    (b"\x7fELF", "a program", "`profbridge sample -- PROGRAM` runs it and samples it"),
    (b"PK\x03\x04", "a zip archive", "unpack it first"),
    (b"\xfd7zXZ\0", "compressed with xz", "unpack it first: `xz -d`"),
    (b"BZh", "compressed with bzip2", "unpack it first: `bzip2 -d`"),
    (b"SQLite format 3\0", "a database of SQLite, perhaps of a profiler", SAMPLE),
    (b"# callgrind format", "a profile of Callgrind", SAMPLE),
    (b"*version", "a method trace of Android", SAMPLE),
    (b"SLOW", "a method trace of Android", SAMPLE),
    (b"heap_v2/", "a heap profile of jemalloc, as text", PPROF),
    (b"heap profile: ", "a heap profile of gperftools or Go, as text", TEXT),
    (b"goroutine profile: ", "a profile of goroutines, as text", TEXT),
    (b"threadcreate profile: ", "a profile of Go, as text", TEXT),
    (b"goroutine 1 [", "stacks of goroutines, as text", TEXT),
    (b"--- symbol", "a profile of gperftools with its symbols", PPROF),
    (b"--- profile", "a profile of gperftools", PPROF),
    (b"--- heap", "a heap profile of gperftools, as text", PPROF),
    (b"--- growth", "a heap profile of gperftools, as text", PPROF),
    (b"--- contention", "a contention profile of gperftools or Go, as text", TEXT),
    (b"--- mutex", "a profile of mutexes of Go, as text", TEXT),
    (b"--- thread", "a profile of threads, as text", TEXT),
    (b"File: ", "what pprof prints of a profile", PRINTED),
    (b"Type: ", "what pprof prints of a profile", PRINTED),
    (b"Showing nodes ", "what pprof prints of a profile", PRINTED),
    (b"PeriodType: ", "what pprof prints of a profile", PRINTED),
    (b"Total: ", "what pprof prints of a profile", PRINTED),
    (b"Statistical profiling result from ", "what Node prints of a log of V8", SAMPLE),
    (b"v8-version,", "a log of V8", SAMPLE),
    (b"shared-library,", "a log of V8", SAMPLE),
    (b"code-creation,", "a log of V8", SAMPLE),
    (b"JOB \"", "a heap profile of GHC", SAMPLE),
    (b"hdrb", "an event log of GHC", SAMPLE),
    (b"<svg", "an image", IMAGE),
    (b"<?xml", "an image or another XML document", IMAGE),
    (b"<!doctype", "a page of HTML", IMAGE),
    (b"<html", "a page of HTML", IMAGE),
    (b"<head", "a page of HTML", IMAGE),
    (b"<body", "a page of HTML", IMAGE),
];

const SAMPLE: &str = "`profbridge sample` makes a profile of a process that can be converted";
const IMAGE: &str = "convert the profile from which it was made";
const PERF: &str = "`perf script | stackcollapse-perf.pl` makes collapsed stacks of it";
const PPROF: &str = "`pprof -proto PROGRAM FILE` makes a pprof profile of it";
const TEXT: &str =
    "let the program write pprof (protobuf), as Go does without `debug=`; `pprof -proto PROGRAM FILE` may read it";
const PRINTED: &str = "convert the profile of which it was printed, or let `pprof -proto` write it";

/// The mark that some Windows programs write in front of UTF-8 text.
pub const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// JSON formats, recognised by keys of the outermost object; all keys of an entry are required.
const OBJECTS: [(&[&str], &str, &str); 11] = [
    (&["nodes", "startTime", "endTime"], CPUPROFILE, SAMPLE),
    (&["nodes", "timeDeltas"], CPUPROFILE, SAMPLE),
    (&["head", "startTime"], CPUPROFILE, SAMPLE),
    (&["snapshot", "nodes", "edges"], "a heap snapshot of V8 (.heapsnapshot)", SAMPLE),
    (&["head"], "a heap profile of V8 (.heapprofile)", SAMPLE),
    (&["traceEvents"], "a trace in Chrome's format", SAMPLE),
    (&["$schema", "shared", "profiles"], "a profile of speedscope", SAMPLE),
    (&["meta", "threads"], "a profile of the Firefox Profiler", SAMPLE),
    (&["program", "cost_centres"], "a profile of GHC", SAMPLE),
    (&["profile", "transaction"], V1, ENVELOPE),
    (&["profile", "transactions"], V1, ENVELOPE),
];

const CPUPROFILE: &str = "a CPU profile of V8 (.cpuprofile)";

/// A profile in Sentry's first format.
const V1: &str = "a V1 profile of Sentry, which belongs to a transaction";

/// The remedy: the envelope contains the transaction.
const ENVELOPE: &str = "convert the envelope that it came in";

/// The name of an unsupported format, and a remedy; `None` if it is not known.
pub fn name(bytes: &[u8]) -> Option<(&'static str, &'static str)> {
    let bytes = bytes.strip_prefix(BYTE_ORDER_MARK).unwrap_or(bytes);
    let begins = |text: &[u8], with: &[u8]| text.get(..with.len()).is_some_and(|text| text.eq_ignore_ascii_case(with));
    let trimmed = bytes.trim_ascii_start();
    if let Some(&(_, what, way)) = BEGINNINGS.iter().find(|(beginning, ..)| begins(trimmed, beginning)) {
        return Some((what, way));
    }
    if let Some(what) = legacy_cpu_profile(bytes) {
        return Some((what, PPROF));
    }
    if is_perfetto(bytes) {
        return Some(("a trace of Perfetto", SAMPLE));
    }
    match trimmed.first() {
        Some(b'{') => {
            let keys = keys(bytes);
            let has = |wanted: &&str| keys.iter().any(|key| key == wanted);
            if has(&"profiler_id") {
                return None;
            }
            OBJECTS.iter().find(|(wanted, ..)| wanted.iter().all(has)).map(|&(_, what, way)| (what, way))
        }
        // A protobuf request begins with this byte if its first message has 91 bytes.
        Some(b'[') if is_text(bytes) => Some(("a list in JSON, perhaps a trace in Chrome's format", SAMPLE)),
        Some(_) if is_perf_script(bytes) => Some(("what `perf script` prints", PERF)),
        _ => None,
    }
}

/// Whether bytes are lines of text. A request has lengths and numbers, some of which are control characters.
pub fn is_text(bytes: &[u8]) -> bool {
    std::str::from_utf8(bytes).is_ok_and(|text| !text.contains(|c: char| c.is_control() && !c.is_ascii_whitespace()))
}

/// CPU profiles of gperftools and of Java's binary agents: machine words of either size and byte order, with the header
/// 0, 3, the format's version, the period, 0 (google/pprof `profile/legacy_profile.go`, `parseCPU`).
fn legacy_cpu_profile(bytes: &[u8]) -> Option<&'static str> {
    let words = |size: usize, big: bool| -> Option<[u64; 5]> {
        let mut words = [0; 5];
        for (word, bytes) in words.iter_mut().zip(bytes.get(..5 * size)?.chunks_exact(size)) {
            let fold = |word: u64, byte: &u8| word << 8 | u64::from(*byte);
            *word = if big { bytes.iter().fold(0, fold) } else { bytes.iter().rev().fold(0, fold) };
        }
        Some(words)
    };
    [(8, false), (4, false), (8, true), (4, true)].into_iter().find_map(|(size, big)| match words(size, big)? {
        [0, 3, 0, period, 0] if period > 0 => Some("a CPU profile of gperftools"),
        [0, 3, 1, period, 0] if period > 0 => Some("a binary CPU profile of Java"),
        _ => None,
    })
}

/// Whether the first message under field 1 is a Perfetto packet (`trace_packet.proto`): it has a time (8) or a sequence
/// id (10), while OTLP resources have no integers.
fn is_perfetto(bytes: &[u8]) -> bool {
    let mut reader = ProtobufReader::new(bytes);
    let Ok(Some(0x0a)) = reader.key() else { return false };
    let Ok(mut packet) = reader.message() else { return false };
    let mut found = false;
    while let Ok(Some(key)) = packet.key() {
        found |= matches!(key, 0x40 | 0x50);
        if packet.skip(key).is_err() {
            return false;
        }
    }
    found && packet.rest().is_empty()
}

/// Whether the first line that is not a comment is the head of a sample: `name pid [cpu] seconds.micros: ...`.
fn is_perf_script(bytes: &[u8]) -> bool {
    let mut lines = bytes.split(|&byte| byte == b'\n').filter(|line| !line.trim_ascii().is_empty());
    let line = lines.find(|line| !line.starts_with(b"#")).and_then(|line| std::str::from_utf8(line).ok());
    let words: Vec<&str> = line.unwrap_or_default().split_ascii_whitespace().take(16).collect();
    let all_digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let is_id = |word: &str| word.split('/').all(all_digits) || word.starts_with('[') && word.ends_with(']');
    let is_time = |word: &str| {
        let parts = word.strip_suffix(':').and_then(|word| word.split_once('.'));
        parts.is_some_and(|(seconds, micros)| all_digits(seconds) && all_digits(micros) && micros.len() >= 6)
    };
    words.windows(2).skip(1).any(|pair| is_id(pair[0]) && is_time(pair[1]))
}

/// The keys of the first JSON value, if it is an object; on malformed JSON, the keys before the error.
pub fn keys(bytes: &[u8]) -> Vec<String> {
    struct KeyCollector<'a>(&'a mut Vec<String>);

    impl<'de> DeserializeSeed<'de> for KeyCollector<'_> {
        type Value = ();

        fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
            deserializer.deserialize_map(self)
        }
    }

    impl<'de> Visitor<'de> for KeyCollector<'_> {
        type Value = ();

        fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("an object")
        }

        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
            while let Some(key) = map.next_key::<String>()? {
                // An object with more keys is not one of the known formats.
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
    // The actual parser rejects trailing text and malformed JSON.
    drop(KeyCollector(&mut keys).deserialize(&mut serde_json::Deserializer::from_slice(bytes)));
    keys
}

/// Maximum number of an object's keys that are inspected.
const MOST_KEYS: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    /// Guarantees: each known unsupported format is named, wherever its keys are, and has a remedy.
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
            (b"{\"head\":{\"selfSize\":0},\"samples\":[]}", ".heapprofile"),
            (b"{\"program\":\"x\",\"cost_centres\":[],\"profile\":{}}", "GHC"),
            (&[0u64, 3, 0, 10_000, 0, 1].map(u64::to_le_bytes).concat(), "gperftools"),
            (&[0u32, 3, 1, 10_000, 0, 1].map(u32::to_be_bytes).concat(), "Java"),
            (b"# captured\nmain  123/124 [001]  5.123456:  1 cycles:\n\t  4010 main (/x)\n\n", "perf script"),
            (b"a b 123 99.000001: cpu-clock:\n", "perf script"),
            (b"heap_v2/524288\n  t*: 28: 2240 [0: 0]\n", "jemalloc"),
            (b"goroutine profile: total 5\n", "goroutines"),
            (b"File: shop\nType: cpu\n", "pprof prints"),
            (b"v8-version,11,3,244\n", "V8"),
            (b"*version\n3\n", "Android"),
            (b"\x0a\x06\x40\x01\x50\x02\x32\x00", "Perfetto"),
            (b"\n<!DOCTYPE html>", "HTML"),
            (b"<HTML>", "HTML"),
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

    /// Guarantees: supported and unknown content is not taken for another format.
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
            b"\x0a\x02\x0a\x00",
            b"\x0a\x04\x08\x01\x10\x02",
            b"name 5.1: x",
        ] {
            assert_eq!(name(bytes), None, "{}", String::from_utf8_lossy(bytes));
        }
    }
}
