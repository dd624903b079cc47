//! On which processors the calling thread is executed.

use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;

/// The calling thread, for system calls.
const SELF: Pid = Pid::from_raw(0);

/// Has the calling thread executed on one processor only. Returns the processors on which it was before; `None` if that
/// is refused, or the processor is not among those.
pub(crate) fn bind(processor: u32) -> Option<CpuSet> {
    let before = sched_getaffinity(SELF).ok()?;
    let processor = usize::try_from(processor).ok()?;
    let mut only = CpuSet::new();
    only.set(processor).ok()?;
    // Those that were chosen for this process by others are kept to.
    if !before.is_set(processor).ok()? {
        return None;
    }
    sched_setaffinity(SELF, &only).ok().map(|()| before)
}

/// Has the calling thread executed on any of these processors.
pub(crate) fn release(to: &CpuSet) {
    sched_setaffinity(SELF, to).ok();
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Guarantees: a thread is bound to a processor that it may be executed on and to no other, and may be executed
    /// where it could before when that ends.
    #[test]
    fn binding() {
        std::thread::spawn(|| {
            let before = sched_getaffinity(SELF).unwrap();
            let permitted =
                |set: &CpuSet| (0..CpuSet::count()).filter(|at| set.is_set(*at).unwrap()).collect::<Vec<_>>();
            let first = permitted(&before)[0];
            let known = bind(u32::try_from(first).unwrap()).unwrap();
            assert_eq!(permitted(&sched_getaffinity(SELF).unwrap()), [first]);
            for other in [first + 1, CpuSet::count(), usize::MAX >> 33] {
                assert!(bind(u32::try_from(other).unwrap()).is_none(), "{other}");
            }
            release(&known);
            assert_eq!(sched_getaffinity(SELF).unwrap(), before);
        })
        .join()
        .unwrap();
    }
}
