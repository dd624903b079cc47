//! Architectures that cannot be unwound yet. The sampler process refuses to start on them, so no thread is ever
//! stopped.

use super::ShortCall;
use crate::unwind::Registers;

pub(crate) type RawRegisters = libc::user_regs_struct;

pub(crate) fn registers(_: &RawRegisters) -> Registers {
    Registers::default()
}

pub(crate) fn left_in_call(_: &Registers) -> bool {
    false
}

pub(crate) fn blocked_registers(_: u64, _: u64, _: Option<[u64; 6]>) -> Registers {
    Registers::default()
}

pub(crate) fn stack_pointer(_: &RawRegisters) -> u64 {
    0
}

pub(crate) fn thread_pointer(_: &RawRegisters) -> u64 {
    0
}

pub(crate) fn thread_pointer_by_list(_: u64, _: u32, _: impl Fn(u64, &mut [u8]) -> usize) -> Option<u64> {
    None
}

pub(crate) fn is_in_call(_: &RawRegisters) -> bool {
    false
}

pub(crate) fn restart_interrupted_call(_: &mut RawRegisters) -> bool {
    false
}

pub(crate) fn is_interrupted_wait(_: &RawRegisters) -> bool {
    false
}

pub(crate) fn short_call(_: &RawRegisters) -> Option<ShortCall> {
    None
}

pub(crate) fn survives_stop(_: i64) -> bool {
    false
}
