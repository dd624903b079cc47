//! Compares the converter with the control (`profbridge_testkit::naive`), an independent implementation of the same
//! rules with prost and serde structs that shares no code with it.

use bytes::Bytes;
use profbridge_model::content_hash::content_hashes;
use profbridge_model::{IdentityStrength, ProcessWindow, ProfilerId, Profiles};
use profbridge_relay_rules::validate_json;
use profbridge_testkit::naive::{self, NaiveChunk, NaiveOptions};
use profbridge_testkit::owned;
use profbridge_testkit::workload::{self, Shape};
use profbridge_testkit::{ExportProfilesServiceRequest, RequestBuilder, T0};
use profbridge_wire::otlp::{self, Limits};
use profbridge_wire::sentry::chunk::{Collected, Converter, Settings};
use proptest::prelude::*;
use prost::Message;

use crate::otlp::layouts::capture;

/// The payloads of a request in which each resource is a process and all reports are of one time.
fn payloads(request: &ExportProfilesServiceRequest) -> Vec<Vec<u8>> {
    let request = Bytes::from(request.encode_to_vec());
    payloads_of(otlp::decode_as(request, otlp::Layout::V1_10, &Limits::default()).unwrap().profiles)
}

fn payloads_of(batch: Profiles) -> Vec<Vec<u8>> {
    let mut converter = Converter::new(Settings { max_gap: std::time::Duration::from_secs(60), ..Settings::default() });
    let mut collected = Collected::default();
    for resource in 0..batch.resources().len() {
        let window = cut(&batch, resource);
        let report = converter.convert(&window, &mut collected);
        assert!(report.balanced() && report.losses.is_none(), "{report:?}");
    }
    collected.chunks.into_iter().map(|(json, _)| json).collect()
}

fn cut(batch: &Profiles, resource: usize) -> Profiles {
    let mut window = batch.with_resources(batch.resources()[resource..=resource].to_vec()).unwrap();
    let ranges = window.profiles().map(|profile| (profile.time_unix_nano, profile.duration_nano));
    let (start, end) = ranges.fold((u64::MAX, 0), |(start, end), (at, long)| (start.min(at), end.max(at + long)));
    window.window = Some(ProcessWindow {
        profiler_id: ProfilerId::from_hash(resource as u128),
        strength: IdentityStrength::Strong,
        start_unix_nano: start,
        end_unix_nano: end,
    });
    window
}

fn parse(payload: &[u8]) -> NaiveChunk {
    assert_eq!(validate_json(payload), Ok(()));
    serde_json::from_slice(payload).unwrap()
}

/// Compares the chunks of converter and control, one by one, as a reader sees them.
fn compare(request: &ExportProfilesServiceRequest) {
    let control = naive::convert(request, &NaiveOptions::default());
    let own: Vec<NaiveChunk> = payloads(request).iter().map(|payload| parse(payload)).collect();
    assert_eq!(own.len(), control.len());
    for (own, control) in own.iter().zip(&control) {
        assert_eq!(own.platform, control.platform);
        assert_eq!(naive::difference(own, control), None);
        assert_eq!(naive::attributed_us(own), naive::attributed_us(control));
        assert_eq!((&own.release, &own.environment), (&control.release, &control.environment));
        assert_eq!(own.profile.thread_metadata, control.profile.thread_metadata);
    }
}

/// Guarantees: for requests like the eBPF profiler's, converter and control write the same samples.
#[test]
fn workloads_agree() {
    for shape in [Shape::Tiny, Shape::Avg, Shape::RubyDeep] {
        let request = workload::request(shape);
        compare(&request);
    }
}

/// The chunks of a request without their ids.
fn chunks_of(request: Bytes) -> Vec<serde_json::Value> {
    let batch = otlp::decode(request, &Limits::default()).unwrap().profiles;
    let mut chunks: Vec<serde_json::Value> =
        payloads_of(batch).iter().map(|payload| serde_json::from_slice(payload).unwrap()).collect();
    for chunk in &mut chunks {
        assert!(chunk.as_object_mut().unwrap().remove("chunk_id").is_some());
    }
    chunks
}

/// Guarantees: a capture of the eBPF profiler in 1.8 results in the same chunks as the same capture in 1.10, byte for
/// byte except for their ids.
/// rule: differences#otlp-layouts
#[test]
fn captures_make_the_same_chunks() {
    let [old, new] = ["1.8", "1.10"].map(|layout| capture(&format!("ebpf-profiler.wire-{layout}.otlp")));
    let (Some(old), Some(new)) = (old, new) else { return };
    let batch = |bytes: &Bytes| otlp::decode(bytes.clone(), &Limits::default()).unwrap().profiles;
    let (one, other) = (batch(&old), batch(&new));
    assert_eq!(content_hashes(&one), content_hashes(&other));
    assert_eq!(one.observations(), 189);
    let chunks = chunks_of(old);
    assert!(!chunks.is_empty() && chunks == chunks_of(new));
}

