//! Workloads, fixtures and the control against which profbridge is measured. Never shipped.
//!
//! Nothing but the harness uses profbridge's own decoder or converter: requests are made of `opentelemetry-proto` types
//! and chunks of plain serde structs. That is what makes [`naive`] an oracle: where it and profbridge agree, two
//! independent readings of the same rules agree.
//!
//! - [`workload`]: seeded requests of known size and shape, for benchmarks.
//! - [`builder`]: small requests, written tersely, for everybody's tests.
//! - [`fixture`]: requests with the shapes of real producers' data.
//! - [`naive`]: the straightforward conversion to Sentry chunks, and helpers that compare chunks.
//! - [`owned`]: whose time is whose, in a request and in chunks, by brute force.
//! - [`profcheck`]: the rules of OTLP that the official checker knows, for every test that makes OTLP.
//! - [`releases`]: requests as earlier releases of OTLP profiles write them.
//! - [`figures`]: what a request consists of.
//! - `harness`, with the feature of that name: measures profbridge, and so is the one part that uses it.

pub mod builder;
pub mod dictionary;
pub mod figures;
pub mod fixture;
#[cfg(feature = "harness")]
pub mod harness;
pub mod naive;
pub mod owned;
pub mod profcheck;
pub mod releases;
pub mod thread_time;
pub mod workload;

pub use builder::{Frame, RequestBuilder, T0, ms};
pub use opentelemetry_proto::tonic::collector::profiles::v1development::ExportProfilesServiceRequest;
