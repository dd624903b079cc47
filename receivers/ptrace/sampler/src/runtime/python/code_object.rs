//! Reads code objects: the data to be cached, and the fingerprint that shows whether an object has changed.

use std::ops::Range;

use super::belongs::{self, OwnerName};
use super::dict;
use super::layout::{Instructions, PythonLayout};
use super::lines;
use super::text;
use crate::message::FunctionKind;
use crate::runtime::codes::{CachedCode, CodeSource};
use crate::runtime::target::{Bounded, TargetMemory, half_at, word_at};
use crate::runtime::{Functions, MAX_FILE, MAX_NAME, ResolveSession};

/// The largest line table that is read, in bytes.
const MAX_TABLE: usize = 1 << 20;
/// The size of an object's header in builds with the global lock: the reference count and the type.
const HEAD: u32 = 16;
/// How often a code object is read again to find the module or class of its function.
const MAX_AGAIN: u8 = 3;
/// The file name of the interpreter's own code (CPython `Python/bytecodes.c`, `Objects/codeobject.c`).
const SHIM: &str = "<shim>";

/// The fields that identify a code object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct CodeObjectPrint {
    kind: u64,
    file: u64,
    name: u64,
    table: u64,
    instructions: u64,
    pub(super) first_line: u32,
    /// The object's unique version number, or else the hash of its name.
    mark: u64,
}

/// A cached code object. Up to 3.10, functions of a module with equal instructions share one copy of these.
#[derive(Debug)]
pub(super) struct CodeObject {
    pub(super) fingerprint: CodeObjectPrint,
    /// The function's number; `None` for the interpreter's own code.
    pub(super) function: Option<u32>,
    pub(super) code: Range<u64>,
    /// How often the object may still be read again because the module or class of its function is missing.
    again: u8,
}

impl CachedCode for CodeObject {
    type Fingerprint = CodeObjectPrint;

    const MAX_SHARING: usize = 256;

    fn fingerprint(&self) -> &CodeObjectPrint {
        &self.fingerprint
    }

    fn instructions(&self) -> Range<u64> {
        self.code.clone()
    }
}

/// The parts of a frame that show the module or class of its function.
#[derive(Debug, Clone, Copy)]
pub(super) struct FrameContext {
    pub(super) frame: u64,
    pub(super) globals: u64,
}

/// Reads code objects from memory.
pub(super) struct CodeObjectReader<'a> {
    pub(super) layout: &'a PythonLayout,
    /// The type of code objects, once it is known.
    pub(super) kind: &'a mut Option<u64>,
    pub(super) context: Option<FrameContext>,
}

/// The data read from a code object.
pub(super) struct CodeObjectTexts {
    file: String,
    name: String,
    code: Range<u64>,
    module: OwnerName,
    class: OwnerName,
}

impl CodeObjectTexts {
    fn is_shown(&self) -> bool {
        !self.file.is_empty() && self.file != SHIM
    }
}

