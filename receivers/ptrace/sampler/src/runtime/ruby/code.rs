//! Tells which function an instruction sequence or a C function is, and the line of an instruction.

use std::time::Instant;

use super::layout::Layout;
use super::methods::{self, CFunction};
use super::objects;
use super::search::Located;
use super::sequences::{Owner, Sequence, Source};
use crate::message::{FunctionKind, Location};
use crate::runtime::codes::{Codes, Look};
use crate::runtime::target::{Allowance, Bounded, Target, word};
use crate::runtime::{Captured, Executed, Functions, MAX_NAME, RawFrame, Resolved};

/// The most functions of one stack that are read for the first time; further ones are unknown.
const MAX_NEW: u32 = 64;
/// What may be read for the names of one stack.
const ALLOWANCE: Allowance = Allowance { reads: 4096, bytes: 4 << 20 };

/// The sequences and C functions of a process.
#[derive(Debug, Default)]
pub(super) struct Sequences {
    known: Codes<Sequence>,
    /// C functions by the address of their method.
    natives: Codes<CFunction>,
    /// The number of the stack that is told.
    stack: u64,
}

impl Sequences {
    /// See [`Codes::sampled`].
    pub(super) fn sampled(&mut self, at: Option<Instant>, now: Instant) {
        self.known.sampled(at, now);
        self.natives.sampled(at, now);
    }

    /// See [`Codes::is_fresh`].
    pub(super) fn is_fresh(&self, code: u64) -> bool {
        self.known.is_fresh(code)
    }

    /// Tells what these frames are.
    pub(super) fn resolve(
        &mut self,
        (layout, located): (&Layout, Located),
        captured: &Captured,
        stands: bool,
        target: &mut dyn Target,
        functions: &mut Functions,
        resolved: &mut Vec<Resolved>,
    ) {
        resolved.clear();
        self.known.next_stack();
        self.natives.next_stack();
        self.stack += 1;
        let mut new = MAX_NEW;
        let mut names = None;
        let mut target = Bounded::new(target, ALLOWANCE);
        for (index, frame) in captured.frames.iter().enumerate() {
            let told = if frame.instruction == 0 {
                let (target, functions) = (&mut target, &mut *functions);
                let mut source = methods::Source { layout, located, names: &mut names, target, functions };
                let look = self.natives.look(frame.code, stands, &mut new, &mut source);
                self.natives.get(frame.code).filter(|_| look == Look::Known).map(|known| Resolved {
                    location: Some(Location::Interpreted { function: known.function, line: 0 }),
                    code: 0..0,
                    unknown: false,
                })
            } else if self.look(layout, frame.code, stands, &mut new, &mut target) {
                let method = captured.owners.get(index).copied().unwrap_or(0);
                self.place(layout, frame, method, &mut target, functions)
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
        let code = self.known.around(address).last()?;
        let mut target = Bounded::new(target, ALLOWANCE);
        if !self.look(layout, code, false, &mut 0, &mut target) {
            return None;
        }
        // Which class has the method is in the frame only. With several of them it is not known.
        let mut owners = self.known.get(code)?.owners.iter().filter(|owner| owner.class != 0);
        let owner = owners.next().map_or((0, 0), |owner| (owner.method, owner.class));
        if owners.any(|other| other.class != owner.1) {
            return None;
        }
        let frame = RawFrame { address: 0, code, instruction: address };
        let resolved = self.place(layout, &frame, owner.0, &mut target, functions)?;
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
        self.known.look(address, stands, new, &mut Source { layout, target }) == Look::Known
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
        let code = known.code.clone();
        if !code.contains(&frame.instruction) {
            self.known.forget(frame.code);
            return None;
        }
        let method = if known.method.is_some() && layout.class.is_some() { method } else { 0 };
        let function = self.function(layout, frame.code, method, target, functions)?;
        let line = self.known.line(frame.code, frame.instruction, &mut Source { layout, target })?;
        Some(Resolved { location: Some(Location::Interpreted { function, line }), code, unknown: false })
    }

    /// The function that a sequence is of this method. A class may have given its place to another one, or have another
    /// name by now, so its name holds as long as it says the same of itself.
    fn function(
        &mut self,
        layout: &Layout,
        code: u64,
        method: u64,
        target: &mut Bounded<'_>,
        functions: &mut Functions,
    ) -> Option<u32> {
        let stack = self.stack;
        let known = self.known.get_mut(code)?;
        let before = known.owners.iter_mut().find(|owner| owner.method == method);
        if let Some(owner) = &before
            && (method == 0 || owner.checked == stack)
        {
            return Some(owner.function);
        }
        // The method must be the one that has this sequence, or the frame has changed since.
        let of = known.print.method;
        let found = if method == 0 { None } else { methods::read(method, target).filter(|found| found.body == of) };
        let class = found.map_or(0, |found| found.owner);
        let said = if class == 0 { None } else { objects::class(layout, target, class) };
        if let (Some(owner), Some(_)) = (before, said)
            && (owner.class, owner.said) == (class, said)
        {
            owner.checked = stack;
            return Some(owner.function);
        }
        let name = said.and_then(|said| Some((said.name(layout, target, MAX_NAME)?, said.join())));
        let is_still = method == 0 || (said.is_some() && objects::class(layout, target, class) == said);
        let function = known.function(name.filter(|_| is_still), functions);
        if is_still {
            known.add(Owner { method, class, said, function, checked: stack });
        }
        Some(function)
    }
}
