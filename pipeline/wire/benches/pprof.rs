//! Measures the pprof codec on a CPU profile of 10 MB as Go writes it. The unit is bytes of the uncompressed profile
//! per second.
//!
//! `cargo bench -p profbridge-wire --bench pprof`
//!
//! Before the measurements, the program prints the memory that a batch takes in addition to its profile.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "tests and benchmarks report by panicking and printing")]

use bytes::Bytes;
use divan::Bencher;
use divan::counter::BytesCount;
use profbridge_model::{Builder, Function, Line, LinkId, Location, LocationId, Mapping, Profile};
use profbridge_wire::otlp::{EncodeOptions, Limits, memory};
use profbridge_wire::pprof::{decode, encode, groups};

fn main() {
    for labels in [false, true] {
        let profile = profile(labels);
        let batch = decode(profile.clone(), &Limits::default()).unwrap().profiles;
        let (wire, memory) = (profile.len(), memory(&batch));
        let factor = memory as f64 / wire as f64;
        println!(
            "labels: {labels}: {wire} bytes, the batch adds {memory} ({factor:.2}), {} samples",
            batch.observations()
        );
    }
    divan::main();
}

/// A profile of a hundred thousand samples of two types, with stacks of 40 locations, out of 30,000 locations in 6,000
/// functions. With `labels`, each sample has one of a thousand spans and one of twenty workers.
fn profile(labels: bool) -> Bytes {
    let mut builder = Builder::new();
    builder.scope("", "");
    let mut seed = 1u64;
    let mut random = |below: u64| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) % below
    };
    let filename = builder.string("/app/shop");
    let mapping =
        builder.mapping(Mapping { memory_start: 0x40_0000, memory_limit: 0x400_0000, filename, ..Mapping::default() });
    let functions: Vec<_> = (0..6_000)
        .map(|number| {
            let name =
                builder.string(&format!("example.com/shop/service{}/internal.(*Handler{number}).Serve", number % 40));
            let filename = builder.string(&format!("/src/shop/service{}/internal/handler{number}.go", number % 40));
            builder.function(Function { name, system_name: name, filename, start_line: 0 })
        })
        .collect();
    let locations: Vec<Option<LocationId>> = (0..30_000u64)
        .map(|number| {
            let inlined = usize::from(number % 5 == 0);
            let lines: Vec<Line> = (0..=inlined)
                .map(|_| Line { function: functions[random(6_000) as usize], line: random(900) as i64, column: 0 })
                .collect();
            builder.location(Location { mapping, address: 0x40_1000 + 16 * number, ..Location::default() }, &lines)
        })
        .collect();
    let workers: Vec<_> = (0..20).map(|n| builder.attributes(&[("worker", (&format!("worker-{n}")).into())])).collect();
    let spans: Vec<Option<LinkId>> = (1..=1_000u64).map(|n| builder.link([n as u8 | 1; 16], n.to_be_bytes())).collect();
    let samples: Vec<_> = (0..100_000)
        .map(|_| {
            let depth = 20 + random(40) as usize;
            let stack: Vec<_> = (0..depth).map(|_| locations[random(30_000) as usize]).collect();
            let attributes = if labels { workers[random(20) as usize] } else { None };
            let link = if labels { spans[random(1_000) as usize] } else { None };
            (builder.stack(&stack), attributes, link, 1 + random(30) as i64)
        })
        .collect();
    let period_type = builder.value_type("cpu", "nanoseconds");
    for (kind, unit, factor) in [("samples", "count", 1), ("cpu", "nanoseconds", 10_000_000)] {
        let sample_type = builder.value_type(kind, unit);
        builder.profile(Profile { sample_type, period_type, period: 10_000_000, ..Profile::default() });
        for &(stack, attributes, link, value) in &samples {
            builder.sample(stack, attributes, link, &[], &[value * factor]);
        }
    }
    let batch = builder.finish().unwrap();
    let [group] = &groups(&batch)[..] else { panic!("one profile") };
    encode(&batch, group).bytes.into()
}

#[divan::bench(args = [false, true])]
fn read(bencher: Bencher<'_, '_>, labels: bool) {
    let profile = profile(labels);
    bencher.counter(BytesCount::new(profile.len())).bench_local(|| decode(profile.clone(), &Limits::default()));
}

#[divan::bench(args = [false, true])]
fn write(bencher: Bencher<'_, '_>, labels: bool) {
    let profile = profile(labels);
    let batch = decode(profile.clone(), &Limits::default()).unwrap().profiles;
    bencher.counter(BytesCount::new(profile.len())).bench_local(|| encode(&batch, &groups(&batch)[0]).bytes.len());
}

/// Converts pprof to OTLP, as a receiver and an exporter do together.
#[divan::bench(args = [false, true])]
fn to_otlp(bencher: Bencher<'_, '_>, labels: bool) {
    let profile = profile(labels);
    bencher.counter(BytesCount::new(profile.len())).bench_local(|| {
        let batch = decode(profile.clone(), &Limits::default()).unwrap().profiles;
        profbridge_wire::otlp::encode(&batch, &EncodeOptions::default()).len()
    });
}
