//! Compiled code: finds the function that contains an address, and the position in the function.
//!
//! Instructions are in an object that begins with a map and the address of a `Code` object, which in turn has the
//! address of the instructions. So the beginning of such an object is searched for backwards from the address, and
//! accepted only if the `Code` object's instructions include the address. Source of the layouts: v8/v8
//! `src/objects/code.h`, `instruction-stream.h`, `deoptimization-data.h`.

use std::collections::BTreeMap;
use std::sync::Arc;

use foldhash::fast::RandomState;
use hashbrown::HashSet;

use super::heap::{Heap, is_object, number};
use super::positions::{self, SourcePosition};
use crate::runtime::target::{half_at, word_at};

/// Limits of the cache: number of code objects, and bytes of their tables.
const MAX_CODES: usize = 8192;
const MAX_TABLES: usize = 32 << 20;
/// How far before an address its code is searched for, and how much of that is read at once, in bytes.
const MAX_BEHIND: u64 = 512 << 10;
const STEP: u64 = 4 << 10;
/// V8 places instructions at multiples of this (`kCodeAlignment`).
const ALIGNMENT: u64 = 32;
/// Limits: candidates examined for one address, and addresses looked up for one stack.
const MAX_CANDIDATES: u32 = 64;
const MAX_SEARCHES: u32 = 8;
/// The maximum number of addresses remembered as not being in any code.
const MAX_STRANGE: usize = 4096;
/// The largest table that is read, in bytes, and the maximum number of inlined functions.
pub(super) const MAX_TABLE: usize = 1 << 20;
const MAX_INLINED: usize = 1024;
/// The size of an entry in the table of inlined calls: a position, and the function's number.
const INLINED_CALL: usize = 16;
/// The number of the code kind for regular expressions, in all versions.
const REGULAR_EXPRESSION: u32 = 3;
/// The maximum nesting of inlined functions.
pub(super) const MAX_DEPTH: usize = 64;

/// What a piece of compiled code is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum CodeKind {
    /// Code that Sparkplug compiled from byte code, with its position table.
    Baseline { bytecode: u64, table: Arc<[u8]> },
    /// Code of an optimizing compiler.
    Optimized(Optimized),
    /// Code for a regular expression.
    RegularExpression,
    /// Other code, which is part of V8.
    Other,
}

/// The data that an optimizing compiler stores about its code.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Optimized {
    /// The function that was compiled (`SharedFunctionInfo`).
    pub(super) function: u64,
    /// The functions that were inlined.
    functions: Vec<u64>,
    /// The position of each inlined call, and the number of the inlined function.
    calls: Vec<(SourcePosition, i32)>,
    pub(super) table: Vec<u8>,
    detail: Detail,
}

/// Which instructions of the code have positions in its table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Detail {
    /// All instructions.
    All,
    /// Calls only.
    Calls,
    /// Too few entries to decide.
    Unclear,
}

/// A known piece of compiled code.
#[derive(Debug)]
struct KnownCode {
    end: u64,
    object: u64,
    /// The fields compared to see whether the code is still the same.
    fingerprint: [u64; 5],
    what: CodeKind,
    checked: u64,
}

/// The compiled code of a process.
#[derive(Debug, Default)]
pub(super) struct Codes {
    known: BTreeMap<u64, KnownCode>,
    tables: usize,
    strange: HashSet<u64, RandomState>,
    turn: u64,
    searches: u32,
    /// How many code objects had positions of all instructions, and how many only those of calls.
    detailed: [u32; 2],
}

impl Codes {
    /// Starts a new stack: known code is compared with memory again.
    pub(super) fn next_stack(&mut self) {
        self.turn += 1;
        self.searches = MAX_SEARCHES;
    }

    /// Whether all instructions of this code have source positions. An isolate records these for all of its code or for
    /// none, unless the setting changes at run time; Node records them from the start.
    pub(super) fn is_detailed(&self, code: &Optimized) -> bool {
        let [all, calls] = self.detailed;
        code.detail == Detail::All || code.detail == Detail::Unclear && all > calls.saturating_mul(4)
    }

    /// Returns the start of the code that contains an address.
    pub(super) fn find(&mut self, address: u64, heap: &mut Heap<'_, '_>) -> Option<u64> {
        self.known_at(address, heap).or_else(|| self.search(address, heap))
    }

    /// Returns the kind of the code that starts at an address.
    pub(super) fn get(&self, start: u64) -> Option<&CodeKind> {
        self.known.get(&start).map(|known| &known.what)
    }

