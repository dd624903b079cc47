//! Unwinding stacks of any process, with buffers that are reused from one stack to the next.

use super::active::Active;
use super::interpreters::Interpreted;
use crate::message::{Location, Trust};
use crate::runtime::Stack;
use crate::stack_copy::StackPieces;
use crate::unwind::{Frame, Outcome, Registers, StackMemory, Unwinder};

/// Unwinds stacks of any process: the unwinder, and buffers that are reused from one stack to the next.
#[derive(Debug, Default)]
pub(super) struct StackUnwinder {
    unwinder: Unwinder,
    /// The frames of the stack that was unwound last.
    pub(super) frames: Vec<Frame>,
    pub(super) pieces: StackPieces,
    pub(super) interpreted: Interpreted,
}

impl StackUnwinder {
    /// Unwinds a stack: its frames are kept until the next one.
    pub(super) fn unwind(&mut self, process: &Active, registers: &Registers, memory: &mut dyn StackMemory) -> Outcome {
        self.unwinder.unwind(&process.attached.space, registers, memory, &mut self.frames)
    }

    /// Unwinds a running thread's stack beyond its copy, with what is in memory by now. The result is used if the end
    /// of the copy has not changed in memory since; else `before` stays.
    pub(super) fn unwind_further(
        &mut self,
        process: &Active,
        registers: &Registers,
        pieces: &mut StackPieces,
        before: Outcome,
    ) -> Outcome {
        let shorter = std::mem::take(&mut self.frames);
        let files = std::sync::Arc::clone(&process.attached.files);
        let outcome = self.unwind(process, registers, &mut pieces.further(&files));
        if pieces.keep_further(&files) {
            return outcome;
        }
        self.frames = shorter;
        before
    }

    /// Replaces `locations` by the frames of the stack that was unwound last, the innermost first, with those of an
    /// interpreter in the places of the native ones that stand for them. `stands` if the thread still stands where
    /// these were read. With `words`, it ran on meanwhile, and only what these prove is believed.
    pub(super) fn name(
        &self,
        process: &mut Active,
        outcome: &mut Outcome,
        interpreted: &Interpreted,
        stands: bool,
        words: Option<&mut dyn StackMemory>,
        locations: &mut Vec<Location>,
    ) {
        let attached = &mut process.attached;
        let is_proven = words.is_some();
        let stack = Stack { frames: &self.frames, complete: outcome.trust == Trust::Complete };
        let named = attached.interpreters.name(interpreted, stands, &attached.files, stack, words, locations);
        let status = &mut attached.status;
        status.interpreted += u64::from(named.any);
        status.unproven_frames += u64::from(named.merged.unproven);
        status.later_read_frames += u64::from(named.merged.later_read);
        status.unknown_functions += u64::from(named.merged.unknown);
        // Where what was read is proven or left out, what is missing still has its native frames.
        if named.any && named.cut && !is_proven && outcome.trust == Trust::Complete {
            outcome.trust = Trust::Truncated;
        }
    }
}
