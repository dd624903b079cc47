//! Simulates a kernel that refuses perf events, as the default seccomp profiles of containers do.

use std::thread;

/// Runs a function in a thread in which `perf_event_open` fails with this error, as it also does in all processes that
/// the thread starts.
#[allow(unsafe_code, reason = "no crate here installs filters")]
pub(crate) fn without_events<T: Send>(error: i32, work: impl FnOnce() -> T + Send) -> T {
    let filtered = move || {
        let jump = |code: u32, value, jump_true, jump_false| libc::sock_filter {
            code: u16::try_from(code).unwrap(),
            jt: jump_true,
            jf: jump_false,
            k: value,
        };
        let statement = |code, value| jump(code, value, 0, 0);
        let refused = u32::try_from(libc::SYS_perf_event_open).unwrap();
        // The number of the call is the first field of `struct seccomp_data` (linux/seccomp.h).
        let mut rules = [
            statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0),
            jump(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, refused, 0, 1),
            statement(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ERRNO | error.cast_unsigned()),
            statement(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ALLOW),
        ];
        let program = libc::sock_fprog { len: u16::try_from(rules.len()).unwrap(), filter: rules.as_mut_ptr() };
        nix::sys::prctl::set_no_new_privs().unwrap();
        // SAFETY: the kernel copies the program and its rules, which live for the call.
        let result = unsafe { libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program) };
        assert_eq!(result, 0, "{}", std::io::Error::last_os_error());
        work()
    };
    thread::scope(|scope| scope.spawn(filtered).join().unwrap())
}
