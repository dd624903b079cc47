//! The numbers of the conversion: what Sentry takes of a transaction, and bounds on what one span can make it.

/// The largest transaction, in bytes of JSON: what Relay takes (getsentry/relay `relay-config/src/config.rs`,
/// `max_event_size`: 1 MiB).
pub const MAX_TRANSACTION_BYTES: usize = 1 << 20;

/// The most spans beside the transaction itself (Sentry developer documentation, "Guidelines for Performance
/// Monitoring", `maxSpans`).
pub const MAX_SPANS: usize = 1000;

/// So many bytes of data may be written before the largest of it goes: a transaction in the making takes a few
/// megabytes of memory, however large its spans are.
pub(super) const MAX_UNSHED_BYTES: usize = 4 * MAX_TRANSACTION_BYTES;

/// The longest name of a transaction, in characters. Sentry cuts a longer one (getsentry/relay
/// `relay-event-schema/src/protocol/event.rs`, `transaction`).
pub const MAX_NAME_CHARS: usize = 200;

/// The longest description of a span, in bytes: the text of a query may be as long as anybody likes.
pub const MAX_DESCRIPTION_BYTES: usize = 4096;

/// The longest text of another field, in bytes: a host's name, an operation, an address.
pub const MAX_TEXT_BYTES: usize = 1024;

/// The longest text among data, in bytes.
pub const MAX_VALUE_BYTES: usize = 64 << 10;

/// The longest operation, in bytes. Those that Sentry lists are shorter than 40 (getsentry/sentry-conventions
/// `model/op`).
pub const MAX_OP_BYTES: usize = 128;

/// How deep lists and maps among data may lie in each other. Those that are read have at most as many
/// ([`Limits`](crate::otlp::Limits)).
pub const MAX_VALUE_DEPTH: u32 = 16;

/// The most events and the most links of a span: as many as OpenTelemetry's SDKs keep (opentelemetry-specification
/// `specification/trace/sdk.md`, "Span Limits").
pub const MAX_EVENTS: usize = 128;

/// The longest key of a tag, in characters, of which only letters, digits and `_.:-` may be (Sentry documentation,
/// "Customize Tags").
pub const MAX_TAG_KEY: usize = 32;

/// A tag's value is shorter than so many characters (event schema, `tags`).
pub const MAX_TAG_VALUE: usize = 200;

/// The most tags.
pub const MAX_TAGS: usize = 128;

/// The most HTTP headers of a request or a response.
pub const MAX_HEADERS: usize = 128;

/// The longest release that Sentry takes, in bytes (getsentry/sentry-release-parser `src/parser.rs`,
/// `validate_release`).
pub const MAX_RELEASE_BYTES: usize = 200;

/// The longest distribution that Sentry takes, in bytes (Sentry developer documentation, "Event Payloads", `dist`).
pub const MAX_DIST_BYTES: usize = 64;
