use bytes::Bytes;
use profbridge_model::envelope::EnvelopeBody;
use profbridge_model::spans::{ProfilerLink, SpanChanges};
use profbridge_model::{Builder, IdentityStrength, ProcessWindow, ProfilerId, Spans};
use profbridge_net::compression::{Coding, decompress};
use profbridge_wire::sentry::envelope::{self, item};
use profbridge_wire::sentry::{profile_items, span_items};
use proptest::prelude::*;

use super::*;
use crate::compress;

const START: u64 = 1_790_000_000_000_000_000;
const COMPRESSIONS: [Compression; 3] = [Compression::None, Compression::GZIP, Compression::ZSTD];

/// One thread with observations at these milliseconds of its process's window.
fn observed(millis: &[u64]) -> Profiles {
    let mut builder = Builder::new();
    builder.resource(&[("service.name", "shop".into())]);
    builder.scope("test", "");
    builder.on_cpu(20);
    let frame = builder.frame("parse", "/app/a.py", 7);
    let stack = builder.stack(&[frame]);
    let thread = builder.attributes(&[("thread.id", 1.into())]);
    let times: Vec<u64> = millis.iter().map(|millis| START + millis * 1_000_000).collect();
    builder.sample(stack, thread, None, &times, &[]);
    let mut profiles = builder.finish().unwrap();
    profiles.window = Some(ProcessWindow {
        profiler_id: ProfilerId::from_hash(7),
        strength: IdentityStrength::Strong,
        start_unix_nano: START,
        end_unix_nano: START + 60_000_000_000,
    });
    profiles
}

fn plain(compression: Compression, body: &Bytes) -> Bytes {
    decompress(Coding::parse(compression.content_encoding()).unwrap(), body.clone(), 1 << 20).unwrap()
}

/// Guarantees: a chunk is the same envelope with any compression and in each batch; the extra item is only in the first
/// envelope; the batch's samples are shared out between two chunks.
#[test]
fn chunks() {
    let batch = observed(&[0, 50, 100, 30_000, 30_050, 30_100]);
    let mut encoder = EnvelopeEncoder::new(Settings::default());
    let mut seen: Vec<Vec<Bytes>> = Vec::new();
    for compression in COMPRESSIONS.repeat(2) {
        let extra = item("client_report", None, &b"{}"[..]);
        let Encoded { messages, report } = encoder.profiles(&batch, compression, Some(extra));
        assert_eq!(messages.iter().map(|message| message.samples).sum::<u64>(), 1);
        let sent: u64 = messages.iter().map(|message| message.quantities.observations).sum();
        assert_eq!((6 + report.synthesized.observations, report.losses.is_none()), (sent, true));
        seen.push(messages.iter().map(|message| plain(compression, &message.body)).collect());
    }
    assert!(seen.iter().all(|bodies| *bodies == seen[0]));
    let items = |body: &Bytes| envelope::read(body.clone()).unwrap().envelope.items.len();
    assert_eq!(seen[0].iter().map(items).collect::<Vec<_>>(), [2, 1]);
}

/// Guarantees: types of values other than time are reported once per encoder, and their observations are counted each
/// time.
#[test]
fn timeless_types() {
    let mut builder = Builder::new();
    builder.resource(&[]);
    builder.scope("test", "");
    let sample_type = builder.value_type("heap", "bytes");
    builder.profile(profbridge_model::Profile { sample_type, ..Default::default() });
    builder.sample(None, None, None, &[START], &[1]);
    let mut batch = builder.finish().unwrap();
    batch.window = observed(&[0]).window;
    let mut encoder = EnvelopeEncoder::new(Settings::default());
    let said = [1, 0].map(|times| {
        let report = encoder.profiles(&batch, Compression::None, None).report;
        assert_eq!(report.losses.get(Reason::NoTimeUnit), Quantities::observations(1));
        report.timeless.len() == times
    });
    assert_eq!(said, [true, true]);
}

