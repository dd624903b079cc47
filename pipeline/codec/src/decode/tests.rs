mod spans;

use profbridge_model::{Builder, Quantities};
use profbridge_wire::otlp::delimited::put_frame;
use profbridge_wire::otlp::{self, EncodeOptions, encode};

use self::spans::{spans, spans_json};
use super::*;
use crate::compress;
use profbridge_net::compression::Compression;

const OPTIONS: DecodeOptions = DecodeOptions { limit: 1 << 20, counted: CountUnit::Samples };

/// Decodes bytes: the quantities of each message, the findings, and the result.
fn quantities(bytes: impl Into<Bytes>) -> (Vec<Quantities>, Findings, Result<(), Refused>) {
    let (mut findings, mut decoded) = (Findings::default(), Vec::new());
    let outcome = decode("in", bytes.into(), OPTIONS, &mut findings, |telemetry| decoded.push(telemetry.quantities()));
    (decoded, findings, outcome)
}

/// The same with the observations alone.
fn read(bytes: impl Into<Bytes>) -> (Vec<u64>, Findings, Result<(), Refused>) {
    let (decoded, findings, outcome) = quantities(bytes);
    (decoded.iter().map(|quantities| quantities.observations).collect(), findings, outcome)
}

fn request(observations: u64) -> Vec<u8> {
    let mut builder = Builder::new();
    builder.resource(&[("service.name", "shop".into())]);
    builder.scope("test", "");
    builder.on_cpu(20);
    let frame = builder.frame("parse", "/app/a.py", 7);
    let stack = builder.stack(&[frame]);
    let times: Vec<u64> = (1..=observations).collect();
    builder.sample(stack, None, None, &times, &[]);
    encode(&builder.finish().unwrap(), &EncodeOptions::default())
}

fn framed(messages: &[&[u8]]) -> Vec<u8> {
    let mut file = Vec::new();
    messages.iter().for_each(|message| put_frame(&mut file, message).unwrap());
    file
}

/// An envelope of a real SDK, and its chunk.
fn captured() -> (Vec<u8>, Vec<u8>) {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../wire/testdata/sentry/python-2.75-profile_chunk.envelope");
    let envelope = std::fs::read(path).unwrap();
    let items = envelope::read(envelope.clone().into()).unwrap().envelope.items;
    (envelope, items[0].payload.plain().unwrap().to_vec())
}

/// Guarantees: a pprof profile is decoded, gzipped or not, and an invalid one is rejected with the broken rule; pprof
/// output is gzipped and has the same content.
#[test]
fn pprof_profiles() {
    let mut batches = Vec::new();
    decode("in", request(3).into(), OPTIONS, &mut Findings::default(), |telemetry| batches.push(telemetry)).unwrap();
    let [batch] = &batches[..] else { panic!("one batch") };
    let [message] = &crate::pprof::profiles(batch.profiles().next().unwrap()).messages[..] else { panic!("one file") };
    assert_eq!((message.quantities.observations, &message.body[..2]), (3, &[0x1f, 0x8b][..]));
    let plain = decompress(Coding::Gzip, message.body.clone(), 1 << 20).unwrap();
    for bytes in [&message.body, &plain] {
        // Three observations have become one sample with a count of three.
        let (taken, findings, outcome) = read(bytes.clone());
        assert_eq!((taken, outcome), (vec![1], Ok(())));
        assert!(findings.refused.is_empty() && findings.losses.is_none());
    }
    // A location with the id 0.
    let refused = read([&plain[..], b"\x22\x00"].concat()).2.unwrap_err().to_string();
    assert!(refused.starts_with("in: malformed pprof profile: location[1].id: is 0"), "{refused}");
}

/// Guarantees: stacks with two numbers are rejected with their line; a name that ends with a number is not one of
/// these.
#[test]
fn differential_stacks() {
    let refused = read("# before and after\nmain;work 5 7\nmain;rest 0 2\n").2.unwrap_err().to_string();
    assert!(refused.starts_with("in: line 2: has two numbers") && refused.contains("hint: "), "{refused}");
    assert_eq!(read("main;work 5 7\nmain;rest 2\n").0, [2]);
}

