//! Finds the processes of targets.
//!
//! `/proc` is listed about once a second. A process is examined when it appears, again shortly after (a shell forks
//! before it executes), and then less and less often. So a thousand processes that belong to no target cost little more
//! than the listing.

mod children;
pub(crate) mod container;
pub(crate) mod control_group;
mod descriptors;
mod pattern;
mod read;
mod scan;
mod selection;
mod wrapper;

pub(crate) use children::children;
pub use children::{DescendantsTime, awaited_children};
pub use descriptors::Descriptors;
pub(crate) use read::{read_at_most, text};
pub(crate) use scan::Scanner;
pub use selection::is_any_named;
pub(crate) use selection::{Candidate, Own};
