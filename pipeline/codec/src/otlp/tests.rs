use std::collections::{BTreeMap, BTreeSet};

use opentelemetry_proto::tonic::collector::profiles::v1development::ExportProfilesServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value as AnyValue;
use profbridge_model::spans::Packed;
use profbridge_model::{Builder, Envelope, Item, ItemView, Spans};
use profbridge_net::compression::{Coding, decompress};
use profbridge_testkit::profcheck::assert_valid;
use profbridge_testkit::{self as testing, batch};
use profbridge_wire::otlp::{Limits, decode, delimited, json as wire_json, traces};
use proptest::prelude::*;
use prost::Message as _;

use super::*;
use crate::compressor::compress;

/// The defaults of the exporter `otlp`, uncompressed.
const DEFAULTS: EncoderOptions = EncoderOptions { fill_profile_id: true, ..EncoderOptions::plain(64 << 20) };

/// The defaults with small messages.
const SMALL: EncoderOptions = EncoderOptions { max_bytes: 1024, part_bytes: 1024, ..DEFAULTS };

fn encoded(options: EncoderOptions, telemetry: impl Into<Telemetry>) -> Encoded<SignalCount> {
    OtlpEncoder::new(options).encode(&telemetry.into())
}

/// Encodes messages and asserts that they follow the rules of OTLP.
fn messages(options: EncoderOptions, telemetry: impl Into<Telemetry>) -> Vec<Message<SignalCount>> {
    let (compression, framing, encoding) = (options.compression, options.framing, options.encoding);
    let messages = encoded(options, telemetry).messages;
    for Message { body, .. } in &messages {
        let body = match framing {
            Framing::Length => delimited::frames(body.clone()).next().unwrap().unwrap(),
            Framing::Line | Framing::None => body.clone(),
        };
        let coding = Coding::parse(compression.content_encoding()).unwrap();
        let plain = decompress(coding, body, 1 << 30).unwrap();
        match encoding {
            Encoding::Protobuf => assert_valid(&plain),
            Encoding::Json => assert_valid(&from_json(&plain)),
        }
    }
    messages
}

/// Converts a JSON message to protobuf.
fn from_json(text: &[u8]) -> Vec<u8> {
    wire_json::read(wire_json::Message::ProfilesRequest, text, &Limits::default(), &mut |_| true).unwrap()
}

fn request(message: &Message<SignalCount>) -> ExportProfilesServiceRequest {
    match message.body.first() {
        Some(b'{') => ExportProfilesServiceRequest::decode(&*from_json(&message.body)).unwrap(),
        _ => ExportProfilesServiceRequest::decode(&*message.body).unwrap(),
    }
}

/// The profiles as a receiver would deliver them.
fn received(profiles: &Profiles, options: &EncodeOptions) -> Profiles {
    let decoded = decode(encode(profiles, options).into(), &Limits::default()).unwrap();
    assert!(decoded.refused.is_empty() && decoded.profiles.received.is_some());
    decoded.profiles
}

/// The profiles with an id each. Random profiles do not follow all rules of OTLP.
fn with_ids(profiles: &Profiles) -> Profiles {
    decode(encoded(DEFAULTS, profiles.clone()).messages.remove(0).body, &Limits::default()).unwrap().profiles
}

