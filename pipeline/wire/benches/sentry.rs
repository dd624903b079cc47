//! Measures the conversion of chunks, as SDKs send them, to encoded OTLP and back. The unit is observations per second.
//!
//! `cargo bench -p profbridge-wire --bench sentry`

#![allow(clippy::unwrap_used)]

use bytes::Bytes;
use divan::Bencher;
use divan::counter::ItemsCount;
use profbridge_model::Profiles;
use profbridge_testkit::naive;
use profbridge_testkit::workload::{self, Shape};
use profbridge_wire::otlp::{self, EncodeOptions, Limits};
use profbridge_wire::sentry::chunk::{Collected, Converter, Settings};
use profbridge_wire::sentry::chunk_reader;

const SHAPES: [Shape; 3] = [Shape::Avg, Shape::RubyDeep, Shape::Large];

fn main() {
    divan::main();
}

/// The JSON of a request's chunks, and the number of observations in them.
fn chunks(shape: Shape) -> (Vec<Vec<u8>>, ItemsCount) {
    let chunks = naive::convert(&workload::request(shape), &naive::NaiveOptions::default());
    let count = ItemsCount::new(chunks.iter().map(|chunk| chunk.profile.samples.len()).sum::<usize>());
    (chunks.iter().map(|chunk| naive::json(chunk).unwrap()).collect(), count)
}

fn encoded(batch: &Profiles) -> Bytes {
    otlp::encode(batch, &EncodeOptions::default()).into()
}

fn decoded(request: &Bytes) -> Profiles {
    otlp::decode(request.clone(), &Limits::default()).unwrap().profiles
}

#[divan::bench(args = SHAPES)]
fn read(bencher: Bencher<'_, '_>, shape: Shape) {
    let (chunks, count) = chunks(shape);
    bencher
        .counter(count)
        .bench_local(|| chunks.iter().map(|json| chunk_reader::read(json).unwrap().observations()).sum::<u64>());
}

#[divan::bench(args = SHAPES)]
fn there(bencher: Bencher<'_, '_>, shape: Shape) {
    let (chunks, count) = chunks(shape);
    bencher
        .counter(count)
        .bench_local(|| chunks.iter().map(|json| encoded(&chunk_reader::read(json).unwrap()).len()).sum::<usize>());
}

#[divan::bench(args = SHAPES)]
fn back(bencher: Bencher<'_, '_>, shape: Shape) {
    let (chunks, count) = chunks(shape);
    let requests: Vec<Bytes> = chunks.iter().map(|json| encoded(&chunk_reader::read(json).unwrap())).collect();
    let mut converter = Converter::new(Settings::default());
    bencher.counter(count).bench_local(|| {
        let mut collected = Collected::default();
        requests.iter().for_each(|request| assert_eq!(converter.convert(&decoded(request), &mut collected).chunks, 1));
        collected
    });
}
