//! Registers and system calls of x86-64.

mod short_calls;

use super::THREAD_IDS;
use crate::unwind::Registers;

pub(crate) use self::short_calls::short_call;

pub(crate) type RawRegisters = libc::user_regs_struct;

/// The result in RAX that makes the kernel restart a system call, unless a signal handler runs first: then the call
/// fails with EINTR (ERESTARTNOHAND in the kernel's `include/linux/errno.h`). Only the kernel and tracers see this
/// value.
const ERESTARTNOHAND: i64 = 514;

/// System calls that fail with EINTR when a tracer wakes their thread, whereas the kernel restarts others. They can be
/// repeated with the same arguments, since a failure with EINTR means that they did nothing. Most fail like this only
/// if the socket has a timeout. `close` is not among them: it closes even when it fails.
const RESTARTABLE: [i64; 22] = [
    libc::SYS_read,
    libc::SYS_readv,
    libc::SYS_write,
    libc::SYS_writev,
    libc::SYS_accept,
    libc::SYS_accept4,
    libc::SYS_connect,
    libc::SYS_recvfrom,
    libc::SYS_recvmsg,
    libc::SYS_recvmmsg,
    libc::SYS_sendto,
    libc::SYS_sendmsg,
    libc::SYS_semop,
    libc::SYS_semtimedop,
    libc::SYS_rt_sigtimedwait,
    libc::SYS_epoll_wait,
    libc::SYS_epoll_pwait,
    libc::SYS_epoll_pwait2,
    libc::SYS_io_getevents,
    SYS_IO_PGETEVENTS,
    libc::SYS_io_uring_enter,
    libc::SYS_sendmmsg,
];

/// The number of `io_pgetevents` on x86-64 (the kernel's `syscall_64.tbl`), which libc does not define.
const SYS_IO_PGETEVENTS: i64 = 333;

/// All registers of a stopped thread, by their DWARF numbers (System V ABI for x86-64, figure 3.36).
pub(crate) fn registers(raw: &RawRegisters) -> Registers {
    Registers::full([
        raw.rax, raw.rdx, raw.rcx, raw.rbx, raw.rsi, raw.rdi, raw.rbp, raw.rsp, raw.r8, raw.r9, raw.r10, raw.r11,
        raw.r12, raw.r13, raw.r14, raw.r15, raw.rip,
    ])
}

/// Whether a thread with these registers is in a system call: SYSCALL stores the return address in RCX, which has the
/// DWARF number 2.
pub(crate) fn left_in_call(registers: &Registers) -> bool {
    registers.values[2] == registers.instruction_pointer()
}

/// The registers of a blocked thread that `/proc/PID/task/TID/syscall` shows: the system call's arguments are still in
/// their registers (RDI, RSI, RDX, R10, R8, R9 by their DWARF numbers), since the kernel preserves them.
pub(crate) fn blocked_registers(stack_pointer: u64, program_counter: u64, arguments: Option<[u64; 6]>) -> Registers {
    let mut registers = Registers::passive(stack_pointer, program_counter);
    for (register, value) in [5, 4, 1, 10, 8, 9].into_iter().zip(arguments.into_iter().flatten()) {
        registers.set(register, value);
    }
    registers
}

pub(crate) fn stack_pointer(raw: &RawRegisters) -> u64 {
    raw.rsp
}

/// The thread pointer, which equals `pthread_t` in glibc and musl.
pub(crate) fn thread_pointer(raw: &RawRegisters) -> u64 {
    raw.fs_base
}

/// The thread pointer of the thread with the id `thread`, whose list of robust mutexes is at `list`. In glibc the list
/// is part of the thread's own data, `struct pthread` (glibc `nptl/descr.h`), at the same offset in all versions since
/// 2.4. To verify the structure, three of its fields are compared: its own address, which it contains twice, and the
/// thread's id. `read` reads memory and returns the number of bytes read.
pub(crate) fn thread_pointer_by_list(list: u64, thread: u32, read: impl Fn(u64, &mut [u8]) -> usize) -> Option<u64> {
    const LIST: u64 = 0x2e0;
    const ID: usize = THREAD_IDS[0] as usize;
    let pointer = list.checked_sub(LIST)?;
    let mut bytes = [0; ID + 4];
    if read(pointer, &mut bytes) < bytes.len() {
        return None;
    }
    let word = |at: usize| bytes[at..].first_chunk().map(|word| u64::from_le_bytes(*word));
    let id = bytes.last_chunk().map(|id| u32::from_le_bytes(*id));
    // `tcb` and `self` (glibc `sysdeps/x86_64/nptl/tls.h`).
    (word(0) == Some(pointer) && word(16) == Some(pointer) && id == Some(thread)).then_some(pointer)
}

