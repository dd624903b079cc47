//! One test for each abuse, with its amplification, the limit of this amplification, and the safe outcome.

use profbridge_wire::otlp::json::{self, Message};
use profbridge_wire::otlp::{DecodeError, Limits};
use proptest::prelude::*;
use prost::Message as _;

use crate::otlp::arbitrary::requests;

use super::text::{Style, request};

fn decode(text: &str) -> Result<(), DecodeError> {
    json::decode(text.as_bytes(), &Limits::default()).map(drop)
}

/// Amplification: recursion, a stack frame for each level. Ceiling: 128 levels of known fields, 16 nested values.
/// Outcome: refused; an unknown field is skipped, however deep it is.
/// rule: otlp#json-mapping
#[test]
fn a_hundred_thousand_levels() {
    let deep = |open: &str, close: &str| open.repeat(100_000) + &close.repeat(100_000);
    let value = |inner: &str| format!(r#"{{"dictionary":{{"attributeTable":[{{}},{{"value":{inner}}}]}}}}"#);
    for text in [
        value(&deep(r#"{"arrayValue":{"values":["#, "]}}")),
        value(&deep(r#"{"kvlistValue":{"values":[{"value":"#, "}]}}")),
    ] {
        let error = decode(&text).unwrap_err().to_string();
        assert!(error.contains("recursion limit exceeded") && error.len() < 2_000, "{error}");
    }
    let values = |levels| {
        let nested = r#"{"arrayValue":{"values":["#.repeat(levels) + &"]}}".repeat(levels);
        decode(&value(&nested))
    };
    assert_eq!(values(15), Ok(()));
    assert!(matches!(values(17), Err(DecodeError::LimitExceeded { what: "depth of attribute values", .. })));
    assert_eq!(decode(&format!(r#"{{"tomorrow":{}}}"#, deep("[", "]"))), Ok(()));
    assert_eq!(
        decode(&format!(
            r#"{{"tomorrow":{}}}"#,
            deep(r#"{"a":"#, "").replace("\"a\":\"", "") + "1" + &"}".repeat(100_000)
        )),
        Ok(())
    );
    assert!(decode(&deep("[", "]")).is_err());
    assert!(decode(&"[".repeat(100_000)).is_err());
}

/// Amplification: a number of two bytes becomes eight bytes. Ceiling: four times the text, reserved before the memory
/// is taken. Outcome: read within this ceiling.
#[test]
fn short_numbers() {
    let zeros = "0,".repeat(99_999) + "0";
    let ones = "-1,".repeat(99_999) + "-1";
    for (name, list) in [("timestampsUnixNano", zeros), ("values", ones)] {
        let text = format!(
            r#"{{"resourceProfiles":[{{"scopeProfiles":[{{"profiles":[{{"samples":[{{"{name}":[{list}]}}]}}]}}]}}]}}"#
        );
        let mut granted = 0;
        let mut grant = |wanted: usize| {
            granted = granted.max(wanted);
            true
        };
        let read = json::read(Message::ProfilesRequest, text.as_bytes(), &Limits::default(), &mut grant).unwrap();
        assert!(read.len() <= 4 * text.len() && read.capacity() <= granted && granted <= 8 * text.len());
    }
}

/// Amplification: memory. Ceiling: the limits of a request, of its text and of its decoded form, and the caller's
/// limit. Outcome: refused before the memory is taken.
#[test]
fn limits() {
    let text = format!(r#"{{"dictionary":{{"stringTable":["{}"]}}}}"#, "x".repeat(5_000));
    let read = |limits: &Limits, most: usize| {
        json::read(Message::ProfilesRequest, text.as_bytes(), limits, &mut |wanted| wanted <= most)
    };
    let limits = |max_request| Limits { max_request, ..Limits::default() };
    assert!(read(&limits(text.len()), usize::MAX).is_ok());
    let refused = read(&limits(text.len() - 1), usize::MAX);
    let limit = text.len() as u64 - 1;
    assert_eq!(refused, Err(DecodeError::LimitExceeded { what: "bytes of the request", limit }));
    let refused = read(&Limits::default(), 4_999).unwrap_err();
    assert!(refused.to_string().contains("bytes of memory for the request read from JSON"), "{refused}");
    let zeros = format!(r#"{{"timestampsUnixNano":[{}0]}}"#, "0,".repeat(1_000));
    let zeros = format!(r#"{{"resourceProfiles":[{{"scopeProfiles":[{{"profiles":[{{"samples":[{zeros}]}}]}}]}}]}}"#);
    let refused = json::decode(zeros.as_bytes(), &limits(zeros.len())).unwrap_err();
    let limit = zeros.len() as u64;
    assert_eq!(refused, DecodeError::LimitExceeded { what: "bytes of the request, read from JSON", limit });
}

/// Amplification: time, since the end of each message moves the message's content. Ceiling: one move for each of at
/// most 128 levels. Outcome: read; the test checks the result, not the time.
#[test]
fn long_messages_in_each_other() {
    let long = "x".repeat(1 << 20);
    let open = r#"{"kvlistValue":{"values":[{"value":"#.repeat(10);
    let close = "}]}}".repeat(10);
    let value = format!(r#"{open}{{"stringValue":"{long}"}}{close}"#);
    let text = format!(r#"{{"dictionary":{{"stringTable":[""],"attributeTable":[{{}},{{"value":{value}}}]}}}}"#);
    let decoded = json::decode(text.as_bytes(), &Limits::default()).unwrap();
    assert_eq!(decoded.profiles.dictionary().tables().attributes.len(), 2);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// Guarantees: the reader does not panic on damaged text, and what it accepts is the same after writing and reading
    /// it.
    #[test]
    fn damaged(
        of in requests(),
        seed: u64,
        damage in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>(), 0..4u8), 1..5),
    ) {
        let mut text = request(&mut Style::any(seed), &of).to_string().into_bytes();
        for (at, byte, how) in damage {
            let at = at.index(text.len().max(1)).min(text.len().saturating_sub(1));
            match how {
                0 if !text.is_empty() => text[at] = byte,
                1 => text.truncate(at),
                2 => text.insert(at, b"\"{}[],:0-e\\"[usize::from(byte) % 11]),
                _ if !text.is_empty() => drop(text.remove(at)),
                _ => {}
            }
        }
        if let Ok(read) = json::read(Message::ProfilesRequest, &text, &Limits::default(), &mut |_| true) {
            let mut written = Vec::new();
            json::write(Message::ProfilesRequest, &read, usize::MAX, &mut written).unwrap();
            let again = json::read(Message::ProfilesRequest, &written, &Limits::default(), &mut |_| true).unwrap();
            let mut rewritten = Vec::new();
            json::write(Message::ProfilesRequest, &again, usize::MAX, &mut rewritten).unwrap();
            prop_assert_eq!(rewritten, written);
        }
        drop(json::decode(&text, &Limits::default()));
    }

    /// Guarantees: the writer does not panic on any bytes, and writes exactly what prost reads.
    #[test]
    fn damaged_protobuf(
        of in requests(),
        damage in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..3),
    ) {
        let mut bytes = of.encode_to_vec();
        for (at, byte) in damage {
            if !bytes.is_empty() {
                let at = at.index(bytes.len());
                bytes[at] = byte;
            }
        }
        let mut written = Vec::new();
        if json::write(Message::ProfilesRequest, &bytes, usize::MAX, &mut written).is_ok() {
            prop_assert!(serde_json::from_slice::<serde_json::Value>(&written).is_ok());
        }
    }
}
