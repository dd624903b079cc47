//! Compiled code: which function an address is in, and where in it.
//!
//! The object that describes code is found from an address in it: what holds the instructions begins with a map and the
//! address of that object, which says where its instructions are. So the beginning is searched for backwards, and only
//! what describes itself as holding the address is believed. Source of the layouts: v8/v8 `src/objects/code.h`,
//! `instruction-stream.h`, `deoptimization-data.h`.

use std::collections::BTreeMap;
use std::sync::Arc;

use foldhash::fast::RandomState;
use hashbrown::HashSet;

use super::heap::{Heap, is_object, number};
use super::positions::{self, Position};
use crate::runtime::target::{half_at, word_at};

/// The most code that is remembered, in objects and in bytes of their tables.
const MAX_CODES: usize = 8192;
const MAX_TABLES: usize = 32 << 20;
/// How far code is looked for before an address in it, and how much is read of that at once, in bytes.
const MAX_BEHIND: u64 = 512 << 10;
const STEP: u64 = 4 << 10;
/// V8 places instructions at multiples of this (`kCodeAlignment`).
const ALIGNMENT: u64 = 32;
/// How many candidates are looked at closely for one address, and how many addresses are looked for in one stack.
const MAX_CANDIDATES: u32 = 64;
const MAX_SEARCHES: u32 = 8;
/// The most addresses that are remembered to be in no code.
const MAX_STRANGE: usize = 4096;
/// The largest tables that are read, in bytes; and the most inlined functions.
pub(super) const MAX_TABLE: usize = 1 << 20;
const MAX_INLINED: usize = 1024;
/// The size of an entry of the table of inlined calls: a position, and the function's number.
const INLINED_CALL: usize = 16;
/// The kind of the code of regular expressions, in all versions.
const REGULAR_EXPRESSION: u32 = 3;
/// The most functions that are inlined into each other.
pub(super) const MAX_DEPTH: usize = 64;

/// What code is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum What {
    /// Sparkplug's code for byte code, with its table.
    Baseline { bytecode: u64, table: Arc<[u8]> },
    /// Of an optimizing compiler.
    Optimized(Optimized),
    /// A regular expression's.
    RegularExpression,
    /// Part of V8.
    Other,
}

/// What an optimizing compiler says of its code.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Optimized {
    /// The function that was compiled (`SharedFunctionInfo`).
    pub(super) function: u64,
    /// The functions that were inlined into it.
    functions: Vec<u64>,
    /// Where they were called, and which they are.
    calls: Vec<(Position, i32)>,
    pub(super) table: Vec<u8>,
    detail: Detail,
}

/// Of which instructions a table has the positions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Detail {
    /// Of all.
    All,
    /// Of calls.
    Calls,
    /// Too few to tell.
    Unclear,
}

/// Code that was found.
#[derive(Debug)]
struct Known {
    end: u64,
    object: u64,
    /// The fields that tell that it is still the same.
    print: [u64; 5],
    what: What,
    checked: u64,
}

/// The compiled code of a process.
#[derive(Debug, Default)]
pub(super) struct Codes {
    known: BTreeMap<u64, Known>,
    tables: usize,
    strange: HashSet<u64, RandomState>,
    turn: u64,
    searches: u32,
    /// How much code was met with positions of all instructions, and with those of calls.
    detailed: [u32; 2],
}

impl Codes {
    /// Another stack begins: what is known is compared with memory once more.
    pub(super) fn next_stack(&mut self) {
        self.turn += 1;
        self.searches = MAX_SEARCHES;
    }

    /// Whether all instructions of code have positions. An isolate has them made for all of its code or for none,
    /// unless that changes while it runs, and Node has them made from the beginning.
    pub(super) fn is_detailed(&self, code: &Optimized) -> bool {
        let [all, calls] = self.detailed;
        code.detail == Detail::All || code.detail == Detail::Unclear && all > calls.saturating_mul(4)
    }

    /// Where the code at an address begins.
    pub(super) fn find(&mut self, address: u64, heap: &mut Heap<'_, '_>) -> Option<u64> {
        self.known_at(address, heap).or_else(|| self.search(address, heap))
    }

    /// What the code is that begins at an address.
    pub(super) fn get(&self, start: u64) -> Option<&What> {
        self.known.get(&start).map(|known| &known.what)
    }

    fn known_at(&mut self, address: u64, heap: &mut Heap<'_, '_>) -> Option<u64> {
        let (&start, known) = self.known.range_mut(..=address).next_back()?;
        if address >= known.end {
            return None;
        }
        if known.checked != self.turn {
            let now = read(known.object, heap).filter(|code| code.print == known.print && code.start == start);
            if now.is_none() {
                self.forget(start);
                return None;
            }
            known.checked = self.turn;
        }
        Some(start)
    }

