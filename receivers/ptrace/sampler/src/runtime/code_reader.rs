//! Finds functions by their code, in the same way for all interpreters that keep their frames in their own memory.

use std::fmt::Debug;
use std::time::Instant;

use super::target::{Allowance, Bounded, TargetMemory};
use super::{Executed, Functions, RawFrame, Resolved};
use crate::message::FunctionKind;

/// The maximum number of bytes read for the names of one stack.
const MAX_BYTES: usize = 4 << 20;

/// The context for resolving the functions of one stack.
pub struct ResolveSession<'a> {
    pub(crate) target: Bounded<'a>,
    pub(crate) functions: &'a mut Functions,
    /// Whether the thread has not run since its frames were read, so that the code now in memory belongs to these
    /// frames.
    pub(crate) has_not_run: bool,
    /// How many code objects may still be read for the first time; further functions are unknown.
    pub(crate) new: u32,
}

impl<'a> ResolveSession<'a> {
    /// Creates a session for a thread that may have run since, which accepts only code that was read before.
    pub(super) fn new(reads: u32, target: &'a mut dyn TargetMemory, functions: &'a mut Functions) -> Self {
        let target = Bounded::new(target, Allowance { reads, bytes: MAX_BYTES });
        Self { target, functions, has_not_run: false, new: 0 }
    }
}

/// Finds the functions of frames and instruction addresses by their code. [`Instance`](super::Instance) describes the
/// methods.
pub trait CodeReader: Debug + Send {
    /// The kind of the reader's functions.
    fn kind(&self) -> FunctionKind;

    /// The maximum number of reads for the names of one stack.
    fn max_reads(&self) -> u32;

    /// Starts the next stack, for which all code is compared with memory again.
    fn next_stack(&mut self);

    /// Resolves the next frame of the stack; `None` if that is impossible.
    fn resolve_frame(&mut self, frame: &RawFrame, session: &mut ResolveSession<'_>) -> Option<Resolved>;

    fn sampled(&mut self, at: Option<Instant>, now: Instant);

    fn executed(&mut self, address: u64, session: &mut ResolveSession<'_>) -> Option<Executed>;

    fn executed_among(&mut self, _address: u64, _words: &[u64], _session: &mut ResolveSession<'_>) -> Option<Executed> {
        None
    }

    fn find_by_frames(&mut self, _address: u64, _words: &[u64], _session: &mut ResolveSession<'_>) -> Option<Executed> {
        None
    }
}
