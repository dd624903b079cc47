//! The control's parts on each shape: decode, convert, serialize, compress, and all of them. Divide by the observations
//! that the `shapes` command prints.

use divan::{Bencher, counter::ItemsCount};
use profbridge_bench::{
    figures::Figures,
    naive::{self, Options},
    workload::{self, Shape},
};
use prost::Message;

const SHAPES: [Shape; 5] = Shape::ALL;

fn main() {
    divan::main();
}

fn observations(shape: Shape) -> ItemsCount {
    ItemsCount::new(Figures::of(&workload::request(shape)).observations)
}

#[divan::bench(args = SHAPES)]
fn decode(bencher: Bencher<'_, '_>, shape: Shape) {
    let bytes = workload::request(shape).encode_to_vec();
    bencher.counter(observations(shape)).bench_local(|| naive::decode(&bytes));
}

#[divan::bench(args = SHAPES)]
fn convert(bencher: Bencher<'_, '_>, shape: Shape) {
    let request = workload::request(shape);
    bencher.counter(observations(shape)).bench_local(|| naive::convert(&request, &Options::default()));
}

#[divan::bench(args = SHAPES)]
fn serialize(bencher: Bencher<'_, '_>, shape: Shape) {
    let chunks = naive::convert(&workload::request(shape), &Options::default());
    bencher.counter(observations(shape)).bench_local(|| chunks.iter().map(naive::json).collect::<Vec<_>>());
}

#[divan::bench(args = SHAPES)]
fn gzip(bencher: Bencher<'_, '_>, shape: Shape) {
    let chunks = naive::convert(&workload::request(shape), &Options::default());
    let payloads: Vec<_> = chunks.iter().filter_map(|chunk| naive::json(chunk).ok()).collect();
    bencher
        .counter(observations(shape))
        .bench_local(|| payloads.iter().map(|payload| naive::gzip(payload)).collect::<Vec<_>>());
}

#[divan::bench(args = SHAPES)]
fn whole(bencher: Bencher<'_, '_>, shape: Shape) {
    let bytes = workload::request(shape).encode_to_vec();
    bencher.counter(observations(shape)).bench_local(|| naive::run(&bytes));
}
