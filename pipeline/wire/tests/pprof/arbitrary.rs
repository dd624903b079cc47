//! Arbitrary profiles.

use proptest::collection::vec;
use proptest::prelude::*;

use super::proto::{Label, Line, PprofFunction, PprofLocation, PprofMapping, PprofProfile, PprofSample, ValueType};

/// Texts, including those of labels that name a sample's span.
const TEXTS: [&str; 18] = [
    "",
    "cpu",
    "nanoseconds",
    "samples",
    "count",
    "main.work",
    "/app/main.go",
    "trace_id",
    "span_id",
    "span id",
    "local root span id",
    "0102030405060708090a0b0c0d0e0f10",
    "0102030405060708090A0B0C0D0E0F10",
    "00000000000000ff",
    "00000000000000FF",
    "255",
    "bytes",
    "",
];

fn text() -> impl Strategy<Value = i64> {
    0..TEXTS.len() as i64
}

/// A number of any size.
fn number() -> impl Strategy<Value = i64> {
    (any::<i64>(), 0u32..64).prop_map(|(number, bits)| number >> bits)
}

fn unsigned() -> impl Strategy<Value = u64> {
    number().prop_map(|number| number as u64)
}

/// This many distinct ids: from 1 on, or arbitrary.
fn ids(count: usize) -> impl Strategy<Value = Vec<u64>> {
    let any = proptest::collection::hash_set(1..u64::MAX, count).prop_map(|ids| ids.into_iter().collect());
    let small = Just((1..=count as u64).collect::<Vec<_>>());
    let shuffled = small.clone().prop_shuffle();
    prop_oneof![small, shuffled, any]
}

/// One of these ids, or 0 for none.
fn one_of(ids: &[u64], none: bool) -> BoxedStrategy<u64> {
    match (ids, none) {
        ([], _) => Just(0).boxed(),
        (ids, true) => prop_oneof![Just(0), proptest::sample::select(ids.to_vec())].boxed(),
        (ids, false) => proptest::sample::select(ids.to_vec()).boxed(),
    }
}

prop_compose! {
    fn value_type()(r#type in text(), unit in text()) -> ValueType {
        ValueType { r#type, unit }
    }
}

prop_compose! {
    fn label()(
        key in prop_oneof![text(), 7i64..11],
        str in prop_oneof![Just(0), text(), 11i64..16],
        num in number(),
        num_unit in prop_oneof![Just(0), text()],
    ) -> Label {
        Label { key, str, num, num_unit }
    }
}

prop_compose! {
    fn function(id: u64)(names in [text(), text(), text()], start_line in number()) -> PprofFunction {
        let [name, system_name, filename] = names;
        PprofFunction { id, name, system_name, filename, start_line }
    }
}

prop_compose! {
    fn mapping(id: u64)(
        [memory_start, memory_limit, file_offset] in [unsigned(), unsigned(), unsigned()],
        [filename, build_id] in [text(), text()],
        has in any::<[bool; 4]>(),
    ) -> PprofMapping {
        let [has_functions, has_filenames, has_line_numbers, has_inline_frames] = has;
        PprofMapping {
            id, memory_start, memory_limit, file_offset, filename, build_id,
            has_functions, has_filenames, has_line_numbers, has_inline_frames,
        }
    }
}

fn location(id: u64, mappings: &[u64], functions: &[u64]) -> impl Strategy<Value = PprofLocation> + use<> {
    let line = (one_of(functions, true), number(), number());
    let line = line.prop_map(|(function_id, line, column)| Line { function_id, line, column });
    let parts = (one_of(mappings, true), unsigned(), vec(line, 0..4), any::<bool>());
    parts.prop_map(move |(mapping_id, address, line, is_folded)| PprofLocation {
        id,
        mapping_id,
        address,
        line,
        is_folded,
    })
}

fn sample(types: usize, locations: &[u64]) -> impl Strategy<Value = PprofSample> + use<> {
    let depth = if locations.is_empty() { 0..1 } else { 0..6 };
    let parts = (vec(one_of(locations, false), depth), vec(number(), types), vec(label(), 0..4));
    parts.prop_map(|(location_id, value, label)| PprofSample { location_id, value, label })
}

/// Elements with these ids, in the order of the ids.
fn all<T, S>(ids: &[u64], element: impl Fn(u64) -> S) -> BoxedStrategy<Vec<T>>
where
    T: std::fmt::Debug + 'static,
    S: Strategy<Value = T> + 'static,
{
    ids.iter().map(|&id| element(id)).collect::<Vec<_>>().boxed()
}

/// A valid profile.
pub(crate) fn profile() -> impl Strategy<Value = PprofProfile> {
    let tables = (0usize..4, 0usize..6, 0usize..6, 1usize..4);
    let ids = tables.prop_flat_map(|(m, f, l, types)| (ids(m), ids(f), ids(l), Just(types)));
    ids.prop_flat_map(|(m, f, l, types)| {
        let elements = (
            all(&m, mapping),
            all(&f, function),
            all(&l, |id| location(id, &m, &f)),
            vec(sample(types, &l), 0..8),
            vec(value_type(), types),
        );
        let numbers = [0..=i64::MAX / 2, 0..=i64::MAX / 2];
        let rest = ([text(), text(), text(), text()], numbers, number(), value_type(), vec(text(), 0..3));
        (elements, rest)
    })
    .prop_map(|((mapping, function, location, sample, sample_type), rest)| {
        let (texts, [time_nanos, duration_nanos], period, period_type, comment) = rest;
        let [drop_frames, keep_frames, default_sample_type, doc_url] = texts;
        PprofProfile {
            sample_type,
            sample,
            mapping,
            location,
            function,
            string_table: TEXTS.map(str::to_owned).to_vec(),
            drop_frames,
            keep_frames,
            time_nanos,
            duration_nanos,
            period_type: Some(period_type),
            period,
            comment,
            default_sample_type,
            doc_url,
        }
    })
}
