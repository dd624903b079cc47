//! Finds the function that a frame executes, and the line of an instruction in it.

use std::ops::Range;
use std::time::Instant;

use super::layout::{CLASS_NAME, PhpLayout, function, instruction};
use super::text::{self, Mark};
use crate::message::{FunctionKind, Location};
use crate::runtime::codes::{CachedCode, CodeLookup, CodeSource, Codes};
use crate::runtime::target::{Bounded, TargetMemory, half, half_at, word, word_at};
use crate::runtime::{CodeReader, Executed, Functions, MAX_FILE, MAX_NAME, RawFrame, ResolveSession, Resolved};

/// The maximum number of reads for the names of one stack.
const MAX_READS: u32 = 2048;
/// The maximum number of instructions of a function.
const MAX_INSTRUCTIONS: u32 = 1 << 22;
/// PHP's own instructions for exceptions (`exception_op`) are within this distance from the start of
/// `executor_globals`.
const GLOBALS: u64 = 4096;
/// The name of the code of a script or an included file, as in PHP's own traces.
const MAIN: &str = "{main}";
/// The name of code passed to `eval`, as in PHP's own traces.
const EVAL: &str = "eval";
/// The maximum number of cached functions that share their instructions.
const MAX_SHARING: usize = 8;
/// The names of closures contain this.
const CLOSURE: &str = "{closure";

/// The fields that identify a function.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct FunctionPrint {
    kind: u8,
    name: u64,
    class: u64,
    file: u64,
    /// The address and number of the function's instructions; for a native function, its address.
    instructions: u64,
    count: u32,
    first_line: u32,
    name_mark: Mark,
    file_mark: Mark,
}

#[derive(Debug)]
struct CachedFunction {
    fingerprint: FunctionPrint,
    /// The function's number; `None` for frames that are not shown.
    function: Option<u32>,
    code: Range<u64>,
    /// Whether the code may be freed at any time: a closure, a script, or code of `eval`. Other functions exist until
    /// the end of the request.
    is_fleeting: bool,
}

impl CachedCode for CachedFunction {
    type Fingerprint = FunctionPrint;

    /// Closures from the same source position share their instructions, and so do methods of a trait.
    const MAX_SHARING: usize = MAX_SHARING;

    fn fingerprint(&self) -> &FunctionPrint {
        &self.fingerprint
    }

    fn instructions(&self) -> Range<u64> {
        self.code.clone()
    }
}

/// The functions of a process.
#[derive(Debug)]
pub(super) struct ZendFunctions {
    layout: PhpLayout,
    /// The address of `executor_globals`.
    globals: u64,
    known: Codes<CachedFunction>,
    /// Whether only frames of native functions have been read for the current stack so far.
    is_innermost: bool,
}

/// Reads functions from memory.
struct FunctionReader<'a>(&'a PhpLayout);

/// The strings and the code range of a function.
struct FunctionTexts {
    name: String,
    file: String,
    code: Range<u64>,
}

impl CodeSource for FunctionReader<'_> {
    type Code = CachedFunction;
    type Texts = FunctionTexts;

    fn read_print(&mut self, address: u64, session: &mut ResolveSession<'_>) -> Option<FunctionPrint> {
        read_print(self.0, address, &mut session.target)
    }

    fn read_texts(
        &mut self,
        _address: u64,
        fingerprint: &FunctionPrint,
        session: &mut ResolveSession<'_>,
    ) -> Option<FunctionTexts> {
        read_texts(fingerprint, &mut session.target)
    }

    fn make_code(
        &mut self,
        fingerprint: FunctionPrint,
        texts: FunctionTexts,
        _: Option<&CachedFunction>,
        functions: &mut Functions,
    ) -> CachedFunction {
        let FunctionTexts { name, file, code } = texts;
        let is_fleeting = !fingerprint.is_native() && (fingerprint.name == 0 || name.contains(CLOSURE));
        let number = || functions.number(FunctionKind::Php, &name, &file, fingerprint.first_line);
        let function = fingerprint.is_shown().then(number);
        CachedFunction { fingerprint, function, code, is_fleeting }
    }

    fn read_line(&mut self, _code: &CachedFunction, instruction: u64, session: &mut ResolveSession<'_>) -> Option<u32> {
        half(&mut session.target, instruction.wrapping_add(instruction::LINE))
    }
}

impl FunctionPrint {
    fn is_native(&self) -> bool {
        self.kind == function::INTERNAL
    }

    /// Whether the function is shown. The first frame of a fiber has no name and executes nothing.
    fn is_shown(&self) -> bool {
        !(self.is_native() && self.name == 0)
    }
}

impl ZendFunctions {
    pub(super) fn new(layout: PhpLayout, globals: u64) -> Self {
        Self { layout, globals, known: Codes::default(), is_innermost: true }
    }

    /// Whether a function that may be freed at any time was first read after the sample: at the time of the sample
    /// another function may have been at its address.
    pub(super) fn is_fresh(&self, code: u64) -> bool {
        self.known.get(code).is_some_and(|known| known.is_fleeting) && self.known.is_fresh(code)
    }

    /// Compares the cached function with memory. Returns whether it is known, and was known before the sample.
    fn look_up(&mut self, address: u64, session: &mut ResolveSession<'_>) -> bool {
        let look = self.known.look_up(address, &mut FunctionReader(&self.layout), session);
        look == CodeLookup::Known && (session.has_not_run || !self.is_fresh(address))
    }

