//! Tells functions by their code, in the same way for all interpreters that keep their frames in memory of their own.

use std::fmt::Debug;
use std::time::Instant;

use super::target::{Allowance, Bounded, Target};
use super::{Executed, Functions, RawFrame, Resolved};
use crate::message::FunctionKind;

/// How many bytes may be read for the names of one stack.
const MAX_BYTES: usize = 4 << 20;

/// What the functions of one stack are told with.
pub struct Session<'a> {
    pub(crate) target: Bounded<'a>,
    pub(crate) functions: &'a mut Functions,
    /// The thread still stands where its frames were read: code that is in memory now belongs to them.
    pub(crate) stands: bool,
    /// How much more code may be read for the first time; the functions of further code are unknown.
    pub(crate) new: u32,
}

impl<'a> Session<'a> {
    /// What is told of a thread that may have run on, by code that was read before.
    pub(super) fn new(reads: u32, target: &'a mut dyn Target, functions: &'a mut Functions) -> Self {
        let target = Bounded::new(target, Allowance { reads, bytes: MAX_BYTES });
        Self { target, functions, stands: false, new: 0 }
    }
}

/// Tells which functions frames and instructions are of, by their code. [`Instance`](super::Instance) says what each of
/// these is for.
pub trait CodeReader: Debug + Send {
    /// The kind of its functions.
    fn kind(&self) -> FunctionKind;

    /// How many reads are done for the names of one stack, at most.
    fn max_reads(&self) -> u32;

    /// Says that from now on another stack is told, for which all code is compared anew.
    fn next_stack(&mut self);

    /// What the next frame of the stack is; `None` if that cannot be told.
    fn tell(&mut self, frame: &RawFrame, session: &mut Session<'_>) -> Option<Resolved>;

    fn sampled(&mut self, at: Option<Instant>, now: Instant);

    fn executed(&mut self, address: u64, session: &mut Session<'_>) -> Option<Executed>;

    fn executed_among(&mut self, _address: u64, _words: &[u64], _session: &mut Session<'_>) -> Option<Executed> {
        None
    }

    fn meet(&mut self, _address: u64, _words: &[u64], _session: &mut Session<'_>) -> Option<Executed> {
        None
    }
}
