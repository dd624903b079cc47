//! Drives an exporter's `prepare` with random telemetry and checks its contract.

use profbridge_model::Telemetry;

use super::ManualClock;
use profbridge_engine::balance::Balance;
use profbridge_engine::component::{Exporter, Now};

/// Batches in one stream.
const BATCHES: usize = 40;

/// Lets `exporter` prepare random telemetry determined by `seed`, and checks conservation:
/// `in + synthesized = quantities of the requests + losses` in each unit, and that no request has an empty body.
///
/// `make` creates the telemetry, for instance [`super::telemetry`].
///
/// # Panics
///
/// When the exporter breaks its contract. The message names the seed and the numbers.
pub fn check_prepare<E: Exporter>(exporter: &E, seed: u64, mut make: impl FnMut(&mut fastrand::Rng, Now) -> Telemetry) {
    let mut random = fastrand::Rng::with_seed(seed);
    let now = ManualClock::default().now();
    for batch in 0..BATCHES {
        let telemetry = make(&mut random, now);
        let prepared = exporter.prepare(&telemetry, now);
        let balance = Balance {
            inbound: telemetry.quantities(),
            synthesized: prepared.synthesized,
            outbound: prepared.requests.iter().map(|request| request.quantities).sum(),
            dropped: prepared.losses.total(),
            ..Balance::default()
        };
        assert!(balance.unaccounted().is_none(), "seed {seed}, batch {batch}: {balance}");
        assert!(
            prepared.requests.iter().all(|request| !request.body.is_empty()),
            "seed {seed}, batch {batch}: a request has no body"
        );
    }
}
