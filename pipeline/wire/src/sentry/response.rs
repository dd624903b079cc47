//! How a sender must react to a Sentry server's response.
//!
//! Sentry's rules for SDKs are to discard on every 4xx and 5xx. Relay, which like profbridge is between senders and
//! Sentry, distinguishes an outage (no connection, 502, 503, 504) from a rejection, and retries an outage until a
//! deadline. This module does the same, and also retries a 500: an SDK behind profbridge already has its response and
//! cannot send again. Sources: Sentry developer documentation, "Offline Caching" and "Envelopes"; getsentry/relay
//! `relay-server/src/services/upstream.rs`, `is_network_error`.

use serde::Deserialize;

use super::Dsn;

/// What to do with a request after its response.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Verdict {
    /// Accepted for processing, without a guarantee: Relay checks a chunk after it has answered.
    Accepted,
    /// The sender exceeds a limit. The request is dropped and not reported, because the server has counted it.
    RateLimited,
    /// The server does not support the encoding. Another one may work.
    EncodingRefused,
    /// The server or a proxy is down or overloaded. A retry may succeed.
    Outage,
    /// The request is too large. It is dropped and reported.
    TooLarge,
    /// The request is rejected permanently. It is dropped and reported.
    Refused,
}

impl Verdict {
    /// The verdict for an HTTP status.
    pub const fn of(status: u16) -> Self {
        match status {
            200..=299 => Verdict::Accepted,
            413 => Verdict::TooLarge,
            415 => Verdict::EncodingRefused,
            429 => Verdict::RateLimited,
            500 | 502..=504 => Verdict::Outage,
            _ => Verdict::Refused,
        }
    }
}

/// The meaning of a status and what to do about it, for the operator.
pub const fn meaning(status: u16) -> &'static str {
    match status {
        300..=399 => "the server redirects, which is not followed; check the scheme, host and path of the DSN",
        400 => "the server could not read the request, or does not know the key or project of the DSN",
        401 => "the server does not accept the key of the DSN; check the key and that it belongs to the project",
        403 => "the server refuses the project or the key of the DSN: one of them is disabled, or belongs to another",
        404 => "there is no Sentry at that address; check the host and path of the DSN",
        405 => "the address takes no envelopes; check the host and path of the DSN",
        413 => {
            "the request is larger than the server takes, or a proxy in front of it (`client_max_body_size` of nginx)"
        }
        415 => "the server does not take the compression",
        429 => "the project or organization is over its quota or rate limit",
        500 => "the server failed; see its own log",
        508 => "the request came back to a profbridge that it had left: correct the `dsn` that leads in a circle",
        502..=504 => "the server is down or overloaded",
        _ => "the server refused the request",
    }
}

/// Maximum length of a server's explanation, in characters.
const MAX_DETAIL: usize = 300;

/// The explanation in the body of an error, on one line: Relay's `detail` and `causes`, without the DSN's keys, which a
/// server may repeat. `None` if the body is not in Relay's format.
pub fn detail(body: &[u8], dsn: &Dsn) -> Option<String> {
    #[derive(Deserialize)]
    struct ErrorBody {
        detail: String,
        #[serde(default)]
        causes: Vec<String>,
    }
    let body: ErrorBody = serde_json::from_slice(body).ok()?;
    let mut text = body.detail;
    for cause in body.causes {
        text.push_str(": ");
        text.push_str(&cause);
    }
    // Keys are removed before truncation, because even half a key is secret.
    let text: String =
        dsn.redact(&text).chars().map(|c| if c.is_control() { ' ' } else { c }).take(MAX_DETAIL).collect();
    Some(text).filter(|text| !text.trim().is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Guarantees: each status has the verdict that Sentry's or Relay's rules require.
    /// rule: differences#retry-5xx
    #[test]
    fn verdicts() {
        for (status, verdict) in [
            (200, Verdict::Accepted),
            (202, Verdict::Accepted),
            (301, Verdict::Refused),
            (400, Verdict::Refused),
            (401, Verdict::Refused),
            (403, Verdict::Refused),
            (404, Verdict::Refused),
            (408, Verdict::Refused),
            (413, Verdict::TooLarge),
            (415, Verdict::EncodingRefused),
            (429, Verdict::RateLimited),
            (500, Verdict::Outage),
            (501, Verdict::Refused),
            (502, Verdict::Outage),
            (503, Verdict::Outage),
            (504, Verdict::Outage),
            (505, Verdict::Refused),
        ] {
            assert_eq!(Verdict::of(status), verdict, "{status}");
        }
    }

    /// Guarantees: an explanation is one line of bounded length, and any other body gives none.
    #[test]
    fn details() {
        let key = "0123456789abcdef0123456789abcdef";
        let dsn: Dsn = format!("https://{key}@h/1").parse().unwrap();
        let body = br#"{"detail":"bad envelope","causes":["a\nb","c"]}"#;
        assert_eq!(detail(body, &dsn).as_deref(), Some("bad envelope: a b: c"));
        assert_eq!(detail(br#"{"detail":" "}"#, &dsn), None);
        assert_eq!(detail(b"<html>", &dsn), None);
        assert_eq!(detail(br#"{"id":"x"}"#, &dsn), None);
        let long = format!(r#"{{"detail":"{}{key}"}}"#, "é".repeat(MAX_DETAIL - 3));
        let text = detail(long.as_bytes(), &dsn).unwrap();
        assert_eq!(text.chars().count(), MAX_DETAIL);
        assert!(text.ends_with("é***"));
    }
}
