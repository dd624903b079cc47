//! Shared code of Sentry's two sample formats: converts frames, stacks, images, threads and samples to a batch.
//!
//! [`chunk_reader`](super::chunk_reader) and [`v1_reader`](super::v1_reader) read the parts that differ: the sender,
//! and the time of each sample. They also document the conversion.

mod finish;
mod frames;
mod images;
pub(in crate::sentry) mod measurements;
pub(in crate::sentry) mod model;
mod resource;
mod samples;
pub(crate) mod text;

use profbridge_model::Profiles;
use profbridge_model::dictionary::Invalid;

pub(in crate::sentry) use finish::finish;
pub(in crate::sentry) use frames::ProfileStacks;
pub(in crate::sentry) use images::ProfileImages;
pub(in crate::sentry) use resource::OriginalProcess;
pub(in crate::sentry) use samples::{ThreadIds, TimedSample};

/// Maximum size of a profile in bytes, the same as Relay's (getsentry/relay `relay-config/src/config.rs`,
/// `max_profile_size`).
pub const MAX_BYTES: usize = 50 << 20;

/// Maximum number of frames in a profile. A frame without keys takes three bytes of JSON but 200 in memory: without a
/// limit, 50 MiB would become 3 GiB.
pub const MAX_FRAMES: usize = 1 << 18;

/// Maximum number of stacks in a profile.
pub const MAX_STACKS: usize = 1 << 20;

/// Maximum number of images, and of threads with metadata, in a profile.
pub const MAX_ENTRIES: usize = 1 << 16;

/// Why a Sentry profile cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ProfileError {
    /// The profile is larger than [`MAX_BYTES`].
    #[error("the profile has {bytes} bytes, {MAX_BYTES} are allowed")]
    TooLarge {
        /// The profile's size.
        bytes: usize,
    },
    /// The profile is not JSON, or a key is missing or has the wrong type.
    #[error("the profile cannot be read: {0}")]
    Json(String),
    /// The profile breaks a rule.
    #[error(transparent)]
    Rule(#[from] Invalid),
    /// The profile is valid, but in an unsupported format.
    #[error(transparent)]
    OtherFormat(Invalid),
}

impl ProfileError {
    /// A broken rule and its place.
    pub(in crate::sentry) fn rule(place: impl Into<String>, rule: impl Into<String>) -> Self {
        Self::Rule(Invalid { place: place.into(), rule: rule.into() })
    }

    /// The reason why this is another format, and its place.
    pub(in crate::sentry) fn other_format(place: impl Into<String>, rule: impl Into<String>) -> Self {
        Self::OtherFormat(Invalid { place: place.into(), rule: rule.into() })
    }

    /// The parser's message, cut to a bounded length because it quotes the input.
    pub(in crate::sentry) fn json(error: &serde_json::Error) -> Self {
        const LONGEST: usize = 200;
        let text = error.to_string();
        if text.chars().nth(LONGEST).is_none() {
            return Self::Json(text);
        }
        let start: String = text.chars().take(LONGEST).collect();
        Self::Json(format!("{start}... at line {} column {}", error.line(), error.column()))
    }
}

/// The result of reading a profile.
#[derive(Debug, Clone)]
pub struct SampledProfile {
    /// The batch.
    pub profiles: Profiles,
    /// Number of samples that were dropped by the rules of V1.
    pub left_out: u64,
    /// Number of stacks, frames and threads with metadata that no sample uses.
    pub unused: u64,
}

/// The payload as text. It is validated as a whole, so that the parser need not check each string.
///
/// # Errors
///
/// The payload is larger than [`MAX_BYTES`], or not UTF-8.
pub(in crate::sentry) fn text_of(payload: &[u8]) -> Result<&str, ProfileError> {
    if payload.len() > MAX_BYTES {
        return Err(ProfileError::TooLarge { bytes: payload.len() });
    }
    std::str::from_utf8(payload).map_err(|error| ProfileError::Json(error.to_string()))
}

/// The keys that identify a profile's format. They are checked after a profile could not be read, to distinguish
/// another format from a broken profile.
#[derive(serde::Deserialize)]
#[serde(bound(deserialize = "'de: 'a"))]
struct FormatKeys<'a> {
    version: Option<text::Text<'a>>,
    platform: Option<text::Text<'a>>,
    sampled_profile: Option<serde::de::IgnoredAny>,
}

/// Checks that a profile has the supported version.
///
/// # Errors
///
/// The profile is in another format.
pub(in crate::sentry) fn check_version(version: &str, wanted: &str) -> Result<(), ProfileError> {
    if version == "2.android-trace" {
        return Err(ProfileError::other_format(
            "version",
            format!("an Android trace is not supported, only {wanted:?}"),
        ));
    }
    if version == wanted { Ok(()) } else { Err(ProfileError::other_format("version", format!("is not {wanted:?}"))) }
}

/// The error for a payload that could not be read: another format, or the parser's error.
pub(in crate::sentry) fn unreadable(payload: &str, wanted: &str, error: &serde_json::Error) -> ProfileError {
    let Ok(format) = serde_json::from_str::<FormatKeys<'_>>(payload) else { return ProfileError::json(error) };
    // Traces of Android's SDK have a specific key in every version (getsentry/relay
    // `relay-profiling/src/profile_chunk.rs`).
    if format.sampled_profile.is_some() && text::Text::of(&format.platform) == "android" {
        return ProfileError::other_format("sampled_profile", "an Android trace is not supported");
    }
    let other = format.version.and_then(|version| check_version(version.as_str(), wanted).err());
    other.unwrap_or_else(|| ProfileError::json(error))
}
