//! Finds another thread's list of robust mutexes. The list is part of the thread's own data, and the kernel returns its
//! address without stopping the thread.

/// The address of a thread's list; `None` if there is no list or access is denied. Needs the same right as reading the
/// thread's memory (get_robust_list(2): PTRACE_MODE_READ), and neither stops nor delays the thread.
#[allow(unsafe_code, reason = "neither nix nor libc has get_robust_list")]
pub(crate) fn robust_list(thread: u32) -> Option<u64> {
    let (mut head, mut size) = (0_u64, 0_u64);
    let thread = libc::pid_t::try_from(thread).ok()?;
    // SAFETY: the kernel writes an address and a word-sized length to variables that live for the call.
    let answer = unsafe { libc::syscall(libc::SYS_get_robust_list, thread, &raw mut head, &raw mut size) };
    (answer == 0 && head != 0).then_some(head)
}
