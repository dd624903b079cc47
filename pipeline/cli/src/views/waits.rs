//! What a blocked thread waits for, by the functions on its stack.

use super::stacks::StackFunction;

/// What a thread waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum WaitReason {
    /// A processor.
    Processor,
    /// The lock of Python's interpreter.
    Gil,
    /// The lock of Ruby's virtual machine.
    Gvl,
    /// A lock, a condition variable, a semaphore or a queue.
    Lock,
    /// A file, pipe or socket, in a call that reads or writes it.
    Transfer,
    /// A page of memory.
    Page,
    /// A child process.
    Child,
    /// Events of any of several descriptors, as event loops do.
    Poll,
    /// A new connection.
    Connection,
    /// A time.
    Sleep,
    /// A signal.
    Signal,
    /// A debugger, or a signal that stopped the process.
    Stopped,
    /// The stack does not show the reason.
    Unknown,
}

/// The reason is searched for in this many functions, from the innermost one on.
const MOST_FUNCTIONS: usize = 16;

/// Functions that name the reason wherever they are among the innermost ones, since they wait by other means: a
/// condition variable for the GIL, `select` for a sleep.
const OUTER: [(WaitReason, &str); 5] = [
    (WaitReason::Gil, "take_gil"),
    (WaitReason::Gvl, "thread_sched_to_running thread_sched_wait_running gvl_acquire"),
    (
        WaitReason::Sleep,
        "pysleep time_sleep sleep_timespec sleep_hrtime JVM_Sleep zif_sleep zif_usleep time.Sleep std::thread::sleep",
    ),
    (WaitReason::Poll, "runtime.netpoll uv__io_poll"),
    (WaitReason::Page, "do_page_fault"),
];

/// System calls, and the C library's functions for them.
const CALLS: [(WaitReason, &str); 6] = [
    (WaitReason::Sleep, "nanosleep clock_nanosleep clock_nanosleep_time64 usleep sleep"),
    (
        WaitReason::Poll,
        "epoll_wait epoll_pwait epoll_pwait2 poll ppoll select pselect pselect6 io_uring_enter io_getevents",
    ),
    (WaitReason::Connection, "accept accept4"),
    (WaitReason::Child, "wait wait3 wait4 waitid waitpid"),
    (
        WaitReason::Transfer,
        "read readv pread pread64 preadv write writev pwrite pwrite64 pwritev recv recvfrom recvmsg recvmmsg send \
         sendto sendmsg sendmmsg sendfile sendfile64 splice connect fsync fdatasync sync_file_range open open64 \
         openat openat64 close fstat stat lstat fstatat newfstatat statx getdents getdents64 unlink rename flock \
         ftruncate",
    ),
    (WaitReason::Signal, "sigwait sigwaitinfo sigtimedwait rt_sigtimedwait sigsuspend pause"),
];

/// How names of functions begin that wait for a lock.
const LOCKS: &str = "futex lll_lock pthread_cond pthread_mutex pthread_rwlock sem_ pthread_join pthread_clockjoin uv_cond \
                     uv_sem runtime.futex runtime.semasleep";

/// The frames at the end of folded stacks.
const FRAMES: [(WaitReason, &str); 13] = [
    (WaitReason::Processor, "[waiting for a processor]"),
    (WaitReason::Gil, "[waiting for the GIL]"),
    (WaitReason::Gvl, "[waiting for the GVL]"),
    (WaitReason::Lock, "[waiting for a lock]"),
    (WaitReason::Transfer, "[waiting for a file or socket]"),
    (WaitReason::Page, "[waiting for a page of memory]"),
    (WaitReason::Child, "[waiting for a child process]"),
    (WaitReason::Poll, "[waiting for events]"),
    (WaitReason::Connection, "[waiting for a connection]"),
    (WaitReason::Sleep, "[sleeping]"),
    (WaitReason::Signal, "[waiting for a signal]"),
    (WaitReason::Stopped, "[stopped]"),
    (WaitReason::Unknown, "[waiting]"),
];

/// How a frame begins that names the file or socket.
const FOR: &str = "[waiting for ";

