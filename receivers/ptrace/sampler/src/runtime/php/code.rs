//! Tells which function a frame executes, and the line of an instruction of it.

use std::ops::Range;

use super::calls::Calls;
use super::layout::{CLASS_NAME, Layout, function, instruction};
use super::place::Place;
use super::text::{self, Mark};
use crate::message::{FunctionKind, Location};
use crate::runtime::codes::{Checked, Code, Codes, Lines};
use crate::runtime::target::{Allowance, Bounded, Target, half, half_at, word, word_at};
use crate::runtime::{Executed, Functions, MAX_FILE, MAX_NAME, RawFrame, Resolved};

/// The most functions of one stack that are read for the first time; further ones are unknown.
const MAX_NEW: u32 = 64;
/// What may be read for the names of one stack.
const ALLOWANCE: Allowance = Allowance { reads: 2048, bytes: 4 << 20 };
/// The most instructions of a function.
const MAX_INSTRUCTIONS: u32 = 1 << 22;
/// How far behind the start of `executor_globals` its own instructions are, at most: those for exceptions
/// (`exception_op`).
const GLOBALS: u64 = 4096;
/// The name of a script's own code, and of an included file's, as PHP's traces have that of a script.
const MAIN: &str = "{main}";
/// The name of code that was given to `eval`, as PHP's traces have it.
const EVAL: &str = "eval";
/// What the names of closures have.
const CLOSURE: &str = "{closure";

/// What a function says of itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Print {
    kind: u8,
    name: u64,
    class: u64,
    file: u64,
    /// Where its instructions are, and how many; of a native one, its address.
    instructions: u64,
    count: u32,
    first_line: u32,
    name_mark: Mark,
    file_mark: Mark,
}

/// A function that was read.
#[derive(Debug)]
struct Function {
    print: Print,
    /// `None` for frames that are not shown.
    function: Option<u32>,
    code: Range<u64>,
    lines: Lines,
    /// The number of the stack for which it was read, if it is code that may be freed at any time: a closure's, a
    /// script's, or that of `eval`. Other functions stay until the end of the request.
    fleeting: Option<u64>,
    /// Its name without that of its class: empty for scripts.
    own_name: String,
    /// What it calls, once it was asked for.
    calls: Option<Calls>,
}

impl Code for Function {
    type Print = Print;

    /// Closures of one place in the program share their instructions, and methods of a trait.
    const MAX_SHARING: usize = 8;

    fn print(&self) -> &Print {
        &self.print
    }

    fn instructions(&self) -> Range<u64> {
        self.code.clone()
    }
}

/// The functions of a process.
#[derive(Debug, Default)]
pub(super) struct ZendFunctions {
    known: Codes<Function>,
}

impl ZendFunctions {
    /// Tells what these frames are. `stands` if the thread still stands where they were read.
    pub(super) fn resolve(
        &mut self,
        place: &Place,
        frames: &[RawFrame],
        stands: bool,
        target: &mut dyn Target,
        functions: &mut Functions,
        resolved: &mut Vec<Resolved>,
    ) {
        resolved.clear();
        self.known.next_stack();
        let mut new = MAX_NEW;
        let mut target = Bounded::new(target, ALLOWANCE);
        // The innermost frame that is not of a native function may never have said where it is: that is in a register.
        let mut is_innermost = true;
        for frame in frames {
            let is_known = self.look(&place.layout, frame.code, stands, &mut new, &mut target, functions)
                && (stands || !self.is_fresh(frame.code));
            let told = if is_known { self.tell(place, frame, is_innermost, &mut target) } else { None };
            is_innermost &= self.known.get(frame.code).is_some_and(|known| known.print.kind == function::INTERNAL);
            resolved.push(told.unwrap_or_else(|| Resolved::unknown(FunctionKind::Php, functions)));
        }
    }

    /// Whether a function that may be freed at any time was read for this stack: it may have been another one before.
    fn is_fresh(&self, address: u64) -> bool {
        self.known.get(address).is_some_and(|known| known.fleeting == Some(self.known.stack()))
    }

    /// Makes sure that what is known of a function is what is in memory. Returns whether it is known.
    fn look(
        &mut self,
        layout: &Layout,
        address: u64,
        stands: bool,
        new: &mut u32,
        target: &mut Bounded<'_>,
        functions: &mut Functions,
    ) -> bool {
        if self.known.is_checked(address) {
            return true;
        }
        let print = match self.known.check(address, read_print(layout, address, target), stands) {
            Checked::Known => return true,
            Checked::Lost => return false,
            Checked::New(print) => print,
        };
        let Some(left) = new.checked_sub(1) else { return false };
        *new = left;
        let Some(mut function) = read_new(print, self.known.stack(), target, functions) else { return false };
        // The names were read after what points to them, and belong together if that did not change meanwhile.
        if read_print(layout, address, target) != Some(print) {
            return false;
        }
        // Each closure of one place in the program is a function of its own: it is not new if another one was known.
        let sharing = self.known.beginning_at(function.code.start).iter();
        let same = sharing.filter_map(|other| self.known.get(*other)).filter(|other| other.print == print);
        function.fleeting = same.filter_map(|other| other.fleeting).chain(function.fleeting).min();
        self.known.insert(address, function);
        true
    }

