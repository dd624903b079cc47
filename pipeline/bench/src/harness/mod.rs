//! Measures profbridge: its parts in this process, and its binary from outside.
//!
//! The rules of measuring, which the README explains:
//!
//! * Only ratios of runs that lie next to each other in time are reported ([`pairs`]); a pair during which the machine
//!   changed its speed is thrown away ([`calibrator`]).
//! * CPU time counts, not wall time ([`procfs`]), per observation that arrived ([`sink`], [`count`]).
//! * The three parties are three processes ([`children`], [`block`]): what sends ([`load`], [`call`]), what is measured
//!   ([`target`], [`control`]), and what takes ([`sink`]).
//! * Each figure is printed beside what it must reach, and written as JSON ([`report`]).

pub mod block;
pub mod calibrator;
pub mod call;
pub mod children;
pub mod control;
pub mod count;
pub mod footprint;
pub mod forward;
pub mod layouts;
pub mod load;
pub mod memory;
pub mod memory_bounds;
pub mod ours;
pub mod pairs;
pub mod parts;
pub mod patch;
pub mod pinned;
pub mod process;
pub mod procfs;
pub mod report;
#[cfg(target_os = "linux")]
pub mod sampler;
pub mod sink;
pub mod slow_sink;
pub mod statistics;
pub mod target;
pub mod there_and_back;
pub mod traces;

/// Whatever can go wrong: the harness has nobody to tell but its user.
pub type Error = Box<dyn std::error::Error + Send + Sync>;

/// The core that the load generator and the sink share.
pub const HELPERS_CORE: usize = 0;

/// The core of what is measured.
pub const TARGET_CORE: usize = 1;