/// Guarantees: an envelope is sent as the received bytes with any compression. If its header names another project,
/// only that is replaced.
#[test]
fn envelopes() {
    let dsn = |project: u8| format!("https://0123456789abcdef0123456789abcdef@sentry.example/{project}");
    let text = format!("{{\"dsn\":\"{}\", \"k\":1}}\n{{\"type\":\"x\"}}\n1\n", dsn(1));
    let came = envelope::read(Bytes::from(text.clone())).unwrap().envelope;
    let mut encoder = EnvelopeEncoder::new(Settings::default());
    for compression in COMPRESSIONS {
        for (to, expected) in
            [(None, text.clone()), (Some(dsn(1)), text.clone()), (Some(dsn(2)), text.replace(&dsn(1), &dsn(2)))]
        {
            let to: Option<Dsn> = to.map(|to| to.parse().unwrap());
            let Encoded { messages, report } = encoder.envelope(&came, to.as_ref(), compression);
            assert_eq!(plain(compression, &messages[0].body), expected);
            assert_eq!((messages[0].quantities, report.losses.is_none()), (Quantities::items(1), true));
        }
    }
}

const DSN: &str = "https://0123456789abcdef0123456789abcdef@o1.ingest.sentry.io/42";

/// An envelope from a client that compressed it, as a receiver delivers it: its payloads are only in the body.
fn packed(text: &str) -> Envelope {
    let body = compress(Compression::GZIP, text.as_bytes()).unwrap();
    let plain = Bytes::copy_from_slice(text.as_bytes());
    let mut envelope = envelope::read(plain.clone()).unwrap().envelope;
    envelope.pack(&plain);
    envelope.received = Some(EnvelopeBody { body, content_encoding: Some("gzip"), changed: false });
    envelope
}

/// Guarantees: if an item has to change, all other bytes stay the same and our compression is used; a
/// plain envelope is available on request.
#[test]
fn changed_envelopes() {
    let text = "{\"dsn\":\"http://ffffffffffffffffffffffffffffffff@h/1\", \"k\":1.50}\n{\"type\":\"event\"}\n{ \"a\" :1.50}\n\
                {\"type\":\"x\",\"length\":3}\na\nb\n";
    let mut envelope = packed(text);
    let mut encoder = EnvelopeEncoder::new(Settings::default());
    let plain = |body: &Bytes| decompress(Coding::Zstd, body.clone(), 1 << 20).unwrap();
    envelope.replace_payload(0, Bytes::from_static(b"{\"b\":2}"));
    let encoded = encoder.envelope(&envelope, None, Compression::ZSTD);
    assert_eq!(plain(&encoded.messages[0].body), text.replace("{ \"a\" :1.50}", "{\"b\":2}"));
    let encoded =
        encoder.forward(&envelope, &"http://ffffffffffffffffffffffffffffffff@h/1".parse().unwrap(), Compression::ZSTD);
    assert_eq!(plain(&encoded.messages[0].body), text.replace("{ \"a\" :1.50}", "{\"b\":2}"));
}

proptest! {
    /// Guarantees: an envelope that was received compressed, and whose items were removed or changed, gives the same
    /// bytes as one received plain, for any compression, positions of items, and change of the header.
    #[test]
    fn packed_and_plain_agree(
        items in proptest::collection::vec((0usize..4, 0usize..90_000, 0u8..4), 0..8),
        compression in 0usize..3,
        to_another in any::<bool>(),
    ) {
        let mut text = "{\"dsn\":\"http://ffffffffffffffffffffffffffffffff@h/1\"}\n".to_owned();
        for (number, (kind, len, _)) in items.iter().enumerate() {
            let length = if *kind == 0 { String::new() } else { format!(",\"length\":{len}") };
            let letter = char::from(b'a' + number as u8);
            text += &format!("{{\"type\":\"x\"{length}}}\n{}\n", String::from(letter).repeat(*len));
        }
        let mut plain = envelope::read(Bytes::from(text.clone())).unwrap().envelope;
        let compression = COMPRESSIONS[compression];
        let body = compress(compression, text.as_bytes()).unwrap();
        let content_encoding = compression.content_encoding();
        let mut packed = Envelope { received: None, ..packed(&text) };
        packed.received = Some(EnvelopeBody { body, content_encoding, changed: true });
        for (at, (_, _, change)) in items.iter().enumerate().rev() {
            match change {
                0 => [&mut plain, &mut packed].map(|one| one.remove_item(at)),
                1 => [&mut plain, &mut packed].map(|one| one.replace_payload(at, Bytes::from_static(b"new\n"))),
                _ => [(), ()],
            };
        }
        let to: Option<Dsn> = to_another.then(|| DSN.parse().unwrap());
        let mut encoder = EnvelopeEncoder::new(Settings::default());
        let [one, other] = [&plain, &packed].map(|one| encoder.envelope(one, to.as_ref(), Compression::None));
        prop_assert_eq!(&one.messages[0].body, &other.messages[0].body);
        prop_assert_eq!((one.messages[0].meta, one.messages[0].quantities), (other.messages[0].meta, other.messages[0].quantities));
        prop_assert_eq!(one.messages[0].meta.hash, xxhash_rust::xxh3::xxh3_64(&one.messages[0].body));
    }
}

