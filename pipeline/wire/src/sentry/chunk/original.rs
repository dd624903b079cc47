//! Preserves a batch that was read from an SDK's chunk: it becomes the same chunk again.
//!
//! The SDK has made all decisions: the samples, the in-app frames, and their names. So no decision is made again:
//! samples are written unmodified, without the closing samples and split samples that [`plan`](super::plan) adds, and
//! the data of frames, images and threads comes from the attributes in which
//! [`chunk_reader`](crate::sentry::chunk_reader) stored it. `profbridge_model::whole_chunk` defines how such a batch is
//! recognised. If native frames got names in the meantime, the names are written too.
//!
//! A chunk that Sentry would reject (no thread with two samples with frames, longer than 66 s, too large) is not
//! preserved, but converted like any other batch, so that the result follows these rules.
//!
//! The data comes from OTLP, which anybody may have written, so JSON in attributes is validated before it is written.
//! Parts for which Sentry would reject the chunk are omitted and counted.

use profbridge_model::{Dictionary, ProcessWindow, Profile, Profiles, Scope, whole_chunk};

use super::limits::MAX_CHUNK_NANOS;
use super::report::Notes;
use crate::sentry::sampled::measurements::are_valid;

/// Maximum size of a preserved chunk in bytes: Relay's limit, which the original chunk also kept.
pub(super) const MAX_BYTES: usize = crate::sentry::sampled::MAX_BYTES;

/// Half a microsecond in nanoseconds, to round times to microseconds.
pub(super) const ROUNDING: u64 = 500;

/// Maximum duration of a chunk, in seconds.
const MAX_SECONDS: f64 = (MAX_CHUNK_NANOS / super::NANOS) as f64;

/// A batch whose only profile is a whole chunk.
#[derive(Debug, Clone, Copy)]
pub(super) struct OriginalChunk<'a> {
    dictionary: &'a Dictionary,
    scope: &'a Scope,
    pub(super) profile: &'a Profile,
    pub(super) platform: &'a str,
}

impl<'a> OriginalChunk<'a> {
    /// The chunk that a batch was, if any, with its profiler and the time from its first to its last sample.
    pub(super) fn of(batch: &'a Profiles) -> Option<(Self, ProcessWindow)> {
        let [resource] = batch.resources() else { return None };
        let [scope] = &resource.scopes[..] else { return None };
        let [profile] = &scope.profiles[..] else { return None };
        let window = whole_chunk::window(batch, resource, profile)?;
        let dictionary = batch.dictionary();
        let platform = dictionary.text(batch.find(&resource.resource.attributes, "sentry.platform")?)?;
        Some((Self { dictionary, scope: &scope.scope, profile, platform }, window))
    }

    /// The name and the version of the SDK.
    pub(super) fn sdk(&self) -> (&'a str, &'a str) {
        (self.dictionary.string(self.scope.name), self.dictionary.string(self.scope.version))
    }

    /// A text from an attribute of the profile.
    pub(super) fn text(&self, key: &str) -> Option<&'a str> {
        self.dictionary.text(self.dictionary.find(self.profile.attributes, key)?)
    }

    /// The measurements of the chunk as JSON.
    pub(super) fn measurements(&self, notes: &mut Notes) -> Option<&'a str> {
        let json = self.text("sentry.measurements")?;
        let is_valid = json == "null" || are_valid(json);
        notes.left_out += u64::from(!is_valid);
        Some(json).filter(|json| is_valid && *json != "null")
    }
}

/// Whether Relay accepts a chunk whose first and last sample have these times in nanoseconds. Relay parses seconds as
/// doubles, so the comparison does as well.
pub(super) fn is_short(first: u64, last: u64) -> bool {
    let seconds = |nanos: u64| (nanos.saturating_add(ROUNDING) / 1_000) as f64 / 1e6;
    seconds(last) - seconds(first) <= MAX_SECONDS
}
