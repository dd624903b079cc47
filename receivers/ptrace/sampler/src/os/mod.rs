//! System calls for which no library offers what is needed here. All `unsafe` of the sampling is in here.

pub(crate) mod affinity;
pub(crate) mod directory;
pub(crate) mod priority;
pub(crate) mod ptrace;
pub(crate) mod robust_list;
pub(crate) mod signal;
pub(crate) mod time;
pub(crate) mod wait;
