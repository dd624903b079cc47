//! Detects the earlier layouts of OTLP profiles, which use the same path and the same names.
//!
//! Between 1.4 and 1.10 fields were renumbered without a new package name (opentelemetry-proto CHANGELOG.md, and the
//! comparison in open-telemetry/opentelemetry-python#5223); before 1.4 the package was `v1experimental`:
//!
//! | version | tables | `Sample` | `Profile` |
//! |---|---|---|---|
//! | 1.3 | in `ProfileContainer.profile` | as 1.4 | `ProfileContainer`: times are fields 2 and 3, eight bytes each |
//! | 1.4, 1.5 | in `Profile`, fields 3 to 10 | 1, 2 location range, 3 values, 4 attributes, 5 link, 6 times | 17 id |
//! | 1.6 | beside the resources, fields 2 to 8 | as 1.4 | 3 locations, 10 id |
//! | 1.7 | in the dictionary | as 1.4 | as 1.6 |
//! | 1.8 | in the dictionary | 1 stack, 2 values, 3 attributes, 4 link, 5 times | 7 comments, 8 id, 9 dropped count |
//! | 1.9 | in the dictionary | as 1.8 | 7 id, 8 dropped count |
//! | 1.10 | in the dictionary | 1 stack, 2 attributes, 3 link, 4 values, 5 times | as 1.9 |
//!
//! In nearly all cases the wire types determine the layout, see [`evidence`].

mod evidence;

use self::evidence::Evidence;
use super::error::DecodeError;
use super::reader::ProtobufReader;

/// A layout of the messages, as versions of opentelemetry-proto.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Layout {
    /// 1.3, whose package is `v1experimental`.
    V1_3,
    /// 1.4 and 1.5.
    V1_4,
    /// 1.6.
    V1_6,
    /// 1.7.
    V1_7,
    /// 1.8.
    V1_8,
    /// 1.9.
    V1_9,
    /// 1.10 and 1.11.
    V1_10,
}

impl Layout {
    /// All layouts, the oldest first.
    pub const ALL: [Self; 7] = [Self::V1_3, Self::V1_4, Self::V1_6, Self::V1_7, Self::V1_8, Self::V1_9, Self::V1_10];

    /// The versions of opentelemetry-proto with this layout.
    pub const fn name(self) -> &'static str {
        match self {
            Self::V1_3 => "1.3 (v1experimental)",
            Self::V1_4 => "1.4 or 1.5",
            Self::V1_6 => "1.6",
            Self::V1_7 => "1.7",
            Self::V1_8 => "1.8",
            Self::V1_9 => "1.9",
            Self::V1_10 => "1.10",
        }
    }

    /// How to upgrade a sender to the current layout; `None` for the current one.
    pub const fn advice(self) -> Option<&'static str> {
        match self {
            Self::V1_3 | Self::V1_4 | Self::V1_6 | Self::V1_7 => Some(UPGRADE_OLD),
            Self::V1_8 => Some(UPGRADE_1_8),
            Self::V1_9 => Some(UPGRADE_1_9),
            Self::V1_10 => None,
        }
    }
}

/// The result of checking the layout of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Nothing indicates an earlier layout.
    Current,
    /// The request has this earlier layout.
    Older(Layout),
    /// Several layouts are possible.
    Unclear(DecodeError),
}

/// Determines the layout of a request. This reads the request again, so it is only called after decoding found unusual
/// content. `decoded` means that the wire types fit the current layout, so that only the values can decide.
pub(super) fn detect(request: &[u8], decoded: bool) -> Verdict {
    let mut evidence = Evidence::default();
    evidence.request(ProtobufReader::new(request));
    evidence.verdict(decoded)
}

/// Number of samples inspected before a request is decoded.
const PROBED: usize = 16;

/// Detects 1.8 or 1.9 before decoding, from the first samples of the first profile: either they have wire types that no
/// other layout allows, or their values are impossible in 1.10. This avoids decoding such a request twice. For requests
/// in other layouts it only costs inspecting a few samples, and [`detect`] decides.
pub(super) fn probe(request: &[u8]) -> Option<Layout> {
    let profile = first(first(first(ProtobufReader::new(request), 0x0a)?, 0x12)?, 0x12)?;
    let mut reader = profile;
    let mut evidence = Evidence::before_reading(request.len());
    let mut left = PROBED;
    while left > 0 {
        match reader.key() {
            Ok(Some(0x12)) => {}
            Ok(Some(key)) => {
                reader.skip(key).ok()?;
                continue;
            }
            Ok(None) => break,
            Err(_) => return None,
        }
        evidence.sample(reader.message().ok()?);
        if !evidence.fits_values_first() {
            return None;
        }
        if evidence.is_values_first() {
            evidence.profile(profile, false);
            return older(evidence.verdict(false));
        }
        left -= 1;
    }
    // The evidence must hold for all samples, not only for the first ones.
    evidence.is_impossible_as_1_10().then(|| older(detect(request, true))).flatten()
}

fn older(verdict: Verdict) -> Option<Layout> {
    match verdict {
        Verdict::Older(layout @ (Layout::V1_8 | Layout::V1_9)) => Some(layout),
        _ => None,
    }
}

/// The first nested message with this key.
fn first(mut reader: ProtobufReader<'_>, wanted: u32) -> Option<ProtobufReader<'_>> {
    while let Ok(Some(key)) = reader.key() {
        match key {
            _ if key == wanted => return reader.message().ok(),
            _ => reader.skip(key).ok()?,
        }
    }
    None
}

const UPGRADE_OLD: &str = "upgrade the sender: the OpenTelemetry Collector to v0.148.0 or later, the eBPF profiler to a \
     release after 2026-03-18, Telegraf to 1.36 or later and any SDK to opentelemetry-proto 1.10 or later";
const UPGRADE_1_8: &str = "upgrade the sender: the OpenTelemetry Collector (v0.136 to v0.139 write this) to v0.148.0 or later, the \
     eBPF profiler to a release after 2026-03-18";
const UPGRADE_1_9: &str = "upgrade the sender: the OpenTelemetry Collector (v0.140 to v0.147 write this) to v0.148.0 or later, \
     async-profiler to a release after 2026-07-12, Python's opentelemetry-proto to a release after 2026-05";
