//! Measures the cost of merging N requests, and its growth: first a table of t(2N)/t(N), which must stay at or below
//! 2.2 up to N = 64, then divan's own figures. Also measures the search for resends.

// A benchmark prints, and may panic if its input is broken.
#![allow(clippy::print_stdout, clippy::unwrap_used)]

use std::time::{Duration, Instant};

use divan::Bencher;
use divan::counter::ItemsCount;
use profbridge_engine::component::{Now, Outbox, flush_all, process_all};
use profbridge_engine::config::Section;
use profbridge_model::{Profiles, Telemetry};
use profbridge_processor_dedup::{Config, Dedup};
use profbridge_testkit::thread_time::thread_cpu;
use profbridge_testkit::workload::{Host, Shape};
use profbridge_wire::otlp;
use prost::Message;

const SHAPES: [Shape; 2] = [Shape::Avg, Shape::RubyDeep];
const MANY: [usize; 8] = [1, 2, 4, 8, 16, 32, 64, 128];
const NOW: Now = Now { monotonic_nano: 1, unix_nano: 1 };

/// Consecutive requests of one host.
fn requests(shape: Shape, count: usize) -> Vec<Profiles> {
    let mut host = Host::new(shape, 7);
    let request = |n| otlp::decode(host.report(n).encode_to_vec().into(), &otlp::Limits::default()).unwrap().profiles;
    (0..count).map(request).collect()
}

fn dedup(yaml: &str) -> Dedup {
    let section = Section::from_yaml(yaml).unwrap();
    Dedup::new(section.extract::<Config>().unwrap().check(&section).unwrap())
}

/// Merges requests and returns the batch.
fn merge(requests: &[Profiles]) -> Telemetry {
    let mut dedup = dedup("window: 60s\nresends: keep\nmax_observations: 100000000\nmax_bytes: 4GiB");
    let mut out = Outbox::default();
    for request in requests {
        process_all(&mut dedup, request.clone().into(), NOW, &mut out);
    }
    flush_all(&mut dedup, NOW, &mut out);
    out.telemetry.pop().unwrap()
}

/// CPU time of this thread. Falls back to elapsed time on systems other than Linux.
fn processor_time(start: Instant) -> Duration {
    thread_cpu().unwrap_or_else(|_| start.elapsed())
}

/// The best of several runs with about equal numbers of requests in total, since the kernel's clock has a resolution of
/// milliseconds.
fn best(requests: &[Profiles]) -> Duration {
    let times = 128u32.div_ceil(requests.len() as u32);
    let start = Instant::now();
    let run = |_| {
        let before = processor_time(start);
        for _ in 0..times {
            divan::black_box(merge(requests));
        }
        processor_time(start).saturating_sub(before) / times
    };
    (0..5).map(run).min().unwrap_or_default()
}

fn main() {
    for shape in SHAPES {
        let requests = requests(shape, 128);
        println!("{shape}: N, t(N), per observation, t(2N)/t(N)");
        let times: Vec<Duration> = MANY.iter().map(|&n| best(&requests[..n])).collect();
        for (at, (&n, time)) in MANY.iter().zip(&times).enumerate() {
            let observations: u64 = requests[..n].iter().map(Profiles::observations).sum();
            let ratio = times
                .get(at + 1)
                .map_or(String::new(), |next| format!("{:.2}", next.as_secs_f64() / time.as_secs_f64()));
            let each = time.as_nanos() as f64 / observations as f64;
            println!("  {n:>3}  {:>9.3} ms  {each:>6.1} ns  {ratio}", time.as_secs_f64() * 1e3);
        }
    }
    divan::main();
}

#[divan::bench(args = [Shape::Tiny, Shape::Avg, Shape::RubyDeep])]
fn look_for_resends(bencher: Bencher<'_, '_>, shape: Shape) {
    let request = requests(shape, 1).remove(0);
    bencher.counter(ItemsCount::new(request.observations())).with_inputs(|| dedup("")).bench_local_values(
        |mut dedup| {
            let mut out = Outbox::default();
            process_all(&mut dedup, request.clone().into(), NOW, &mut out);
            out
        },
    );
}

#[divan::bench(args = SHAPES)]
fn merge_two(bencher: Bencher<'_, '_>, shape: Shape) {
    let requests = requests(shape, 2);
    let observations: u64 = requests.iter().map(Profiles::observations).sum();
    bencher.counter(ItemsCount::new(observations)).bench_local(|| merge(&requests));
}
