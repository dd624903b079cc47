//! Profiles as people look at them: a flame graph of our own, and the files of other tools' viewers.
//!
//! [`reading`] says of each sample whose time it is, in which state its thread was, and in which of the [`stacks`];
//! [`flamegraph`] adds that up, [`timeline`] keeps it in the order of time for [`speedscope`] and [`firefox`].

pub(crate) mod firefox;
pub(crate) mod flamegraph;
pub(crate) mod kind;
pub(crate) mod reading;
pub(crate) mod speedscope;
pub(crate) mod stacks;
#[cfg(test)]
mod tests;
pub(crate) mod timeline;
