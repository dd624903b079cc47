//! Functions that the fuzz targets share.

use std::io::{Seek, SeekFrom, Write};
use std::sync::OnceLock;
use std::time::Duration;

use profbridge_symbolizer::{Object, ObjectKey, ObjectSource, Settings, Symbolizer};

/// The symbolizer, whose one thread serves all runs.
pub fn symbolizer() -> &'static Symbolizer {
    static SYMBOLIZER: OnceLock<Symbolizer> = OnceLock::new();
    SYMBOLIZER.get_or_init(|| {
        let settings = Settings {
            debug_folders: Vec::new(),
            max_symbol_bytes: 1 << 20,
            max_dwarf_bytes: 4 << 20,
            max_perf_map_bytes: 1 << 20,
            ..Settings::default()
        };
        Symbolizer::start(settings).expect("a thread")
    })
}

/// A file with these bytes.
pub fn file(bytes: &[u8]) -> std::fs::File {
    let mut file = tempfile::tempfile().expect("a file");
    file.write_all(bytes).expect("room");
    file.seek(SeekFrom::Start(0)).expect("the start");
    file
}

/// Asks for names of addresses in an ELF file.
#[allow(dead_code)]
pub fn ask(bytes: &[u8]) {
    let symbolizer = symbolizer();
    let object = symbolizer.object(Object {
        key: ObjectKey::Other("fuzzed".into()),
        source: ObjectSource::File(file(bytes)),
        root: None,
        path: "/srv/fuzzed".into(),
    });
    // The addresses that the handmade files use, and those that linkers choose.
    let mut addresses: Vec<u64> = (0..0x4000).step_by(64).chain((0x40_1000..0x40_2000).step_by(64)).collect();
    addresses.extend([u64::MAX, 1 << 63]);
    answered(symbolizer, object, &addresses);
}

/// Checks that every address gets a final answer, without a panic.
pub fn answered(symbolizer: &Symbolizer, object: profbridge_symbolizer::ObjectId, addresses: &[u64]) {
    assert_eq!(symbolizer.ask(object, addresses), addresses.len());
    assert!(symbolizer.wait(Duration::from_secs(20)), "in time");
    for &address in addresses {
        assert!(!symbolizer.answer(object, address).is_late());
    }
    let counters = symbolizer.counters();
    assert_eq!(counters.panics, 0);
    assert!(counters.table_bytes < 64 << 20, "{counters:?}");
    symbolizer.forget(object);
}
