//! Calls a processor step by step, and returns its output.

use profbridge_engine::component::{Now, Outbox, Processor, flush_all, process_all};
use profbridge_model::{Profiles, Telemetry};

use super::START_UNIX_NANO;

/// A second in nanoseconds.
pub const SECOND: u64 = 1_000_000_000;

/// The time `nanos` nanoseconds after [`START_UNIX_NANO`]; the monotonic clock began five seconds before that.
pub fn at(nanos: u64) -> Now {
    Now { monotonic_nano: 5 * SECOND + nanos, unix_nano: START_UNIX_NANO + nanos }
}

/// Passes telemetry to a processor.
pub fn process(processor: &mut impl Processor, telemetry: impl Into<Telemetry>, now: Now) -> Outbox {
    let mut out = Outbox::default();
    process_all(processor, telemetry.into(), now, &mut out);
    out
}

/// Lets a processor do all due work.
pub fn advance(processor: &mut impl Processor, now: Now) -> Outbox {
    let mut out = Outbox::default();
    while processor.due().is_some_and(|due| due <= now.monotonic_nano) {
        processor.advance(now, &mut out);
    }
    out
}

/// Makes a processor emit all held data, as at the shutdown.
pub fn flush(processor: &mut impl Processor, now: Now) -> Outbox {
    let mut out = Outbox::default();
    flush_all(processor, now, &mut out);
    out
}

/// The total count of a note.
pub fn note(out: &Outbox, name: &str) -> u64 {
    out.notes.iter().filter(|(known, _)| *known == name).map(|(_, count)| count).sum()
}

/// The profiles that were emitted, in order, including those in envelopes.
pub fn sent_profiles(out: &Outbox) -> Vec<Profiles> {
    out.telemetry.iter().flat_map(Telemetry::profiles).cloned().collect()
}
