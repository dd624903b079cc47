//! The requests of `ptrace(2)`. Only [`crate::stop`] uses them, and only the sampling thread calls it.

use std::mem::MaybeUninit;

use nix::errno::Errno;
use nix::sys::ptrace;
use nix::unistd::Pid;

use crate::arch::RawRegisters;

/// The set of general registers, for `PTRACE_GETREGSET`.
const NT_PRSTATUS: usize = 1;

fn id(thread: u32) -> Pid {
    // A thread id is never above 2^22 (the kernel's PID_MAX_LIMIT); 0 would be refused by the kernel.
    Pid::from_raw(i32::try_from(thread).unwrap_or(0))
}

/// Becomes the thread's tracer without stopping it. The thread is not killed if the tracer ends.
pub(crate) fn seize(thread: u32) -> Result<(), Errno> {
    ptrace::seize(id(thread), ptrace::Options::empty())
}

/// Asks a seized thread to stop.
pub(crate) fn interrupt(thread: u32) -> Result<(), Errno> {
    ptrace::interrupt(id(thread))
}

/// The registers of a stopped thread; `None` for a 32-bit one, whose set is shorter.
#[allow(unsafe_code, reason = "nix does not say how many bytes the kernel wrote, and reads all as written")]
pub(crate) fn registers(thread: u32) -> Result<Option<RawRegisters>, Errno> {
    let mut registers = MaybeUninit::<RawRegisters>::zeroed();
    let mut buffer = libc::iovec { iov_base: registers.as_mut_ptr().cast(), iov_len: size_of::<RawRegisters>() };
    // SAFETY: the kernel writes at most `iov_len` bytes to `iov_base`, which is that large, and the length it wrote
    // into `buffer`.
    let result = unsafe { libc::ptrace(libc::PTRACE_GETREGSET, id(thread).as_raw(), NT_PRSTATUS, &raw mut buffer) };
    if result < 0 {
        return Err(Errno::last());
    }
    if buffer.iov_len != size_of::<RawRegisters>() {
        return Ok(None);
    }
    // SAFETY: `registers` was zeroed and then filled; all its fields are integers.
    Ok(Some(unsafe { registers.assume_init() }))
}

/// Replaces the registers of a stopped thread.
#[allow(unsafe_code, reason = "nix has this for some architectures only")]
pub(crate) fn set_registers(thread: u32, registers: &RawRegisters) -> Result<(), Errno> {
    let buffer =
        libc::iovec { iov_base: std::ptr::from_ref(registers).cast_mut().cast(), iov_len: size_of::<RawRegisters>() };
    // SAFETY: the kernel reads `iov_len` bytes from `iov_base`, which is that large, and writes nothing there.
    let result = unsafe { libc::ptrace(libc::PTRACE_SETREGSET, id(thread).as_raw(), NT_PRSTATUS, &raw const buffer) };
    Errno::result(result).map(drop)
}

/// Detaches from a stopped thread, and delivers a signal to it (0: none).
#[allow(unsafe_code, reason = "nix has no real-time signals")]
pub(crate) fn detach(thread: u32, signal: i32) -> Result<(), Errno> {
    // SAFETY: no memory of this process is involved; the last argument is a number.
    let result = unsafe {
        libc::ptrace(libc::PTRACE_DETACH, id(thread).as_raw(), 0_usize, usize::try_from(signal).unwrap_or(0))
    };
    Errno::result(result).map(drop)
}
