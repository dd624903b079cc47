//! Sampling decisions that are the same in every replica, because they are computed from the id of a trace or profiler
//! instead of at random.

use profbridge_model::{ProfilerId, TraceId};
use xxhash_rust::xxh3::xxh3_64;

/// Maps an id to a position from 0 (inclusive) to 1 (exclusive), evenly distributed over all ids.
#[must_use]
pub fn position(draw: u64) -> f64 {
    // A float represents integers of up to 53 bits exactly.
    (draw >> 11) as f64 / (1_u64 << 53) as f64
}

/// The position of a trace. A separate hash makes it independent of other samplers: OpenTelemetry's SDKs use the last
/// bytes of the id directly, so these bytes are not evenly distributed among the traces that an SDK kept.
#[must_use]
pub fn trace(trace_id: TraceId) -> f64 {
    position(drawn(b"profbridge trace 1\0", trace_id.bytes()))
}

/// The position of a profiling session, computed from its profiler id.
#[must_use]
pub fn session(profiler_id: ProfilerId) -> f64 {
    position(drawn(b"profbridge session 1\0", profiler_id.as_bytes()))
}

fn drawn(purpose: &[u8], id: &[u8; 16]) -> u64 {
    xxh3_64(&[purpose, id].concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Guarantees: positions lie in [0, 1), in the order of the inputs; so rate 0 keeps nothing and rate 1 everything.
    #[test]
    fn ends_of_the_scale() {
        assert_eq!((position(0), position(1 << 63)), (0.0, 0.5));
        assert!(position(u64::MAX) < 1.0 && position(u64::MAX) > 0.999_999);
    }

    /// Guarantees: ids that differ in one bit are distributed evenly, a tenth of them in each tenth within four
    /// standard deviations, and a trace has a different position than a profiler with the same id.
    /// rule: tracing-sdk#sample-rate
    #[test]
    fn ids_are_spread_evenly() {
        let mut tenths = [[0_u32; 10]; 2];
        for n in 1_u128..=20_000 {
            let id = n.to_be_bytes();
            let traced = trace(TraceId::new(&id).unwrap());
            let profiled = session(ProfilerId::from_hash(n));
            tenths[0][(traced * 10.0) as usize] += 1;
            tenths[1][(profiled * 10.0) as usize] += 1;
        }
        let deviation = (20_000.0_f64 * 0.1 * 0.9).sqrt();
        for count in tenths.concat() {
            assert!((f64::from(count) - 2000.0).abs() < 4.0 * deviation, "{tenths:?}");
        }
        let id = 7_u128.to_be_bytes();
        assert_ne!(trace(TraceId::new(&id).unwrap()), session(ProfilerId::from_hash(7)));
    }

    /// Guarantees: decisions are the same in every release of profbridge, so replicas of two releases agree.
    #[test]
    fn positions_are_pinned() {
        let id = TraceId::parse("4bf92f3577b34da6a3ce929d0e0e4736").unwrap();
        assert_eq!(format!("{:.6}", trace(id)), "0.426009");
        assert_eq!(format!("{:.6}", session(ProfilerId::from_hash(7))), "0.411524");
    }
}
