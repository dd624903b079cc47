//! Drives a processor with random telemetry at random times and checks its contract.

use std::time::Duration;

use profbridge_model::{Quantities, Telemetry};

use super::ManualClock;
use profbridge_engine::balance::Balance;
use profbridge_engine::component::{Now, Outbox, Processor};

/// Calls in one stream.
const STEPS: usize = 60;

/// The number of consecutive calls above which the processor counts as endless.
const MOST: usize = 100_000;

/// Calls `processor` with a random stream that `seed` determines, and flushes it.
///
/// `make` creates the telemetry, for instance [`super::telemetry`]. The checks are:
///
/// * conservation on every call, in each unit: `in + synthesized + held before = out + dropped + held after`;
/// * a call outputs at most one batch;
/// * nothing is due in the past after some calls of [`Processor::advance`], which would keep the thread busy forever,
///   and by then the telemetry is completely absorbed;
/// * held bytes are not zero while anything is held, and after [`Processor::flush`] nothing is held or due;
/// * a flushed processor can be flushed again, which does nothing.
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
                until_done(&place("on_memory_pressure"), |place| {
                    let mut more = false;
                    checked(processor, Quantities::NONE, place, |p, out| more = p.on_memory_pressure(now, out));
                    more
                });
            }
            1..=3 => {
                let at = processor.due().filter(|_| random.bool());
                if let Some(due) = at {
                    clock.advance(Duration::from_nanos(due.saturating_sub(now.monotonic_nano)));
                }
                let now = clock.now();
                checked(processor, Quantities::NONE, &place("advance"), |p, out| p.advance(now, out));
                advance(processor, now, &place("advance"));
            }
            _ => {
                let telemetry = make(&mut random, now);
                let inbound = telemetry.quantities();
                checked(processor, inbound, &place("process"), |p, out| p.process(telemetry, now, out));
                // Due work may stay undone for a while, but telemetry must be completely absorbed.
                if processor.is_absorbing() || random.bool() {
                    advance(processor, now, &place("advance"));
                }
            }
        }
        let held = processor.held();
        assert!(held.quantities.is_none() || held.bytes > 0, "{}: {held:?} has no bytes", place("held"));
    }
    let now = clock.now();
    let place = format!("seed {seed}, flush");
    let mut flush = |place: &str| {
        let mut put_out = false;
        until_done(place, |place| {
            let mut more = false;
            put_out |=
                !checked(processor, Quantities::NONE, place, |p, out| more = p.flush(now, out)).telemetry.is_empty();
            more
        });
        (processor.held().quantities, processor.due(), put_out)
    };
    let (held, due, _) = flush(&place);
    assert!(held.is_none(), "{place}: something is still held");
    assert_eq!(due, None, "{place}: something is still due");
    assert!(!flush(&place).2, "{place}: a second flush puts something out");
}

/// Repeats a call until there is no work left.
fn until_done(place: &str, mut call: impl FnMut(&str) -> bool) {
    let calls = (0..MOST).take_while(|_| call(place)).count();
    assert!(calls < MOST, "{place}: it does not come to an end");
}

/// Lets the processor do all due work.
fn advance(processor: &mut dyn Processor, now: Now, place: &str) {
    until_done(place, |place| {
        let is_due = processor.due().is_some_and(|due| due <= now.monotonic_nano);
        assert!(is_due || !processor.is_absorbing(), "{place}: what was handed in is not taken in");
        if is_due {
            checked(processor, Quantities::NONE, place, |p, out| p.advance(now, out));
        }
        is_due
    });
}

fn checked(
    processor: &mut dyn Processor,
    inbound: Quantities,
    place: &str,
    call: impl FnOnce(&mut dyn Processor, &mut Outbox),
) -> Outbox {
    let held_before = processor.held().quantities;
    let mut out = Outbox::default();
    call(processor, &mut out);
    let balance = Balance {
        inbound,
        synthesized: out.synthesized,
        held_before,
        outbound: out.telemetry.iter().map(Telemetry::quantities).sum(),
        dropped: out.losses.total(),
        held_after: processor.held().quantities,
    };
    assert!(balance.unaccounted().is_none(), "{place}: {balance}");
    assert!(out.telemetry.len() <= 1, "{place}: more than one batch");
    out
}
