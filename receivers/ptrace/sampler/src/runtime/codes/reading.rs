//! Keeps cached code up to date with memory.
//!
//! The data of a code object is read after the pointer to it, and belongs to the code only if the pointer has not
//! changed meanwhile. So the fingerprint is read before and after, for all interpreters. If reads were refused because
//! of the stack's read limit, the cache is not changed: nothing is stored or dropped.

use super::{CachedCode, Checked, Codes};
use crate::runtime::Functions;
use crate::runtime::code_reader::ResolveSession;

/// How to read code of one kind.
pub(in crate::runtime) trait CodeSource: Sized {
    type Code: CachedCode;
    /// The data that is read besides the fingerprint.
    type Texts;

    /// The fingerprint of the code at an address; `None` if there is none.
    fn read_print(&mut self, address: u64, session: &mut ResolveSession<'_>) -> Option<Fingerprint<Self>>;

    /// Whether an object with this fingerprint is code.
    fn is_code(&mut self, _print: &Fingerprint<Self>, _session: &mut ResolveSession<'_>) -> bool {
        true
    }

    /// Whether known code is to be read again, to add data that was missing.
    fn should_read_again(&self, _known: &mut Self::Code) -> bool {
        false
    }

    /// Reads the data of code with this fingerprint.
    fn read_texts(
        &mut self,
        address: u64,
        fingerprint: &Fingerprint<Self>,
        session: &mut ResolveSession<'_>,
    ) -> Option<Self::Texts>;

    /// Makes the cached code from verified data. `before` is the previous version, if the code was read again.
    fn make_code(
        &mut self,
        fingerprint: Fingerprint<Self>,
        texts: Self::Texts,
        before: Option<&Self::Code>,
        functions: &mut Functions,
    ) -> Self::Code;

    /// The line of an instruction of the code, 0 if it has none; `None` if it cannot be read.
    fn read_line(&mut self, code: &Self::Code, instruction: u64, session: &mut ResolveSession<'_>) -> Option<u32>;
}

type Fingerprint<R> = <<R as CodeSource>::Code as CachedCode>::Fingerprint;

/// The result of looking up code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::runtime) enum CodeLookup {
    /// The code is known.
    Known,
    /// The object is not code.
    Other,
    /// The code cannot be determined.
    Unknown,
}

impl<C: CachedCode> Codes<C> {
    /// Compares cached code with memory, once for each stack, and reads it if needed.
    pub(in crate::runtime) fn look_up<R: CodeSource<Code = C>>(
        &mut self,
        address: u64,
        reading: &mut R,
        session: &mut ResolveSession<'_>,
    ) -> CodeLookup {
        if self.is_checked(address) {
            return CodeLookup::Known;
        }
        let refused = session.target.refused();
        let fingerprint = reading.read_print(address, session);
        if session.target.refused() != refused {
            return CodeLookup::Unknown;
        }
        let (fingerprint, otherwise) = match self.check(address, fingerprint, session.has_not_run) {
            Checked::Known => {
                let known = self.get_mut(address).filter(|_| session.new > 0);
                match known.and_then(|known| reading.should_read_again(known).then(|| known.fingerprint().clone())) {
                    Some(fingerprint) => (fingerprint, CodeLookup::Known),
                    None => return CodeLookup::Known,
                }
            }
            Checked::New(fingerprint) => (fingerprint, CodeLookup::Unknown),
            Checked::Lost => return CodeLookup::Unknown,
        };
        if !reading.is_code(&fingerprint, session) {
            return CodeLookup::Other;
        }
        let Some(left) = session.new.checked_sub(1) else { return CodeLookup::Unknown };
        session.new = left;
        let texts = reading.read_texts(address, &fingerprint, session);
        let (Some(texts), true) = (texts, reading.read_print(address, session).as_ref() == Some(&fingerprint)) else {
            return otherwise;
        };
        if session.target.refused() != refused {
            return otherwise;
        }
        let code = reading.make_code(fingerprint, texts, self.get(address), session.functions);
        self.insert(address, code);
        CodeLookup::Known
    }

    /// The line of an instruction of known code: the cached one, or the one read now; 0 if it cannot be read. `None`
    /// if the code has changed.
    pub(in crate::runtime) fn line_of<R: CodeSource<Code = C>>(
        &mut self,
        address: u64,
        instruction: u64,
        reading: &mut R,
        session: &mut ResolveSession<'_>,
    ) -> Option<u32> {
        let known = self.known.get(&address)?;
        if let Some(line) = known.lines.get(instruction) {
            return Some(line);
        }
        let refused = session.target.refused();
        let line = reading.read_line(&known.code, instruction, session);
        let is_still =
            line.is_none() || reading.read_print(address, session).as_ref() == Some(known.code.fingerprint());
        if session.target.refused() != refused {
            return Some(0);
        }
        if !is_still {
            self.forget(address);
            return None;
        }
        if let (Some(line), Some(known)) = (line, self.known.get_mut(&address)) {
            known.lines.add(instruction, line);
        }
        Some(line.unwrap_or(0))
    }
}
