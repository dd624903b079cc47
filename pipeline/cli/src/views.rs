//! Profiles for people: our own flame graph and page, and files for other tools' viewers.
//!
//! [`reading`] resolves the thread, its state and the stack ([`stacks`]) of each sample. [`sums`] adds them up for
//! [`flamegraph`] and the text of `sample`, and [`timeline`] sorts them by time for [`page`], [`speedscope`] and
//! [`firefox`]. [`fold`] turns stacks into what a person reads, with [`names`], [`packages`] and the reasons of
//! [`waits`].

pub(crate) mod firefox;
pub(crate) mod flamegraph;
pub(crate) mod fold;
mod names;
mod packages;
pub(crate) mod page;
pub(crate) mod reading;
pub(crate) mod speedscope;
pub(crate) mod stacks;
pub(crate) mod sums;
#[cfg(test)]
mod tests;
pub(crate) mod timeline;
pub(crate) mod tree;
pub(crate) mod waits;
