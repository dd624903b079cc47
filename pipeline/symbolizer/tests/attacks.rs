//! Tests with files that attack the symbolizer.
//!
//! Each test describes an attack and the safe outcome: an answer, in time, within bounded memory, and every panic
//! counted as a bug.
#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "helpers of tests")]

mod common;
#[path = "common/elf.rs"]
mod elf;

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};

use common::{LIMIT, One, built, frames, function, has, object_at, run, settings};
use elf::{CODE, ElfSection, abbreviation, file, uleb, unit};
use profbridge_symbolizer::{Counters, Object, ObjectKey, ObjectSource, Settings, SymbolAnswer, Unknown};

/// The result for one address of a file.
fn attack(bytes: &[u8], settings: Settings, address: u64) -> (SymbolAnswer, Counters) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("file");
    fs::write(&path, bytes).unwrap();
    let one = One::new(settings, object_at(&path));
    let answer = one.answer(address);
    let counters = one.symbolizer.counters();
    assert_eq!(counters.panics, 0, "{counters:?}");
    (answer, counters)
}

const ADDRESS: u64 = 0x2000;

/// A file with code, the symbol `f`, and these sections.
fn with_symbol(parts: &[ElfSection]) -> Vec<u8> {
    file(&[&[ElfSection::code()], &one_function(2)[..], parts].concat())
}

/// Sections of debug information: entries and their abbreviations. The lists of abbreviations follow each other.
fn dwarf(info: Vec<u8>, abbreviations: &[Vec<u8>]) -> Vec<ElfSection> {
    let abbreviations = [&abbreviations.concat()[..], &[0]].concat();
    vec![ElfSection::debug(".debug_info", info), ElfSection::debug(".debug_abbrev", abbreviations)]
}

/// The values of `DW_AT_low_pc` and `DW_AT_high_pc`: 16 bytes from [`ADDRESS`].
fn range() -> Vec<u8> {
    [&ADDRESS.to_le_bytes()[..], &[16]].concat()
}

/// A symbol table with one function, `f`, in two sections starting at number `first`.
fn one_function(first: u32) -> [ElfSection; 2] {
    [ElfSection::symbols(&[(1, ADDRESS, 16)], first + 1), ElfSection::strings(b"\0f\0".to_vec())]
}

/// Checks that the answer is the symbol `f`, whatever the DWARF contains.
fn keeps_the_symbol(parts: Vec<ElfSection>, settings: Settings) -> Counters {
    let (answer, counters) = attack(&with_symbol(&parts), settings, ADDRESS + 4);
    assert_eq!(function(&answer), Some("f"), "{answer:?}");
    counters
}

const COMPILE_UNIT: u64 = 0x11;
const SUBPROGRAM: u64 = 0x2e;
const INLINED: u64 = 0x1d;
const LOW_PC: u64 = 0x11;
const HIGH_PC: u64 = 0x12;
const RANGES: u64 = 0x55;
const NAME: u64 = 0x03;
const ORIGIN: u64 = 0x31;
const STATEMENTS: u64 = 0x10;
const ADDRESS_FORM: u64 = 0x01;
const UDATA: u64 = 0x0f;
const SECTION_OFFSET: u64 = 0x17;
const RANGE: [(u64, u64); 2] = [(LOW_PC, ADDRESS_FORM), (HIGH_PC, UDATA)];
const REFERENCE_ADDRESS: u64 = 0x10;
const STRING: u64 = 0x08;
const STRP: u64 = 0x0e;

/// Guarantees: pipes, folders, and devices are not read, and do not block.
#[test]
fn not_regular() {
    let folder = tempfile::tempdir().unwrap();
    let mut paths = vec![folder.path().to_owned(), "/dev/zero".into(), "/dev/tty".into()];
    if Path::new("/usr/bin/mkfifo").exists() {
        let pipe = folder.path().join("pipe");
        run("mkfifo", [&pipe]);
        paths.push(pipe);
    }
    for path in paths {
        let one = One::new(settings(), object_at(&path));
        assert_eq!(one.answer(ADDRESS), SymbolAnswer::Unknown(Unknown::NoFile), "{}", path.display());
    }
    let object =
        Object { source: ObjectSource::File(File::open("/dev/zero").unwrap()), ..object_at(Path::new("/zero")) };
    assert_eq!(One::new(settings(), object).answer(ADDRESS), SymbolAnswer::Unknown(Unknown::NoFile));
}