/// The content of messages, independent of how they are split: each observation with its data, and how often it occurs.
fn observation_counts(requests: &[ExportProfilesServiceRequest]) -> BTreeMap<String, u64> {
    let mut said = BTreeMap::new();
    for request in requests {
        let dictionary = request.dictionary.clone().unwrap_or_default();
        let string = |index: i32| dictionary.string_table[index as usize].as_str();
        for resource in &request.resource_profiles {
            let about = format!("{:?}", resource.resource.as_ref().map(|resource| &resource.attributes));
            for profile in resource.scope_profiles.iter().flat_map(|scope| &scope.profiles) {
                let about = format!("{about} {:?} {}", profile.profile_id, profile.time_unix_nano);
                for sample in &profile.samples {
                    let stack = &dictionary.stack_table[sample.stack_index as usize];
                    let functions: Vec<_> = stack
                        .location_indices
                        .iter()
                        .flat_map(|&location| &dictionary.location_table[location as usize].lines)
                        .map(|line| string(dictionary.function_table[line.function_index as usize].name_strindex))
                        .collect();
                    let mut tell = |time: Option<u64>, value: Option<i64>| {
                        *said.entry(format!("{about} {functions:?} {time:?} {value:?}")).or_default() += 1;
                    };
                    if sample.timestamps_unix_nano.is_empty() {
                        tell(None, sample.values.first().copied());
                    }
                    for (position, &time) in sample.timestamps_unix_nano.iter().enumerate() {
                        tell(Some(time), sample.values.get(position).copied());
                    }
                }
            }
        }
    }
    said
}

/// Guarantees: unchanged batches are sent as the received bytes, including unknown fields.
#[test]
fn unchanged_batches_are_forwarded() {
    let mut message = encode(&with_ids(&batch(&[3, 4])), &EncodeOptions::default());
    message.extend([0x7a, 1, 1]);
    let profiles = decode(message.into(), &Limits::default()).unwrap().profiles;
    let Encoded { messages, report } = encoded(DEFAULTS, profiles.clone());
    assert_eq!(messages.len(), 1);
    assert_eq!(messages[0].body, profiles.received.unwrap());
    assert_eq!(messages[0].meta.counted, 2);
    assert_eq!(report.notes, [(FORWARDED, 1)]);
}

/// Guarantees: attributes that refer to the string table are sent with the strings themselves, whole or split, since a
/// peer without support for references would read empty keys. If the peer is configured to support them, the received
/// bytes are sent.
/// rule: otlp-profiles#string-references
#[test]
fn references_are_resolved() {
    let options = EncodeOptions { references: true, ..EncodeOptions::default() };
    // The split moves the attributes' strings into the string table.
    let whole = split(&with_ids(&batch(&[200, 200])), 2048, &EncodeOptions::default()).next().unwrap();
    let profiles = received(&whole, &options);
    let service = |message: &ExportProfilesServiceRequest| {
        let attribute = message.resource_profiles[0].resource.as_ref().unwrap().attributes[0].clone();
        (attribute.key, attribute.key_strindex != 0, attribute.value.and_then(|value| value.value))
    };
    let inline = AnyValue::StringValue("checkout".to_owned());
    let resolved = ("service.name".to_owned(), false, Some(inline));
    for options in [DEFAULTS, SMALL, EncoderOptions::plain(64 << 20)] {
        let messages = messages(options, profiles.clone());
        assert_eq!(messages.iter().map(|message| message.quantities.total()).sum::<u64>(), profiles.observations());
        for message in messages {
            assert_eq!(service(&request(&message)), resolved);
        }
    }
    let kept = messages(EncoderOptions { keep_references: true, ..DEFAULTS }, profiles.clone());
    assert_eq!(kept[0].body, profiles.received.unwrap());
    let (key, by_reference, value) = service(&request(&kept[0]));
    assert!(key.is_empty() && by_reference && matches!(value, Some(AnyValue::StringValueStrindex(_))));
}

/// Guarantees: no message is sent for a batch without profiles, nor for an envelope without views, whose items are
/// counted as lost.
/// rule: otlp#send-empty
#[test]
fn nothing_is_made_of_nothing() {
    let mut builder = Builder::new();
    builder.resource(&[("service.name", "shop".into())]);
    builder.scope("test", "1");
    let empty = builder.finish().unwrap();
    let view = Envelope { views: vec![ItemView::profiles(0, empty.clone())], ..Envelope::default() };
    for telemetry in [Telemetry::from(empty), view.into()] {
        let Encoded { messages, report } = encoded(DEFAULTS, telemetry);
        assert!(messages.is_empty() && report.losses.is_none());
    }
    let item = Item { header: Bytes::from_static(b"{\"type\":\"event\"}"), payload: Bytes::new().into() };
    let envelope = Envelope { items: vec![item; 2], ..Envelope::default() };
    let Encoded { messages, report } = encoded(DEFAULTS, envelope);
    assert_eq!((messages.len(), report.losses.get(Reason::Unroutable)), (0, Quantities::items(2)));
}

