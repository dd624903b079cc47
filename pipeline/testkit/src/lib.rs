//! What tests of several crates need, and nothing else uses: requests to feed, a second opinion on what becomes of them,
//! and what drives components.
//!
//! Requests are made of `opentelemetry-proto` types and chunks of plain serde structs, without any of profbridge's code.
//! That is what makes [`naive`] an oracle: where it and profbridge agree, two independent readings of the same rules
//! agree.
//!
//! - [`builder`]: small requests, written tersely.
//! - [`fixture`]: requests with the shapes of real producers' data.
//! - [`workload`]: seeded requests of known size and shape; [`figures`]: what a request consists of.
//! - [`releases`]: requests as earlier releases of OTLP profiles write them.
//! - [`naive`]: the straightforward conversion to Sentry chunks, and helpers that compare chunks.
//! - [`owned`]: whose time is whose, in a request and in chunks, by brute force.
//! - [`profcheck`]: the rules of OTLP that the official checker knows, for every test that makes OTLP.
//! - With the feature `components`: random telemetry, a consumer for receivers, and checkers that drive any processor or
//!   exporter and hold it against its contract.

pub mod builder;
#[cfg(feature = "components")]
mod components;
pub mod dictionary;
pub mod figures;
pub mod fixture;
pub mod naive;
pub mod owned;
pub mod profcheck;
pub mod releases;
pub mod thread_time;
pub mod workload;

pub use builder::{Frame, RequestBuilder, T0, ms};
#[cfg(feature = "components")]
pub use components::*;
pub use opentelemetry_proto::tonic::collector::profiles::v1development::ExportProfilesServiceRequest;