/// Guarantees: an empty sparse file of terabytes, and one above the limit, are not read.
#[test]
fn too_large() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("file");
    let sparse = File::create(&path).unwrap();
    sparse.set_len(1 << 40).unwrap();
    let one = One::new(settings(), object_at(&path));
    assert_eq!(one.answer(ADDRESS), SymbolAnswer::Unknown(Unknown::TooLarge));
    assert_eq!(one.symbolizer.counters().too_large, 1);
    let (answer, _) = attack(&file(&one_function(1)), Settings { max_object_bytes: 100, ..settings() }, ADDRESS);
    assert_eq!(answer, SymbolAnswer::Unknown(Unknown::TooLarge));
}

/// Guarantees: files truncated anywhere, and headers with any field at its extremes, result in an answer.
#[test]
fn headers_that_lie() {
    let good = with_symbol(&[]);
    for length in 0..good.len() {
        attack(&good[..length], settings(), ADDRESS);
    }
    for at in 4..64 {
        for value in [0, 1, 0x7f, 0xff] {
            let mut bad = good.clone();
            bad[at] = value;
            attack(&bad, settings(), ADDRESS);
        }
    }
    let table = u64::from_le_bytes(good[40..48].try_into().unwrap()) as usize;
    for at in (table..good.len()).step_by(8) {
        for value in [0_u64, 1, u64::MAX, i64::MAX as u64, 1 << 40] {
            let mut bad = good.clone();
            bad[at..at + 8].copy_from_slice(&value.to_le_bytes());
            attack(&bad, settings(), ADDRESS);
        }
    }
}

/// Guarantees: 32-bit files are refused as unsupported.
#[test]
fn thirty_two_bits() {
    let mut bytes = file(&one_function(1));
    bytes[4] = 1;
    let (answer, counters) = attack(&bytes, settings(), ADDRESS);
    assert_eq!(answer, SymbolAnswer::Unknown(Unknown::Unsupported));
    assert_eq!(counters.unsupported, 1);
}

/// Guarantees: overlapping names, each starting one byte later in the same megabyte, are truncated and limited.
/// Otherwise two million names would take eight gigabytes.
#[test]
fn names_in_names() {
    let symbols: Vec<_> = (0..200_000_u32).map(|at| (at, ADDRESS + u64::from(at), 1)).collect();
    let parts = [ElfSection::code(), ElfSection::symbols(&symbols, 3), ElfSection::strings(vec![b'a'; 1 << 20])];
    let (answer, counters) = attack(&file(&parts), Settings { max_symbol_bytes: 16 << 20, ..settings() }, ADDRESS);
    // Symbols that were read before the limit are kept.
    assert_eq!(frames(&answer)[0].function.len(), 4096);
    assert_eq!(counters.too_large, 1);
    assert!(counters.table_bytes <= 32 << 20);
}

/// Guarantees: a compressed section that claims a size above the limit is not decompressed, and one whose size differs
/// from its claim is malformed.
#[test]
fn compression_bombs() {
    let compressed = |claims: u64, data: &[u8]| {
        let mut bytes = 1_u32.to_le_bytes().to_vec();
        bytes.extend([0; 4]);
        bytes.extend(claims.to_le_bytes());
        bytes.extend(1_u64.to_le_bytes());
        bytes.extend(data);
        ElfSection { flags: 0x800, ..ElfSection::debug(".debug_info", bytes) }
    };
    assert_eq!(keeps_the_symbol(vec![compressed(u64::MAX, &[])], settings()).too_large, 1);
    assert_eq!(keeps_the_symbol(vec![compressed(1 << 30, &[])], settings()).too_large, 1);
    assert_eq!(keeps_the_symbol(vec![compressed(1 << 20, &[1, 2, 3])], settings()).malformed, 1);
}

