//! What native frames stand for: the functions of the program that each executes, and where in them.

use std::sync::Arc;

use super::bytecode::Bytecodes;
use super::code::{Codes, What};
use super::functions::{Known, SharedFunctions};
use super::heap::{Heap, is_object, number};
use super::layout::Layout;
use super::positions;
use crate::message::{FunctionKind, Location};
use crate::runtime::target::word_at;
use crate::runtime::{CodePlace, Functions, Named};
use crate::unwind::{FRAME_POINTER, Frame, StackMemory};

/// How large the frame of the outermost known function may be.
const LAST_FRAME: u64 = 64 << 10;

/// What is where from the frame pointer on (v8/v8 `src/execution/frame-constants.h`): the context or the kind of frame,
/// the function, the byte code, and the offset in it.
pub(super) const CONTEXT: u64 = 8;
pub(super) const FUNCTION: u64 = 16;
pub(super) const BYTECODE: u64 = 32;
pub(super) const OFFSET: u64 = 40;
/// The register in which a function is when it is called: RDI, by its DWARF number.
pub(super) const CALLED: u8 = 5;
/// Where return addresses of frames are looked for, from the stack pointer on.
const TOP: [u64; 4] = [0, 8, 16, 24];

/// The words of a frame, from its frame pointer down.
#[derive(Debug, Clone, Copy)]
struct Words {
    function: u64,
    bytecode: u64,
    offset: u64,
}

impl Words {
    /// `None` if it is a frame of V8's own, which has the number of its kind instead of a context.
    fn read(pointer: u64, memory: &mut dyn StackMemory) -> Option<Self> {
        let mut word = |below: u64| memory.read_u64(pointer.wrapping_sub(below));
        let context = word(CONTEXT)?;
        if !is_object(context) {
            return None;
        }
        // Frames of compiled functions may be so small that what is below them is not theirs.
        Some(Self {
            function: word(FUNCTION)?,
            bytecode: word(BYTECODE).unwrap_or(0),
            offset: word(OFFSET).unwrap_or(0),
        })
    }
}

/// A native frame.
#[derive(Debug)]
pub(super) struct OneFrame<'a> {
    frame: &'a Frame,
    lookup: u64,
    is_leaf: bool,
    words: Option<Words>,
    /// The function that was called last, if it was called just now.
    called: Option<u64>,
    /// The words that were pushed last.
    top: [u64; 4],
}

impl<'a> OneFrame<'a> {
    /// One of the frames of a stack.
    pub(super) fn new(frames: &'a [Frame], index: usize, memory: &mut dyn StackMemory) -> Option<Self> {
        let frame = frames.get(index)?;
        let end = frames.get(index + 1).map_or(frame.sp.saturating_add(LAST_FRAME), |caller| caller.sp);
        let pointer = frame.registers.get(FRAME_POINTER).filter(|pointer| (frame.sp..end).contains(pointer));
        let words = pointer.and_then(|pointer| Words::read(pointer, memory));
        let is_leaf = index == 0;
        let lookup = frame.lookup(index);
        // A function may have a built-in one make its frame.
        let called = frames.first().filter(|_| index <= 1).and_then(|leaf| leaf.registers.get(CALLED));
        // A built-in function without a frame of its own was called by the one that has this frame.
        let top = if is_leaf { TOP.map(|at| memory.read_u64(frame.sp.wrapping_add(at)).unwrap_or(0)) } else { [0; 4] };
        Some(Self { frame, lookup, is_leaf, words, called, top })
    }
}

/// What a native frame stands for.
#[derive(Debug)]
pub(super) enum Told {
    /// Functions, the innermost first, with the offset of the character where each is, if known.
    Functions(Vec<(Known, Option<u32>)>),
    /// This function, or one that was inlined into it.
    Inlined(Known),
    /// This function, or one that was inlined into it, in code without positions: V8's own profiler says the function,
    /// and so does this, which is counted.
    Outermost(Known),
    /// The code of a regular expression.
    RegularExpression,
    /// A function that cannot be told.
    Unknown,
    /// A built-in function that is called by this.
    Calls(Box<Told>),
}

/// How much of tables may still be gone through for one stack, in bytes.
pub(super) struct Walk(usize);

impl Default for Walk {
    /// The tables of a few functions are a hundred bytes each; those of the largest ones are a hundred thousand.
    fn default() -> Self {
        Self(4 << 20)
    }
}

impl Walk {
    /// Whether so many bytes may be gone through.
    fn may(&mut self, length: usize) -> bool {
        let left = self.0.checked_sub(length);
        self.0 = left.unwrap_or(self.0);
        left.is_some()
    }
}