/// Guarantees: a broken pprof profile is rejected with pprof's terms, wherever the error is, and a profile whose type
/// has no name is decoded.
#[test]
fn broken_pprof_profiles() {
    let nameless = b"\x0a\0\x12\x06\x0a\x01\x01\x12\x01\x05\x22\x04\x08\x01\x18\x07\x32\0";
    assert_eq!(read(&nameless[..]).0, [1]);
    let typed = b"\x0a\x04\x08\x01\x10\x02\x32\0\x32\x03cpu\x32\x02ns\x12\x06\x0a\x01\x01\x12\x01\x05";
    for bytes in [&typed[..], &typed[..typed.len() - 1], &typed[..7], &[&nameless[..], b"\x12\x07\x0a"].concat()] {
        let refused = read(bytes.to_vec()).2.unwrap_err().to_string();
        assert!(refused.starts_with("in: malformed pprof profile: "), "{bytes:x?}: {refused}");
    }
}

/// Guarantees: concatenated files are rejected with a hint, alone and as one message of several; no stack gets names of
/// another file.
#[test]
fn joined_requests() {
    let (one, two) = (request(2), request(3));
    let joined = [&one[..], &two[..]].concat();
    let (taken, _, outcome) = read(joined.clone());
    let why = outcome.unwrap_err().to_string();
    assert!(taken.is_empty() && why.starts_with("in: holds two messages one behind the other"), "{why}");
    assert!(why.contains("hint: protobuf cannot be joined with `cat`"), "{why}");
    let (taken, findings, outcome) = read(framed(&[&joined, &two]));
    assert_eq!((taken, outcome, findings.refused.len()), (vec![3], Ok(()), 1));
    assert!(findings.refused[0].to_string().starts_with("in: message 1: holds two messages"), "{findings:?}");
}

/// Guarantees: a rejected message is reported by its number, and the other messages are decoded; a truncated file gives
/// the messages before the cut, and the position of the cut.
#[test]
fn parts_are_refused_alone() {
    let (one, two) = (request(2), request(3));
    // A dictionary with a truncated string.
    let broken = b"\x12\x02\x2a\x05";
    let file = framed(&[&one, broken, &two]);
    let (taken, findings, outcome) = read(file.clone());
    assert_eq!((taken, outcome, findings.refused.len()), (vec![2, 3], Ok(()), 1));
    assert_eq!(findings.refused[0].place, "in: message 2");
    let (taken, _, outcome) = read(file[..file.len() - 1].to_vec());
    assert_eq!(taken, [2]);
    let refused = outcome.unwrap_err().to_string();
    assert!(refused.starts_with("in: the frame at byte "), "{refused}");
    let (taken, findings, outcome) = read(framed(&[broken, broken]));
    assert_eq!((taken.len(), findings.refused.len()), (0, 2));
    assert_eq!(outcome.unwrap_err().why, "not one message in it can be read");
}

/// A request as JSON.
fn json(observations: u64) -> String {
    let mut text = Vec::new();
    let message = otlp::json::Message::ProfilesRequest;
    otlp::json::write(message, &request(observations), usize::MAX, &mut text).unwrap();
    String::from_utf8(text).unwrap()
}

