//! Profiles of any content, and the ways in which one message can be written.

use profbridge_model::varint;
use proptest::collection::vec;
use proptest::prelude::*;

use super::proto::{Function, Label, Line, Location, Mapping, Profile, Sample, ValueType};

/// Texts, among them those that say which span a sample is of.
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

/// Ids of so many elements: from 1 on, or any others that differ.
fn ids(count: usize) -> impl Strategy<Value = Vec<u64>> {
    let any = proptest::collection::hash_set(1..u64::MAX, count).prop_map(|ids| ids.into_iter().collect());
    let small = Just((1..=count as u64).collect::<Vec<_>>());
    let shuffled = small.clone().prop_shuffle();
    prop_oneof![small, shuffled, any]
}

/// One of some ids, or 0 for none.
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
    fn function(id: u64)(names in [text(), text(), text()], start_line in number()) -> Function {
        let [name, system_name, filename] = names;
        Function { id, name, system_name, filename, start_line }
    }
}

prop_compose! {
    fn mapping(id: u64)(
        [memory_start, memory_limit, file_offset] in [unsigned(), unsigned(), unsigned()],
        [filename, build_id] in [text(), text()],
        has in any::<[bool; 4]>(),
    ) -> Mapping {
        let [has_functions, has_filenames, has_line_numbers, has_inline_frames] = has;
        Mapping {
            id, memory_start, memory_limit, file_offset, filename, build_id,
            has_functions, has_filenames, has_line_numbers, has_inline_frames,
        }
    }
}

fn location(id: u64, mappings: &[u64], functions: &[u64]) -> impl Strategy<Value = Location> + use<> {
    let line = (one_of(functions, true), number(), number());
    let line = line.prop_map(|(function_id, line, column)| Line { function_id, line, column });
    let parts = (one_of(mappings, true), unsigned(), vec(line, 0..4), any::<bool>());
    parts.prop_map(move |(mapping_id, address, line, is_folded)| Location { id, mapping_id, address, line, is_folded })
}

fn sample(types: usize, locations: &[u64]) -> impl Strategy<Value = Sample> + use<> {
    let depth = if locations.is_empty() { 0..1 } else { 0..6 };
    let parts = (vec(one_of(locations, false), depth), vec(number(), types), vec(label(), 0..4));
    parts.prop_map(|(location_id, value, label)| Sample { location_id, value, label })
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
pub(crate) fn profile() -> impl Strategy<Value = Profile> {
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
        Profile {
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

/// The fields of a message as they stand there, by their number.
fn fields(mut bytes: &[u8]) -> Vec<(u64, u64, &[u8])> {
    let mut fields = Vec::new();
    while !bytes.is_empty() {
        let start = bytes;
        let key = varint::take(&mut bytes).unwrap();
        let number = varint::take(&mut bytes).unwrap();
        if key & 7 == 2 {
            bytes = &bytes[number as usize..];
        }
        fields.push((key >> 3, key & 7, &start[..start.len() - bytes.len()]));
    }
    fields
}

/// The same message, with the fields of each number in their order and the numbers in another one, unknown fields
/// between them, and lists of integers in pieces where `pieces` says so.
pub(crate) fn scrambled(message: &[u8], order: &[u64], pieces: bool) -> Vec<u8> {
    let mut all = fields(message);
    let place = |number: u64| order.iter().position(|&other| other == number).unwrap_or(usize::MAX);
    all.sort_by_key(|&(number, ..)| place(number));
    let mut out = Vec::new();
    for (number, wire, bytes) in all {
        // Field 99, an integer.
        out.extend_from_slice(&[0x98, 0x06, 0x05]);
        if !pieces || number != 2 || wire != 2 {
            out.extend_from_slice(bytes);
            continue;
        }
        let mut sample = Vec::new();
        for (number, _, bytes) in fields(payload(bytes)) {
            if number > 2 {
                sample.extend_from_slice(bytes);
                continue;
            }
            let mut list = payload(bytes);
            let mut first = true;
            while !list.is_empty() {
                // The first one by itself, the second one as a list of one.
                let value = varint::take(&mut list).unwrap();
                let mut one = Vec::new();
                varint::put(&mut one, value);
                if !first {
                    sample.push((number << 3 | 2) as u8);
                    sample.push(one.len() as u8);
                } else {
                    sample.push((number << 3) as u8);
                }
                sample.extend_from_slice(&one);
                first = false;
            }
        }
        out.push(0x12);
        varint::put(&mut out, sample.len() as u64);
        out.extend_from_slice(&sample);
    }
    out
}

/// What stands behind a field's key and length.
fn payload(mut field: &[u8]) -> &[u8] {
    varint::take(&mut field).unwrap();
    varint::take(&mut field).unwrap();
    field
}
