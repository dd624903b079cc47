//! Profiles for people: our own flame graph, and files for other tools' viewers.
//!
//! [`reading`] resolves the thread, its state and the stack ([`stacks`]) of each sample. [`flamegraph`] sums them, and
//! [`timeline`] sorts them by time for [`speedscope`] and [`firefox`].

pub(crate) mod firefox;
pub(crate) mod flamegraph;
pub(crate) mod kind;
pub(crate) mod reading;
pub(crate) mod speedscope;
pub(crate) mod stacks;
#[cfg(test)]
mod tests;
pub(crate) mod timeline;
