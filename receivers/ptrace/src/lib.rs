//! The receiver `ptrace`: samples the processes of this machine with the built-in sampler.
//!
//! ```text
//! sampler process --owner--> events --driver--> sessions: batches, names --assemble--> batch --delivery--> pipelines
//!                                      ^
//! control socket --requests-----------+      lifecycle: who is sampled, and when
//! ```
//!
//! Laws that hold here:
//!
//! * The sampler process alone looks at targets. What it says about one may have been made up by that target: it is
//!   believed about that target only, and every table that it can fill has a bound.
//! * Nothing vanishes: what the pipelines do not take within a bounded time is counted under a reason.
//! * Who may be sampled is the configuration's business alone. The control socket starts and stops, no more.
//! * The state machines ([`lifecycle`], [`spans`], [`session`]) touch neither clock nor socket.

#![cfg(target_os = "linux")]

pub mod assemble;
mod config;
pub mod control;
mod delivery;
mod driver;
pub mod lifecycle;
mod link;
mod problems;
mod receiver;
pub mod resource;
pub mod session;
pub mod spans;
pub mod symbols;
pub mod trace_header;

pub use config::{Config, ControlSettings, ServiceNames, Settings, TargetSettings};
pub use receiver::{FACTORY, Ptrace};
