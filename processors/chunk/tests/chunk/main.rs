//! What `chunk` promises, one test per rule.

mod bounds;
mod configuration;
mod conservation;
mod instant;
mod processes;
mod support;
mod times;
