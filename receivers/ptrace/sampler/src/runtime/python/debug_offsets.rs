//! The table of field offsets in Python 3.13 and later: `_Py_DebugOffsets`, at the start of `_PyRuntime` (CPython
//! `Include/internal/pycore_debug_offsets.h`, `pycore_runtime.h` in 3.13).

use super::layout::{
    Attributes, Calls, CodeLayout, Current, Dicts, FrameLayout, Instruction, Instructions, Layout, Lines, NameLayout,
    ObjectLayout, ThreadLayout,
};
use crate::runtime::target::word_at;

/// The first word of the table.
pub(super) const COOKIE: u64 = u64::from_le_bytes(*b"xdebugpy");

/// The number of bytes read of the table.
pub(super) const SIZE: usize = 92 * 8;

/// The index of the first word of each group of fields. A group begins with the size of its structure.
struct Groups {
    /// The field of interpreters with the dictionary of modules.
    modules: usize,
    thread: usize,
    frame: usize,
    code: usize,
    /// The distances from the start of `code` to the instructions, and to the pointer to threads' copies of them.
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
pub(super) fn layout(minor: u8, table: &[u8]) -> Option<Layout> {
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
    // The owner is a byte near the end.
    let owner = u32::try_from(word(groups.frame + 5)).ok().filter(|owner| *owner < size)?;
    let small = |index: usize| u32::try_from(word(index)).ok().filter(|offset| *offset <= 256);
    let free_threaded = word(2) != 0;
    let text_data = small(groups.text + 3)?;
    let (first_line, file) = (code(5)?, code(1)?);
    // The object head is larger without the global lock. In a type, the name follows the head.
    let kind = small(groups.object + 1)?;
    let wider = kind.checked_sub(8)?;
    // From 3.14 on, without the global lock, each thread has a copy of the instructions.
    let copies = match groups.copies.filter(|_| free_threaded) {
        Some(index) => Some(code(index)?),
        None => None,
    };
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
            // Not in the table. The offset is that of 3.12.
            globals: 24,
            previous: frame(1)?,
            instruction: Instruction::Address { at: frame(3)? },
            calls: Calls::Owned { at: owner },
            size: size.min(512),
        },
        code: CodeLayout {
            first_line,
            file,
            name: code(3)?,
            hashed_name: code(2)?,
            table: code(4)?,
            lines: Lines::Locations,
            // Not in the table. The offset is that of 3.12 if the neighbouring fields have theirs.
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
            attributes: Attributes::Behind { dictionary: if free_threaded { 8 } else { 24 } },
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A table with plausible structure sizes and ascending field offsets.
    fn table(minor: u8) -> Vec<u8> {
        let mut words = vec![0u64; SIZE / 8];
        let groups = Groups::of_minor(minor).unwrap();
        words[0] = COOKIE;
        words[5] = 632;
        words[8] = 7264;
        words[9] = 7344;
        words[groups.modules] = 7664;
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

    /// Guarantees: the fields are read from the groups of the version, and other versions are rejected.
    #[test]
    fn groups() {
        for minor in [13, 14] {
            let layout = layout(minor, &table(minor)).unwrap();
            assert_eq!((layout.interpreters, layout.threads, layout.names.modules), (632, 7344, 7664));
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

    /// The table of 3.13.18 without the global lock, as its headers define it: the words after the version, as far as
    /// they are read.
    const FREE_3_13: &str = "
        1 328384 608 632 215616 7272 7264 7344 7400 7664 7648 7656 16 7760 0 7784 7776 312 0 8 16 72 152 160 232
        32 80 8 0 56 72 70 224 128 136 144 152 84 68 112 120 216 32 24 432 40 104 184 48 40 32 56 40 32 64 48 56
        40 32 48 32 40 56 32 48 80 48 32 56 248 200";

    /// The table of 3.14.10.
    const FREE_3_14: &str = "
        1 365624 784 808 249976 7280 7272 7344 7360 7408 7712 7696 7704 16 7808 0 7832 7824 8024 17300 832 0 8
        16 72 152 160 232 32 88 8 0 56 80 78 64 72 240 128 136 144 152 84 68 112 120 232 224 32 24 432 40 104
        184 56 48 32 56 40 32 216 40 56 48 64 48 56 40 32 48 32 40 56 32 48 80 48 32 56 288 192 176 40 88 83 0 8
        24 304 8108";

    /// Guarantees: without the global lock object heads are larger. 3.13 has the usual string flags and one set of
    /// instructions for all threads; 3.14 has a byte for the flag and a copy of the instructions for each thread.
    #[test]
    fn without_the_global_lock() {
        let read = |minor, table: &str| {
            let words = table.split_ascii_whitespace().map(|word| word.parse().unwrap());
            let mut bytes: Vec<u8> = [COOKIE, 0].into_iter().chain(words).flat_map(u64::to_le_bytes).collect();
            bytes.resize(SIZE, 0);
            layout(minor, &bytes).unwrap()
        };
        let (old, new) = (read(13, FREE_3_13), read(14, FREE_3_14));
        assert_eq!((old.names.modules, new.names.modules), (7664, 7712));
        let object = ObjectLayout {
            kind: 24,
            references: Some((12, 16)),
            items: 32,
            bytes_data: 48,
            text_length: 32,
            text_state: 48,
            text_interned_bits: 2,
            text_data: 56,
            text_other_data: 72,
        };
        assert_eq!(old.object, object);
        assert_eq!(new.object, ObjectLayout { text_interned_bits: 8, ..object });
        assert_eq!(old.code.instructions, Instructions::Inside { at: 216, copies: None });
        assert_eq!(new.code.instructions, Instructions::Inside { at: 232, copies: Some(224) });
        for layout in [old, new] {
            let CodeLayout { first_line, file, name, table, version, .. } = layout.code;
            assert_eq!((first_line, file, name, table, version), (84, 128, 144, 152, Some(108)));
        }
        assert_eq!((old.frame.calls, new.frame.calls), (Calls::Owned { at: 70 }, Calls::Owned { at: 78 }));
    }

    /// Guarantees: if any word of the table is huge, the result is no layout or one with small sizes.
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