/// Guarantees: a profile without an id gets one, the same in each of its parts; if the option is off, the batch is sent
/// unmodified.
/// rule: otep-0239#links
#[test]
fn ids_are_filled() {
    let without = received(&batch(&[2000]), &EncodeOptions::default());
    let ids = |options: EncoderOptions| -> BTreeSet<Vec<u8>> {
        messages(options, without.clone())
            .iter()
            .flat_map(|message| request(message).resource_profiles)
            .flat_map(|resource| resource.scope_profiles)
            .flat_map(|scope| scope.profiles)
            .map(|profile| profile.profile_id)
            .collect()
    };
    let whole = ids(DEFAULTS);
    assert_eq!(whole.len(), 1);
    assert_eq!(whole.first().unwrap().len(), 16);
    assert_eq!(ids(SMALL), whole);
    assert_eq!(ids(EncoderOptions { fill_profile_id: false, ..DEFAULTS }), [Vec::new()].into());
}

/// Guarantees: a payload is only sent if the option is on and the profile unchanged. A payload in pprof's format, or
/// without a format, is never sent, neither with the received bytes nor re-encoded.
/// rule: otep-0239#payload
#[test]
fn payloads() {
    let made = |format: &str| {
        let mut builder = Builder::new();
        builder.resource(&[]);
        builder.scope("test", "1");
        let original_payload = builder.bytes(b"recording");
        let original_payload_format = builder.string(format);
        let (time_unix_nano, duration_nano) = (1, 2);
        builder.profile(Profile {
            original_payload,
            original_payload_format,
            time_unix_nano,
            duration_nano,
            ..Profile::default()
        });
        let stack = builder.frame("parse", "main.rs", 7);
        let stack = builder.stack(&[stack]);
        builder.sample(stack, None, None, &[1, 2], &[]);
        builder.finish().unwrap()
    };
    let payload = |profiles: &Profiles, options: EncoderOptions| {
        let messages = messages(options, profiles.clone());
        request(&messages[0]).resource_profiles[0].scope_profiles[0].profiles[0].original_payload.clone()
    };
    let asked = EncoderOptions { original_payload: true, ..DEFAULTS };
    let unchanged = EncoderOptions { fill_profile_id: false, ..asked };
    // A profile as received: the sender decides about the format of its payload.
    let came = |format: &str| {
        let request = ExportProfilesServiceRequest::decode(&*encode(&made(""), &EncodeOptions::default()));
        let mut request = request.unwrap();
        let profile = &mut request.resource_profiles[0].scope_profiles[0].profiles[0];
        (profile.original_payload, profile.original_payload_format) = (b"recording".to_vec(), format.to_owned());
        decode(request.encode_to_vec().into(), &Limits::default()).unwrap().profiles
    };
    assert_eq!(payload(&came("jfr"), DEFAULTS), b"");
    assert_eq!(payload(&came("jfr"), EncoderOptions { fill_profile_id: false, ..DEFAULTS }), b"");
    assert_eq!(payload(&made("jfr"), asked), b"", "not what came");
    for options in [asked, unchanged, EncoderOptions { part_bytes: 16, ..unchanged }] {
        assert_eq!(payload(&came("jfr"), options), b"recording");
        for format in ["pprof", "PPROF", "application/x-pprof", ""] {
            assert_eq!(payload(&came(format), options), b"", "{format:?}");
        }
    }
}

