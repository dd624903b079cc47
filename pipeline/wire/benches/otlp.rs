//! Measures the OTLP codec on each shape, with prost for comparison. The unit is observations per second.
//!
//! `cargo bench -p profbridge-wire --bench otlp`
//!
//! Before the measurements, the program prints the memory that a batch takes in addition to its request.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "tests and benchmarks report by panicking and printing")]

use bytes::Bytes;
use divan::Bencher;
use divan::counter::ItemsCount;
use profbridge_model::Profiles;
use profbridge_model::content_hash::content_hashes;
use profbridge_testkit::ExportProfilesServiceRequest;
use profbridge_testkit::releases::Release;
use profbridge_testkit::workload::{self, Shape};
use profbridge_wire::otlp::{EncodeOptions, Limits, decode, encode, json, memory, split};
use prost::Message;

const SHAPES: [Shape; 5] = Shape::ALL;

fn main() {
    for shape in SHAPES {
        let (bytes, batch) = prepared(shape);
        let (wire, memory) = (bytes.len(), memory(&batch));
        let factor = memory as f64 / wire as f64;
        println!(
            "{shape:?}: {wire} bytes, the batch adds {memory} ({factor:.2}), {} observations",
            batch.observations()
        );
    }
    divan::main();
}

fn prepared(shape: Shape) -> (Bytes, Profiles) {
    let bytes = Bytes::from(workload::request(shape).encode_to_vec());
    let batch = decode(bytes.clone(), &Limits::default()).unwrap().profiles;
    (bytes, batch)
}

fn observations(batch: &Profiles) -> ItemsCount {
    ItemsCount::new(batch.observations())
}

#[divan::bench(args = SHAPES)]
fn decode_ours(bencher: Bencher<'_, '_>, shape: Shape) {
    let (bytes, batch) = prepared(shape);
    bencher.counter(observations(&batch)).bench_local(|| decode(bytes.clone(), &Limits::default()));
}

/// Decodes the same data in the layout of an earlier release.
fn decode_older(bencher: Bencher<'_, '_>, shape: Shape, release: Release) {
    let (_, batch) = prepared(shape);
    let bytes = Bytes::from(release.write(&workload::request(shape)));
    bencher.counter(observations(&batch)).bench_local(|| decode(bytes.clone(), &Limits::default()));
}

#[divan::bench(args = SHAPES)]
fn decode_ours_1_9(bencher: Bencher<'_, '_>, shape: Shape) {
    decode_older(bencher, shape, Release::V1_9);
}

#[divan::bench(args = SHAPES)]
fn decode_ours_1_8(bencher: Bencher<'_, '_>, shape: Shape) {
    decode_older(bencher, shape, Release::V1_8);
}

#[divan::bench(args = SHAPES)]
fn decode_ours_1_7(bencher: Bencher<'_, '_>, shape: Shape) {
    decode_older(bencher, shape, Release::V1_7);
}

#[divan::bench(args = SHAPES)]
fn decode_prost(bencher: Bencher<'_, '_>, shape: Shape) {
    let (bytes, batch) = prepared(shape);
    bencher.counter(observations(&batch)).bench_local(|| ExportProfilesServiceRequest::decode(bytes.clone()));
}

/// Converts a request to JSON.
fn as_json(bytes: &[u8]) -> Vec<u8> {
    let mut text = Vec::new();
    json::write(json::Message::ProfilesRequest, bytes, usize::MAX, &mut text).unwrap();
    text
}

/// Decodes JSON to a batch.
#[divan::bench(args = SHAPES)]
fn json_decode_ours(bencher: Bencher<'_, '_>, shape: Shape) {
    let (bytes, batch) = prepared(shape);
    let text = as_json(&bytes);
    let limits = Limits { max_request: usize::MAX, ..Limits::default() };
    bencher.counter(observations(&batch)).bench_local(|| json::decode(&text, &limits).unwrap());
}

/// Decodes JSON to a `Value`, which is only a part of the work of other JSON readers.
#[divan::bench(args = SHAPES)]
fn json_decode_serde_json(bencher: Bencher<'_, '_>, shape: Shape) {
    let (bytes, batch) = prepared(shape);
    let text = as_json(&bytes);
    bencher.counter(observations(&batch)).bench_local(|| serde_json::from_slice::<serde_json::Value>(&text).unwrap());
}

/// Converts a request to JSON.
#[divan::bench(args = SHAPES)]
fn json_encode_ours(bencher: Bencher<'_, '_>, shape: Shape) {
    let (bytes, batch) = prepared(shape);
    bencher.counter(observations(&batch)).bench_local(|| as_json(&bytes));
}

#[divan::bench(args = SHAPES)]
fn encode_ours(bencher: Bencher<'_, '_>, shape: Shape) {
    let (_, batch) = prepared(shape);
    bencher.counter(observations(&batch)).bench_local(|| encode(&batch, &EncodeOptions::default()));
}

#[divan::bench(args = SHAPES)]
fn encode_prost(bencher: Bencher<'_, '_>, shape: Shape) {
    let (bytes, batch) = prepared(shape);
    let request = ExportProfilesServiceRequest::decode(bytes).unwrap();
    bencher.counter(observations(&batch)).bench_local(|| request.encode_to_vec());
}

#[divan::bench(args = SHAPES)]
fn hash_of_content(bencher: Bencher<'_, '_>, shape: Shape) {
    let (_, batch) = prepared(shape);
    bencher.counter(observations(&batch)).bench_local(|| content_hashes(&batch));
}

/// Splits a batch into parts of a tenth of the request's size.
#[divan::bench(args = SHAPES)]
fn split_in_ten(bencher: Bencher<'_, '_>, shape: Shape) {
    let (bytes, batch) = prepared(shape);
    let parts = || split(&batch, bytes.len() / 10, &EncodeOptions::default()).count();
    bencher.counter(observations(&batch)).bench_local(parts);
}
