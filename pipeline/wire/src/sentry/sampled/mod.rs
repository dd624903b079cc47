//! What Sentry's two sample formats have in common: frames, stacks, images, threads and samples become a batch.
//!
//! [`chunk_reader`](super::chunk_reader) and [`v1_reader`](super::v1_reader) read what differs: who sent it, and when
//! each sample was taken. What becomes of the rest is said there.

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
pub(in crate::sentry) use frames::Stacks;
pub(in crate::sentry) use images::Images;
pub(in crate::sentry) use resource::Process;
pub(in crate::sentry) use samples::{Observation, ThreadIds};

/// The largest profile that is read, in bytes: what Relay takes (getsentry/relay `relay-config/src/config.rs`,
/// `max_profile_size`).
pub const MAX_BYTES: usize = 50 << 20;

/// The most frames of a profile. A frame without keys is three bytes of JSON and 200 in memory: without a limit 50 MiB
/// would become 3 GiB.
pub const MAX_FRAMES: usize = 1 << 18;

/// The most stacks of a profile.
pub const MAX_STACKS: usize = 1 << 20;

/// The most images, and the most threads with metadata, of a profile.
pub const MAX_ENTRIES: usize = 1 << 16;

/// Why a profile of Sentry's cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ProfileError {
    /// It is larger than [`MAX_BYTES`].
    #[error("the profile has {bytes} bytes, {MAX_BYTES} are allowed")]
    TooLarge {
        /// Its size.
        bytes: usize,
    },
    /// It is no JSON, or a key is missing or of another type.
    #[error("the profile cannot be read: {0}")]
    Json(String),
    /// It breaks a rule.
    #[error(transparent)]
    Rule(#[from] Invalid),
    /// It is in another format than those that are read. Nothing is wrong with it.
    #[error(transparent)]
    OtherFormat(Invalid),
}

impl ProfileError {
    /// A rule that is broken, and where.
    pub(in crate::sentry) fn rule(place: impl Into<String>, rule: impl Into<String>) -> Self {
        Self::Rule(Invalid { place: place.into(), rule: rule.into() })
    }

    /// What says that it is in another format, and where.
    pub(in crate::sentry) fn other_format(place: impl Into<String>, rule: impl Into<String>) -> Self {
        Self::OtherFormat(Invalid { place: place.into(), rule: rule.into() })
    }

    /// The parser's message, of bounded length: it quotes what it found.
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

/// A profile that was read, and what of it is not in the batch.
#[derive(Debug, Clone)]
pub struct Read {
    /// The batch.
    pub profiles: Profiles,
    /// How many samples the rules of V1 left out.
    pub left_out: u64,
    /// How many stacks, frames and threads with metadata no sample has: they show nothing.
    pub unused: u64,
}

/// A payload as text: looked at as a whole, which spares the parser a look at each string.
///
/// # Errors
///
/// It is larger than [`MAX_BYTES`], or not UTF-8.
pub(in crate::sentry) fn text_of(payload: &[u8]) -> Result<&str, ProfileError> {
    if payload.len() > MAX_BYTES {
        return Err(ProfileError::TooLarge { bytes: payload.len() });
    }
    std::str::from_utf8(payload).map_err(|error| ProfileError::Json(error.to_string()))
}

/// What decides about a profile's format. It is asked where a profile could not be read, so that one of another format
/// is not taken for a broken one.
#[derive(serde::Deserialize)]
#[serde(bound(deserialize = "'de: 'a"))]
struct Format<'a> {
    version: Option<text::Text<'a>>,
    platform: Option<text::Text<'a>>,
    sampled_profile: Option<serde::de::IgnoredAny>,
}

/// Checks a profile's version, which must be the one that is read.
///
/// # Errors
///
/// It is in another format.
pub(in crate::sentry) fn check_version(version: &str, wanted: &str) -> Result<(), ProfileError> {
    if version == "2.android-trace" {
        return Err(ProfileError::other_format(
            "version",
            format!("an Android trace is not supported, only {wanted:?}"),
        ));
    }
    if version == wanted { Ok(()) } else { Err(ProfileError::other_format("version", format!("is not {wanted:?}"))) }
}

/// Why a payload could not be read: because it is in another format, or because of the parser's error.
pub(in crate::sentry) fn unreadable(payload: &str, wanted: &str, error: &serde_json::Error) -> ProfileError {
    let Ok(format) = serde_json::from_str::<Format<'_>>(payload) else { return ProfileError::json(error) };
    // The traces of Android's SDK have a key of their own, whatever their version (getsentry/relay
    // `relay-profiling/src/profile_chunk.rs`).
    if format.sampled_profile.is_some() && text::Text::of(&format.platform) == "android" {
        return ProfileError::other_format("sampled_profile", "an Android trace is not supported");
    }
    let other = format.version.and_then(|version| check_version(version.as_str(), wanted).err());
    other.unwrap_or_else(|| ProfileError::json(error))
}
