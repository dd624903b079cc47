//! Finds the function of an instruction sequence or a C function, and the line of an instruction.

use std::time::Instant;

use super::layout::RubyLayout;
use super::methods::{self, CFunction};
use super::objects;
use super::search::Located;
use super::sequences::{Owner, Sequence, SequenceReader};
use crate::message::{FunctionKind, Location};
use crate::runtime::codes::{CodeLookup, Codes};
use crate::runtime::target::word;
use crate::runtime::{CodeReader, Executed, MAX_NAME, RawFrame, ResolveSession, Resolved};

/// The maximum number of reads for the names of one stack.
const MAX_READS: u32 = 4096;

/// The cached sequences and C functions of a process.
#[derive(Debug)]
pub(super) struct Sequences {
    layout: RubyLayout,
    /// The addresses of the interpreter's data that were found so far.
    pub(super) located: Located,
    /// Whether the register in which the executing function keeps its frame is known: only then a frame's address can
    /// be recognized.
    pub(super) frame_in_register: bool,
    known: Codes<Sequence>,
    /// C functions by the address of their method entry.
    natives: Codes<CFunction>,
    /// The number of the current stack.
    stack: u64,
    /// The array of symbol names, if it was already looked up for this stack.
    names: Option<Option<u64>>,
}

impl Sequences {
    pub(super) fn new(layout: RubyLayout, located: Located) -> Self {
        let (known, natives) = (Codes::default(), Codes::default());
        Self { layout, located, frame_in_register: false, known, natives, stack: 0, names: None }
    }

    /// See [`Codes::is_fresh`].
    pub(super) fn is_fresh(&self, code: u64) -> bool {
        self.known.is_fresh(code)
    }

    /// Compares the cached sequence with memory, and reads it if needed. Returns whether the sequence is known.
    fn look_up(&mut self, address: u64, session: &mut ResolveSession<'_>) -> bool {
        self.known.look_up(address, &mut SequenceReader(&self.layout), session) == CodeLookup::Known
    }

    /// Resolves the C function of a method.
    fn native(&mut self, method: u64, session: &mut ResolveSession<'_>) -> Option<Resolved> {
        let Self { layout, located, names, natives, .. } = self;
        let look = natives.look_up(method, &mut methods::MethodReader { layout, located: *located, names }, session);
        let known = natives.get(method).filter(|_| look == CodeLookup::Known)?;
        let location = Some(Location::Interpreted { function: known.function, line: 0 });
        Some(Resolved { location, code: 0..0, unknown: false })
    }

    /// The function and line of a frame whose sequence is known; `None` if the frame's instruction is outside of the
    /// sequence.
    fn place(&mut self, frame: &RawFrame, session: &mut ResolveSession<'_>) -> Option<Resolved> {
        let known = self.known.get(frame.code)?;
        let code = known.code.clone();
        if !code.contains(&frame.instruction) {
            self.known.forget(frame.code);
            return None;
        }
        let method = if known.method.is_some() && self.layout.class.is_some() { frame.owner } else { 0 };
        let function = self.function(frame.code, method, session)?;
        let line = self.known.line_of(frame.code, frame.instruction, &mut SequenceReader(&self.layout), session)?;
        Some(Resolved { location: Some(Location::Interpreted { function, line }), code, unknown: false })
    }

    /// The function of a sequence as part of this method. The class may have been replaced or renamed, so the cached
    /// name is valid only if the class is unchanged.
    fn function(&mut self, code: u64, method: u64, session: &mut ResolveSession<'_>) -> Option<u32> {
        let (stack, layout, target) = (self.stack, &self.layout, &mut session.target);
        let known = self.known.get_mut(code)?;
        let before = known.owners.iter_mut().find(|owner| owner.method == method);
        if let Some(owner) = &before
            && (method == 0 || owner.checked == stack)
        {
            return Some(owner.function);
        }
        // The method must have this sequence; otherwise the frame has changed since.
        let of = known.fingerprint.method;
        let found =
            if method == 0 { None } else { methods::read_method(method, target).filter(|found| found.body == of) };
        let class = found.map_or(0, |found| found.owner);
        let described = if class == 0 { None } else { objects::class(layout, target, class) };
        if let (Some(owner), Some(_)) = (before, described)
            && (owner.class, owner.described) == (class, described)
        {
            owner.checked = stack;
            return Some(owner.function);
        }
        let name = described.and_then(|class| Some((class.name(layout, target, MAX_NAME)?, class.join())));
        let is_still = method == 0 || (described.is_some() && objects::class(layout, target, class) == described);
        let function = known.function(name.filter(|_| is_still), session.functions);
        if is_still {
            known.add(Owner { method, class, described, function, checked: stack });
        }
        Some(function)
    }
}

impl CodeReader for Sequences {
    fn kind(&self) -> FunctionKind {
        FunctionKind::Ruby
    }

    fn max_reads(&self) -> u32 {
        MAX_READS
    }

    fn next_stack(&mut self) {
        self.known.next_stack();
        self.natives.next_stack();
        self.stack += 1;
        self.names = None;
    }

    fn resolve_frame(&mut self, frame: &RawFrame, session: &mut ResolveSession<'_>) -> Option<Resolved> {
        if frame.instruction == 0 {
            return self.native(frame.code, session);
        }
        if self.look_up(frame.code, session) { self.place(frame, session) } else { None }
    }

    fn sampled(&mut self, at: Option<Instant>, now: Instant) {
        self.known.sampled(at, now);
        self.natives.sampled(at, now);
    }

    /// The function whose instruction sequence includes this address, if it is known and unchanged, and the line of the
    /// instruction before the address.
    fn executed(&mut self, address: u64, session: &mut ResolveSession<'_>) -> Option<Executed> {
        if address & 7 != 0 {
            return None;
        }
        let code = self.known.around(address).last()?;
        if !self.look_up(code, session) {
            return None;
        }
        // Only the frame shows which class has the method. If several classes do, the function is unknown.
        let mut owners = self.known.get(code)?.owners.iter().filter(|owner| owner.class != 0);
        let (owner, class) = owners.next().map_or((0, 0), |owner| (owner.method, owner.class));
        if owners.any(|other| other.class != class) {
            return None;
        }
        let frame = RawFrame { address: 0, code, instruction: address, owner };
        let resolved = self.place(&frame, session)?;
        Some(Executed { code, resolved, shared: false })
    }

    /// The function whose instruction sequence includes this address, if the frame at the first of `words` still
    /// executes it.
    fn find_by_frames(&mut self, address: u64, words: &[u64], session: &mut ResolveSession<'_>) -> Option<Executed> {
        let frame = words.first().copied().filter(|frame| self.frame_in_register && frame & 7 == 0)?;
        let sequence = word(&mut session.target, frame.wrapping_add(16))?;
        // A known sequence would already have been found by the address, so this is a different one.
        if self.known.get(sequence).is_some() {
            return None;
        }
        session.new = 1;
        if self.look_up(sequence, session) { self.executed(address, session) } else { None }
    }
}