/// Guarantees: a million nested inlined functions do not overflow the stack; the crate addr2line recurses here.
#[test]
fn inlined_without_end() {
    let named = [(NAME, STRING), RANGE[0], RANGE[1]];
    let abbreviations = [
        abbreviation(1, COMPILE_UNIT, true, &RANGE),
        abbreviation(2, SUBPROGRAM, true, &named),
        abbreviation(3, INLINED, true, &named),
    ];
    let mut entries = [&[1], &range()[..], &b"\x02dwarf\0"[..], &range()].concat();
    entries.extend([&b"\x03\0"[..], &range()].concat().repeat(1_000_000));
    let (answer, counters) = attack(&with_symbol(&dwarf(unit(0, &entries), &abbreviations)), settings(), ADDRESS + 4);
    // Functions without names are omitted.
    assert_eq!(frames(&answer).iter().map(|frame| &*frame.function).collect::<Vec<_>>(), ["dwarf"]);
    assert_eq!(counters.dwarf_found, 1);
}

/// Guarantees: units or functions that all refer to one long list of ranges exhaust the budget. Storing the ranges
/// would be quadratic in the file's size.
#[test]
fn the_same_ranges_for_all() {
    // An entry has start and length, as in DWARF 5's lists (7.25).
    let mut list = vec![0_u8; 12];
    for step in 0..200_000_u64 {
        list.push(7);
        list.extend((ADDRESS + step * 16).to_le_bytes());
        list.extend(uleb(8));
    }
    list.push(0);
    let abbreviations = [
        abbreviation(1, COMPILE_UNIT, true, &[(RANGES, SECTION_OFFSET)]),
        abbreviation(2, SUBPROGRAM, false, &[(RANGES, SECTION_OFFSET)]),
    ];
    let reference = |code: u8| [code, 12, 0, 0, 0];
    let units = unit(0, &reference(1)).repeat(20_000);
    let functions = [&reference(1)[..], &reference(2).repeat(20_000)].concat();
    for info in [units, unit(0, &functions)] {
        let mut parts = dwarf(info, &abbreviations);
        parts.push(ElfSection::debug(".debug_rnglists", list.clone()));
        let counters = keeps_the_symbol(parts, settings());
        assert_eq!(counters.dwarf_given_up, 1, "{counters:?}");
        assert!(counters.table_bytes < 1 << 20, "{counters:?}");
    }
}

/// Guarantees: a reference to a name that leads to itself, in a cycle, or to nowhere results in no name.
#[test]
fn references_in_circles() {
    let abbreviations = [
        abbreviation(1, COMPILE_UNIT, true, &RANGE),
        abbreviation(2, SUBPROGRAM, false, &[(ORIGIN, REFERENCE_ADDRESS), RANGE[0], RANGE[1]]),
    ];
    // The root entry is at 12 and has ten bytes.
    for origin in [22_u32, 12, 0, 1, u32::MAX] {
        let entries = [&[1], &range()[..], &[2], &origin.to_le_bytes(), &range()].concat();
        let parts = dwarf(unit(0, &entries), &abbreviations);
        assert_eq!(keeps_the_symbol(parts, settings()).dwarf_found, 1, "{origin}");
    }
}

/// Guarantees: the budget limits work that is out of proportion to the file's size: a table of abbreviations that every
/// unit reads again, thousands of empty attributes in entries of one byte, and strings without an end.
#[test]
fn work_without_size() {
    let many = [(0x7f, 0x19)].repeat(60_000);
    let expensive = [abbreviation(1, COMPILE_UNIT, true, &[]), abbreviation(2, SUBPROGRAM, false, &many)];
    let entries = [&[1][..], &vec![2; 1 << 20]].concat();
    let mut strings =
        dwarf(unit(0, &[1, 0, 0, 0, 0]).repeat(100_000), &[abbreviation(1, COMPILE_UNIT, true, &[(NAME, STRP)])]);
    strings.push(ElfSection::debug(".debug_str", vec![b'a'; 8 << 20]));
    for parts in [dwarf(unit(0, &entries), &expensive), dwarf(unit(0, &[1]).repeat(100_000), &expensive), strings] {
        let counters = keeps_the_symbol(parts, settings());
        assert_eq!(counters.dwarf_given_up, 1, "{counters:?}");
    }
}