/// Guarantees: each format is detected by its content and decoded with all observations and spans, plain or compressed:
/// OTLP in protobuf and in JSON, alone, on several lines, as lines of messages and in frames, mixed; frames whose
/// messages are compressed; envelopes and chunks.
#[test]
fn forms() {
    let (envelope, chunk) = captured();
    let sentry = quantities(envelope.clone()).0;
    assert!(sentry.len() == 1 && sentry[0].observations > 0);
    let (one, two, text, spans) = (request(2), json(3), spans_json(2), spans(2));
    let pretty =
        |text: &str| serde_json::to_vec_pretty(&serde_json::from_str::<serde_json::Value>(text).unwrap()).unwrap();
    let zstd = |bytes: &[u8]| compress(Compression::ZSTD, bytes).unwrap();
    let [a, b, s] = [Quantities::observations(2), Quantities::observations(3), Quantities::spans(2)];
    for (bytes, expected) in [
        (one.clone(), vec![a]),
        (two.clone().into_bytes(), vec![b]),
        (pretty(&two), vec![b]),
        (format!("\n{two}\r\n\r\n{two}").into_bytes(), vec![b, b]),
        (framed(&[&one, two.as_bytes()]), vec![a, b]),
        (framed(&[&zstd(&one), &zstd(two.as_bytes())]), vec![a, b]),
        (spans.clone(), vec![s]),
        (text.clone().into_bytes(), vec![s]),
        (pretty(&text), vec![s]),
        (format!("{text}\n{two}\n{text}\n").into_bytes(), vec![s, b, s]),
        (framed(&[&spans, &one, text.as_bytes()]), vec![s, a, s]),
        (envelope, sentry.clone()),
        (chunk, sentry),
    ] {
        for compression in [Compression::None, Compression::GZIP, Compression::ZSTD] {
            let (decoded, findings, outcome) = quantities(compress(compression, &bytes).unwrap());
            assert_eq!((decoded, outcome), (expected.clone(), Ok(())));
            assert!(findings.refused.is_empty() && findings.losses.is_none());
        }
    }
}

/// Guarantees: an invalid line is reported by its number, and the other lines are decoded; if no line is valid, the
/// error has the place and the rule.
#[test]
fn lines_are_refused_alone() {
    let (one, two) = (json(2), json(3));
    let (taken, findings, outcome) = read(format!("{one}\n{{\"dictionary\":5}}\n{two}\n{}", &two[..40]));
    assert_eq!((taken, outcome), (vec![2, 3], Ok(())));
    let refused: Vec<_> = findings.refused.iter().map(ToString::to_string).collect();
    assert!(refused[0].starts_with("in: line 2: malformed request: dictionary"), "{refused:?}");
    assert!(refused[1].starts_with("in: line 4: "), "{refused:?}");
    let (_, findings, outcome) = read("{\"resourceProfiles\":[{\"scopeProfiles\":[5]}]}");
    assert!(findings.refused.is_empty());
    let refused = outcome.unwrap_err().to_string();
    assert!(
        refused.starts_with("in: malformed request: resource_profiles[0].scope_profiles[0] (at byte "),
        "{refused}"
    );
    let (_, findings, outcome) = read("{\"dictionary\":5}\n{\"dictionary\":6}");
    assert_eq!(findings.refused.len(), 2);
    assert_eq!(outcome.unwrap_err().why, "not one message in it can be read");
}

/// Guarantees: collapsed stacks are decoded, plain or compressed, also if they begin like a JSON list or have one frame
/// each; an invalid line is reported by its number and counted. A file's name says that it has stacks.
#[test]
fn collapsed_stacks() {
    for text in ["main;parse 3\nmain 1\n", "[running];main;parse 3\nmain 1\n", "a 5\nb 6\n"] {
        for compression in [Compression::None, Compression::GZIP, Compression::ZSTD] {
            let (taken, findings, outcome) = read(compress(compression, text.as_bytes()).unwrap());
            assert_eq!((taken, outcome), (vec![2], Ok(())));
            assert!(findings.refused.is_empty() && findings.losses.is_none());
        }
    }
    let (taken, findings, outcome) = read("main;parse 3\nmain;lex\nmain 1\n");
    assert_eq!((taken, outcome), (vec![2], Ok(())));
    assert_eq!(findings.refused[0].to_string(), "in: line 2: it has no number behind a stack");
    assert_eq!(findings.losses.get(Reason::Malformed).observations, 1);
    let text = "main 3\nlex\n";
    assert!(read(text).2.is_err());
    for name in ["a.folded", "b.collapsed", "c.folded.gz"] {
        let (mut findings, mut taken) = (Findings::default(), 0);
        decode(name, text.into(), OPTIONS, &mut findings, |telemetry| taken += telemetry.observations()).unwrap();
        assert_eq!((taken, findings.refused.len()), (1, 1), "{name}");
    }
}

