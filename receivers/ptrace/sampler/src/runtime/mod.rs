//! Reads the functions that an interpreter executes from the memory of its process.
//!
//! A native stack shows the interpreter's own functions, not those of the program it runs. The program's functions are
//! in the interpreter's memory: a list of threads, each with a chain of frames. `detect` finds the interpreters among
//! the files of a process. An [`Instance`] reads the frames ([`Instance::capture`]) while the thread is stopped or
//! right after a sample of it, and resolves them to functions ([`Instance::resolve`]) later, when the thread need not
//! wait for it. `merge.rs` then replaces the interpreter's native frames by these functions.
//!
//! All of this sees a process only through [`TargetMemory`]: no file, no path, no clock. Everything read was written by
//! the target and is treated as hostile: list lengths and sizes are limited, and arithmetic wraps.

mod code_reader;
mod codes;
mod functions;
mod merge;
mod php;
mod python;
#[cfg(any(test, feature = "recordings"))]
#[path = "tests/recording.rs"]
mod recording;
mod ruby;
mod target;
mod v8;

use std::fmt::Debug;
use std::ops::Range;
use std::time::Instant;

use self::code_reader::{CodeReader, ResolveSession};
pub(crate) use self::functions::plain;
pub use self::functions::{Functions, MAX_FILE, MAX_FOLDERS, MAX_FUNCTIONS, MAX_NAME, MAX_TEXT, UNKNOWN_FUNCTION};
pub use self::merge::{
    Held, Lookup, MergeInput, Merged, NextInstruction, UnwoundStack, Words, merge, merge_by_registers,
};
#[cfg(any(test, feature = "recordings"))]
pub use self::recording::Recording;
pub use self::target::{Allowance, TargetMemory};
pub(crate) use self::target::{Bounded, half_at, word, word_at};
pub(crate) use self::v8::MAJOR_VERSION as V8_VERSION;
#[cfg(any(test, feature = "recordings"))]
pub use self::v8::RecordedStack;
pub use self::v8::WITH_INLINED;

use crate::address_space::Module;
use crate::elf::SymbolNames;
use crate::message::{FunctionKind, Location};
use crate::unwind::{Frame, StackMemory};

/// The maximum number of frames read of one thread; a deeper stack is cut.
pub const MAX_FRAMES: usize = 1024;

/// The maximum number of functions that are read for the first time in one stack; further ones are shown as unknown.
const MAX_NEW: u32 = 64;

struct InterpreterKind {
    /// The symbols by which a file is recognized as this interpreter.
    symbols: &'static SymbolNames,
    /// Finds the interpreter whose state is in this module, which has this path. The error is a message for the
    /// operator: why frames cannot be read although this is an interpreter of this kind.
    detect: DetectInterpreter,
}

/// Finds an interpreter in a module with a path.
type DetectInterpreter = fn(&Module, &str, &mut dyn TargetMemory) -> Result<Option<FoundKind>, String>;

/// All supported kinds of interpreters.
static INTERPRETERS: [InterpreterKind; FunctionKind::COUNT] = [
    InterpreterKind {
        symbols: &python::SYMBOLS,
        detect: |module, path, target| Ok(python::PythonPlace::find(module, path, target)?.map(FoundKind::Python)),
    },
    InterpreterKind {
        symbols: &php::SYMBOLS,
        detect: |module, path, target| Ok(php::PhpPlace::find(module, path, target)?.map(FoundKind::Php)),
    },
    InterpreterKind {
        symbols: &v8::SYMBOLS,
        detect: |module, _, target| Ok(v8::find(module, target)?.map(|layout| FoundKind::V8(Box::new(layout)))),
    },
    InterpreterKind {
        symbols: &ruby::SYMBOLS,
        detect: |module, _, target| Ok(ruby::RubyPlace::find(module, target)?.map(FoundKind::Ruby)),
    },
];

/// The symbols by which all interpreters are recognized.
pub(crate) fn symbols() -> impl Iterator<Item = &'static SymbolNames> {
    INTERPRETERS.iter().map(|interpreter| interpreter.symbols)
}

