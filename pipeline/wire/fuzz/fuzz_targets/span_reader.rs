//! Bytes that claim to be the JSON of a transaction or, behind the byte `2`, of a container of spans.
//!
//! Promises: no panic; a short word on what is wrong; memory in proportion to the bytes; what was read are objects of
//! the payload.
#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use profbridge_wire::sentry::trace_header::TraceHeader;
use profbridge_wire::sentry::{span_v2_reader, transaction_reader};

/// The longest message about a payload, in bytes: it ends up in a line of the log.
const MAX_MESSAGE: usize = 1 << 10;

fuzz_target!(|data: &[u8]| {
    let header = TraceHeader::read(data);
    let read = match data.strip_prefix(b"2") {
        Some(container) => {
            // The header of a real container tells how many there are; here every number is tried that there can be.
            let payload = Bytes::copy_from_slice(container);
            let commas = container.iter().filter(|byte| **byte == b',').count() as u64;
            (0..commas.min(8) + 2).find_map(|count| span_v2_reader::read(&payload, Some(count), &header).ok())
        }
        None => match transaction_reader::read(&Bytes::copy_from_slice(data), &header) {
            Ok(read) => Some(read),
            Err(error) => return assert!(error.to_string().len() <= MAX_MESSAGE, "{error}"),
        },
    };
    let Some(read) = read else { return };
    assert!(read.spans.size_bytes() <= 4 * data.len() as u64 + 1024);
    for span in read.spans.spans() {
        let object = read.spans.get(span.at);
        assert!(object.starts_with(b"{") && object.ends_with(b"}"));
        assert!(span.start_unix_nano <= span.end_unix_nano && span.parent_span_id != Some(span.span_id));
    }
});
