//! Reduces many waits to few observations without changing their sums.

use std::hash::Hash;
use std::time::{Duration, Instant};

use hashbrown::HashMap;

use super::{Cause, Wait};

/// Short waits at one place within this time are added up, or for longer if their sum is still less than a long wait.
/// The sum is shown as one wait, and what happened between these waits is shown before or after it.
const SUMMED: Duration = Duration::from_millis(50);

/// A wait, or several short ones of one cause at one place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::sampler) struct WaitObservation<P> {
    pub(in crate::sampler) place: Option<P>,
    /// Why the thread waited; if preempted, it waited for a processor.
    pub(in crate::sampler) cause: Cause,
    /// The beginning of the first wait.
    pub(in crate::sampler) at: Instant,
    pub(in crate::sampler) nano: u64,
}

/// Waits of at least `long_nano` become observations of their own. Shorter ones are added up by place and cause within
/// [`SUMMED`]. If more than `most` sums result, at most `most` of them are kept, each with a probability in proportion
/// to its length, and the total time is divided among these.
pub(in crate::sampler) fn condense<P: Clone + Eq + Hash>(
    waits: Vec<Wait<P>>,
    long_nano: u64,
    most: usize,
) -> Vec<WaitObservation<P>> {
    let mut observations = Vec::new();
    let mut short: Vec<WaitObservation<P>> = Vec::new();
    let mut known = HashMap::<(Option<P>, Cause), usize, foldhash::fast::FixedState>::default();
    let mut add = |place: Option<P>, cause, at: Instant, nano| {
        let index = known.entry((place.clone(), cause)).or_insert(short.len());
        match short.get_mut(*index) {
            Some(of) if of.nano < long_nano || at.saturating_duration_since(of.at) < SUMMED => of.nano += nano,
            _ => {
                *index = short.len();
                short.push(WaitObservation { place, cause, at, nano });
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
            nano => observations.push(WaitObservation { place, cause, at, nano }),
        }
    }
    observations.extend(represent(short, most.max(1)));
    observations.sort_by_key(|observation| observation.at);
    observations
}

/// Keeps at most `most` of these, which get the time of all: the total time is cut into `most` equal steps, and the
/// observation in the middle of each step is kept.
fn represent<P>(all: Vec<WaitObservation<P>>, most: usize) -> Vec<WaitObservation<P>> {
    if all.len() <= most {
        return all;
    }
    let mut left: u64 = all.iter().map(|observation| observation.nano).sum();
    let step = left.div_ceil(most as u64).max(1);
    let (mut passed, mut next) = (0, step / 2);
    let mut kept: Vec<WaitObservation<P>> = Vec::with_capacity(most);
    for observation in all {
        passed += observation.nano;
        let mut nano = 0;
        while next < passed {
            next += step;
            nano += step.min(left - nano);
        }
        if nano > 0 {
            left -= nano;
            kept.push(WaitObservation { nano, ..observation });
        }
    }
    if let Some(last) = kept.last_mut() {
        last.nano += left;
    }
    kept
}