/// Tells what the native frames of one stack stand for.
pub(super) struct Reader<'a, 'b> {
    pub(super) heap: Heap<'a, 'b>,
    pub(super) known: &'a mut SharedFunctions,
    pub(super) codes: &'a mut Codes,
    pub(super) bytecodes: &'a mut Bytecodes,
    pub(super) functions: &'a mut Functions,
    pub(super) walk: Walk,
}

impl Reader<'_, '_> {
    /// What a frame stands for; `None` if it is only what it is.
    pub(super) fn tell(&mut self, one: &OneFrame<'_>, place: CodePlace) -> Option<Told> {
        match place {
            CodePlace::Generated => self.generated(one),
            CodePlace::Builtin | CodePlace::Other => self.builtin(one),
        }
    }

    /// A frame of code that was compiled at run time.
    fn generated(&mut self, one: &OneFrame<'_>) -> Option<Told> {
        let Some(start) = self.codes.find(one.lookup, &mut self.heap) else {
            // Code that is in no object that could be found: the function is the one of the frame.
            let known = one.words.and_then(|words| self.compiled(words.function));
            return Some(known.map_or(Told::Unknown, |known| Told::Functions(vec![(known, None)])));
        };
        let offset = one.lookup.wrapping_sub(start);
        match self.codes.get(start)? {
            What::Other => self.builtin(one),
            What::RegularExpression => Some(Told::RegularExpression),
            What::Baseline { bytecode, table } => {
                let (bytecode, table) = (*bytecode, Arc::clone(table));
                let (function, in_frame) = match one.words {
                    Some(words) => (words.function, Some(words.bytecode)),
                    // The frame is not there yet.
                    None => (one.called?, None),
                };
                let Some(known) = self.compiled(function) else { return Some(Told::Unknown) };
                // While the frame is made, the byte code is the last that is put into it.
                if in_frame != Some(bytecode) && !self.belongs(&known, bytecode) {
                    return Some(Told::Unknown);
                }
                let position = self.position(bytecode, |layout, code| {
                    positions::bytecode_offset(&table, layout.sizes.as_ref()?, code, offset)
                });
                Some(Told::Functions(vec![(known, position)]))
            }
            What::Optimized(code) => {
                let function = code.function;
                if code.table.is_empty() && code.has_inlined() {
                    return Some(self.compiled_from(function).map_or(Told::Unknown, Told::Outermost));
                }
                // Of the instruction that is executed now, the call before it tells nothing.
                let is_told = !one.is_leaf || !code.has_inlined() || self.codes.is_detailed(code);
                let chain = if is_told && self.walk.may(code.table.len()) { code.at(offset) } else { None };
                let Some(chain) = chain else {
                    return Some(self.compiled_from(function).map_or(Told::Unknown, Told::Inlined));
                };
                let mut told = Vec::with_capacity(chain.len());
                for (one, position) in chain {
                    let Some(known) = self.compiled_from(one) else {
                        return Some(self.compiled_from(function).map_or(Told::Unknown, Told::Inlined));
                    };
                    told.push((known, position));
                }
                Some(Told::Functions(told))
            }
        }
    }

    /// A frame of one of V8's own functions: of the interpreter, or of a function of the language.
    fn builtin(&mut self, one: &OneFrame<'_>) -> Option<Told> {
        let words = one.words?;
        let layout = self.heap.layout;
        let offset = number(words.offset).and_then(|offset| u64::try_from(offset).ok());
        let is_bytecode = offset.is_some() && self.heap.kind(words.bytecode) == Some(layout.types.bytecode);
        let map = is_object(words.function).then(|| self.heap.field(words.function, 0))?;
        if !map.is_some_and(|map| self.heap.is_function(map)) {
            // What is executed was moved meanwhile; other frames are no functions' ones.
            return is_bytecode.then_some(Told::Unknown);
        }
        let Some(known) = self.function(words.function) else { return is_bytecode.then_some(Told::Unknown) };
        if known.builtin && known.is_anonymous() && !is_bytecode {
            // Its symbol says more.
            return None;
        }
        if known.builtin {
            // What has byte code was made of a source, which it has lost meanwhile.
            return Some(if is_bytecode { Told::Unknown } else { Told::Functions(vec![(known, None)]) });
        }
        let Some(offset) = offset.filter(|_| is_bytecode) else { return self.caller_of_builtin(one, known) };
        if !self.belongs(&known, words.bytecode) {
            return Some(Told::Unknown);
        }
        let at = offset.checked_sub(layout.bytecode_start.saturating_sub(1))?;
        let position = self.position(words.bytecode, |_, _| Some(at));
        Some(Told::Functions(vec![(known, position)]))
    }

