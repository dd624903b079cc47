//! Tests with programs built by real compilers, compared with the output of binutils.
#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "helpers of tests")]

mod common;

use std::collections::BTreeMap;
use std::path::Path;

use common::{One, Symbol, address_of, build, built, frames, has, nm, object_at, run, settings};
use profbridge_symbolizer::{Settings, SymbolAnswer};

/// Some addresses in functions: the first, the last, and some in between.
fn addresses_in(symbols: &[Symbol]) -> Vec<u64> {
    let inside = |symbol: &Symbol| {
        let (start, size) = (symbol.address, symbol.size.max(1));
        [start, start + size / 3, start + size / 2, start + size - 1]
    };
    let mut addresses: Vec<u64> = symbols.iter().flat_map(inside).collect();
    addresses.sort_unstable();
    addresses.dedup();
    addresses
}

/// All names that `nm` prints for each symbol's addresses: any alias is correct.
fn names_by_range(symbols: &[Symbol]) -> BTreeMap<(u64, u64), Vec<&str>> {
    let mut names: BTreeMap<(u64, u64), Vec<&str>> = BTreeMap::new();
    for symbol in symbols {
        names.entry((symbol.address, symbol.address + symbol.size)).or_default().push(&symbol.name);
    }
    names
}

/// Checks that every address in a function of the file has a name that `nm` prints for it.
fn agrees_with_nm(path: &Path) {
    let symbols = nm(path, &[]);
    assert!(symbols.len() > 3, "nm finds functions in {}", path.display());
    let names = names_by_range(&symbols);
    let addresses = addresses_in(&symbols);
    let one = One::new(settings(), object_at(path));
    for (&address, answer) in addresses.iter().zip(one.answers(&addresses)) {
        let Some(frame) = frames(&answer).last() else { panic!("{address:#x}: {answer:?}") };
        let found = &frame.system_name;
        let strip = |name: &str| name.split('@').next().unwrap().to_owned();
        let fits = names.iter().any(|(&(start, end), names)| {
            (start..end.max(start + 1)).contains(&address) && names.iter().any(|name| strip(name) == strip(found))
        });
        assert!(fits, "{address:#x}: {found}");
    }
    assert_eq!(one.symbolizer.counters().panics, 0);
}

/// Guarantees: a function of glibc has its well-known name, even if debug information has a name that only glibc uses,
/// and its line is known.
#[test]
fn names_of_glibc() {
    let Some((_folder, program)) = built(&["gcc", "nm"], "hidden_alias.c", &["-O1", "-g"]) else { return };
    let answer = One::new(settings(), object_at(&program)).answer(address_of(&program, "__GI_work"));
    let frame = &frames(&answer)[0];
    assert_eq!((&*frame.function, &*frame.system_name), ("known_work", "known_work"));
    assert!((4..=9).contains(&frame.line), "{frame:?}");
}

/// Guarantees: every address in a C++ program has the name that `nm` prints; names are demangled as by `nm -C`,
/// including templates, anonymous namespaces and clones, unless demangling is off.
#[test]
fn cpp_names_are_demangled() {
    let Some((_folder, program)) = built(&["g++", "nm"], "shapes.cc", &["-O1"]) else { return };
    agrees_with_nm(&program);
    let one = One::new(settings(), object_at(&program));
    let function = |mangled: &str| one.functions(&[address_of(&program, mangled)]).remove(0).unwrap();
    assert_eq!(function("_ZNK6shapes6Square4areaEv"), "shapes::Square::area() const");
    assert_eq!(function("_ZNK6shapes6Square6scaledEi"), "shapes::Square::scaled(int) const");
    let largest = nm(&program, &[]).into_iter().find(|symbol| symbol.name.starts_with("_ZN6shapes7largestIi")).unwrap();
    let function = one.functions(&[largest.address]).remove(0).unwrap();
    assert!(function.starts_with("int shapes::largest<int>("), "{function}");
    let mangled = One::new(Settings { demangle: false, ..settings() }, object_at(&program));
    let name = "_ZNK6shapes6Square4areaEv";
    assert_eq!(common::function(&mangled.answer(address_of(&program, name))), Some(name));
}

