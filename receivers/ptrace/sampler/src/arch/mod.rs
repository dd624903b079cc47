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
    /// Its name.
    pub(crate) name: &'static str,
    /// Identifies the call by its address, its stack pointer and how much it moved: a thread that is stopped twice
    /// while returning from one call has the same mark twice.
    pub(crate) mark: [u64; 3],
    /// The descriptor that it reads, and its position there: reaching the end of the data may explain why it moved
    /// less. `None` if that is impossible.
    pub(crate) from: Option<(u64, Position)>,
    /// The descriptor that it writes: if that is non-blocking, it explains a short result. `None` if that is
    /// impossible.
    pub(crate) to: Option<u64>,
}

/// The position in a file at which a call reads.
#[cfg(target_os = "linux")]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Position {
    /// The position of the open file itself.
    Own,
    /// This position.
    At(u64),
    /// The position stored in the thread's memory at this address.
    In(u64),
}
