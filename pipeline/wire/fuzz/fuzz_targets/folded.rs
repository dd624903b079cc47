//! Bytes that claim to be collapsed stacks.
//!
//! Promises: no panic; each line is in the profile or refused; what was written is read again, and written as the same.
#![no_main]

use libfuzzer_sys::fuzz_target;
use profbridge_wire::folded::{Counted, Folded, Threads, is_flat, is_folded, read};

fn written(text: &[u8]) -> (Vec<u8>, u64) {
    let read = read(text, Counted::Samples).expect("less than 4 GiB");
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
    // Control characters are written as spaces, which mean nothing at the ends of a name.
    let twice = written(&once).0;
    assert_eq!(written(&twice).0, twice);
});
