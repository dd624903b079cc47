//! OTLP as JSON: one message, or one per line, as the Collector's file exporter writes them.

use bytes::Bytes;
use serde::de::IgnoredAny;

use profbridge_wire::foreign;
use profbridge_wire::otlp::Signal;

/// The fields that identify a message, in both spellings; the message's name; and its signal if supported.
const FIELDS: [(&str, &str, &str, Option<Signal>); 5] = [
    ("resourceProfiles", "resource_profiles", "OTLP profiles", Some(Signal::Profiles)),
    ("dictionary", "dictionary", "OTLP profiles", Some(Signal::Profiles)),
    ("resourceSpans", "resource_spans", "OTLP traces", Some(Signal::Traces)),
    ("resourceMetrics", "resource_metrics", "OTLP metrics", None),
    ("resourceLogs", "resource_logs", "OTLP logs", None),
];

/// The supported OTLP messages, for hints.
const READ: &str = "OTLP profiles (`resourceProfiles`) and OTLP traces (`resourceSpans`) are read";

/// The error for a message of another signal.
pub(super) fn not_supported(what: &str) -> String {
    format!("is {what}, which is not supported\nhint: {READ}")
}

/// Whether JSON is OTLP: its first object has a field of a message of any signal. Sentry envelopes and chunks have none
/// of them.
pub(super) fn is_otlp(bytes: &[u8]) -> bool {
    foreign::keys(bytes).iter().any(|key| field(key).is_some())
}

fn field(key: &str) -> Option<(&'static str, Option<Signal>)> {
    let known = FIELDS.iter().find(|(name, other, ..)| key == *name || key == *other)?;
    Some((known.2, known.3))
}

/// The signal of a message. A message without known fields counts as an empty message of profiles, and malformed JSON
/// is left to the decoder to reject.
///
/// # Errors
///
/// The message has fields of several signals or of none, or its signal is not supported; the error names it.
pub(super) fn content(message: &[u8]) -> Result<Signal, String> {
    let keys = foreign::keys(message);
    let mut found: Vec<(&str, Option<Signal>)> = keys.iter().filter_map(|key| field(key)).collect();
    found.sort_unstable_by_key(|(what, _)| *what);
    found.dedup();
    match found[..] {
        [] if keys.is_empty() => Ok(Signal::Profiles),
        [] => Err(format!("has no field of OTLP that identifies it\nhint: {READ}")),
        [(_, Some(signal))] => Ok(signal),
        [(what, None)] => Err(not_supported(&format!("{what} as JSON"))),
        _ => {
            let candidates: Vec<&str> = found.iter().map(|(what, _)| *what).collect();
            let hint = "write a message for each, on a line of its own";
            Err(format!("could be {}: it has the fields of each\nhint: {hint}", candidates.join(" or ")))
        }
    }
}

/// Splits JSON into messages: if the first line is a complete message, each line is one and has its number; otherwise
/// the whole text is one message.
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

    /// Guarantees: a request is recognised by any of its fields, wherever they are and whatever follows; nothing else
    /// is taken for one.
    #[test]
    fn requests() {
        for (text, expected) in [
            ("{\"resourceProfiles\":[]}", Signal::Profiles),
            ("\n {\"x\":{}, \"resource_profiles\": [}", Signal::Profiles),
            ("{\"dictionary\":{\"stringTable\":[\"", Signal::Profiles),
            ("{\"dictionary\":{},\"resourceProfiles\":[]}", Signal::Profiles),
            ("{\"dictionary\":{}}\n{\"resourceProfiles\":[]}", Signal::Profiles),
            ("\u{feff}{\"dictionary\":{}}", Signal::Profiles),
            ("{\"resourceSpans\":[{", Signal::Traces),
            ("{\"resource_spans\":[]}", Signal::Traces),
        ] {
            assert!(is_otlp(text.as_bytes()), "{text}");
            assert_eq!(content(text.as_bytes()), Ok(expected), "{text}");
        }
        for text in ["", "{}", "[]", "{\"event_id\":\"a\"}\n{\"dictionary\":{}}", "{\"x\":{\"dictionary\":1}}"] {
            assert!(!is_otlp(text.as_bytes()), "{text}");
        }
        assert_eq!(content(b"{}"), Ok(Signal::Profiles));
    }

    /// Guarantees: a message of another signal, of several or of none is rejected, with the names of what it is or
    /// could be.
    #[test]
    fn refused() {
        for (text, expected) in [
            ("{\"resourceLogs\":[]}", "is OTLP logs as JSON, which is not supported\nhint: "),
            ("{\"resource_metrics\":[]}", "is OTLP metrics as JSON, which is not supported\nhint: "),
            (
                "{\"resourceSpans\":[],\"dictionary\":{}}",
                "could be OTLP profiles or OTLP traces: it has the fields of each",
            ),
            ("{\"resourceSpans\":[],\"resourceLogs\":[]}", "could be OTLP logs or OTLP traces: "),
            ("{\"spans\":[]}", "has no field of OTLP that identifies it\nhint: "),
        ] {
            let why = content(text.as_bytes()).unwrap_err();
            assert!(why.starts_with(expected), "{text}: {why}");
        }
    }

    /// Guarantees: lines are messages if the first one is, and a message may span several lines.
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
