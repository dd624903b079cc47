//! A batch that is a chunk of somebody's SDK already becomes that chunk again.
//!
//! Everything was decided by whoever made the chunk: which samples there are, which frames are the application's own,
//! what they are called. So nothing of it is decided a second time: the samples are written as they are, without the
//! ends of runs and the halves that [`plan`](super::plan) adds, and of frames, images and threads what
//! [`chunk_reader`](crate::sentry::chunk_reader) kept in attributes. `profbridge_model::whole_chunk` says how a batch
//! is recognised. Names that were found meanwhile, for native frames, are written as well.
//!
//! What Sentry would refuse (no thread with two samples that have frames, more than 66 s, more bytes than it takes) is
//! not written as it is: it is converted like any other batch, which keeps these rules.
//!
//! All of it is taken from OTLP, which anybody may have written, so what is JSON in an attribute is read before it is
//! written. What would make Sentry refuse the chunk is left out and counted.

use profbridge_model::{Dictionary, ProcessWindow, Profile, Profiles, Scope, whole_chunk};

use super::limits::MAX_CHUNK_NANOS;
use super::report::Notes;
use crate::sentry::sampled::measurements::are_valid;

/// The largest chunk that is written as it is, in bytes: what Relay takes, and so what it took before.
pub(super) const MAX_BYTES: usize = crate::sentry::sampled::MAX_BYTES;

/// A time in nanoseconds is written in microseconds, to the nearest.
pub(super) const ROUNDING: u64 = 500;

/// The longest that a chunk may be, in seconds.
const MAX_SECONDS: f64 = (MAX_CHUNK_NANOS / super::NANOS) as f64;

/// A batch of one profile that is a whole chunk.
#[derive(Debug, Clone, Copy)]
pub(super) struct Whole<'a> {
    dictionary: &'a Dictionary,
    scope: &'a Scope,
    pub(super) profile: &'a Profile,
    pub(super) platform: &'a str,
}

impl<'a> Whole<'a> {
    /// The chunk that a batch is, where it is one, with its profiler and the time from its first to its last sample.
    pub(super) fn of(batch: &'a Profiles) -> Option<(Self, ProcessWindow)> {
        let [resource] = batch.resources() else { return None };
        let [scope] = &resource.scopes[..] else { return None };
        let [profile] = &scope.profiles[..] else { return None };
        let window = whole_chunk::window(batch, resource, profile)?;
        let dictionary = batch.dictionary();
        let platform = dictionary.text(batch.find(&resource.resource.attributes, "sentry.platform")?)?;
        Some((Self { dictionary, scope: &scope.scope, profile, platform }, window))
    }

    /// The name and the version of what has made it.
    pub(super) fn sdk(&self) -> (&'a str, &'a str) {
        (self.dictionary.string(self.scope.name), self.dictionary.string(self.scope.version))
    }

    /// A text that an attribute of the profile kept.
    pub(super) fn text(&self, key: &str) -> Option<&'a str> {
        self.dictionary.text(self.dictionary.find(self.profile.attributes, key)?)
    }

    /// Its measurements as JSON.
    pub(super) fn measurements(&self, notes: &mut Notes) -> Option<&'a str> {
        let json = self.text("sentry.measurements")?;
        let is_valid = json == "null" || are_valid(json);
        notes.left_out += u64::from(!is_valid);
        Some(json).filter(|json| is_valid && *json != "null")
    }
}

/// Whether Relay takes a chunk whose first and last sample have these times, in nanoseconds: it reads seconds as
/// doubles.
pub(super) fn is_short(first: u64, last: u64) -> bool {
    let seconds = |nanos: u64| (nanos.saturating_add(ROUNDING) / 1_000) as f64 / 1e6;
    seconds(last) - seconds(first) <= MAX_SECONDS
}
