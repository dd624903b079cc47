//! Samples running threads without stopping them: `cpu-clock` events of `perf_event_open(2)`.
//!
//! While a thread runs, a timer of the kernel copies its registers and the top of its stack into a ring that is shared
//! with this program. The thread is neither stopped nor signalled, so none of its system calls ends early; a sample
//! costs the thread some microseconds.
//!
//! * `attr`: what an event samples.
//! * `open`: finds out which [level](crate::message::Level) of detail the kernel permits, by trying one after the
//!   other.
//! * `control_group`: the control group of a process, whose threads can be sampled together.
//! * `period`: the time between samples, which varies.
//! * `ring`: the shared memory.
//! * `record`: parses the records in the ring, as a pure function over bytes.

pub mod attr;
pub(crate) mod control_group;
pub mod open;
pub mod period;
pub mod record;
pub mod ring;
