//! A code object: what is read of it, and what it says of itself.

use std::ops::Range;
use std::time::Instant;

use super::belongs::{self, Told};
use super::layout::{Instructions, Layout};
use super::lines;
use super::text;
use crate::message::FunctionKind;
use crate::runtime::codes::{Code, Lines};
use crate::runtime::target::{Bounded, Target, half_at, word_at};
use crate::runtime::{Functions, MAX_FILE, MAX_NAME};

/// The largest table of lines that is read, in bytes.
const MAX_TABLE: usize = 1 << 20;
/// The size of an object's head where there is a global lock: the count of references and the type.
const HEAD: u32 = 16;
/// How often a code object is read again where what its function belongs to could not be told.
const MAX_AGAIN: u8 = 3;
/// The file of code that is the interpreter's own (CPython `Python/bytecodes.c`, `Objects/codeobject.c`).
const SHIM: &str = "<shim>";

/// What a code object says of itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Print {
    pub(super) kind: u64,
    file: u64,
    name: u64,
    table: u64,
    instructions: u64,
    first_line: u32,
    /// A number that only it has, or else the hash of its name.
    mark: u64,
}

/// A code object that was read. Up to 3.10 functions of a module that have equal instructions share them.
#[derive(Debug)]
pub(super) struct CodeObject {
    pub(super) print: Print,
    /// `None` for code that is the interpreter's own.
    pub(super) function: Option<u32>,
    pub(super) code: Range<u64>,
    /// Where threads have copies of its instructions, and the number of the stack for which that was read.
    pub(super) copies: (Option<u64>, Vec<u64>),
    lines: Lines,
    /// How often it may be read again because what its function belongs to is missing.
    pub(super) again: u8,
    /// A moment before which it was read; `None` if that was for the present stack.
    pub(super) since: Option<Instant>,
}

impl Code for CodeObject {
    type Print = Print;

    fn print(&self) -> &Print {
        &self.print
    }

    fn instructions(&self) -> Range<u64> {
        self.code.clone()
    }

    fn copies(&self) -> &[u64] {
        &self.copies.1
    }
}

/// A frame, as far as it tells what its function belongs to.
#[derive(Debug, Clone, Copy)]
pub(super) struct Context {
    pub(super) frame: u64,
    pub(super) globals: u64,
}

impl CodeObject {
    /// The line of an instruction, 0 if there is none, and whether it was read from the table just now.
    pub(super) fn line(&mut self, layout: &Layout, offset: i64, target: &mut Bounded<'_>) -> (u32, bool) {
        let Ok(offset) = u64::try_from(offset) else { return (self.print.first_line, false) };
        let Self { print, lines, .. } = self;
        let mut was_read = false;
        let line = lines.line(offset, || {
            was_read = true;
            let table = text::bytes(&layout.object, target, print.table, MAX_TABLE)?;
            Some(lines::line(layout.code.lines, &table, print.first_line, offset).unwrap_or(0))
        });
        (line, was_read)
    }
}

/// What the code object at an address says of itself; `None` if it cannot be read, or is not in use.
pub(super) fn read_print(layout: &Layout, address: u64, target: &mut Bounded<'_>) -> Option<Print> {
    let code = &layout.code;
    let mut bytes = [0; 1032];
    let bytes = &mut bytes[..code.size().min(1032)];
    if address == 0 || !target.read(address, bytes) {
        return None;
    }
    let field = |at: u32| word_at(bytes, at as usize);
    if !is_in_use(layout, bytes) {
        return None;
    }
    let mark = match code.version.map(|at| half_at(bytes, at as usize)) {
        Some(version) if version != 0 => u64::from(version),
        // Behind the other fields: it is this code's name if those are the same afterwards.
        _ => text::hash(&layout.object, target, field(code.hashed_name)).unwrap_or(0),
    };
    Some(Print {
        kind: field(layout.object.kind),
        file: field(code.file),
        name: field(code.name),
        table: field(code.table),
        instructions: match code.instructions {
            Instructions::Object { at } => field(at),
            // The number of units.
            Instructions::Inside { .. } => field(layout.object.items),
        },
        first_line: half_at(bytes, code.first_line as usize),
        mark,
    })
}

/// Whether an object is in use, by its head. One that was freed may say the same as ever, but what it points to is other
/// objects' by now, threads' copies of its instructions among it.
fn is_in_use(layout: &Layout, object: &[u8]) -> bool {
    if let Some((own, others)) = layout.object.references {
        return half_at(object, own as usize) != 0 || word_at(object, others as usize) >> 2 != 0;
    }
    // A count of references, of which there is none once it is freed, and then often the address of another free piece
    // of memory. Above the count is what 3.14 keeps there besides.
    let head = word_at(object, 0);
    layout.object.items != HEAD || (head & 0xffff_ffff != 0 && head >> 32 & 0xffff == 0)
}

/// Reads a code object that said this of itself; `None` if it does not any more.
pub(super) fn read_new(
    layout: &Layout,
    (address, context): (u64, Option<Context>),
    print: Print,
    target: &mut Bounded<'_>,
    functions: &mut Functions,
) -> Option<CodeObject> {
    let file = text::string(&layout.object, target, print.file, MAX_FILE)?;
    let name = text::string(&layout.object, target, print.name, MAX_NAME)?;
    let (start, length) = match layout.code.instructions {
        Instructions::Object { .. } => {
            let start = print.instructions.wrapping_add(u64::from(layout.object.bytes_data));
            (start, text::length(&layout.object, target, print.instructions)?)
        }
        Instructions::Inside { at, .. } => (address.wrapping_add(u64::from(at)), print.instructions.checked_mul(2)?),
    };
    // A code object of more than a gigabyte is none.
    let end = (length < 1 << 30).then(|| start.checked_add(length))??;
    let is_shown = !file.is_empty() && file != SHIM;
    let (module, class) = match context.filter(|_| is_shown) {
        Some(Context { frame, globals }) => {
            let method = layout.method.map(|method| belongs::class(layout, method, frame, address, target));
            (belongs::module(layout, globals, target), method.unwrap_or(Told::Nothing))
        }
        None => (Told::Nothing, Told::Nothing),
    };
    // The texts were read after what points to them, and what the frame says is about this function: both only if its
    // code was there and in use all the time.
    if read_print(layout, address, target) != Some(print) {
        return None;
    }
    let again = if [&module, &class].contains(&&Told::Later) || context.is_none() { MAX_AGAIN } else { 0 };
    let name = if let Told::Is(class) = class { format!("{class}.{name}") } else { name };
    let module = if let Told::Is(module) = module { module } else { String::new() };
    let function =
        is_shown.then(|| functions.number_in(&module, FunctionKind::CPython, &name, &file, print.first_line));
    let (copies, lines) = ((None, Vec::new()), Lines::default());
    Some(CodeObject { print, function, code: start..end, copies, lines, again, since: None })
}
