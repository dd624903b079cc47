//! Rate limits: what must not be sent according to the server's responses, and until when.
//!
//! Source: Sentry developer documentation, "Rate Limiting"; getsentry/relay `relay-server/src/utils/rate_limits.rs`
//! (the header's format). One [`RateLimits`] belongs to one DSN. It reads no clock: callers pass times in nanoseconds
//! of a monotonic clock.

use std::time::Duration;

use super::Category;

/// How long to wait after a 429 without a duration.
pub const DEFAULT: Duration = Duration::from_secs(60);

/// Maximum duration of a limit. A server with a longer limit repeats it after the next attempt.
pub const LONGEST: Duration = Duration::from_secs(24 * 60 * 60);

/// The active limits of one DSN.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RateLimits {
    all: u64,
    categories: [u64; Category::ALL.len()],
}

/// The parts of a response that concern limits.
#[derive(Debug, Clone, Copy, Default)]
pub struct LimitResponse<'a> {
    /// The HTTP status.
    pub status: u16,
    /// The value of `X-Sentry-Rate-Limits`.
    pub limits: Option<&'a str>,
    /// The value of `Retry-After`.
    pub retry_after: Option<Duration>,
}

/// The key under which an exporter publishes a client's limits and receivers look them up: its project and its public
/// key. Do not log it.
pub fn peer_key(project: u64, public_key: &str) -> String {
    format!("sentry:{project}:{}", public_key.to_ascii_lowercase())
}

/// Parses the limits of a response. Each has its duration and its text without the duration, which an intermediate
/// server passes on to the client. The format is `retry_after:rest`, with an optional rest.
pub fn limits_of(answer: LimitResponse<'_>) -> Vec<(Duration, &str)> {
    match answer.limits {
        Some(limits) => limits
            .split(',')
            .filter_map(|limit| {
                let (time, rest) = limit.trim().split_once(':').unwrap_or((limit.trim(), ""));
                Some((seconds(time)?, rest))
            })
            .collect(),
        None if answer.status == 429 => vec![(answer.retry_after.unwrap_or(DEFAULT), "")],
        None => Vec::new(),
    }
}

impl RateLimits {
    /// Processes a response that arrived at `now`. Responses of any status may have limits; `Retry-After` and
    /// [`DEFAULT`] only count for a 429 without limits. For each category the limit that ends last applies.
    pub fn update(&mut self, answer: LimitResponse<'_>, now: u64) {
        for (time, limit) in limits_of(answer) {
            self.limit(time, limit, now);
        }
    }

    /// One limit without its duration: `category;category:scope:reason:namespaces`, all parts optional.
    fn limit(&mut self, time: Duration, limit: &str, now: u64) {
        let categories = limit.split(':').next().unwrap_or_default().trim();
        if categories.is_empty() {
            return extend(&mut self.all, now, time);
        }
        for category in categories.split(';').filter_map(|name| Category::from_name(name.trim())) {
            extend(&mut self.categories[category as usize], now, time);
        }
    }

    /// How long `categories` are blocked; `None` if sending is allowed.
    pub fn blocked(&self, categories: &[Category], now: u64) -> Option<Duration> {
        let until = categories.iter().map(|&category| self.categories[category as usize]).fold(self.all, u64::max);
        until.checked_sub(now).filter(|&left| left > 0).map(Duration::from_nanos)
    }
}

fn extend(until: &mut u64, now: u64, time: Duration) {
    let nanos = u64::try_from(time.min(LONGEST).as_nanos()).unwrap_or(u64::MAX);
    *until = (*until).max(now.saturating_add(nanos));
}

