//! The interpreters of one process, and the frames of its threads in them.

use std::time::Instant;

use crate::message::{Function, Location};
use crate::process_files::ProcessFiles;
use crate::runtime::{
    Captured, Executed, Found, Functions, Instance, Lookup, MAX_FRAMES, Merged, Resolved, Stack, Target, ThreadKey,
    Words, merge,
};
use crate::stack_copy::StackPieces;
use crate::unwind::StackMemory;

/// How many frames are read one by one while a thread is stopped for it. Only interpreters that have their frames at
/// different places (Python up to 3.10) need more than a few for deep stacks; each read takes two microseconds.
pub(super) const WHILE_STOPPED: usize = 64;

/// How many are read of a thread that is not stopped.
pub(super) const UNSTOPPED: usize = MAX_FRAMES;

/// The frames of a thread in one of the interpreters of its process, as they were read.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Interpreted {
    /// The interpreter, and the number of its list of interpreters; `None` without frames.
    of: Option<(usize, u64)>,
    captured: Captured,
}

/// The interpreters of one process.
#[derive(Debug, Default)]
pub(super) struct Interpreters {
    instances: Vec<(Found, Box<dyn Instance>)>,
    /// Counts how often an interpreter was dropped: a place in the list then may be another's.
    generation: u64,
    functions: Functions,
    resolved: Vec<Resolved>,
}

impl Interpreted {
    /// Whether there are frames.
    pub(super) fn is_any(&self) -> bool {
        self.of.is_some()
    }
}

impl Interpreters {
    /// Sets which interpreters there are. What was read of those that were there before is kept.
    pub(super) fn set(&mut self, found: &[Found]) {
        let before = self.instances.len();
        self.instances.retain(|(known, _)| found.contains(known));
        self.generation += u64::from(self.instances.len() < before);
        for one in found {
            if !self.instances.iter().any(|(known, _)| known == one) {
                self.instances.push((one.clone(), one.instance()));
            }
        }
    }

    /// Whether there is none, as in most processes.
    pub(super) fn is_empty(&self) -> bool {
        self.instances.is_empty()
    }

    /// Reads the frames of a thread, of which this is a copy of the stack. At most `limit` frames are read one by one.
    pub(super) fn capture(
        &mut self,
        thread: ThreadKey,
        limit: usize,
        files: &ProcessFiles,
        pieces: &StackPieces,
        interpreted: &mut Interpreted,
    ) {
        interpreted.of = None;
        interpreted.captured.clear();
        let (now, generation) = (Instant::now(), self.generation);
        let mut target = Memory { pieces: Some(pieces), files };
        let capturing = |(_, instance): &mut (Found, Box<dyn Instance>)| {
            instance.capture(thread, limit, now, &mut target, &mut interpreted.captured)
        };
        interpreted.of = self.instances.iter_mut().position(capturing).map(|index| (index, generation));
        if interpreted.of.is_none() {
            interpreted.captured.clear();
        }
    }

    /// Replaces `locations` by the native frames with the interpreter's in their places. `stands` if the thread still
    /// stands where its frames were read. With `words`, its stack at the moment of its sample, it did not, and only what
    /// that and its registers prove is believed.
    pub(super) fn name(
        &mut self,
        interpreted: &Interpreted,
        stands: bool,
        files: &ProcessFiles,
        stack: Stack<'_>,
        words: Option<&mut dyn StackMemory>,
        locations: &mut Vec<Location>,
    ) -> Named {
        let Interpreted { of, captured } = interpreted;
        let of = of.filter(|(_, generation)| *generation == self.generation);
        let Some((_, instance)) = of.and_then(|(index, _)| self.instances.get_mut(index)) else {
            locations.clear();
            locations.extend(stack.frames.iter().map(|frame| frame.location));
            return Named::default();
        };
        // Names are read from memory and not from a copy of the stack, which may be older.
        let mut target = Memory { pieces: None, files };
        instance.resolve(captured, stands, &mut target, &mut self.functions, &mut self.resolved);
        let evaluation = instance.evaluation();
        let mut lookup = Live { instance: &mut **instance, target, functions: &mut self.functions };
        let words = words.map(|memory| Words { memory, lookup: &mut lookup });
        let merged = merge(stack, captured, &self.resolved, evaluation.as_ref(), words, locations);
        Named { any: merged.named > 0, cut: captured.cut, merged }
    }

    /// Takes the functions that the owner was not told of yet, and the number of the first one.
    pub(super) fn take_fresh(&mut self) -> Option<(u32, Vec<Function>)> {
        self.functions.take_fresh()
    }
}

/// What came of naming a stack.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Named {
    /// It has frames of an interpreter.
    pub(super) any: bool,
    /// Outer frames of the interpreter are missing.
    pub(super) cut: bool,
    pub(super) merged: Merged,
}

/// What is in a process's memory now.
struct Live<'a> {
    instance: &'a mut dyn Instance,
    target: Memory<'a>,
    functions: &'a mut Functions,
}

impl Lookup for Live<'_> {
    fn executed(&mut self, address: u64) -> Option<Executed> {
        self.instance.executed(address, &mut self.target, self.functions)
    }
}

/// The memory of a process: what a copy of a stack has comes from there.
struct Memory<'a> {
    pieces: Option<&'a StackPieces>,
    files: &'a ProcessFiles,
}

impl Target for Memory<'_> {
    fn read(&mut self, address: u64, bytes: &mut [u8]) -> bool {
        self.pieces.is_some_and(|pieces| pieces.copied_bytes(address, bytes))
            || self.files.read_memory(address, bytes) == bytes.len()
    }
}
