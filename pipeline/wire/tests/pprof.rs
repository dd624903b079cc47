//! Compares the pprof decoder and encoder with prost and a separate definition of `profile.proto`.

mod arbitrary;
mod proto;

mod attacks;
mod go_tool;
mod mapping;
mod refusals;
mod round_trip;