/// An interpreter that was found in a process. Plain data: [`Found::instance`] makes its reader.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    kind: FoundKind,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum FoundKind {
    Python(python::PythonPlace),
    Php(php::PhpPlace),
    V8(Box<v8::V8Layout>),
    Ruby(ruby::RubyPlace),
}

impl Found {
    /// Creates a reader that has not read anything yet.
    pub fn instance(&self) -> Box<dyn Instance> {
        match &self.kind {
            FoundKind::Python(place) => Box::new(python::PythonReader::new(place.clone())),
            FoundKind::Php(place) => Box::new(php::PhpReader::new(place.clone())),
            FoundKind::V8(layout) => Box::new(v8::Engine::new((**layout).clone())),
            FoundKind::Ruby(place) => Box::new(ruby::RubyReader::new(place.clone())),
        }
    }
}

/// Finds the interpreters in the modules of a process. For each one that cannot be read, it returns the path of the
/// file and the reason.
pub(crate) fn detect(
    modules: &[Module],
    path: impl Fn(&Module) -> String,
    target: &mut dyn TargetMemory,
) -> (Vec<Found>, Vec<(String, String)>) {
    /// A process usually has one interpreter, rarely a few.
    const MAX_INSTANCES: usize = 8;
    let (mut found, mut refused) = (Vec::new(), Vec::new());
    for module in modules {
        // Only symbols of interpreters are looked up, so other files have no symbols here and are skipped quickly.
        if module.object.as_ref().is_none_or(|object| object.symbols().is_empty()) {
            continue;
        }
        for interpreter in &INTERPRETERS {
            match (interpreter.detect)(module, &path(module), target).map(|kind| kind.map(|kind| Found { kind })) {
                Ok(Some(one)) if !found.contains(&one) && found.len() < MAX_INSTANCES => found.push(one),
                Ok(_) => {}
                Err(reason) => refused.push((path(module), reason)),
            }
        }
    }
    (found, refused)
}

/// A thread whose frames are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ThreadKey {
    /// The thread's id in its own PID namespace.
    pub id: u32,
    /// The thread pointer, 0 while unknown.
    pub pointer: u64,
}

/// A frame as read from memory, before it is resolved.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RawFrame {
    /// The address of the frame.
    pub address: u64,
    /// The address of the code that the frame executes (Python's code object, PHP's `zend_function`).
    pub code: u64,
    /// The current position in the code: an address or an offset, depending on the interpreter.
    pub instruction: u64,
    /// The address of an object that names the class or module of the function, if the interpreter stores that apart
    /// from the code: Ruby's method entry, or the dictionary of the Python module that defines the function.
    pub owner: u64,
}

/// The frames that one native call of the interpreter's evaluation function executes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CallSegment {
    /// The index after the segment's last frame.
    pub end: usize,
    /// The anchor: a native stack address within that native call, if the interpreter stores one.
    pub anchor: Option<u64>,
}

/// The captured frames of a thread: only addresses, which stay valid until the thread runs again.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Captured {
    /// The frames, innermost first.
    pub frames: Vec<RawFrame>,
    /// The frames grouped by native call, innermost first.
    pub segments: Vec<CallSegment>,
    /// Whether outer frames are missing, because there were too many or they could not be read.
    pub cut: bool,
    /// Whether there were too many frames, so that reading again would not find more of them.
    pub too_many: bool,
    /// Whether the frames are in one array whose innermost address the native call holds (Ruby).
    pub in_array: bool,
    /// Whether the native call that contains [`CallSegment::anchor`] calls the evaluation function for these frames
    /// only (Ruby).
    pub nested: bool,
}

impl Captured {
    /// Removes all frames, but keeps the buffers for reuse.
    pub fn clear(&mut self) {
        self.frames.clear();
        self.segments.clear();
        (self.cut, self.too_many, self.in_array, self.nested) = (false, false, false, false);
    }

    /// Ends a segment: one native call executes all frames since the previous segment. Does nothing without such
    /// frames.
    fn end_call(&mut self, anchor: Option<u64>) {
        let end = self.frames.len();
        if self.segments.last().map_or(0, |segment| segment.end) < end {
            self.segments.push(CallSegment { end, anchor });
        }
    }

