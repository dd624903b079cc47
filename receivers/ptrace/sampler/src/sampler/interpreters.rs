//! The interpreters of one process, and reading the frames of its threads in them.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use foldhash::fast::RandomState;
use hashbrown::HashMap;

use crate::address_space::{AddressSpace, ModuleKind};
use crate::message::{Function, Location};
use crate::process_files::ProcessFiles;
use crate::runtime::{
    Captured, CodePlace, Executed, Found, Functions, Instance, Lookup, MAX_FRAMES, MergeInput, Merged, NativeStack,
    NativelyNamed, NextInstruction, Resolved, TargetMemory, ThreadKey, UnwoundStack, Words, merge, merge_by_registers,
};
use crate::stack_copy::StackPieces;
use crate::unwind::{FetchExpressions, FetchPlace, Frame, HoldingRegisters, StackMemory, fetches};

/// The maximum number of cached addresses of native code, each with how the code finds the next instruction of the
/// interpreted program.
const MAX_FETCHES: usize = 8192;

/// How many frames are read one by one while a thread is stopped for this. Only interpreters that scatter their frames
/// in memory (Python up to 3.10) need more than a few reads for deep stacks; each read takes two microseconds.
pub(super) const WHILE_STOPPED: usize = 64;

/// How many times the frames of a running thread are read, at most, if they are inconsistent.
const ATTEMPTS: u32 = 3;

/// How many frames are read of a thread that is not stopped.
pub(super) const UNSTOPPED: usize = MAX_FRAMES;

/// The frames of a thread in one of its process's interpreters, as captured.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Interpreted {
    /// The index of the interpreter, and the generation of the list of interpreters; `None` if there are no frames.
    of: Option<(usize, u64)>,
    captured: Captured,
}

/// The interpreters of one process.
#[derive(Debug, Default)]
pub(super) struct Interpreters {
    instances: Vec<(Found, Box<dyn Instance>)>,
    /// How often an interpreter was dropped: then an index in the list may belong to another interpreter.
    generation: u64,
    functions: Functions,
    resolved: Vec<Resolved>,
    natively: NativelyNamed,
    /// How native code finds the next instruction of the interpreted program, by address of the native code.
    fetches: Fetches,
}

/// A thread's stack at the moment of its sample.
pub(super) struct AtSample<'a> {
    /// Reads the words of the stack.
    pub(super) memory: &'a mut dyn StackMemory,
    /// When the kernel copied the stack; `None` for a stack that is read now.
    pub(super) copied: Option<Instant>,
    /// The moment of the sample, if the thread has run since: then its interpreter frames have to be proven.
    pub(super) ran_on_since: Option<Instant>,
}

/// How the native code of a process finds the next instruction of the program that it interprets.
#[derive(Debug, Default)]
struct Fetches {
    /// The ways by the address of the native code.
    ways: HashMap<u64, FetchExpressions, RandomState>,
    kept: HoldingRegisters,
}

/// The interpreters of one process, shared by the sampling thread, which names frames, and the readers, which read
/// frames at samples.
#[derive(Debug, Default)]
pub(super) struct SharedInterpreters {
    all: Arc<Mutex<Interpreters>>,
    /// Whether there are interpreters, and whether one of them keeps its frames in its own memory.
    any: bool,
    in_memory: bool,
}

impl SharedInterpreters {
    /// Sets the interpreters of the process. Cached data of interpreters that were known before is kept.
    pub(super) fn set(&mut self, found: &[Found]) {
        let mut all = self.lock();
        all.set(found);
        let (any, in_memory) = (!all.is_empty(), all.has_frames_in_memory());
        drop(all);
        (self.any, self.in_memory) = (any, in_memory);
    }

    /// Whether the process has no interpreter, as most processes.
    pub(super) fn is_empty(&self) -> bool {
        !self.any
    }

    /// Whether an interpreter keeps its frames in its own memory, and not on the native stack that comes with a sample.
    pub(super) fn has_frames_in_memory(&self) -> bool {
        self.in_memory
    }

    /// Whether an interpreter has its frames on the native stack. Such an interpreter moves the names of its functions
    /// in memory.
    pub(super) fn has_native_frames(&self) -> bool {
        self.lock().instances.iter().any(|(_, instance)| instance.is_native())
    }

    /// Locks the interpreters for reading or naming frames. A reader keeps the sampled thread off its processor
    /// meanwhile, so the lock must never be held for long.
    pub(super) fn lock(&self) -> MutexGuard<'_, Interpreters> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A reference to the same interpreters, for the readers.
    pub(super) fn share(&self) -> Arc<Mutex<Interpreters>> {
        Arc::clone(&self.all)
    }
}

impl Interpreted {
    /// Whether there are frames.
    pub(super) fn is_any(&self) -> bool {
        self.of.is_some()
    }
}

impl Interpreters {
    fn set(&mut self, found: &[Found]) {
        let before = self.instances.len();
        self.instances.retain(|(known, _)| found.contains(known));
        self.generation += u64::from(self.instances.len() < before);
        for one in found {
            if !self.instances.iter().any(|(known, _)| known == one) {
                self.instances.push((one.clone(), one.instance()));
            }
        }
    }

