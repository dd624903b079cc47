//! Shared test helpers of several crates: input requests, an independent implementation of the expected results, and
//! drivers for components.
//!
//! Requests use `opentelemetry-proto` types and chunks are plain serde structs, without any code of profbridge. That
//! makes [`naive`] an oracle: if its output equals profbridge's, two independent implementations of the same rules
//! agree.
//!
//! - [`builder`]: builds small requests with little code.
//! - [`fixture`]: requests with the shapes of real producers' data.
//! - [`workload`]: seeded requests of known size and shape; [`figures`]: the contents of a request in numbers.
//! - [`releases`]: requests in the layouts of earlier OTLP releases.
//! - [`naive`]: the straightforward conversion to Sentry chunks, and functions that compare chunks.
//! - [`owned`]: compares by brute force the time in a request with the time in its chunks.
//! - [`profcheck`]: the OTLP rules of the official checker, for every test that creates OTLP.
//! - With the feature `components`: random telemetry, a consumer and a test setup for receivers, and checkers of the
//!   contract of any processor or exporter.

pub mod builder;
#[cfg(feature = "components")]
mod components;
pub mod dictionary;
pub mod figures;
pub mod fixture;
pub mod naive;
pub mod owned;
pub mod profcheck;
#[cfg(feature = "components")]
mod receiver;
pub mod releases;
pub mod thread_time;
pub mod workload;

pub use builder::{Frame, RequestBuilder, T0, ms};
#[cfg(feature = "components")]
pub use components::*;
pub use opentelemetry_proto::tonic::collector::profiles::v1development::ExportProfilesServiceRequest;
#[cfg(feature = "components")]
pub use receiver::{PLENTY, ReadAnswer, ReceiverRig, RecordingServer, gzip, http1, patiently, until, zlib};
