//! Finds for each native frame the functions of the program that it executes, and the source positions in them.

use std::sync::Arc;

use super::bytecode::Bytecodes;
use super::code::{CodeKind, Codes};
use super::functions::{KnownFunction, SharedFunctions};
use super::heap::{Heap, is_object, number};
use super::layout::V8Layout;
use super::positions;
use crate::message::{FunctionKind, Location};
use crate::runtime::target::word_at;
use crate::runtime::{CodePlace, Functions, NativelyNamed};
use crate::unwind::{FRAME_POINTER, Frame, StackMemory};

/// The maximum frame size of the outermost known function, in bytes.
const LAST_FRAME: u64 = 64 << 10;

/// Offsets from the frame pointer (v8/v8 `src/execution/frame-constants.h`): the context or the frame type, the
/// function, the byte code, and the byte code offset.
pub(super) const CONTEXT: u64 = 8;
pub(super) const FUNCTION: u64 = 16;
pub(super) const BYTECODE: u64 = 32;
pub(super) const OFFSET: u64 = 40;
/// The register that holds the function during a call: RDI, by its DWARF number.
pub(super) const CALLED: u8 = 5;
/// Offsets from the stack pointer where return addresses are looked for.
const TOP: [u64; 4] = [0, 8, 16, 24];

/// The words of a V8 frame, from its frame pointer downwards.
#[derive(Debug, Clone, Copy)]
struct Words {
    function: u64,
    bytecode: u64,
    offset: u64,
}

impl Words {
    /// Reads the words; `None` for an internal frame of V8, which has a frame type number instead of a context.
    fn read(pointer: u64, memory: &mut dyn StackMemory) -> Option<Self> {
        let mut word = |below: u64| memory.read_u64(pointer.wrapping_sub(below));
        let context = word(CONTEXT)?;
        if !is_object(context) {
            return None;
        }
        // Frames of compiled functions may be so small that the words below do not belong to them.
        Some(Self {
            function: word(FUNCTION)?,
            bytecode: word(BYTECODE).unwrap_or(0),
            offset: word(OFFSET).unwrap_or(0),
        })
    }
}

#[derive(Debug)]
pub(super) struct NativeFrameToName<'a> {
    frame: &'a Frame,
    lookup: u64,
    is_leaf: bool,
    words: Option<Words>,
    /// The function being called, if the call has just begun.
    called: Option<u64>,
    /// The words at the top of the stack.
    top: [u64; 4],
}

impl<'a> NativeFrameToName<'a> {
    /// Reads one frame of a stack.
    pub(super) fn new(frames: &'a [Frame], index: usize, memory: &mut dyn StackMemory) -> Option<Self> {
        let frame = frames.get(index)?;
        let end = frames.get(index + 1).map_or(frame.sp.saturating_add(LAST_FRAME), |caller| caller.sp);
        let pointer = frame.registers.get(FRAME_POINTER).filter(|pointer| (frame.sp..end).contains(pointer));
        let words = pointer.and_then(|pointer| Words::read(pointer, memory));
        let is_leaf = index == 0;
        let lookup = frame.lookup(index);
        // A function may begin with a call of a built-in function that sets up the function's frame.
        let called = frames.first().filter(|_| index <= 1).and_then(|leaf| leaf.registers.get(CALLED));
        // A built-in function without a frame was called by the function to which this frame belongs.
        let top = if is_leaf { TOP.map(|at| memory.read_u64(frame.sp.wrapping_add(at)).unwrap_or(0)) } else { [0; 4] };
        Some(Self { frame, lookup, is_leaf, words, called, top })
    }
}

/// What a native frame is shown as.
#[derive(Debug)]
pub(super) enum FrameMeaning {
    /// These functions, innermost first, each with the character offset of its source position, if known.
    Functions(Vec<(KnownFunction, Option<u32>)>),
    /// This function or one inlined into it; the shown name says that it is not known which.
    Inlined(KnownFunction),
    /// This function or one inlined into it, in code without positions. V8's own profiler reports the outer function,
    /// and so does this sampler, which counts these cases.
    Outermost(KnownFunction),
    /// The code of a regular expression.
    RegularExpression,
    /// An unknown function.
    Unknown,
    /// A built-in function without a frame, called by this function.
    Calls(Box<FrameMeaning>),
}

/// How many bytes of position tables may still be scanned for one stack.
pub(super) struct Walk(usize);

impl Default for Walk {
    /// Tables of a few functions have about a hundred bytes each, those of the largest functions a hundred thousand.
    fn default() -> Self {
        Self(4 << 20)
    }
}

impl Walk {
    /// Takes `length` bytes from the budget; returns whether there were enough.
    fn may(&mut self, length: usize) -> bool {
        let left = self.0.checked_sub(length);
        self.0 = left.unwrap_or(self.0);
        left.is_some()
    }
}

