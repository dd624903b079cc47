//! Tests of chunks from Sentry's SDKs.

use std::sync::Arc;

use profbridge_engine::component::{Outbox, Processor, flush_all};
use profbridge_model::whole_chunk::{self, CHUNK_SAMPLES, PROFILER_ID};
use profbridge_model::{Builder, Profile, ProfilerId, Profiles, Reason};
use profbridge_wire::sentry::chunk_reader;

use crate::support::*;

const CHUNK: &[u8] = include_bytes!("../../../../pipeline/wire/testdata/sentry/python-2.75-profile_chunk.envelope");

fn captured() -> Profiles {
    let payload = CHUNK.split(|&byte| byte == b'\n').nth(2).unwrap();
    let mut profiles = chunk_reader::read(payload).unwrap();
    // As if received over OTLP.
    profiles.window = None;
    profiles
}

fn named(batch: &Profiles) -> Option<ProfilerId> {
    whole_chunk::profiler_id(batch.dictionary(), &batch.resources()[0].resource.attributes)
}

/// A batch of this many chunks, each with two samples, and this many other profiles of a process.
fn mixed(chunks: u64, others: u64) -> Profiles {
    let mut builder = Builder::new();
    builder.resource(&[(PROFILER_ID, "00112233445546778899aabbccddeeff".into())]);
    builder.scope("sdk", "");
    let whole = builder.attributes(&[(CHUNK_SAMPLES, 2.into())]);
    let frame = builder.frame("work", "main.rs", 1);
    let stack = builder.stack(&[frame]);
    for at in 0..chunks {
        builder.profile(Profile { attributes: whole, ..Profile::default() });
        builder.sample(stack, None, None, &[T + at * 70 * S, T + at * 70 * S + 65 * S], &[]);
    }
    builder.resource(&process(1));
    for at in 0..others {
        builder.on_cpu(20);
        builder.sample(stack, None, None, &[T + at], &[]);
    }
    builder.finish().unwrap()
}

/// Guarantees: an SDK's chunk passes unchanged, with its profiler and its own time as its window, whatever the window
/// settings; no part of it is held.
/// rule: round-trip#whole
#[test]
fn a_chunk_is_not_touched() {
    for identity in ["window: 60s", "window: 1s", "window: 0s"] {
        let batch = captured();
        let mut chunk = chunk(identity, "");
        let mut out = process_one(&mut chunk, batch.clone(), at(0));
        assert_eq!(chunk.held().quantities.total(), 0);
        flush_all(&mut chunk, at(0), &mut out);
        let [sent] = &batches(&out)[..] else { panic!("one batch") };
        assert!(Arc::ptr_eq(sent.dictionary(), batch.dictionary()));
        assert_eq!(seen(sent), seen(&batch));
        let window = sent.window.as_ref().unwrap();
        assert_eq!(Some(window.profiler_id), named(&batch));
        let times = times(&batch);
        assert_eq!(window.start_unix_nano, *times.iter().min().unwrap());
        assert_eq!(window.end_unix_nano, *times.iter().max().unwrap());
    }
}

/// Guarantees: each chunk of a request becomes a separate batch, one per call, even if longer than a window; the other
/// profiles are processed as usual afterwards.
/// rule: round-trip#whole
#[test]
fn chunks_among_others() {
    for (chunks, others) in [(1, 1), (3, 2), (40, 1), (40, 0)] {
        let mut chunk = chunk("window: 60s", "");
        let (mut sent, mut held) = (Vec::new(), Vec::new());
        let mut out = Outbox::default();
        chunk.process(mixed(chunks, others).into(), at(0), &mut out);
        loop {
            assert!(out.telemetry.len() <= 1 && out.losses.is_none());
            sent.extend(batches(&out));
            held.push(chunk.held().quantities.total());
            let left: u64 = sent.iter().map(Profiles::observations).sum::<u64>() + held[held.len() - 1];
            assert_eq!(left, 2 * chunks + others);
            if !chunk.is_absorbing() {
                break;
            }
            out = Outbox::default();
            chunk.advance(at(0), &mut out);
        }
        assert_eq!(sent.len() as u64, chunks);
        assert!(sent.iter().all(|batch| batch.observations() == 2 && batch.profiles().count() == 1));
        let windows = sent.iter().map(|batch| batch.window.as_ref().unwrap());
        assert!(windows.clone().all(|window| window.end_unix_nano - window.start_unix_nano == 65 * S));
        assert!(windows.clone().all(|window| window.profiler_id.to_string() == "00112233445546778899aabbccddeeff"));
        let rest: u64 = flush(&mut chunk).iter().map(Profiles::observations).sum();
        assert_eq!(rest, others);
    }
}

/// Guarantees: an incomplete chunk is treated like any other profile: cut by windows, but still with its profiler id.
/// rule: round-trip#profiler
#[test]
fn a_part_of_a_chunk() {
    let batch = captured();
    let mut transfer = profbridge_model::arena::Transfer::default();
    let part = profbridge_model::compact::part(&batch, 0..100, &mut transfer).unwrap();
    let mut chunk = chunk("window: 1s", "");
    assert!(batches(&process_one(&mut chunk, part, at(0))).is_empty());
    let sent = flush(&mut chunk);
    // A sample that crosses the window's end continues in the next window.
    assert!(sent.len() > 1 && sent.iter().map(Profiles::observations).sum::<u64>() >= 100);
    let whole = batches(&process_one(&mut chunk, batch, at(0)));
    let id = |batch: &Profiles| batch.window.as_ref().unwrap().profiler_id;
    assert!(sent.iter().chain(&whole).all(|sent| Some(id(sent)) == named(sent)));
}

/// Attack: tens of thousands of chunks that share one name of a megabyte.
/// Guarantees: the multiplied output is bounded, and dropped data is counted.
#[test]
fn attack_many_chunks_of_one_dictionary() {
    let mut builder = Builder::new();
    let name = "x".repeat(1 << 20);
    builder.resource(&[(PROFILER_ID, "00112233445546778899aabbccddeeff".into()), ("k", (&name).into())]);
    let whole = builder.attributes(&[(CHUNK_SAMPLES, 1.into())]);
    for at in 0..20_000 {
        builder.profile(Profile { attributes: whole, ..Profile::default() });
        builder.sample(None, None, None, &[T + at], &[]);
    }
    let out = process_one(&mut chunk("window: 60s", ""), builder.finish().unwrap(), at(0));
    let dropped = out.losses.get(Reason::LimitExceeded).observations;
    let sent = batches(&out);
    assert_eq!(sent.len() as u64 + dropped, 20_000);
    assert!((10..500).contains(&sent.len()), "{}", sent.len());
}