impl CodeSource for CodeObjectReader<'_> {
    type Code = CodeObject;
    type Texts = CodeObjectTexts;

    fn read_print(&mut self, address: u64, session: &mut ResolveSession<'_>) -> Option<CodeObjectPrint> {
        read_print(self.layout, address, &mut session.target)
    }

    fn is_code(&mut self, fingerprint: &CodeObjectPrint, session: &mut ResolveSession<'_>) -> bool {
        if *self.kind != Some(fingerprint.kind) {
            if !dict::is_a(self.layout, fingerprint.kind, b"code", &mut session.target) {
                return false;
            }
            *self.kind = Some(fingerprint.kind);
        }
        true
    }

    fn should_read_again(&self, known: &mut CodeObject) -> bool {
        let may = known.again > 0 && self.context.is_some();
        known.again -= u8::from(may);
        may
    }

    fn read_texts(
        &mut self,
        address: u64,
        fingerprint: &CodeObjectPrint,
        session: &mut ResolveSession<'_>,
    ) -> Option<CodeObjectTexts> {
        let (layout, target) = (self.layout, &mut session.target);
        let file = text::string(&layout.object, target, fingerprint.file, MAX_FILE)?;
        let name = text::string(&layout.object, target, fingerprint.name, MAX_NAME)?;
        let (start, length) = match layout.code.instructions {
            Instructions::Object { .. } => {
                let start = fingerprint.instructions.wrapping_add(u64::from(layout.object.bytes_data));
                (start, text::length(&layout.object, target, fingerprint.instructions)?)
            }
            Instructions::Inside { at, .. } => {
                (address.wrapping_add(u64::from(at)), fingerprint.instructions.checked_mul(2)?)
            }
        };
        // More than a gigabyte cannot be a code object.
        let end = (length < 1 << 30).then(|| start.checked_add(length))??;
        let mut texts =
            CodeObjectTexts { file, name, code: start..end, module: OwnerName::Nothing, class: OwnerName::Nothing };
        // The frame's data belongs to this function if the frame refers to this code, which is in use all the time.
        if let Some(FrameContext { frame, globals }) = self.context.filter(|_| texts.is_shown()) {
            let method = layout.method.map(|method| belongs::class(layout, method, frame, address, target));
            (texts.module, texts.class) =
                (belongs::module(layout, globals, target), method.unwrap_or(OwnerName::Nothing));
        }
        Some(texts)
    }

    fn make_code(
        &mut self,
        fingerprint: CodeObjectPrint,
        texts: CodeObjectTexts,
        before: Option<&CodeObject>,
        functions: &mut Functions,
    ) -> CodeObject {
        let is_shown = texts.is_shown();
        let CodeObjectTexts { file, name, code, module, class } = texts;
        let is_whole = ![&module, &class].contains(&&OwnerName::Later) && self.context.is_some();
        let again = if is_whole { 0 } else { before.map_or(MAX_AGAIN, |before| before.again) };
        let name = if let OwnerName::Is(class) = class { format!("{class}.{name}") } else { name };
        let module = if let OwnerName::Is(module) = module { module } else { String::new() };
        let kind = FunctionKind::CPython;
        let function = is_shown.then(|| functions.number_in(&module, kind, &name, &file, fingerprint.first_line));
        CodeObject { fingerprint, function, code, again }
    }

    fn read_line(&mut self, code: &CodeObject, offset: u64, session: &mut ResolveSession<'_>) -> Option<u32> {
        let table = text::bytes(&self.layout.object, &mut session.target, code.fingerprint.table, MAX_TABLE)?;
        Some(lines::line(self.layout.code.lines, &table, code.fingerprint.first_line, offset).unwrap_or(0))
    }
}

/// Reads the identifying fields of the code object at an address; `None` if it cannot be read, or is not in use.
pub(super) fn read_print(layout: &PythonLayout, address: u64, target: &mut Bounded<'_>) -> Option<CodeObjectPrint> {
    let code = &layout.code;
    let mut bytes = [0; 1032];
    let bytes = &mut bytes[..code.size().min(1032)];
    if address == 0 || !target.read(address, bytes) {
        return None;
    }
    let field = |at: u32| word_at(bytes, at as usize);
    if !is_in_use(layout, bytes) {
        return None;
    }
    let mark = match code.version.map(|at| half_at(bytes, at as usize)) {
        Some(version) if version != 0 => u64::from(version),
        // The hash is read after the other fields, so it belongs to this code if those are unchanged afterwards.
        _ => text::hash(&layout.object, target, field(code.hashed_name)).unwrap_or(0),
    };
    Some(CodeObjectPrint {
        kind: field(layout.object.kind),
        file: field(code.file),
        name: field(code.name),
        table: field(code.table),
        instructions: match code.instructions {
            Instructions::Object { at } => field(at),
            // The number of two-byte units.
            Instructions::Inside { .. } => field(layout.object.items),
        },
        first_line: half_at(bytes, code.first_line as usize),
        mark,
    })
}

/// Whether an object is in use, judged by its header. A freed object may look unchanged while the memory it points to,
/// such as threads' copies of its instructions, belongs to other objects.
fn is_in_use(layout: &PythonLayout, object: &[u8]) -> bool {
    if let Some((own, others)) = layout.object.references {
        return half_at(object, own as usize) != 0 || word_at(object, others as usize) >> 2 != 0;
    }
    // A freed object has a reference count of 0, which is often overwritten with the address of another free block.
    // Since 3.14 there are other bits above the count.
    let head = word_at(object, 0);
    layout.object.items != HEAD || (head & 0xffff_ffff != 0 && head >> 32 & 0xffff == 0)
}
