//! Tells which functions frames and instructions are of, by the code objects that were read.

use std::ops::Range;
use std::time::Instant;

use super::code_object::{CodeObject, Context, Source};
use super::copies;
use super::layout::{Instructions, Layout};
use crate::arch::USER;
use crate::message::{FunctionKind, Location};
use crate::runtime::codes::{Codes, Look};
use crate::runtime::target::{Allowance, Bounded, Target, word};
use crate::runtime::{Captured, Executed, Functions, RawFrame, Resolved};

/// The most code objects of one stack that are read for the first time; of further ones the function is unknown.
const MAX_NEW: u32 = 64;
/// What may be read for the names of one stack.
const ALLOWANCE: Allowance = Allowance { reads: 1024, bytes: 4 << 20 };
/// How many words may be tried as the address of a frame whose function is looked for, how many code objects that were
/// never seen may be read for it, and how far behind its beginning a code object may have its instructions.
const MAX_TRIED: usize = 32;
const MAX_MET: u32 = 4;
const MAX_INSIDE: u64 = 1 << 20;
/// How many code objects that have an address are looked at: those that were freed are forgotten one by one.
const MAX_FREED: usize = 16;
/// The size of an instruction, in bytes.
const UNIT: u64 = 2;

/// The code objects of a process.
#[derive(Debug, Default)]
pub(super) struct CodeObjects {
    known: Codes<CodeObject>,
    /// The type of code objects.
    kind: Option<u64>,
}

impl CodeObjects {
    /// See [`Codes::sampled`].
    pub(super) fn sampled(&mut self, at: Option<Instant>, now: Instant) {
        self.known.sampled(at, now);
    }

    /// See [`Codes::is_fresh`].
    pub(super) fn is_fresh(&self, code: u64) -> bool {
        self.known.is_fresh(code)
    }

