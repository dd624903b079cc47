//! The control socket: a Unix socket for controlling which processes are sampled, and when.
//!
//! # Protocol
//!
//! Both directions use one JSON object per line; each request has one response, in order. A line has at most
//! [`protocol::MAX_REQUEST`] bytes.
//!
//! | request | does |
//! | --- | --- |
//! | `{"command":"start"}` | starts the profiler of every process; `target` (a name) and `pid` choose some |
//! | `{"command":"stop"}` | stops it, in the same way |
//! | `{"command":"status"}` | reports the status, in the same way |
//! | `{"command":"span_start","sentry-trace":"TRACE-SPAN-1"}` | a root span started; `traceparent` may be used instead
//! |
//! | `{"command":"span_end","sentry-trace":"TRACE-SPAN"}` | the span ended |
//! | `{"command":"profiler","thread":7}` | returns the `profiler_id` of the process's chunks, and the thread's key in
//! them |
//!
//! A span belongs to the connected process, unless `pid` or `target` is given. `sentry-trace` without a decision
//! defers it: such a span does not keep the profiler running until it is announced again with 1. Spans end with their
//! connection, so a client keeps it open; a process that forks connects again after the fork.
//!
//! A response has `"ok":true` and describes what changed, or `"ok":false` and an `error` with the place and the rule.
//! A request that changes nothing is not an error: `changed` is 0, and the message gives the reason.
//!
//! # Who may connect
//!
//! The socket has mode 0600, and the peer's user (`SO_PEERCRED`) must be that of profbridge or root. Requests affect
//! only processes of configured targets.

pub mod client;
pub(crate) mod path;
pub mod protocol;
pub(crate) mod server;
pub(crate) mod socket;

pub use path::default_path;

#[cfg(test)]
mod tests;