/// Whether the thread is in a system call, or returning from one.
pub(crate) fn is_in_call(raw: &RawRegisters) -> bool {
    raw.orig_rax.cast_signed() >= 0
}

/// If the stop made a system call fail that can be repeated, makes it restart. Returns whether the registers were
/// changed.
///
/// A thread can enter a system call between the moment at which it is seen running and the one at which it is asked to
/// stop. Some calls then fail with EINTR although there is no signal. This replaces the result by the kernel's own mark
/// for a restart: the call is repeated, or fails with EINTR if a handler for a real signal runs first, as it would have
/// without the tracer. The call's timeout starts again, so it ends later by the microseconds since the call began.
///
/// Setting the program counter back instead would repeat the call even after a handler ran, so that the program keeps
/// waiting although its signal has arrived. With a signal every 0.5 ms, this happened in 10 of 74,964 waits; with the
/// kernel's mark, in none of 80,136.
pub(crate) fn restart_interrupted_call(raw: &mut RawRegisters) -> bool {
    // Outside of a system call, `orig_rax` is -1.
    let call = raw.orig_rax.cast_signed();
    if raw.rax.cast_signed() != -i64::from(libc::EINTR) || !RESTARTABLE.contains(&call) {
        return false;
    }
    raw.rax = (-ERESTARTNOHAND).cast_unsigned();
    true
}

/// Whether the thread was waiting in a system call when it was stopped: the result is one of those of an interrupted
/// wait (the kernel's `include/linux/errno.h`, and EINTR). Such a thread did not run.
pub(crate) fn is_interrupted_wait(raw: &RawRegisters) -> bool {
    const ERESTARTSYS: i64 = 512;
    const ERESTART_RESTARTBLOCK: i64 = 516;
    const EINTR: i64 = libc::EINTR as i64;
    let error = raw.rax.cast_signed().wrapping_neg();
    is_in_call(raw) && matches!(error, EINTR | ERESTARTSYS..=ERESTART_RESTARTBLOCK)
}

/// Whether the kernel continues a blocked system call after a stop with its remaining time, as if there had been no
/// stop. Measured; `poll` and `select` do not, so a stop prolongs their wait.
pub(crate) fn survives_stop(call: i64) -> bool {
    matches!(call, libc::SYS_futex | libc::SYS_nanosleep | libc::SYS_clock_nanosleep)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Raw registers of a thread in this call.
    #[allow(unsafe_code, reason = "libc's structure has no default")]
    pub(super) fn raw(call: i64, result: i64, arguments: [u64; 6]) -> RawRegisters {
        // SAFETY: all fields are integers, for which 0 is a value.
        let mut raw: RawRegisters = unsafe { std::mem::zeroed() };
        raw.orig_rax = call.cast_unsigned();
        raw.rax = result.cast_unsigned();
        [raw.rdi, raw.rsi, raw.rdx, raw.r10, raw.r8, raw.r9] = arguments;
        raw
    }

    /// Guarantees: only calls that failed with EINTR and may be repeated are repeated; `close` never is, nor code
    /// outside of a system call with -4 in RAX.
    #[test]
    fn what_is_restarted() {
        for (call, result, is_restarted) in [
            (libc::SYS_epoll_wait, -4, true),
            (libc::SYS_recvfrom, -4, true),
            (libc::SYS_epoll_wait, 4, false),
            (libc::SYS_epoll_wait, 0, false),
            (libc::SYS_close, -4, false),
            (-1, -4, false),
        ] {
            let mut raw = raw(call, result, [0; 6]);
            assert_eq!(restart_interrupted_call(&mut raw), is_restarted, "{call} {result}");
            let expected = if is_restarted { -514 } else { result };
            assert_eq!((raw.orig_rax.cast_signed(), raw.rax.cast_signed()), (call, expected));
        }
    }

    /// Guarantees: a thread whose wait was interrupted by a stop is distinguished from one that was running, in a call
    /// or in its own code.
    #[test]
    fn interrupted_waits() {
        for result in [-4, -512, -513, -514, -516] {
            assert!(is_interrupted_wait(&raw(libc::SYS_epoll_wait, result, [0; 6])));
            assert!(!is_interrupted_wait(&raw(-1, result, [0; 6])));
        }
        for result in [0, 1, 4, 512, -11, -511, -517, i64::MIN] {
            assert!(!is_interrupted_wait(&raw(libc::SYS_read, result, [0; 6])), "{result}");
        }
    }
}
