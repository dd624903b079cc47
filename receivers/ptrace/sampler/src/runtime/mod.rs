//! Interpreters whose functions are named from their memory.
//!
//! A native stack shows an interpreter's own functions, not those of the program that it runs. What runs is in the
//! interpreter's memory: a list of threads, and for each the chain of its frames. A [`Runtime`] finds an interpreter
//! among the files of a process, an [`Instance`] reads its frames ([`Instance::capture`]) while the thread stands still
//! or right after a sample of it, and tells what they are ([`Instance::resolve`]) once that does not matter any more.
//! `merge.rs` puts them in the places of the native frames that stand for them.
//!
//! All of this sees a process only through [`Target`]: no file, no path, no clock. Everything that is read was written
//! by the target and is taken for hostile: lists are bounded by counts, sizes by limits, and arithmetic wraps.

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

use self::code_reader::{CodeReader, Session};
pub(crate) use self::functions::plain;
pub use self::functions::{Functions, MAX_FILE, MAX_FOLDERS, MAX_FUNCTIONS, MAX_NAME, MAX_TEXT, UNKNOWN_FUNCTION};
pub use self::merge::{Held, Lookup, Merged, NextInstruction, Pieces, Stack, Words, merge, merge_held};
pub use self::php::Php;
pub use self::python::Python;
#[cfg(any(test, feature = "recordings"))]
pub use self::recording::Recording;
pub use self::ruby::Ruby;
pub use self::target::{Allowance, Target};
pub(crate) use self::target::{Bounded, half_at, word, word_at};
pub(crate) use self::v8::MAJOR_VERSION as V8_VERSION;
#[cfg(any(test, feature = "recordings"))]
pub use self::v8::RecordedStack;
pub use self::v8::{V8, WITH_INLINED};

use crate::address_space::Module;
use crate::elf::SymbolNames;
use crate::message::{FunctionKind, Location};
use crate::unwind::{Frame, StackMemory};

/// The most frames of one thread that are read. A deeper stack is cut.
pub const MAX_FRAMES: usize = 1024;

/// The most functions of one stack that are read for the first time; further ones are unknown.
const MAX_NEW: u32 = 64;

/// A kind of interpreter.
pub trait Runtime: Sync {
    /// The symbols by which it is found.
    fn symbols(&self) -> &'static SymbolNames;

    /// Finds the interpreter whose state is in this module.
    ///
    /// # Errors
    ///
    /// Why its frames cannot be read although it is one of this kind, for a person.
    fn detect(&self, module: &Module, path: &str, target: &mut dyn Target) -> Result<Option<Found>, String>;
}

/// The kinds of interpreters that are known.
const RUNTIMES: [&dyn Runtime; FunctionKind::COUNT] = [&Python, &Php, &V8, &Ruby];

/// The symbols by which interpreters are found.
pub(crate) fn symbols() -> impl Iterator<Item = &'static SymbolNames> {
    RUNTIMES.into_iter().map(|runtime| runtime.symbols())
}

/// An interpreter that was found in a process. Plain data: [`Found::instance`] makes its reader.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// What was found.
    kind: FoundKind,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum FoundKind {
    Python(python::Place),
    Php(php::Place),
    V8(Box<v8::Layout>),
    Ruby(ruby::Place),
}

impl Found {
    /// Its reader, which has read nothing yet.
    pub fn instance(&self) -> Box<dyn Instance> {
        match &self.kind {
            FoundKind::Python(place) => Box::new(python::Interpreter::new(place.clone())),
            FoundKind::Php(place) => Box::new(php::Interpreter::new(place.clone())),
            FoundKind::V8(layout) => Box::new(v8::Engine::new((**layout).clone())),
            FoundKind::Ruby(place) => Box::new(ruby::Interpreter::new(place.clone())),
        }
    }
}