    /// The compiled function that called a built-in one which has no frame.
    fn caller_of_builtin(&mut self, one: &OneFrame<'_>, known: Known) -> Option<Told> {
        if !one.is_leaf {
            return None;
        }
        // What is marked as an object is none.
        for address in one.top.into_iter().filter(|address| !is_object(*address) && *address > 4096) {
            let lookup = address.wrapping_sub(1);
            let found = self.codes.find(lookup, &mut self.heap).and_then(|start| self.codes.get(start));
            if found.is_some_and(|what| matches!(what, What::Baseline { .. } | What::Optimized(_))) {
                let caller =
                    OneFrame { frame: one.frame, lookup, is_leaf: false, words: one.words, called: None, top: [0; 4] };
                return self.generated(&caller).map(|told| Told::Calls(Box::new(told)));
            }
        }
        Some(Told::Calls(Box::new(Told::Functions(vec![(known, None)]))))
    }

    /// The function of an instance of it.
    fn function(&mut self, function: u64) -> Option<Known> {
        let mut bytes = [0; 40];
        if !self.heap.read(function, 0, &mut bytes) || !self.heap.is_function(word_at(&bytes, 0)) {
            return None;
        }
        let shared = match bytes.get(self.heap.layout.shared as usize..) {
            Some(rest) if rest.len() >= 8 => word_at(rest, 0),
            _ => self.heap.field(function, self.heap.layout.shared)?,
        };
        self.look(shared)
    }

    /// The function of an instance of it that was compiled at run time.
    fn compiled(&mut self, function: u64) -> Option<Known> {
        self.function(function).filter(has_source)
    }

    /// The function with this `SharedFunctionInfo`, that was compiled at run time.
    fn compiled_from(&mut self, shared: u64) -> Option<Known> {
        self.look(shared).filter(has_source)
    }

    fn look(&mut self, shared: u64) -> Option<Known> {
        self.known.look(shared, &mut self.heap, self.functions)
    }

    /// Whether byte code is the one of a function: its code is that byte code, or was made from it.
    fn belongs(&mut self, known: &Known, bytecode: u64) -> bool {
        if known.code == bytecode {
            return true;
        }
        let types = self.heap.layout.types;
        match self.heap.kind(known.code) {
            Some(kind) if kind == types.bytecode => false,
            Some(kind) if kind == types.code => {
                let at = self.heap.layout.code.deoptimization;
                let made_from = self.heap.field(known.code, at);
                // A copy of the interpreter's entry has no byte code.
                made_from == Some(bytecode)
                    || made_from.and_then(|object| self.heap.kind(object)) != Some(types.bytecode)
            }
            // Other objects stand between them: of debuggers and of profilers.
            _ => true,
        }
    }

    /// Where in its source byte code is, of which `at` tells the offset.
    fn position(&mut self, bytecode: u64, at: impl FnOnce(&Layout, &[u8]) -> Option<u64>) -> Option<u32> {
        let bytecode = self.bytecodes.look(bytecode, &mut self.heap)?;
        // The table of Sparkplug's code has an entry for each instruction.
        if !self.walk.may(bytecode.positions.len() + bytecode.code.len()) {
            return None;
        }
        let at = at(self.heap.layout, &bytecode.code)?;
        positions::position(&bytecode.positions, at)?.offset()
    }

    /// Adds what a native frame stands for.
    pub(super) fn put(&mut self, frame: usize, told: Told, named: &mut Named) {
        let mut add = |function, line| named.locations.push((frame, Location::Interpreted { function, line }));
        match told {
            Told::Functions(told) => {
                for (known, position) in told {
                    let line = position.map_or(0, |position| self.known.line(&known, position, &mut self.heap));
                    named.positioned += u64::from(line > 0);
                    named.named += u64::from(line == 0);
                    add(known.function, line);
                }
            }
            Told::Inlined(known) => {
                named.inlined += 1;
                add(known.with_inlined(self.functions), 0);
            }
            Told::Outermost(known) => {
                named.inlined += 1;
                add(known.function, 0);
            }
            Told::RegularExpression => {
                named.named += 1;
                add(self.known.regular_expression(self.functions), 0);
            }
            Told::Calls(_) | Told::Unknown => {
                named.unknown += 1;
                add(self.functions.unknown(FunctionKind::V8), 0);
            }
        }
    }
}

/// Whether a function has the source that it was compiled from. One that has none by now was given up by V8 meanwhile.
fn has_source(known: &Known) -> bool {
    !known.builtin
}
