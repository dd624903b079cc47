//! Uses arbitrary bytes as sections that contain packed names or refer to names elsewhere, in a file with valid
//! headers: stubs and their relocations, `.gnu_debugdata`, the older compression, links to other files.
//!
//! Checks: no panic; every address gets a final answer; the tables stay within their memory limit.
#![no_main]

mod target;
#[path = "../../tests/common/elf.rs"]
mod elf;

use elf::{Part, file};
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
    let mut section = |name| Part::debug(name, next().unwrap_or_default());
    target::ask(&file(&[
        Part { flags: 6, address: 0x2000, ..section(".plt") },
        Part { kind: 4, flags: 2, link: 3, ..section(".rela.plt") },
        Part { kind: 11, link: 4, ..section(".dynsym") },
        Part { kind: 3, ..section(".dynstr") },
        section(".gnu_debugdata"),
        section(".zdebug_info"),
        section(".zdebug_abbrev"),
        section(".gnu_debugaltlink"),
        Part::code(),
    ]));
});
