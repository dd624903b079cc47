//! Seeded requests of known size, shaped like the eBPF profiler's.
//!
//! [`Host::new`] creates a machine with its processes; [`Host::report`] returns its n-th report. A report only depends
//! on the host's shape and seed and on n, so successive reports (mostly with the same dictionary) need not be created
//! in order.
//!
//! All shapes but [`Shape::Adversarial`] have: timestamps only, one profile per resource, `thread.id` and `thread.name`
//! on samples, samples of equal stack, thread and link merged into one message, one observation in twenty linked to a
//! span (about five observations per span), stacks that share 70 to 85 % of their root part with an earlier stack,
//! Zipf-like popularity, every tenth location with an inlined line, `profile.frame.type` on locations, build ids on
//! mappings, and names built from words as compilers and people do.
//!
//! Threads run on a CPU in bursts of 40 ticks on average and pause for 8 on average (both geometrically distributed).
//! Observations of a burst are one period apart, plus or minus 40 µs; a gap ends a burst. [`crate::figures`] ignores
//! time; a converter closes gaps after about 2 % of the observations, including one at the end of each thread.
//!
//! Requests of spans are in [`traces`].

mod adversarial;
mod code;
mod host;
mod names;
mod schedule;
mod shape;
pub mod traces;

#[cfg(test)]
mod tests;

pub use host::Host;
pub use shape::Shape;

use crate::ExportProfilesServiceRequest;

/// The seed of published figures.
pub const SEED: u64 = 0x5eed;

/// The first report of a host with the seed of published figures.
pub fn request(shape: Shape) -> ExportProfilesServiceRequest {
    Host::new(shape, SEED).report(0)
}
