//! Where things are in the memory of a process.

use std::ops::Range;

/// Addresses of a program's memory.
pub(crate) const USER: Range<u64> = 0x1_0000..0x8000_0000_0000;

/// Where the C library keeps a thread's id, from its thread pointer on: glibc's `struct pthread` (`nptl/descr.h`) and
/// musl's (`src/internal/pthread_impl.h`).
pub(crate) const THREAD_IDS: [u64; 2] = [0x2d0, 48];
