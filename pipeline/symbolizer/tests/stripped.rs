//! Tests with stripped files, of the names that remain without a symbol table.
#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "helpers of tests")]

mod common;
#[path = "common/elf.rs"]
mod elf;
#[path = "common/go_table.rs"]
mod go_table;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use common::{One, build, frames, has, nm, object_at, run, settings};
use elf::{ElfSection, file};
use go_table::{GoTableFunction, VERSIONS, table};
use profbridge_symbolizer::{NamedBy, Object, SymbolAnswer};
use proptest::prelude::*;

fn named_by(answer: &SymbolAnswer) -> Option<NamedBy> {
    answer.symbols().map(|symbols| symbols.named_by)
}

/// Guarantees: functions of a stripped program stay distinct: each is named by its file and start address, for all of
/// its addresses, whether or not the program is position-independent. With symbols, or with debug information only, the
/// same program has its original names.
#[test]
fn function_starts() {
    if !has("gcc") || !has("strip") || !has("nm") {
        return;
    }
    for options in [["-O2", "-pie", "-g"], ["-O2", "-no-pie", "-g"]] {
        let folder = tempfile::tempdir().unwrap();
        let whole = build("gcc", "inlined.c", &folder.path().join("whole"), &options);
        let stripped = folder.path().join("shop");
        run("strip", [Path::new("-o"), &stripped, &whole]);
        let symbols: Vec<_> = nm(&whole, &[]).into_iter().filter(|symbol| symbol.size > 0).collect();
        assert!(symbols.len() > 3);
        let one = One::new(settings(), object_at(&stripped));
        let full = One::new(settings(), object_at(&whole));
        for symbol in &symbols {
            let addresses = [symbol.address, symbol.address + symbol.size / 2, symbol.address + symbol.size - 1];
            for (answer, address) in one.answers(&addresses).iter().zip(addresses) {
                assert_eq!(&*frames(answer)[0].function, format!("shop+{:#x}", symbol.address), "{symbol:?}");
                assert_eq!((frames(answer).len(), named_by(answer)), (1, Some(NamedBy::UnwindTable)));
                assert_eq!(named_by(&full.answer(address)), Some(NamedBy::Symbols));
            }
        }
        let counters = one.symbolizer.counters();
        assert!(counters.named_by_unwind_table > symbols.len() as u64, "{counters:?}");
        assert_eq!((counters.symbols_found, counters.panics), (0, 0));
        // This address is before all code.
        assert_eq!(named_by(&one.answer(0x10)), None);

        // Debug information alone is preferred to a function start.
        run("strip", [Path::new("--keep-section=.debug*"), Path::new("-o"), &stripped, &whole]);
        let known = One::new(settings(), object_at(&stripped));
        let outer = symbols.iter().find(|symbol| symbol.name == "outer").unwrap();
        let answer = known.answer(outer.address);
        assert_eq!(&*frames(&answer).last().unwrap().function, "outer");
        assert_eq!(named_by(&answer), Some(NamedBy::Symbols));
    }
}

const START: u64 = 0x2000;

const FUNCTIONS: [GoTableFunction<'_>; 2] = [
    GoTableFunction {
        name: "example.com/shop.(*cart).total",
        file: "/src/shop/cart.go",
        start: START,
        end: START + 300,
        lines: &[(10, 40), (200, 44), (300, 41)],
        inlined: &[(200, -1), (250, 0), (300, -1)],
    },
    GoTableFunction {
        name: "main.main",
        file: "/src/shop/main.go",
        start: START + 320,
        end: START + 400,
        lines: &[(80, 7)],
        inlined: &[],
    },
];

fn go_file(table: Vec<u8>) -> Vec<u8> {
    file(&[ElfSection::code(), ElfSection::debug(".gopclntab", table)])
}

/// The answer for an address: function, file and line.
fn symbol_fields(answer: &SymbolAnswer) -> (&str, &str, u32) {
    let frame = &frames(answer)[0];
    (&frame.function, frame.file.as_deref().unwrap_or_default(), frame.line)
}

fn one(bytes: &[u8]) -> (tempfile::TempDir, One) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("shop");
    fs::write(&path, bytes).unwrap();
    (folder, One::new(settings(), object_at(&path)))
}

