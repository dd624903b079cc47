//! Instruction sequences: the cached data, and the fingerprint that shows whether one has changed.
//!
//! The garbage collector frees and moves sequences, so another sequence may take the address of a known one. The
//! fingerprint consists of the sequence's addresses, its position in the source, and the bytes of its label and path.

use std::ops::Range;

use super::layout::RubyLayout;
use super::lines;
use super::objects::{self, Class, SEQUENCE};
use crate::message::FunctionKind;
use crate::runtime::codes::{CachedCode, CodeSource};
use crate::runtime::target::{Bounded, TargetMemory, half_at, word_at};
use crate::runtime::{Functions, MAX_FILE, MAX_NAME, ResolveSession};

/// The size of a word of a sequence, and the maximum number of words.
const WORD: u64 = 8;
const MAX_WORDS: u32 = 1 << 24;
/// The maximum number of cached methods of one sequence.
const MAX_OWNERS: usize = 8;

/// The offset of the body in a sequence, and the offsets in the body of type, word count, words, and source position.
const BODY: u64 = 16;
const BODY_SIZE: usize = 192;
const WORDS: (usize, usize) = (4, 8);
const TEXT: usize = 64;
/// The size of the source position: path, label of the method, label, line and columns.
const TEXT_SIZE: usize = 48;
/// The type number of sequences that are methods.
const OF_METHOD: u32 = 1;
/// The label of evaluated text from 3.4 on; earlier versions give it the label of the surrounding code, as in
/// backtraces.
const EVALUATED: &str = "<compiled>";

/// The fields that identify a sequence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SequencePrint {
    body: u64,
    words: u64,
    count: u32,
    text: [u8; TEXT_SIZE],
    info: [u64; 3],
    /// The sequence of the surrounding method.
    pub(super) method: u64,
    label: [u8; 24],
    path: [u8; 24],
}

/// A cached sequence.
#[derive(Debug)]
pub(super) struct Sequence {
    pub(super) fingerprint: SequencePrint,
    file: String,
    label: String,
    /// The length in bytes of the part of the label before the method's name, and that name; `None` outside of methods.
    pub(super) method: Option<(usize, String)>,
    first_line: u32,
    pub(super) code: Range<u64>,
    /// The numbered functions of this sequence, one for each method whose class is part of the name; one may have no
    /// class.
    pub(super) owners: Vec<Owner>,
}

/// A method that executes a sequence, or none.
#[derive(Debug, Clone, Copy)]
pub(super) struct Owner {
    /// The address of the method entry, 0 for none.
    pub(super) method: u64,
    /// The method's class, and the fingerprint of the class.
    pub(super) class: u64,
    pub(super) described: Option<Class>,
    pub(super) function: u32,
    /// The number of the last stack for which the class was compared with memory.
    pub(super) checked: u64,
}

impl CachedCode for Sequence {
    type Fingerprint = SequencePrint;

    const MAX_SHARING: usize = 8;

    fn fingerprint(&self) -> &SequencePrint {
        &self.fingerprint
    }

    fn instructions(&self) -> Range<u64> {
        self.code.clone()
    }
}

impl Sequence {
    /// The function of a method whose class has this name, formatted like Ruby's backtraces from 3.4 on.
    pub(super) fn function(&self, class: Option<(String, char)>, functions: &mut Functions) -> u32 {
        let name = match (&self.method, class) {
            (Some((prefix, method)), Some((class, join))) => {
                &format!("{}{class}{join}{method}", self.label.get(..*prefix).unwrap_or_default())
            }
            _ => &self.label,
        };
        functions.number(FunctionKind::Ruby, name, &self.file, self.first_line)
    }

    /// Caches the function of a method.
    pub(super) fn add(&mut self, owner: Owner) {
        self.owners.retain(|known| known.method != owner.method);
        if self.owners.len() >= MAX_OWNERS {
            self.owners.clear();
        }
        self.owners.push(owner);
    }
}

/// Reads sequences from memory.
pub(super) struct SequenceReader<'a>(pub(super) &'a RubyLayout);

impl CodeSource for SequenceReader<'_> {
    type Code = Sequence;
    type Texts = Sequence;

    fn read_print(&mut self, address: u64, session: &mut ResolveSession<'_>) -> Option<SequencePrint> {
        read_print(self.0, address, &mut session.target)
    }

    fn read_texts(
        &mut self,
        _address: u64,
        fingerprint: &SequencePrint,
        session: &mut ResolveSession<'_>,
    ) -> Option<Sequence> {
        read_new(self.0, *fingerprint, &mut session.target)
    }

    fn make_code(&mut self, _: SequencePrint, sequence: Sequence, _: Option<&Sequence>, _: &mut Functions) -> Sequence {
        sequence
    }

    /// The line of the instruction before this address.
    fn read_line(&mut self, code: &Sequence, instruction: u64, session: &mut ResolveSession<'_>) -> Option<u32> {
        let position = (instruction.wrapping_sub(code.code.start) / WORD).saturating_sub(1);
        let [info, count, index] = code.fingerprint.info;
        lines::line(self.0, (info, count as u32, index), position, &mut session.target)
    }
}

/// Reads the body of a sequence.
fn body(address: u64, target: &mut Bounded<'_>) -> Option<(u64, [u8; BODY_SIZE])> {
    let mut head = [0; 24];
    if address & 7 != 0 || !target.read(address, &mut head) || !objects::is_internal(word_at(&head, 0), SEQUENCE) {
        return None;
    }
    let body = word_at(&head, BODY as usize);
    let mut bytes = [0; BODY_SIZE];
    target.read(body, &mut bytes).then_some((body, bytes))
}

fn read_print(layout: &RubyLayout, address: u64, target: &mut Bounded<'_>) -> Option<SequencePrint> {
    let (body, bytes) = body(address, target)?;
    let mut text = [0; TEXT_SIZE];
    text.copy_from_slice(bytes.get(TEXT..TEXT + TEXT_SIZE)?);
    Some(SequencePrint {
        body,
        words: word_at(&bytes, WORDS.1),
        count: half_at(&bytes, WORDS.0),
        path: objects::content(target, word_at(&text, 0))?,
        label: objects::content(target, word_at(&text, 16))?,
        text,
        info: [
            word_at(&bytes, layout.info as usize),
            u64::from(half_at(&bytes, layout.info_size as usize)),
            word_at(&bytes, layout.info_index as usize),
        ],
        method: word_at(&bytes, layout.method_sequence as usize),
    })
}

fn read_new(layout: &RubyLayout, fingerprint: SequencePrint, target: &mut Bounded<'_>) -> Option<Sequence> {
    let text = |at: usize| word_at(&fingerprint.text, at);
    let file = objects::path(layout, target, text(0), MAX_FILE)?;
    let mut label = objects::string(layout, target, text(16), MAX_NAME)?;
    let line = text(24) as u32;
    // Up to 3.1 the line is a tagged small integer.
    let first_line = if layout.string_length { line } else { line >> 1 };
    let count = Some(fingerprint.count).filter(|count| *count <= MAX_WORDS)?;
    let end = fingerprint.words.checked_add(u64::from(count) * WORD)?.checked_add(WORD)?;
    let around = body(fingerprint.method, target).and_then(|(_, body)| {
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
    Some(Sequence { fingerprint, file, label, method, first_line, code: fingerprint.words..end, owners: Vec::new() })
}
