//! What differs between architectures: the registers of a stopped thread, and how an interrupted system call is
//! restarted.

#[cfg(not(target_arch = "x86_64"))]
mod other;
#[cfg(target_arch = "x86_64")]
mod x86_64;

#[cfg(not(target_arch = "x86_64"))]
pub(crate) use other::{
    RawRegisters, blocked_registers, is_in_call, is_interrupted_wait, registers, restart_interrupted_call, short_call,
    stack_pointer, survives_stop, thread_pointer, thread_pointer_by_list,
};
#[cfg(target_arch = "x86_64")]
pub(crate) use x86_64::{
    RawRegisters, blocked_registers, is_in_call, is_interrupted_wait, registers, restart_interrupted_call, short_call,
    stack_pointer, survives_stop, thread_pointer, thread_pointer_by_list,
};

/// A system call that is about to return with less than it was asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ShortCall {
    /// Its name.
    pub(crate) name: &'static str,
    /// Where it was made, on which stack, and what it moved. A thread that is stopped twice on its way back from one
    /// call shows the same twice.
    pub(crate) mark: [u64; 3],
    /// The descriptor that it takes from, and where it stands there now, where an end of what is there explains it.
    pub(crate) from: Option<(u64, Position)>,
    /// The descriptor that it gives to, where one that never waits explains it.
    pub(crate) to: Option<u64>,
}

/// Where in a file a call stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Position {
    /// Where the file's own position is.
    Own,
    /// Here.
    At(u64),
    /// Where the number at this address of the thread's memory says.
    In(u64),
}