/// The interpreters in the modules of a process, and why some cannot be read, with the path of the file.
pub(crate) fn detect(
    modules: &[Module],
    path: impl Fn(&Module) -> String,
    target: &mut dyn Target,
) -> (Vec<Found>, Vec<(String, String)>) {
    /// A process has one interpreter, or a few.
    const MAX_INSTANCES: usize = 8;
    let (mut found, mut refused) = (Vec::new(), Vec::new());
    for module in modules {
        // The symbols of interpreters are the only ones that are looked up, so other files are passed over quickly.
        if module.object.as_ref().is_none_or(|object| object.symbols().is_empty()) {
            continue;
        }
        for runtime in RUNTIMES {
            match runtime.detect(module, &path(module), target) {
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
    /// Its id in its own PID namespace.
    pub id: u32,
    /// Its thread pointer, 0 while unknown.
    pub pointer: u64,
}

/// A frame as it was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RawFrame {
    /// Where the frame is.
    pub address: u64,
    /// Where the code that it executes is (Python's code object, PHP's `zend_function`).
    pub code: u64,
    /// Where in the code it is: an address, or an offset, as the interpreter has it.
    pub instruction: u64,
    /// What its function belongs to, for interpreters that say it apart from the code: where the method is described
    /// (Ruby), or where the variables of the module are that it was defined in (Python).
    pub owner: u64,
}

/// Frames that one native call of the interpreter's evaluation function executes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Segment {
    /// The index after its last frame.
    pub end: usize,
    /// An address on the native stack within that native call, where the interpreter tells one.
    pub anchor: Option<u64>,
}

/// The frames of a thread as they were read: addresses only, which mean something as long as nothing of it runs.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Captured {
    /// The frames, the innermost first.
    pub frames: Vec<RawFrame>,
    /// What frames belong to which native call, the innermost first.
    pub segments: Vec<Segment>,
    /// Outer frames are missing, because they were too many or could not be read.
    pub cut: bool,
    /// They were too many, so that reading them again finds no more of them.
    pub too_many: bool,
    /// They are in one array, and a native call has the address of its innermost one (Ruby).
    pub in_array: bool,
    /// The native call that [`Segment::anchor`] is in calls the evaluation function for nothing but these frames
    /// (Ruby).
    pub nested: bool,
}

impl Captured {
    /// Forgets everything.
    pub fn clear(&mut self) {
        self.frames.clear();
        self.segments.clear();
        (self.cut, self.too_many, self.in_array, self.nested) = (false, false, false, false);
    }

    /// Ends the native call that executes the frames since the last one, if there are any.
    fn end_call(&mut self, anchor: Option<u64>) {
        let end = self.frames.len();
        if self.segments.last().map_or(0, |segment| segment.end) < end {
            self.segments.push(Segment { end, anchor });
        }
    }

    /// Whether the frame at this address comes again: a chain that is just being changed may lead in a circle.
    fn has(&self, address: u64) -> bool {
        self.frames.iter().any(|frame| frame.address == address)
            || self.segments.iter().any(|segment| segment.anchor == Some(address))
    }
}

/// What a frame is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Resolved {
    /// Its function and line; `None` for frames that are the interpreter's own and not shown.
    pub location: Option<Location>,
    /// Where the instructions of its function are: a native call that executes it has an address in there. Of a
    /// function that is native itself, the address where it begins.
    pub code: Range<u64>,
    /// Its function could not be told, because it changed in between.
    pub unknown: bool,
}

impl Resolved {
    /// What stands for a function that cannot be told.
    fn unknown(kind: FunctionKind, functions: &mut Functions) -> Self {
        let location = Location::Interpreted { function: functions.unknown(kind), line: 0 };
        Self { location: Some(location), code: 0..0, unknown: true }
    }
}

/// A function that was found by an address in its code.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Executed {
    /// Where its code is, as in [`RawFrame::code`].
    pub code: u64,
    /// The function, and the line of the instruction before the address.
    pub resolved: Resolved,
    /// There are other functions that share these instructions, or may be.
    pub shared: bool,
}

/// What kind of code an address is in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CodePlace {
    /// Compiled at run time.
    Generated,
    /// One of V8's built-in functions.
    Builtin,
    /// Anything else.
    Other,
}

/// The native stack of a thread, for interpreters that have their frames there.
#[derive(Clone, Copy)]
pub struct NativeStack<'a> {
    /// Its frames, the innermost first.
    pub frames: &'a [Frame],
    /// What kind of code an address is in.
    pub place: &'a dyn Fn(u64) -> CodePlace,
}

/// What native frames stand for.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Named {
    /// Functions by the index of the native frame in whose place they are, the innermost first.
    pub locations: Vec<(usize, Location)>,
    /// Functions of which it is known where they were.
    pub positioned: u64,
    /// Other functions with a name.
    pub named: u64,
    /// Functions that stand for those that were inlined into them as well.
    pub inlined: u64,
    /// Functions that could not be told.
    pub unknown: u64,
}

impl Named {
    /// Forgets everything.
    pub fn clear(&mut self) {
        self.locations.clear();
        (self.positioned, self.named, self.inlined, self.unknown) = (0, 0, 0, 0);
    }
}

/// An interpreter in a process.
pub trait Instance: Debug + Send {
    /// Reads the frames of a thread into `captured`, which is emptied before. Returns whether it has any. Nothing is
    /// looked up that can be looked up later, since the thread may stand still for this. `limit` is how many frames are
    /// read one by one, where the interpreter has them at different places; less than [`MAX_FRAMES`] says that the
    /// thread is stopped for it.
    fn capture(
        &mut self,
        thread: ThreadKey,
        limit: usize,
        now: Instant,
        target: &mut dyn Target,
        captured: &mut Captured,
    ) -> bool;