    /// Resolves a frame whose function is known; `None` if the frame's instruction is outside of the function, unless
    /// the frame may lack its instruction (`may_lack`).
    fn place(&mut self, frame: &RawFrame, may_lack: bool, session: &mut ResolveSession<'_>) -> Option<Resolved> {
        let known = self.known.get(frame.code)?;
        let code = known.code.clone();
        let Some(function) = known.function else {
            return Some(Resolved { location: None, code, unknown: false });
        };
        let is_own = (self.globals..self.globals.saturating_add(GLOBALS)).contains(&frame.instruction);
        let line = if known.fingerprint.is_native() {
            0
        } else if code.contains(&frame.instruction) {
            self.known.line_of(frame.code, frame.instruction, &mut FunctionReader(&self.layout), session)?
        } else {
            // While PHP searches for an exception handler, the instruction is one of PHP's own.
            (may_lack || is_own).then_some(0)?
        };
        Some(Resolved { location: Some(Location::Interpreted { function, line }), code, unknown: false })
    }
}

impl CodeReader for ZendFunctions {
    fn kind(&self) -> FunctionKind {
        FunctionKind::Php
    }

    fn max_reads(&self) -> u32 {
        MAX_READS
    }

    fn next_stack(&mut self) {
        self.known.next_stack();
        self.is_innermost = true;
    }

    fn resolve_frame(&mut self, frame: &RawFrame, session: &mut ResolveSession<'_>) -> Option<Resolved> {
        // The innermost frame that is not native may not have stored its instruction yet, which is in a register.
        let may_lack = self.is_innermost;
        let resolved = if self.look_up(frame.code, session) { self.place(frame, may_lack, session) } else { None };
        self.is_innermost &= self.known.get(frame.code).is_some_and(|known| known.fingerprint.is_native());
        resolved
    }

    fn sampled(&mut self, at: Option<Instant>, now: Instant) {
        self.known.sampled(at, now);
    }

    /// The function whose instructions include this address, if it was known before the sample and has not changed; or
    /// the native function that starts there.
    fn executed(&mut self, address: u64, session: &mut ResolveSession<'_>) -> Option<Executed> {
        let mut found: Option<Executed> = None;
        let mut codes = [0; MAX_SHARING];
        codes.iter_mut().zip(self.known.around(address)).for_each(|(code, around)| *code = around);
        for code in codes.into_iter().filter(|code| *code != 0) {
            if !self.look_up(code, session) {
                continue;
            }
            let frame = RawFrame { code, instruction: address, ..RawFrame::default() };
            let resolved = self.place(&frame, false, session).filter(|resolved| resolved.location.is_some());
            let Some(resolved) = resolved else { continue };
            match &mut found {
                // Closures from the same source position are the same function, but methods of one trait are not.
                Some(found) => found.shared |= found.resolved.location != resolved.location,
                None => found = Some(Executed { code, resolved, shared: false }),
            }
        }
        found
    }
}

fn read_print(layout: &PhpLayout, address: u64, target: &mut Bounded<'_>) -> Option<FunctionPrint> {
    let mut bytes = [0; 256];
    let (whole, native) = layout.sizes();
    if address == 0 || address & 7 != 0 {
        return None;
    }
    // Native functions have fewer fields, and may be at the end of a mapping.
    let size = [whole, native].into_iter().find(|size| target.read(address, &mut bytes[..*size]))?;
    let kind = bytes[function::KIND];
    let field = |at: usize| word_at(&bytes, at);
    let (name, class) = (field(function::NAME), field(function::CLASS));
    let name_mark = text::mark(target, name)?;
    match kind {
        function::INTERNAL => {
            let (instructions, file_mark) = (field(layout.native), Mark::default());
            Some(FunctionPrint {
                kind,
                name,
                class,
                file: 0,
                instructions,
                count: 0,
                first_line: 0,
                name_mark,
                file_mark,
            })
        }
        function::USER | function::EVAL if size == whole => {
            let (file, instructions) = (field(layout.file), field(layout.instructions));
            let (count, first_line) = (half_at(&bytes, layout.count), half_at(&bytes, layout.first_line));
            let file_mark = text::mark(target, file)?;
            Some(FunctionPrint { kind, name, class, file, instructions, count, first_line, name_mark, file_mark })
        }
        _ => None,
    }
}

fn read_texts(fingerprint: &FunctionPrint, target: &mut Bounded<'_>) -> Option<FunctionTexts> {
    let own_name = match fingerprint.name {
        0 => String::new(),
        name => text::string(target, name, MAX_NAME)?,
    };
    let name = match fingerprint.class {
        _ if fingerprint.name == 0 => if fingerprint.kind == function::EVAL { EVAL } else { MAIN }.to_owned(),
        0 => own_name,
        class => {
            let class = word(target, class.wrapping_add(CLASS_NAME))?;
            format!("{}::{own_name}", text::string(target, class, MAX_NAME)?)
        }
    };
    let file = if fingerprint.is_native() { String::new() } else { text::string(target, fingerprint.file, MAX_FILE)? };
    let start = fingerprint.instructions;
    let length = if fingerprint.is_native() {
        1
    } else {
        let count = Some(fingerprint.count).filter(|count| (1..MAX_INSTRUCTIONS).contains(count))?;
        u64::from(count) * instruction::SIZE
    };
    let code = match fingerprint.is_shown() {
        true => start..Some(start).filter(|start| *start != 0)?.checked_add(length)?,
        false => 0..0,
    };
    Some(FunctionTexts { name, file, code })
}