/// Guarantees: if the header of a line program names as many files as it has bytes, or claims to, only the lines are
/// lost.
#[test]
fn files_without_end() {
    let abbreviations = [abbreviation(1, COMPILE_UNIT, true, &[(STATEMENTS, SECTION_OFFSET), RANGE[0], RANGE[1]])];
    let entries = [&[1, 0, 0, 0, 0][..], &range()].concat();
    for (files, count) in [(8_usize << 20, 8_u64 << 20), (100, u64::MAX)] {
        let mut header = vec![1, 1, 1, 0xfb, 14, 1];
        // The header has one folder and the files, each a name of one byte.
        header.extend([1, 1, 8, 1, b'/', 0]);
        header.extend([1, 1, 8]);
        header.extend(uleb(count));
        header.extend(vec![0; files]);
        let mut line = (12 + header.len() as u32 - 4 + 4).to_le_bytes().to_vec();
        line.extend(5_u16.to_le_bytes());
        line.extend([8, 0]);
        line.extend((header.len() as u32).to_le_bytes());
        line.extend(header);
        let mut parts = dwarf(unit(0, &entries), &abbreviations);
        parts.push(ElfSection::debug(".debug_line", line));
        assert_eq!(keeps_the_symbol(parts, settings()).dwarf_missed, 1);
    }
}

/// Guarantees: real debug information with any byte changed, or truncated anywhere, results in an answer.
#[test]
fn broken_debug_information() {
    let Some((folder, program)) = built(&["gcc"], "inlined.c", &["-O2", "-g"]) else { return };
    let good = fs::read(&program).unwrap();
    let addresses: Vec<u64> = (0x1000..0x1400).step_by(16).collect();
    let broken = folder.path().join("broken");
    let mut random = 0x9e37_79b9_7f4a_7c15_u64;
    for round in 0..300_u64 {
        let mut bytes = good.clone();
        for _ in 0..=round % 8 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            // The debug sections are the last third of the file.
            let at = bytes.len() - 1 - (random >> 33) as usize % (bytes.len() / 3);
            bytes[at] = (random >> 20) as u8;
        }
        if round % 5 == 0 {
            bytes.truncate(bytes.len() - round as usize * 3);
        }
        fs::write(&broken, &bytes).unwrap();
        let one = One::new(settings(), object_at(&broken));
        one.answers(&addresses);
        assert_eq!(one.symbolizer.counters().panics, 0, "round {round}");
    }
}

/// Guarantees: a file that grows, shrinks and changes while it is read results in answers, and in no signal.
#[test]
fn changes_while_it_is_read() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("file");
    let good = with_symbol(&[]);
    fs::write(&path, &good).unwrap();
    let stop = AtomicBool::new(false);
    let one = One::new(settings(), object_at(&path));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let file = fs::OpenOptions::new().write(true).open(&path).unwrap();
            while !stop.load(Ordering::Relaxed) {
                file.set_len(70).unwrap();
                file.write_all_at(&good, 0).unwrap();
                file.write_all_at(&[0xff; 64], 64).unwrap();
            }
        });
        for round in 0..300_u64 {
            let object = Object { key: ObjectKey::Other(round.to_string().into()), ..object_at(&path) };
            let object = one.symbolizer.object(object);
            one.symbolizer.ask(object, &[ADDRESS]);
            assert!(one.symbolizer.wait(LIMIT));
        }
        stop.store(true, Ordering::Relaxed);
    });
    assert_eq!(one.symbolizer.counters().panics, 0);
}

/// Guarantees: control characters, which could reach terminals, and invalid UTF-8 in names are replaced.
#[test]
fn names_that_are_no_text() {
    let parts = [
        ElfSection::code(),
        ElfSection::symbols(&[(1, ADDRESS, 16)], 3),
        ElfSection::strings(b"\0a\x1b[2Jb\xff\n\0".to_vec()),
    ];
    let (answer, _) = attack(&file(&parts), settings(), ADDRESS);
    assert_eq!(&*frames(&answer)[0].function, "a\u{fffd}[2Jb\u{fffd}\u{fffd}");
}

/// Guarantees: a debug link that is a path is ignored.
#[test]
fn links_that_are_paths() {
    let folder = tempfile::tempdir().unwrap();
    let debug = with_symbol(&[]);
    fs::write(folder.path().join("debug"), &debug).unwrap();
    let mut crc = flate2::Crc::new();
    crc.update(&debug);
    for (name, found) in [("debug", true), ("./debug", false), ("..", false), ("", false)] {
        let mut link = name.as_bytes().to_vec();
        link.push(0);
        link.resize(link.len().next_multiple_of(4), 0);
        link.extend(crc.sum().to_le_bytes());
        let path = folder.path().join("program");
        let mut program = File::create(&path).unwrap();
        program.write_all(&file(&[ElfSection::code(), ElfSection::debug(".gnu_debuglink", link)])).unwrap();
        let one = One::new(settings(), object_at(&path));
        assert_eq!(one.answer(ADDRESS).symbols().is_some(), found, "{name}");
    }
    assert!(CODE.0 <= ADDRESS && ADDRESS < CODE.1);
}

