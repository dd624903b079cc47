//! The records of a ring, one after the other, as their headers say how long they are.
//!
//! Promises: no panic; every step goes on by a whole record; a stack is part of its record, and no longer than was
//! asked for.
#![no_main]

use libfuzzer_sys::fuzz_target;
use profbridge_sampler::perf::attr::STACK_BYTES;
use profbridge_sampler::perf::record::{RecordHeader, Record, parse};

fuzz_target!(|data: &[u8]| {
    let mut rest = data;
    while let Some(Ok(header)) = rest.first_chunk().map(|header| RecordHeader::parse(*header)) {
        let Some((record, behind)) = rest.split_at_checked(header.length) else { break };
        assert!(header.process_at().is_none_or(|place| place < 4096));
        if let Ok(Record::Sample(sample)) = parse(record) {
            assert!(sample.stack.len() <= record.len() && sample.stack.len() <= STACK_BYTES as usize);
            assert!(sample.kernel.addresses().count() <= record.len() / 8);
        }
        rest = behind;
    }
});
