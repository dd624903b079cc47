//! Converts a `profile` in sample format V1 to a batch of profiles, as [`chunk_reader`](super::chunk_reader) does for a
//! chunk. The format is deprecated, but still sent by Python's SDK with `profiles_sample_rate` and by Node's up to 10.
//!
//! A V1 profile belongs to one transaction in the same envelope. In addition to the mapping of chunks:
//!
//! | in the profile | in the batch |
//! | --- | --- |
//! | `event_id` (or `profile_id`) | `profile_id`, resource `sentry.profiler_id` and the batch's window |
//! | `timestamp` and a sample's `elapsed_since_start_ns` | a timestamp |
//! | `transaction`: `id`, `name` | profile attributes `sentry.transaction.id`, `sentry.transaction.name` |
//! | `transaction`: `trace_id`, `active_thread_id` | profile attributes `sentry.trace_id`, `sentry.active_thread_id` |
//! | `contexts.trace.span_id`, else the transaction's | with the trace id, the link of the active thread's samples |
//! | `device.architecture` | `host.arch`; also `sentry.device.architecture` if the conventions' name differs |
//! | `device.manufacturer`, `device.model` | `device.manufacturer`, `device.model.identifier` |
//! | other scalars of `device` | `sentry.device.*` |
//! | `os.name`, `os.version`, `os.build_number` | `os.name`, `os.version`, `os.build_id` |
//! | `runtime.name`, `runtime.version` | `process.runtime.name`, `process.runtime.version` |
//! | `dist` | `sentry.dist` |
//! | `measurements` | profile attribute `sentry.measurements`, its JSON as a chunk has it: times instead of durations |
//! | the transaction's `sdk`, `environment`, `dist`, and `release` if the profile has none | as a chunk's |
//!
//! The profile's own id serves as the profiler's id: a V1 profile is a profiler session of its own. The SDK generates
//! the id at random, so replicas agree on it, nothing has to be stored, and a user finds it in the SDK's log.
//!
//! # Rules
//!
//! The reader applies Relay's rules (getsentry/relay `relay-profiling/src/sample/v1.rs`, `transaction_metadata.rs`,
//! `measurements.rs`, `relay-server/src/processing/profiles/process.rs`) in this order, each with Relay's name for the
//! error:
//!
//! 1. The transaction is in the envelope, unless the item's header says `sampled: false`.
//! 2. Keys have the right types, and required ones are present (`profiling_invalid_json`); a profile of cocoa has
//!    `os.build_number` and all of `device` (`profiling_invalid_profile_metadata`).
//! 3. `transaction`, or the first of `transactions`, is present (`profiling_no_transaction_associated`), and its ids
//!    and its name are neither nil nor empty (`profiling_invalid_transaction_metadata`).
//! 4. Samples outside of the transaction's `relative_start_ns` to `relative_end_ns` are dropped, unless the end is 0;
//!    then samples without frames at the start and the end of a thread; then threads with a single sample.
//! 5. At least one sample remains (`profiling_not_enough_samples`), its stack exists (`profiling_malformed_samples`),
//!    the frames of all stacks exist (`profiling_malformed_stacks`), and the last sample was taken within 30 s
//!    (`profiling_duration_is_too_long`).
//!
//! The reader accepts some input that Relay rejects: a time without a zone (UTC) or as a number of seconds, integers
//! written as floating-point numbers, and `null` in a list, which means an empty frame, an empty stack, or else
//! nothing.

mod build;
mod companion;
mod device;
mod measurements;
mod model;
mod number;
mod rules;

#[cfg(test)]
mod tests;

pub use self::companion::Companion;
pub use super::sampled::{ProfileError, SampledProfile};
use super::sampled::{check_version, text_of, unreadable};

/// The supported version of the sample format.
const VERSION: &str = "1";

/// Reads a profile from an item's payload and from the other items of its envelope.
///
/// # Errors
///
/// The first broken rule and its location.
pub fn read(payload: &[u8], companion: &Companion<'_>) -> Result<SampledProfile, ProfileError> {
    let payload = text_of(payload)?;
    let profile: model::V1Profile<'_> =
        serde_json::from_str(payload).map_err(|error| unreadable(payload, VERSION, &error))?;
    check_version(profile.version.as_str(), VERSION)?;
    if !companion.is_complete() {
        let rule =
            "the profile's transaction is not in its envelope, and its header does not say that it was not sampled";
        return Err(ProfileError::rule("profile", rule));
    }
    build::build(profile, companion)
}