/// Guarantees: each format of Go's table gives function, file and line. For an address in an inlined function, the
/// table gives the outer function without file and line; between functions, it gives nothing.
#[test]
fn forms_of_gos_table() {
    for magic in VERSIONS {
        let (_folder, one) = one(&go_file(table(magic, &FUNCTIONS)));
        let [cart, main] = FUNCTIONS;
        let symbol_fields = |offset: u64| {
            let answer = one.answer(START + offset);
            assert_eq!(
                named_by(&answer),
                Some(NamedBy::GoTable),
                "{magic:#x} {offset} {:?}",
                one.symbolizer.counters()
            );
            let (function, file, line) = symbol_fields(&answer);
            (function.to_owned(), file.to_owned(), line)
        };
        let expected =
            |function: &GoTableFunction<'_>, line| (function.name.to_owned(), function.file.to_owned(), line);
        for (offset, line) in [(0, 40), (9, 40), (10, 44), (199, 44), (250, 41), (299, 41)] {
            assert_eq!(symbol_fields(offset), expected(&cart, line), "{magic:#x} {offset}");
        }
        for inlined in [200, 249] {
            assert_eq!(symbol_fields(inlined), (cart.name.to_owned(), String::new(), 0), "{magic:#x} {inlined}");
        }
        assert_eq!(symbol_fields(320), expected(&main, 7));
        assert_eq!(symbol_fields(399), expected(&main, 7));
        for outside in [0, START - 1, START + 400, u64::MAX] {
            assert_eq!(named_by(&one.answer(outside)), None, "{magic:#x} {outside:#x}");
        }
    }
}

/// Installations of Go: the one on this machine, and those in `PROFBRIDGE_TEST_GO`, separated by colons.
fn gos() -> Vec<PathBuf> {
    let mut found = Vec::new();
    match Command::new("go").args(["env", "GOROOT"]).output() {
        Ok(output) if output.status.success() => {
            found.push(String::from_utf8(output.stdout).unwrap().trim().into());
        }
        _ => eprintln!("SKIPPED: `go` is not on this machine"),
    }
    let more = std::env::var("PROFBRIDGE_TEST_GO").unwrap_or_default();
    found.extend(more.split(':').filter(|root| !root.is_empty()).map(PathBuf::from));
    found
}

const GO_SOURCE: &str = "package main

import \"os\"

type shop struct{ total int }

//go:noinline
func (s *shop) add(n int) int {
\ts.total += double(n)
\treturn s.total
}

func double(n int) int { return n * 2 }

func main() {
\ts := &shop{}
\tfor i := range os.Args {
\t\ts.add(i)
\t}
}
";

/// Guarantees: a stripped program built by Go, with cgo's linker or without, has the same names as with symbols, and
/// the lines of its debug information wherever nothing was inlined.
#[test]
fn programs_of_go() {
    if !has("nm") || !has("strip") {
        return;
    }
    for root in gos() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("main.go"), GO_SOURCE).unwrap();
        fs::write(folder.path().join("go.mod"), "module example.com/shop\ngo 1.15\n").unwrap();
        for external in [false, true] {
            if external && !has("gcc") {
                continue;
            }
            let mut go = Command::new(root.join("bin/go"));
            go.current_dir(folder.path()).env("GOROOT", &root).env("GOTOOLCHAIN", "local").env("GOFLAGS", "");
            go.env("GOCACHE", folder.path().join("cache")).env("GOENV", "off").args(["build", "-o", "whole"]);
            if external {
                go.env("CGO_ENABLED", "1").args(["-ldflags", "-compressdwarf=false -linkmode=external"]);
            } else {
                // Before Go 1.19, compressed sections had different names.
                go.env("CGO_ENABLED", "0").args(["-ldflags", "-compressdwarf=false"]);
            }
            let done = go.output().unwrap();
            assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
            let (whole, stripped) = (folder.path().join("whole"), folder.path().join("shop"));
            run("strip", [Path::new("-o"), &stripped, &whole]);
            let symbols = nm(&whole, &[]);
            let symbols: Vec<_> =
                symbols.iter().filter(|symbol| symbol.size > 0 && symbol.name.contains('.')).collect();
            assert!(symbols.len() > 500);
            let (full, one) = (One::new(settings(), object_at(&whole)), One::new(settings(), object_at(&stripped)));
            let addresses: Vec<u64> =
                symbols.iter().flat_map(|symbol| [symbol.address, symbol.address + symbol.size / 2]).collect();
            let (mut same, mut lines, mut inlined) = (0, 0, 0);
            for ((with, without), address) in
                full.answers(&addresses).iter().zip(one.answers(&addresses)).zip(&addresses)
            {
                let Some(expected) = frames(with).last() else { continue };
                let Some(found) = frames(&without).first() else { continue };
                // Wrappers between Go's calling conventions have their own symbols.
                let plain = |name: &str| name.trim_end_matches(".abi0").to_owned();
                if named_by(&without) == Some(NamedBy::GoTable) {
                    let fits =
                        plain(&expected.system_name) == plain(&found.function) || found.function.starts_with("go:");
                    assert!(fits, "{address:#x}: {expected:?} {found:?}");
                    same += 1;
                }
                let generated = found.file.as_deref() == Some("<autogenerated>");
                if found.line > 0 && frames(with).len() == 1 && expected.line > 0 && !generated {
                    assert_eq!((found.line, &found.file), (expected.line, &expected.file), "{address:#x}");
                    lines += 1;
                }
                inlined += usize::from(found.line == 0);
            }
            eprintln!("{}: {same} names, {lines} lines, {inlined} inlined, of {}", root.display(), addresses.len());
            assert!(same * 10 > addresses.len() * 9, "{same} of {}: {:?}", addresses.len(), one.symbolizer.counters());
            assert!(lines * 2 > addresses.len(), "{lines} of {}", addresses.len());
            let add = symbols.iter().find(|symbol| symbol.name == "main.(*shop).add").unwrap();
            let addresses: Vec<_> = (add.address..add.address + add.size).collect();
            let answers = one.answers(&addresses);
            assert!(answers.iter().all(|answer| symbol_fields(answer).0 == "main.(*shop).add"), "{answers:?}");
            assert!(answers.iter().any(|answer| symbol_fields(answer).1.ends_with("/main.go")), "{answers:?}");
        }
    }
}

