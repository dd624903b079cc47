use proptest::prelude::*;

use super::*;
use crate::dictionary::{Dictionary, Value};

fn function(name: Option<StringId>) -> Function {
    Function { name, ..Function::default() }
}

/// Guarantees: a zero value is "not set"; a location is compared with its lines, and a stack with its missing frames.
#[test]
fn interns_by_value() {
    let mut arena = Arena::default();
    assert_eq!(arena.string("").unwrap(), None);
    assert_eq!(arena.put_function(Function::default()).unwrap(), None);
    let name = arena.string("libc.so.6").unwrap();
    let named = arena.put_function(function(name)).unwrap();
    let line = Line { function: named, line: 3, column: 0 };
    let mut location = |lines_len, lines: &[Line]| {
        arena.put_location(Location { address: 7, lines_len, ..Location::default() }, lines).unwrap()
    };
    let (with, without) = (location(0, &[line]), location(0, &[]));
    assert_eq!((location(9, &[line]), with == without), (with, false));
    let stack = arena.stack([with, None, without]).unwrap();
    assert_eq!(arena.stack([with, None, without]).unwrap(), stack);
    assert_ne!(arena.stack([with, without]).unwrap(), stack);
    assert_eq!(arena.stack([]).unwrap(), None);
}

/// Guarantees: a NaN is equal to itself, nested values are compared by value, and sets have no order.
#[test]
fn attributes_are_compared_by_value() {
    let mut arena = Arena::default();
    let key = arena.string("k").unwrap();
    let attribute = |value| Attribute { key, value, unit: None };
    let nan = arena.put_attribute(attribute(Value::Double(f64::NAN))).unwrap();
    assert_eq!(arena.put_attribute(attribute(Value::Double(f64::NAN))).unwrap(), nan);
    assert_ne!(
        arena.put_attribute(attribute(Value::Double(0.0))).unwrap(),
        arena.put_attribute(attribute(Value::Double(-0.0))).unwrap()
    );
    let mut nested = |bytes: &[u8]| {
        let blob = Value::Bytes(arena.put_blob(bytes).unwrap());
        let list = Value::KeyValueList([attribute(Value::Array([blob].into()))].into());
        arena.put_attribute(attribute(list)).unwrap()
    };
    let first = nested(b"one");
    assert_eq!(nested(b"one"), first);
    assert_ne!(nested(b"two"), first);
    let set = arena.put_attribute_set(&[nan, first]).unwrap();
    assert_eq!(arena.put_attribute_set(&[first, None, nan]).unwrap(), set);
    assert_eq!(arena.put_attribute_set(&[None]).unwrap(), None);
}

/// Guarantees: exceeding a limit is an error that names it; existing elements are still found, and nothing else
/// changes.
#[test]
fn limits_are_errors() {
    let mut arena = Arena::new(ArenaLimits { strings: 2, ..ArenaLimits::ADDRESSABLE });
    let a = arena.string("a").unwrap();
    arena.string("b").unwrap();
    assert_eq!(arena.string("c"), Err(Full { what: "strings", limit: 2 }));
    assert_eq!(arena.string("a"), Ok(a));

    let mut arena = Arena::new(ArenaLimits::bytes(64 << 10));
    let full = (0..).find_map(|n: u32| arena.string(&format!("{n:064}")).err()).unwrap();
    assert_eq!(full, Full { what: "bytes", limit: 64 << 10 });
    assert!(arena.bytes() < 96 << 10, "{}", arena.bytes());
    assert_eq!(full.to_string(), "the tables are full: at most 65536 bytes");
}

/// Guarantees: columns reserve at most a quarter of their length.
#[test]
fn columns_grow_by_a_quarter() {
    let mut arena = Arena::default();
    for n in 0..20_000u64 {
        let name = arena.string(&format!("function_{n}")).unwrap();
        arena.put_function(function(name)).unwrap();
    }
    let (allocated, used) = (arena.store.allocated(), arena.store.used());
    assert!(allocated as f64 <= used as f64 * 1.26, "{allocated} {used}");
    assert!(arena.bytes() > arena.distinct_bytes());
}