/// Guarantees: xz-compressed symbols take no more memory than allowed, whatever their size and dictionary, and
/// malformed ones have no other effect.
#[test]
fn packed_symbols() {
    if !has("xz") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let zeros = folder.path().join("zeros");
    File::create(&zeros).unwrap().set_len(64 << 20).unwrap();
    let packed = |options: &[&str]| {
        let output = Command::new("xz").args(options).arg("-kc").arg(&zeros).output().unwrap();
        assert!(output.status.success());
        output.stdout
    };
    let small = Settings { max_symbol_bytes: 4 << 20, ..settings() };
    let attack = |data: Vec<u8>| {
        let parts = [ElfSection::code(), ElfSection::debug(".gnu_debugdata", data)];
        attack(&file(&parts), small.clone(), ADDRESS).1
    };
    let large_dictionary = packed(&["--lzma2=preset=0,dict=1GiB"]);
    for bomb in [packed(&["-0"]), large_dictionary.clone()] {
        assert!(bomb.len() < 1 << 20);
        assert_eq!(attack(bomb).too_large, 1);
    }
    let good = packed(&["-0"]);
    for length in (0..good.len()).step_by(good.len() / 50 + 1) {
        attack(good[..length].to_vec());
    }
    for at in 0..64 {
        let mut bad = good.clone();
        bad[at] ^= 0xff;
        attack(bad);
    }
    // Nested compressed symbols: only the outermost are decompressed.
    let mut nested = file(&[ElfSection::code()]);
    for _ in 0..3 {
        fs::write(&zeros, &nested).unwrap();
        nested = file(&[ElfSection::code(), ElfSection::debug(".gnu_debugdata", packed(&["-0"]))]);
    }
    let path = folder.path().join("nested");
    fs::write(&path, nested).unwrap();
    assert_eq!(One::new(small, object_at(&path)).answer(ADDRESS), SymbolAnswer::Unknown(Unknown::NoSymbol));
}

/// Guarantees: the claimed size of sections in GNU's older compression is not trusted.
#[test]
fn older_compression() {
    let with = |header: &[u8]| {
        let mut data = header.to_vec();
        data.extend([0x78, 0x9c, 1, 2, 3]);
        keeps_the_symbol(vec![ElfSection::debug(".zdebug_info", data)], settings())
    };
    for size in [1_u64 << 60, u64::MAX] {
        assert_eq!(with(&[&b"ZLIB"[..], &size.to_be_bytes()].concat()).too_large, 1);
    }
    assert_eq!(with(&[&b"ZLIB"[..], &100_u64.to_be_bytes()].concat()).malformed, 1);
    assert_eq!(with(b"BLIZ").unsupported, 1);
    assert_eq!(with(b"").unsupported, 1);
}

/// Guarantees: stubs with any target, and relocations with any reference, result in an answer in time and within the
/// memory limit for names.
#[test]
fn stubs() {
    // Half of the slots have a relocation.
    let count = 1 << 17;
    let code: Vec<u8> =
        (0..count).flat_map(|nth: u32| [&[0xff, 0x25][..], &(nth * 8).to_le_bytes(), &[0, 0]].concat()).collect();
    let plt = ElfSection { flags: 6, address: 0x10_0000, ..ElfSection::debug(".plt", code) };
    let relocations = |symbol: u64| -> Vec<u8> {
        let one = |nth: u64| [0x10_0006 + nth * 16, symbol << 32 | 7, u64::MAX].map(u64::to_le_bytes).concat();
        (0..u64::from(count) / 2).flat_map(one).collect()
    };
    let mut names = vec![b'a'; 1 << 16];
    names.push(0);
    for (symbol, link) in [(0, 3), (1, 3), (u64::from(u32::MAX), 3), (1, 0), (1, u32::MAX)] {
        let symbols = ElfSection { kind: 11, ..ElfSection::symbols(&[(0, 0, 0), (1, 0, 0)], 4) };
        let table = ElfSection { kind: 4, flags: 2, link, ..ElfSection::debug(".rela.plt", relocations(symbol)) };
        let parts = [plt.clone(), table, symbols, ElfSection::strings(names.clone())];
        let (_, counters) = attack(&file(&parts), Settings { max_symbol_bytes: 8 << 20, ..settings() }, 0x10_0000);
        assert!(counters.table_bytes < 16 << 20, "{counters:?}");
    }
}

