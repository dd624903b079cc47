//! Finds the functions of frames and of instruction addresses, using cached code objects.

use std::ops::Range;
use std::time::Instant;

use super::code_object::{CodeObject, CodeObjectReader, FrameContext};
use super::copies;
use super::layout::{Instructions, PythonLayout};
use crate::arch::USER;
use crate::message::{FunctionKind, Location};
use crate::runtime::codes::{CodeLookup, Codes};
use crate::runtime::target::{Bounded, word};
use crate::runtime::{CodeReader, Executed, RawFrame, ResolveSession, Resolved};

/// The maximum number of reads for the names of one stack.
const MAX_READS: u32 = 1024;
/// Limits when the function of a frame is searched for: words tried as the frame's address, unknown code objects read,
/// and the distance from the start of a code object to its instructions.
const MAX_TRIED: usize = 32;
const MAX_MET: u32 = 4;
const MAX_INSIDE: u64 = 1 << 20;
/// How many cached code objects are examined for one instruction address; objects that turn out to be freed are
/// dropped.
const MAX_FREED: usize = 16;
/// The size of an instruction, in bytes.
const UNIT: u64 = 2;

/// The code objects of a process.
#[derive(Debug)]
pub(super) struct CodeObjects {
    layout: PythonLayout,
    known: Codes<CodeObject>,
    /// The address of the type of code objects.
    kind: Option<u64>,
}

impl CodeObjects {
    pub(super) fn new(layout: PythonLayout) -> Self {
        Self { layout, known: Codes::default(), kind: None }
    }

    /// See [`Codes::is_fresh`].
    pub(super) fn is_fresh(&self, code: u64) -> bool {
        self.known.is_fresh(code)
    }

    /// Compares the cached code object with memory, and reads it if needed.
    fn look_up(&mut self, address: u64, context: Option<FrameContext>, session: &mut ResolveSession<'_>) -> CodeLookup {
        let Self { layout, known, kind } = self;
        known.look_up(address, &mut CodeObjectReader { layout, kind, context }, session)
    }

    /// The instructions of a code object, or a thread's copy of them, that contain this address.
    fn part(&mut self, code: u64, address: u64, target: &mut Bounded<'_>) -> Option<Range<u64>> {
        let known = self.known.get(code)?;
        if let Instructions::Inside { copies: Some(at), .. } = self.layout.code.instructions
            && !known.code.contains(&address)
            && !self.known.has_copies(code)
        {
            let own = known.code.start;
            let refused = target.refused();
            let mut now = copies::read_starts(at, code, target);
            if target.refused() == refused {
                now.retain(|start| *start != own);
                self.known.set_copies(code, now);
            }
        }
        self.known.part(code, address)
    }

    /// A known function, and the line of the instruction before an address in its code.
    fn resolved_at(&mut self, code: u64, address: u64, session: &mut ResolveSession<'_>) -> Option<Resolved> {
        let start = self.part(code, address, &mut session.target)?.start;
        let before = address.wrapping_sub(start).wrapping_sub(UNIT);
        let instruction = match self.layout.code.instructions {
            Instructions::Object { .. } => before,
            Instructions::Inside { .. } => self.known.get(code)?.code.start.wrapping_add(before),
        };
        let frame = RawFrame { code, instruction, ..RawFrame::default() };
        self.place(&frame, session).filter(|resolved| resolved.location.is_some())
    }

    /// Whether code objects that are not known may have the same instructions: up to 3.10, functions of a module with
    /// equal instructions share one object.
    fn has_other_owners(&self, code: u64, target: &mut Bounded<'_>) -> bool {
        let (Instructions::Object { .. }, Some(known)) = (self.layout.code.instructions, self.known.get(code)) else {
            return false;
        };
        word(target, known.code.start.wrapping_sub(u64::from(self.layout.object.bytes_data))) != Some(1)
    }