/// Guarantees: a protobuf request is recognised whatever its first bytes look like: the key and length of its first
/// field may be a line break and any character, such as a bracket.
#[test]
fn requests_that_begin_like_text() {
    let message = |bytes: Vec<u8>| [vec![0x0a, bytes.len() as u8], bytes].concat();
    for length in 20..=127 {
        // The first resource has an attribute without a value and a dropped count, which is not text.
        let attribute = message(message(vec![b'k'; length - 8]));
        let request = message(message([attribute, vec![0x10, 1]].concat()));
        assert_eq!(request[..2], [0x0a, length as u8]);
        let (_, findings, outcome) = read(request);
        assert_eq!((outcome, findings.refused.len()), (Ok(()), 0), "{length}");
    }
}

/// Guarantees: if one of two profiles in an envelope is invalid, it is reported and the other one is decoded.
#[test]
fn views_are_refused_alone() {
    let (envelope, _) = captured();
    let broken = b"{\"type\":\"profile_chunk\",\"length\":2}\n{}\n";
    let expected = read(envelope.clone()).0;
    let (taken, findings, outcome) = read([&*envelope, &broken[..]].concat());
    assert_eq!((taken, outcome, findings.refused.len()), (expected, Ok(()), 1));
    assert_eq!(findings.refused[0].place, "in");
    let (taken, findings, outcome) = read([&b"{}\n"[..], broken].concat());
    assert_eq!((taken.len(), findings.refused.len()), (0, 1));
    assert_eq!(outcome.unwrap_err().why, "not one profile or span in the envelope can be read");
}

/// Guarantees: a V1 profile is decoded together with its transaction; a profile in an unsupported format is counted but
/// not an error, unless there was nothing else to decode.
#[test]
fn other_formats_of_profiles() {
    let android = b"{\"type\":\"profile_chunk\"}\n{\"version\":\"2.android-trace\"}\n";
    let path = "/../wire/testdata/sentry/node-10.75-v1-transaction+profile.envelope";
    let mut v1 = std::fs::read([env!("CARGO_MANIFEST_DIR"), path].concat()).unwrap();
    let (taken, findings, outcome) = read([&*v1, &b"\n"[..], android].concat());
    // 89 samples, and the items that were not read.
    assert_eq!((taken, outcome, findings.refused.len()), (vec![89], Ok(()), 0));
    assert_eq!((findings.passed_over, findings.left_out_samples), (1, 0));
    let (taken, findings, outcome) = read([&b"{}\n"[..], android].concat());
    assert_eq!((taken.len(), findings.passed_over), (0, 1));
    assert!(outcome.unwrap_err().why.contains("1 profile_chunk, and no profile that is read: it is in another format"));
    // Without its transaction.
    let at = v1.windows(18).position(|window| window == b"{\"type\":\"profile\"}").unwrap();
    v1.drain(3..at);
    v1[..3].copy_from_slice(b"{}\n");
    let (taken, findings, _) = read(v1);
    assert_eq!((taken.len(), findings.refused.len()), (0, 1));
    assert!(findings.refused[0].why.contains("transaction is not in its envelope"));
}

/// Guarantees: unsupported input is rejected with the rule: no bytes, text, too large after decompression, compressed
/// twice, another known format, an envelope without a profile.
#[test]
fn refusals() {
    let gzip = |bytes: &[u8]| compress(Compression::GZIP, bytes).unwrap();
    for (bytes, why) in [
        (Bytes::new(), "is empty"),
        (gzip(b""), "is empty"),
        (Bytes::from_static(b"\nname,value\n"), "is neither OTLP profiles or traces in protobuf or JSON"),
        (gzip(b"who knows"), "compressed with gzip, and what is in it is neither"),
        (gzip(&vec![0; 2 << 20]), "1048576"),
        (gzip(&gzip(&request(2))), "is compressed twice\nhint: "),
        (Bytes::from_static(b"PERFILE2\0\0\0\0"), "(perf.data), which is not supported\nhint: "),
        (Bytes::from_static(b"{}\n{\"type\":\"event\"}\n{}\n"), "the envelope holds 1 event, and no profile"),
    ] {
        let (taken, findings, outcome) = read(bytes);
        let refused = outcome.unwrap_err().to_string();
        assert!(refused.starts_with("in: ") && refused.contains(why), "{refused}");
        assert!(taken.is_empty() && findings.refused.is_empty());
    }
}
