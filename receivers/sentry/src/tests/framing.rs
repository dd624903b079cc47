//! Invalid envelopes, and envelopes that Relay refuses.

use super::*;

/// Attack: an invalid envelope is refused with Relay's status and the position of the error, but without its contents,
/// because a header may contain a key.
/// rule: transport#envelope-length, transport#envelope-malformed, transport#envelope-items, transport#header-event-id
/// rule: transport#header-sent-at, transport#answer-errors
#[tokio::test]
async fn no_envelopes() {
    let rig = SentryRig::start(LOOPBACK).await;
    for (body, expected) in [
        ("", "the envelope is empty"),
        ("\n", "header (byte 0): the line is empty"),
        ("{}\r\n{\"type\":\"x\"}\n1", "header (byte 0): the line ends in \\r\\n, a single \\n is required"),
        ("[]\n", "header (byte 0): is not one JSON object on a line of its own"),
        ("{} {}\n", "header (byte 0): is not valid JSON at column 4"),
        ("{\"a\":}", "header (byte 0): is not valid JSON at column 6"),
        ("{\"sent_at\":\"a\",\"sent_at\":\"b\"}", "header (byte 0): duplicate field `sent_at` at column 24"),
        ("{\"dsn\":7}", "header (byte 0): a key has a value of the wrong type at column 8"),
        ("{\"event_id\":\"secret\"}", "header.event_id: is no UUID"),
        ("{\"sent_at\":\"yesterday\"}", "header.sent_at: is no time in RFC 3339"),
        ("{\"dsn\":\"secret\"}", "header.dsn: is no DSN"),
        ("{}\nevent", "items[0].header (byte 3): is not one JSON object on a line of its own"),
        ("{}\n{}\n1", "items[0].header (byte 3): missing field `type` at column 2"),
        ("{}\n{\"type\":\"x\"}\n1\n\n", "items[1].header (byte 18): the line is empty"),
        ("{}\n{\"type\":\"x\",\"length\":3}\n12", "items[0].header.length: 3 bytes are announced, 2 are left"),
        (
            "{}\n{\"type\":\"x\",\"length\":18446744073709551615}\n12",
            "items[0].header.length: 18446744073709551615 bytes are announced, 2 are left",
        ),
        (
            "{}\n{\"type\":\"x\",\"length\":1}\n12\n",
            "items[0].header.length: the payload does not end after 1 bytes (byte 28)",
        ),
        (
            "{}\n{\"type\":\"x\",\"length\":-1}\n1",
            "items[0].header (byte 3): a key has a value of the wrong type at column 23",
        ),
    ] {
        let answer = rig.refused(post(body)).await;
        assert_eq!((answer.status, detail(&answer).as_str()), (400, expected), "{body:?}");
        assert_eq!(answer.header("x-sentry-error"), Some(expected));
    }
    let items = "{\"type\":\"x\"}\n1\n".repeat(501);
    let answer = rig.refused(post(format!("{{}}\n{items}"))).await;
    assert_eq!((answer.status, detail(&answer).as_str()), (400, "the envelope has more than 500 items"));
    assert_eq!(rig.requests("failure", "http"), 19);
}

/// Attack: an endless header is not searched for keys, and invalid UTF-8 is refused like any error.
#[tokio::test]
async fn hostile_headers() {
    let rig = SentryRig::start(LOOPBACK).await;
    let long = format!("{{\"x\":\"{}\"}}\n", "y".repeat(2 << 20));
    for body in [long.into_bytes(), b"{\"\xff\":1}\n".to_vec(), vec![0; 100], vec![b'\n'; 100_000]] {
        assert_eq!(rig.refused(post(body)).await.status, 400);
    }
}

/// Guarantees: envelopes that Relay refuses for their size or for duplicates are refused as a whole with 413: two
/// profiles, two events, an event of more than 1 MiB.
/// rule: transport#items-once, transport#items-size, transport#answer-errors
#[tokio::test]
async fn too_much() {
    let rig = SentryRig::start(LOOPBACK).await;
    let large = format!("{{}}\n{{\"type\":\"event\"}}\n{{\"x\":\"{}\"}}\n", "y".repeat(1 << 20));
    let two = |kinds: [&str; 2]| {
        let [first, second] = kinds;
        format!("{{}}\n{{\"type\":\"{first}\"}}\n{{}}\n{{\"type\":\"{second}\"}}\n{{}}\n")
    };
    for (body, expected) in [
        (two(["profile_chunk", "profile"]), "items[1]: more than 1 in one envelope of: profiles"),
        (two(["profile_chunk", "profile_chunk"]), "items[1]: more than 1 in one envelope of: profiles"),
        (two(["event", "transaction"]), "items[1]: more than 1 in one envelope of: events and transactions"),
        (large, "items[0]: larger than 1048576 bytes, the limit for events and transactions"),
    ] {
        let answer = rig.refused(post(body)).await;
        assert_eq!((answer.status, detail(&answer).as_str()), (413, expected));
    }
}

/// Guarantees: all forms that Relay accepts are accepted and forwarded byte for byte: no length, no final line break,
/// unknown keys and types, an empty payload, no items at all, and a header nested deeper than any stack.
/// rule: transport#envelope
#[tokio::test]
async fn every_form() {
    let mut rig = SentryRig::start(LOOPBACK).await;
    let deep = format!("{{\"x\":{}{}}}\n", "[".repeat(100_000), "]".repeat(100_000));
    for (body, items) in [
        (deep.as_str(), 0),
        ("{}", 0),
        ("{}\n", 0),
        ("{\"k\" : 1.50}", 0),
        (SMALL, 1),
        ("{\"trace\":{\"x\":[]}}\n{\"type\":\"novelty\", \"k\":1e3 }\n\u{e9}\u{1}", 1),
        ("{}\n{\"type\":\"attachment\",\"length\":0}\n\n{\"type\":\"x\",\"length\":3}\na\nb", 2),
        ("{}\n{\"type\":\"attachment\",\"length\":0}\n", 1),
    ] {
        let (answer, taken) = rig.taken(post(body.to_owned())).await;
        assert_eq!((answer.status, taken.items.len()), (200, items), "{body:?}");
        let received = taken.received.unwrap();
        assert_eq!((&received.body[..], received.content_encoding), (body.as_bytes(), None));
    }
}