/// Guarantees: names of both Rust mangling schemes are demangled, without the hash of the older one, and the system
/// name stays mangled.
#[test]
fn rust_names_are_demangled() {
    if !has("rustc") || !has("nm") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    for version in ["legacy", "v0"] {
        let mangling = format!("-Csymbol-mangling-version={version}");
        // The older scheme is no longer the default, and the option that selects it is unstable.
        let options = ["-O", "--edition=2021", "-Zunstable-options", &mangling];
        let program = folder.path().join(version);
        let built = std::process::Command::new("rustc")
            .env("RUSTC_BOOTSTRAP", "1")
            .args(options)
            .arg(common::source("generic.rs"))
            .arg("-o")
            .arg(&program)
            .status();
        assert!(built.unwrap().success());
        agrees_with_nm(&program);
        let hot = nm(&program, &[]).into_iter().find(|symbol| symbol.name.contains("3hot")).unwrap();
        let one = One::new(settings(), object_at(&program));
        let answer = one.answer(hot.address);
        let frame = frames(&answer).last().unwrap();
        assert_eq!(&*frame.function, format!("{version}::hot").replace("legacy", "generic").replace("v0", "generic"));
        assert_eq!(&*frame.system_name, hot.name);
    }
}

/// One frame as binutils' `addr2line -f -i` prints it.
#[derive(Debug, PartialEq, Eq)]
struct Printed {
    function: String,
    file: String,
    line: u32,
}

/// Asks binutils' `addr2line` for addresses.
fn binutils(path: &Path, addresses: &[u64]) -> Vec<Vec<Printed>> {
    let mut arguments = vec!["-f".to_owned(), "-i".to_owned(), "-a".to_owned(), "-e".to_owned()];
    arguments.push(path.to_string_lossy().into_owned());
    arguments.extend(addresses.iter().map(|address| format!("{address:#x}")));
    let printed = run("addr2line", arguments);
    let mut answers: Vec<Vec<Printed>> = Vec::new();
    let mut lines = printed.lines();
    while let Some(line) = lines.next() {
        if line.starts_with("0x") {
            answers.push(Vec::new());
            continue;
        }
        let (file, line_number) = lines.next().unwrap().rsplit_once(':').unwrap();
        let line_number = line_number.split(' ').next().unwrap().parse().unwrap_or(0);
        let (function, file) = (line.to_owned(), file.to_owned());
        answers.last_mut().unwrap().push(Printed { function, file, line: line_number });
    }
    answers
}

fn agrees_with_addr2line(program: &Path, wanted: impl Fn(&Symbol) -> bool) {
    let symbols: Vec<_> = nm(program, &[]).into_iter().filter(wanted).collect();
    let addresses: Vec<u64> = symbols.iter().flat_map(|symbol| symbol.address..symbol.address + symbol.size).collect();
    assert!(addresses.len() > 20);
    let one = One::new(settings(), object_at(program));
    let answers = one.answers(&addresses);
    for ((&address, answer), printed) in addresses.iter().zip(&answers).zip(binutils(program, &addresses)) {
        let found: Vec<_> = frames(answer)
            .iter()
            .map(|frame| Printed {
                function: frame.system_name.to_string(),
                file: frame.file.as_deref().unwrap_or("??").to_owned(),
                line: frame.line,
            })
            .collect();
        assert_eq!(found, printed, "{address:#x}");
    }
    assert_eq!(one.symbolizer.counters().dwarf_found, addresses.len() as u64);
}

/// Guarantees: for every address of every function, inlined functions, files and lines equal those of binutils, for
/// DWARF 4 and 5, with and without optimization.
#[test]
fn inlined_functions_and_lines() {
    if !has("gcc") || !has("nm") || !has("addr2line") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    for (name, options) in [
        ("five", ["-O2", "-gdwarf-5"]),
        ("four", ["-O2", "-gdwarf-4"]),
        ("plain", ["-O0", "-gdwarf-5"]),
        ("few", ["-O1", "-g1"]),
    ] {
        let program = build("gcc", "inlined.c", &folder.path().join(name), &options);
        let ours = |symbol: &Symbol| ["outer", "alone", "main"].contains(&&*symbol.name);
        agrees_with_addr2line(&program, ours);
        let one = One::new(settings(), object_at(&program));
        let outer = nm(&program, &[]).into_iter().find(|symbol| symbol.name == "outer").unwrap();
        let all: Vec<u64> = (outer.address..outer.address + outer.size).collect();
        let deepest = one.answers(&all).iter().map(|answer| frames(answer).len()).max().unwrap();
        assert_eq!(deepest, 3, "{name}: always_inline is inlined");
    }
}