/// Guarantees: an envelope whose body is missing or differs is counted as lost, with a reason for the log.
#[test]
fn what_cannot_be_unpacked_is_lost() {
    let text = "{}\n{\"type\":\"event\"}\n1\n{\"type\":\"x\"}\n2\n";
    let without = Envelope { received: None, ..packed(text) };
    let short = compress(Compression::GZIP, b"{}\n{\"type\":\"event\"}\n1\n").unwrap();
    let other = Envelope {
        received: Some(EnvelopeBody { body: short, content_encoding: Some("gzip"), changed: false }),
        ..packed(text)
    };
    for envelope in [without, other] {
        let encoded = EnvelopeEncoder::new(Settings::default()).envelope(&envelope, None, Compression::None);
        assert!(encoded.messages.is_empty() && encoded.report.error.is_some());
        assert_eq!(encoded.report.losses.get(Reason::Internal), Quantities::items(2));
    }
}

/// Guarantees: an envelope that needs another DSN in its header keeps the rest of its body byte for byte, including its
/// end, for any compression and size.
#[test]
fn readdressed_as_received() {
    let end = format!("{{\"type\":\"attachment\",\"length\":{}}}\n{}", 3 << 20, "y".repeat(3 << 20));
    let theirs = format!("{{\"dsn\":\"http://ffffffffffffffffffffffffffffffff@h/1\", \"k\":1.50}}\n{end}");
    let ours = format!("{{\"dsn\":\"{DSN}\", \"k\":1.50}}\n{end}");
    let mut encoder = EnvelopeEncoder::new(Settings::default());
    for (compression, content_encoding) in [(Compression::None, None), (Compression::ZSTD, Some("zstd"))] {
        let mut envelope = packed(&theirs);
        let body = compress(compression, theirs.as_bytes()).unwrap();
        envelope.received = Some(EnvelopeBody { body, content_encoding, changed: false });
        let encoded = encoder.forward(&envelope, &DSN.parse().unwrap(), Compression::GZIP);
        assert_eq!((encoded.messages[0].meta, encoded.report.losses.is_none()), (None, true));
        assert_eq!(decompress(Coding::Gzip, encoded.messages[0].body.clone(), 4 << 20).unwrap(), ours);
    }
    let mut broken = packed(&theirs);
    broken.received = Some(EnvelopeBody { body: Bytes::from_static(b"no gzip"), ..broken.received.unwrap() });
    let encoded = encoder.forward(&broken, &DSN.parse().unwrap(), Compression::GZIP);
    assert_eq!((encoded.messages.len(), encoded.report.losses.get(Reason::Internal)), (0, Quantities::items(1)));
}

/// Guarantees: the waiting time is added to the envelope's `sent_at`, and nothing else changes; an envelope with a
/// missing or invalid `sent_at` stays unmodified.
#[test]
fn waiting_is_no_drift() {
    let text = "{\"sent_at\":\"2026-02-28T23:30:00.25Z\", \"k\":1.50}\n{\"type\":\"event\"}\n{ }\n";
    let hour = Duration::from_secs(3600);
    let of = |text: &str| {
        let envelope = packed(text);
        sent_later(envelope.received.as_ref().unwrap(), &envelope.header, hour, Compression::GZIP).unwrap()
    };
    let moved = decompress(Coding::Gzip, of(text).unwrap(), 1 << 20).unwrap();
    assert_eq!(moved, text.replace("2026-02-28T23:30:00.25Z", "2026-03-01T00:30:00.250Z"));
    assert_eq!(of("{}\n{\"type\":\"event\"}\n{}\n"), None);
    assert_eq!(of(&text.replace("2026-02-28T23:30:00.25Z", "yesterday")), None);
}

const TRANSACTION: &str = include_str!("../../../wire/testdata/sentry/python-2.75-transaction.envelope");
const V1: &str = include_str!("../../../wire/testdata/sentry/node-10.75-v1-transaction+profile.envelope");

