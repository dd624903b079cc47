//! Tests of sources other than ELF files (perf maps and the vDSO), and of the symbolizer's own limits.
#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "helpers of tests")]

mod common;

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use common::{LIMIT, One, address_of, built, function, object_at, open, settings};
use profbridge_symbolizer::{ObjectKey, ObjectSource, Settings, SymbolAnswer, Symbolizer, Unknown};

/// The lengths of a perf map with one moment, at which the map has its full length.
fn always() -> Arc<Vec<u32>> {
    Arc::new(vec![u32::MAX])
}

fn perf_map(path: &Path, settings: Settings) -> One {
    let symbolizer = Symbolizer::start(settings).unwrap();
    let object = symbolizer.perf_map(1, open(path), always());
    One { symbolizer, object }
}

/// Guarantees: text appended to a perf map is found by the next request. An incomplete last line is not used, a later
/// line replaces earlier ones for its addresses, and names are not demangled.
#[test]
fn perf_maps_grow() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("perf-1.map");
    fs::write(&path, "1000 100 py::first:/app/a.py\n2000 0x80 _Z3foov\n3000 10 unfini").unwrap();
    let one = perf_map(&path, settings());
    let answers = one.answers(&[0x0fff, 0x1000, 0x10ff, 0x1100, 0x2001, 0x3000]);
    let functions: Vec<_> = answers.iter().map(function).collect();
    let first = Some("py::first:/app/a.py");
    assert_eq!(functions, [None, first, first, None, Some("_Z3foov"), None]);

    let mut file = OpenOptions::new().append(true).open(&path).unwrap();
    file.write_all(b"shed\n1080 10 moved here\n").unwrap();
    let answers = one.answers(&[0x1000, 0x1085, 0x1090, 0x3000]);
    let functions: Vec<_> = answers.iter().map(function).collect();
    assert_eq!(functions, [first, Some("moved here"), first, Some("unfinished")]);
}

/// Guarantees: a perf map that is replaced, or truncated and rewritten, is read from its start.
#[test]
fn perf_maps_are_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("perf-1.map");
    fs::write(&path, "1000 100 before\n1200 10 also before\n").unwrap();
    let one = perf_map(&path, settings());
    assert_eq!(function(&one.answer(0x1000)), Some("before"));
    fs::write(&path, "1000 100 cut\n").unwrap();
    assert_eq!(function(&one.answer(0x1000)), Some("cut"));

    let other = folder.path().join("other");
    fs::write(&other, "1000 100 replaced\n").unwrap();
    assert_eq!(one.symbolizer.perf_map(1, open(&other), always()), one.object);
    assert_eq!(function(&one.answer(0x1000)), Some("replaced"));
    assert_eq!(function(&one.answer(0x1200)), None);
}

/// Guarantees: a perf map is read up to its limit, which is logged and counted. Lines before the limit are used.
#[test]
fn perf_maps_are_limited() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("perf-1.map");
    let lines: String = (0..1000).map(|number| format!("{:x} 10 f{number}\n", 0x1000 + number * 0x10)).collect();
    fs::write(&path, &lines).unwrap();
    let one = perf_map(&path, Settings { max_perf_map_bytes: 2000, ..settings() });
    assert_eq!(function(&one.answer(0x1000)), Some("f0"));
    assert_eq!(function(&one.answer(0x1000 + 999 * 0x10)), None);
    assert_eq!(one.symbolizer.counters().too_large, 1);
}

/// Guarantees: addresses in the vDSO, which is in no file, have names.
#[test]
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
fn vdso() {
    let symbolizer = Symbolizer::start(settings()).unwrap();
    let object = symbolizer.vdso();
    let one = One { symbolizer, object };
    let addresses: Vec<u64> = (0..0x2000).step_by(16).collect();
    let functions = one.functions(&addresses);
    let known = ["clock_gettime", "__vdso_clock_gettime"];
    assert!(functions.iter().flatten().any(|function| known.contains(&&**function)), "{functions:?}");
}

/// Guarantees: known addresses are not looked up again, objects with the same key are one object, and forgetting an
/// object drops its answers.
#[test]
fn objects_and_answers() {
    let Some((_folder, program)) = built(&["gcc", "nm"], "inlined.c", &["-g"]) else { return };
    let outer = address_of(&program, "outer");
    let one = One::new(settings(), object_at(&program));
    assert_eq!(one.symbolizer.answer(one.object, outer), SymbolAnswer::Unknown(Unknown::NotAsked));
    assert_eq!(function(&one.answer(outer)), Some("outer"));
    assert_eq!(one.symbolizer.object(object_at(&program)), one.object);
    let clone = one.symbolizer.clone();
    assert_eq!(clone.ask(one.object, &[outer]), 1);
    assert_eq!(clone.waiting(), 0);
    let counters = clone.counters();
    assert_eq!((counters.objects, counters.asked, counters.symbol_tables, counters.dwarf), (1, 1, 1, 1));
    assert!(counters.answer_bytes > 0 && counters.table_bytes > 0);
    clone.forget(one.object);
    assert_eq!(clone.answer(one.object, outer), SymbolAnswer::Unknown(Unknown::NotAsked));
    assert_eq!(clone.ask(one.object, &[outer]), 0);
    assert!(clone.wait(LIMIT));
}