/// Guarantees: for every address of a large optimized Rust program, functions, files, lines and columns equal those of
/// the crate addr2line.
#[test]
fn rust_as_addr2line_has_it() {
    let options = ["-O", "-g", "--edition=2021"];
    let Some((_folder, program)) = built(&["rustc", "nm"], "generic.rs", &options) else { return };
    let bytes = std::fs::read(&program).unwrap();
    let oracle = oracle::Oracle::new(&bytes);
    let symbols = nm(&program, &[]);
    let mut addresses: Vec<u64> =
        symbols.iter().flat_map(|symbol| (symbol.address..symbol.address + symbol.size).step_by(5)).collect();
    addresses.sort_unstable();
    addresses.dedup();
    let one = One::new(Settings { demangle: false, cache_bytes: 2 << 30, ..settings() }, object_at(&program));
    let mut with_lines = 0;
    for (&address, answer) in addresses.iter().zip(one.answers(&addresses)) {
        let Some(expected) = oracle.frames(address) else { continue };
        with_lines += 1;
        let found: Vec<_> = frames(&answer)
            .iter()
            .map(|frame| {
                let file = frame.file.as_deref().map(str::to_owned);
                (frame.system_name.to_string(), file, frame.line, frame.column)
            })
            .collect();
        assert_eq!(found, expected, "{address:#x}");
    }
    assert!(with_lines > 1000, "{with_lines}");
    assert_eq!(one.symbolizer.counters().panics, 0);
}

/// Guarantees: an address outside of all code has no name.
#[test]
fn outside_of_code() {
    let Some((_folder, program)) = built(&["gcc"], "inlined.c", &["-g"]) else { return };
    let one = One::new(settings(), object_at(&program));
    for address in [0, 1, u64::MAX, u64::MAX - 1, 1 << 63] {
        assert!(matches!(one.answer(address), SymbolAnswer::Unknown(_)), "{address:#x}");
    }
}

/// The DWARF reader of the crate addr2line.
mod oracle {
    use object::{Object as _, ObjectSection as _};

    type Reader<'a> = addr2line::gimli::EndianSlice<'a, addr2line::gimli::LittleEndian>;

    pub(crate) struct Oracle<'a> {
        context: addr2line::Context<Reader<'a>>,
    }

    pub(crate) type Expected = (String, Option<String>, u32, u32);

    impl<'a> Oracle<'a> {
        pub(crate) fn new(bytes: &'a [u8]) -> Self {
            let file = object::read::elf::ElfFile64::<object::LittleEndian>::parse(bytes).unwrap();
            let dwarf = addr2line::gimli::Dwarf::load(|id| {
                let data = file.section_by_name(id.name()).map_or(&[][..], |section| section.data().unwrap());
                Ok::<_, addr2line::gimli::Error>(addr2line::gimli::EndianSlice::new(
                    data,
                    addr2line::gimli::LittleEndian,
                ))
            });
            Self { context: addr2line::Context::from_dwarf(dwarf.unwrap()).unwrap() }
        }

        /// Returns `None` if some function is unknown.
        pub(crate) fn frames(&self, address: u64) -> Option<Vec<Expected>> {
            let mut frames = self.context.find_frames(address).skip_all_loads().unwrap();
            let mut expected = Vec::new();
            while let Some(frame) = frames.next().unwrap() {
                let name = frame.function?.raw_name().unwrap().into_owned();
                let location = frame.location;
                let file = location.as_ref().and_then(|location| location.file).map(str::to_owned);
                let line = location.as_ref().and_then(|location| location.line).unwrap_or(0);
                let column = location.as_ref().and_then(|location| location.column).unwrap_or(0);
                expected.push((name, file, line, column));
            }
            (!expected.is_empty()).then_some(expected)
        }
    }
}
