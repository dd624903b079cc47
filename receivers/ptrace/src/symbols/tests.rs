use std::io::Write as _;
use std::path::Path;
use std::time::Duration;

use profbridge_symbolizer::Settings;

use super::*;

fn batch(locations: &[Location]) -> Batch {
    Batch { locations: locations.to_vec(), ..Batch::default() }
}

/// Guarantees: after its name was requested, an address in the perf map has the name from there.
#[test]
fn perf_maps_name_addresses_without_a_mapping() {
    let symbolizer = Symbolizer::start(Settings::default()).unwrap();
    let mut names = ProcessNames::new(symbolizer.clone(), 1, None);
    let mut file = tempfile::tempfile().unwrap();
    writeln!(file, "1000 100 py::work:app.py").unwrap();
    let jit = Location::Native { mapping: None, address: 0x1010 };
    assert!(names.symbols(jit).is_none());
    names.perf_map(file);
    let batch = batch(&[jit, Location::Native { mapping: Some(7), address: 1 }]);
    names.ask(&batch);
    assert!(symbolizer.wait(Duration::from_secs(60)));
    assert!(!names.is_late(&batch));
    assert_eq!(&*names.symbols(jit).unwrap().frames[0].function, "py::work:app.py");
}

/// A symbolizer that reads no DWARF, and a copy of the test's own program in a folder that is used as a root.
fn rig(settings: Settings) -> (Symbolizer, tempfile::TempDir) {
    let symbolizer = Symbolizer::start(Settings { dwarf: false, ..settings }).unwrap();
    let folder = tempfile::tempdir().unwrap();
    for name in ["one", "two"] {
        std::fs::copy(std::env::current_exe().unwrap(), folder.path().join(name)).unwrap();
    }
    (symbolizer, folder)
}

/// A process in that root with mappings of `one` and `two`. Its kept files are not shared with other tests.
fn process(symbolizer: &Symbolizer, folder: &Path, number: u64) -> ProcessNames {
    let mut names = ProcessNames::new(symbolizer.clone(), number, Some(File::open(folder).unwrap()));
    names.kept = Box::leak(Box::default());
    for name in ["one", "two"] {
        names.mapping(&format!("/{name}"), Some(File::open(folder.join(name)).unwrap()));
    }
    names
}

/// Addresses of functions of this program within its file. It is position-independent, and its first mapping starts at
/// the beginning of its file.
fn addresses() -> [u64; 2] {
    let program = std::env::current_exe().unwrap();
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let line = maps.lines().find(|line| line.ends_with(program.to_str().unwrap())).unwrap();
    let base = u64::from_str_radix(line.split('-').next().unwrap(), 16).unwrap();
    [rig as *const () as u64 - base + 1, addresses as *const () as u64 - base + 1]
}

fn name(names: &ProcessNames, mapping: u32, address: u64) -> Option<String> {
    let symbols = names.symbols(Location::Native { mapping: Some(mapping), address })?;
    Some(symbols.frames[0].function.to_string())
}

/// Requests names until no more are expected.
fn ask(names: &mut ProcessNames, symbolizer: &Symbolizer, mapping: u32, address: u64) {
    let batch = batch(&[Location::Native { mapping: Some(mapping), address }]);
    names.ask(&batch);
    for _ in 0..5 {
        assert!(symbolizer.wait(Duration::from_secs(60)));
        if !names.is_late(&batch) {
            return;
        }
    }
    panic!("always late");
}

/// Guarantees: a file is looked up by its identity; one that was not kept open is found again inside the process's
/// root; a file that is not ELF has no names and is no longer waited for.
#[test]
fn files() {
    let (symbolizer, folder) = rig(Settings::default());
    let mut names = process(&symbolizer, folder.path(), 1);
    names.mapping("", None);
    let mut text = tempfile::tempfile().unwrap();
    text.write_all(b"no program").unwrap();
    names.mapping("/text", Some(text));
    for source in &mut names.sources[..2] {
        let SymbolOrigin::File { file, .. } = &mut source.origin else { panic!() };
        assert!(file.take().is_some());
    }
    for (index, expected) in [(0, true), (1, true), (2, false), (3, false), (9, false)] {
        ask(&mut names, &symbolizer, index, addresses()[0]);
        assert_eq!(name(&names, index, addresses()[0]).is_some_and(|name| name.contains("rig")), expected, "{index}");
    }
    assert_eq!((symbolizer.counters().files_missing, symbolizer.counters().symbol_tables), (0, 2));
}

