//! V8 10.2, 11.3, 12.4 and 13.6: Node 18, 20, 22 and 24.
//!
//! V8 has no list of frames. Its functions have frames on the native stack, with a frame pointer; the words below it
//! are the function and, for interpreted functions, the byte code and the current offset. They are in the stack copy,
//! so they are from the moment of the sample. The objects to which they refer are read from memory right afterwards. As
//! objects may move or be freed, the type of each is checked, and whether function and code belong together.
//!
//! * V8 creates byte code positions only when an exception, a profiler or a debugger needs them. Until then the line
//!   shown is the function's first.
//! * Inlined functions are found by the deoptimization data and the positions in code. Node makes V8 record positions
//!   of all TurboFan instructions. If V8 records only those of calls, the innermost frame is ambiguous and shown as
//!   `outer [with inlined functions]`. Maglev records none: its frames have the name of the outermost function. A table
//!   with entries that no call follows has positions of all instructions; for code with few entries, the process's
//!   other code decides.
//! * Not supported: V8 with compressed pointers (Electron), and builds without the constants for debuggers
//!   (`v8dbg_*`).

mod bytecode;
mod code;
mod frames;
mod functions;
mod heap;
mod layout;
mod positions;
#[cfg(any(test, feature = "recordings"))]
#[path = "tests/recorded.rs"]
mod recorded;
#[cfg(test)]
mod tests;

use std::time::Instant;

use self::bytecode::Bytecodes;
use self::code::Codes;
use self::frames::{FrameMeaning, FrameNamer, NativeFrameToName, Walk};
use self::functions::SharedFunctions;
pub use self::functions::WITH_INLINED;
use self::heap::{Heap, Maps};
#[cfg(any(test, feature = "recordings"))]
pub(in crate::runtime) use self::layout::Constants;
pub(crate) use self::layout::MAJOR_VERSION;
pub(super) use self::layout::SYMBOLS;
pub(in crate::runtime) use self::layout::V8Layout;
#[cfg(any(test, feature = "recordings"))]
pub use self::recorded::RecordedStack;
use super::target::{Allowance, Bounded, TargetMemory};
use super::{Captured, CodePlace, Functions, Instance, NativeStack, NativelyNamed, ThreadKey};
use crate::address_space::Module;
use crate::unwind::StackMemory;

/// How much is read for one stack. The sources of scripts need most of it, but are read only once.
const ALLOWANCE: Allowance = Allowance { reads: 8192, bytes: 64 << 20 };

/// Finds the V8 whose code is in this module.
pub(super) fn find(module: &Module, target: &mut dyn TargetMemory) -> Result<Option<V8Layout>, String> {
    let Some(object) = module.object.as_ref().filter(|object| object.symbol(MAJOR_VERSION).is_some()) else {
        return Ok(None);
    };
    V8Layout::read(object, module.bias, target)
}

/// The V8 of a process. Its isolates are not distinguished, since frames have all the needed addresses.
#[derive(Debug)]
pub(super) struct Engine {
    layout: V8Layout,
    maps: Maps,
    functions: SharedFunctions,
    codes: Codes,
    bytecodes: Bytecodes,
}

impl Engine {
    pub(super) fn new(layout: V8Layout) -> Self {
        Self {
            layout,
            maps: Maps::default(),
            functions: SharedFunctions::default(),
            codes: Codes::default(),
            bytecodes: Bytecodes::default(),
        }
    }
}

impl Instance for Engine {
    /// Reads nothing: the frames are on the native stack, see [`Self::name_native`].
    fn capture(
        &mut self,
        _thread: ThreadKey,
        _limit: usize,
        _now: Instant,
        _target: &mut dyn TargetMemory,
        captured: &mut Captured,
    ) -> bool {
        captured.clear();
        false
    }

    fn evaluation(&self) -> Option<std::ops::Range<u64>> {
        None
    }

    fn is_native(&self) -> bool {
        true
    }

    fn thread_name(
        &mut self,
        _thread: ThreadKey,
        is_first: bool,
        _now: Instant,
        _target: &mut dyn TargetMemory,
    ) -> Option<String> {
        is_first.then(|| "main".to_owned())
    }

    fn name_native(
        &mut self,
        stack: NativeStack<'_>,
        memory: &mut dyn StackMemory,
        target: &mut dyn TargetMemory,
        functions: &mut Functions,
        named: &mut NativelyNamed,
    ) {
        let Self { layout, maps, functions: known, codes, bytecodes } = self;
        codes.next_stack();
        let heap = Heap { layout, maps, target: Bounded::new(target, ALLOWANCE) };
        let mut reader = FrameNamer { heap, known, codes, bytecodes, functions, walk: Walk::default() };
        for (index, frame) in stack.frames.iter().enumerate() {
            let place = (stack.place)(frame.lookup(index));
            if place == CodePlace::Other {
                continue;
            }
            let Some(one) = NativeFrameToName::new(stack.frames, index, memory) else { continue };
            match reader.interpret(&one, place) {
                Some(FrameMeaning::Calls(caller)) => {
                    named.locations.push((index, frame.location));
                    reader.put(index, *caller, named);
                }
                Some(meaning) => reader.put(index, meaning, named),
                None => {}
            }
        }
    }
}