    fn is_empty(&self) -> bool {
        self.instances.is_empty()
    }

    fn has_frames_in_memory(&self) -> bool {
        self.instances.iter().any(|(_, instance)| !instance.is_native())
    }

    /// Reads the frames of a thread, at most `limit` of them one by one. If the thread does not run meanwhile, `copy`
    /// is a copy of its stack, which is used as far as it goes. If the thread runs, `copy` is `None`, and inconsistent
    /// frames are read again. With a small `limit`, frames are read once, only to get the memory into processor caches
    /// before a stop.
    pub(super) fn capture(
        &mut self,
        thread: ThreadKey,
        limit: usize,
        files: &ProcessFiles,
        copy: Option<&StackPieces>,
        interpreted: &mut Interpreted,
    ) {
        let mut target = CopiedOrLiveMemory { pieces: copy, files };
        // If no attempt is consistent, the one with the most frames is used.
        let mut most = Interpreted::default();
        for _ in 0..if copy.is_some() || limit < UNSTOPPED { 1 } else { ATTEMPTS } {
            interpreted.of = None;
            interpreted.captured.clear();
            let (now, generation) = (Instant::now(), self.generation);
            let capturing = |(_, instance): &mut (Found, Box<dyn Instance>)| {
                instance.capture(thread, limit, now, &mut target, &mut interpreted.captured)
            };
            interpreted.of = self.instances.iter_mut().position(capturing).map(|index| (index, generation));
            if interpreted.of.is_none() {
                interpreted.captured.clear();
            } else if !interpreted.captured.cut || interpreted.captured.too_many {
                return;
            } else if interpreted.captured.frames.len() > most.captured.frames.len() {
                std::mem::swap(interpreted, &mut most);
            }
        }
        if most.is_any() && most.captured.frames.len() >= interpreted.captured.frames.len() {
            std::mem::swap(interpreted, &mut most);
        }
    }

    /// The name that an interpreter gives a thread. `is_first` says that it is the first thread of its process.
    pub(super) fn thread_name(&mut self, thread: ThreadKey, is_first: bool, files: &ProcessFiles) -> Option<String> {
        let mut target = CopiedOrLiveMemory { pieces: None, files };
        let mut instances = self.instances.iter_mut();
        instances.find_map(|(_, instance)| instance.thread_name(thread, is_first, Instant::now(), &mut target))
    }

    /// Replaces `locations` by the native frames, with interpreter frames in place of those that run the interpreter.
    /// `has_not_run` says that the thread has not run since its frames were read. Otherwise only frames that its stack
    /// and registers prove are used.
    pub(super) fn name(
        &mut self,
        interpreted: &Interpreted,
        has_not_run: bool,
        memory: (&AddressSpace, &ProcessFiles),
        stack: UnwoundStack<'_>,
        mut at_sample: Option<AtSample<'_>>,
        locations: &mut Vec<Location>,
    ) -> NamedFrames {
        let (space, files) = memory;
        // A process may have interpreters of both kinds: with frames on the native stack, and with frames elsewhere.
        self.name_native(space, files, stack.frames, at_sample.as_mut());
        let Self { instances, functions, natively, resolved, fetches, generation, .. } = self;
        let stack = UnwoundStack { named: &natively.locations, ..stack };
        let native = NamedFrames {
            any: !natively.locations.is_empty(),
            merged: Merged { unknown: u32::try_from(natively.unknown).unwrap_or(u32::MAX), ..Merged::default() },
            positioned: natively.positioned,
            named: natively.named,
            inlined: natively.inlined,
            ..NamedFrames::default()
        };
        let Interpreted { of, captured } = interpreted;
        let mut of = of.filter(|(_, known)| known == generation).map(|(index, _)| index);
        if of.is_none() && captured.frames.is_empty() && at_sample.as_ref().is_some_and(|at| at.ran_on_since.is_some())
        {
            // Frames could not be read, but native frames alone may prove functions.
            of = instances.iter().position(|(_, instance)| instance.proves_by_itself());
        }
        let Some((_, instance)) = of.and_then(|index| instances.get_mut(index)) else {
            stack.show(locations);
            return native;
        };
        // Names are read from memory and not from the copy of the stack, which may be outdated.
        let mut target = CopiedOrLiveMemory { pieces: None, files };
        instance.sampled(at_sample.as_ref().and_then(|at| at.ran_on_since), Instant::now());
        instance.resolve(captured, has_not_run, &mut target, functions, resolved);
        let (evaluation, held) = (instance.evaluation(), instance.held());
        if fetches.ways.len() >= MAX_FETCHES {
            fetches.ways.clear();
        }
        let mut lookup = LiveMemory { instance: &mut **instance, target, functions, space, fetches };
        let words =
            at_sample.filter(|at| at.ran_on_since.is_some()).map(|at| Words { memory: at.memory, lookup: &mut lookup });
        let mut merged = match held {
            Some(held) => {
                let pieces = MergeInput { stack, captured, resolved, held: &held };
                merge_by_registers(&pieces, &mut |address| space.function(address), words, locations)
            }
            None => merge(stack, captured, resolved, evaluation.as_ref(), words, locations),
        };
        // Everything read for this sample is known when later samples are taken.
        instance.sampled(None, Instant::now());
        merged.unknown = merged.unknown.saturating_add(native.merged.unknown);
        NamedFrames { any: native.any || merged.named > 0, cut: captured.cut, merged, ..native }
    }

