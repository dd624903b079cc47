//! Holds observations by key until their windows close.
//!
//! A [`Store`] has one window for each [`Key`]: a sender, a process, a process in a minute. Samples are put into it as
//! ids of an arena, in which equal strings, functions, locations and stacks of a sender are stored once; the request
//! that brought them is let go. A window closes by age, at a bound ([`Limits`]), or because memory is short, and comes
//! out as one batch with only those elements of the arena that it refers to.
//!
//! A request is put in by [`walk()`] and [`Intake::put`], in steps: whoever drives this looks after other things
//! between them. Windows come out one in each [`Store::flush`], so there is never more than one batch.
//!
//! [`Requests`] is that for whoever holds requests as they are, each in the window of a key.
//!
//! Everything that is held is counted: [`Store::bytes`] is what is allocated, [`Intake::bytes`] what a request that is
//! being put in takes besides itself.
//!
//! Pure: the caller says what time it is.

mod arenas;
mod intake;
mod key;
mod limits;
mod relief;
mod requests;
mod store;
mod walk;

#[cfg(test)]
mod tests;

pub use self::intake::{Intake, MEMO, Piece, Request, Rewrite};
pub use self::key::Key;
pub use self::limits::Limits;
pub use self::requests::{Absorbed, Requests};
pub use self::store::{Flushed, SCRATCH, Store, Window};
pub use self::walk::{ScopedProfile, Visitor, walk};

/// Note: windows that were closed before their time, because a bound was reached or memory was short.
pub const CLOSED_EARLY: &str = "closed_early";
/// Note: profiles that came with the profiler's own file, which no longer says the same and was left out.
pub const PAYLOAD_REMOVED: &str = "payload_removed";

/// Rough size of an entry of a map beside its key and value, in bytes: control bytes and spare room.
const ENTRY: usize = 16;
