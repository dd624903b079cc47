//! Sentry's rate limits for a client, as they are returned to it.

use std::fmt::Write as _;
use std::time::Duration;

use http::header::HeaderName;
use http::{HeaderValue, StatusCode};
use profbridge_engine::peer_limits::PeerLimits;
use profbridge_model::Reason;
use profbridge_wire::sentry::rate_limit::{LimitResponse, peer_key};
use profbridge_wire::sentry::{Category, RateLimits};

use crate::fault::Fault;

/// The header with the rate limits.
pub(crate) const RATE_LIMITS: HeaderName = HeaderName::from_static("x-sentry-rate-limits");

/// What clients are told.
pub(crate) const LIMITED: &str = "Sentry limits everything that is in the request";

/// The rate limits for a client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ClientLimits {
    /// The value of `X-Sentry-Rate-Limits`.
    pub(crate) header: String,
    /// When the last of them ends.
    pub(crate) retry_after_seconds: u64,
    /// Whether they apply to every item of the envelope.
    pub(crate) everything: bool,
}

/// The rate limits for a client, and whether they apply to everything in a request: one list of categories for each of
/// its items. `None` if there are none.
pub(crate) fn limits_for(
    limits: &PeerLimits,
    project: u64,
    public_key: &str,
    items: impl IntoIterator<Item = &'static [Category]>,
) -> Option<ClientLimits> {
    let held = limits.limits_for(&peer_key(project, public_key));
    let longest = held.iter().map(|(_, left)| *left).max()?;
    let mut header = String::new();
    for (text, left) in &held {
        let comma = if header.is_empty() { "" } else { ", " };
        // Sentry's Python SDK before 2.0 ignores a limit without the second colon, which precedes the scope.
        let scope = if text.contains(':') { "" } else { ":" };
        // Writing to a string cannot fail.
        write!(header, "{comma}{}:{text}{scope}", whole_seconds(*left)).ok();
    }
    let mut rules = RateLimits::default();
    rules.update(LimitResponse { status: 200, limits: Some(&header), retry_after: None }, 0);
    let mut items = items.into_iter().map(|categories| rules.blocked(categories, 0).is_some()).peekable();
    let everything = items.peek().is_some() && items.all(|is_blocked| is_blocked);
    Some(ClientLimits { header, retry_after_seconds: whole_seconds(longest), everything })
}

/// The fault of a request of which Sentry would accept nothing before this time has passed. Its client keeps it.
pub(crate) fn fault(time: Duration, limits: Option<&ClientLimits>) -> Fault {
    let fault = Fault::new(StatusCode::TOO_MANY_REQUESTS, "rate_limited", LIMITED);
    let header = limits.and_then(|limits| HeaderValue::from_str(&limits.header).ok());
    let headers = header.map(|limits| (RATE_LIMITS, limits)).into_iter().collect();
    let retry_after = Some(Duration::from_secs(whole_seconds(time)));
    Fault { retry_after, refused: Some(Reason::RateLimited), headers, ..fault }
}

/// Seconds, rounded up.
fn whole_seconds(time: Duration) -> u64 {
    (time.as_secs() + u64::from(time.subsec_nanos() > 0)).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &str = "0123456789abcdef0123456789abcdef";

    /// Guarantees: a client gets the limits for its project and key in Sentry's format, and an envelope is refused only
    /// if they apply to each of its items.
    /// rule: transport#rate-limits
    #[tokio::test(start_paused = true)]
    async fn handed_back() {
        let limits = PeerLimits::default();
        const EVENT: &[Category] = &[Category::Error];
        const TRANSACTION: &[Category] = Category::OF_TRANSACTIONS;
        assert_eq!(limits_for(&limits, 42, KEY, [EVENT]), None);
        limits.publish(&peer_key(42, KEY), "transaction;span:organization:quota", Duration::from_millis(59_001));
        let both = limits_for(&limits, 42, KEY, [TRANSACTION, EVENT]).unwrap();
        assert_eq!(both.header, "60:transaction;span:organization:quota");
        assert_eq!((both.retry_after_seconds, both.everything), (60, false));
        assert!(limits_for(&limits, 42, KEY, [TRANSACTION]).unwrap().everything);
        assert!(!limits_for(&limits, 42, KEY, []).unwrap().everything);
        assert_eq!(limits_for(&limits, 43, KEY, [TRANSACTION]), None);
        // The limit after an answer with 429 and no limits.
        limits.publish(&peer_key(42, KEY), "", Duration::from_secs(5));
        let all = limits_for(&limits, 42, KEY, [EVENT]).unwrap();
        assert_eq!(all.header, "60:transaction;span:organization:quota, 5::");
        assert!(all.everything);
    }
}
