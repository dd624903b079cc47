use std::collections::BTreeMap;

use bytes::Bytes;
use proptest::prelude::*;

use super::*;
use crate::dictionary::{Location, Mapping};
use crate::{Builder, ProcessWindow};

/// A batch with `count` locations without lines and one with a name. Each location is in a stack of its own.
fn batch(count: u64) -> Profiles {
    let mut builder = Builder::new();
    let filename = builder.string("app");
    let mapping = builder.mapping(Mapping { filename, memory_limit: 4096, ..Mapping::default() });
    let named = builder.frame("known", "known.c", 7);
    for address in 1..=count {
        let location = builder.location(Location { mapping, address, ..Location::default() }, &[]);
        let stack = builder.stack(&[location, named]);
        builder.sample(stack, None, None, &[address], &[]);
    }
    builder.finish().unwrap()
}

/// Function, system name, file, line and column.
type SymbolLine = (String, String, String, i64, i64);

/// The lines of all locations, by address.
fn lines(profiles: &Profiles) -> BTreeMap<u64, Vec<SymbolLine>> {
    let dictionary = profiles.dictionary();
    let text = |id| dictionary.string(id).to_owned();
    let of = |location: &Location| {
        let line = |line: &Line| {
            let function = line.function.map(|id| *dictionary.function(id)).unwrap_or_default();
            (text(function.name), text(function.system_name), text(function.filename), line.line, line.column)
        };
        (location.address, dictionary.lines(location).iter().map(line).collect())
    };
    dictionary.tables().locations.iter().skip(1).map(of).collect()
}

fn location(profiles: &Profiles, address: u64) -> LocationId {
    let found = profiles.dictionary().tables().locations.iter().position(|location| location.address == address);
    LocationId::new(found.unwrap() as u32).unwrap()
}

/// Guarantees: a location is named once, and the columns of samples are not copied; the batch keeps its peer, but not
/// its original request bytes. A system name that equals the name is not stored.
/// rule: otlp-profiles#added-lines
#[test]
fn names_locations() {
    let mut before = batch(3);
    before.received = Some(Bytes::from_static(b"request"));
    before.peer = Some("peer".into());
    let samples = std::ptr::from_ref(before.columns());
    let first = location(&before, 1);
    let mut naming = SymbolOverlay::new(before);
    let inlined = SymbolName { function: "inner", system_name: "_inner", filename: "known.c", line: 3, column: 9 };
    let caller = SymbolName { function: "known", system_name: "known", filename: "known.c", line: 8, column: 0 };
    assert!(naming.name(first, &[inlined, caller]));
    assert!(!naming.name(first, &[inlined]), "it has a line by now");
    let after = naming.finish();
    assert_eq!(std::ptr::from_ref(after.columns()), samples);
    assert_eq!((after.received.is_none(), after.peer.as_deref()), (true, Some("peer")));
    let text = str::to_owned;
    assert_eq!(
        lines(&after)[&1],
        [(text("inner"), text("_inner"), text("known.c"), 3, 9), (text("known"), String::new(), text("known.c"), 8, 0)]
    );
}

/// Guarantees: a batch in which no location was named is unchanged, including its original request bytes; other users
/// of a shared dictionary do not see changes.
#[test]
fn leaves_the_rest_alone() {
    let mut before = batch(2);
    before.received = Some(Bytes::from_static(b"request"));
    let other = before.clone();
    let id = location(&before, 1);
    let mut naming = SymbolOverlay::new(before);
    assert!(!naming.name(id, &[]));
    assert!(!naming.name(LocationId::new(4000).unwrap(), &[SymbolName { function: "f", ..SymbolName::default() }]));
    let after = naming.finish();
    assert_eq!(after.received, other.received);
    assert_eq!(lines(&after), lines(&other));

    let mut naming = SymbolOverlay::new(after.clone());
    assert!(naming.name(id, &[SymbolName { function: "f", ..SymbolName::default() }]));
    let named = naming.finish();
    assert_eq!(lines(&after), lines(&other));
    assert_ne!(lines(&named), lines(&other));
    assert_eq!(named.window.as_ref().map(|_: &ProcessWindow| ()), None);
}

proptest! {
    /// Guarantees: whatever is named, the result passes every check of a dictionary, equals a plain list of the same
    /// names, and contains no string or function twice.
    /// rule: otlp-profiles#added-lines
    #[test]
    fn agrees_with_a_list(names in prop::collection::vec((1u64..9, prop::collection::vec(("[a-c]{0,2}", "[a-c]{0,2}", "[a-c]{0,1}", 0i64..3), 0..3)), 0..20)) {
        let before = batch(6);
        let mut expected = lines(&before);
        let mut naming = SymbolOverlay::new(before.clone());
        for (address, given) in &names {
            let found = before.dictionary().tables().locations.iter().position(|location| location.address == *address);
            let Some(id) = found.and_then(|at| LocationId::new(at as u32)) else { continue };
            let list: Vec<_> = given
                .iter()
                .map(|(function, system_name, filename, line)| {
                    SymbolName { function, system_name, filename, line: *line, column: 0 }
                })
                .collect();
            let slot = expected.get_mut(address).unwrap();
            prop_assert_eq!(naming.name(id, &list), slot.is_empty() && !list.is_empty());
            if slot.is_empty() {
                *slot = given.iter().map(|(function, system, filename, line)| {
                    let system = if system == function { String::new() } else { system.clone() };
                    (function.clone(), system, filename.clone(), *line, 0)
                }).collect();
            }
        }
        let after = naming.finish();
        prop_assert_eq!(lines(&after), expected);
        prop_assert!(Dictionary::new(after.dictionary().tables().clone()).is_ok());
        let tables = after.dictionary().tables();
        let mut strings: Vec<_> = (1..tables.strings.len() as u32).map(|id| after.dictionary().string(StringId::new(id))).collect();
        strings.sort_unstable();
        let all = strings.len();
        strings.dedup();
        prop_assert_eq!(strings.len(), all);
        for (at, function) in tables.functions.iter().enumerate().skip(1) {
            prop_assert!(!tables.functions[at + 1..].contains(function));
        }
        let stacks = |profiles: &Profiles| (0..profiles.columns().len() as u32).map(|row| profiles.dictionary().stack(profiles.sample(row).stack).collect::<Vec<_>>()).collect::<Vec<_>>();
        prop_assert_eq!(stacks(&after), stacks(&before));
    }
}
