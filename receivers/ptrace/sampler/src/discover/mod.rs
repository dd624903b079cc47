//! Finds the processes of targets.
//!
//! `/proc` is read about once a second. What a process is, is looked at when it appears, again shortly after (a shell
//! forks first and executes then), and then ever more rarely, so that a thousand processes that nobody wants cost a
//! directory listing.

mod children;
pub(crate) mod container;
pub(crate) mod control_group;
mod pattern;
mod read;
mod scan;
mod selection;
mod wrapper;

pub use children::awaited_child;
pub(crate) use read::{read_at_most, text};
pub(crate) use scan::Scanner;
pub(crate) use selection::{Candidate, Own};
