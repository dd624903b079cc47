//! Observations whose thread is not known, on as many synthetic threads as no overlap needs.
//!
//! A process that runs on two cores is observed twice per period. On one thread each observation would own half of its
//! time, since a sample owns the time until the next.

use std::collections::BTreeSet;

use super::limits::{EARLY, MAX_SYNTHETIC_LANES};
use super::observe::Observed;
use super::threads::Threads;
use super::timeline::{number, tick};

/// Lays sorted keys on synthetic threads.
///
/// Each goes to the thread on which the time of the last observation ends nearest to it: a core's timer ticks
/// steadily, so that is the core it came from. It may come early by a part of its weight ([`EARLY`]).
pub(super) fn lay(keys: &[u64], seen: &[Observed], threads: &mut Threads) {
    // Threads on which values without timestamps lie already are not theirs: times would overlap on them.
    let taken = threads.synthetic_len();
    // When a thread is free, and its number.
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
