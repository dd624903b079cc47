//! Reads arbitrary bytes as records of a perf ring buffer; the header of each gives its length.
//!
//! Guarantees: no panic; every step advances by a whole record; a stack is part of its record, and no longer than the
//! requested size.
#![no_main]

use libfuzzer_sys::fuzz_target;
use profbridge_sampler::perf::attr::STACK_BYTES;
use profbridge_sampler::perf::record::{Record, RecordHeader, parse};

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
