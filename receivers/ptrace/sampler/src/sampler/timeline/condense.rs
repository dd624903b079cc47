//! Makes few observations of many waits, with the same sums.

use std::hash::Hash;
use std::time::{Duration, Instant};

use hashbrown::HashMap;

use super::{Cause, Wait};

/// In how much time waits are that are summed, unless they are less than a long one together: their sum is shown as one
/// wait, and what was between them beside it.
const SUMMED: Duration = Duration::from_millis(50);

/// A wait, or several short ones of one cause at one place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::sampler) struct Observation<P> {
    pub(in crate::sampler) place: Option<P>,
    /// Preempted: it waited for a processor.
    pub(in crate::sampler) cause: Cause,
    /// When the first one began.
    pub(in crate::sampler) at: Instant,
    pub(in crate::sampler) nano: u64,
}

/// Waits of at least `long_nano` are observations of their own. Shorter ones are summed by place and cause within [`SUMMED`], and if these
/// are more than `most`, they have chances by their lengths to stand for all of them.
pub(in crate::sampler) fn condense<P: Clone + Eq + Hash>(
    waits: Vec<Wait<P>>,
    long_nano: u64,
    most: usize,
) -> Vec<Observation<P>> {
    let mut observations = Vec::new();
    let mut short: Vec<Observation<P>> = Vec::new();
    let mut known = HashMap::<(Option<P>, Cause), usize, foldhash::fast::FixedState>::default();
    let mut add = |place: Option<P>, cause, at: Instant, nano| {
        let index = known.entry((place.clone(), cause)).or_insert(short.len());
        match short.get_mut(*index) {
            Some(of) if of.nano < long_nano || at.saturating_duration_since(of.at) < SUMMED => of.nano += nano,
            _ => {
                *index = short.len();
                short.push(Observation { place, cause, at, nano });
            }
        }
    };
    for Wait { begins: at, nano, queued_nano, cause, place, .. } in waits {
        let queued = queued_nano.min(nano);
        if queued > 0 {
            add(place.clone(), Cause::Preempted, at, queued);
        }
        match nano - queued {
            0 => {}
            nano if nano < long_nano => add(place, cause, at, nano),
            nano => observations.push(Observation { place, cause, at, nano }),
        }
    }
    observations.extend(represent(short, most.max(1)));
    observations.sort_by_key(|observation| observation.at);
    observations
}

/// At most `most` of these, which have the time of all: one at each of so many equal steps through it.
fn represent<P>(all: Vec<Observation<P>>, most: usize) -> Vec<Observation<P>> {
    if all.len() <= most {
        return all;
    }
    let mut left: u64 = all.iter().map(|observation| observation.nano).sum();
    let step = left.div_ceil(most as u64).max(1);
    let (mut passed, mut next) = (0, step / 2);
    let mut kept: Vec<Observation<P>> = Vec::with_capacity(most);
    for observation in all {
        passed += observation.nano;
        let mut nano = 0;
        while next < passed {
            next += step;
            nano += step.min(left - nano);
        }
        if nano > 0 {
            left -= nano;
            kept.push(Observation { nano, ..observation });
        }
    }
    if let Some(last) = kept.last_mut() {
        last.nano += left;
    }
    kept
}
