//! The known registers of a thread.

/// The stack pointer's DWARF number (System V ABI for x86-64, figure 3.36).
pub const STACK_POINTER: u8 = 7;
/// The frame pointer's DWARF number.
pub const FRAME_POINTER: u8 = 6;
/// The DWARF number of the column that holds the return address.
pub const INSTRUCTION_POINTER: u8 = 16;
/// The number of registers that take part in unwinding.
pub const COUNT: usize = 17;

/// The registers that a function of the System V ABI for x86-64 preserves: RBX, RBP, RSP and R12 to R15.
pub(crate) const CALLEE_SAVED: u32 = 1 << 3 | 1 << 6 | 1 << 7 | 1 << 12 | 1 << 13 | 1 << 14 | 1 << 15;

/// Register values of x86-64 by their DWARF numbers (System V ABI for x86-64, figure 3.36): RAX, RDX, RCX, RBX, RSI,
/// RDI, RBP, RSP, R8 to R15, RIP.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Registers {
    /// The values; those of unknown registers are meaningless.
    pub values: [u64; COUNT],
    /// The set of known registers: bit N for register N.
    pub known: u32,
}

impl Registers {
    /// All registers of a stopped thread.
    pub fn full(values: [u64; COUNT]) -> Self {
        Self { values, known: (1 << COUNT) - 1 }
    }

    /// The registers of a blocked thread as shown by `/proc/PID/task/TID/syscall`.
    pub fn passive(stack_pointer: u64, instruction_pointer: u64) -> Self {
        let mut registers = Self::default();
        registers.set(STACK_POINTER, stack_pointer);
        registers.set(INSTRUCTION_POINTER, instruction_pointer);
        registers
    }

    /// The value of a register, if it is known.
    pub fn get(&self, register: u8) -> Option<u64> {
        let known = register < COUNT as u8 && self.known & 1 << register != 0;
        known.then(|| self.values[usize::from(register)])
    }

    /// Sets a register. An invalid register number is ignored.
    pub fn set(&mut self, register: u8, value: u64) {
        if let Some(place) = self.values.get_mut(usize::from(register)) {
            *place = value;
            self.known |= 1 << register;
        }
    }

    /// Makes a register unknown.
    pub(crate) fn forget(&mut self, register: u8) {
        if register < COUNT as u8 {
            self.known &= !(1 << register);
        }
    }

    /// The instruction pointer, 0 if unknown.
    pub fn instruction_pointer(&self) -> u64 {
        self.get(INSTRUCTION_POINTER).unwrap_or(0)
    }

    /// The stack pointer, 0 if unknown.
    pub fn stack_pointer(&self) -> u64 {
        self.get(STACK_POINTER).unwrap_or(0)
    }
}