    fn forget(&mut self, start: u64) {
        if let Some(known) = self.known.remove(&start) {
            self.tables = self.tables.saturating_sub(known.what.memory());
        }
    }

    fn search(&mut self, address: u64, heap: &mut Heap<'_, '_>) -> Option<u64> {
        if self.strange.contains(&address) {
            return None;
        }
        self.searches = self.searches.checked_sub(1)?;
        let Some(code) = search(address, heap) else {
            if self.strange.len() >= MAX_STRANGE {
                self.strange.clear();
            }
            self.strange.insert(address);
            return None;
        };
        let what = what(&code, heap)?;
        if self.known.len() >= MAX_CODES || self.tables > MAX_TABLES {
            self.known.clear();
            self.strange.clear();
            self.tables = 0;
        }
        // Code that was there before and is not any more.
        while let Some((&before, _)) = self.known.range(..code.end).next_back().filter(|(_, one)| one.end > code.start)
        {
            self.forget(before);
        }
        self.tables += what.memory();
        if let What::Optimized(code) = &what {
            self.detailed[0] += u32::from(code.detail == Detail::All);
            self.detailed[1] += u32::from(code.detail == Detail::Calls);
        }
        let known = Known { end: code.end, object: code.object, print: code.print, what, checked: self.turn };
        self.known.insert(code.start, known);
        Some(code.start)
    }
}

impl What {
    fn memory(&self) -> usize {
        match self {
            Self::Baseline { table, .. } => table.len(),
            Self::Optimized(code) => code.table.len() + code.calls.len() * INLINED_CALL + code.functions.len() * 8,
            Self::RegularExpression | Self::Other => 0,
        }
    }
}

impl Optimized {
    /// Whether functions were inlined.
    pub(super) fn has_inlined(&self) -> bool {
        !self.calls.is_empty()
    }

    /// The functions at an offset in the code, the innermost first, and where in each. `None` if that cannot be told,
    /// since there is no table, or tables contradict each other.
    pub(super) fn at(&self, offset: u64) -> Option<Vec<(u64, Option<u32>)>> {
        let Some(mut position) = positions::position(&self.table, offset) else {
            // Nothing is inlined before the first entry.
            return (!self.table.is_empty() || !self.has_inlined()).then(|| vec![(self.function, None)]);
        };
        let mut found = Vec::new();
        for _ in 0..MAX_DEPTH {
            let inlining = position.inlining();
            let Some(index) = usize::from(inlining).checked_sub(1) else {
                found.push((self.function, position.offset()));
                return Some(found);
            };
            let (call, function) = *self.calls.get(index)?;
            let function = match usize::try_from(function) {
                Ok(number) => *self.functions.get(number)?,
                Err(_) => self.function,
            };
            found.push((function, position.offset()));
            // Calls come after the one that they are in.
            if call.inlining() >= inlining {
                return None;
            }
            position = call;
        }
        None
    }
}

/// A `Code` object that describes itself well.
struct Code {
    object: u64,
    start: u64,
    end: u64,
    kind: u32,
    print: [u64; 5],
}

/// Reads what describes code.
fn read(object: u64, heap: &mut Heap<'_, '_>) -> Option<Code> {
    let fields = heap.layout.code;
    let mut bytes = [0; 64];
    if !heap.read(object, 0, &mut bytes) {
        return None;
    }
    let map = word_at(&bytes, 0);
    if heap.kind_of_map(map) != Some(heap.layout.types.code) {
        return None;
    }
    let field = |offset: u64| word_at(&bytes, offset as usize);
    let half = |offset: u64| half_at(&bytes, offset as usize);
    let start = match fields.instructions {
        Some((_, start)) => field(start),
        None => object.wrapping_sub(1).wrapping_add(heap.layout.head),
    };
    let size = half(fields.size);
    let print =
        [map, field(fields.deoptimization), field(fields.positions), u64::from(half(fields.flags)), u64::from(size)];
    // The lowest bits tell the kind.
    Some(Code { object, start, end: start.checked_add(u64::from(size))?, kind: half(fields.flags) & 15, print })
}

