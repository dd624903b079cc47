//! The table of field offsets in Python 3.13 and later: `_Py_DebugOffsets`, at the start of `_PyRuntime` (CPython
//! `Include/internal/pycore_debug_offsets.h`, `pycore_runtime.h` in 3.13).

use super::layout::{
    AttributeStorage, Calls, CodeLayout, Current, Dicts, FrameLayout, InstructionField, Instructions, LineFormat,
    NameLayout, ObjectLayout, PythonLayout, ThreadLayout,
};
use crate::runtime::target::word_at;

/// The first word of the table.
pub(super) const COOKIE: u64 = u64::from_le_bytes(*b"xdebugpy");

/// The number of bytes read of the table.
pub(super) const SIZE: usize = 92 * 8;

/// The index of the first word of each group of fields. A group begins with the size of its structure.
struct Groups {
    /// In interpreters: the field with the dictionary of modules.
    modules: usize,
    thread: usize,
    frame: usize,
    code: usize,
    /// The distances from the start of `code` to the instructions, and to the pointer to the list of threads' copies.
    instructions: usize,
    copies: Option<usize>,
    object: usize,
    bytes: usize,
    text: usize,
}

impl Groups {
    fn of_minor(minor: u8) -> Option<Self> {
        Some(match minor {
            13 => Self {
                modules: 11,
                thread: 19,
                frame: 28,
                code: 34,
                instructions: 9,
                copies: None,
                object: 44,
                bytes: 64,
                text: 67,
            },
            14 => Self {
                modules: 12,
                thread: 22,
                frame: 31,
                code: 39,
                instructions: 9,
                copies: Some(10),
                object: 50,
                bytes: 74,
                text: 77,
            },
            _ => return None,
        })
    }
}

/// The layout that a table describes; `None` if its version is unsupported, or its numbers are implausible.
pub(super) fn layout(minor: u8, table: &[u8]) -> Option<PythonLayout> {
    let groups = Groups::of_minor(minor)?;
    let word = |index: usize| word_at(table, index * 8);
    // Reads the offset of a field; it must be within the structure, whose size is at `group`, and at most `largest`.
    let field = |group: usize, index: usize, largest: u64| -> Option<u32> {
        let (size, offset) = (word(group), word(group + index));
        (size <= largest && offset.checked_add(8)? <= size).then_some(())?;
        u32::try_from(offset).ok()
    };
    let whole = |index: usize| u32::try_from(word(index)).ok().filter(|offset| *offset < 1 << 20);
    let thread = |index| field(groups.thread, index, 4096);
    let frame = |index| field(groups.frame, index, 512);
    let code = |index| field(groups.code, index, 1024);
    let chunk = thread(7)?;
    let size = u32::try_from(word(groups.frame)).ok()?;
    // The owner is a byte near the end of the frame.
    let owner = u32::try_from(word(groups.frame + 5)).ok().filter(|owner| *owner < size)?;
    let small = |index: usize| u32::try_from(word(index)).ok().filter(|offset| *offset <= 256);
    let free_threaded = word(2) != 0;
    let text_data = small(groups.text + 3)?;
    let (first_line, file) = (code(5)?, code(1)?);
    // The object header is larger without the global lock. In a type, the name follows the header.
    let kind = small(groups.object + 1)?;
    let wider = kind.checked_sub(8)?;
    // From 3.14 on, without the global lock, each thread has a copy of the instructions.
    let copies = match groups.copies.filter(|_| free_threaded) {
        Some(index) => Some(code(index)?),
        None => None,
    };
    Some(PythonLayout {
        interpreters: whole(5)?,
        interpreter_next: whole(8)?,
        threads: whole(9)?,
        thread: ThreadLayout {
            next: thread(2)?,
            current: Current::Direct { frame: thread(4)? },
            thread_id: thread(5)?,
            native_id: Some(thread(6)?),
            chunk: Some(chunk),
        },
        frame: FrameLayout {
            code: frame(2)?,
            // The table does not have this offset; it is that of 3.12.
            globals: 24,
            previous: frame(1)?,
            instruction: InstructionField::Address { at: frame(3)? },
            calls: Calls::Owned { at: owner },
            size: size.min(512),
        },
        code: CodeLayout {
            first_line,
            file,
            name: code(3)?,
            hashed_name: code(2)?,
            table: code(4)?,
            lines: LineFormat::Locations,
            // The table does not have this offset. It is that of 3.12 if the neighbouring fields have the offsets of
            // 3.12.
            version: ((first_line, file) == (68 + wider, 112 + wider)).then_some(92 + wider),
            instructions: Instructions::Inside {
                at: u32::try_from(word(groups.code + groups.instructions)).ok().filter(|at| *at <= 1024)?,
                copies,
            },
        },
        object: ObjectLayout {
            kind,
            // `Include/object.h`.
            references: (free_threaded && kind == 24).then_some((12, 16)),
            items: small(groups.bytes + 1)?,
            bytes_data: small(groups.bytes + 2)?,
            text_length: small(groups.text + 2)?,
            text_state: small(groups.text + 1)?,
            // From 3.14 on the flag has its own byte in builds without the global lock
            // (`Include/cpython/unicodeobject.h`).
            text_interned_bits: if free_threaded && minor >= 14 { 8 } else { 2 },
            text_data,
            text_other_data: text_data + 16,
        },
        dicts: Dicts::Logarithmic,
        method: None,
        names: NameLayout {
            modules: whole(groups.modules)?,
            // `Include/cpython/object.h`, `Include/internal/pycore_object.h`.
            shared_keys: 872 + u64::from(kind),
            attributes: AttributeStorage::Behind { dictionary: if free_threaded { 8 } else { 24 } },
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::TargetMemory;
    use crate::runtime::recording::recording;

    /// Guarantees: tables of other versions are rejected; the offset of the version number of code objects, which is
    /// not in the table, is derived from it; and if any word of a table is huge, the result is no layout or one with
    /// small sizes.
    #[test]
    fn attack_huge_words() {
        for (name, minor) in [("3.13", 13), ("3.13t", 13), ("3.14", 14), ("3.14t", 14)] {
            let mut recording = recording(name);
            let mut whole = vec![0; SIZE];
            assert!(recording.read(recording.runtime, &mut whole));
            assert!([8, 12, 15].into_iter().all(|minor| layout(minor, &whole).is_none()));
            assert!(layout(minor, &whole).is_some_and(|layout| layout.code.version.is_some()), "{name}");
            for at in (0..SIZE).step_by(8) {
                for huge in [u64::MAX, 1 << 32, 1 << 31, u64::MAX - 7] {
                    let mut table = whole.clone();
                    table[at..at + 8].copy_from_slice(&huge.to_le_bytes());
                    let Some(layout) = layout(minor, &table) else { continue };
                    assert!(layout.thread.size() <= 4096 && layout.frame.size <= 512 && layout.code.size() <= 1024);
                    assert!(layout.interpreters < 1 << 20 && layout.threads < 1 << 20);
                }
            }
        }
    }
}
