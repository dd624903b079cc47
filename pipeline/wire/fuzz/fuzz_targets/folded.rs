//! Uses arbitrary bytes as collapsed stacks.
//!
//! Guarantees: no panic; each line is in the profile or refused; the output can be read, and results in the same
//! output.
#![no_main]

use libfuzzer_sys::fuzz_target;
use profbridge_wire::folded::{CountUnit, Folded, Threads, is_flat, is_folded, read};

fn written(text: &[u8]) -> (Vec<u8>, u64) {
    let read = read(text, CountUnit::Samples).expect("less than 4 GiB");
    let mut folded = Folded::new(Threads::Apart);
    folded.add(&read.profiles);
    let mut out = Vec::new();
    folded.write(&mut out).expect("memory can be written to");
    (out, read.refused_lines)
}

fuzz_target!(|data: &[u8]| {
    is_folded(data);
    is_flat(data, true);
    let (once, refused) = written(data);
    let lines = data.split(|&byte| byte == b'\n').filter(|line| !line.trim_ascii().is_empty()).count();
    assert!(once.iter().filter(|&&byte| byte == b'\n').count() as u64 + refused <= lines as u64);
    // Control characters are written as spaces, which are ignored at the ends of a name, so only the second output is
    // final.
    let twice = written(&once).0;
    assert_eq!(written(&twice).0, twice);
});
