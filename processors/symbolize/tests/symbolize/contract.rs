use profbridge_engine::component::Now;
use profbridge_model::Telemetry;
use profbridge_processor_symbolize::Symbolize;
use profbridge_testkit as testing;
use proptest::prelude::*;

use crate::support::*;

/// Random telemetry: that of the test kit, or native frames of two peers.
fn telemetry(random: &mut fastrand::Rng, now: Now) -> Telemetry {
    if random.bool() {
        return testing::telemetry(random, 20, now);
    }
    let places: Vec<_> = (0..random.usize(0..4)).map(|_| native(0x1000 + random.u64(0..8))).collect();
    batch(if random.bool() { "a" } else { "b" }, &places).into()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Guarantees: the contract of processors: every observation is sent once, no deadline is in the past, and nothing
    /// is left after the flush.
    #[test]
    fn keeps_the_contract(seed: u64, yaml in prop::sample::select(vec!["", "timeout: 0s", "max_bytes: 4KiB", "timeout: 30s"])) {
        let (mut symbolize, fake) = symbolize(yaml);
        let mut answered = 0;
        testing::check_processor(&mut symbolize, seed, |random, now| {
            // From time to time, another name becomes known.
            if random.u8(0..3) == 0 {
                fake.set(ID, 0x1000 + answered % 8, known("f"));
                answered += 1;
            }
            telemetry(random, now)
        });
    }

    /// Guarantees: the same holds with the real background threads.
    #[test]
    fn keeps_the_contract_in_the_background(seed: u64) {
        let mut symbolize = Symbolize::new(&settings(""));
        testing::check_processor(&mut symbolize, seed, telemetry);
    }
}