/// Parses seconds with an optional fraction; `None` if invalid.
fn seconds(text: &str) -> Option<Duration> {
    let seconds: f64 = text.trim().parse().ok()?;
    if seconds.is_nan() {
        return None;
    }
    Some(Duration::try_from_secs_f64(seconds.clamp(0.0, LONGEST.as_secs_f64())).unwrap_or(LONGEST))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SECOND: u64 = 1_000_000_000;
    const CHUNK: &[Category] = &[Category::ProfileChunk, Category::ProfileDuration];
    const UI: &[Category] = &[Category::ProfileChunkUi, Category::ProfileDurationUi];

    fn after(status: u16, limits: Option<&str>, retry_after: Option<u64>) -> RateLimits {
        let mut state = RateLimits::default();
        state.update(LimitResponse { status, limits, retry_after: retry_after.map(Duration::from_secs) }, 100 * SECOND);
        state
    }

    fn seconds_left(state: &RateLimits, categories: &[Category]) -> Option<f64> {
        state.blocked(categories, 100 * SECOND).map(|left| left.as_secs_f64())
    }

    /// Guarantees: a limit on chunks or on their duration stops chunks, on a response of any status; a limit on other
    /// chunks or data does not.
    /// rule: tracing-sdk#rate-limits
    #[test]
    fn categories() {
        let state = after(200, Some("60:profile_duration:organization:quota"), None);
        assert_eq!(seconds_left(&state, CHUNK), Some(60.0));
        assert_eq!(seconds_left(&state, UI), None);
        let state = after(200, Some("10:error;transaction:key, 30.5:profile_chunk;profile_chunk_ui:project"), None);
        assert_eq!(seconds_left(&state, CHUNK), Some(30.5));
        assert_eq!(seconds_left(&state, UI), Some(30.5));
        assert_eq!(seconds_left(&state, &[Category::Transaction]), Some(10.0));
        assert_eq!(seconds_left(&state, &[Category::Span]), None);
    }

    /// Guarantees: no categories means all of them; unknown ones are ignored, and so is a limit with only unknown ones.
    #[test]
    fn all_and_unknown() {
        for limits in ["5::organization", "5", "5:", " 5 : :key:r:n"] {
            assert_eq!(seconds_left(&after(200, Some(limits), None), CHUNK), Some(5.0), "{limits}");
        }
        assert_eq!(seconds_left(&after(429, Some("5:brand_new:organization"), None), CHUNK), None);
        assert_eq!(seconds_left(&after(429, Some("5:brand_new;profile_chunk"), None), CHUNK), Some(5.0));
        for limits in ["", "x:profile_chunk", "nan:profile_chunk", "-5:profile_chunk", "::::", ",,,"] {
            assert_eq!(seconds_left(&after(200, Some(limits), None), CHUNK), None, "{limits}");
        }
    }

    /// Guarantees: of several limits the one that ends last applies, and it expires.
    #[test]
    fn longest_wins() {
        let mut state = after(200, Some("50:profile_chunk, 20:profile_chunk, 30"), None);
        state.update(
            LimitResponse { status: 429, limits: None, retry_after: Some(Duration::from_secs(1)) },
            100 * SECOND,
        );
        assert_eq!(seconds_left(&state, CHUNK), Some(50.0));
        assert_eq!(seconds_left(&state, UI), Some(30.0));
        assert!(state.blocked(CHUNK, 150 * SECOND - 1).is_some());
        assert_eq!(state.blocked(CHUNK, 150 * SECOND), None);
    }

    /// Guarantees: a 429 without limits stops everything for the time in `Retry-After`, or for a minute; other statuses
    /// without limits stop nothing.
    #[test]
    fn too_many_requests() {
        assert_eq!(seconds_left(&after(429, None, None), CHUNK), Some(60.0));
        assert_eq!(seconds_left(&after(429, None, Some(7)), UI), Some(7.0));
        assert_eq!(seconds_left(&after(503, None, Some(7)), CHUNK), None);
        assert_eq!(seconds_left(&after(200, None, Some(7)), CHUNK), None);
    }

    proptest! {
        /// Guarantees: no header causes a panic, and no limit exceeds the maximum.
        #[test]
        fn arbitrary_headers(limits in "[0-9einfa:;, _profile_chunk.-]{0,60}", now in any::<u64>()) {
            let mut state = RateLimits::default();
            state.update(LimitResponse { status: 429, limits: Some(&limits), retry_after: None }, now);
            prop_assert!(state.blocked(CHUNK, now).unwrap_or_default() <= LONGEST);
        }
    }
}
