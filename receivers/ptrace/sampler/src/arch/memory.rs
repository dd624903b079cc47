//! The layout of a process's memory.

use std::ops::Range;

/// The addresses of user space.
pub(crate) const USER: Range<u64> = 0x1_0000..0x8000_0000_0000;

/// The offsets from the thread pointer at which the C library stores the thread's id: glibc's `struct pthread`
/// (`nptl/descr.h`) and musl's (`src/internal/pthread_impl.h`).
pub(crate) const THREAD_IDS: [u64; 2] = [0x2d0, 48];
