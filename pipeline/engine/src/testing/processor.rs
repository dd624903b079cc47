//! Drives a processor with random telemetry at random times and holds it against its contract.

use std::time::Duration;

use profbridge_model::Telemetry;

use super::ManualClock;
use crate::balance::Balance;
use crate::component::{Now, Outbox, Processor};

/// Calls in one stream.
const STEPS: usize = 60;

/// Drives `processor` with a random stream that `seed` determines, and flushes it.
///
/// `make` makes the telemetry, for instance [`super::telemetry`]. Checked are:
///
/// * conservation on every call: `in + synthesized + held before = out + dropped + held after`;
/// * that nothing is due in the past after [`Processor::advance`], which would keep the thread busy for ever;
/// * that bytes are held where observations are, and that [`Processor::flush`] leaves nothing held and nothing due;
/// * that a processor that was flushed can be flushed again and then does nothing.
///
/// # Panics
///
/// When the processor breaks its contract. The message names the seed, the step and the numbers.
pub fn check_processor(
    processor: &mut dyn Processor,
    seed: u64,
    mut make: impl FnMut(&mut fastrand::Rng, Now) -> Telemetry,
) {
    let mut random = fastrand::Rng::with_seed(seed);
    let clock = ManualClock::default();
    clock.advance(Duration::from_secs(3600));
    for step in 0..STEPS {
        let place = |call: &str| format!("seed {seed}, step {step}, {call}");
        if random.u8(0..4) == 0 {
            clock.advance(Duration::from_millis(random.u64(0..40_000)));
        }
        let now = clock.now();
        match random.u8(0..10) {
            0 => {
                checked(processor, 0, &place("relieve"), |p, out| p.relieve(now, out));
            }
            1..=3 => {
                let at = processor.due().filter(|_| random.bool());
                if let Some(due) = at {
                    clock.advance(Duration::from_nanos(due.saturating_sub(now.monotonic_nano)));
                }
                let now = clock.now();
                checked(processor, 0, &place("advance"), |p, out| p.advance(now, out));
                let due = processor.due();
                assert!(
                    due.is_none_or(|due| due > now.monotonic_nano),
                    "{}: still due at {due:?} after advance at {}",
                    place("due"),
                    now.monotonic_nano
                );
            }
            _ => {
                let telemetry = make(&mut random, now);
                let inbound = telemetry.observations();
                checked(processor, inbound, &place("process"), |p, out| p.process(telemetry, now, out));
            }
        }
        let held = processor.held();
        assert!(held.observations == 0 || held.bytes > 0, "{}: {held:?} has no bytes", place("held"));
    }
    let now = clock.now();
    let place = format!("seed {seed}, flush");
    checked(processor, 0, &place, |p, out| p.flush(now, out));
    assert_eq!(processor.held().observations, 0, "{place}: something is still held");
    assert_eq!(processor.due(), None, "{place}: something is still due");
    let again = checked(processor, 0, &place, |p, out| p.flush(now, out));
    assert!(again.telemetry.is_empty(), "{place}: a second flush puts something out");
}

fn checked(
    processor: &mut dyn Processor,
    inbound: u64,
    place: &str,
    call: impl FnOnce(&mut dyn Processor, &mut Outbox),
) -> Outbox {
    let held_before = processor.held().observations;
    let mut out = Outbox::default();
    call(processor, &mut out);
    let balance = Balance {
        inbound,
        synthesized: out.synthesized,
        held_before,
        outbound: out.telemetry.iter().map(Telemetry::observations).sum(),
        dropped: out.losses.total(),
        held_after: processor.held().observations,
    };
    assert_eq!(balance.unaccounted(), 0, "{place}: {balance}");
    out
}
