//! pprof: `profile.proto` to a batch and back.
//!
//! Source: google/pprof `proto/profile.proto` for the format and `profile/profile.go` (`CheckValid`) for what a valid
//! one is. The mapping to OTLP is that of the Collector (open-telemetry/opentelemetry-collector-contrib
//! `pkg/translator/pprof`) and of the semantic conventions (`docs/general/profiles.md`, `model/pprof`):
//!
//! | pprof | OTLP |
//! |---|---|
//! | each `sample_type` | a profile of its own, with one value for each sample |
//! | `label` | an attribute of the sample, with `num_unit` as its unit; see [`mod@span`] for the labels that name spans |
//! | `build_id`, `has_*` of a mapping | `process.executable.build_id.gnu`, `pprof.mapping.has_*` where they are true |
//! | `is_folded` of a location | `pprof.location.is_folded` |
//! | `comment`, `doc_url`, `drop_frames`, `keep_frames` | `pprof.profile.*` |
//! | `default_sample_type` | `pprof.scope.default_sample_type` |
//!
//! What is read and written again is equal: [`mod@encode`] undoes what [`mod@decode`] does. [`mod@prune`] is for
//! whoever shows frames, of which `drop_frames` leaves some out. gzip, which most pprof
//! files are compressed with, is for the caller.

pub mod decode;
pub mod encode;
pub mod prune;
pub mod span;

mod error;
mod keys;

pub use decode::{Decoded, Times, decode, decode_with};
pub use encode::{Encoded, Group, encode, groups};
pub use error::DecodeError;
pub use keys::{DROP_FRAMES, KEEP_FRAMES};
pub use prune::{Pruned, pruned};
