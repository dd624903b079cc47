//! System calls that no library offers in the needed form. All `unsafe` code for sampling is here.

pub(crate) mod affinity;
pub(crate) mod directory;
pub(crate) mod priority;
pub(crate) mod ptrace;
pub(crate) mod robust_list;
pub(crate) mod signal;
pub(crate) mod time;
pub(crate) mod wait;
