//! pprof profiles, held against prost with definitions of its own as the independent reading of `profile.proto`.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "tests report by panicking and printing")]

#[path = "pprof/arbitrary.rs"]
mod arbitrary;
#[path = "pprof/proto.rs"]
mod proto;

#[path = "pprof/attacks.rs"]
mod attacks;
#[path = "pprof/go_tool.rs"]
mod go_tool;
#[path = "pprof/mapping.rs"]
mod mapping;
#[path = "pprof/refusals.rs"]
mod refusals;
#[path = "pprof/round_trip.rs"]
mod round_trip;