    /// The function that has an instruction at this address, if it was known before this stack and has not changed; or
    /// the native one that begins there.
    pub(super) fn executed(
        &mut self,
        place: &Place,
        address: u64,
        target: &mut dyn Target,
        functions: &mut Functions,
    ) -> Option<Executed> {
        let mut target = Bounded::new(target, ALLOWANCE);
        let mut found: Option<Executed> = None;
        for code in self.known.around(address) {
            if !self.look(&place.layout, code, false, &mut 0, &mut target, functions) || self.is_fresh(code) {
                continue;
            }
            let frame = RawFrame { address: 0, code, instruction: address };
            let told = self.tell(place, &frame, false, &mut target).filter(|told| told.location.is_some());
            let Some(resolved) = told else { continue };
            match &mut found {
                // Closures of one place are the same function, methods of one trait are not.
                Some(found) => found.shared |= found.resolved.location != resolved.location,
                None => found = Some(Executed { code, resolved, shared: false }),
            }
        }
        found
    }

    /// Whether a function may have called another one, both of which are known, as far as its instructions tell.
    pub(super) fn may_call(&mut self, layout: &Layout, caller: u64, callee: u64, target: &mut dyn Target) -> bool {
        let Some(called) = self.known.get(callee) else { return false };
        let Some(known) = self.known.get(caller) else { return false };
        if let Some(calls) = &known.calls {
            return calls.permit(&called.own_name);
        }
        let mut target = Bounded::new(target, ALLOWANCE);
        let read = Calls::read(&known.code, &mut target);
        // They are its own if it was there until they were read. What cannot be told does not speak against it.
        let is_still = read_print(layout, caller, &mut target) == Some(known.print);
        let Some(calls) = read.filter(|_| is_still) else { return true };
        let may = calls.permit(&called.own_name);
        if let Some(known) = self.known.get_mut(caller) {
            known.calls = Some(calls);
        }
        may
    }

    /// What a frame is whose function is known; `None` if the frame's instruction is not one of it, unless that `may_lack`.
    fn tell(&mut self, place: &Place, frame: &RawFrame, may_lack: bool, target: &mut Bounded<'_>) -> Option<Resolved> {
        let known = self.known.get_mut(frame.code)?;
        let code = known.code.clone();
        let Some(function) = known.function else {
            return Some(Resolved { location: None, code, unknown: false });
        };
        let is_own = (place.globals..place.globals.saturating_add(GLOBALS)).contains(&frame.instruction);
        let line = if known.print.kind == function::INTERNAL {
            0
        } else if known.code.contains(&frame.instruction) {
            known.lines.line(frame.instruction, || half(target, frame.instruction.wrapping_add(instruction::LINE)))
        } else {
            // While an exception is looked for, the instruction is one of PHP's own.
            (may_lack || is_own).then_some(0)?
        };
        Some(Resolved { location: Some(Location::Interpreted { function, line }), code, unknown: false })
    }
}

fn read_print(layout: &Layout, address: u64, target: &mut Bounded<'_>) -> Option<Print> {
    let mut bytes = [0; 256];
    let (whole, native) = layout.sizes();
    if address == 0 || address & 7 != 0 {
        return None;
    }
    // Native functions are shorter, and may stand at the end of a mapping.
    let size = [whole, native].into_iter().find(|size| target.read(address, &mut bytes[..*size]))?;
    let kind = bytes[function::KIND];
    let field = |at: usize| word_at(&bytes, at);
    let (name, class) = (field(function::NAME), field(function::CLASS));
    let name_mark = text::mark(target, name)?;
    match kind {
        function::INTERNAL => {
            let (instructions, file_mark) = (field(layout.native), Mark::default());
            Some(Print { kind, name, class, file: 0, instructions, count: 0, first_line: 0, name_mark, file_mark })
        }
        function::USER | function::EVAL if size == whole => {
            let (file, instructions) = (field(layout.file), field(layout.instructions));
            let (count, first_line) = (half_at(&bytes, layout.count), half_at(&bytes, layout.first_line));
            let file_mark = text::mark(target, file)?;
            Some(Print { kind, name, class, file, instructions, count, first_line, name_mark, file_mark })
        }
        _ => None,
    }
}

fn read_new(print: Print, stack: u64, target: &mut Bounded<'_>, functions: &mut Functions) -> Option<Function> {
    let is_native = print.kind == function::INTERNAL;
    let own_name = match print.name {
        0 => String::new(),
        name => text::string(target, name, MAX_NAME)?,
    };
    let name = match print.class {
        _ if print.name == 0 => if print.kind == function::EVAL { EVAL } else { MAIN }.to_owned(),
        0 => own_name.clone(),
        class => {
            let class = word(target, class.wrapping_add(CLASS_NAME))?;
            format!("{}::{own_name}", text::string(target, class, MAX_NAME)?)
        }
    };
    let is_fleeting = !is_native && (print.name == 0 || name.contains(CLOSURE));
    let file = if is_native { String::new() } else { text::string(target, print.file, MAX_FILE)? };
    let start = print.instructions;
    let length = if is_native {
        1
    } else {
        let count = Some(print.count).filter(|count| (1..MAX_INSTRUCTIONS).contains(count))?;
        u64::from(count) * instruction::SIZE
    };
    // The frame that a fiber begins with has no name, and executes nothing.
    let is_shown = !(is_native && print.name == 0);
    let code = if is_shown { start..Some(start).filter(|start| *start != 0)?.checked_add(length)? } else { 0..0 };
    let function = is_shown.then(|| functions.number(FunctionKind::Php, &name, &file, print.first_line));
    let fleeting = is_fleeting.then_some(stack);
    Some(Function { print, function, code, lines: Lines::default(), fleeting, own_name, calls: None })
}