/// Guarantees: an envelope is sent as the profiles that were read from it.
#[test]
fn views() {
    let envelope = Envelope {
        views: vec![ItemView::profiles(0, batch(&[2])), ItemView::profiles(1, batch(&[3]))],
        ..Envelope::default()
    };
    let observations: Vec<_> = messages(DEFAULTS, envelope).iter().map(|message| message.quantities).collect();
    assert_eq!(observations, [2, 3].map(Quantities::observations));
}

/// Guarantees: a profile that cannot be split below the limit is counted as lost, and the rest is sent; a lowered limit
/// stays in effect.
/// rule: otlp#send-size
#[test]
fn too_large() {
    let mut builder = Builder::new();
    builder.resource(&[]);
    builder.scope("test", "1");
    builder.on_cpu(20);
    for name in ["short", &"x".repeat(4000)] {
        let frame = builder.frame(name, "main.rs", 7);
        let stack = builder.stack(&[frame]);
        builder.sample(stack, None, None, &[1], &[]);
    }
    let mut encoder = OtlpEncoder::new(DEFAULTS);
    let telemetry = builder.finish().unwrap().into();
    assert_eq!(encoder.encode(&telemetry).messages.len(), 1);
    encoder.limit(1024);
    encoder.limit(1 << 20);
    let Encoded { messages, report } = encoder.encode(&telemetry);
    assert_eq!(messages.iter().map(|message| message.quantities.total()).sum::<u64>(), 1);
    assert_eq!(report.losses.get(Reason::TooLarge).total(), 1);
    assert_eq!(report.notes, [(SPLIT, 1)]);
}

/// Guarantees: a message has the same bytes with any compression, alone or in a frame.
#[test]
fn forms() {
    let plain = messages(DEFAULTS, batch(&[20])).remove(0).body;
    for compression in [Compression::None, Compression::GZIP, Compression::ZSTD] {
        let coding = Coding::parse(compression.content_encoding()).unwrap();
        for framing in [Framing::None, Framing::Length] {
            for encoding in [Encoding::Protobuf, Encoding::Json] {
                let options = EncoderOptions { compression, framing, encoding, ..DEFAULTS };
                let body = messages(options, batch(&[20])).remove(0).body;
                let message = match framing {
                    Framing::Length => delimited::frames(body).next().unwrap().unwrap(),
                    _ => body,
                };
                let message = decompress(coding, message, 1 << 20).unwrap();
                match encoding {
                    Encoding::Protobuf => assert_eq!(message, plain),
                    Encoding::Json => assert_eq!(from_json(&message), plain),
                }
            }
        }
    }
}

/// Guarantees: in a JSON file each line is a message, whether its batch was forwarded or re-encoded.
#[test]
fn lines() {
    let options = EncoderOptions { encoding: Encoding::Json, framing: Framing::Line, ..DEFAULTS };
    let came = with_ids(&batch(&[20]));
    for profiles in [came.clone(), batch(&[20])] {
        let Encoded { messages, report } = encoded(options, profiles);
        let text = std::str::from_utf8(&messages[0].body).unwrap();
        assert!(text.starts_with("{\"resourceProfiles\":[") && text.ends_with("}\n") && text.lines().count() == 1);
        assert_eq!(Some(from_json(text.as_bytes()).into()), came.received);
        assert_eq!(report.notes, []);
    }
    assert_eq!(Framing::of_file(Encoding::Json, true), Framing::Length);
    assert_eq!(Framing::of_file(Encoding::Json, false), Framing::Line);
    assert_eq!(Framing::of_file(Encoding::Protobuf, false), Framing::Length);
}

