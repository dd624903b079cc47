use std::sync::Arc;

use profbridge_model::{Builder, Profiles};

use crate::support::*;

/// Guarantees: a request with one process and less than a minute passes unchanged: the same dictionary, samples and
/// bytes, with its process and window added.
#[test]
fn the_usual_request_is_not_touched() {
    let mut batch = one(&process(1), &[T + 59 * S, T]);
    batch.received = Some(bytes::Bytes::from_static(&[1, 2, 3]));
    let out = batches(&process_one(&mut chunk("window: 0s", ""), batch.clone(), at(0)));
    let [sent] = &out[..] else { panic!("one batch") };
    assert!(Arc::ptr_eq(sent.dictionary(), batch.dictionary()));
    assert!(std::ptr::eq(sent.columns(), batch.columns()));
    assert_eq!(sent.received, batch.received);
    let window = sent.window.as_ref().unwrap();
    assert_eq!((window.start_unix_nano, window.end_unix_nano), (T, T + 60 * S));
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
    for identity in MODES {
        let mut builder = Builder::new();
        builder.resource(&process(1));
        builder.on_cpu(20);
        let out = run(identity, "", builder.finish().unwrap());
        assert!(out.telemetry.is_empty() && out.losses.is_none());
    }
}
