//! Tells which function a code object is, and the line of an instruction of it.
//!
//! A code object is looked up by its address, and what was read of it before holds if it still says the same of itself:
//! one that was freed may have given its place to another.

use std::collections::BTreeMap;
use std::ops::Range;

use foldhash::fast::RandomState;
use hashbrown::HashMap;

use super::layout::{Instructions, Layout};
use super::lines;
use super::text;
use crate::message::{FunctionKind, Location};
use crate::runtime::target::{Allowance, Bounded, Target, half_at, word, word_at};
use crate::runtime::{Executed, Functions, MAX_FILE, MAX_NAME, RawFrame, Resolved};

/// The most code objects that are remembered; all are forgotten when there are more.
const MAX_CODES: usize = 16_384;
/// The most lines that are remembered of one code object.
const MAX_LINES: usize = 64;
/// The most code objects of one stack that are read for the first time; of further ones the function is unknown.
const MAX_NEW: u32 = 64;
/// What may be read for the names of one stack.
const ALLOWANCE: Allowance = Allowance { reads: 1024, bytes: 4 << 20 };
/// The largest table of lines that is read, in bytes.
const MAX_TABLE: usize = 1 << 20;
/// The size of an instruction, in bytes.
const UNIT: u64 = 2;
/// Where a type has the pointer to its name, without the global lock two words further behind.
const TYPE_NAME: u64 = 24;
/// The size of the head of objects without the global lock, above the usual one.
const WIDER_HEAD: u64 = 16;
/// The file of code that is the interpreter's own (CPython `Python/bytecodes.c`, `Objects/codeobject.c`).
const SHIM: &str = "<shim>";

/// What a code object says of itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Print {
    kind: u64,
    file: u64,
    name: u64,
    table: u64,
    instructions: u64,
    first_line: u32,
    /// A number that only it has, or else the hash of its name.
    mark: u64,
}

/// A code object that was read.
#[derive(Debug)]
struct Known {
    print: Print,
    /// `None` for code that is the interpreter's own.
    function: Option<u32>,
    code: Range<u64>,
    lines: HashMap<u64, u32, RandomState>,
    /// The number of the stack for which it was compared with what is in memory.
    checked: u64,
}

/// The code objects of a process.
#[derive(Debug, Default)]
pub(super) struct Codes {
    known: HashMap<u64, Known, RandomState>,
    /// Where the instructions of each begin, and the addresses of the code objects. Up to 3.10 functions of a module that
    /// have equal instructions share them.
    places: BTreeMap<u64, Vec<u64>>,
    /// The type of code objects.
    kind: Option<u64>,
    turn: u64,
}

/// What a frame's code turned out to be.
enum Look {
    Known,
    /// No code object: an interpreter's own frame.
    Other,
    Unknown,
}

impl Codes {
    /// Tells what these frames are. `stands` if the thread still stands where they were read.
    pub(super) fn resolve(
        &mut self,
        layout: &Layout,
        frames: &[RawFrame],
        stands: bool,
        target: &mut dyn Target,
        functions: &mut Functions,
        resolved: &mut Vec<Resolved>,
    ) {
        resolved.clear();
        self.turn += 1;
        if self.known.len() >= MAX_CODES {
            self.known.clear();
            self.places.clear();
        }
        let mut new = MAX_NEW;
        let mut target = Bounded::new(target, ALLOWANCE);
        for frame in frames {
            let unknown = |functions: &mut Functions| {
                let function = functions.unknown(FunctionKind::CPython);
                Resolved { location: Some(Location::Interpreted { function, line: 0 }), code: 0..0, unknown: true }
            };
            let told = match self.look(layout, frame.code, stands, &mut new, &mut target, functions) {
                Look::Known => self.place(layout, frame, &mut target).unwrap_or_else(|| unknown(functions)),
                Look::Other => Resolved { location: None, code: 0..0, unknown: false },
                Look::Unknown => unknown(functions),
            };
            resolved.push(told);
        }
    }

    /// Makes sure that what is known of a code object is what is in memory.
    fn look(
        &mut self,
        layout: &Layout,
        address: u64,
        stands: bool,
        new: &mut u32,
        target: &mut Bounded<'_>,
        functions: &mut Functions,
    ) -> Look {
        let turn = self.turn;
        if self.known.get(&address).is_some_and(|known| known.checked == turn) {
            return Look::Known;
        }
        let Some(print) = read_print(layout, address, target) else {
            self.forget(address);
            return Look::Unknown;
        };
        if let Some(known) = self.known.get_mut(&address) {
            if known.print == print {
                known.checked = turn;
                return Look::Known;
            }
            self.forget(address);
            if !stands {
                return Look::Unknown;
            }
        }
        if self.kind != Some(print.kind) {
            if !is_code_type(layout, print.kind, target) {
                return Look::Other;
            }
            self.kind = Some(print.kind);
        }
        let Some(left) = new.checked_sub(1) else { return Look::Unknown };
        *new = left;
        let Some(known) = read_new(layout, address, print, turn, target, functions) else { return Look::Unknown };
        self.places.entry(known.code.start).or_default().push(address);
        self.known.insert(address, known);
        Look::Known
    }

    fn forget(&mut self, address: u64) {
        if let Some(known) = self.known.remove(&address) {
            let start = known.code.start;
            if let Some(codes) = self.places.get_mut(&start) {
                codes.retain(|code| *code != address);
                if codes.is_empty() {
                    self.places.remove(&start);
                }
            }
        }
    }