/// Guarantees: if the split file of a skeleton is not regular, is malformed, or is shared by thousands of skeletons,
/// only the skeleton's own names are lost. The bytes read from split files are limited in total.
#[test]
fn skeletons() {
    const DWO_NAME: u64 = 0x2130;
    const DWO_ID: u64 = 0x2131;
    const DATA8: u64 = 0x07;
    let folder = tempfile::tempdir().unwrap();
    let skeleton = [RANGE[0], RANGE[1], (DWO_NAME, STRING), (DWO_ID, DATA8)];
    let abbreviations = [abbreviation(1, COMPILE_UNIT, false, &skeleton)];
    let one = |nth: u64, name: &str| {
        let address = (ADDRESS + nth * 16).to_le_bytes();
        unit(0, &[&[1], &address[..], &[16], name.as_bytes(), &[0], &7_u64.to_le_bytes()].concat())
    };
    let junk = |name: &'static str, size| ElfSection::debug(name, vec![0x11; size]);
    let large = [junk(".debug_info.dwo", 1 << 20), junk(".debug_abbrev.dwo", 1 << 20), junk(".debug_str.dwo", 1 << 20)];
    let hidden: Vec<_> =
        (0..60_000).map(|_| ElfSection { size: Some(1 << 40), ..ElfSection::debug("x", Vec::new()) }).collect();
    fs::write(folder.path().join("large.dwo"), file(&large)).unwrap();
    fs::write(folder.path().join("headers.dwo"), file(&hidden)).unwrap();
    fs::write(folder.path().join("no.dwo"), b"\x7fELF").unwrap();
    let names = ["large.dwo", "headers.dwo", "no.dwo", "program", "/dev/zero", "/proc/self/mem", ".", "../..", ""];
    for name in names {
        let count = 3000;
        let info = (0..count).flat_map(|nth| one(nth, name)).collect();
        let path = folder.path().join("program");
        fs::write(&path, with_symbol(&dwarf(info, &abbreviations))).unwrap();
        // A package with the same malformed units.
        fs::write(folder.path().join("program.dwp"), file(&[junk(".debug_cu_index", 1 << 16)])).unwrap();
        let settings = Settings { max_dwarf_bytes: 32 << 20, ..settings() };
        let one = One::new(settings, object_at(&path));
        let addresses: Vec<u64> = (0..count).map(|nth| ADDRESS + nth * 16).collect();
        let answers = one.answers(&addresses);
        assert_eq!(&*frames(&answers[0])[0].function, "f", "{name}");
        let counters = one.symbolizer.counters();
        assert_eq!(counters.panics, 0, "{name} {counters:?}");
        assert!(counters.table_bytes < 32 << 20, "{name} {counters:?}");
    }
}

/// Guarantees: links to a shared file that does not exist or has no build id, and references into a missing file,
/// result in no name.
#[test]
fn links_to_shared_files() {
    // The forms are `DW_FORM_GNU_strp_alt` and `DW_FORM_GNU_ref_alt`.
    let function = [(NAME, 0x1f21), (ORIGIN, 0x1f20), RANGE[0], RANGE[1]];
    let abbreviations = [abbreviation(1, COMPILE_UNIT, true, &RANGE), abbreviation(2, SUBPROGRAM, false, &function)];
    let name = [&u32::MAX.to_le_bytes()[..], &5_u32.to_le_bytes()].concat();
    let entries = [&[1], &range()[..], &[2], &name, &range()].concat();
    for link in
        [&b""[..], b"/proc/self/exe", b"/proc/self/exe\0", b"\0\x01\x02", b"../../../../etc/passwd\0\x01\x02\x03"]
    {
        let mut parts = dwarf(unit(0, &entries), &abbreviations);
        parts.push(ElfSection::debug(".gnu_debugaltlink", link.to_vec()));
        assert_eq!(keeps_the_symbol(parts, settings()).dwarf_found, 1);
    }
}