/// An entry of `.eh_frame`: length and reference.
fn entry(reference: u32, content: &[u8]) -> Vec<u8> {
    let mut bytes = (content.len() as u32 + 4).to_le_bytes().to_vec();
    bytes.extend(reference.to_le_bytes());
    bytes.extend(content);
    bytes
}

/// A CIE for absolute addresses of eight bytes, with any claimed length.
fn common(padding: usize) -> Vec<u8> {
    // The content: version, augmentation, alignments, return address, and the length and content of the augmentation.
    let mut content = vec![1];
    content.extend(b"zR\0");
    content.extend([1, 0x78, 16, 1, 0]);
    content.extend(vec![0; padding]);
    entry(0, &content)
}

/// An FDE whose CIE is `back` bytes before it.
fn function(back: u32, start: u64, length: u64) -> Vec<u8> {
    let mut content = start.to_le_bytes().to_vec();
    content.extend(length.to_le_bytes());
    content.push(0);
    entry(back, &content)
}

fn unwind_file(table: Vec<u8>) -> Vec<u8> {
    file(&[ElfSection::code(), ElfSection { flags: 2, address: 0x200_0000, ..ElfSection::debug(".eh_frame", table) }])
}

/// Guarantees: malicious unwind tables are read in time proportional to their size: a CIE of a megabyte to which a
/// hundred thousand functions refer, references to nowhere and into entries, functions longer than all code, and
/// entries truncated anywhere.
#[test]
fn unwind_tables_that_lie() {
    let mut shared = common(1 << 20);
    for at in 0..100_000_u64 {
        let back = shared.len() as u32 + 4;
        shared.extend(function(back, START + at * 8, 8));
    }
    let (_folder, found) = one(&unwind_file(shared));
    assert_eq!(&*frames(&found.answer(START + 80))[0].function, "shop+0x2050");

    let mut good = common(0);
    good.extend(function(good.len() as u32 + 4, START, u64::MAX));
    let (_folder, found) = one(&unwind_file(good.clone()));
    assert_eq!(&*frames(&found.answer(elf::CODE.1 - 1))[0].function, "shop+0x2000");
    assert_eq!(named_by(&found.answer(elf::CODE.1)), None);
    for back in [0_u32, 1, 8, 20, 1 << 20, u32::MAX] {
        let mut bad = common(0);
        bad.extend(function(back, START, 16));
        let (_folder, found) = one(&unwind_file(bad));
        assert_eq!(named_by(&found.answer(START)), None, "{back}");
    }
    for length in 0..good.len() {
        let (_folder, found) = one(&unwind_file(good[..length].to_vec()));
        found.answer(START);
        assert_eq!(found.symbolizer.counters().panics, 0, "{length}");
    }
}

