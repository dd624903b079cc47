//! The limits of the conversion: Sentry's limits on a transaction, and bounds on what one span can cause to be written.

/// Maximum size of a transaction, in bytes of JSON, the same as Relay's (getsentry/relay `relay-config/src/config.rs`,
/// `max_event_size`: 1 MiB).
pub const MAX_TRANSACTION_BYTES: usize = 1 << 20;

/// Maximum number of child spans (Sentry developer documentation, "Guidelines for Performance Monitoring", `maxSpans`).
pub const MAX_SPANS: usize = 1000;

/// Maximum size of data before the largest parts are dropped, in bytes: a transaction in progress takes a few megabytes
/// of memory, however large its spans are.
pub(super) const MAX_UNSHED_BYTES: usize = 4 * MAX_TRANSACTION_BYTES;

/// Maximum length of a transaction's name, in characters. Sentry truncates a longer one (getsentry/relay
/// `relay-event-schema/src/protocol/event.rs`, `transaction`).
pub const MAX_NAME_CHARS: usize = 200;

/// Maximum length of a span's description, in bytes: the text of a query has no limit of its own.
pub const MAX_DESCRIPTION_BYTES: usize = 4096;

/// Maximum length of other text fields, in bytes: a host's name, an operation, an address.
pub const MAX_TEXT_BYTES: usize = 1024;

/// Maximum length of a text in the data, in bytes.
pub const MAX_VALUE_BYTES: usize = 64 << 10;

/// Maximum length of an operation, in bytes. Those that Sentry lists are shorter than 40 (getsentry/sentry-conventions
/// `model/op`).
pub const MAX_OP_BYTES: usize = 128;

/// Maximum nesting of lists and maps in the data. The decoder allows no more ([`Limits`](crate::otlp::Limits)).
pub const MAX_VALUE_DEPTH: u32 = 16;

/// Maximum number of events, and of links, of a span, the same as in OpenTelemetry's SDKs (opentelemetry-specification
/// `specification/trace/sdk.md`, "Span Limits").
pub const MAX_EVENTS: usize = 128;

/// Maximum length of a tag's key, in characters. Only letters, digits and `_.:-` are allowed (Sentry documentation,
/// "Customize Tags").
pub const MAX_TAG_KEY: usize = 32;

/// A tag's value must be shorter than this, in characters (event schema, `tags`).
pub const MAX_TAG_VALUE: usize = 200;

/// Maximum number of tags.
pub const MAX_TAGS: usize = 128;

/// Maximum number of HTTP headers of a request or a response.
pub const MAX_HEADERS: usize = 128;

/// Maximum length of a release, in bytes (getsentry/sentry-release-parser `src/parser.rs`, `validate_release`).
pub const MAX_RELEASE_BYTES: usize = 200;

/// Maximum length of a distribution, in bytes (Sentry developer documentation, "Event Payloads", `dist`).
pub const MAX_DIST_BYTES: usize = 64;
