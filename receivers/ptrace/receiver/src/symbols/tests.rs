use std::io::Write as _;
use std::time::Duration;

use profbridge_ptrace::message::ProcessId;
use profbridge_symbolize::Settings;

use super::*;

fn batch(locations: &[Location]) -> Batch {
    Batch { locations: locations.to_vec(), ..Batch::default() }
}

fn mapping(path: &str, file: Option<File>) -> Mapping {
    Mapping {
        process: ProcessId(1),
        index: 0,
        path: path.to_owned(),
        start: 0,
        end: u64::MAX,
        file_offset: 0,
        build_id: None,
        htlhash: None,
        main: true,
        file,
    }
}

/// Guarantees: an address of the perf map gets the name that stands there, as soon as it was asked for.
#[test]
fn perf_maps_name_addresses_without_a_mapping() {
    let symbolizer = Symbolizer::start(Settings::default()).unwrap();
    let mut names = ProcessNames::new(symbolizer.clone(), 1, None);
    let mut file = tempfile::tempfile().unwrap();
    writeln!(file, "1000 100 py::work:app.py").unwrap();
    let jit = Location { mapping: None, address: 0x1010 };
    assert!(names.symbols(jit).is_none());
    names.perf_map(file);
    let batch = batch(&[jit, Location { mapping: Some(7), address: 1 }]);
    names.ask(&batch);
    assert!(symbolizer.wait(Duration::from_secs(60)));
    assert!(!names.is_late(&batch));
    assert_eq!(&*names.symbols(jit).unwrap().frames[0].function, "py::work:app.py");
}

/// Guarantees: a file is asked for by its identity; one that was not kept open is found again inside of the process's root; what
/// is no ELF file has no names and is waited for no longer.
#[test]
fn files() {
    let symbolizer = Symbolizer::start(Settings::default()).unwrap();
    let folder = tempfile::tempdir().unwrap();
    std::fs::copy(std::env::current_exe().unwrap(), folder.path().join("program")).unwrap();
    let open = || File::open(folder.path().join("program")).unwrap();
    let mut names = ProcessNames::new(symbolizer.clone(), 1, Some(File::open(folder.path()).unwrap()));
    for _ in 0..MAX_OPEN_FILES {
        names.mapping(mapping("/program", Some(open())));
    }
    // Not kept open.
    names.mapping(mapping("/program", Some(open())));
    names.mapping(mapping("", None));
    let mut text = tempfile::tempfile().unwrap();
    text.write_all(b"no program").unwrap();
    assert!(matches!(names.places[MAX_OPEN_FILES], Place::Unasked { file: None, .. }));
    let at = |index: usize| Location { mapping: Some(index as u32), address: 8 };
    let batch = batch(&[at(MAX_OPEN_FILES), at(MAX_OPEN_FILES + 1), at(0)]);
    names.ask(&batch);
    assert!(symbolizer.wait(Duration::from_secs(60)));
    assert!(!names.is_late(&batch));
    assert!(matches!(names.places[MAX_OPEN_FILES + 1], Place::Nothing));
    // Address 8 is in the ELF header, in no function; the file itself was read.
    assert_eq!((symbolizer.counters().files_missing, symbolizer.counters().symbol_tables), (0, 1));
}
