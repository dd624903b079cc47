use bytes::Bytes;
use profbridge_model::envelope::Payload;
use profbridge_model::{ByteRange, Envelope, Item};
use proptest::prelude::*;

use super::{Ending, Header, ItemHeader, MAX_HEADER, MAX_ITEMS, ReadError, StillPacked, item, read, write};

const FIXTURES: [&[u8]; 7] = [
    include_bytes!("../../../testdata/sentry/node-10.75-profile_chunk.envelope"),
    include_bytes!("../../../testdata/sentry/node-10.75-transaction.envelope"),
    include_bytes!("../../../testdata/sentry/node-10.75-v1-transaction+profile.envelope"),
    include_bytes!("../../../testdata/sentry/node-11.1-profile_chunk.envelope"),
    include_bytes!("../../../testdata/sentry/node-11.1-span.envelope"),
    include_bytes!("../../../testdata/sentry/python-2.75-profile_chunk.envelope"),
    include_bytes!("../../../testdata/sentry/python-2.75-transaction.envelope"),
];

fn items(text: &str) -> Vec<(String, String)> {
    let parsed = read(Bytes::copy_from_slice(text.as_bytes())).unwrap();
    let text = |bytes: &Bytes| String::from_utf8(bytes.to_vec()).unwrap();
    parsed.envelope.items.iter().map(|item| (text(&item.header), text(item.payload.plain().unwrap()))).collect()
}

fn refused(text: &str) -> String {
    read(Bytes::copy_from_slice(text.as_bytes())).unwrap_err().to_string()
}

fn parts(envelope: &Envelope) -> (&Bytes, &[Item]) {
    (&envelope.header, &envelope.items)
}

/// Guarantees: envelopes of real SDKs are read and written again byte for byte.
/// rule: profiles-sdk#v1-association, transport#envelope, event-schema#forwarded, tracing-sdk#envelope
#[test]
fn real_envelopes_survive() {
    for fixture in FIXTURES {
        let parsed = read(Bytes::from_static(fixture)).unwrap();
        assert!(!parsed.envelope.items.is_empty());
        assert!(write(&parsed.envelope, parsed.ending).unwrap() == fixture);
    }
    let v1 = read(Bytes::from_static(FIXTURES[2])).unwrap();
    let kinds: Vec<_> =
        v1.envelope.items.iter().map(|item| ItemHeader::read(&item.header).unwrap().kind.into_owned()).collect();
    assert_eq!(kinds, ["transaction", "profile"]);
}

/// Guarantees: a payload without `length` ends at the line break or the end, one with `length` may contain line breaks,
/// and items of unknown types or with empty payloads are accepted.
/// rule: differences#one-line, transport#envelope-length
#[test]
fn grammar() {
    let x = "{\"type\":\"x\"}";
    let (empty, null) = ("{\"type\":\"x\",\"length\":0}", "{\"type\":\"x\",\"length\":null}");
    let long = "{\"type\":\"never heard of\",\"length\":3,\"k\":[1]}";
    let rows: [(String, &[(&str, &str)]); 9] = [
        ("{}".into(), &[]),
        ("{}\n".into(), &[]),
        (format!("{{}}\n{x}"), &[(x, "")]),
        (format!("{{}}\n{x}\n"), &[(x, "")]),
        (format!("{{}}\n{x}\n\n"), &[(x, "")]),
        (format!("{{}}\n{x}\nabc"), &[(x, "abc")]),
        (format!("{{}}\n{empty}\n"), &[(empty, "")]),
        (format!("{{}}\n{null}\nz"), &[(null, "z")]),
        (format!("{{}}\n{long}\na\nb\n{x}\nz\n"), &[(long, "a\nb"), (x, "z")]),
    ];
    for (text, expected) in rows {
        assert!(
            items(&text).iter().map(|(header, payload)| (&**header, &**payload)).eq(expected.iter().copied()),
            "{text}"
        );
    }
}