/// An envelope from a client that compressed it, with the views that a receiver creates.
fn viewed(text: &'static str) -> Envelope {
    let plain = envelope::read(Bytes::from_static(text.as_bytes())).unwrap().envelope;
    let profiles = profile_items::read_items(&plain).map(|(item, read)| ItemView::profiles(item, read.unwrap()));
    let spans = span_items::read_items(&plain).map(|(item, read)| ItemView::spans(item, read.unwrap().spans));
    Envelope { views: spans.chain(profiles).collect(), ..packed(text) }
}

fn spans(envelope: &mut Envelope) -> &mut Spans {
    let Viewed::Spans(spans) = &mut envelope.views[0].what else { panic!("the first view is of spans") };
    spans
}

/// Guarantees: changes of an envelope's spans are sent with it, compressed or not, on every path; without changes the
/// received body is sent.
#[test]
fn found_out_about_spans() {
    let mut envelope = viewed(TRANSACTION);
    let dsn: Dsn = DSN.parse().unwrap();
    let mut encoder = EnvelopeEncoder::new(Settings::default());
    assert!(encoder.forward(&envelope, &dsn, Compression::None).messages[0].meta.is_some());
    let profiler = ProfilerLink { profiler_id: ProfilerId::from_hash(7), thread_id: None, thread_name: None };
    spans(&mut envelope).change(0, |changes| {
        *changes = SpanChanges { profiler: Some(profiler), sample_rate: Some(0.5) };
    });
    let expected = TRANSACTION
        .replace(
            "\"profile\":{\"profiler_id\":\"b6b5ee129b7a4ed98f28c712e4dcccd7\"}",
            "\"profile\":{\"profiler_id\":\"00000000000040008000000000000007\"}",
        )
        .replace("\"sample_rate\":\"1.0\"", "\"sample_rate\":\"0.5\"");
    assert_ne!(expected, TRANSACTION);
    let forwarded = encoder.forward(&envelope, &dsn, Compression::None);
    assert_eq!((forwarded.messages[0].meta, forwarded.messages[0].quantities), (None, Quantities::spans(2)));
    let written = encoder.envelope(&envelope, None, Compression::None);
    assert_eq!(written.messages[0].quantities, Quantities::spans(2));
    for body in [&forwarded.messages[0].body, &written.messages[0].body] {
        assert_eq!(std::str::from_utf8(body).unwrap(), expected);
    }
    // The view has the bytes of its item, so the body is not needed.
    envelope.received = None;
    let forwarded = encoder.forward(&envelope, &dsn, Compression::None);
    assert_eq!(std::str::from_utf8(&forwarded.messages[0].body).unwrap(), expected);
}

/// Guarantees: an envelope whose transaction was removed is not sent, and its V1 profile is counted as lost; one whose
/// profile is upgraded keeps the changes of its spans and their count.
#[test]
fn transactions_and_their_profiles() {
    let mut encoder = EnvelopeEncoder::new(Settings::default());
    let mut left_out = viewed(V1);
    spans(&mut left_out).retain(|_, _| false);
    let before = left_out.quantities();
    for Encoded { messages, report } in [encoder.envelope(&left_out, None, Compression::None), {
        let forwarded = encoder.forward(&left_out, &DSN.parse().unwrap(), Compression::None);
        assert!(forwarded.messages.is_empty());
        Encoded { messages: Vec::new(), report: forwarded.report }
    }] {
        assert_eq!((messages.len(), report.losses.get(Reason::NoTransaction)), (0, before));
    }

    let mut envelope = viewed(V1);
    spans(&mut envelope).change(1, |changes| {
        let thread_id = Some("77".into());
        let profiler = ProfilerLink { profiler_id: ProfilerId::from_hash(7), thread_id, thread_name: None };
        changes.profiler = Some(profiler);
    });
    let settled = settled(&envelope).envelope.unwrap();
    let (chunks, rest) = encoder.upgraded(&settled, Compression::None).unwrap();
    assert_eq!(chunks.messages.len(), 1);
    let rest = rest.unwrap();
    assert_eq!((rest.quantities(), rest.items.len()), (Quantities::spans(2), 1));
    let body = &encoder.forward(&rest, &DSN.parse().unwrap(), Compression::None).messages[0].body;
    let transaction: serde_json::Value =
        serde_json::from_slice(body.split(|byte| *byte == b'\n').nth(2).unwrap()).unwrap();
    assert_eq!(transaction["contexts"]["trace"]["data"]["thread.id"], "0");
    assert_eq!(transaction["spans"][0]["data"]["thread.id"], "77");
}
