use fastrand::Rng;
use profbridge_engine::component::{Processor, process_all};
use profbridge_model::Telemetry;
use profbridge_testkit as testing;
use proptest::prelude::*;

use crate::support::*;

const SETTINGS: [&str; 5] = [
    "",
    "wait: 0s\norphan_wait: 0s",
    "wait: 1s\norphan_wait: 30s\nmax_spans: 3",
    "wait: 5s\nmax_bytes: 4KiB",
    "wait: 10s\norphan_wait: 10s\nmax_bytes: 16KiB\nmax_spans: 1",
];

/// Arbitrary spans with few distinct ids, so that they are related, resent, or share ids.
fn any_spans(random: &mut Rng) -> Vec<Given> {
    let one = |random: &mut Rng| {
        let parent = random.bool().then(|| random.u64(1..20));
        let mut given = span(random.u64(1..20), parent).trace(random.u64(1..4)).at(random.u64(0..3));
        given.resource = ["a", "b", ""][random.usize(0..3)].into();
        given.scope = ["s", ""][random.usize(0..2)].to_owned();
        given.is_server = random.u8(0..5) == 0;
        given.is_streamed = random.u8(0..8) == 0;
        // The content covers all fields, so spans that differ in any field have different content.
        let long = "x".repeat(random.usize(0..3) * random.usize(0..200));
        let Given { parent, is_server, is_streamed, start, .. } = &given;
        given.text = format!("{parent:?} {is_server} {is_streamed} {start} {long}");
        given
    };
    (0..random.usize(0..40)).map(|_| one(random)).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// Guarantees: every call accounts for every span, whatever the stream, settings and times, and sends at most one
    /// batch. After a flush, nothing is due or buffered.
    #[test]
    fn conserves(seed in any::<u64>(), settings in 0..SETTINGS.len()) {
        let mut processor = processor(SETTINGS[settings]);
        testing::check_processor(&mut processor, seed, |random, now| match random.u8(0..10) {
            0 => testing::telemetry(random, 20, now),
            _ => Telemetry::Spans(request(&any_spans(random))),
        });
        // Only the memory of sent spans remains.
        prop_assert!(processor.held().bytes < 128 << 10, "{:?}", processor.held());
    }

    /// Guarantees: each span is sent with its resource, scope and content unchanged, except for resends. No transaction
    /// exceeds the span limit. Streamed spans are in no transaction, and are sent in the call that received them.
    #[test]
    fn keeps_every_span(seed in any::<u64>(), settings in 0..SETTINGS.len()) {
        let mut random = Rng::with_seed(seed);
        let mut processor = processor(SETTINGS[settings]);
        let mut out = Default::default();
        let mut expected = std::collections::BTreeSet::new();
        let mut passes = Vec::new();
        let mut now = 0;
        for _ in 0..random.usize(1..12) {
            now += random.u64(0..20 * S);
            let given = any_spans(&mut random);
            expected.extend(given.iter().filter(|given| !given.is_streamed).cloned());
            passes.extend(given.iter().filter(|given| given.is_streamed).cloned());
            process_all(&mut processor, request(&given).into(), at(now), &mut out);
            prop_assert_eq!(&streamed(&out), &passes, "at once, and in order");
            match random.u8(0..6) {
                0 => while processor.on_memory_pressure(at(now), &mut out) {},
                1 => processor.advance(at(now), &mut out),
                _ => {}
            }
        }
        let rest = flush(&mut processor, at(now));
        let found = [transactions(&out), transactions(&rest)].concat();
        let most = if SETTINGS[settings].contains("max_spans: 1") { 2 } else { 10_000 };
        prop_assert!(found.iter().all(|one| one.spans.len() <= most));
        let found: std::collections::BTreeSet<_> = found.into_iter().flat_map(|one| one.spans).collect();
        prop_assert_eq!(found, expected);
        prop_assert!(streamed(&rest).is_empty());
    }
}
