//! The table in which Python 3.13 and later say where their fields are: `_Py_DebugOffsets`, at the start of
//! `_PyRuntime` (CPython `Include/internal/pycore_debug_offsets.h`, `pycore_runtime.h` in 3.13).

use super::layout::{
    Calls, CodeLayout, Current, FrameLayout, Instruction, Instructions, Layout, Lines, ObjectLayout, ThreadLayout,
};
use crate::runtime::target::word_at;

/// What the table begins with.
pub(super) const COOKIE: u64 = u64::from_le_bytes(*b"xdebugpy");

/// How many bytes of the table are read.
pub(super) const SIZE: usize = 92 * 8;

/// Where the groups of fields begin, in words. Each begins with the size of its structure.
struct Groups {
    thread: usize,
    frame: usize,
    code: usize,
    /// From the beginning of `code` to the instructions.
    instructions: usize,
    object: usize,
    bytes: usize,
    text: usize,
}

impl Groups {
    fn of_minor(minor: u8) -> Option<Self> {
        Some(match minor {
            13 => Self { thread: 19, frame: 28, code: 34, instructions: 9, object: 44, bytes: 64, text: 67 },
            14 => Self { thread: 22, frame: 31, code: 39, instructions: 9, object: 50, bytes: 74, text: 77 },
            _ => return None,
        })
    }
}

/// The layout that a table describes; `None` if its version is not known, or its numbers cannot be right.
pub(super) fn layout(minor: u8, table: &[u8]) -> Option<Layout> {
    let groups = Groups::of_minor(minor)?;
    let word = |index: usize| word_at(table, index * 8);
    // A field of a structure whose size is at `group`, and at most `largest`.
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
    // The owner is a byte near the end.
    let owner = u32::try_from(word(groups.frame + 5)).ok().filter(|owner| *owner < size)?;
    let small = |index: usize| u32::try_from(word(index)).ok().filter(|offset| *offset <= 256);
    let free_threaded = word(2) != 0;
    let text_data = small(groups.text + 3)?;
    let (first_line, file) = (code(5)?, code(1)?);
    Some(Layout {
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
            previous: frame(1)?,
            instruction: Instruction::Address { at: frame(3)? },
            calls: Calls::Owned { at: owner },
            size: size.min(512),
        },
        code: CodeLayout {
            first_line,
            file,
            name: code(3)?,
            table: code(4)?,
            lines: Lines::Locations,
            // The table does not have it. It is where it was in 3.12 if its neighbours are.
            version: ((first_line, file) == (68, 112)).then_some(92),
            instructions: Instructions::Inside {
                at: u32::try_from(word(groups.code + groups.instructions)).ok().filter(|at| *at <= 1024)?,
            },
        },
        object: ObjectLayout {
            kind: small(groups.object + 1)?,
            items: small(groups.bytes + 1)?,
            bytes_data: small(groups.bytes + 2)?,
            text_length: small(groups.text + 2)?,
            text_state: small(groups.text + 1)?,
            // Without the global lock the flag has a byte of its own (`Include/cpython/unicodeobject.h`).
            text_interned_bits: if free_threaded { 8 } else { 2 },
            text_data,
            text_other_data: text_data + 16,
        },
        free_threaded,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A table whose structures have a size and whose fields ascend.
    fn table(minor: u8) -> Vec<u8> {
        let mut words = vec![0u64; SIZE / 8];
        let groups = Groups::of_minor(minor).unwrap();
        words[0] = COOKIE;
        words[5] = 632;
        words[8] = 7264;
        words[9] = 7344;
        for (group, fields) in [(groups.thread, 9), (groups.frame, 6), (groups.code, 10)] {
            words[group] = 200;
            for field in 1..fields {
                words[group + field] = field as u64 * 8;
            }
        }
        words[groups.object + 1] = 8;
        words[groups.bytes + 1] = 16;
        words[groups.bytes + 2] = 32;
        words[groups.text + 1] = 32;
        words[groups.text + 2] = 16;
        words[groups.text + 3] = 40;
        words.into_iter().flat_map(u64::to_le_bytes).collect()
    }

    /// Guarantees: the fields are taken from the groups of the version, and other versions are refused.
    #[test]
    fn groups() {
        for minor in [13, 14] {
            let layout = layout(minor, &table(minor)).unwrap();
            assert_eq!((layout.interpreters, layout.threads), (632, 7344));
            assert_eq!((layout.thread.next, layout.thread.native_id, layout.thread.chunk), (16, Some(48), Some(56)));
            assert_eq!(
                (layout.frame.previous, layout.frame.code, layout.frame.calls),
                (8, 16, Calls::Owned { at: 40 })
            );
            assert_eq!((layout.code.file, layout.code.name, layout.code.first_line), (8, 24, 40));
            assert_eq!((layout.object.text_data, layout.object.text_other_data), (40, 56));
        }
        assert!([8, 12, 15].into_iter().all(|minor| layout(minor, &table(13)).is_none()));
    }

    /// Guarantees: whichever word of the table is huge, there is no layout or one whose sizes are small.
    #[test]
    fn attack_huge_words() {
        for minor in [13, 14] {
            for index in 0..SIZE / 8 {
                for huge in [u64::MAX, 1 << 32, 1 << 31, u64::MAX - 7] {
                    let mut table = table(minor);
                    table[index * 8..][..8].copy_from_slice(&huge.to_le_bytes());
                    let Some(layout) = layout(minor, &table) else { continue };
                    assert!(layout.thread.size() <= 4096 && layout.frame.size <= 512 && layout.code.size() <= 1024);
                    assert!(layout.interpreters < 1 << 20 && layout.threads < 1 << 20);
                }
            }
        }
    }
}