/// Guarantees: files that the symbolizer closed to make room, or dropped with all their names, get names again through
/// the process's root.
#[test]
fn room_for_others() {
    for settings in [
        Settings { max_open_files: 1, cache_bytes: 64 << 10, ..Settings::default() },
        Settings { max_objects: 1, ..Settings::default() },
    ] {
        let (symbolizer, folder) = rig(settings);
        let mut names = process(&symbolizer, folder.path(), 1);
        let [first, second] = addresses();
        ask(&mut names, &symbolizer, 0, first);
        assert!(name(&names, 0, first).unwrap().contains("rig"));
        ask(&mut names, &symbolizer, 1, first);
        ask(&mut names, &symbolizer, 0, second);
        assert!(name(&names, 0, second).unwrap().contains("addresses"));
    }
}

/// Guarantees: a file that is no longer reachable through one process's root is found through that of another one that
/// has mapped it, and a file that is unreachable is not waited for.
#[test]
fn lost_files() {
    let (symbolizer, folder) = rig(Settings { max_open_files: 1, cache_bytes: 64 << 10, ..Settings::default() });
    let other = tempfile::tempdir_in(folder.path().parent().unwrap()).unwrap();
    std::fs::hard_link(folder.path().join("one"), other.path().join("one")).unwrap();
    std::fs::hard_link(folder.path().join("two"), other.path().join("two")).unwrap();
    let [first, second] = addresses();
    let mut names = process(&symbolizer, folder.path(), 1);
    let mut others = process(&symbolizer, other.path(), 2);
    // No file is open, and the first process's path is gone.
    for source in names.sources.iter_mut().chain(&mut others.sources) {
        let SymbolOrigin::File { file, .. } = &mut source.origin else { panic!() };
        *file = None;
    }
    std::fs::remove_file(folder.path().join("one")).unwrap();
    ask(&mut names, &symbolizer, 0, first);
    assert_eq!(name(&names, 0, first), None);
    for _ in 0..2 {
        ask(&mut others, &symbolizer, 0, second);
        // Pretend that time has passed.
        others.sources[0].retried = None;
    }
    assert!(name(&others, 0, second).unwrap().contains("addresses"));
}

/// Guarantees: additions to a perf map are read even after the symbolizer closed it to make room.
#[test]
fn closed_perf_maps() {
    let (symbolizer, folder) = rig(Settings { max_open_files: 1, ..Settings::default() });
    let mut names = process(&symbolizer, folder.path(), 1);
    let mut file = tempfile::tempfile().unwrap();
    writeln!(file, "1000 100 early").unwrap();
    names.perf_map(file.try_clone().unwrap());
    let at = |address| batch(&[Location::Native { mapping: None, address }]);
    names.ask(&at(0x1010));
    assert!(symbolizer.wait(Duration::from_secs(60)));
    ask(&mut names, &symbolizer, 0, addresses()[0]);
    writeln!(file, "2000 100 late").unwrap();
    names.ask(&at(0x2010));
    assert!(symbolizer.wait(Duration::from_secs(60)));
    assert_eq!(
        &*names.symbols(Location::Native { mapping: None, address: 0x2010 }).unwrap().frames[0].function,
        "late"
    );
}

/// Guarantees: an address whose code was replaced gets the name that the perf map had at the time of the sample,
/// whenever it is requested, and however many different times there are.
#[test]
fn replaced_code() {
    let symbolizer = Symbolizer::start(Settings::default()).unwrap();
    let mut names = ProcessNames::new(symbolizer.clone(), 1, None);
    let mut file = tempfile::tempfile().unwrap();
    let mut lengths = vec![0];
    for name in ["old", "new", "newest"] {
        writeln!(file, "1000 100 {name}").unwrap();
        lengths.push(u32::try_from(file.metadata().unwrap().len()).unwrap());
    }
    names.perf_map(file);
    let native = Location::Native { mapping: None, address: 0x1010 };
    let name = |names: &ProcessNames, length| {
        names.symbols(native.with_map(length)).map(|symbols| symbols.frames[0].function.to_string())
    };
    let ask = |names: &mut ProcessNames, lengths: &[u32]| {
        let batch = batch(&lengths.iter().map(|length| native.with_map(*length)).collect::<Vec<_>>());
        names.ask(&batch);
        assert!(symbolizer.wait(Duration::from_secs(60)));
        assert!(!names.is_late(&batch));
    };
    ask(&mut names, &lengths);
    for (length, expected) in [(0, "old"), (lengths[1], "old"), (lengths[2], "new"), (lengths[3], "newest")] {
        assert_eq!(name(&names, length).as_deref(), Some(expected), "{length}");
    }
    // Pretend that the map has grown for a very long time.
    names.map_lengths = Arc::new((1_000..).take(MAX_MOMENTS - 1).collect());
    ask(&mut names, &[7, 8, 1_000]);
    for length in [7, 8, 1_000] {
        assert_eq!(name(&names, length).as_deref(), Some("newest"), "{length}");
    }
}
