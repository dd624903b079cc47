//! Uses arbitrary bytes as a perf map that arrives in two parts.
//!
//! Checks: no panic; every address gets a final answer.
#![no_main]

mod target;

use std::io::Write;
use std::sync::Arc;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let (first, second) = data.split_at(data.len() / 2);
    let mut file = target::file(&[]);
    file.write_all(first).expect("room");
    let symbolizer = target::symbolizer();
    let object = symbolizer.perf_map(1, file.try_clone().expect("a descriptor"), Arc::new(vec![u32::MAX, 40]));
    let addresses: Vec<u64> = (0..0x100).collect();
    assert_eq!(symbolizer.ask(object, &addresses), addresses.len());
    assert!(symbolizer.wait(std::time::Duration::from_secs(20)), "in time");
    file.write_all(second).expect("room");
    target::answered(symbolizer, object, &addresses);
});
