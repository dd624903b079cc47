//! The sampling thread's priority. Without a raised priority, a stopped thread may, rarely, have to wait until the
//! sampler is scheduled: more than 100 ms on a saturated machine.

use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::unistd::{getpid, getsid};

/// How long a real-time thread may run without sleeping, in microseconds: after the first time the kernel sends
/// SIGXCPU, after the second SIGKILL. A tick takes less than a hundredth of that.
const REALTIME_LIMIT: (u64, u64) = (200_000, 400_000);

/// The requested nice value: a higher priority than ordinary programs have, but lower than an operator may give.
const NICE: libc::c_int = -15;

/// The requested time slice, in nanoseconds: the shortest that the kernel grants. A thread with a short slice is
/// scheduled sooner after it wakes (Linux 6.12, EEVDF); older kernels ignore it.
const SLICE: u64 = 100_000;

/// Raises the calling thread's priority as far as allowed. Returns whether that worked.
pub(crate) fn raise(realtime: bool) -> bool {
    if realtime && be_realtime() {
        return true;
    }
    let raised = be_nice();
    if raised {
        raise_session();
    }
    take_short_slices(if raised { NICE } else { 0 });
    raised
}

/// Makes the kernel schedule the calling thread soon after it is woken, as far as allowed, by real-time scheduling,
/// else by a short time slice and a raised priority.
pub(crate) fn raise_wakeup_priority() {
    if !be_realtime() {
        take_short_slices(if be_nice() { NICE } else { 0 });
    }
}

/// If the kernel groups sessions for scheduling, nice values only count within a session (sched(7), "The autogroup
/// feature"). So the session's own value is raised as well, if this process is a session leader.
fn raise_session() {
    if getsid(None) == Ok(getpid()) {
        // The file does not exist if the kernel does not group sessions.
        std::fs::write("/proc/self/autogroup", NICE.to_string()).ok();
    }
}

#[allow(unsafe_code, reason = "nix has no sched_setattr")]
fn take_short_slices(nice: libc::c_int) {
    // SAFETY: all fields of `sched_attr` are integers, for which 0 is a value.
    let mut attributes: libc::sched_attr = unsafe { std::mem::zeroed() };
    attributes.size = size_of::<libc::sched_attr>() as u32;
    attributes.sched_policy = libc::SCHED_OTHER as u32;
    attributes.sched_nice = nice;
    attributes.sched_runtime = SLICE;
    // SAFETY: the kernel reads `size` bytes of the attributes, which live for the call; 0 is the calling thread.
    unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attributes, 0) };
}

/// Sets the lowest priority of the real-time scheduler, not inherited by children.
fn be_realtime() -> bool {
    let limited = getrlimit(Resource::RLIMIT_RTTIME).is_ok_and(|(_, hard)| {
        let limit = REALTIME_LIMIT.1.min(hard);
        setrlimit(Resource::RLIMIT_RTTIME, REALTIME_LIMIT.0.min(limit), limit).is_ok()
    });
    limited && set_fifo()
}

#[allow(unsafe_code, reason = "nix has no sched_setscheduler")]
fn set_fifo() -> bool {
    // SAFETY: all fields of `sched_param` are integers, for which 0 is a value.
    let mut parameters: libc::sched_param = unsafe { std::mem::zeroed() };
    parameters.sched_priority = 1;
    // SAFETY: the parameters live for the call, which reads them; 0 is the calling thread.
    unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO | libc::SCHED_RESET_ON_FORK, &raw const parameters) == 0 }
}

#[allow(unsafe_code, reason = "nix has no setpriority")]
fn be_nice() -> bool {
    // SAFETY: no memory is involved; on Linux, 0 is the calling thread and not the process (setpriority(2), "C
    // library/kernel differences").
    unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, NICE) == 0 }
}
