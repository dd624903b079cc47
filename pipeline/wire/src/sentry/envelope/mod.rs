//! The envelope: a JSON header line, then items, each a JSON header line and a payload.
//!
//! Envelopes are read and written without loss. Headers are kept as the received bytes, so unknown keys survive, as do
//! items of unknown types. The reader rejects exactly what Relay rejects with 400: a client's envelope that Sentry
//! would accept must not be rejected here, and one that Sentry would reject must not be acknowledged.
//!
//! Sources: Sentry developer documentation, "Envelopes"; getsentry/relay `relay-server/src/envelope/{mod,item}.rs`:
//!
//! * A header ends with `\n`; `\r\n`, an empty line and anything after the JSON value are rejected.
//! * An item's `length` must be followed by `\n` or the end. Without `length`, the payload ends at the next `\n` or the
//!   end. The last `\n` is optional.
//! * At most 500 items. Known keys of the envelope's header must be unique.

mod header;
mod reader;
mod writer;

pub use header::{Header, ItemHeader};
pub use reader::{ReadError, read};
pub use writer::{EnvelopePart, StillPacked, item, pieces, write};

use profbridge_model::Envelope;

/// Maximum number of items in an envelope (getsentry/relay `relay-server/src/envelope/mod.rs`, `TooManyItems`).
pub const MAX_ITEMS: usize = 500;

/// Maximum size of an uncompressed envelope in bytes, the same as Relay's (getsentry/relay
/// `relay-config/src/config.rs`, `max_envelope_size`).
pub const MAX_BYTES: usize = 200 << 20;

/// Maximum length of a header line, in bytes. Real ones are below 2 KiB; the limit avoids searching a line of hundreds
/// of megabytes for keys.
pub const MAX_HEADER: usize = 1 << 20;

/// The media type of an envelope.
pub const CONTENT_TYPE: &str = "application/x-sentry-envelope";

/// Whether a line break follows the last payload: the only syntactic variation that an [`Envelope`] does not record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
pub enum Ending {
    /// A line break, as from Sentry's Python SDK.
    #[default]
    Newline,
    /// No line break, as from Sentry's JavaScript SDKs.
    Bare,
}

/// A parsed envelope.
#[derive(Debug, Clone)]
pub struct Parsed {
    /// The header and the items, including all payloads. The caller fills `meta`, `views` and `received`.
    pub envelope: Envelope,
    /// Whether it ended with a line break.
    pub ending: Ending,
}

#[cfg(test)]
mod tests;