/// Determines the meaning of the native frames of one stack.
pub(super) struct FrameNamer<'a, 'b> {
    pub(super) heap: Heap<'a, 'b>,
    pub(super) known: &'a mut SharedFunctions,
    pub(super) codes: &'a mut Codes,
    pub(super) bytecodes: &'a mut Bytecodes,
    pub(super) functions: &'a mut Functions,
    pub(super) walk: Walk,
}

impl FrameNamer<'_, '_> {
    /// Determines the meaning of a frame; `None` if the native frame is shown as it is.
    pub(super) fn interpret(&mut self, one: &NativeFrameToName<'_>, place: CodePlace) -> Option<FrameMeaning> {
        match place {
            CodePlace::Generated => self.generated(one),
            CodePlace::Builtin | CodePlace::Other => self.builtin(one),
        }
    }

    /// Determines the meaning of a frame of code that was compiled at run time.
    fn generated(&mut self, one: &NativeFrameToName<'_>) -> Option<FrameMeaning> {
        let Some(start) = self.codes.find(one.lookup, &mut self.heap) else {
            // The code object was not found: use the function stored in the frame.
            let known = one.words.and_then(|words| self.compiled(words.function));
            return Some(known.map_or(FrameMeaning::Unknown, |known| FrameMeaning::Functions(vec![(known, None)])));
        };
        let offset = one.lookup.wrapping_sub(start);
        match self.codes.get(start)? {
            CodeKind::Other => self.builtin(one),
            CodeKind::RegularExpression => Some(FrameMeaning::RegularExpression),
            CodeKind::Baseline { bytecode, table } => {
                let (bytecode, table) = (*bytecode, Arc::clone(table));
                let (function, in_frame) = match one.words {
                    Some(words) => (words.function, Some(words.bytecode)),
                    // The frame has not been set up yet.
                    None => (one.called?, None),
                };
                let Some(known) = self.compiled(function) else { return Some(FrameMeaning::Unknown) };
                // While a frame is being set up, its byte code is stored last.
                if in_frame != Some(bytecode) && !self.belongs(&known, bytecode) {
                    return Some(FrameMeaning::Unknown);
                }
                let position = self.position(bytecode, |layout, code| {
                    positions::bytecode_offset(&table, layout.sizes.as_ref()?, code, offset)
                });
                Some(FrameMeaning::Functions(vec![(known, position)]))
            }
            CodeKind::Optimized(code) => {
                let function = code.function;
                if code.table.is_empty() && code.has_inlined() {
                    return Some(self.compiled_from(function).map_or(FrameMeaning::Unknown, FrameMeaning::Outermost));
                }
                // The innermost frame is not at a call, so the position of the preceding call does not show which
                // function it executes.
                let is_told = !one.is_leaf || !code.has_inlined() || self.codes.is_detailed(code);
                let chain = if is_told && self.walk.may(code.table.len()) { code.at(offset) } else { None };
                let Some(chain) = chain else {
                    return Some(self.compiled_from(function).map_or(FrameMeaning::Unknown, FrameMeaning::Inlined));
                };
                let mut functions = Vec::with_capacity(chain.len());
                for (one, position) in chain {
                    let Some(known) = self.compiled_from(one) else {
                        return Some(self.compiled_from(function).map_or(FrameMeaning::Unknown, FrameMeaning::Inlined));
                    };
                    functions.push((known, position));
                }
                Some(FrameMeaning::Functions(functions))
            }
        }
    }

    /// Determines the meaning of a frame of V8's built-in functions: the bytecode interpreter, and the JavaScript
    /// library.
    fn builtin(&mut self, one: &NativeFrameToName<'_>) -> Option<FrameMeaning> {
        let words = one.words?;
        let layout = self.heap.layout;
        let offset = number(words.offset).and_then(|offset| u64::try_from(offset).ok());
        let is_bytecode = offset.is_some() && self.heap.kind(words.bytecode) == Some(layout.types.bytecode);
        let map = is_object(words.function).then(|| self.heap.field(words.function, 0))?;
        if !map.is_some_and(|map| self.heap.is_function(map)) {
            // If a byte code frame has no function, the function was moved meanwhile. Other frames without one belong
            // to no function.
            return is_bytecode.then_some(FrameMeaning::Unknown);
        }
        let Some(known) = self.function(words.function) else { return is_bytecode.then_some(FrameMeaning::Unknown) };
        if known.builtin && known.is_anonymous() && !is_bytecode {
            // The native symbol of an anonymous built-in function is more precise.
            return None;
        }
        if known.builtin {
            // Byte code was compiled from a source; if the source is missing, V8 has discarded it meanwhile.
            return Some(if is_bytecode {
                FrameMeaning::Unknown
            } else {
                FrameMeaning::Functions(vec![(known, None)])
            });
        }
        let Some(offset) = offset.filter(|_| is_bytecode) else { return self.caller_of_builtin(one, known) };
        if !self.belongs(&known, words.bytecode) {
            return Some(FrameMeaning::Unknown);
        }
        let at = offset.checked_sub(layout.bytecode_start.saturating_sub(1))?;
        let position = self.position(words.bytecode, |_, _| Some(at));
        Some(FrameMeaning::Functions(vec![(known, position)]))
    }

