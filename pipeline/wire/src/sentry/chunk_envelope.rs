//! A chunk in an envelope of its own.
//!
//! Two profile items in one envelope are refused with 413 (getsentry/relay `relay-server/src/utils/sizes.rs`), so each
//! chunk has its own. The chunk's JSON is one line, so the item needs no `length`, which would only be known at the
//! end; an item without one ends at the line's end (Sentry developer documentation, "Envelopes").

/// The name under which profbridge sends. None of Sentry's own SDKs, since those have rules of their own
/// (getsentry/sentry `src/sentry/models/projectsdk.py`).
pub const SDK_NAME: &str = "profbridge.rust";

/// The lines before a chunk's JSON: the envelope's header and the item's, whose platform must be equal to the
/// payload's. A line's end follows the JSON.
pub fn head(platform: &str) -> String {
    let version = env!("CARGO_PKG_VERSION");
    let platform = serde_json::Value::from(platform);
    format!(
        "{{\"sdk\":{{\"name\":\"{SDK_NAME}\",\"version\":\"{version}\"}}}}\n\
         {{\"type\":\"profile_chunk\",\"platform\":{platform},\"content_type\":\"application/json\"}}\n"
    )
}