    /// Whether this address is already among the frames: a chain that changes while it is read may be circular.
    fn has(&self, address: u64) -> bool {
        self.frames.iter().any(|frame| frame.address == address)
            || self.segments.iter().any(|segment| segment.anchor == Some(address))
    }
}

/// A resolved frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Resolved {
    /// The function and line; `None` for the interpreter's internal frames, which are not shown.
    pub location: Option<Location>,
    /// The address range of the function's instructions: a native call that executes the function holds an address in
    /// this range. For a native function, only its start address.
    pub code: Range<u64>,
    /// Whether the function is unknown because memory changed between the reads.
    pub unknown: bool,
}

impl Resolved {
    /// A placeholder for a function that could not be determined.
    fn unknown(kind: FunctionKind, functions: &mut Functions) -> Self {
        let location = Location::Interpreted { function: functions.unknown(kind), line: 0 };
        Self { location: Some(location), code: 0..0, unknown: true }
    }
}

/// A function found by the address of an instruction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Executed {
    /// The address of the function's code, as in [`RawFrame::code`].
    pub code: u64,
    /// The function, and the line of the instruction before the address.
    pub resolved: Resolved,
    /// Whether other functions share these instructions, or may share them.
    pub shared: bool,
}

/// The kind of code at an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CodePlace {
    /// Compiled at run time.
    Generated,
    /// One of V8's built-in functions.
    Builtin,
    /// Anything else.
    Other,
}

/// The native stack of a thread, for interpreters that keep their frames there.
#[derive(Clone, Copy)]
pub struct NativeStack<'a> {
    /// The frames, innermost first.
    pub frames: &'a [Frame],
    /// Returns the kind of code at an address.
    pub place: &'a dyn Fn(u64) -> CodePlace,
}

/// The functions that were found for native frames.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct NativelyNamed {
    /// Locations, each with the index of the native frame that it replaces, innermost first.
    pub locations: Vec<(usize, Location)>,
    /// The number of functions whose position in the source is known.
    pub positioned: u64,
    /// The number of functions shown for frames that may execute a function inlined into them instead.
    pub named: u64,
    /// The number of functions shown in place of either themselves or a function inlined into them.
    pub inlined: u64,
    /// The number of functions that could not be determined.
    pub unknown: u64,
}

impl NativelyNamed {
    /// Removes all data, but keeps the buffers for reuse.
    pub fn clear(&mut self) {
        self.locations.clear();
        (self.positioned, self.named, self.inlined, self.unknown) = (0, 0, 0, 0);
    }
}

/// The reader of one interpreter in a process.
pub trait Instance: Debug + Send {
    /// Reads the frames of a thread into `captured`, which is cleared first. Returns whether the thread has any frames.
    /// Does as little as possible, since the thread may be stopped meanwhile. `limit` is the maximum number of frames
    /// read one by one, for interpreters whose frames are not adjacent; a limit below [`MAX_FRAMES`] means that the
    /// thread is stopped for this.
    fn capture(
        &mut self,
        thread: ThreadKey,
        limit: usize,
        now: Instant,
        target: &mut dyn TargetMemory,
        captured: &mut Captured,
    ) -> bool;

    /// The name that the interpreter gives a thread. `is_first` says whether it is the first thread of its process.
    fn thread_name(
        &mut self,
        _thread: ThreadKey,
        _is_first: bool,
        _now: Instant,
        _target: &mut dyn TargetMemory,
    ) -> Option<String> {
        None
    }

    /// Resolves the frames, in their order. `has_not_run` says that the thread has not run since they were captured, so
    /// they execute the code that is in memory now. Otherwise code that has changed since it was last read is reported
    /// as unknown.
    fn resolve(
        &mut self,
        captured: &Captured,
        has_not_run: bool,
        target: &mut dyn TargetMemory,
        functions: &mut Functions,
        resolved: &mut Vec<Resolved>,
    ) {
        resolved.clear();
        let Some(code) = self.code() else { return };
        code.next_stack();
        let mut session =
            ResolveSession { has_not_run, new: MAX_NEW, ..ResolveSession::new(code.max_reads(), target, functions) };
        for frame in &captured.frames {
            let found = code.resolve_frame(frame, &mut session);
            resolved.push(found.unwrap_or_else(|| Resolved::unknown(code.kind(), session.functions)));
        }
    }

