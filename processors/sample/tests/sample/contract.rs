use profbridge_model::{Envelope, Item, ItemView, Telemetry};
use profbridge_testkit::{check_processor, telemetry};
use proptest::prelude::*;

use crate::support::{T, batch, int, sample, span, text};

/// Spans of a few traces and processes, with and without their root spans.
fn spans(random: &mut fastrand::Rng) -> profbridge_model::Spans {
    let spans = (0..random.usize(0..30)).map(|_| {
        let mut one = span(random.u64(0..6), random.u64(1..50), random.u64(0..3));
        one.name = ["keep", "drop"][random.usize(0..2)].to_owned();
        one.start_time_unix_nano = T + random.u64(0..1000);
        if one.parent_span_id == one.span_id {
            one.parent_span_id = Vec::new();
        }
        one
    });
    let spans = spans.collect();
    let mut spans = batch(spans, vec![text("host.name", "host-1"), int("process.pid", random.i64(1..4))]);
    spans.peer = random.bool().then(|| "peer".into());
    spans
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Guarantees: nothing is lost, in whatever order data arrives, and each call sends at most one batch.
    #[test]
    fn conservation(seed: u64, lifecycle: bool, small: bool, rate in prop::option::of(0.0f64..=1.0)) {
        let mut yaml = format!("profile_lifecycle: {}\n", if lifecycle { "trace" } else { "manual" });
        if small {
            yaml += "max_traces: 3\nmax_bytes: 4KiB\n";
        }
        if let Some(rate) = rate {
            yaml += &format!("traces_sample_rate: {rate}\nprofile_session_sample_rate: {rate}\n");
            yaml += "traces_rules: [{name: drop, sampled: false}, {name: keep, sample_rate: 0.9}]\n";
        }
        check_processor(&mut sample(&yaml), seed, |random, now| -> Telemetry {
            match random.u8(0..8) {
                0..=3 => spans(random).into(),
                4 => {
                    let item = Item { header: "{\"type\":\"span\"}".into(), payload: bytes::Bytes::new().into() };
                    let items = vec![item; random.usize(1..3)];
                    Envelope { items, views: vec![ItemView::spans(0, spans(random))], ..Envelope::default() }.into()
                }
                _ => telemetry(random, 20, now),
            }
        });
    }
}
