//! What the engine relies on: nothing is lost, what is held is counted, and memory is bounded.

use opentelemetry_proto::tonic::common::v1::any_value::Value::IntValue;
use profbridge_engine::component::{Outbox, Processor as _};
use profbridge_model::builder::Any;
use profbridge_model::{Quantities, Telemetry};

use crate::support::*;

fn of(pid: i64) -> [(&'static str, opentelemetry_proto::tonic::common::v1::any_value::Value); 2] {
    [("host.name", text("web")), ("process.pid", IntValue(pid))]
}

fn left(out: &Outbox) -> u64 {
    out.telemetry.iter().map(|telemetry| telemetry.quantities().spans).sum()
}

/// Guarantees: every span that came leaves once, by its time, by the end, or for want of memory; what is held in between
/// is counted, and at the end nothing is.
#[test]
fn spans_are_conserved() {
    let mut processor = link_spans("{}");
    for pid in 1..=20 {
        assert_eq!(
            left(&process(&mut processor, spans(&of(pid), vec![span(1, 0, MS, &[]), span(2, 0, MS, &[])]), at(S))),
            0
        );
    }
    assert_eq!(processor.held().quantities, Quantities::spans(40));
    assert!(processor.held().bytes > 20 * 100);
    let mut out = Outbox::default();
    assert!(processor.on_memory_pressure(at(S), &mut out));
    assert_eq!((out.telemetry.len(), left(&out), note(&out, "spans_not_waited_for")), (1, 2, 2));
    let mut out = Outbox::default();
    assert!(processor.flush(at(S), &mut out));
    assert_eq!(out.telemetry.len(), 1, "one batch for each call");
    assert_eq!(left(&flush(&mut processor, at(S))), 36);
    assert_eq!((processor.held().quantities, processor.due()), (Quantities::NONE, None));
}

/// Guarantees: above its bound the spans that came first go on, and above that of what is remembered the processes that
/// were seen first are forgotten.
#[test]
fn memory_is_bounded() {
    let mut processor = link_spans("{max_bytes: 20KiB, max_index_bytes: 20KiB}");
    let mut out = 0;
    for pid in 0..500 {
        let sent = process(&mut processor, spans(&of(pid), vec![span(1, 0, MS, &[])]), at(S));
        out += left(&sent);
        assert!(sent.telemetry.len() <= 1);
        assert!(processor.held().bytes <= 40 << 10, "{}", processor.held().bytes);
    }
    assert!(out > 300, "{out}");
    let mut forgotten = 0;
    for pid in 0..500 {
        let resource = [("host.name", Any::Str("web")), ("process.pid", Any::Int(pid))];
        let sent = process(&mut processor, profiles(&resource, &[(1, "main", &[0, 50 * MS])]), at(S + pid as u64));
        forgotten += note(&sent, "profiled_processes_forgotten_early");
        assert!(processor.held().bytes <= 41 << 10, "{}", processor.held().bytes);
    }
    assert!(forgotten > 300, "{forgotten}");
}

/// Guarantees: what has no spans passes at once, unchanged, profiles among it.
#[test]
fn the_rest_passes() {
    let mut processor = link_spans("{}");
    let resource = [("host.name", Any::Str("web")), ("process.pid", Any::Int(1))];
    let out = process(&mut processor, profiles(&resource, &[(1, "main", &[0])]), at(S));
    assert!(matches!(&out.telemetry[..], [Telemetry::Profiles(batch)] if batch.observations() == 1));
    let out = process(&mut processor, profbridge_model::Envelope::default(), at(S));
    assert!(matches!(&out.telemetry[..], [Telemetry::Envelope(_)]));
}