    /// The reader that finds functions by their code; `None` for interpreters that have their frames on the native
    /// stack.
    #[doc(hidden)]
    fn code(&mut self) -> Option<&mut dyn CodeReader> {
        None
    }

    /// Announces that the next requests are about a sample taken at `at`, whose thread has run since; `None` if the
    /// thread is stopped. `now` is not later than any read that follows.
    fn sampled(&mut self, at: Option<Instant>, now: Instant) {
        if let Some(code) = self.code() {
            code.sampled(at, now);
        }
    }

    /// Whether this code (as in [`RawFrame::code`]) was first read after the sample: then another function may have
    /// been at its address at the time of the sample.
    fn is_fresh(&self, _code: u64) -> bool {
        false
    }

    /// Among the functions that share the instructions at this address ([`Executed::shared`]), returns the one whose
    /// code address (as in [`RawFrame::code`]) is in `words`; `None` unless exactly one is.
    fn executed_among(
        &mut self,
        address: u64,
        words: &[u64],
        target: &mut dyn TargetMemory,
        functions: &mut Functions,
    ) -> Option<Executed> {
        let code = self.code()?;
        code.executed_among(address, words, &mut ResolveSession::new(code.max_reads(), target, functions))
    }

    /// Returns the function whose instructions include this address, among those that [`Instance::resolve`] has read;
    /// `None` also if the function has changed since.
    fn executed(&mut self, address: u64, target: &mut dyn TargetMemory, functions: &mut Functions) -> Option<Executed> {
        let code = self.code()?;
        code.executed(address, &mut ResolveSession::new(code.max_reads(), target, functions))
    }

    /// Returns the function whose instructions include this address when [`Instance::resolve`] has not read it yet. One
    /// of the `words` is probably the address of a frame that executes the function, or recently did.
    fn find_by_frames(
        &mut self,
        address: u64,
        words: &[u64],
        target: &mut dyn TargetMemory,
        functions: &mut Functions,
    ) -> Option<Executed> {
        let code = self.code()?;
        code.find_by_frames(address, words, &mut ResolveSession::new(code.max_reads(), target, functions))
    }

    /// The offset in a frame where the address of its current instruction is stored, if frames store it.
    fn instruction_in_frame(&self) -> Option<u64> {
        None
    }

    /// Whether each native call of the evaluation function executes exactly one function. Then the call's registers and
    /// stack contain data of that function or older values (Python up to 3.10).
    fn has_calls_of_one(&self) -> bool {
        false
    }

    /// The registers (DWARF numbers) that hold the next instruction's address and the frame's address throughout the
    /// evaluation function, if its code is known to keep them there (Ruby).
    fn registers(&self) -> Option<(u8, u8)> {
        None
    }

    /// The address range of the evaluation function, for interpreters whose frames have no [`CallSegment::anchor`].
    fn evaluation(&self) -> Option<Range<u64>>;

    /// Whether the native calls of the evaluation function are enough to prove which functions they execute, so that
    /// functions are known even if no frames could be read.
    fn proves_by_itself(&self) -> bool {
        false
    }

    /// In which registers native calls hold the function they execute, for interpreters whose frames
    /// [`merge_by_registers`] places.
    fn held(&self) -> Option<Held> {
        None
    }

    /// Finds the functions of native frames, for interpreters with frames on the native stack. `memory` is the stack
    /// at the moment of the sample.
    fn name_native(
        &mut self,
        _stack: NativeStack<'_>,
        _memory: &mut dyn StackMemory,
        _target: &mut dyn TargetMemory,
        _functions: &mut Functions,
        _named: &mut NativelyNamed,
    ) {
    }

    /// Whether this interpreter implements [`Self::name_native`].
    fn is_native(&self) -> bool {
        false
    }
}
