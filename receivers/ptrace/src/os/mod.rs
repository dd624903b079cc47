//! What the kernel wants and no library offers in the way it is needed here: the only place of `unsafe` in this crate's
//! sampling.

pub(crate) mod directory;
pub(crate) mod priority;
pub(crate) mod ptrace;
pub(crate) mod robust_list;
pub(crate) mod signal;
pub(crate) mod time;
pub(crate) mod wait;
