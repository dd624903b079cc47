//! Tests of the converter as a whole, by rule.
//!
//! A chunk is compared as a person would read it: the samples of each thread in order of time, each as the leaf's
//! function and the milliseconds since the window's start, an idle one as `-`.

mod about;
mod attacks;
mod called;
mod chunks;
mod frames;
mod images;
mod listing;
mod modules;
mod perf_names;
mod properties;
mod runtimes;
mod support;
mod time;
mod types;
mod whole;
