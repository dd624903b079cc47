//! Uses arbitrary bytes as OTLP in JSON: as a request of spans if the first byte is odd, otherwise of profiles.
//!
//! Guarantees: no panic; memory for the protobuf message is requested before it is allocated, and is at most four times
//! the text; an accepted request is the same after writing and reading it; a request of profiles is decoded like its
//! message.
#![no_main]

use libfuzzer_sys::fuzz_target;
use profbridge_wire::otlp::json::{self, Message};
use profbridge_wire::otlp::{Limits, traces};

fuzz_target!(|data: &[u8]| {
    let Some((&first, text)) = data.split_first() else { return };
    let message = if first & 1 == 0 { Message::ProfilesRequest } else { Message::TracesRequest };
    let mut written = Vec::new();
    // Invalid JSON is passed to the writer too, since it may be a protobuf message.
    drop(json::write(message, text, 1 << 20, &mut written));
    let limits = Limits::default();
    let mut granted = 0;
    let mut grant = |wanted: usize| {
        granted = granted.max(wanted);
        true
    };
    let Ok(read) = json::read(message, text, &limits, &mut grant) else { return };
    assert!(read.capacity() <= granted.max(read.len()) && read.len() <= 4 * text.len());
    written.clear();
    json::write(message, &read, usize::MAX, &mut written).expect("what was read can be written");
    let again = json::read(message, &written, &Limits { max_request: usize::MAX, ..limits }, &mut |_| true);
    let again = again.expect("what was written can be read");
    let mut rewritten = Vec::new();
    json::write(message, &again, usize::MAX, &mut rewritten).expect("what was read can be written");
    assert_eq!(rewritten, written);
    match message {
        Message::TracesRequest => drop(traces::decode(read.into(), &limits)),
        _ => drop(json::decode(text, &limits)),
    }
});
