//! Requests in the layouts of earlier releases of OTLP profiles, from 1.3 (`v1experimental`) to 1.9.
//!
//! [`messages`] are the messages with the fields of all releases, `fields` has the number of each field in each
//! release, and [`Release::write`] encodes the data of a 1.10 request in another release. For messages that never
//! changed (resources, scopes, attribute values, lines, links), the types of the crate `opentelemetry-proto` are used.

mod fields;
pub mod messages;
mod transcode;

pub use transcode::{Way, earlier, plain};

/// A release whose layout differs from 1.10.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[allow(missing_docs, reason = "the names are those of the releases")]
pub enum Release {
    V1_3,
    V1_4,
    V1_5,
    V1_6,
    V1_7,
    V1_8,
    V1_9,
}
