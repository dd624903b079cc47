//! Simulates when threads run on a CPU.

use fastrand::Rng;

/// Average number of ticks that a thread runs on a CPU.
const BURST: f64 = 40.0;

/// Average number of ticks that a thread pauses.
const PAUSE: f64 = 8.0;

/// The maximum delay of an observation after its tick, in nanoseconds.
const JITTER: u64 = 40_000;

/// The fraction of ticks at which a thread runs on a CPU.
const DUTY: f64 = BURST / (BURST + PAUSE);

/// The times in `window` (nanoseconds from the host's start) at which one thread is observed, in order.
///
/// `phase` is the offset of the CPU's ticks within a period. The thread is initially running with the probability
/// [`DUTY`].
pub(super) fn observations(rng: &mut Rng, window: std::ops::Range<u64>, period: u64, phase: u64) -> Vec<u64> {
    let mut running = rng.f64() < DUTY;
    let mut times = Vec::new();
    let first = window.start.saturating_sub(phase).div_ceil(period) * period + phase;
    for tick in (first..window.end.saturating_sub(JITTER)).step_by(period as usize) {
        if running {
            times.push(tick + rng.u64(..JITTER));
        }
        let stays = 1.0 - 1.0 / if running { BURST } else { PAUSE };
        running = if rng.f64() < stays { running } else { !running };
    }
    times
}
