//! pprof profiles, held against prost with definitions of its own as the independent reading of `profile.proto`.

mod arbitrary;
mod proto;

mod attacks;
mod go_tool;
mod mapping;
mod refusals;
mod round_trip;
