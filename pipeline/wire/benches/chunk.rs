//! Measures the converter on each shape: alone, with its compressor, and with the decoder; and the control's parts for
//! comparison. The unit is observations per second.
//!
//! `cargo bench -p profbridge-wire --bench chunk`

#![allow(clippy::unwrap_used)]

use std::io::{self, Write};

use bytes::Bytes;
use divan::Bencher;
use divan::counter::ItemsCount;
use profbridge_model::{IdentityStrength, ProcessWindow, ProfilerId, Profiles};
use profbridge_testkit::naive::{self, NaiveOptions};
use profbridge_testkit::workload::{self, Shape};
use profbridge_wire::otlp::{self, Limits};
use profbridge_wire::sentry::chunk::{ChunkHead, ChunkSink, ChunkSummary, Converter, Settings};
use prost::Message;

const SHAPES: [Shape; 5] = Shape::ALL;

fn main() {
    divan::main();
}

/// An encoded request, and the number of its observations.
fn encoded(shape: Shape) -> (Bytes, ItemsCount) {
    let bytes = Bytes::from(workload::request(shape).encode_to_vec());
    let count = ItemsCount::new(decoded(&bytes).observations());
    (bytes, count)
}

fn decoded(bytes: &Bytes) -> Profiles {
    otlp::decode(bytes.clone(), &Limits::default()).unwrap().profiles
}

/// The windows of a request. Each resource is a process.
fn windows(batch: &Profiles) -> Vec<Profiles> {
    let window = |resource: usize| {
        let resources = batch.resources()[resource..=resource].to_vec();
        let mut window = batch.with_resources(resources).unwrap();
        let range = window.profiles().map(|profile| (profile.time_unix_nano, profile.duration_nano));
        let (start, end) = range.fold((u64::MAX, 0), |(start, end), (at, long)| (start.min(at), end.max(at + long)));
        window.window = Some(ProcessWindow {
            profiler_id: ProfilerId::from_hash(resource as u128),
            strength: IdentityStrength::Strong,
            start_unix_nano: start,
            end_unix_nano: end,
        });
        window
    };
    (0..batch.resources().len()).map(window).collect()
}

/// Counts the bytes of chunks.
#[derive(Default)]
struct Null(u64);

impl ChunkSink for Null {
    fn begin(&mut self, _: &ChunkHead<'_>) -> io::Result<()> {
        Ok(())
    }

    fn write(&mut self, json: &[u8]) -> io::Result<()> {
        self.0 += json.len() as u64;
        Ok(())
    }

    fn finish(&mut self, _: &ChunkSummary) -> io::Result<()> {
        Ok(())
    }

    fn abandon(&mut self) {}
}

/// Compresses each chunk with zstd.
struct Zstd(Option<zstd::Encoder<'static, Vec<u8>>>);

impl ChunkSink for Zstd {
    fn begin(&mut self, _: &ChunkHead<'_>) -> io::Result<()> {
        self.0 = Some(zstd::Encoder::new(Vec::new(), 1)?);
        Ok(())
    }

    fn write(&mut self, json: &[u8]) -> io::Result<()> {
        self.0.as_mut().unwrap().write_all(json)
    }

    fn finish(&mut self, _: &ChunkSummary) -> io::Result<()> {
        divan::black_box(self.0.take().unwrap().finish()?);
        Ok(())
    }

    fn abandon(&mut self) {}
}

#[divan::bench(args = SHAPES)]
fn convert(bencher: Bencher<'_, '_>, shape: Shape) {
    let (bytes, count) = encoded(shape);
    let windows = windows(&decoded(&bytes));
    let mut converter = Converter::new(Settings::default());
    bencher.counter(count).bench_local(|| {
        let mut sink = Null::default();
        windows.iter().for_each(|window| assert_eq!(converter.convert(window, &mut sink).losses.total().total(), 0));
        sink.0
    });
}

#[divan::bench(args = SHAPES)]
fn convert_zstd(bencher: Bencher<'_, '_>, shape: Shape) {
    let (bytes, count) = encoded(shape);
    let windows = windows(&decoded(&bytes));
    let mut converter = Converter::new(Settings::default());
    bencher.counter(count).bench_local(|| {
        windows.iter().for_each(|window| drop(converter.convert(window, &mut Zstd(None))));
    });
}

#[divan::bench(args = SHAPES)]
fn decode_convert_zstd(bencher: Bencher<'_, '_>, shape: Shape) {
    let (bytes, count) = encoded(shape);
    let mut converter = Converter::new(Settings::default());
    bencher.counter(count).bench_local(|| {
        windows(&decoded(&bytes)).iter().for_each(|window| drop(converter.convert(window, &mut Zstd(None))));
    });
}

#[divan::bench(args = SHAPES)]
fn control_convert(bencher: Bencher<'_, '_>, shape: Shape) {
    let request = workload::request(shape);
    let (_, count) = encoded(shape);
    bencher.counter(count).bench_local(|| {
        let chunks = naive::convert(&request, &NaiveOptions::default());
        chunks.iter().map(|chunk| naive::json(chunk).unwrap()).collect::<Vec<_>>()
    });
}

#[divan::bench(args = SHAPES)]
fn control_whole(bencher: Bencher<'_, '_>, shape: Shape) {
    let (bytes, count) = encoded(shape);
    bencher.counter(count).bench_local(|| naive::run(&bytes));
}
