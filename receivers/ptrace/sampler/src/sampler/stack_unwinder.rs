//! Unwinds the stacks of all processes, with buffers that are reused for each stack.

use std::time::Instant;

use super::active::Active;
use super::interpreters::{AtSample, Interpreted, NamedFrames};
use crate::message::{Location, Trust};
use crate::runtime::UnwoundStack;
use crate::stack_copy::StackPieces;
use crate::unwind::{Frame, Registers, StackMemory, UnwindOutcome, Unwinder};

/// The unwinder for all processes, and buffers that are reused for each stack.
#[derive(Debug, Default)]
pub(super) struct StackUnwinder {
    unwinder: Unwinder,
    /// The frames of the stack that was unwound last.
    pub(super) frames: Vec<Frame>,
    pub(super) pieces: StackPieces,
    pub(super) interpreted: Interpreted,
}

impl StackUnwinder {
    /// Unwinds a stack in the current address space. Its frames are kept until the next call.
    pub(super) fn unwind(
        &mut self,
        process: &Active,
        registers: &Registers,
        memory: &mut dyn StackMemory,
    ) -> UnwindOutcome {
        self.unwind_at(process, None, registers, memory)
    }

    /// Unwinds a stack that was copied at this moment; `None` for a stack that is read now.
    pub(super) fn unwind_at(
        &mut self,
        process: &Active,
        at: Option<Instant>,
        registers: &Registers,
        memory: &mut dyn StackMemory,
    ) -> UnwindOutcome {
        let spaces = &process.attached.spaces;
        let space = at.map_or_else(|| spaces.latest(), |at| spaces.at(at));
        self.unwinder.unwind(space, registers, memory, &mut self.frames)
    }

    /// Replaces `locations` by the frames of the stack that was unwound last, innermost first, with interpreter frames
    /// in place of the native frames that run the interpreter. `has_not_run` says that the thread has not run since its
    /// frames were read. Otherwise only frames that its stack proves are used. The result is counted later, by
    /// [`Active::observed`], since a stack may be named several times for one sample.
    pub(super) fn name(
        &self,
        process: &mut Active,
        outcome: &mut UnwindOutcome,
        interpreted: &Interpreted,
        has_not_run: bool,
        at_sample: Option<AtSample<'_>>,
        locations: &mut Vec<Location>,
    ) -> NamedFrames {
        let attached = &mut process.attached;
        let is_proven = at_sample.as_ref().is_some_and(|at| at.ran_on_since.is_some());
        let stack = UnwoundStack { frames: &self.frames, complete: outcome.trust == Trust::Complete, named: &[] };
        let at = at_sample.as_ref().and_then(|at| at.copied);
        let space = at.map_or_else(|| attached.spaces.latest(), |at| attached.spaces.at(at));
        let memory = (&**space, &*attached.files);
        let named = attached.interpreters.lock().name(interpreted, has_not_run, memory, stack, at_sample, locations);
        if let Some(map) = &mut attached.perf_map
            && locations.iter().any(|location| location.is_generated())
        {
            let length = map.length_at(at.unwrap_or_else(Instant::now));
            locations.iter_mut().for_each(|location| *location = location.with_map(length));
        }
        // If only proven interpreter frames are used, native frames are shown for the others, so nothing is missing.
        if named.any && named.cut && !is_proven && outcome.trust == Trust::Complete {
            outcome.trust = Trust::Truncated;
        }
        if named.merged.missing_callers > 0 && outcome.trust == Trust::Complete {
            outcome.trust = Trust::MissingCallers;
        }
        named
    }
}