    /// The function that has its instructions at this address, if it is known and has not changed, and the line of the
    /// instruction before the address: the one that is executed, since the address is that of the next one.
    pub(super) fn executed(
        &mut self,
        layout: &Layout,
        address: u64,
        target: &mut dyn Target,
        functions: &mut Functions,
    ) -> Option<Executed> {
        let (start, codes) = self.places.range(..=address).next_back()?;
        let (&code, shared) = (codes.first()?, codes.len() > 1);
        if !self.known.get(&code)?.code.contains(&address) {
            return None;
        }
        let before = address.wrapping_sub(UNIT);
        let instruction = match layout.code.instructions {
            Instructions::Object { .. } => before.wrapping_sub(*start),
            Instructions::Inside { .. } => before,
        };
        let mut target = Bounded::new(target, ALLOWANCE);
        let Look::Known = self.look(layout, code, false, &mut 0, &mut target, functions) else { return None };
        let frame = RawFrame { address: 0, code, instruction };
        let resolved = self.place(layout, &frame, &mut target).filter(|resolved| resolved.location.is_some())?;
        Some(Executed { code, resolved, shared })
    }

    /// The function and line of a frame whose code is known; `None` if the frame's instruction is not one of it.
    fn place(&mut self, layout: &Layout, frame: &RawFrame, target: &mut Bounded<'_>) -> Option<Resolved> {
        let known = self.known.get_mut(&frame.code)?;
        let Some(function) = known.function else {
            return Some(Resolved { location: None, code: 0..0, unknown: false });
        };
        let length = known.code.end.saturating_sub(known.code.start);
        // Up to 3.10 an offset, later an address. Both are before the first instruction when a function begins.
        let offset = match layout.code.instructions {
            Instructions::Object { .. } => frame.instruction.cast_signed(),
            Instructions::Inside { .. } => frame.instruction.wrapping_sub(known.code.start).cast_signed(),
        };
        let is_within = offset >= -2 && offset < length.cast_signed();
        let line = if is_within {
            known.line(layout, offset, target)
        } else if layout.free_threaded {
            // Each thread may have a copy of the instructions.
            0
        } else {
            self.forget(frame.code);
            return None;
        };
        let location = Some(Location::Interpreted { function, line });
        Some(Resolved { location, code: known.code.clone(), unknown: false })
    }
}

impl Known {
    /// The line of an instruction, 0 if there is none.
    fn line(&mut self, layout: &Layout, offset: i64, target: &mut Bounded<'_>) -> u32 {
        let Ok(offset) = u64::try_from(offset) else { return self.print.first_line };
        if let Some(line) = self.lines.get(&offset) {
            return *line;
        }
        let Some(table) = text::bytes(&layout.object, target, self.print.table, MAX_TABLE) else { return 0 };
        let line = lines::line(layout.code.lines, &table, self.print.first_line, offset).unwrap_or(0);
        if self.lines.len() >= MAX_LINES {
            self.lines.clear();
        }
        self.lines.insert(offset, line);
        line
    }
}

fn read_print(layout: &Layout, address: u64, target: &mut Bounded<'_>) -> Option<Print> {
    let code = &layout.code;
    let mut bytes = [0; 1032];
    let bytes = &mut bytes[..code.size().min(1032)];
    if address == 0 || !target.read(address, bytes) {
        return None;
    }
    let field = |at: u32| word_at(bytes, at as usize);
    let name = field(code.name);
    let mark = match code.version.map(|at| half_at(bytes, at as usize)) {
        Some(version) if version != 0 => u64::from(version),
        _ => text::hash(target, name).unwrap_or(0),
    };
    Some(Print {
        kind: field(layout.object.kind),
        file: field(code.file),
        name,
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

/// Whether this is the type of code objects, by its name.
fn is_code_type(layout: &Layout, kind: u64, target: &mut Bounded<'_>) -> bool {
    let at = if layout.free_threaded { TYPE_NAME + WIDER_HEAD } else { TYPE_NAME };
    let mut name = [0; 5];
    word(target, kind.wrapping_add(at)).is_some_and(|at| target.read(at, &mut name)) && &name == b"code\0"
}

fn read_new(
    layout: &Layout,
    address: u64,
    print: Print,
    turn: u64,
    target: &mut Bounded<'_>,
    functions: &mut Functions,
) -> Option<Known> {
    let file = text::string(&layout.object, target, print.file, MAX_FILE)?;
    let name = text::string(&layout.object, target, print.name, MAX_NAME)?;
    let (start, length) = match layout.code.instructions {
        Instructions::Object { .. } => {
            let start = print.instructions.wrapping_add(u64::from(layout.object.bytes_data));
            (start, text::length(&layout.object, target, print.instructions)?)
        }
        Instructions::Inside { at } => (address.wrapping_add(u64::from(at)), print.instructions.checked_mul(2)?),
    };
    let is_shown = !file.is_empty() && file != SHIM;
    let function = is_shown.then(|| functions.number(FunctionKind::CPython, &name, &file, print.first_line));
    // A code object of more than a gigabyte is none.
    let end = (length < 1 << 30).then(|| start.checked_add(length))??;
    Some(Known { print, function, code: start..end, lines: HashMap::default(), checked: turn })
}