    fn known_at(&mut self, address: u64, heap: &mut Heap<'_, '_>) -> Option<u64> {
        let (&start, known) = self.known.range_mut(..=address).next_back()?;
        if address >= known.end {
            return None;
        }
        if known.checked != self.turn {
            let now = read_code_object(known.object, heap)
                .filter(|code| code.fingerprint == known.fingerprint && code.start == start);
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
        // Remove older code that occupied this address range.
        while let Some((&before, _)) = self.known.range(..code.end).next_back().filter(|(_, one)| one.end > code.start)
        {
            self.forget(before);
        }
        self.tables += what.memory();
        if let CodeKind::Optimized(code) = &what {
            self.detailed[0] += u32::from(code.detail == Detail::All);
            self.detailed[1] += u32::from(code.detail == Detail::Calls);
        }
        let known =
            KnownCode { end: code.end, object: code.object, fingerprint: code.fingerprint, what, checked: self.turn };
        self.known.insert(code.start, known);
        Some(code.start)
    }
}

impl CodeKind {
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

    /// The functions at an offset in the code, innermost first, with the source position in each. `None` if they are
    /// unknown, because there is no table or the tables contradict each other.
    pub(super) fn at(&self, offset: u64) -> Option<Vec<(u64, Option<u32>)>> {
        let Some(mut position) = positions::position(&self.table, offset) else {
            // Before the first entry, no inlined function is executed.
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
            // The number of an inlined call is higher than that of the call that contains it.
            if call.inlining() >= inlining {
                return None;
            }
            position = call;
        }
        None
    }
}

/// A `Code` object whose fields are consistent.
struct CompiledCode {
    object: u64,
    start: u64,
    end: u64,
    kind: u32,
    fingerprint: [u64; 5],
}

fn read_code_object(object: u64, heap: &mut Heap<'_, '_>) -> Option<CompiledCode> {
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
    let fingerprint =
        [map, field(fields.deoptimization), field(fields.positions), u64::from(half(fields.flags)), u64::from(size)];
    // The lowest bits of the flags are the kind.
    Some(CompiledCode {
        object,
        start,
        end: start.checked_add(u64::from(size))?,
        kind: half(fields.flags) & 15,
        fingerprint,
    })
}

/// Searches backwards for the start of the code that contains this address.
fn search(address: u64, heap: &mut Heap<'_, '_>) -> Option<CompiledCode> {
    let head = heap.layout.head;
    let mut candidates = MAX_CANDIDATES;
    let mut bytes = [0; (STEP + 256) as usize];
    let mut end = address;
    let last = address.saturating_sub(MAX_BEHIND);
    while end > last {
        // The page before this one may not be mapped.
        let from = (end - 1) & !(STEP - 1);
        // This page may contain the start of instructions, while the header before them is in the preceding page.
        let length = (end - from) as usize;
        if !heap.target_read(from, &mut bytes[..length]) {
            return None;
        }
        // Each word may be the start of an object that holds instructions.
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
                    if let Some(code) = read_code_object(object, heap)
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

/// Whether the instructions of a `Code` object are in the object at `holder`.
fn holds(object: u64, holder: u64, heap: &mut Heap<'_, '_>) -> bool {
    let Some((stream, _)) = heap.layout.code.instructions else { return true };
    heap.field(object, stream) == Some(holder + 1)
}

fn what(code: &CompiledCode, heap: &mut Heap<'_, '_>) -> Option<CodeKind> {
    let kinds = heap.layout.kinds;
    let [_, deoptimization, positions, ..] = code.fingerprint;
    if code.kind == kinds.baseline {
        // Without a table only the outermost function is known.
        let table = heap.bytes(positions, MAX_TABLE).unwrap_or_default();
        return Some(CodeKind::Baseline { bytecode: deoptimization, table: table.into() });
    }
    if !(kinds.baseline..=kinds.last).contains(&code.kind) {
        return Some(if code.kind == REGULAR_EXPRESSION { CodeKind::RegularExpression } else { CodeKind::Other });
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
    let calls: Vec<_> = calls.map(|call| (SourcePosition(word_at(call, 0)), half_at(call, 8).cast_signed())).collect();
    let functions = if count > 0 { heap.elements(*data.get(layout.literals)?, count)? } else { Vec::new() };
    // Weak references have another tag.
    let functions = functions.into_iter().map(|function| function & !2).collect();
    let table = heap.bytes(positions, MAX_TABLE).unwrap_or_default();
    let detail = if calls.is_empty() { Detail::Unclear } else { detail(code, &table, heap) };
    Some(CodeKind::Optimized(Optimized { function, functions, calls, table, detail }))
}

/// Determines which instructions have positions in the table. If only calls have them, each entry is followed by a
/// call before the next entry. All instructions have positions under Node, `--detailed-line-info`, debuggers and V8's
/// profiler.
fn detail(code: &CompiledCode, table: &[u8], heap: &mut Heap<'_, '_>) -> Detail {
    /// How many entries are examined, and how far after its entry a call may be, in bytes.
    const MOST: usize = 64;
    const NEAR: usize = 32;
    /// The number of entries without a call, and of entries with one, that is enough to decide.
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
