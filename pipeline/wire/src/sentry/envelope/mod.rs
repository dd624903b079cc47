//! The envelope: one JSON line, then items, each one JSON line and a payload.
//!
//! Read and written without loss. Headers stay the bytes they came as, so keys that nobody here knows survive, and so
//! do items of unknown types. What is checked is what Relay refuses with 400, and nothing more: a client whose envelope
//! Sentry would take must not be refused here, and what Sentry would refuse must not be acknowledged.
//!
//! Sources: Sentry developer documentation, "Envelopes"; getsentry/relay `relay-server/src/envelope/{mod,item}.rs`:
//!
//! * A header ends in `\n`; `\r\n`, an empty line and anything after the JSON value are refused.
//! * An item's `length` must be followed by `\n` or the end. Without `length`, the payload ends at the next `\n` or the
//!   end. The last `\n` is optional.
//! * At most 500 items. A key of the envelope's header that has a meaning stands there once.

mod header;
mod reader;
mod writer;

pub use header::{Header, ItemHeader};
pub use reader::{ReadError, read};
pub use writer::{Piece, StillPacked, item, pieces, write};

use profbridge_model::Envelope;

/// The most items that an envelope may have (getsentry/relay `relay-server/src/envelope/mod.rs`, `TooManyItems`).
pub const MAX_ITEMS: usize = 500;

/// The largest envelope, in bytes, without compression: what Relay takes (getsentry/relay `relay-config/src/config.rs`,
/// `max_envelope_size`).
pub const MAX_BYTES: usize = 200 << 20;

/// The longest header line, in bytes. Real ones are below 2 KiB; the limit keeps a line of hundreds of megabytes from
/// being searched for keys.
pub const MAX_HEADER: usize = 1 << 20;

/// The media type of an envelope.
pub const CONTENT_TYPE: &str = "application/x-sentry-envelope";

/// Whether a line's end follows the last payload: the only freedom of the form that an [`Envelope`] does not show.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
pub enum Ending {
    /// One does, as Sentry's Python SDK writes it.
    #[default]
    Newline,
    /// None does, as Sentry's JavaScript SDKs write it.
    Bare,
}

/// An envelope as it was read.
#[derive(Debug, Clone)]
pub struct Parsed {
    /// The header and the items. All payloads are here. Its `meta`, `views` and `received` are
    /// the caller's to fill.
    pub envelope: Envelope,
    /// How it ended.
    pub ending: Ending,
}

#[cfg(test)]
mod tests;
