use std::cmp::Reverse;

use proptest::prelude::*;

use super::*;

const CODE: [(u64, u64); 2] = [(10, 50), (60, 90)];

#[derive(Debug, Clone)]
struct Given {
    start: u64,
    size: u64,
    name: String,
    function: bool,
    global: bool,
}

fn table(given: &[Given]) -> SymbolTable {
    let mut builder = SymbolTableBuilder::new(CODE.to_vec(), 1 << 20);
    for symbol in given {
        builder.add(symbol.start, symbol.size, symbol.name.as_bytes(), symbol.function, symbol.global).unwrap();
    }
    builder.build()
}

fn one(start: u64, size: u64, name: &str, function: bool, global: bool) -> Given {
    Given { start, size, name: name.to_owned(), function, global }
}

fn find(table: &SymbolTable, address: u64) -> Option<&str> {
    table.find(address).map(|name| std::str::from_utf8(name).unwrap())
}

/// Guarantees: among several symbols at one address, the one with the documented precedence is chosen.
#[test]
fn aliases() {
    let aliases = |names: &[(&str, u64, bool, bool)]| {
        let given: Vec<_> = names.iter().map(|&(name, size, f, g)| one(20, size, name, f, g)).collect();
        find(&table(&given), 20).unwrap().to_owned()
    };
    assert_eq!(aliases(&[("__libc_malloc", 5, true, true), ("malloc", 5, true, true)]), "malloc");
    assert_eq!(aliases(&[("a", 5, true, false), ("global", 5, true, true)]), "global");
    assert_eq!(aliases(&[("a", 0, true, true), ("sized", 5, true, true)]), "sized");
    assert_eq!(aliases(&[("a", 5, false, true), ("function", 0, true, true)]), "function");
    assert_eq!(aliases(&[("public", 0, false, true), ("__internal", 5, true, true)]), "public");
    assert_eq!(aliases(&[("internal", 5, true, false), ("public", 0, false, true)]), "public");
    assert_eq!(aliases(&[("__start_section", 0, false, true), ("function", 5, true, false)]), "function");
    assert_eq!(aliases(&[("label", 0, false, false), ("__function", 0, true, true)]), "__function");
    assert_eq!(aliases(&[("bb", 5, true, true), ("ab", 5, true, true), ("aaa", 5, true, true)]), "ab");
    for sizes in [[1, 2], [2, 1]] {
        let given = sizes.map(|size| one(20, size, "twice", true, true));
        assert_eq!(find(&table(&given), 21), Some("twice"));
    }
}

/// Guarantees: a public name without a size gets the size of its alias, and names no code after it. The other names are
/// known as aliases for any address in the symbol.
#[test]
fn sizes_and_names_of_aliases() {
    let table =
        table(&[one(20, 0, "public", false, true), one(20, 8, "__alias", true, true), one(30, 5, "b", true, true)]);
    assert_eq!([27, 28].map(|address| find(&table, address)), [Some("public"), None]);
    assert!(table.is_alias(20, b"__alias") && table.is_alias(27, b"__alias"));
    assert!(!table.is_alias(20, b"public") && !table.is_alias(30, b"__alias") && !table.is_alias(19, b"__alias"));
}

/// The expected result, found by scanning all symbols.
fn oracle(given: &[Given], address: u64) -> Option<&str> {
    let end_of_code = |address: u64| CODE.iter().find(|code| (code.0..code.1).contains(&address)).map(|code| code.1);
    let preferred = |a: &&Given, b: &&Given| {
        let rank = |symbol: &Given| {
            let Given { size, name, function, global, .. } = symbol;
            let underscores = name.chars().take_while(|&c| c == '_').count();
            let named = if *global { *function || *size > 0 || underscores == 0 } else { *function };
            (named, *global, Reverse(underscores), *function, *size > 0, Reverse((name.len(), name.clone())))
        };
        rank(a).cmp(&rank(b))
    };
    // One symbol for each start.
    let mut starts: Vec<u64> = given.iter().map(|symbol| symbol.start).collect();
    starts.sort_unstable();
    starts.dedup();
    let chosen: Vec<&Given> = starts
        .iter()
        .filter(|&&start| end_of_code(start).is_some())
        .map(|&start| given.iter().filter(|symbol| symbol.start == start).max_by(preferred).unwrap())
        .collect();
    let size_of = |chosen: &Given| {
        let at_start = || given.iter().filter(|symbol| symbol.start == chosen.start);
        let own = at_start().filter(|symbol| symbol.name == chosen.name).map(|symbol| symbol.size).max().unwrap();
        if own > 0 { own } else { at_start().map(|symbol| symbol.size).max().unwrap() }
    };
    let mut ranges: Vec<(u64, u64, &str)> = Vec::new();
    for (nth, symbol) in chosen.iter().enumerate() {
        let limit = end_of_code(symbol.start).unwrap();
        let end = if size_of(symbol) > 0 {
            symbol.start + size_of(symbol)
        } else if ranges.iter().any(|range| symbol.start < range.1) {
            continue;
        } else {
            chosen.get(nth + 1).map_or(u64::MAX, |next| next.start)
        };
        ranges.push((symbol.start, end.min(limit), &symbol.name));
    }
    let containing = ranges.iter().filter(|range| (range.0..range.1).contains(&address));
    containing.max_by_key(|range| range.0).map(|range| range.2)
}

fn given() -> impl Strategy<Value = Given> {
    (0_u64..100, prop_oneof![Just(0_u64), 1_u64..40], "_{0,2}[ab]{1,2}", any::<bool>(), any::<bool>())
        .prop_map(|(start, size, name, function, global)| Given { start, size, name, function, global })
}

proptest! {
    /// Guarantees: with nested and overlapping symbols and aliases, each address has the name that a scan of all
    /// symbols finds. A symbol without a size extends to the next one, but not beyond its section; a label inside of a
    /// function and symbols outside of all code are ignored.
    #[test]
    fn as_a_scan_finds_it(given in prop::collection::vec(given(), 0..30)) {
        let table = table(&given);
        for address in 0..160 {
            prop_assert_eq!(find(&table, address), oracle(&given, address), "{}", address);
        }
        prop_assert!(table.ranges.windows(2).all(|pair| pair[0].end <= pair[1].start));
    }
}
