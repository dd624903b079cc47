//! Sentry's protocol, sans I/O: envelopes, profile chunks, and the rules of sending them.
//!
//! Nothing here opens a socket or reads a clock. What a server says is handed in as bytes, numbers and times, and
//! comes out as a decision. Sources: Sentry's developer documentation ("Envelopes", "Rate Limiting", "Client
//! Reports", "Sample Format V2") and the behaviour of getsentry/relay where the two differ.
//!
//! * [`envelope`]: the frame around everything, read and written without loss.
//! * [`chunk`]: profiles become `profile_chunk` items.
//! * [`chunk_reader`], [`v1_reader`]: a `profile_chunk`, and a `profile` of the older format, become a batch of
//!   profiles; [`profile_items`] finds them in an envelope.
//! * [`transaction_reader`], [`span_v2_reader`]: a transaction, and a container of spans, become a batch of spans that
//!   points into their JSON; [`span_items`] finds them in an envelope. [`span_writer`] writes what was found out about
//!   them into the items. [`spans_to_otlp`] makes OTLP of them, and [`span_v2_writer`] containers of OTLP.
//! * [`v1_upgrade`]: a profile of the older format becomes a chunk, and its transaction is linked to it; [`splice`]
//!   edits the transaction's text.
//! * [`dsn`] and [`auth`]: where to send, and as whom; neither can print its key.
//! * [`client_auth`] and [`item_limits`]: who a client is, and what Sentry would take of it.
//! * [`trace_header`]: what an envelope says of the trace that is in it.
//! * [`transaction`]: OTLP spans become `transaction` items.
//! * [`told`]: what a batch says of its process, its environment included.
//! * [`category`], [`rate_limit`], [`client_report`] and [`response`]: what a server's answer asks of a sender.

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
mod platform;
pub mod profile_items;
pub mod rate_limit;
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
pub mod told;
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
pub(crate) use sampled::text;
pub use told::Told;
