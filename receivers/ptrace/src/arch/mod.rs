//! What differs between architectures: the registers of a stopped thread, and how an interrupted system call is restarted.

#[cfg(not(target_arch = "x86_64"))]
mod other;
#[cfg(target_arch = "x86_64")]
mod x86_64;

#[cfg(not(target_arch = "x86_64"))]
pub(crate) use other::{
    RawRegisters, blocked_registers, is_in_call, registers, restart_interrupted_call, stack_pointer, survives_stop,
    thread_pointer, thread_pointer_by_list,
};
#[cfg(target_arch = "x86_64")]
pub(crate) use x86_64::{
    RawRegisters, blocked_registers, is_in_call, registers, restart_interrupted_call, stack_pointer, survives_stop,
    thread_pointer, thread_pointer_by_list,
};