/// Guarantees: for requests like the eBPF profiler's, Sentry attributes to each function in each thread the sampled
/// time, and lists each in-app function.
/// rule: differences#sample-time
#[test]
fn workloads_own_their_time() {
    for shape in [Shape::Tiny, Shape::Avg, Shape::RubyDeep] {
        let request = workload::request(shape);
        let chunks: Vec<NaiveChunk> = payloads(&request).iter().map(|payload| parse(payload)).collect();
        let sampled = owned::sampled(&request);
        assert_eq!(owned::compare(&sampled, &owned::shown(&chunks, &sampled), 0), Ok(()), "{shape}");
        assert_eq!(chunks.iter().map(|chunk| owned::unlisted(chunk).len()).sum::<usize>(), 0, "{shape}");
    }
}

/// Guarantees: after zstd at level 1 a chunk is at most a tenth larger than the control's after gzip at level 6.
#[test]
fn compressed_size() {
    for shape in [Shape::Tiny, Shape::Avg, Shape::RubyDeep] {
        let request = workload::request(shape);
        let control: usize = naive::run(&request.encode_to_vec()).unwrap().iter().map(Vec::len).sum();
        let own: usize =
            payloads(&request).iter().map(|payload| zstd::encode_all(&payload[..], 1).unwrap().len()).sum();
        assert!(own * 10 <= control * 11, "{shape}: {own} bytes, the control has {control}");
    }
}

/// The frames of random stacks: native ones, and those of one runtime. With two runtimes in one process the chunk's
/// platform could be either, and with it would change the functions that Sentry lists and so the samples that are
/// halved.
const NATIVE: [&str; 3] = ["native!libc.so.6+0x91000", "kernel!do_syscall_64", "native!app+0x2000"];
const RUNTIMES: [[&str; 3]; 4] = [
    ["cpython!handle@/app/views.py:12", "cpython!main@/app/main.py:3", "cpython!total@/app/models.py:9"],
    [
        "jvm!void java.lang.Thread.run()@Thread.java:7",
        "jvm!void com.acme.Cart.add()@Cart.java:9",
        "jvm!int com.acme.Cart.total()@Cart.java:3",
    ],
    [
        "go!github.com/acme/cart.(*Cart).Add@/src/cart.go:9",
        "go!main.main@/src/main.go:3",
        "go!runtime.mcall@/usr/local/go/src/runtime/asm.s:7",
    ],
    ["ruby!Cart#total@/app/models/cart.rb:17", "ruby!Cart#add@/app/models/cart.rb:3", "ruby!<main>@/app/main.rb:1"],
];

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, failure_persistence: None, ..ProptestConfig::default() })]

    /// Guarantees: for any samples of one process, including lone ones, gaps and equal times, converter and control
    /// agree.
    #[test]
    fn random_requests_agree(
        runtime in proptest::sample::select(&RUNTIMES[..]),
        samples in proptest::collection::vec(
            (proptest::collection::vec(0..6_usize, 1..6), 1_i64..4, proptest::collection::vec(0_u64..4_900_000_000, 1..8)),
            1..12,
        ),
    ) {
        let mut builder = RequestBuilder::new().process("shop", 7).on_cpu(20);
        for (stack, thread, times) in &samples {
            let frame = |frame: &usize| NATIVE.iter().chain(&runtime).nth(*frame).copied().unwrap();
            let stack: Vec<&str> = stack.iter().map(frame).collect();
            let times: Vec<u64> = times.iter().map(|time| T0 + time).collect();
            builder = builder.sample(&stack, *thread, &times);
        }
        compare(&builder.build());
    }

    /// Guarantees: converter and control also agree if the distances of two threads' samples vary by up to a half, so
    /// that the shown time falls behind and catches up.
    #[test]
    fn wandering_requests_agree(
        spacings in (1_u64..=50).prop_flat_map(|percent| {
            proptest::collection::vec(10_000_000 - percent * 100_000..=10_000_000 + percent * 100_000, 10..600)
        }),
    ) {
        let times = |spacings: &[u64]| -> Vec<u64> {
            spacings.iter().scan(T0, |at, spacing| { *at += spacing; Some(*at) }).collect()
        };
        let (one, other) = spacings.split_at(spacings.len() / 2);
        let builder = RequestBuilder::new().process("shop", 7).on_cpu(100);
        let builder = builder.sample(&["go!work@/a.go:1", "go!main@/a.go:3"], 1, &times(one));
        compare(&builder.sample(&["go!rest@/a.go:2", "go!main@/a.go:3"], 2, &times(other)).build());
    }
}
