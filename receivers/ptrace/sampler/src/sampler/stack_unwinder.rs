//! Unwinding stacks of any process, with buffers that are reused from one stack to the next.

use super::active::Active;
use super::interpreters::{AtSample, Interpreted, Named};
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

    /// Replaces `locations` by the frames of the stack that was unwound last, the innermost first, with those of an
    /// interpreter in the places of the native ones that stand for them. `stands` if the thread still stands where
    /// these were read. If it ran on meanwhile, only what its stack proves is believed. What it found is counted by
    /// [`Active::observed`], since a stack may be named several times until it is one.
    pub(super) fn name(
        &self,
        process: &mut Active,
        outcome: &mut Outcome,
        interpreted: &Interpreted,
        stands: bool,
        at_sample: Option<AtSample<'_>>,
        locations: &mut Vec<Location>,
    ) -> Named {
        let attached = &mut process.attached;
        let is_proven = at_sample.as_ref().is_some_and(|at| at.ran_on_since.is_some());
        let stack = Stack { frames: &self.frames, complete: outcome.trust == Trust::Complete, told: &[] };
        let memory = (&*attached.space, &*attached.files);
        let named = attached.interpreters.lock().name(interpreted, stands, memory, stack, at_sample, locations);
        // Where what was read is proven or left out, what is missing still has its native frames.
        if named.any && named.cut && !is_proven && outcome.trust == Trust::Complete {
            outcome.trust = Trust::Truncated;
        }
        if named.merged.missing_callers > 0 && outcome.trust == Trust::Complete {
            outcome.trust = Trust::MissingCallers;
        }
        named
    }
}
