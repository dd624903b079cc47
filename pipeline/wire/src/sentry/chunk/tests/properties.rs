//! Properties that hold for every batch.

use proptest::prelude::*;

use super::support::{BatchDraft, Converted, MS, START};
use crate::sentry::chunk::{LoneSamples, Settings};

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Guarantees: for any batch, every observation is in a chunk or counted as lost with a reason, and every chunk
    /// follows Relay's rules (`BatchDraft::convert` checks both).
    /// rule: sample-format-v2#validate, profiles-sdk#frame-names, profiles-sdk#v2-reject-no-metadata
    #[test]
    fn conservation(batch in any_batch(), drop: bool, off_cpu: bool, target in 200_usize..20_000) {
        let lone_samples = if drop { LoneSamples::Drop } else { LoneSamples::Split };
        let settings = Settings { lone_samples, off_cpu, target_bytes: target, ..Settings::default() };
        let Converted { report, chunks, .. } = batch.build().convert_with(settings);
        prop_assert!(chunks.is_empty() || report.samples > 0);
    }
}

/// A row of a batch: thread, stack, offsets in milliseconds, values.
type BatchRow = (Option<i64>, usize, Vec<i64>, Vec<i64>);

/// The profiles (each with its type, its period, and its rows).
#[derive(Debug, Clone)]
struct BatchPlan(Vec<(usize, i64, Vec<BatchRow>)>, u64);

const TYPES: [(&str, &str); 6] = [
    ("samples", "count"),
    ("cpu", "nanoseconds"),
    ("wall", "milliseconds"),
    ("off_cpu", "nanoseconds"),
    ("inuse_space", "bytes"),
    ("wall", "count"),
];

const STACKS: [&[&str]; 5] = [&["a", "main"], &["b", "a", "main"], &["c"], &[], &["\"\n", "main"]];

fn any_batch() -> impl Strategy<Value = BatchPlan> {
    let times = proptest::collection::vec(-1_000_i64..70_000, 0..6);
    let values = proptest::collection::vec(prop_oneof![-5_i64..100, Just(i64::MAX), 0_i64..90_000_000_000], 1..7);
    let row = (proptest::option::of(0_i64..4), 0..STACKS.len(), times, values);
    let profile = (
        0..TYPES.len(),
        prop_oneof![Just(50_000_000), -1_i64..5, Just(i64::MAX)],
        proptest::collection::vec(row, 0..8),
    );
    (proptest::collection::vec(profile, 0..5), prop_oneof![Just(60_000), 0_u64..200_000])
        .prop_map(|(p, w)| BatchPlan(p, w))
}

impl BatchPlan {
    fn build(&self) -> BatchDraft {
        let mut batch = BatchDraft::new().window(self.1);
        for (kind, period, rows) in &self.0 {
            let (kind, unit) = TYPES[*kind];
            batch = batch.profile(kind, unit, 10_000).period("cpu", "nanoseconds", *period);
            for (thread, stack, times, values) in rows {
                let times: Vec<u64> = times.iter().map(|&at| START.saturating_add_signed(at * MS as i64)).collect();
                // There are as many values as times, or none; at least one value if there are no times.
                let values: Vec<i64> = match times.len() {
                    0 => values.clone(),
                    n if values.len() >= n => values[..n].to_vec(),
                    _ => Vec::new(),
                };
                batch = batch.nanos(*thread, STACKS[*stack], &times, &values);
            }
        }
        batch
    }
}