impl WaitReason {
    /// The reason by the functions of a stack, innermost first.
    pub(crate) fn of<'a>(leaf_first: impl Iterator<Item = &'a StackFunction>) -> Self {
        let mut found = None;
        for (at, function) in leaf_first.take(MOST_FUNCTIONS).enumerate() {
            if function.is_placeholder() {
                match &*function.name {
                    "[waiting for a processor]" => return Self::Processor,
                    "[stopped]" => return Self::Stopped,
                    "[waiting, not seen]" | "[unseen threads]" | "[no sampler process]" => return Self::Unknown,
                    _ => {}
                }
                continue;
            }
            let name = bare(&function.name);
            if let Some(reason) = listed(&OUTER, name).or_else(|| listed(&OUTER, &function.name)) {
                return reason;
            }
            // An interpreted function made the call that was found, so the reason is known.
            if function.is_interpreted && at > 0 && found.is_some() {
                break;
            }
            found = found.or_else(|| Self::of_call(name));
        }
        found.unwrap_or(Self::Unknown)
    }

    /// The reason by the name of a system call, or of the C library's function for it.
    fn of_call(name: &str) -> Option<Self> {
        let name = name.strip_suffix("_cancel").or_else(|| name.strip_suffix("_nocancel")).unwrap_or(name);
        let is_lock = || LOCKS.split(' ').any(|start| name.starts_with(start));
        listed(&CALLS, name).or_else(|| is_lock().then_some(Self::Lock))
    }

    /// Its name for people.
    pub(crate) fn name(self) -> &'static str {
        named(self.frame())
    }

    /// The frame at the end of a folded stack.
    pub(crate) fn frame(self) -> &'static str {
        FRAMES.iter().find(|(reason, _)| *reason == self).map_or("[waiting]", |(_, frame)| frame)
    }

    /// The reason that a frame of a folded stack names. It may name the very file or socket.
    pub(crate) fn of_frame(frame: &str) -> Option<Self> {
        let known = FRAMES.iter().find(|(_, known)| *known == frame).map(|(reason, _)| *reason);
        known.or_else(|| frame.starts_with(FOR).then_some(Self::Transfer))
    }
}

/// The frame of a wait for this file or socket.
pub(super) fn frame_for(awaited: &str) -> String {
    format!("{FOR}{awaited}]")
}

/// What a frame of a folded stack says that is waited for.
pub(crate) fn named(frame: &str) -> &str {
    let name = frame.trim_start_matches('[').trim_start_matches("waiting for ");
    let name = name.strip_suffix(']').unwrap_or(name);
    ["a ", "the "].iter().find_map(|article| name.strip_prefix(article)).unwrap_or(name)
}

/// The reason whose list has a name.
fn listed(lists: &[(WaitReason, &str)], name: &str) -> Option<WaitReason> {
    lists.iter().find(|(_, names)| names.split(' ').any(|known| known == name)).map(|(reason, _)| *reason)
}

/// A function's name without the marks of the C library's variants: `__GI___libc_read@@GLIBC_2.2.5` is `read`.
fn bare(name: &str) -> &str {
    let mut name = name.split('@').next().unwrap_or_default();
    loop {
        let trimmed = name.trim_start_matches('_');
        let rest = ["GI_", "libc_", "new_", "old_", "internal_sys"].iter().find_map(|mark| trimmed.strip_prefix(mark));
        match rest {
            Some(rest) => name = rest,
            None => return trimmed,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Guarantees: the reason is derived from the blocking call and, if that serves several purposes, from its caller.
    #[test]
    fn reasons() {
        for (expected, names) in [
            (WaitReason::Sleep, &["__GI___clock_nanosleep", "time_sleep", "main"][..]),
            (WaitReason::Sleep, &["__select", "pysleep"]),
            (WaitReason::Gil, &["__futex_abstimed_wait_common64", "pthread_cond_timedwait@@GLIBC_2.3.2", "take_gil"]),
            (WaitReason::Gvl, &["futex_wait", "pthread_cond_wait", "thread_sched_to_running"]),
            (WaitReason::Lock, &["__lll_lock_wait", "pthread_mutex_lock"]),
            (WaitReason::Lock, &["[libc.so.6]+0x91000", "pthread_cond_wait"]),
            (WaitReason::Poll, &["epoll_wait", "uv__io_poll"]),
            (WaitReason::Connection, &["accept4"]),
            (WaitReason::Transfer, &["__libc_recv", "sock_recv"]),
            (WaitReason::Child, &["__GI___wait4"]),
            (WaitReason::Processor, &["[waiting for a processor]", "read"]),
            (WaitReason::Unknown, &["handle", "main"]),
            (WaitReason::Unknown, &[]),
        ] {
            let functions: Vec<StackFunction> = names
                .iter()
                .map(|name| StackFunction {
                    module: if name.starts_with("[waiting") { "" } else { "libc.so.6" }.into(),
                    ..StackFunction::placeholder(name)
                })
                .collect();
            assert_eq!(WaitReason::of(functions.iter()), expected, "{names:?}");
        }
    }
}
