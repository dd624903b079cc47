//! Bytes that claim to be an ELF file.
//!
//! Promises: no panic; every address gets a final answer; what the tables take stays within what was allowed.
#![no_main]

mod target;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| target::ask(data));
