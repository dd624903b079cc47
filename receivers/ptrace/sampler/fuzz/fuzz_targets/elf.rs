//! Reads arbitrary bytes as an ELF file.
//!
//! Guarantees: no panic; memory in proportion to the file; every function in the index can be looked up, or the lookup
//! fails with an error.
#![no_main]

use libfuzzer_sys::fuzz_target;
use profbridge_sampler::elf::{Context, ElfObject};

fuzz_target!(|data: &[u8]| {
    let Ok(object) = ElfObject::read(data) else { return };
    assert!(object.memory() <= 4 * data.len() + 4096);
    object.bias(0x7f00_0000_0000, 0x1000);
    object.executable_range();
    let Some(tables) = object.tables() else { return };
    let mut context = Context::new_in();
    let starts: Vec<u64> = tables.starts().take(256).collect();
    assert!(starts.is_sorted() && tables.functions() <= data.len());
    for start in starts {
        for address in [start, start.wrapping_add(1), start.wrapping_add(40)] {
            if let Ok(Some(found)) = tables.row(address, &mut context) {
                assert!(found.row.contains(address));
            }
        }
    }
});
