//! A sampling profiler for processes that need no preparation: it takes the stacks of their threads at 101 Hz.
//!
//! Running threads are sampled by perf events and blocked threads are read from outside; neither is stopped. If the
//! kernel permits no perf events, running threads that stay in their own code are stopped for microseconds
//! ([`message::Stops`] chooses). `README.md`, "Running threads", names the cases in which a system call may notice.
//! This library does not depend on the pipeline.
//!
//! ```text
//! owner (profbridge)                    sampler process (the same binary, executed again)
//!   owner  <------ protocol ------>       control thread:   finds processes, opens their files, loads unwind tables
//!          (packets, files)               sampling thread:  ticks, reads events, stops, unwinds, makes batches
//!                                         readers:          one per processor, read memory of sampled threads
//! ```
//!
//! * [`owner`], [`message`], [`protocol`]: the side of the program that uses this library, and the messages in both
//!   directions.
//! * `control`, `discover`, `separation`, `rights`, `capability`: the sampler process apart from sampling.
//! * [`sampler`]: the sampling thread. `states.rs` there has the states of processes and threads, `ledger.rs` divides
//!   the time, `reader.rs` and `evidence.rs` read memory while a thread is kept from running on.
//! * [`perf`], [`probe`], `stop`, `stack_copy`: data that the kernel provides about a thread, and stopping a thread.
//! * [`address_space`], [`elf`], [`unwind`]: the code that is mapped in a process, and unwinding from registers to a
//!   stack.
//! * [`runtime`]: frames of Python, PHP, Ruby and V8. [`context`]: traces and resources that programs publish.
#![cfg_attr(all(doctest, target_os = "linux"), doc = include_str!("../README.md"))]

pub mod address_space;
mod arch;
pub mod context;
pub mod elf;
pub mod message;
#[cfg(target_os = "linux")]
mod os;
#[cfg(target_os = "linux")]
pub mod perf;
#[cfg(target_os = "linux")]
pub mod probe;
#[cfg(target_os = "linux")]
pub mod process_files;
pub mod runtime;
#[cfg(target_os = "linux")]
pub mod sampler;
#[cfg(target_os = "linux")]
mod stack_copy;
#[cfg(target_os = "linux")]
mod stop;
#[cfg(target_os = "linux")]
mod threads;
pub mod unwind;

#[cfg(target_os = "linux")]
mod capability;
#[cfg(target_os = "linux")]
mod command;
#[cfg(target_os = "linux")]
mod control;
#[cfg(target_os = "linux")]
mod discover;
#[cfg(target_os = "linux")]
pub mod owner;
#[cfg(target_os = "linux")]
mod perf_map;
#[cfg(target_os = "linux")]
mod pidfd;
#[cfg(target_os = "linux")]
mod process_info;
#[cfg(target_os = "linux")]
pub mod protocol;
#[cfg(target_os = "linux")]
mod rights;
#[cfg(target_os = "linux")]
mod separation;

#[cfg(target_os = "linux")]
pub use discover::{DescendantsTime, Descriptors, awaited_children, is_any_named};
#[cfg(target_os = "linux")]
pub use owner::{
    Ending, Events, Notice, SamplerProcess, SendError, StartError, StartOptions, confine_host, hands_rights_on,
    run_if_sampler,
};
#[cfg(target_os = "linux")]
pub use rights::what_shows_more;
