//! profbridge's stages on each shape, with the binary's own components: decode, cut by process, write chunks, write and
//! compress them, and all of it. The control's are in `naive.rs`. The codec beside prost's, and the converter by
//! itself, are measured in `pipeline/wire`. For ratios use `profbridge-bench parts`, which measures both in turns.

use bytes::Bytes;
use divan::{AllocProfiler, Bencher, counter::ItemsCount};
use profbridge_bench::{
    figures::Figures,
    harness::ours::{self, Ours, Prepared},
    workload::{self, Shape},
};
use profbridge_model::Telemetry;
use prost::Message;

/// Shows the most memory of each stage beside its time.
#[global_allocator]
static ALLOCATOR: AllocProfiler = AllocProfiler::system();

const SHAPES: [Shape; 5] = Shape::ALL;

fn main() {
    divan::main();
}

fn observations(shape: Shape) -> ItemsCount {
    ItemsCount::new(Figures::of(&workload::request(shape)).observations)
}

fn encoded(shape: Shape) -> Bytes {
    workload::request(shape).encode_to_vec().into()
}

/// profbridge's path with a codec that exists.
fn path(compression: &str) -> Option<Ours> {
    Ours::new(compression).ok()
}

fn windows(path: &mut Ours, shape: Shape) -> Vec<Telemetry> {
    path.decode(encoded(shape)).map(|batch| path.cut(batch, ours::now()).telemetry).unwrap_or_default()
}

#[divan::bench(args = SHAPES)]
fn decode(bencher: Bencher<'_, '_>, shape: Shape) {
    let (request, path) = (encoded(shape), path("zstd"));
    bencher.counter(observations(shape)).bench_local(|| path.as_ref().map(|path| path.decode(request.clone())));
}

#[divan::bench(args = SHAPES)]
fn cut(bencher: Bencher<'_, '_>, shape: Shape) {
    let Some(mut path) = path("zstd") else { return };
    let Ok(batch) = path.decode(encoded(shape)) else { return };
    bencher.counter(observations(shape)).bench_local(|| path.cut(batch.clone(), ours::now()));
}

#[divan::bench(args = SHAPES)]
fn write(bencher: Bencher<'_, '_>, shape: Shape) {
    prepare(bencher, shape, "none");
}

#[divan::bench(args = SHAPES)]
fn write_zstd(bencher: Bencher<'_, '_>, shape: Shape) {
    prepare(bencher, shape, "zstd");
}

#[divan::bench(args = SHAPES)]
fn write_gzip(bencher: Bencher<'_, '_>, shape: Shape) {
    prepare(bencher, shape, "gzip");
}

fn prepare(bencher: Bencher<'_, '_>, shape: Shape, compression: &str) {
    let Some(mut path) = path(compression) else { return };
    let windows = windows(&mut path, shape);
    bencher.counter(observations(shape)).bench_local(|| {
        let mut prepared = Prepared::default();
        for window in &windows {
            path.prepare(window, ours::now(), &mut prepared);
        }
        prepared
    });
}

#[divan::bench(args = SHAPES)]
fn whole(bencher: Bencher<'_, '_>, shape: Shape) {
    let request = encoded(shape);
    let Some(mut path) = path("zstd") else { return };
    bencher.counter(observations(shape)).bench_local(|| path.run(request.clone(), ours::now()));
}
