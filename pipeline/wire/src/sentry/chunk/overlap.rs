//! Distributes observations without a thread to as few synthetic threads as possible, without overlaps.
//!
//! A process that runs on two cores is sampled twice per period. On a single thread each observation would get half of
//! its time, since Sentry attributes to a sample only the time until the next one.

use std::collections::BTreeSet;

use super::limits::{EARLY, MAX_SYNTHETIC_LANES};
use super::threads::Threads;
use super::timeline::{RowObservation, number, tick};

/// Distributes sorted keys to synthetic threads.
///
/// Each observation goes to the thread whose last observation ends nearest to it: a core's timer is regular, so that is
/// probably the same core. The observation may come early by a fraction of its weight ([`EARLY`]).
pub(super) fn place_on_threads(keys: &[u64], seen: &[RowObservation], threads: &mut Threads) {
    // Threads that already have values without timestamps are excluded, because times would overlap on them.
    let taken = threads.synthetic_len();
    // The time at which a thread becomes free, and its number.
    let mut free: BTreeSet<(u64, usize)> = BTreeSet::new();
    for &key in keys {
        let (at, weight) = (tick(key), seen[number(key)].weight);
        let early = free.range((at, 0)..=(at + weight / EARLY, usize::MAX)).next().copied();
        let late = free.range(..(at, 0)).next_back().copied();
        let nearest = match (early, late) {
            (Some(early), Some(late)) => Some(if early.0 - at <= at - late.0 { early } else { late }),
            (early, late) => early.or(late),
        };
        let chosen = match nearest {
            None if free.len() >= MAX_SYNTHETIC_LANES => free.first().copied(),
            nearest => nearest,
        };
        let lane = match chosen {
            Some(entry) => {
                free.remove(&entry);
                entry.1
            }
            None => taken + free.len(),
        };
        free.insert((at + weight, lane));
        let index = threads.synthetic(lane);
        threads.lanes_mut()[index].keys.push(key);
    }
}
