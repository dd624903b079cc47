//! Uses arbitrary bytes as sections that contain packed names or refer to names elsewhere, in a file with valid
//! headers: stubs and their relocations, `.gnu_debugdata`, the older compression, links to other files.
//!
//! Checks: no panic; every address gets a final answer; the tables stay within their memory limit.
#![no_main]

#[path = "../../tests/common/elf.rs"]
mod elf;
mod target;

use elf::{ElfSection, file};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let mut rest = data;
    // Each section is preceded by its length.
    let mut next = || {
        let (length, after) = rest.split_first_chunk::<2>()?;
        let (section, after) = after.split_at(usize::from(u16::from_le_bytes(*length)).min(after.len()));
        rest = after;
        Some(section.to_vec())
    };
    let mut section = |name| ElfSection::debug(name, next().unwrap_or_default());
    target::ask(&file(&[
        ElfSection { flags: 6, address: 0x2000, ..section(".plt") },
        ElfSection { kind: 4, flags: 2, link: 3, ..section(".rela.plt") },
        ElfSection { kind: 11, link: 4, ..section(".dynsym") },
        ElfSection { kind: 3, ..section(".dynstr") },
        section(".gnu_debugdata"),
        section(".zdebug_info"),
        section(".zdebug_abbrev"),
        section(".gnu_debugaltlink"),
        ElfSection::code(),
    ]));
});
