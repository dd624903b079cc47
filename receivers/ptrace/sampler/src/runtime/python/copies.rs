//! Threads' copies of a function's instructions, from 3.14 on without the global lock: each thread specializes its own
//! copy (CPython `Include/cpython/code.h`, `_PyCodeArray`).

use crate::runtime::target::{TargetMemory, word, word_at};

/// The maximum number of copies that are read: each thread has an index, from 0 on, which is reused after the thread
/// ends.
const MAX_COPIES: usize = 8192;

/// The start addresses of the copies of a code object's instructions. The pointer to the list of copies is at offset
/// `at`. The first entry of the list is not a copy but the code object's own instructions.
pub(super) fn read_starts(at: u32, code: u64, target: &mut dyn TargetMemory) -> Vec<u64> {
    let list = word(target, code.wrapping_add(u64::from(at))).filter(|list| *list != 0);
    let Some((list, length)) = list.and_then(|list| Some((list, word(target, list)?))) else { return Vec::new() };
    let mut bytes = vec![0; usize::try_from(length).unwrap_or(MAX_COPIES).min(MAX_COPIES) * 8];
    if !target.read(list.wrapping_add(8), &mut bytes) {
        return Vec::new();
    }
    // Entries of threads that have not executed the code are empty.
    (0..bytes.len()).step_by(8).map(|entry| word_at(&bytes, entry)).filter(|start| *start != 0).collect()
}