    /// Names the native frames that belong to an interpreter with frames on the native stack.
    fn name_native(
        &mut self,
        space: &AddressSpace,
        files: &ProcessFiles,
        frames: &[Frame],
        at_sample: Option<&mut AtSample<'_>>,
    ) {
        let Self { instances, functions, natively, .. } = self;
        natively.clear();
        let native = instances.iter_mut().find(|(_, instance)| instance.is_native());
        if let (Some((_, instance)), Some(at_sample)) = (native, at_sample) {
            let stack = NativeStack { frames, place: &|address| place(space, address) };
            let mut target = CopiedOrLiveMemory { pieces: None, files };
            instance.name_native(stack, at_sample.memory, &mut target, functions, natively);
        }
    }

    /// Takes the functions that were not sent to the owner yet, and the number of the first one.
    pub(super) fn take_fresh(&mut self) -> Option<(u32, Vec<Function>)> {
        self.functions.take_fresh()
    }
}

/// The result of naming a stack.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct NamedFrames {
    /// Whether the stack has interpreter frames.
    pub(super) any: bool,
    /// Whether outer interpreter frames are missing.
    pub(super) cut: bool,
    pub(super) merged: Merged,
    /// The number of functions with a known position, of functions without one, and of frames that may execute an
    /// inlined function instead.
    pub(super) positioned: u64,
    pub(super) named: u64,
    pub(super) inlined: u64,
}

/// The kind of code at an address.
fn place(space: &AddressSpace, address: u64) -> CodePlace {
    match space.find(address) {
        Some(module) if module.kind == ModuleKind::Generated => CodePlace::Generated,
        Some(module) if module.builtins.contains(&address.wrapping_sub(module.bias)) => CodePlace::Builtin,
        _ => CodePlace::Other,
    }
}

/// The current memory of a process.
struct LiveMemory<'a> {
    instance: &'a mut dyn Instance,
    target: CopiedOrLiveMemory<'a>,
    functions: &'a mut Functions,
    space: &'a AddressSpace,
    fetches: &'a mut Fetches,
}

impl Lookup for LiveMemory<'_> {
    fn executed(&mut self, address: u64) -> Option<Executed> {
        self.instance.executed(address, &mut self.target, self.functions)
    }

    fn executed_among(&mut self, address: u64, words: &[u64]) -> Option<Executed> {
        self.instance.executed_among(address, words, &mut self.target, self.functions)
    }

    fn is_fresh(&self, code: u64) -> bool {
        self.instance.is_fresh(code)
    }

    fn has_calls_of_one(&self) -> bool {
        self.instance.has_calls_of_one()
    }

    fn registers(&self) -> Option<(u8, u8)> {
        self.instance.registers()
    }

    fn find_by_frames(&mut self, address: u64, words: &[u64]) -> Option<Executed> {
        self.instance.find_by_frames(address, words, &mut self.target, self.functions)
    }

    fn next_instructions(&mut self, frame: &Frame, read: &mut dyn FnMut(u64) -> Option<u64>) -> Vec<NextInstruction> {
        let Self { instance, space, fetches: known, .. } = self;
        let Fetches { ways, kept } = &mut **known;
        let ways = ways.entry(frame.pc).or_insert_with(|| fetches(space, frame.pc, kept));
        let in_frame = instance.instruction_in_frame();
        let next = ways.fetches.iter().filter_map(|fetch| {
            Some(match fetch.resolve(&frame.registers, &mut *read)? {
                FetchPlace::At(address) => NextInstruction::At(address),
                FetchPlace::In(word) => NextInstruction::Of(word.wrapping_sub(in_frame?)),
            })
        });
        let mut next: Vec<_> = next.collect();
        if ways.is_read {
            // The native code has already read its next instruction, and a register holds the address of that
            // instruction. The instruction being executed precedes this address.
            next.extend(kept.resolve(&frame.registers).map(NextInstruction::At));
        }
        next
    }
}

/// The memory of a process: bytes that the copy of a stack contains are taken from the copy.
struct CopiedOrLiveMemory<'a> {
    pieces: Option<&'a StackPieces>,
    files: &'a ProcessFiles,
}

impl TargetMemory for CopiedOrLiveMemory<'_> {
    fn read(&mut self, address: u64, bytes: &mut [u8]) -> bool {
        self.pieces.is_some_and(|pieces| pieces.copied_bytes(address, bytes))
            || self.files.read_memory(address, bytes) == bytes.len()
    }
}

#[cfg(test)]
mod tests;
