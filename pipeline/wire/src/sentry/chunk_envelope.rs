//! Puts a chunk into its own envelope.
//!
//! Relay rejects two profile items in one envelope with 413 (getsentry/relay `relay-server/src/utils/sizes.rs`), so
//! each chunk gets its own. The chunk's JSON is one line, so the item needs no `length`, which would only be known at
//! the end; an item without one ends at the line break (Sentry developer documentation, "Envelopes").

/// profbridge's name as a sender. It differs from Sentry's own SDKs, since special rules apply to those
/// (getsentry/sentry `src/sentry/models/projectsdk.py`).
pub const SDK_NAME: &str = "profbridge.rust";

/// The lines before a chunk's JSON: the envelope's header and the item's, whose platform must equal the payload's. A
/// line break follows the JSON.
pub fn head(platform: &str) -> String {
    let version = env!("CARGO_PKG_VERSION");
    let platform = serde_json::Value::from(platform);
    format!(
        "{{\"sdk\":{{\"name\":\"{SDK_NAME}\",\"version\":\"{version}\"}}}}\n\
         {{\"type\":\"profile_chunk\",\"platform\":{platform},\"content_type\":\"application/json\"}}\n"
    )
}
