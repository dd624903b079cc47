//! Uses arbitrary bytes as an envelope: reads and writes it, and reads its chunks, converts them back and folds them.
//!
//! Guarantees: no panic; an accepted envelope is the same after writing and reading it; the numbers of observations are
//! consistent.
#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use profbridge_relay_rules::{Strictness, validate};
use profbridge_wire::folded::{Folded, Threads};
use profbridge_wire::sentry::chunk::{Collected, Converter, Settings};
use profbridge_wire::sentry::{chunk_reader, envelope};

fuzz_target!(|data: &[u8]| {
    let chunk = chunk_reader::read(data).ok();
    let parsed = envelope::read(Bytes::copy_from_slice(data)).ok();
    let mut batches: Vec<_> = chunk.into_iter().collect();
    if let Some(parsed) = &parsed {
        let written = envelope::write(&parsed.envelope, parsed.ending).expect("nothing is packed");
        let again = envelope::read(written.into()).expect("what was written is read");
        assert_eq!(again.envelope.header, parsed.envelope.header);
        assert_eq!(again.envelope.items, parsed.envelope.items);
        batches.extend(chunk_reader::read_items(&parsed.envelope).filter_map(|(_, read)| read.ok()));
    }
    for batch in &batches {
        let mut folded = Folded::new(Threads::Apart);
        folded.add(batch);
        let mut collected = Collected::default();
        let report = Converter::new(Settings::default()).convert(batch, &mut collected);
        assert!(report.balanced(), "{report:?}");
        for (json, _) in &collected.chunks {
            // The profiler may be another program, whose id need not have the form of profbridge's.
            validate(json, Strictness::Relay).expect("a chunk that Relay accepts");
        }
    }
});
