//! The data that a program publishes in its memory for profilers: the current trace and span of each of its threads
//! (OpenTelemetry's `oteps/profiles/4947-thread-ctx.md`) and its resource (`oteps/profiles/4719-process-ctx.md`).
//!
//! The process's context is in a mapping with a known name ([`publication`]). A thread's context is a record to which a
//! thread-local variable points ([`Variable`] finds it, [`read`] reads it). The caller must know that the thread is not
//! running: the record has no version number that would reveal a change, only a byte that says that it is being
//! written.
//!
//! All of this sees a process only through [`TargetMemory`](crate::runtime::TargetMemory): no file, no path, no clock.
//! Everything read was written by the target and is treated as hostile: it takes a fixed number of reads of bounded
//! size, and data that breaks a rule is left out.
//!
//! The thread pointer is found by glibc's list of robust mutexes, or by stopping the thread. With musl, variables in
//! dynamically allocated blocks are not found; those at a fixed distance are. Records of Node
//! (`otel_thread_ctx_nodejs_v1`), Go's pprof labels and other vendors' layouts are not read. A read of a thread takes
//! 2.5 to 4.8 us (`examples/contexts.rs`).

mod place;
mod process;
mod record;
mod schema;
#[cfg(test)]
mod tests;

pub use self::place::{Block, MAX_RELOCATIONS, Place, Variable, Word};
pub use self::process::{
    MAX_KEY, MAX_PAYLOAD, MAX_RESOURCE, MAX_RESOURCE_ATTRIBUTES, MAX_RESOURCE_TEXT, Published, Unreadable,
    is_publication, publication, published_at,
};
pub use self::record::{MAX_ATTRIBUTES, MAX_VALUE, Record, RecordReading, read};
pub use self::schema::{AttributeSelection, MAX_ALLOWED};
