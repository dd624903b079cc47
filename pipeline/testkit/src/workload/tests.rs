//! Tests that the workloads have the figures in the table of the benches' page.

use prost::Message;

use super::*;
use crate::figures::Figures;

/// Guarantees: `tiny`, `avg` and `ruby-deep` are within 10 % of the figures on the page of the benches. (`large` takes
/// a minute in a debug build.)
#[test]
fn shapes_are_as_wanted() {
    for (shape, wire_bytes, observations, samples, stacks, stack_indices) in [
        (Shape::Tiny, 8_000, 0, 0, 0, 0),
        (Shape::Avg, 281_227, 10_000, 4_523, 1_000, 31_421),
        (Shape::RubyDeep, 1_366_417, 10_000, 5_591, 4_000, 584_398),
    ] {
        let have = Figures::of(&request(shape));
        for (have, want) in [
            (have.wire_bytes, wire_bytes),
            (have.observations, observations),
            (have.samples, samples),
            (have.stacks, stacks),
            (have.stack_indices, stack_indices),
        ] {
            assert!(want == 0 || have.abs_diff(want) * 10 <= want, "{shape}: {have}, wanted {want}");
        }
    }
}

/// Guarantees: a report only depends on shape, seed and number, not on earlier reports.
#[test]
fn reports_are_reproducible() {
    let mut forward = Host::new(Shape::Tiny, 7);
    let reports: Vec<_> = (0..5).map(|n| forward.report(n).encode_to_vec()).collect();
    let mut backward = Host::new(Shape::Tiny, 7);
    for n in (0..5).rev() {
        assert_eq!(backward.report(n).encode_to_vec(), reports[n]);
    }
    assert_ne!(Host::new(Shape::Tiny, 8).report(0).encode_to_vec(), reports[0]);
}