    /// What the interpreter calls a thread. `is_first` if it is the first one of its process.
    fn thread_name(
        &mut self,
        _thread: ThreadKey,
        _is_first: bool,
        _now: Instant,
        _target: &mut dyn Target,
    ) -> Option<String> {
        None
    }

    /// Tells what the frames are, in their order. `stands` if the thread still stands where they were read: then what
    /// is in memory now belongs to them, while otherwise code that has changed since it was read the last time is
    /// unknown.
    fn resolve(
        &mut self,
        captured: &Captured,
        stands: bool,
        target: &mut dyn Target,
        functions: &mut Functions,
        resolved: &mut Vec<Resolved>,
    ) {
        resolved.clear();
        let Some(code) = self.code() else { return };
        code.next_stack();
        let mut session = Session { stands, new: MAX_NEW, ..Session::new(code.max_reads(), target, functions) };
        for frame in &captured.frames {
            let told = code.tell(frame, &mut session);
            resolved.push(told.unwrap_or_else(|| Resolved::unknown(code.kind(), session.functions)));
        }
    }

    /// What tells its functions by their code; `None` for interpreters that have their frames on the native stack.
    #[doc(hidden)]
    fn code(&mut self) -> Option<&mut dyn CodeReader> {
        None
    }

    /// What is asked next is about a sample of this moment, whose thread ran on since; `None` if it stood still. `now`
    /// is not later than what is read from now on.
    fn sampled(&mut self, at: Option<Instant>, now: Instant) {
        if let Some(code) = self.code() {
            code.sampled(at, now);
        }
    }

    /// Whether this code (as in [`RawFrame::code`]) was read for the first time after the sample: then another function
    /// may have had its place at that moment.
    fn is_fresh(&self, _code: u64) -> bool {
        false
    }

    /// Of the functions that share the instructions at this address ([`Executed::shared`]), the one whose code (as in
    /// [`RawFrame::code`]) is among these words; `None` if that is not exactly one.
    fn executed_among(
        &mut self,
        address: u64,
        words: &[u64],
        target: &mut dyn Target,
        functions: &mut Functions,
    ) -> Option<Executed> {
        let code = self.code()?;
        code.executed_among(address, words, &mut Session::new(code.max_reads(), target, functions))
    }

    /// The function that has its instructions at this address, among those that [`Instance::resolve`] met; `None` also
    /// if it changed since.
    fn executed(&mut self, address: u64, target: &mut dyn Target, functions: &mut Functions) -> Option<Executed> {
        let code = self.code()?;
        code.executed(address, &mut Session::new(code.max_reads(), target, functions))
    }

    /// The function that has its instructions at this address, if [`Instance::resolve`] did not meet it: one of these
    /// words is likely to be where its frame is, or was a moment ago.
    fn meet(
        &mut self,
        address: u64,
        words: &[u64],
        target: &mut dyn Target,
        functions: &mut Functions,
    ) -> Option<Executed> {
        let code = self.code()?;
        code.meet(address, words, &mut Session::new(code.max_reads(), target, functions))
    }

    /// How far behind its beginning a frame has the address of its instruction, where it has one.
    fn instruction_in_frame(&self) -> Option<u64> {
        None
    }

    /// Whether each native call of its evaluation function executes one function only, from its beginning to its end,
    /// so that what the call has in registers and on the stack is of that one, or was there before it began (Python up
    /// to 3.10).
    fn has_calls_of_one(&self) -> bool {
        false
    }

    /// The registers (DWARF numbers) that have the address of the next instruction and that of the frame in all of the
    /// evaluation function, where its code is known to have them there (Ruby).
    fn registers(&self) -> Option<(u8, u8)> {
        None
    }

    /// Where the evaluation function is, for interpreters whose frames have no [`Segment::anchor`].
    fn evaluation(&self) -> Option<Range<u64>>;

    /// Whether native calls of its evaluation function tell by themselves what they execute, so that something is known
    /// of them also where no frames could be read.
    fn proves_by_itself(&self) -> bool {
        false
    }

    /// Where it has what it executes, for interpreters whose frames [`merge_held`] puts in place.
    fn held(&self) -> Option<Held> {
        None
    }

    /// Tells which functions native frames stand for, where the interpreter has its frames on the native stack, of
    /// which `memory` has the words as they were at the moment of the sample.
    fn name_native(
        &mut self,
        _stack: NativeStack<'_>,
        _memory: &mut dyn StackMemory,
        _target: &mut dyn Target,
        _functions: &mut Functions,
        _named: &mut Named,
    ) {
    }

    /// Whether [`Self::name_native`] tells anything.
    fn is_native(&self) -> bool {
        false
    }
}