/// Guarantees: spans that were received in the compression to send are not compressed again, not even in a frame of a
/// file. They are re-compressed if they were changed, or if the compression or the encoding differs.
#[test]
fn compressed_spans_leave_as_they_came() {
    let text = r#"{"resourceSpans":[{"scopeSpans":[{"spans":[{"traceId":"0af7651916cd43dd8448eb211c80319c",
        "spanId":"b7ad6b7169203331","name":"spam spam spam spam spam"}]}]}]}"#;
    let protobuf =
        wire_json::read(wire_json::Message::TracesRequest, text.as_bytes(), &Limits::default(), &mut |_| true).unwrap();
    let came = compress(Compression::Gzip { level: 9 }, &protobuf).unwrap();
    let mut spans = traces::decode(protobuf.clone().into(), &Limits::default()).unwrap().spans;
    spans.keep_packed(Packed { coding: "gzip", bytes: came.clone() });
    let body = |options: EncoderOptions, spans: &Spans| {
        let mut messages = OtlpEncoder::new(options).encode(&Telemetry::from(spans.clone())).messages;
        assert_eq!(messages.len(), 1);
        messages.remove(0).body
    };
    let gzip = EncoderOptions { compression: Compression::GZIP, ..EncoderOptions::plain(1 << 20) };
    // No copy: the memory is the same.
    assert_eq!(body(gzip, &spans).as_ptr(), came.as_ptr());
    let mut frame = Vec::new();
    put_frame(&mut frame, &came).unwrap();
    assert_eq!(body(EncoderOptions { framing: Framing::Length, ..gzip }, &spans), frame);
    assert_eq!(body(EncoderOptions { compression: Compression::None, ..gzip }, &spans), protobuf);
    for (coding, options) in [
        (Coding::Zstd, EncoderOptions { compression: Compression::ZSTD, ..gzip }),
        (Coding::Gzip, EncoderOptions { encoding: Encoding::Json, ..gzip }),
    ] {
        let packed = body(options, &spans);
        assert_ne!(packed, came);
        assert!(decompress(coding, packed, 1 << 20).is_ok());
    }
    let mut changed = spans.clone();
    changed.change(0, |changes| changes.sample_rate = Some(0.5));
    let packed = body(gzip, &changed);
    let again = traces::decode(decompress(Coding::Gzip, packed, 1 << 20).unwrap(), &Limits::default()).unwrap().spans;
    assert!(again.bytes().len() > protobuf.len());
}

