//! Tells which function an instruction sequence or a C function is, and the line of an instruction.
//!
//! The collector frees and moves sequences, and another one may have the place of one that was read. Compared are all its
//! addresses, its place in the text, and the bytes of its label and path.

use std::ops::Range;

use foldhash::fast::RandomState;
use hashbrown::HashMap;

use super::layout::Layout;
use super::lines;
use super::objects::{self, METHOD, SEQUENCE, VARIABLES};
use crate::message::{FunctionKind, Location};
use crate::runtime::codes::{Checked, Code, Codes, Lines};
use crate::runtime::target::{Allowance, Bounded, Target, half_at, word, word_at};
use crate::runtime::{Captured, Executed, Functions, MAX_FILE, MAX_NAME, RawFrame, Resolved};

/// The most C functions that are remembered; all are forgotten when there are more.
const MAX_METHODS: usize = 16_384;
/// The most names that are remembered of one sequence.
const MAX_OWNERS: usize = 8;
/// The most functions of one stack that are read for the first time; further ones are unknown.
const MAX_NEW: u32 = 64;
/// What may be read for the names of one stack.
const ALLOWANCE: Allowance = Allowance { reads: 4096, bytes: 4 << 20 };
/// The size of a word of a sequence, and the most words of one.
const WORD: u64 = 8;
const MAX_WORDS: u32 = 1 << 24;

/// Where a sequence has its body, and this the type, the number of words, the words, and the place in the text.
const BODY: u64 = 16;
const BODY_SIZE: usize = 192;
const WORDS: (usize, usize) = (4, 8);
const TEXT: usize = 64;
/// The size of the place in the text: path, label of the method, label, line and columns.
const TEXT_SIZE: usize = 48;
/// The type of sequences that are methods.
const OF_METHOD: u32 = 1;
/// The label of evaluated text from 3.4 on; before it has that of what is around it, as it has in backtraces.
const EVALUATED: &str = "<compiled>";
/// What C functions have for a path.
const NO_FILE: &str = "<cfunc>";

/// What a sequence says of itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Print {
    body: u64,
    words: u64,
    count: u32,
    text: [u8; TEXT_SIZE],
    info: [u64; 3],
    method: u64,
    label: [u8; 24],
    path: [u8; 24],
}

/// A sequence that was read.
#[derive(Debug)]
struct Sequence {
    print: Print,
    file: String,
    label: String,
    /// How many bytes of the label stand before the method's name, and that name; `None` outside of methods.
    method: Option<(usize, String)>,
    first_line: u32,
    code: Range<u64>,
    /// The functions by the class that has the method, 0 without.
    owners: Vec<(u64, u32)>,
    lines: Lines,
}

impl Code for Sequence {
    type Print = Print;

    fn print(&self) -> &Print {
        &self.print
    }

    fn instructions(&self) -> Range<u64> {
        self.code.clone()
    }
}

/// The sequences and C functions of a process.
#[derive(Debug, Default)]
pub(super) struct Sequences {
    known: Codes<Sequence>,
    /// C functions by the address of their method: what it said of itself, and the function.
    methods: HashMap<u64, ([u64; 5], u32), RandomState>,
}

/// How frames are read.
#[derive(Debug, Clone, Copy)]
pub(super) struct Reading<'a> {
    pub(super) layout: &'a Layout,
    /// The array of the names of symbols.
    pub(super) names: Option<u64>,
    /// The thread still stands where they were read.
    pub(super) stands: bool,
}

/// A method: the class that has it, and what it said of itself.
struct Method {
    /// Its sequence, for one that has any.
    body: u64,
    owner: u64,
    print: [u64; 5],
}

impl Sequences {
    /// Tells what these frames are.
    pub(super) fn resolve(
        &mut self,
        reading: Reading<'_>,
        captured: &Captured,
        target: &mut dyn Target,
        functions: &mut Functions,
        resolved: &mut Vec<Resolved>,
    ) {
        let Reading { layout, stands, .. } = reading;
        resolved.clear();
        self.known.next_stack();
        if self.methods.len() >= MAX_METHODS {
            self.methods.clear();
        }
        let mut new = MAX_NEW;
        let mut target = Bounded::new(target, ALLOWANCE);
        for (index, frame) in captured.frames.iter().enumerate() {
            let told = if frame.instruction == 0 {
                self.function(reading, frame.code, &mut new, &mut target, functions)
            } else if self.look(layout, frame.code, stands, &mut new, &mut target) {
                let owner = captured.owners.get(index).copied().unwrap_or(0);
                self.place(layout, frame, owner, &mut target, functions)
            } else {
                None
            };
            resolved.push(told.unwrap_or_else(|| Resolved::unknown(FunctionKind::Ruby, functions)));
        }
    }