    /// The function and line of a frame whose code is known; `None` if the frame's instruction is outside of the code.
    fn place(&mut self, frame: &RawFrame, session: &mut ResolveSession<'_>) -> Option<Resolved> {
        let known = self.known.get(frame.code)?;
        let Some(function) = known.function else {
            return Some(Resolved { location: None, code: 0..0, unknown: false });
        };
        let (code, first_line) = (known.code.clone(), known.fingerprint.first_line);
        let length = code.end.saturating_sub(code.start);
        // Frames store an offset up to 3.10, later an address. When a function begins, both point before its first
        // instruction.
        let offset = match self.layout.code.instructions {
            Instructions::Object { .. } => frame.instruction.cast_signed(),
            Instructions::Inside { .. } => frame.instruction.wrapping_sub(code.start).cast_signed(),
        };
        let is_within = offset >= -2 && offset < length.cast_signed();
        let refused = session.target.refused();
        let (code, offset) = if is_within {
            (code, offset)
        } else if let Instructions::Inside { copies: Some(_), .. } = self.layout.code.instructions
            && let Some(copy) = self.part(frame.code, frame.instruction, &mut session.target)
        {
            let offset = frame.instruction.wrapping_sub(copy.start).cast_signed();
            (copy, offset)
        } else {
            if session.target.refused() == refused {
                self.known.forget(frame.code);
            }
            return None;
        };
        let Self { layout, known, kind } = self;
        let line = match u64::try_from(offset) {
            Ok(offset) => {
                known.line_of(frame.code, offset, &mut CodeObjectReader { layout, kind, context: None }, session)?
            }
            Err(_) => first_line,
        };
        let location = Some(Location::Interpreted { function, line });
        Some(Resolved { location, code, unknown: false })
    }
}

impl CodeReader for CodeObjects {
    fn kind(&self) -> FunctionKind {
        FunctionKind::CPython
    }

    fn max_reads(&self) -> u32 {
        MAX_READS
    }

    fn next_stack(&mut self) {
        self.known.next_stack();
    }

    fn resolve_frame(&mut self, frame: &RawFrame, session: &mut ResolveSession<'_>) -> Option<Resolved> {
        match self.look_up(frame.code, Some(FrameContext { frame: frame.address, globals: frame.owner }), session) {
            CodeLookup::Known => self.place(frame, session),
            // This is an internal frame of the interpreter.
            CodeLookup::Other => Some(Resolved { location: None, code: 0..0, unknown: false }),
            CodeLookup::Unknown => None,
        }
    }

    fn sampled(&mut self, at: Option<Instant>, now: Instant) {
        self.known.sampled(at, now);
    }

    /// The function whose instructions include this address, and the line of the preceding instruction: that one is
    /// being executed, since the address belongs to the next one.
    fn executed(&mut self, address: u64, session: &mut ResolveSession<'_>) -> Option<Executed> {
        for _ in 0..MAX_FREED {
            let mut around = self.known.around(address);
            let (code, is_only) = (around.next()?, around.next().is_none());
            drop(around);
            if let CodeLookup::Known = self.look_up(code, None, session) {
                let shared = !is_only || self.has_other_owners(code, &mut session.target);
                let resolved = self.resolved_at(code, address, session)?;
                return Some(Executed { code, resolved, shared });
            }
        }
        None
    }

    fn executed_among(&mut self, address: u64, words: &[u64], session: &mut ResolveSession<'_>) -> Option<Executed> {
        let mut among = self.known.around(address).filter(|code| words.contains(code));
        let (code, None) = (among.next()?, among.next()) else { return None };
        drop(among);
        let CodeLookup::Known = self.look_up(code, None, session) else { return None };
        let resolved = self.resolved_at(code, address, session)?;
        Some(Executed { code, resolved, shared: false })
    }

    fn find_by_frames(&mut self, address: u64, words: &[u64], session: &mut ResolveSession<'_>) -> Option<Executed> {
        session.new = MAX_MET;
        let mut seen = Vec::new();
        for frame in words.iter().filter(|word| USER.contains(word) && *word & 7 == 0) {
            if seen.len() == MAX_TRIED {
                break;
            }
            if seen.contains(frame) {
                continue;
            }
            seen.push(*frame);
            let code =
                word(&mut session.target, frame.wrapping_add(u64::from(self.layout.frame.code))).unwrap_or(0) & !3;
            let may_be = match self.layout.code.instructions {
                Instructions::Inside { copies: None, .. } => address.wrapping_sub(code) < MAX_INSIDE,
                Instructions::Inside { .. } | Instructions::Object { .. } => USER.contains(&code) && code & 7 == 0,
            };
            if !may_be {
                continue;
            }
            let globals = word(&mut session.target, frame.wrapping_add(self.layout.frame.globals.into())).unwrap_or(0);
            if let CodeLookup::Known = self.look_up(code, Some(FrameContext { frame: *frame, globals }), session)
                && self.part(code, address, &mut session.target).is_some()
            {
                return self.executed(address, session);
            }
        }
        None
    }
}