    /// Tells what these frames are. `stands` if the thread still stands where they were read.
    pub(super) fn resolve(
        &mut self,
        layout: &Layout,
        captured: &Captured,
        stands: bool,
        target: &mut dyn Target,
        functions: &mut Functions,
        resolved: &mut Vec<Resolved>,
    ) {
        resolved.clear();
        self.known.next_stack();
        let mut new = MAX_NEW;
        let mut target = Bounded::new(target, ALLOWANCE);
        for (index, frame) in captured.frames.iter().enumerate() {
            let globals = captured.globals.get(index).copied().unwrap_or(0);
            let context = Some(Context { frame: frame.address, globals });
            let unknown = |functions: &mut Functions| Resolved::unknown(FunctionKind::CPython, functions);
            let told = match self.look(layout, (frame.code, context), stands, &mut new, &mut target, functions) {
                Look::Known => {
                    let place = self.place(layout, frame, &mut target, functions);
                    place.unwrap_or_else(|| unknown(functions))
                }
                // An interpreter's own frame.
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
        (address, context): (u64, Option<Context>),
        stands: bool,
        new: &mut u32,
        target: &mut Bounded<'_>,
        functions: &mut Functions,
    ) -> Look {
        let Self { known, kind } = self;
        known.look(address, stands, new, &mut Source { layout, kind, context, target, functions })
    }

    /// The instructions of a code object, or a thread's copy of them, that this address is in.
    fn part(&mut self, layout: &Layout, code: u64, address: u64, target: &mut Bounded<'_>) -> Option<Range<u64>> {
        let known = self.known.get(code)?;
        if let Instructions::Inside { copies: Some(at), .. } = layout.code.instructions
            && !known.code.contains(&address)
            && !self.known.has_copies(code)
        {
            let own = known.code.start;
            let refused = target.refused();
            let mut now = copies::read(at, code, target);
            if target.refused() == refused {
                now.retain(|start| *start != own);
                self.known.set_copies(code, now);
            }
        }
        self.known.part(code, address)
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
        let mut target = Bounded::new(target, ALLOWANCE);
        for _ in 0..MAX_FREED {
            let mut around = self.known.around(address);
            let (code, is_only) = (around.next()?, around.next().is_none());
            drop(around);
            if let Look::Known = self.look(layout, (code, None), false, &mut 0, &mut target, functions) {
                let shared = !is_only || self.has_other_owners(layout, code, &mut target);
                let resolved = self.resolved_at(layout, code, address, &mut target, functions)?;
                return Some(Executed { code, resolved, shared });
            }
        }
        None
    }

    /// The one of the functions with their instructions at this address whose code object is among these words.
    pub(super) fn executed_among(
        &mut self,
        layout: &Layout,
        address: u64,
        words: &[u64],
        target: &mut dyn Target,
        functions: &mut Functions,
    ) -> Option<Executed> {
        let mut among = self.known.around(address).filter(|code| words.contains(code));
        let (code, None) = (among.next()?, among.next()) else { return None };
        drop(among);
        let mut target = Bounded::new(target, ALLOWANCE);
        let Look::Known = self.look(layout, (code, None), false, &mut 0, &mut target, functions) else { return None };
        let resolved = self.resolved_at(layout, code, address, &mut target, functions)?;
        Some(Executed { code, resolved, shared: false })
    }

    /// A function that is known, and the line of the instruction before an address in its code.
    fn resolved_at(
        &mut self,
        layout: &Layout,
        code: u64,
        address: u64,
        target: &mut Bounded<'_>,
        functions: &mut Functions,
    ) -> Option<Resolved> {
        let start = self.part(layout, code, address, target)?.start;
        let before = address.wrapping_sub(start).wrapping_sub(UNIT);
        let instruction = match layout.code.instructions {
            Instructions::Object { .. } => before,
            Instructions::Inside { .. } => self.known.get(code)?.code.start.wrapping_add(before),
        };
        let frame = RawFrame { address: 0, code, instruction };
        self.place(layout, &frame, target, functions).filter(|resolved| resolved.location.is_some())
    }

    /// Whether other code objects than the ones that are known may have these instructions: up to 3.10, functions of a
    /// module that have equal ones share an object.
    fn has_other_owners(&self, layout: &Layout, code: u64, target: &mut Bounded<'_>) -> bool {
        let (Instructions::Object { .. }, Some(known)) = (layout.code.instructions, self.known.get(code)) else {
            return false;
        };
        word(target, known.code.start.wrapping_sub(u64::from(layout.object.bytes_data))) != Some(1)
    }

    /// The function that has its instructions at this address and was not met before: that of the frame which one of
    /// these words is the address of, or was a moment ago.
    pub(super) fn meet(
        &mut self,
        layout: &Layout,
        address: u64,
        words: &[u64],
        target: &mut dyn Target,
        functions: &mut Functions,
    ) -> Option<Executed> {
        let mut bounded = Bounded::new(target, ALLOWANCE);
        let mut new = MAX_MET;
        let mut seen = Vec::new();
        for frame in words.iter().filter(|word| USER.contains(word) && *word & 7 == 0) {
            if seen.len() == MAX_TRIED {
                break;
            }
            if seen.contains(frame) {
                continue;
            }
            seen.push(*frame);
            let code = word(&mut bounded, frame.wrapping_add(u64::from(layout.frame.code))).unwrap_or(0) & !3;
            let may_be = match layout.code.instructions {
                Instructions::Inside { copies: None, .. } => address.wrapping_sub(code) < MAX_INSIDE,
                Instructions::Inside { .. } | Instructions::Object { .. } => USER.contains(&code) && code & 7 == 0,
            };
            let globals = |target: &mut Bounded<'_>| word(target, frame.wrapping_add(layout.frame.globals.into()));
            if may_be
                && let context = Some(Context { frame: *frame, globals: globals(&mut bounded).unwrap_or(0) })
                && let Look::Known = self.look(layout, (code, context), false, &mut new, &mut bounded, functions)
                && self.part(layout, code, address, &mut bounded).is_some()
            {
                return self.executed(layout, address, target, functions);
            }
        }
        None
    }

    /// The function and line of a frame whose code is known; `None` if the frame's instruction is not one of it.
    fn place(
        &mut self,
        layout: &Layout,
        frame: &RawFrame,
        target: &mut Bounded<'_>,
        functions: &mut Functions,
    ) -> Option<Resolved> {
        let known = self.known.get(frame.code)?;
        let Some(function) = known.function else {
            return Some(Resolved { location: None, code: 0..0, unknown: false });
        };
        let (code, first_line) = (known.code.clone(), known.print.first_line);
        let length = code.end.saturating_sub(code.start);
        // Up to 3.10 an offset, later an address. Both are before the first instruction when a function begins.
        let offset = match layout.code.instructions {
            Instructions::Object { .. } => frame.instruction.cast_signed(),
            Instructions::Inside { .. } => frame.instruction.wrapping_sub(code.start).cast_signed(),
        };
        let is_within = offset >= -2 && offset < length.cast_signed();
        let refused = target.refused();
        let (code, offset) = if is_within {
            (code, offset)
        } else if let Instructions::Inside { copies: Some(_), .. } = layout.code.instructions
            && let Some(copy) = self.part(layout, frame.code, frame.instruction, target)
        {
            let offset = frame.instruction.wrapping_sub(copy.start).cast_signed();
            (copy, offset)
        } else {
            if target.refused() == refused {
                self.known.forget(frame.code);
            }
            return None;
        };
        let Self { known, kind } = self;
        let line = match u64::try_from(offset) {
            Ok(offset) => {
                known.line(frame.code, offset, &mut Source { layout, kind, context: None, target, functions })?
            }
            Err(_) => first_line,
        };
        let location = Some(Location::Interpreted { function, line });
        Some(Resolved { location, code, unknown: false })
    }
}