    /// The function that has its words at this address, if it is known and has not changed, and the line of the
    /// instruction before the address.
    pub(super) fn executed(
        &mut self,
        layout: &Layout,
        address: u64,
        target: &mut dyn Target,
        functions: &mut Functions,
    ) -> Option<Executed> {
        if address & 7 != 0 {
            return None;
        }
        let code = *self.known.around(address).last()?;
        let mut target = Bounded::new(target, ALLOWANCE);
        if !self.look(layout, code, false, &mut 0, &mut target) {
            return None;
        }
        let known = self.known.get(code)?;
        // Which class has the method is in the frame only. With several of them it is not known.
        let mut owners = known.owners.iter().map(|(owner, _)| *owner).filter(|owner| *owner != 0);
        let owner = owners.next().unwrap_or(0);
        if owners.next().is_some() {
            return None;
        }
        let frame = RawFrame { address: 0, code, instruction: address };
        let resolved = self.place_of(layout, &frame, owner, &mut target, functions)?;
        Some(Executed { code, resolved, shared: false })
    }

    /// The function that has its words at this address, if the frame here has it by now.
    pub(super) fn meet(
        &mut self,
        layout: &Layout,
        address: u64,
        frame: u64,
        target: &mut dyn Target,
        functions: &mut Functions,
    ) -> Option<Executed> {
        let sequence = word(target, Some(frame).filter(|frame| frame & 7 == 0)?.wrapping_add(16))?;
        // One that is known was looked up by its address already: it is another one there.
        if self.known.get(sequence).is_some() {
            return None;
        }
        if !self.look(layout, sequence, false, &mut 1, &mut Bounded::new(target, ALLOWANCE)) {
            return None;
        }
        self.executed(layout, address, target, functions)
    }

    /// Makes sure that what is known of a sequence is what is in memory.
    fn look(&mut self, layout: &Layout, address: u64, stands: bool, new: &mut u32, target: &mut Bounded<'_>) -> bool {
        if stands && self.known.is_checked(address) {
            return true;
        }
        let print = match self.known.check(address, read_print(layout, address, target), stands) {
            Checked::Known => return true,
            Checked::Lost => return false,
            Checked::New(print) => print,
        };
        let Some(left) = new.checked_sub(1) else { return false };
        *new = left;
        let Some(sequence) = read_new(layout, print, target) else { return false };
        self.known.insert(address, sequence);
        true
    }

    /// The function and line of a frame whose sequence is known; `None` if the frame's instruction is not one of it.
    fn place(
        &mut self,
        layout: &Layout,
        frame: &RawFrame,
        method: u64,
        target: &mut Bounded<'_>,
        functions: &mut Functions,
    ) -> Option<Resolved> {
        let known = self.known.get(frame.code)?;
        let is_named = known.method.is_some() && layout.class.is_some() && method != 0;
        // The method must be the one that has this sequence, or the frame has changed since.
        let is_of = |found: &Method| found.body == known.print.method;
        let found = if is_named { read_method(method, target).filter(is_of) } else { None };
        let owner = found.map_or(0, |method| method.owner);
        let told = self.place_of(layout, frame, owner, target, functions);
        if told.is_none() {
            self.known.forget(frame.code);
        }
        told
    }

    fn place_of(
        &mut self,
        layout: &Layout,
        frame: &RawFrame,
        owner: u64,
        target: &mut Bounded<'_>,
        functions: &mut Functions,
    ) -> Option<Resolved> {
        let known = self.known.get_mut(frame.code)?;
        if !known.code.contains(&frame.instruction) {
            return None;
        }
        let function = match known.owners.iter().find(|(class, _)| *class == owner) {
            Some((_, function)) => *function,
            None => {
                let name = known.name(layout, owner, target);
                let number = functions.number(FunctionKind::Ruby, &name, &known.file, known.first_line);
                if known.owners.len() >= MAX_OWNERS {
                    known.owners.clear();
                }
                known.owners.push((owner, number));
                number
            }
        };
        let line = known.line(layout, frame.instruction, target);
        let location = Some(Location::Interpreted { function, line });
        Some(Resolved { location, code: known.code.clone(), unknown: false })
    }

    /// A C function by its method.
    fn function(
        &mut self,
        Reading { layout, names, stands }: Reading<'_>,
        address: u64,
        new: &mut u32,
        target: &mut Bounded<'_>,
        functions: &mut Functions,
    ) -> Option<Resolved> {
        let told = |function| Resolved {
            location: Some(Location::Interpreted { function, line: 0 }),
            code: 0..0,
            unknown: false,
        };
        let Some(method) = read_method(address, target) else {
            self.methods.remove(&address);
            return None;
        };
        let known = self.methods.get(&address).copied();
        if let Some((print, function)) = known {
            if print == method.print {
                return Some(told(function));
            }
            self.methods.remove(&address);
            if !stands {
                return None;
            }
        }
        *new = new.checked_sub(1)?;
        let name = objects::symbol(layout, target, names?, method.print[4], MAX_NAME)?;
        let name = match objects::class(layout, target, method.owner, MAX_NAME) {
            Some((class, true)) => format!("{class}.{name}"),
            Some((class, false)) => format!("{class}#{name}"),
            None => name,
        };
        let function = functions.number(FunctionKind::Ruby, &name, NO_FILE, 0);
        self.methods.insert(address, (method.print, function));
        Some(told(function))
    }
}

