//! Measures the cost of `chunk` per observation: cutting requests at once, and holding them in windows.

// A benchmark may panic on broken input.
#![allow(clippy::unwrap_used)]

use divan::Bencher;
use divan::counter::ItemsCount;
use profbridge_engine::component::{Now, Outbox, flush_all, process_all};
use profbridge_engine::config::Section;
use profbridge_identity::Rules;
use profbridge_model::Profiles;
use profbridge_processor_chunk::{ChunkProcessor, Config};
use profbridge_testkit::workload::{Host, Shape};
use profbridge_wire::otlp;
use prost::Message;

const SHAPES: [Shape; 3] = [Shape::Tiny, Shape::Avg, Shape::RubyDeep];
const SECOND: u64 = 1_000_000_000;

fn main() {
    divan::main();
}

/// Successive requests of one host.
fn requests(shape: Shape, count: usize) -> Vec<Profiles> {
    let mut host = Host::new(shape, 7);
    let request = |n| otlp::decode(host.report(n).encode_to_vec().into(), &otlp::Limits::default()).unwrap().profiles;
    (0..count).map(request).collect()
}

fn chunk(rules: &Rules) -> ChunkProcessor {
    ChunkProcessor::new(Config::default().check(&Section::defaults(), rules).unwrap())
}

/// The time at which the n-th request arrives.
fn now(n: u64) -> Now {
    let arrival = (n + 1) * 5 * SECOND;
    Now { monotonic_nano: arrival, unix_nano: profbridge_testkit::T0 + arrival }
}

#[divan::bench(args = SHAPES)]
fn at_once(bencher: Bencher<'_, '_>, shape: Shape) {
    let request = requests(shape, 1).remove(0);
    let mut chunk = chunk(&Rules { window: 0, ..Rules::default() });
    bencher.counter(ItemsCount::new(request.observations())).bench_local(|| {
        let mut out = Outbox::default();
        process_all(&mut chunk, request.clone().into(), now(0), &mut out);
        out
    });
}

#[divan::bench(args = SHAPES)]
fn a_minute_in_windows(bencher: Bencher<'_, '_>, shape: Shape) {
    let requests = requests(shape, 12);
    let observations: u64 = requests.iter().map(Profiles::observations).sum();
    bencher.counter(ItemsCount::new(observations)).bench_local(|| {
        let mut chunk = chunk(&Rules::default());
        let mut out = Outbox::default();
        for (n, request) in requests.iter().enumerate() {
            process_all(&mut chunk, request.clone().into(), now(n as u64), &mut out);
        }
        flush_all(&mut chunk, now(12), &mut out);
        out
    });
}
