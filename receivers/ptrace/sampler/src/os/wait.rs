//! Waits for threads that were asked to stop.
//!
//! Stops and exits are waited for separately: a wait for both would also consume the exit status of a child that other
//! code of this program waits for.

use std::mem::MaybeUninit;

use nix::errno::Errno;

/// A thread that stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct StopStatus {
    pub(crate) thread: u32,
    /// The signal that stopped the thread.
    pub(crate) signal: i32,
    /// The ptrace event, 0 if a signal is about to be delivered.
    pub(crate) event: i32,
}

/// The error if the calling thread traces no thread and has no children.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Nobody;

/// A thread that has stopped and was not reported yet. Does not wait.
pub(crate) fn next_stop() -> Option<StopStatus> {
    let change = wait(libc::P_ALL, 0, libc::WSTOPPED).ok()??;
    Some(StopStatus { thread: change.thread, signal: change.status & 0xff, event: change.status >> 8 })
}

/// A traced thread, or a child of this thread, that has ended and was not reaped yet; it stays unreaped. Does not wait.
pub(crate) fn next_ended() -> Result<Option<u32>, Nobody> {
    let change = match wait(libc::P_ALL, 0, libc::WEXITED | libc::WNOWAIT) {
        Ok(change) => change,
        Err(Errno::ECHILD) => return Err(Nobody),
        Err(_) => None,
    };
    // The kernel reports stops of tracees even if they are not requested (`wait_task_stopped`).
    let ended = |change: &WaitResult| matches!(change.code, libc::CLD_EXITED | libc::CLD_KILLED | libc::CLD_DUMPED);
    Ok(change.filter(ended).map(|change| change.thread))
}

/// The result of `waitid`.
struct WaitResult {
    thread: u32,
    code: i32,
    status: i32,
}

/// Reaps a thread if it has ended.
pub(crate) fn reap(thread: u32) {
    // This fails only if the thread was reaped already.
    wait(libc::P_PID, thread, libc::WEXITED).ok();
}

/// Reaps a thread if it has ended, whichever thread of this program traces it.
pub(crate) fn reap_for_another_thread(thread: u32) {
    wait_as(libc::P_PID, thread, libc::WEXITED).ok();
}

/// Waits for threads traced by the calling thread.
fn wait(kind: libc::idtype_t, id: u32, options: libc::c_int) -> Result<Option<WaitResult>, Errno> {
    wait_as(kind, id, options | libc::__WNOTHREAD)
}

#[allow(unsafe_code, reason = "nix refuses the statuses of real-time signals after it consumed them")]
fn wait_as(kind: libc::idtype_t, id: u32, options: libc::c_int) -> Result<Option<WaitResult>, Errno> {
    let mut info = MaybeUninit::<libc::siginfo_t>::zeroed();
    // SAFETY: the kernel writes a `siginfo_t` to the pointer, and reads nothing.
    let result = unsafe { libc::waitid(kind, id, info.as_mut_ptr(), options | libc::WNOHANG | libc::__WALL) };
    Errno::result(result)?;
    // SAFETY: `info` was zeroed, and all its fields are integers and addresses, for which 0 is a value.
    let info = unsafe { info.assume_init() };
    // SAFETY: `waitid` fills the fields of SIGCHLD; if no thread has changed, they stay 0.
    let (process, status) = unsafe { (info.si_pid(), info.si_status()) };
    let thread = u32::try_from(process).ok().filter(|thread| *thread != 0);
    Ok(thread.map(|thread| WaitResult { thread, code: info.si_code, status }))
}
