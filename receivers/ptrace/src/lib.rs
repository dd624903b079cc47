//! The receiver `ptrace`: samples the processes of this machine with the built-in sampler.
//!
//! ```text
//! sampler process --owner--> events --driver--> sessions: batches, names --assemble--> batch --delivery--> pipelines
//!                                      ^
//! control socket --requests-----------+      lifecycle: who is sampled, and when
//! ```
//!
//! Rules:
//!
//! * Only the sampler process examines targets. Its data about a target may have been forged by that target, so the
//!   data affects only that target, and each table that it fills is limited.
//! * Nothing is lost silently: samples that the pipelines do not accept within a bounded time are counted with a
//!   reason.
//! * Only the configuration decides who may be sampled. The control socket only starts and stops the sampling.
//! * The state machines ([`lifecycle`], [`spans`], [`session`]) read no clock and use no socket.

#![cfg(target_os = "linux")]

pub mod assemble;
mod config;
pub mod control;
pub mod counters;
mod delivery;
mod driver;
pub mod lifecycle;
mod link;
mod problems;
mod receiver;
pub mod record;
pub mod resource;
pub mod restarts;
pub mod session;
pub mod spans;
pub mod symbols;
pub mod trace_header;

pub use config::{Config, ControlSettings, ServiceNames, Settings, TargetSettings};
pub use receiver::{FACTORY, Ptrace};
