//! What is known of the stack while a function's instructions are followed.

use super::super::instruction::{Effect, MemoryOperand, RBP, RSP};
use super::super::registers::FRAME_POINTER;

/// The registers that functions preserve, by their numbers in instructions and in DWARF (System V ABI for x86-64,
/// figures 3.4 and 3.36).
pub(super) const PRESERVED: [(u8, u8); 6] = [(3, 3), (RBP, FRAME_POINTER), (12, 12), (13, 13), (14, 14), (15, 15)];

/// What an address on the stack is relative to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Base {
    /// The stack pointer at the start.
    Stack,
    /// The frame pointer at the start.
    Frame,
}

/// A place on the stack.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Spot {
    pub(super) base: Base,
    pub(super) distance: i64,
}

impl Spot {
    fn plus(self, distance: i64) -> Self {
        Self { distance: self.distance.wrapping_add(distance), ..self }
    }
}

/// The state at an instruction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct FlowState {
    pub(super) stack: Option<Spot>,
    /// The frame pointer, if it is known to point into the stack.
    pub(super) frame: Option<Spot>,
    /// Registers that no longer hold the value that they had at the start (bit N for register N).
    pub(super) changed: u16,
    /// Where the values that the [`PRESERVED`] registers had at the start were saved.
    pub(super) saved: [Option<Spot>; PRESERVED.len()],
    /// Where their present values were read from.
    pub(super) restored: [Option<Spot>; PRESERVED.len()],
}

impl FlowState {
    pub(super) fn first() -> Self {
        let spot = |base| Some(Spot { base, distance: 0 });
        let none = [None; PRESERVED.len()];
        Self { stack: spot(Base::Stack), frame: spot(Base::Frame), changed: 0, saved: none, restored: none }
    }

    /// Whether the stack pointer is where it was at the start.
    pub(super) fn is_left(&self) -> bool {
        self.stack == Some(Spot { base: Base::Stack, distance: 0 })
    }

    fn spot(&self, operand: MemoryOperand) -> Option<Spot> {
        let base = match operand.base? {
            RSP => self.stack?,
            RBP => self.frame?,
            _ => return None,
        };
        Some(base.plus(i64::from(operand.distance)))
    }

    fn change(&mut self, registers: u16) {
        self.changed |= registers;
        if registers & 1 << RSP != 0 {
            self.stack = None;
        }
        if registers & 1 << RBP != 0 {
            self.frame = None;
        }
        for ((register, _), restored) in PRESERVED.iter().zip(&mut self.restored) {
            if registers & 1 << register != 0 {
                *restored = None;
            }
        }
    }

    /// A register is written to the stack.
    fn save(&mut self, register: u8, spot: Option<Spot>) {
        let place = PRESERVED.iter().position(|(preserved, _)| *preserved == register);
        if let (Some(place), 0) = (place, self.changed & 1 << register) {
            self.saved[place] = self.saved[place].or(spot);
        }
    }

    /// A register is read from the stack.
    fn restore(&mut self, register: u8, spot: Option<Spot>) {
        self.change(1 << register);
        let Some(place) = PRESERVED.iter().position(|(preserved, _)| *preserved == register) else { return };
        self.restored[place] = spot;
        if spot.is_some() && self.saved[place] == spot {
            self.saved[place] = None;
            self.changed &= !(1 << register);
        }
    }

    /// Applies an instruction.
    pub(super) fn step(&mut self, effect: Effect) {
        match effect {
            Effect::Changes(changed) => self.change(changed),
            Effect::Push(register) => {
                self.stack = self.stack.map(|stack| stack.plus(-8));
                if let Some(register) = register {
                    self.save(register, self.stack);
                }
            }
            Effect::Pop(register) => {
                let spot = self.stack;
                self.stack = self.stack.map(|stack| stack.plus(8));
                if let Some(register) = register {
                    self.restore(register, spot);
                }
            }
            Effect::Leave => {
                let spot = self.frame;
                self.stack = spot.map(|frame| frame.plus(8));
                self.restore(RBP, spot);
            }
            Effect::Copy { to: RBP, from: RSP } => self.set_frame(self.stack),
            Effect::Point { to: RBP, at } => self.set_frame(self.spot(at)),
            Effect::Add { to: RBP, value } => self.set_frame(self.frame.map(|frame| frame.plus(i64::from(value)))),
            Effect::Copy { to: RSP, from: RBP } => self.stack = self.frame,
            Effect::Point { to: RSP, at } => self.stack = self.spot(at),
            Effect::Add { to: RSP, value } => self.stack = self.stack.map(|stack| stack.plus(i64::from(value))),
            Effect::Store { to, from } => self.save(from, self.spot(to)),
            Effect::Load { to, from } => self.restore(to, self.spot(from)),
            Effect::Copy { to, .. }
            | Effect::Fetch { to, .. }
            | Effect::Point { to, .. }
            | Effect::PointBeyond { to, .. }
            | Effect::Add { to, .. }
            | Effect::AddRegister { to, .. }
            | Effect::AddWord { to, .. }
            | Effect::Mask { to, .. } => {
                self.change(1 << to);
            }
            _ => {}
        }
    }

    fn set_frame(&mut self, spot: Option<Spot>) {
        self.change(1 << RBP);
        self.frame = spot;
    }
}