/// Searches for the beginning of the code that has this address.
fn search(address: u64, heap: &mut Heap<'_, '_>) -> Option<Code> {
    let head = heap.layout.head;
    let mut candidates = MAX_CANDIDATES;
    let mut bytes = [0; (STEP + 256) as usize];
    let mut end = address;
    let last = address.saturating_sub(MAX_BEHIND);
    while end > last {
        // What is before this page may not exist.
        let from = (end - 1) & !(STEP - 1);
        // The beginnings of instructions in this page. What comes before them may be in the page before.
        let length = (end - from) as usize;
        if !heap.target_read(from, &mut bytes[..length]) {
            return None;
        }
        // Beginnings of the objects that hold instructions.
        for at in (from / 8..=(end - 1) / 8).rev().map(|word| word * 8) {
            let holder = word_at(&bytes[..length], (at - from) as usize);
            if is_object(holder) && (at.wrapping_add(head)).is_multiple_of(ALIGNMENT) {
                let object = match heap.layout.code.instructions {
                    None => Some(at + 1),
                    Some(_) => {
                        let offset = (at - from) as usize + 8;
                        let described = if offset + 8 <= length {
                            Some(word_at(&bytes[..length], offset))
                        } else {
                            heap.field(at + 1, 8)
                        };
                        described.filter(|object| is_object(*object))
                    }
                };
                if let Some(object) = object {
                    candidates = candidates.checked_sub(1)?;
                    if let Some(code) = read(object, heap)
                        && code.start == at.wrapping_add(head)
                        && (code.start..code.end).contains(&address)
                        && holds(object, at, heap)
                    {
                        return Some(code);
                    }
                }
            }
        }
        end = from;
    }
    None
}

/// Whether an object says that its instructions are in the one at this address.
fn holds(object: u64, holder: u64, heap: &mut Heap<'_, '_>) -> bool {
    let Some((stream, _)) = heap.layout.code.instructions else { return true };
    heap.field(object, stream) == Some(holder + 1)
}

fn what(code: &Code, heap: &mut Heap<'_, '_>) -> Option<What> {
    let kinds = heap.layout.kinds;
    let [_, deoptimization, positions, ..] = code.print;
    if code.kind == kinds.baseline {
        // Without a table only the function is known.
        let table = heap.bytes(positions, MAX_TABLE).unwrap_or_default();
        return Some(What::Baseline { bytecode: deoptimization, table: table.into() });
    }
    if !(kinds.baseline..=kinds.last).contains(&code.kind) {
        return Some(if code.kind == REGULAR_EXPRESSION { What::RegularExpression } else { What::Other });
    }
    let layout = heap.layout;
    let data = heap.elements(deoptimization, layout.inlined + 1)?;
    let mut function = *data.get(layout.optimized)?;
    if layout.types.shared_wrapper != 0 && heap.kind(function)? == layout.types.shared_wrapper {
        function = heap.field(function, 8)?;
    }
    let count = usize::try_from(number(*data.get(1)?)?).ok()?.min(MAX_INLINED);
    let calls = heap.bytes(*data.get(layout.inlined)?, MAX_INLINED * INLINED_CALL)?;
    let calls = calls.as_chunks::<INLINED_CALL>().0.iter();
    let calls: Vec<_> = calls.map(|call| (Position(word_at(call, 0)), half_at(call, 8).cast_signed())).collect();
    let functions = if count > 0 { heap.elements(*data.get(layout.literals)?, count)? } else { Vec::new() };
    // References that do not keep what they refer to have another mark.
    let functions = functions.into_iter().map(|function| function & !2).collect();
    let table = heap.bytes(positions, MAX_TABLE).unwrap_or_default();
    let detail = if calls.is_empty() { Detail::Unclear } else { detail(code, &table, heap) };
    Some(What::Optimized(Optimized { function, functions, calls, table, detail }))
}

/// Of which instructions a table has positions. Where these are calls, there is one behind each entry, before the next
/// one. Node has all made, and so have `--detailed-line-info`, debuggers and V8's own profiler.
fn detail(code: &Code, table: &[u8], heap: &mut Heap<'_, '_>) -> Detail {
    /// How many entries are looked at, and how far a call is behind its entry, in bytes.
    const MOST: usize = 64;
    const NEAR: usize = 32;
    /// Fewer entries without a call, or with one, prove nothing.
    const PROVE: [u32; 2] = [2, 6];
    let (mut others, mut calls) = (0, 0);
    let mut entries = positions::entries(table).map(|(offset, _)| offset).skip_while(|offset| *offset <= 0).peekable();
    for _ in 0..MOST {
        let (Some(offset), Some(next)) = (entries.next(), entries.peek()) else { break };
        let length = usize::try_from(next.wrapping_sub(offset)).unwrap_or(0).min(NEAR);
        let mut bytes = [0; NEAR];
        if length == 0 || !heap.target_read(code.start.wrapping_add_signed(offset), &mut bytes[..length]) {
            continue;
        }
        let is_call = |pair: &[u8]| pair[0] == 0xe8 || pair[0] == 0xff && pair[1] >> 3 & 7 == 2;
        let has_call = bytes[..length].windows(2).any(is_call);
        (others, calls) = (others + u32::from(!has_call), calls + u32::from(has_call));
    }
    match (others, calls) {
        (others, _) if others >= PROVE[0] => Detail::All,
        (0, calls) if calls >= PROVE[1] => Detail::Calls,
        _ => Detail::Unclear,
    }
}
