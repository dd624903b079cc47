//! Sentry's protocol, sans I/O: envelopes, profile chunks, and the rules for sending them.
//!
//! This module opens no socket and reads no clock. The caller passes a server's response as bytes, numbers and times,
//! and gets a decision. Sources: Sentry's developer documentation ("Envelopes", "Rate Limiting", "Client Reports",
//! "Sample Format V2") and, where it differs, the behaviour of getsentry/relay.
//!
//! * [`envelope`]: the container format, read and written without loss.
//! * [`chunk`]: converts profiles to `profile_chunk` items.
//! * [`chunk_reader`], [`v1_reader`]: convert a `profile_chunk`, or a `profile` of the older format, to a batch of
//!   profiles; [`profile_items`] finds them in an envelope.
//! * [`transaction_reader`], [`span_v2_reader`]: convert a transaction, or a container of spans, to a batch of spans
//!   that points into their JSON; [`span_items`] finds them in an envelope. [`span_writer`] writes changes of spans
//!   into the items. [`spans_to_otlp`] converts them to OTLP, and [`span_v2_writer`] OTLP to containers. [`otlp_spans`]
//!   adds to OTLP what Sentry's own OTLP endpoint needs.
//! * [`v1_upgrade`]: converts a profile of the older format to a chunk and links its transaction to it; [`splice`]
//!   edits the transaction's text.
//! * [`dsn`] and [`auth`]: the destination and the credentials; neither can print its key.
//! * [`client_auth`] and [`item_limits`]: a client's credentials, and the limits of its envelopes.
//! * [`trace_header`]: the trace data in an envelope's header.
//! * [`transaction`]: converts OTLP spans to `transaction` items.
//! * [`resource_attributes`]: the attributes of a process, including its environment.
//! * [`category`], [`rate_limit`], [`client_report`] and [`response`]: how a sender reacts to a server's response.

mod about;
pub mod auth;
pub mod category;
pub mod chunk;
pub mod chunk_envelope;
pub mod chunk_reader;
pub mod client_auth;
pub mod client_report;
pub mod dsn;
pub mod envelope;
pub mod item_limits;
pub mod otlp_spans;
mod platform;
pub mod profile_items;
pub mod rate_limit;
pub mod resource_attributes;
pub mod response;
mod sampled;
pub mod span_items;
pub mod span_reader;
pub mod span_v2_reader;
pub mod span_v2_writer;
pub mod span_writer;
pub mod spans_to_otlp;
pub mod splice;
pub mod timestamp;
pub mod trace_header;
pub mod transaction;
pub mod transaction_envelope;
pub mod transaction_reader;
pub mod v1_reader;
pub mod v1_upgrade;

pub use auth::Auth;
pub use category::Category;
pub use client_report::ClientReport;
pub use dsn::Dsn;
pub use rate_limit::RateLimits;
pub use resource_attributes::ResourceAttributes;
pub(crate) use sampled::text;
