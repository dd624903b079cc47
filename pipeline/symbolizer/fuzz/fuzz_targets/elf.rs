//! Uses arbitrary bytes as an ELF file.
//!
//! Checks: no panic; every address gets a final answer; the tables stay within their memory limit.
#![no_main]

mod target;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| target::ask(data));