/// Guarantees: if too many addresses wait, further ones are refused and counted, and can be requested again.
#[test]
fn too_much_waits() {
    let Some((_folder, program)) = built(&["gcc", "nm"], "inlined.c", &[]) else { return };
    let outer = address_of(&program, "outer");
    let one = One::new(Settings { max_waiting: 4, ..settings() }, object_at(&program));
    let addresses: Vec<u64> = (outer..outer + 64).collect();
    let taken = one.symbolizer.ask(one.object, &addresses);
    assert!((4..64).contains(&taken), "{taken}");
    let refused = one.symbolizer.counters().refused;
    assert_eq!(refused, 64 - taken as u64);
    assert_eq!(one.symbolizer.answer(one.object, outer + 63), SymbolAnswer::Unknown(Unknown::Refused));
    assert!(one.symbolizer.wait(LIMIT));
    assert_eq!(function(&one.answer(outer)), Some("outer"));
}

/// Guarantees: answers and tables stay within their limits. Evicted ones are counted and can be requested again.
#[test]
fn caches_are_bounded() {
    let Some((_folder, program)) = built(&["gcc", "nm"], "inlined.c", &["-g"]) else { return };
    let outer = address_of(&program, "outer");
    let limit = 64 << 10;
    let symbolizer = Symbolizer::start(Settings { cache_bytes: limit, ..settings() }).unwrap();
    for copy in 0..60_u64 {
        let mut object = object_at(&program);
        object.key = ObjectKey::Other(copy.to_string().into());
        let object = symbolizer.object(object);
        let addresses: Vec<u64> = (outer..outer + 40).collect();
        assert_eq!(symbolizer.ask(object, &addresses), 40);
        assert!(symbolizer.wait(LIMIT));
        assert_eq!(function(&symbolizer.answer(object, outer)), Some("outer"), "{copy}");
        let counters = symbolizer.counters();
        assert!(counters.answer_bytes as usize <= limit / 4, "{counters:?}");
        assert!(counters.table_bytes as usize <= limit / 4 * 3, "{counters:?}");
    }
    let counters = symbolizer.counters();
    assert!(counters.answers_evicted > 0 && counters.tables_evicted > 0, "{counters:?}");
}

/// Guarantees: above the limits for objects and open files, the least recently used ones are evicted, and all requests
/// are answered.
#[test]
fn objects_make_room() {
    let Some((_folder, program)) = built(&["gcc", "nm"], "inlined.c", &[]) else { return };
    let outer = address_of(&program, "outer");
    let symbolizer = Symbolizer::start(Settings { max_objects: 4, max_open_files: 2, ..settings() }).unwrap();
    let mut first = None;
    for copy in 0..10_u64 {
        let mut object = object_at(&program);
        object.key = ObjectKey::Other(copy.to_string().into());
        object.source = ObjectSource::File(open(&program));
        let object = symbolizer.object(object);
        first.get_or_insert(object);
        assert_eq!(symbolizer.ask(object, &[outer]), 1);
        assert!(symbolizer.wait(LIMIT));
        assert_eq!(function(&symbolizer.answer(object, outer)), Some("outer"), "{copy}");
    }
    assert_eq!(symbolizer.answer(first.unwrap(), outer), SymbolAnswer::Unknown(Unknown::NotAsked));
    assert_eq!(symbolizer.counters().objects_evicted, 6);
}

/// Guarantees: an answer that is needed before it is final is counted as late; waiting ends at its time limit.
#[test]
fn late_answers_are_counted() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("perf-1.map");
    // Reading the files keeps the background thread busy for far longer than the requests take, unless the machine
    // delays this thread.
    for count in [400_000, 800_000, 1_600_000] {
        let lines: String = (0..count).map(|number| format!("{:x} 8 f{number}\n", number * 8)).collect();
        fs::write(&path, lines).unwrap();
        let one = perf_map(&path, settings());
        assert_eq!(one.symbolizer.ask(one.object, &[8]), 1);
        let is_waiting = !one.symbolizer.wait(Duration::ZERO);
        let is_late = one.symbolizer.last_answer(one.object, 8) == SymbolAnswer::Pending;
        assert_eq!(one.symbolizer.counters().late, u64::from(is_late));
        assert!(one.symbolizer.wait(LIMIT));
        assert_eq!(function(&one.symbolizer.last_answer(one.object, 8)), Some("f1"));
        assert_eq!(one.symbolizer.counters().late, u64::from(is_late));
        if is_waiting && is_late {
            return;
        }
    }
    panic!("each answer was there at once");
}
