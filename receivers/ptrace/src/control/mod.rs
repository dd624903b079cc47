//! Controls by a Unix socket which processes are sampled when.
//!
//! # Protocol
//!
//! One JSON object a line in each direction; each request has one response, in order. A line has at most
//! [`protocol::MAX_REQUEST`] bytes.
//!
//! | request | does |
//! | --- | --- |
//! | `{"command":"start"}` | starts the profiler of every process; `target` (a name) and `pid` choose some |
//! | `{"command":"stop"}` | stops it, in the same way |
//! | `{"command":"status"}` | says what is going on, in the same way |
//! | `{"command":"span_start","sentry-trace":"TRACE-SPAN-1"}` | a root span starts; `traceparent` instead is possible |
//! | `{"command":"span_end","sentry-trace":"TRACE-SPAN"}` | it ends |
//! | `{"command":"profiler","thread":7}` | says the `profiler_id` of the process's chunks, and what they call its thread |
//!
//! A span is one of the process that is connected, unless `pid` or `target` says otherwise. `sentry-trace` without a
//! decision defers it: such a span does not keep the profiler running until it is announced again with 1. Spans end
//! with their connection, so a client keeps it open; a process that forks connects anew behind the fork.
//!
//! A response has `"ok":true` and says what changed, or `"ok":false` and an `error` with the place and the rule. A
//! request that changes nothing is not an error: `changed` is 0, and the message says why.
//!
//! # Who may connect
//!
//! The socket has mode 0600, and the peer's user (`SO_PEERCRED`) is that of profbridge or root. Requests reach the
//! processes of configured targets only.

pub mod client;
pub(crate) mod path;
pub mod protocol;
pub(crate) mod server;
pub(crate) mod socket;

pub use path::default_path;

#[cfg(test)]
mod tests;