/// Guarantees: envelopes that Relay rejects are rejected, and the error names the place and the rule.
#[test]
fn refusals() {
    for (text, error) in [
        ("", "the envelope is empty"),
        ("\n", "header (byte 0): the line is empty"),
        ("{}\r\n", "header (byte 0): the line ends in \\r\\n, a single \\n is required"),
        ("[]\n", "header (byte 0): is not one JSON object on a line of its own"),
        ("{} {}", "header (byte 0): is not valid JSON at column 4"),
        (r#"{"sent_at":"a","sent_at":"b"}"#, "header (byte 0): duplicate field `sent_at` at column 24"),
        (r#"{"dsn":5}"#, "header (byte 0): a key has a value of the wrong type at column 8"),
        ("{}\n{\"type\":\"x\"}\nz\n\n", "items[1].header (byte 18): the line is empty"),
        ("{}\n{}\n", "items[0].header (byte 3): missing field `type` at column 2"),
        ("{}\n{\"type\":\"x\"}\r\nz", "items[0].header (byte 3): the line ends in \\r\\n, a single \\n is required"),
        (
            "{}\n{\"type\":\"x\",\"length\":-1}\nz",
            "items[0].header (byte 3): a key has a value of the wrong type at column 23",
        ),
        ("{}\n{\"type\":\"x\",\"length\":2}\nz", "items[0].header.length: 2 bytes are announced, 1 are left"),
        (
            "{}\n{\"type\":\"x\",\"length\":1}\nzz\n",
            "items[0].header.length: the payload does not end after 1 bytes (byte 28)",
        ),
    ] {
        assert_eq!(refused(text), error, "{text}");
    }
}

/// Guarantees: a DSN in a malformed header does not appear in the error.
#[test]
fn errors_hold_no_key() {
    for text in ["{\"dsn\":\"https://5ec2e7@h/1\"", "{\"dsn\":{\"5ec2e7\":1}}", "{\"sent_at\":5,\"dsn\":\"5ec2e7\"}"] {
        assert!(!refused(text).contains("5ec2e7"), "{}", refused(text));
    }
}

/// Attack: thousands of item headers without payloads, which are a few bytes each but take much more memory here.
/// Guarantees: the five hundredth item is accepted and the next one rejected.
#[test]
fn attack_many_items() {
    let envelope = |count: usize| format!("{{}}\n{}", "{\"type\":\"x\"}\n\n".repeat(count));
    assert_eq!(items(&envelope(MAX_ITEMS)).len(), MAX_ITEMS);
    assert_eq!(read(envelope(MAX_ITEMS + 1).into()).unwrap_err(), ReadError::TooManyItems);
}

/// Attack: a length near 2^64, whose sum with the position overflows.
/// Guarantees: it is rejected as too long.
#[test]
fn attack_huge_length() {
    for length in [u64::MAX, u64::MAX - 10, 1 << 32, 1 << 63] {
        let error = read(format!("{{}}\n{{\"type\":\"x\",\"length\":{length}}}\nz").into()).unwrap_err();
        assert_eq!(error, ReadError::TooShort { item: 0, length, left: 1 });
    }
}

/// Attack: a header of megabytes, and one nested a million levels deep.
/// Guarantees: the first is rejected by its length, the second without a stack overflow.
#[test]
fn attack_headers() {
    let long = format!("{{\"k\":\"{}\"}}\n", "x".repeat(MAX_HEADER));
    assert_eq!(refused(&long), format!("header (byte 0): is longer than {MAX_HEADER} bytes"));
    let deep = format!("{{\"k\":{}{}}}\n", "[".repeat(500_000), "]".repeat(500_000));
    assert!(read(deep.into()).is_ok(), "unknown keys are skipped without recursion");
    let deep = format!("{{\"dsn\":{}{}}}\n", "[".repeat(500_000), "]".repeat(500_000));
    assert_eq!(refused(&deep), "header (byte 0): a key has a value of the wrong type at column 7");
}

/// Guarantees: a changed item is framed by its new length, and its header is only modified in that case.
#[test]
fn changed_items_are_framed() {
    let mut envelope = read(Bytes::from_static(FIXTURES[5])).unwrap().envelope;
    envelope.items[0].payload = Bytes::from_static(b"{\n}").into();
    let again = read(write(&envelope, Ending::Newline).unwrap().into()).unwrap().envelope;
    assert_eq!(again.items[0].payload, envelope.items[0].payload);
    let header = ItemHeader::read(&again.items[0].header).unwrap();
    assert_eq!((header.length, header.platform.as_deref()), (Some(3), Some("python")));
    assert!(header.is_profile_chunk());

    envelope.items =
        vec![Item { header: Bytes::from_static(b"{\"type\":\"x\"}"), payload: Bytes::from_static(b"a\nb").into() }];
    let again = read(write(&envelope, Ending::Newline).unwrap().into()).unwrap().envelope;
    assert_eq!(again.items[0].payload, envelope.items[0].payload);
}

/// Guarantees: the header's known keys are found among unknown ones, even if they have escapes.
#[test]
fn header_keys() {
    let header = Header::read(br#"{"trace":{"dsn":1},"dsn":"http:\/\/k@h\/1","event_id":"a","sent_at":null}"#).unwrap();
    assert_eq!(header.dsn.as_deref(), Some("http://k@h/1"));
    assert_eq!(header.event_id.as_deref(), Some("a"));
    assert_eq!(header.sent_at, None);
}

fn any_item() -> impl Strategy<Value = Item> {
    let payload = proptest::collection::vec(prop_oneof![Just(b'\n'), any::<u8>()], 0..40);
    let line = proptest::collection::vec(any::<u8>().prop_map(|byte| if byte == b'\n' { b' ' } else { byte }), 0..40);
    prop_oneof![
        ("[a-z_]{0,9}", payload).prop_map(|(kind, payload)| item(&kind, Some("application/json"), payload)),
        ("[a-z_]{0,9}", line).prop_map(|(kind, payload)| Item {
            header: format!("{{ \"zz\" : [1.50] , \"type\":\"{kind}\"}}").into(),
            payload: payload.into(),
        }),
    ]
}

proptest! {
    /// Guarantees: a written envelope is read again unchanged, including its ending.
    #[test]
    fn round_trip(items in proptest::collection::vec(any_item(), 0..6), bare in any::<bool>()) {
        let ending = if bare { Ending::Bare } else { Ending::Newline };
        let envelope = Envelope { header: Bytes::from_static(b"{\"x\": 1.0}"), items, ..Envelope::default() };
        let written = write(&envelope, ending).unwrap();
        let parsed = read(written.clone().into()).unwrap();
        prop_assert_eq!(parts(&parsed.envelope), parts(&envelope));
        prop_assert_eq!(write(&parsed.envelope, parsed.ending).unwrap(), written);
    }

    /// Guarantees: no bytes cause a panic, and an accepted envelope can be written and read again.
    #[test]
    fn arbitrary_bytes(tail in proptest::collection::vec(
        prop_oneof![Just(&b"\n"[..]), Just(&b"{}"[..]), Just(&b"{\"type\":\"x\"}"[..]), Just(&b"{\"type\":\"\",\"length\":1}"[..]), Just(&b"z"[..])],
        0..12,
    )) {
        let bytes = tail.concat();
        if let Ok(parsed) = read(bytes.into()) {
            let again = read(write(&parsed.envelope, parsed.ending).unwrap().into()).unwrap();
            prop_assert_eq!(parts(&again.envelope), parts(&parsed.envelope));
        }
    }
}

/// Guarantees: an envelope with a missing payload is not written.
#[test]
fn packed_payloads_are_not_written() {
    let mut envelope = read(Bytes::from_static(FIXTURES[2])).unwrap().envelope;
    envelope.items[1].payload = Payload::Packed(ByteRange { start: 40, len: 9 });
    assert_eq!(write(&envelope, Ending::Newline), Err(StillPacked { item: 1 }));
}
