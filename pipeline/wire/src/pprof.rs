//! Converts pprof's `profile.proto` to a batch and back.
//!
//! Sources: google/pprof `proto/profile.proto` for the format and `profile/profile.go` (`CheckValid`) for its validity.
//! The mapping to OTLP is that of the Collector (open-telemetry/opentelemetry-collector-contrib `pkg/translator/pprof`)
//! and of the semantic conventions (`docs/general/profiles.md`, `model/pprof`):
//!
//! | pprof | OTLP |
//! |---|---|
//! | each `sample_type` | a separate profile, with one value for each sample |
//! | `label` | an attribute of the sample, with `num_unit` as its unit; [`mod@span`] handles labels that name spans |
//! | `build_id`, `has_*` of a mapping | `process.executable.build_id.gnu`, `pprof.mapping.has_*` if true |
//! | `is_folded` of a location | `pprof.location.is_folded` |
//! | `comment`, `doc_url`, `drop_frames`, `keep_frames` | `pprof.profile.*` |
//! | `default_sample_type` | `pprof.scope.default_sample_type` |
//!
//! Reading and writing leaves a profile unchanged: [`mod@encode`] reverses [`mod@decode`]. [`mod@prune`] removes the
//! frames that `drop_frames` hides, for code that displays frames. Most pprof files are compressed with gzip, which the
//! caller handles.

pub mod decode;
pub mod encode;
pub mod prune;
pub mod span;

mod error;
mod keys;

pub use decode::{DecodedProfile, decode};
pub use encode::{EncodedProfile, Group, encode, groups};
pub use error::DecodeError;
pub use keys::{DROP_FRAMES, KEEP_FRAMES};
pub use prune::{Pruned, pruned};
