//! Uses arbitrary bytes as Go's function table and the unwind table of a file with valid headers.
//!
//! Checks: no panic; every address gets a final answer; the tables stay within their memory limit.
#![no_main]

#[path = "../../tests/common/elf.rs"]
mod elf;
#[path = "../../tests/common/go_table.rs"]
mod go_table;
mod target;

use elf::{ElfSection, file};
use go_table::{GoTableFunction, VERSIONS, table};
use libfuzzer_sys::fuzz_target;

const FUNCTIONS: [GoTableFunction<'_>; 2] = [
    GoTableFunction {
        name: "main.f",
        file: "/f.go",
        start: 0x2000,
        end: 0x2800,
        lines: &[(100, 3), (0x800, 5)],
        inlined: &[(200, -1), (300, 0), (0x800, -1)],
    },
    GoTableFunction { name: "main.g", file: "/g.go", start: 0x2800, end: 0x3000, lines: &[(0x800, 7)], inlined: &[] },
];

fuzz_target!(|data: &[u8]| {
    let Some((&[form, changes], rest)) = data.split_first_chunk::<2>() else { return };
    // A valid table with some bytes changed, or arbitrary bytes.
    let (go, unwind) = match VERSIONS.get(usize::from(form)) {
        Some(&version) => {
            let (changes, unwind) = rest.split_at((usize::from(changes) * 3).min(rest.len()));
            let mut go = table(version, &FUNCTIONS);
            for change in changes.chunks_exact(3) {
                let at = usize::from(u16::from_le_bytes([change[0], change[1]])) % go.len();
                go[at] = change[2];
            }
            (go, unwind)
        }
        None => {
            let (go, unwind) = rest.split_at((usize::from(changes) * 16).min(rest.len()));
            (go.to_vec(), unwind)
        }
    };
    target::ask(&file(&[
        ElfSection::code(),
        ElfSection::debug(".gopclntab", go),
        ElfSection { flags: 2, address: 0x200_0000, ..ElfSection::debug(".eh_frame", unwind.to_vec()) },
    ]));
});
