//! On which processors the calling thread is executed.

use nix::sched::{CpuSet, sched_getaffinity, sched_getcpu, sched_setaffinity};
use nix::unistd::Pid;

/// The calling thread, for system calls.
const SELF: Pid = Pid::from_raw(0);

/// The processor that executes the calling thread right now.
pub(crate) fn here() -> Option<u32> {
    sched_getcpu().ok().and_then(|processor| u32::try_from(processor).ok())
}

/// That the calling thread is executed on one processor only.
#[derive(Debug)]
pub(crate) struct Bound {
    only: CpuSet,
    /// Where it may be executed afterwards.
    otherwise: CpuSet,
}

/// Has the calling thread executed on one processor only. `None` if that is refused, or if it may not be executed
/// there.
pub(crate) fn bind(processor: u32) -> Option<Bound> {
    let before = sched_getaffinity(SELF).ok()?;
    let processor = usize::try_from(processor).ok()?;
    let mut only = CpuSet::new();
    only.set(processor).ok()?;
    // Those that were chosen for this process by others are kept to.
    if !before.is_set(processor).ok()? {
        return None;
    }
    let otherwise = if is_unrestricted(&before)? { all() } else { before };
    sched_setaffinity(SELF, &only).ok().map(|()| Bound { only, otherwise })
}

/// Whether the calling thread may be executed on these processors because there are no others, or none that its control
/// group has. Processors that come later are then among them, which they would not be if these were chosen.
fn is_unrestricted(before: &CpuSet) -> Option<bool> {
    sched_setaffinity(SELF, &all()).ok()?;
    let is_it = sched_getaffinity(SELF).is_ok_and(|now| now == *before);
    if !is_it {
        sched_setaffinity(SELF, before).ok()?;
    }
    Some(is_it)
}

fn all() -> CpuSet {
    let mut all = CpuSet::new();
    for processor in 0..CpuSet::count() {
        all.set(processor).ok();
    }
    all
}

/// Has the calling thread executed where it could be before it was bound, unless others have chosen anew since.
pub(crate) fn release(bound: &Bound) {
    if sched_getaffinity(SELF).is_ok_and(|now| now == bound.only) && sched_setaffinity(SELF, &bound.otherwise).is_err()
    {
        // Its control group has none of those processors any more.
        sched_setaffinity(SELF, &all()).ok();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn permitted() -> Vec<usize> {
        let set = sched_getaffinity(SELF).unwrap();
        (0..CpuSet::count()).filter(|at| set.is_set(*at).unwrap()).collect()
    }

    /// Guarantees: a thread is bound to a processor that it may be executed on and to no other, and may be executed
    /// where it could before when that ends, or where others have chosen meanwhile.
    #[test]
    fn binding() {
        std::thread::spawn(|| {
            let before = permitted();
            let (first, last) = (before[0], before[before.len() - 1]);
            let to = |processor: usize| bind(u32::try_from(processor).unwrap());
            let bound = to(first).unwrap();
            assert_eq!(permitted(), [first]);
            for other in [first + 1, CpuSet::count(), usize::MAX >> 33] {
                assert!(to(other).is_none(), "{other}");
            }
            release(&bound);
            assert_eq!(permitted(), before);
            let mut chosen = CpuSet::new();
            chosen.set(last).unwrap();
            let bound = to(first).unwrap();
            sched_setaffinity(SELF, &chosen).unwrap();
            release(&bound);
            assert_eq!(permitted(), [last]);
            release(&to(last).unwrap());
            assert_eq!(permitted(), [last]);
        })
        .join()
        .unwrap();
    }
}