/// A dictionary in which stack `i` has the frames `frames[i]`, every name twice in the string table.
fn dictionary(frames: &[Vec<u8>]) -> Dictionary {
    let mut store = TableStore::default();
    let frame = |store: &mut TableStore, name: u8| {
        let name = store.put_string(format!("name_{name}").as_bytes()).unwrap();
        let function = store.put_function(function(name)).unwrap();
        store.put_location(Location::default(), &[Line { function, line: 1, column: 0 }]).unwrap()
    };
    for names in frames {
        let mut packed = Vec::new();
        for &name in names {
            varint::put(&mut packed, u64::from(LocationId::wire(frame(&mut store, name))));
        }
        store.put_stack(&packed).unwrap();
    }
    Dictionary::new(store.into_tables()).unwrap()
}

fn names(dictionary: &Dictionary, stack: Option<StackId>) -> Vec<String> {
    let name = |id: Option<LocationId>| {
        let lines = dictionary.lines(dictionary.location(id.unwrap()));
        dictionary.string(dictionary.function(lines[0].function.unwrap()).name).to_owned()
    };
    dictionary.stack(stack).map(name).collect()
}

proptest! {
    /// Guarantees: elements copied from any number of dictionaries keep their content, and two stacks have the same id
    /// if and only if they are equal by value.
    /// rule: otlp-profiles#dictionary-compact
    #[test]
    fn absorbs_by_value(batches in prop::collection::vec(prop::collection::vec(prop::collection::vec(0u8..6, 1..6), 1..8), 1..5)) {
        let mut arena = Arena::default();
        let mut transfer = Transfer::default();
        let mut seen: Vec<(Option<StackId>, Vec<String>)> = Vec::new();
        for batch in &batches {
            let dictionary = dictionary(batch);
            let source = TableSource::from(&dictionary);
            transfer.begin();
            for index in 1..=batch.len() as u32 {
                let id = transfer.stack(&source, &mut arena, StackId::new(index)).unwrap();
                prop_assert_eq!(transfer.stack(&source, &mut arena, StackId::new(index)).unwrap(), id);
                seen.push((id, names(&dictionary, StackId::new(index))));
            }
        }
        for (a, a_names) in &seen {
            for (b, b_names) in &seen {
                prop_assert_eq!(a == b, a_names == b_names);
            }
        }
        let merged = Dictionary::new(arena.into_tables()).unwrap();
        for (id, expected) in &seen {
            prop_assert_eq!(&names(&merged, *id), expected);
        }
    }
}

/// Guarantees: merging twice as many batches takes twice the work (neither more lookups per batch nor longer searches),
/// for equal batches and for batches without common elements.
#[test]
fn merging_is_linear() {
    let work = |batches: usize, distinct: bool| {
        let mut arena = Arena::default();
        let mut transfer = Transfer::default();
        for batch in 0..batches {
            let mut store = TableStore::default();
            for n in 0..500u64 {
                let offset = if distinct { batch as u64 * 1_000 } else { 0 };
                let location = Location { address: offset + n + 1, ..Location::default() };
                let location = store.put_location(location, &[]).unwrap();
                let mut packed = Vec::new();
                varint::put(&mut packed, u64::from(LocationId::wire(location)));
                store.put_stack(&packed).unwrap();
            }
            transfer.begin();
            let source = store.source();
            for n in 1..=500 {
                transfer.stack(&source, &mut arena, StackId::new(n)).unwrap();
            }
        }
        arena.work()
    };
    for distinct in [false, true] {
        let (one, two) = (work(32, distinct), work(64, distinct));
        assert_eq!(two.lookups, 2 * one.lookups);
        // Each lookup compares its match and, rarely, a neighbour with the same seven hash bits.
        assert!(two.comparisons <= two.lookups + two.lookups / 4, "{two:?}");
    }
}
