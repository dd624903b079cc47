//! When threads are on a CPU.

use fastrand::Rng;

/// Ticks that a thread stays on a CPU, on average.
const BURST: f64 = 40.0;

/// Ticks that a thread is away, on average.
const PAUSE: f64 = 8.0;

/// How far an observation may lie behind its tick, in nanoseconds.
const JITTER: u64 = 40_000;

/// The share of ticks at which a thread is on a CPU.
const DUTY: f64 = BURST / (BURST + PAUSE);

/// The times in `window` (nanoseconds from the host's start) at which one thread is seen, in order.
///
/// `phase` is where the thread's CPU ticks within a period. The thread starts running with the probability [`DUTY`].
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
