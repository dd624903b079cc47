//! OTLP in JSON: one message, or one on each line, as the Collector's file exporter writes them.

use bytes::Bytes;
use serde::de::IgnoredAny;

use super::foreign;

/// The fields of a request for profiles, by both of their names.
const FIELDS: [&str; 3] = ["resourceProfiles", "resource_profiles", "dictionary"];

/// Whether JSON is a request for profiles: its first object has a field of one. An envelope or a chunk of Sentry's has
/// none of them.
pub(super) fn is_otlp(bytes: &[u8]) -> bool {
    foreign::keys(bytes).iter().any(|key| FIELDS.contains(&&**key))
}

/// The messages in JSON, with the number of the line where each stands by itself: where the first line is a message, all
/// lines are; otherwise the whole is one.
pub(super) fn messages(bytes: &Bytes) -> Vec<(Option<usize>, Bytes)> {
    let start = if bytes.starts_with(foreign::BYTE_ORDER_MARK) { foreign::BYTE_ORDER_MARK.len() } else { 0 };
    let bytes = &bytes.slice(start..);
    let is_blank = |line: &[u8]| line.iter().all(u8::is_ascii_whitespace);
    let lines = || bytes.split(|&byte| byte == b'\n').enumerate().filter(|(_, line)| !is_blank(line));
    let alone = lines().nth(1).is_none();
    let first = lines().next().map(|(_, line)| line).unwrap_or_default();
    if alone || serde_json::from_slice::<IgnoredAny>(first).is_err() {
        return vec![(None, bytes.clone())];
    }
    lines().map(|(number, line)| (Some(number + 1), bytes.slice_ref(line))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Guarantees: a request is known by any field of it, wherever that stands and whatever is wrong behind it, and
    /// nothing else is taken for one.
    #[test]
    fn requests() {
        for text in [
            "{\"resourceProfiles\":[]}",
            "\n {\"x\":{}, \"resource_profiles\": [}",
            "{\"dictionary\":{\"stringTable\":[\"",
            "{\"dictionary\":{}}\n{\"resourceProfiles\":[]}",
            "\u{feff}{\"dictionary\":{}}",
        ] {
            assert!(is_otlp(text.as_bytes()), "{text}");
        }
        for text in [
            "",
            "{}",
            "{\"resourceSpans\":[]}",
            "[]",
            "{\"event_id\":\"a\"}\n{\"dictionary\":{}}",
            "{\"x\":{\"dictionary\":1}}",
        ] {
            assert!(!is_otlp(text.as_bytes()), "{text}");
        }
    }

    /// Guarantees: lines are messages where the first one is, and a message may stand on several lines.
    #[test]
    fn lines() {
        let of = |text: &'static str| -> Vec<(Option<usize>, String)> {
            let messages = messages(&Bytes::from_static(text.as_bytes()));
            messages.into_iter().map(|(line, text)| (line, String::from_utf8(text.to_vec()).unwrap())).collect()
        };
        assert_eq!(of("{\n}"), [(None, "{\n}".to_owned())]);
        assert_eq!(of("{}\n"), [(None, "{}\n".to_owned())]);
        assert_eq!(of("{}\n\n {\"a\n"), [(Some(1), "{}".to_owned()), (Some(3), " {\"a".to_owned())]);
        assert_eq!(of("{}\r\n{}"), [(Some(1), "{}\r".to_owned()), (Some(2), "{}".to_owned())]);
        assert_eq!(of("\u{feff}{}"), [(None, "{}".to_owned())]);
        assert_eq!(of(""), [(None, String::new())]);
    }
}
