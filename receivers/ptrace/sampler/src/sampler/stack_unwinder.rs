//! Unwinding stacks of any process, with buffers that are reused from one stack to the next.

use super::active::Active;
use crate::message::Location;
use crate::stack_copy::StackPieces;
use crate::unwind::{Frame, Outcome, Registers, StackMemory, Unwinder};

/// Unwinds stacks of any process: the unwinder, and buffers that are reused from one stack to the next.
#[derive(Debug, Default)]
pub(super) struct StackUnwinder {
    unwinder: Unwinder,
    frames: Vec<Frame>,
    pub(super) pieces: StackPieces,
}

impl StackUnwinder {
    /// Unwinds a stack, and replaces `locations` by its frames, the innermost first.
    pub(super) fn unwind(
        &mut self,
        process: &Active,
        registers: &Registers,
        memory: &mut dyn StackMemory,
        locations: &mut Vec<Location>,
    ) -> Outcome {
        let outcome = self.unwinder.unwind(&process.attached.space, registers, memory, &mut self.frames);
        locations.clear();
        locations.extend(self.frames.iter().map(|frame| frame.location));
        outcome
    }

    /// Unwinds a running thread's stack beyond its copy, with what is in memory by now. The result is used if the end
    /// of the copy has not changed in memory since; else `before` stays.
    pub(super) fn unwind_further(
        &mut self,
        process: &Active,
        registers: &Registers,
        pieces: &mut StackPieces,
        locations: &mut Vec<Location>,
        before: Outcome,
    ) -> Outcome {
        let shorter = std::mem::take(locations);
        let files = std::sync::Arc::clone(&process.attached.files);
        let outcome = self.unwind(process, registers, &mut pieces.further(&files), locations);
        if pieces.keep_further(&files) {
            return outcome;
        }
        *locations = shorter;
        before
    }
}