/// Guarantees: spans are written to JSON as one message or, above the limit, as parts that contain all of them; a
/// finished message is split by its length in JSON.
#[test]
fn spans_in_json() {
    let spans: Vec<String> = (1..=2_000_u128)
        .map(|n| format!(r#"{{"traceId":"{n:032x}","spanId":"{:016x}","name":"GET /","kind":2}}"#, n as u64))
        .collect();
    let text = format!(r#"{{"resourceSpans":[{{"scopeSpans":[{{"spans":[{}]}}]}}]}}"#, spans.join(","));
    let read = |text: &[u8]| {
        let message = wire_json::Message::TracesRequest;
        let protobuf = wire_json::read(message, text, &Limits::default(), &mut |_| true).unwrap();
        traces::decode(protobuf.into(), &Limits::default()).unwrap().spans
    };
    let options = EncoderOptions { encoding: Encoding::Json, ..DEFAULTS };
    let all = encoded(options, read(text.as_bytes()));
    assert_eq!((all.messages.len(), &all.messages[0].body[..]), (1, text.as_bytes()));
    assert_eq!(all.report.notes, []);
    let parts = encoded(EncoderOptions { max_bytes: 4096, part_bytes: 4096, ..options }, read(text.as_bytes()));
    assert_eq!(parts.report.notes, [(SPLIT, 1)]);
    assert!(parts.report.losses.is_none() && parts.messages.iter().all(|part| part.body.len() <= 4096));
    let count = |messages: &[Message<SignalCount>]| -> (usize, u64) {
        let read = messages.iter().map(|part| read(&part.body).spans().len()).sum();
        (read, messages.iter().map(|part| part.meta.counted).sum())
    };
    assert_eq!(count(&parts.messages), (2_000, 2_000));
    let body = all.messages[0].body.clone();
    let Cut { messages, limit, .. } = cut(body, Signal::Traces, Encoding::Json, Compression::None, 64 << 20).unwrap();
    assert_eq!((count(&messages), limit), ((2_000, 2_000), text.len() / 8 * 5));
    assert!(messages.iter().all(|part| part.body.len() <= limit));
}

/// Guarantees: a finished message is split to the limit or, if it is already below, to about half. The parts have the
/// same content and compression. A message too small to split stays whole.
#[test]
fn finished_messages_are_cut() {
    let compression = Compression::ZSTD;
    for encoding in [Encoding::Protobuf, Encoding::Json] {
        let options = EncoderOptions { encoding, ..DEFAULTS };
        let message = messages(EncoderOptions { compression, ..options }, batch(&[30_000, 20_000])).remove(0);
        let whole = messages(options, batch(&[30_000, 20_000])).remove(0);
        for (limit, most) in [(100_000, 100_000), (64 << 20, whole.body.len() / 8 * 5)] {
            let Cut { messages, size, limit } =
                cut(message.body.clone(), Signal::Profiles, encoding, compression, limit).unwrap();
            assert_eq!((size, limit), (whole.body.len(), most));
            assert_eq!(messages.iter().map(|part| part.quantities.observations).sum::<u64>(), 50_000);
            let plain = messages.into_iter().map(|part| {
                let body = decompress(Coding::Zstd, part.body.clone(), most).unwrap();
                request(&Message { body, ..part })
            });
            assert_eq!(observation_counts(&plain.collect::<Vec<_>>()), observation_counts(&[request(&whole)]));
        }
    }
    let small = messages(DEFAULTS, batch(&[2000])).remove(0);
    assert!(cut(small.body, Signal::Profiles, Encoding::Protobuf, Compression::None, 64 << 20).is_none());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    /// Guarantees: a missing profile id is set to the hash of the content, and an existing one is kept.
    /// rule: otep-0239#profile-id
    #[test]
    fn fills_missing_ids(seed: u64, samples in 1_usize..200) {
        let now = testing::ManualClock::default().now();
        let made = testing::profiles(&mut fastrand::Rng::with_seed(seed), samples, now);
        let profiles = received(&made, &EncodeOptions::default());
        let filled = with_ids(&profiles);
        for ((before, after), hash) in profiles.profiles().zip(filled.profiles()).zip(content_hashes(&profiles)) {
            prop_assert_eq!(after.profile_id, Some(before.profile_id.unwrap_or(hash)));
        }
    }

    /// Guarantees: for any limit, each message stays below it, and together they contain the whole batch.
    /// rule: otlp#send-http-type, otlp#send-size
    #[test]
    fn splits_say_the_same(seed: u64, samples in 1_usize..200, limit in 1024_usize..20_000, json: bool) {
        let now = testing::ManualClock::default().now();
        let profiles = testing::profiles(&mut fastrand::Rng::with_seed(seed), samples, now);
        // A profile that takes a kilobyte in protobuf takes several in JSON.
        let (encoding, limit) = if json { (Encoding::Json, 8 * limit) } else { (Encoding::Protobuf, limit) };
        let encode = |limit: usize| {
            encoded(EncoderOptions { max_bytes: limit, part_bytes: limit, encoding, ..DEFAULTS }, profiles.clone())
        };
        let (whole, parts) = (encode(64 << 20), encode(limit));
        prop_assert!(parts.report.losses.is_none());
        for message in &parts.messages {
            prop_assert!(message.body.len() <= limit);
        }
        let requests = |encoded: &Encoded<SignalCount>| encoded.messages.iter().map(request).collect::<Vec<_>>();
        prop_assert_eq!(observation_counts(&requests(&parts)), observation_counts(&requests(&whole)));
    }
}