/// Guarantees: Go tables that are truncated, or have any field at its extremes, result in an answer and no panic. An
/// unknown format is counted, and the unwind table is used instead.
#[test]
fn go_tables_that_lie() {
    let addresses = [START, START + 100, START + 220, START + 330, u64::MAX];
    let survives = |bytes: Vec<u8>| {
        let (_folder, one) = one(&go_file(bytes));
        one.answers(&addresses);
        assert_eq!(one.symbolizer.counters().panics, 0);
    };
    for magic in VERSIONS {
        let good = table(magic, &FUNCTIONS);
        for at in (0..good.len()).step_by(4) {
            survives(good[..at].to_vec());
            for value in [0_u32, 1, 0x7fff_ffff, u32::MAX] {
                let mut bad = good.clone();
                bad[at..at + 4].copy_from_slice(&value.to_le_bytes());
                survives(bad);
            }
        }
    }
    let mut unknown = table(VERSIONS[3], &FUNCTIONS);
    unknown[..4].copy_from_slice(&0xffff_ffe0_u32.to_le_bytes());
    let mut unwind = common(0);
    unwind.extend(function(unwind.len() as u32 + 4, START, 16));
    let unwind = ElfSection { flags: 2, address: 0x200_0000, ..ElfSection::debug(".eh_frame", unwind) };
    let (_folder, found) = one(&file(&[ElfSection::code(), ElfSection::debug(".gopclntab", unknown), unwind]));
    assert_eq!(named_by(&found.answer(START)), Some(NamedBy::UnwindTable));
    assert_eq!(found.symbolizer.counters().unsupported, 1);
}

/// Guarantees: endless sequences of runs are abandoned, per address and per batch, so that the work for a file of four
/// megabytes is not quadratic.
#[test]
fn runs_without_an_end() {
    // Each run changes the value by one and covers no code.
    let mut endless = table(VERSIONS[3], &FUNCTIONS);
    let at = endless.len();
    endless.extend([2, 0].repeat(2 << 20));
    let runs = u64::from_le_bytes(endless[8 + 6 * 8..8 + 7 * 8].try_into().unwrap());
    let data = u64::from_le_bytes(endless[8 + 7 * 8..8 + 8 * 8].try_into().unwrap()) as usize;
    let described = data + u32::from_le_bytes(endless[data + 4..data + 8].try_into().unwrap()) as usize;
    for field in [4, 5, 12] {
        let place = described + 4 + 4 * field;
        endless[place..place + 4].copy_from_slice(&((at as u64 - runs) as u32).to_le_bytes());
    }
    let (_folder, found) = one(&go_file(endless));
    let addresses: Vec<_> = (START..START + 300).collect();
    for answer in found.answers(&addresses) {
        assert_eq!(symbol_fields(&answer), (FUNCTIONS[0].name, "", 0));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    /// Guarantees: with any bytes as Go table or unwind table, every address gets an answer, without a panic.
    #[test]
    fn any_bytes(
        form in 0_usize..4,
        changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..40),
        unwind in proptest::collection::vec(any::<u8>(), 0..200),
    ) {
        let mut go = table(VERSIONS[form], &FUNCTIONS);
        for (at, value) in changes {
            let at = at.index(go.len());
            go[at] = value;
        }
        let unwind = ElfSection { flags: 2, address: 0x200_0000, ..ElfSection::debug(".eh_frame", unwind) };
        let (_folder, one) = one(&file(&[ElfSection::code(), ElfSection::debug(".gopclntab", go), unwind]));
        let addresses: Vec<u64> = (START - 10..START + 420).collect();
        one.answers(&addresses);
        prop_assert_eq!(one.symbolizer.counters().panics, 0);
    }
}

/// Guarantees: in a file without a known name, functions are not named by their starts.
#[test]
fn without_a_file_name() {
    let mut unwind = common(0);
    unwind.extend(function(unwind.len() as u32 + 4, START, 16));
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("shop");
    fs::write(&path, unwind_file(unwind)).unwrap();
    for (name, expected) in [("", None), ("/srv/shop (deleted)", Some("shop+0x2000"))] {
        let one = One::new(settings(), Object { path: name.to_owned(), ..object_at(&path) });
        assert_eq!(frames(&one.answer(START)).first().map(|frame| &*frame.function), expected);
    }
}
