//! Samples of running threads without a stop: `cpu-clock` events of `perf_event_open(2)`.
//!
//! While a thread runs, a timer of the kernel copies its registers and the top of its stack into a ring that is shared
//! with this program. The thread is neither stopped nor signalled, so none of its system calls ends early; the cost is
//! some microseconds per sample.
//!
//! * `attr`: what is asked for.
//! * `open`: which of the kernel's permissions are there, found out by asking for them one after the other.
//! * `control_group`: where a process's group is, whose threads can be sampled together.
//! * `period`: how often, and that it varies.
//! * `ring`: the shared memory.
//! * `record`: what is in it. A pure function over bytes.

pub mod attr;
pub(crate) mod control_group;
pub mod open;
pub mod period;
pub mod record;
pub mod ring;
