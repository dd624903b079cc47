//! Buffers observations by key until their windows close.
//!
//! A [`Store`] has one window for each [`WindowKey`]: a sender, a process, or a process in a minute. Samples are stored
//! as ids in an arena, which contains equal strings, functions, locations and stacks of a sender once; the request
//! itself is released. A window closes by age, at a limit ([`WindowLimits`]), or because memory is short. It is then
//! flushed as one batch that contains only those elements of the arena to which it refers.
//!
//! A request is added in steps by [`walk()`] and [`Intake::put`], so that the caller can do other work in between.
//! [`Store::flush`] returns one window at a time, so there is never more than one batch.
//!
//! [`Requests`] combines these for callers that buffer requests unchanged.
//!
//! All buffered data is counted: [`Store::bytes`] is the allocated size, [`Intake::bytes`] the additional size for a
//! request that is being added.
//!
//! The crate reads no clock: the caller passes the time.

mod arenas;
mod intake;
mod key;
mod limits;
mod memory_pressure;
mod requests;
mod store;
mod walk;

#[cfg(test)]
mod tests;

pub use self::intake::{Intake, KeyedPiece, MEMO, Request, Rewrite};
pub use self::key::WindowKey;
pub use self::limits::WindowLimits;
pub use self::requests::{Absorbed, Requests};
pub use self::store::{Flushed, SCRATCH, Store, Window};
pub use self::walk::{ScopedProfile, Visitor, walk};

/// Note: the number of windows that were closed early, because a limit was reached or memory was short.
pub const CLOSED_EARLY: &str = "closed_early";
/// Note: the number of profiles whose original payload, the profiler's own file, was removed because it no longer
/// matches the data.
pub const PAYLOAD_REMOVED: &str = "payload_removed";

/// Approximate overhead of a map entry in bytes: control bytes and unused capacity.
const ENTRY: usize = 16;
