//! Reads arbitrary bytes as the text of `/proc/PID/maps`.
//!
//! Guarantees: no panic; mappings are in order, without overlaps, and within their maximum number.
#![no_main]

use libfuzzer_sys::fuzz_target;
use profbridge_sampler::address_space::{MAX_ENTRIES, executable};

fuzz_target!(|data: &[u8]| {
    let (entries, _) = executable(data);
    assert!(entries.len() <= MAX_ENTRIES);
    assert!(entries.iter().all(|entry| entry.start < entry.end && entry.path.len() <= 4096));
    assert!(entries.windows(2).all(|pair| pair[0].end <= pair[1].start));
});
