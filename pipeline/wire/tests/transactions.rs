//! OTLP spans as transactions of Sentry's.

#![allow(clippy::unwrap_used)]

#[path = "transactions/arbitrary.rs"]
mod arbitrary;
#[path = "transactions/bounds.rs"]
mod bounds;
#[path = "transactions/control.rs"]
mod control;
#[path = "transactions/describe.rs"]
mod describe;
#[path = "transactions/fields.rs"]
mod fields;
#[path = "transactions/support.rs"]
mod support;
#[path = "transactions/typical.rs"]
mod typical;
