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

mod functions;
mod merge;
mod python;
mod recording;
mod target;

use std::fmt::Debug;
use std::ops::Range;
use std::time::Instant;

pub(crate) use self::functions::plain;
pub use self::functions::{Functions, MAX_FILE, MAX_FUNCTIONS, MAX_NAME, MAX_TEXT};
pub use self::merge::{Lookup, Merged, Stack, Words, merge};
pub use self::python::Python;
pub use self::recording::Recording;
pub use self::target::{Allowance, Target};
pub(crate) use self::target::{Bounded, half_at, word, word_at};

use crate::address_space::Module;
use crate::message::Location;

/// The most frames of one thread that are read. A deeper stack is cut.
pub const MAX_FRAMES: usize = 1024;

/// A kind of interpreter.
pub trait Runtime {
    /// Finds the interpreter whose state is in this module.
    ///
    /// # Errors
    ///
    /// Why its frames cannot be read although it is one of this kind, for a person.
    fn detect(&self, module: &Module, path: &str, target: &mut dyn Target) -> Result<Option<Found>, String>;
}

/// The kinds of interpreters that are known.
const RUNTIMES: [&dyn Runtime; 1] = [&Python];

/// An interpreter that was found in a process. Plain data: [`Found::instance`] makes its reader.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// What was found.
    kind: FoundKind,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum FoundKind {
    Python(python::Place),
}

impl Found {
    /// A Python interpreter by where its `_PyRuntime` is, for memory of which nothing else is known.
    ///
    /// # Errors
    ///
    /// Why its frames cannot be read, for a person.
    pub fn python(runtime: u64, version: u32, target: &mut dyn Target) -> Result<Self, String> {
        python::Place::at(runtime, version, target).map(|place| Self { kind: FoundKind::Python(place) })
    }

    /// Where its state begins, and its version as `PY_VERSION_HEX` has it.
    pub fn state(&self) -> (u64, u32) {
        match &self.kind {
            FoundKind::Python(place) => (place.runtime, place.version),
        }
    }

    /// Its reader, which has read nothing yet.
    pub fn instance(&self) -> Box<dyn Instance> {
        match &self.kind {
            FoundKind::Python(place) => Box::new(python::Interpreter::new(place.clone())),
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
    /// Where the code that it executes is (Python's code object).
    pub code: u64,
    /// Where in the code it is: an address, or an offset, as the interpreter has it.
    pub instruction: u64,
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
}

impl Captured {
    /// Forgets everything.
    pub fn clear(&mut self) {
        self.frames.clear();
        self.segments.clear();
        self.cut = false;
    }
}

/// What a frame is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Resolved {
    /// Its function and line; `None` for frames that are the interpreter's own and not shown.
    pub location: Option<Location>,
    /// Where the instructions of its function are: a native call that executes it has an address in there.
    pub code: Range<u64>,
    /// Its function could not be told, because it changed in between.
    pub unknown: bool,
}

/// A function that was found by an address in its code.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Executed {
    /// Where its code is, as in [`RawFrame::code`].
    pub code: u64,
    /// The function, and the line of the instruction before the address.
    pub resolved: Resolved,
    /// Other functions are known that share these instructions.
    pub shared: bool,
}

/// An interpreter in a process.
pub trait Instance: Debug + Send {
    /// Reads the frames of a thread into `captured`, which is emptied before. Returns whether it has any. Nothing is
    /// looked up that can be looked up later, since the thread may stand still for this. `limit` is how many frames are
    /// read one by one, where the interpreter has them at different places.
    fn capture(
        &mut self,
        thread: ThreadKey,
        limit: usize,
        now: Instant,
        target: &mut dyn Target,
        captured: &mut Captured,
    ) -> bool;

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
    );

    /// The function that has its instructions at this address, among those that [`Instance::resolve`] met; `None` also if
    /// it changed since.
    fn executed(&mut self, address: u64, target: &mut dyn Target, functions: &mut Functions) -> Option<Executed>;

    /// Where the evaluation function is, for interpreters whose frames have no [`Segment::anchor`].
    fn evaluation(&self) -> Option<Range<u64>>;
}