    /// The compiled function that called a built-in function without a frame.
    fn caller_of_builtin(&mut self, one: &NativeFrameToName<'_>, known: KnownFunction) -> Option<FrameMeaning> {
        if !one.is_leaf {
            return None;
        }
        // A word tagged as an object is not a return address.
        for address in one.top.into_iter().filter(|address| !is_object(*address) && *address > 4096) {
            let lookup = address.wrapping_sub(1);
            let found = self.codes.find(lookup, &mut self.heap).and_then(|start| self.codes.get(start));
            if found.is_some_and(|what| matches!(what, CodeKind::Baseline { .. } | CodeKind::Optimized(_))) {
                let caller = NativeFrameToName {
                    frame: one.frame,
                    lookup,
                    is_leaf: false,
                    words: one.words,
                    called: None,
                    top: [0; 4],
                };
                return self.generated(&caller).map(|meaning| FrameMeaning::Calls(Box::new(meaning)));
            }
        }
        Some(FrameMeaning::Calls(Box::new(FrameMeaning::Functions(vec![(known, None)]))))
    }

    /// Returns the function of a closure (`JSFunction`).
    fn function(&mut self, function: u64) -> Option<KnownFunction> {
        let mut bytes = [0; 40];
        if !self.heap.read(function, 0, &mut bytes) || !self.heap.is_function(word_at(&bytes, 0)) {
            return None;
        }
        let shared = match bytes.get(self.heap.layout.shared as usize..) {
            Some(rest) if rest.len() >= 8 => word_at(rest, 0),
            _ => self.heap.field(function, self.heap.layout.shared)?,
        };
        self.look_up(shared)
    }

    /// Returns the function of a closure, if it was compiled at run time.
    fn compiled(&mut self, function: u64) -> Option<KnownFunction> {
        self.function(function).filter(has_source)
    }

    /// Returns the function with this `SharedFunctionInfo`, if it was compiled at run time.
    fn compiled_from(&mut self, shared: u64) -> Option<KnownFunction> {
        self.look_up(shared).filter(has_source)
    }

    fn look_up(&mut self, shared: u64) -> Option<KnownFunction> {
        self.known.look_up(shared, &mut self.heap, self.functions)
    }

    /// Whether the byte code belongs to a function: the function's code is this byte code or was compiled from it.
    fn belongs(&mut self, known: &KnownFunction, bytecode: u64) -> bool {
        if known.code == bytecode {
            return true;
        }
        let types = self.heap.layout.types;
        match self.heap.kind(known.code) {
            Some(kind) if kind == types.bytecode => false,
            Some(kind) if kind == types.code => {
                let at = self.heap.layout.code.deoptimization;
                let made_from = self.heap.field(known.code, at);
                // A copy of the interpreter's entry code refers to no byte code.
                made_from == Some(bytecode)
                    || made_from.and_then(|object| self.heap.kind(object)) != Some(types.bytecode)
            }
            // Debuggers and profilers insert other objects in between.
            _ => true,
        }
    }

    /// The source position in byte code at the byte code offset that `at` computes.
    fn position(&mut self, bytecode: u64, at: impl FnOnce(&V8Layout, &[u8]) -> Option<u64>) -> Option<u32> {
        let bytecode = self.bytecodes.look_up(bytecode, &mut self.heap)?;
        // The table of Sparkplug's code has an entry for each instruction, so the code's length counts too.
        if !self.walk.may(bytecode.positions.len() + bytecode.code.len()) {
            return None;
        }
        let at = at(self.heap.layout, &bytecode.code)?;
        positions::position(&bytecode.positions, at)?.offset()
    }

    /// Adds the meaning of a native frame to `named`.
    pub(super) fn put(&mut self, frame: usize, meaning: FrameMeaning, named: &mut NativelyNamed) {
        let mut add = |function, line| named.locations.push((frame, Location::Interpreted { function, line }));
        match meaning {
            FrameMeaning::Functions(functions) => {
                for (known, position) in functions {
                    let line = position.map_or(0, |position| self.known.line(&known, position, &mut self.heap));
                    named.positioned += u64::from(line > 0);
                    named.named += u64::from(line == 0);
                    add(known.function, line);
                }
            }
            FrameMeaning::Inlined(known) => {
                named.inlined += 1;
                add(known.with_inlined(self.functions), 0);
            }
            FrameMeaning::Outermost(known) => {
                named.inlined += 1;
                add(known.function, 0);
            }
            FrameMeaning::RegularExpression => {
                named.named += 1;
                add(self.known.regular_expression(self.functions), 0);
            }
            FrameMeaning::Calls(_) | FrameMeaning::Unknown => {
                named.unknown += 1;
                add(self.functions.unknown(FunctionKind::V8), 0);
            }
        }
    }
}

/// Whether the source of a function still exists. V8 may discard it at run time.
fn has_source(known: &KnownFunction) -> bool {
    !known.builtin
}
