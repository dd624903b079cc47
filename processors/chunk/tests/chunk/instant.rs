use std::sync::Arc;

use profbridge_engine::component::{Outbox, Processor};
use profbridge_model::{Builder, Profiles};

use crate::support::*;

/// Guarantees: a request with one process and less than a minute passes unchanged: the same dictionary, samples and
/// bytes, with its process and window added.
#[test]
fn the_usual_request_is_not_touched() {
    let mut batch = one(&process(1), &[T + 59 * S, T]);
    batch.received = Some(bytes(&[1, 2, 3]));
    let out = batches(&process_one(&mut chunk("window: 0s", ""), batch.clone(), at(0)));
    let [sent] = &out[..] else { panic!("one batch") };
    assert!(Arc::ptr_eq(sent.dictionary(), batch.dictionary()));
    assert!(std::ptr::eq(sent.columns(), batch.columns()));
    assert_eq!(sent.received, batch.received);
    let window = sent.window.as_ref().unwrap();
    assert_eq!((window.start_unix_nano, window.end_unix_nano), (T, T + 60 * S));
}

fn bytes(bytes: &'static [u8]) -> bytes::Bytes {
    bytes::Bytes::from_static(bytes)
}

/// Guarantees: a few processes whose samples have no attributes to move share the dictionary of the request.
#[test]
fn a_few_processes_share_the_dictionary() {
    let mut builder = Builder::new();
    for pid in 1..=3 {
        builder.resource(&process(pid));
        builder.sample(None, None, None, &[T], &[]);
    }
    let batch = builder.finish().unwrap();
    let out = batches(&process_one(&mut chunk("window: 0s", ""), batch.clone(), at(0)));
    assert_eq!(out.len(), 3);
    for sent in &out {
        assert!(Arc::ptr_eq(sent.dictionary(), batch.dictionary()));
        assert_eq!((sent.observations(), sent.received.clone()), (1, None));
    }
}

/// Guarantees: a request of more than a minute is cut into minutes, starting at its first observation.
#[test]
fn long_requests_are_cut() {
    let batch = one(&process(1), &[T + 150 * S, T, T + 60 * S - 1, T + 60 * S]);
    let out = batches(&process_one(&mut chunk("window: 0s", ""), batch, at(0)));
    let cut: Vec<_> =
        out.iter().map(|batch: &Profiles| (batch.window.as_ref().unwrap().start_unix_nano, times(batch))).collect();
    let expected = [(T + 120 * S, vec![T + 150 * S]), (T, vec![T, T + 60 * S - 1]), (T + 60 * S, vec![T + 60 * S])];
    assert_eq!(cut, expected);
}

/// Guarantees: a request without observations gives neither output nor loss.
#[test]
fn nothing_comes_of_nothing() {
    for identity in ["window: 60s", "window: 0s"] {
        let mut builder = Builder::new();
        builder.resource(&process(1));
        builder.on_cpu(20);
        let mut chunk = chunk(identity, "");
        let out = process_one(&mut chunk, builder.finish().unwrap(), at(0));
        assert!(out.telemetry.is_empty() && out.losses.is_none());
        assert!(flush(&mut chunk).is_empty());
    }
}

/// Guarantees: of a request with many processes only some are examined at a time, so their state takes little memory;
/// all of them are sent, each once.
#[test]
fn many_processes_are_looked_at_in_parts() {
    const PROCESSES: u32 = 5000;
    let mut builder = Builder::new();
    for pid in 1..=PROCESSES {
        builder.resource(&process(pid.into()));
        builder.sample(None, None, None, &[T], &[]);
    }
    let batch = builder.finish().unwrap();
    let mut chunk = chunk("window: 0s", "");
    let mut outbox = Outbox::default();
    chunk.process(batch.into(), at(0), &mut outbox);
    let mut processes = std::collections::HashSet::new();
    let mut most = 0;
    loop {
        for sent in batches(&outbox) {
            assert!(processes.insert(sent.window.as_ref().unwrap().profiler_id));
        }
        most = most.max(chunk.held().bytes);
        let held = chunk.held().quantities.total();
        assert_eq!(processes.len() as u64 + held, u64::from(PROCESSES));
        if !chunk.is_absorbing() {
            break;
        }
        outbox = Outbox::default();
        chunk.advance(at(0), &mut outbox);
    }
    // Examined at once it would be 2 MB.
    assert!(most < 1 << 20, "{most} bytes");
}
