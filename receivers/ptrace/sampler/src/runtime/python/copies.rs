//! The copies that threads have of a function's instructions, from 3.14 on without the global lock: each thread adapts
//! its own one to what it executes (CPython `Include/cpython/code.h`, `_PyCodeArray`).

use crate::runtime::target::{Target, word, word_at};

/// The most copies that are read: threads take numbers from 0 on, and give them back when they end.
const MAX_COPIES: usize = 8192;

/// Where the copies of a code object's instructions begin. The pointer to their list is `at` bytes behind its
/// beginning. The first one in it is no copy, but what the code object itself has.
pub(super) fn read(at: u32, code: u64, target: &mut dyn Target) -> Vec<u64> {
    let list = word(target, code.wrapping_add(u64::from(at))).filter(|list| *list != 0);
    let Some((list, length)) = list.and_then(|list| Some((list, word(target, list)?))) else { return Vec::new() };
    let mut bytes = vec![0; usize::try_from(length).unwrap_or(MAX_COPIES).min(MAX_COPIES) * 8];
    if !target.read(list.wrapping_add(8), &mut bytes) {
        return Vec::new();
    }
    // Numbers of threads that did not execute it have none.
    (0..bytes.len()).step_by(8).map(|entry| word_at(&bytes, entry)).filter(|start| *start != 0).collect()
}