impl Sequence {
    /// The label with the class before the method's name, as Ruby's own backtraces have it from 3.4 on.
    fn name(&self, layout: &Layout, owner: u64, target: &mut Bounded<'_>) -> String {
        let Some((prefix, method)) = &self.method else { return self.label.clone() };
        let class = if owner == 0 { None } else { objects::class(layout, target, owner, MAX_NAME) };
        let Some((class, is_singleton)) = class else { return self.label.clone() };
        let join = if is_singleton { '.' } else { '#' };
        format!("{}{class}{join}{method}", self.label.get(..*prefix).unwrap_or_default())
    }

    /// The line of the instruction before this one, 0 if there is none.
    fn line(&mut self, layout: &Layout, instruction: u64, target: &mut Bounded<'_>) -> u32 {
        let position = (instruction.wrapping_sub(self.code.start) / WORD).saturating_sub(1);
        let Self { print, lines, .. } = self;
        let [info, count, index] = print.info;
        lines.line(position, || Some(lines::line(layout, (info, count as u32, index), position, target).unwrap_or(0)))
    }
}

/// The body of a sequence.
fn body(address: u64, target: &mut Bounded<'_>) -> Option<(u64, [u8; BODY_SIZE])> {
    let mut head = [0; 24];
    if address & 7 != 0 || !target.read(address, &mut head) || !objects::is_internal(word_at(&head, 0), SEQUENCE) {
        return None;
    }
    let body = word_at(&head, BODY as usize);
    let mut bytes = [0; BODY_SIZE];
    target.read(body, &mut bytes).then_some((body, bytes))
}

fn read_print(layout: &Layout, address: u64, target: &mut Bounded<'_>) -> Option<Print> {
    let (body, bytes) = body(address, target)?;
    let mut text = [0; TEXT_SIZE];
    text.copy_from_slice(bytes.get(TEXT..TEXT + TEXT_SIZE)?);
    let mut content = |at: usize| {
        let mut bytes = [0; 24];
        // Without the flags and the class, of which the collector uses some bits.
        target.read(word_at(&text, at).wrapping_add(16), &mut bytes).then_some(bytes)
    };
    Some(Print {
        body,
        words: word_at(&bytes, WORDS.1),
        count: half_at(&bytes, WORDS.0),
        path: content(0)?,
        label: content(16)?,
        text,
        info: [
            word_at(&bytes, layout.info as usize),
            u64::from(half_at(&bytes, layout.info_size as usize)),
            word_at(&bytes, layout.info_index as usize),
        ],
        method: word_at(&bytes, layout.method_sequence as usize),
    })
}

fn read_new(layout: &Layout, print: Print, target: &mut Bounded<'_>) -> Option<Sequence> {
    let text = |at: usize| word_at(&print.text, at);
    let file = objects::path(layout, target, text(0), MAX_FILE)?;
    let mut label = objects::string(layout, target, text(16), MAX_NAME)?;
    let line = text(24) as u32;
    // Up to 3.1 a small integer as Ruby has it.
    let first_line = if layout.string_length { line } else { line >> 1 };
    let count = Some(print.count).filter(|count| *count <= MAX_WORDS)?;
    let end = print.words.checked_add(u64::from(count) * WORD)?.checked_add(WORD)?;
    let around = body(print.method, target).and_then(|(_, body)| {
        let name = objects::string(layout, target, word_at(&body, TEXT + 8), MAX_NAME)?;
        Some((half_at(&body, 0) == OF_METHOD, name))
    });
    if let Some((_, name)) = &around
        && label == EVALUATED
    {
        label.clone_from(name);
    }
    let method = around.filter(|(is_method, _)| *is_method).and_then(|(_, name)| {
        let prefix = label.strip_suffix(name.as_str())?.len();
        Some((prefix, name))
    });
    Some(Sequence {
        print,
        file,
        label,
        method,
        first_line,
        code: print.words..end,
        owners: Vec::new(),
        lines: Lines::default(),
    })
}

/// What a method says of itself. A frame may have it behind the object of its special variables.
fn read_method(address: u64, target: &mut Bounded<'_>) -> Option<Method> {
    let mut bytes = [0; 40];
    let mut at = address;
    for _ in 0..2 {
        if at == 0 || at & 7 != 0 || !target.read(at, &mut bytes) {
            return None;
        }
        let flags = word_at(&bytes, 0);
        if objects::is_internal(flags, METHOD) {
            let (class, definition, called, owner) =
                (word_at(&bytes, 8), word_at(&bytes, 16), word_at(&bytes, 24), word_at(&bytes, 32));
            let mut bytes = [0; ORIGINAL_NAME + 8];
            if !target.read(definition, &mut bytes) {
                return None;
            }
            let (body, name) = (word_at(&bytes, 8), word_at(&bytes, ORIGINAL_NAME));
            return Some(Method { body, owner, print: [class, definition, called, owner, name] });
        }
        if !objects::is_internal(flags, VARIABLES) {
            return None;
        }
        at = word_at(&bytes, 8);
    }
    None
}

/// Where the definition of a method has the name that it was defined with.
const ORIGINAL_NAME: usize = 32;
