//! Measures the conversion of encoded OTLP spans to Sentry's transactions, with the control for comparison. The unit is
//! spans per second.
//!
//! `cargo bench -p profbridge-wire --bench transactions`
//!
//! Before the measurements, the program prints the ratio of the two, as the median of several turns.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "tests and benchmarks report by panicking and printing")]

use std::time::Instant;

use bytes::Bytes;
use divan::Bencher;
use divan::counter::ItemsCount;
use profbridge_model::spans::Segment;
use profbridge_model::{Span, Spans};
use profbridge_testkit::naive::transaction::transactions;
use profbridge_testkit::workload::{SEED, traces};
use profbridge_wire::otlp::{self, Limits};
use profbridge_wire::sentry::transaction::{TransactionResource, TransactionWriter};
use prost::Message;

const TRACES: usize = 100;

fn main() {
    let request = request();
    let mut writer = TransactionWriter::default();
    let mut ratios: Vec<f64> = (0..201)
        .map(|_| {
            let start = Instant::now();
            let control = transactions(&request).unwrap().len();
            let middle = Instant::now();
            assert_eq!(ours(&mut writer, &request).0, control);
            (middle - start).as_secs_f64() / middle.elapsed().as_secs_f64()
        })
        .collect();
    ratios.sort_by(f64::total_cmp);
    println!("{:.1} times the control, decoding included", ratios[ratios.len() / 2]);
    divan::main();
}

fn request() -> Bytes {
    traces::request(TRACES, SEED).encode_to_vec().into()
}

/// The batch of a request, with its traces as segments.
fn grouped(request: &Bytes) -> Spans {
    let spans = otlp::traces::decode(request.clone(), &Limits::default()).unwrap().spans;
    let mut all: Vec<Span> = spans.spans().to_vec();
    all.sort_by_key(|span| span.trace_id);
    let mut number = 0;
    for position in 0..all.len() {
        number += u32::from(position > 0 && all[position].trace_id != all[position - 1].trace_id);
        all[position].segment = Some(Segment { number, is_root: all[position].parent_span_id.is_none() });
    }
    Spans::new(spans.form(), request.clone(), spans.resources().to_vec(), spans.scopes().to_vec(), all, true).unwrap()
}

/// The number of transactions, and the total length of their JSON.
fn written(writer: &mut TransactionWriter, spans: &Spans) -> (usize, usize) {
    let resource = TransactionResource::of(spans, &spans.resources()[0], "production");
    let lengths = spans.segments().map(|segment| writer.write(spans, segment, &resource).unwrap().json.len());
    lengths.fold((0, 0), |(count, bytes), length| (count + 1, bytes + length))
}

fn ours(writer: &mut TransactionWriter, request: &Bytes) -> (usize, usize) {
    written(writer, &grouped(request))
}

#[divan::bench]
fn whole(bencher: Bencher<'_, '_>) {
    let (request, mut writer) = (request(), TransactionWriter::default());
    bencher.counter(ItemsCount::new(TRACES * traces::SPANS)).bench_local(|| ours(&mut writer, &request));
}

#[divan::bench]
fn decode(bencher: Bencher<'_, '_>) {
    let request = request();
    let decode = || otlp::traces::decode(request.clone(), &Limits::default()).unwrap();
    bencher.counter(ItemsCount::new(TRACES * traces::SPANS)).bench_local(decode);
}

#[divan::bench]
fn write(bencher: Bencher<'_, '_>) {
    let (spans, mut writer) = (grouped(&request()), TransactionWriter::default());
    bencher.counter(ItemsCount::new(TRACES * traces::SPANS)).bench_local(|| written(&mut writer, &spans));
}

#[divan::bench]
fn control(bencher: Bencher<'_, '_>) {
    let request = request();
    bencher.counter(ItemsCount::new(TRACES * traces::SPANS)).bench_local(|| transactions(&request).unwrap());
}
