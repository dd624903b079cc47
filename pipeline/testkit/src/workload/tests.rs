//! Tests that the workloads have the figures of the table.

use std::collections::HashSet;

use prost::Message;

use super::*;
use crate::{
    T0,
    figures::{Figures, samples},
    naive,
};

fn figures(figures: Figures) -> [usize; 11] {
    [
        figures.wire_bytes,
        figures.observations,
        figures.samples,
        figures.stacks,
        figures.stack_indices,
        figures.locations,
        figures.functions,
        figures.strings,
        figures.links,
        figures.resources,
        figures.linked,
    ]
}

/// The figures required by the table of workloads, each to be met within 10 %. Nothing is required of `adversarial`,
/// and only the size of `tiny` (other figures are zero).
fn wanted(shape: Shape) -> Option<Figures> {
    let figures = |wire_bytes, observations, samples, stacks, stack_indices| Figures {
        wire_bytes,
        observations,
        samples,
        stacks,
        stack_indices,
        ..Figures::default()
    };
    match shape {
        Shape::Tiny => Some(Figures { wire_bytes: 8_000, resources: 1, ..Figures::default() }),
        Shape::Avg => Some(Figures {
            locations: 1_500,
            functions: 1_200,
            strings: 1_499,
            links: 102,
            resources: 1,
            linked: 500,
            ..figures(281_227, 10_000, 4_523, 1_000, 31_421)
        }),
        Shape::RubyDeep => Some(Figures {
            locations: 6_000,
            functions: 4_000,
            strings: 4_949,
            links: 98,
            resources: 1,
            linked: 500,
            ..figures(1_366_417, 10_000, 5_591, 4_000, 584_398)
        }),
        Shape::Large => Some(Figures {
            locations: 200_000,
            functions: 80_000,
            strings: 92_249,
            links: 12_169,
            resources: 20,
            linked: 60_000,
            ..figures(41_942_552, 1_200_000, 521_624, 120_000, 5_081_220)
        }),
        Shape::Adversarial => None,
    }
}

fn assert_as_wanted(shape: Shape) {
    let have = figures(Figures::of(&request(shape)));
    let want = figures(wanted(shape).unwrap());
    for (position, (have, want)) in have.into_iter().zip(want).enumerate() {
        let near = want == 0 || (have as f64 / want as f64 - 1.0).abs() <= 0.1;
        assert!(near, "{shape}: figure {position} is {have}, wanted {want}");
    }
}

/// Guarantees: `tiny`, `avg` and `ruby-deep` are within 10 % of all required figures. (`large` takes a minute in a
/// debug build.)
#[test]
fn shapes_are_as_wanted() {
    for shape in [Shape::Tiny, Shape::Avg, Shape::RubyDeep] {
        assert_as_wanted(shape);
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

/// Guarantees: reports are consecutive in time, and every observation lies in its report's range.
#[test]
fn reports_are_successive() {
    let mut host = Host::new(Shape::Avg, SEED).starting_at(T0 + 1);
    for n in 0..2 {
        let report = host.report(n);
        let begin = T0 + 1 + n as u64 * host.window();
        let inside = begin..begin + host.window();
        assert!(samples(&report).flat_map(|sample| &sample.timestamps_unix_nano).all(|time| inside.contains(time)));
    }
}

/// Guarantees: successive reports of a host share nine tenths of their function names, but not all.
#[test]
fn reports_share_their_dictionary() {
    let mut host = Host::new(Shape::Avg, SEED);
    let strings = |request: ExportProfilesServiceRequest| -> HashSet<String> {
        request.dictionary.unwrap().string_table.into_iter().collect()
    };
    let (first, last) = (strings(host.report(0)), strings(host.report(11)));
    let shared = first.intersection(&last).count() as f64 / first.len() as f64;
    assert!((0.85..1.0).contains(&shared), "{shared}");
}

/// Guarantees: all indices of every shape are in range and every table starts with its zero element.
#[test]
fn indices_are_valid() {
    for shape in [Shape::Tiny, Shape::Avg, Shape::Adversarial] {
        let request = request(shape);
        let dictionary = request.dictionary.as_ref().unwrap();
        let below = |index: i32, len: usize| usize::try_from(index).unwrap() < len;
        assert_eq!(dictionary.string_table[0], "");
        assert!(dictionary.stack_table[0].location_indices.is_empty());
        assert_eq!(dictionary.location_table[0].encoded_len(), 0);
        for stack in &dictionary.stack_table {
            assert!(
                stack.location_indices.iter().all(|&index| index > 0 && below(index, dictionary.location_table.len()))
            );
        }
        for location in &dictionary.location_table {
            assert!(below(location.mapping_index, dictionary.mapping_table.len()));
            assert!(location.lines.iter().all(|line| below(line.function_index, dictionary.function_table.len())));
        }
        for sample in samples(&request) {
            assert!(below(sample.stack_index, dictionary.stack_table.len()));
            assert!(below(sample.link_index, dictionary.link_table.len()));
            assert!(sample.attribute_indices.iter().all(|&index| below(index, dictionary.attribute_table.len())));
        }
    }
}

/// Guarantees: no two observations of the adversarial shape share a stack.
#[test]
fn adversarial_stacks_are_unique() {
    let request = request(Shape::Adversarial);
    let figures = Figures::of(&request);
    assert_eq!(figures.stacks - 1, figures.observations);
}

/// Guarantees: the time that Sentry assigns to `avg` equals that of its observations, within 2 %.
#[test]
fn bursts_own_their_time() {
    let mut host = Host::new(Shape::Avg, SEED);
    let request = host.report(0);
    let measured = Figures::of(&request).observations as f64 * host.period() as f64 / 1e3;
    let chunks = naive::convert(&request, &naive::Options::default());
    let attributed: i64 = chunks.iter().flat_map(|chunk| naive::attributed_us(chunk).into_values()).sum();
    let ratio = attributed as f64 / measured;
    assert!((0.98..=1.02).contains(&ratio), "{ratio}");
}
