//! Uses arbitrary bytes as the DWARF sections of a file with valid headers.
//!
//! Checks: no panic; every address gets a final answer; the tables stay within their memory limit.
#![no_main]

#[path = "../../tests/common/elf.rs"]
mod elf;
mod target;

use elf::{ElfSection, file};
use libfuzzer_sys::fuzz_target;

const NAMES: [&str; 9] = [
    ".debug_info",
    ".debug_abbrev",
    ".debug_line",
    ".debug_line_str",
    ".debug_str",
    ".debug_str_offsets",
    ".debug_addr",
    ".debug_ranges",
    ".debug_rnglists",
];

fuzz_target!(|data: &[u8]| {
    // Each section is preceded by its length.
    let mut rest = data;
    let mut parts = vec![ElfSection::code()];
    for name in NAMES {
        let Some((length, after)) = rest.split_first_chunk::<2>() else { break };
        let length = usize::from(u16::from_le_bytes(*length)).min(after.len());
        let (section, after) = after.split_at(length);
        rest = after;
        parts.push(ElfSection::debug(name, section.to_vec()));
    }
    target::ask(&file(&parts));
});
