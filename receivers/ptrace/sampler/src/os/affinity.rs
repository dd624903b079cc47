//! Chooses the processor of the calling thread.

use nix::sched::{CpuSet, sched_getaffinity, sched_getcpu, sched_setaffinity};
use nix::unistd::Pid;

/// The calling thread, for system calls.
const SELF: Pid = Pid::from_raw(0);

/// The processor on which the calling thread runs right now.
pub(crate) fn here() -> Option<u32> {
    sched_getcpu().ok().and_then(|processor| u32::try_from(processor).ok())
}

/// Binds the calling thread to one processor. Returns `false` if the kernel refuses, or if this process was restricted
/// to other processors.
pub(crate) fn bind(processor: u32) -> bool {
    let to = || {
        let processor = usize::try_from(processor).ok()?;
        let mut only = CpuSet::new();
        only.set(processor).ok()?;
        if !sched_getaffinity(SELF).ok()?.is_set(processor).ok()? {
            return None;
        }
        sched_setaffinity(SELF, &only).ok()
    };
    to().is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Guarantees: a thread can be bound to a processor it is allowed to run on, and to no other.
    #[test]
    fn binding() {
        let permitted = || {
            let set = sched_getaffinity(SELF).unwrap();
            (0..CpuSet::count()).filter(|at| set.is_set(*at).unwrap()).collect::<Vec<_>>()
        };
        std::thread::spawn(move || {
            let first = permitted()[0];
            assert!(bind(u32::try_from(first).unwrap()));
            assert_eq!(permitted(), [first]);
            for other in [first + 1, CpuSet::count(), usize::MAX >> 33] {
                assert!(!bind(u32::try_from(other).unwrap()), "{other}");
                assert_eq!(permitted(), [first]);
            }
        })
        .join()
        .unwrap();
    }
}
