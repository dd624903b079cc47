//! Code that depends on the architecture: the registers of a stopped thread, how an interrupted system call is
//! restarted, and the layout of memory.

mod memory;
#[cfg(all(target_os = "linux", not(target_arch = "x86_64")))]
mod other;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod x86_64;

pub(crate) use memory::{THREAD_IDS, USER};
#[cfg(all(target_os = "linux", not(target_arch = "x86_64")))]
pub(crate) use other::{
    RawRegisters, blocked_registers, is_in_call, is_interrupted_wait, left_in_call, registers,
    restart_interrupted_call, short_call, stack_pointer, survives_stop, thread_pointer, thread_pointer_by_list,
};
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
pub(crate) use x86_64::{
    RawRegisters, blocked_registers, is_in_call, is_interrupted_wait, left_in_call, registers,
    restart_interrupted_call, short_call, stack_pointer, survives_stop, thread_pointer, thread_pointer_by_list,
};

/// A system call that is about to return with less than requested.
#[cfg(target_os = "linux")]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ShortCall {
    /// The name of the call.
    pub(crate) name: &'static str,
    /// Identifies one execution of the call by its address, stack pointer and result. If a thread is stopped twice
    /// while it returns from the same call, both marks are equal.
    pub(crate) mark: [u64; 3],
    /// The descriptor from which the call reads, and its read position: reaching the end of the data may explain a
    /// short result. `None` if that is impossible.
    pub(crate) from: Option<(u64, Position)>,
    /// The descriptor to which the call writes: if it is non-blocking, that explains a short result. `None` if that is
    /// impossible.
    pub(crate) to: Option<u64>,
}

/// The file position at which a call reads.
#[cfg(target_os = "linux")]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Position {
    /// The current position of the open file.
    Own,
    /// The position given as an argument.
    At(u64),
    /// The position stored in the thread's memory at this address.
    In(u64),
}
