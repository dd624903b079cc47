//! Information that exporters give to receivers of the same protocol: rate limits that a destination set for senders,
//! whether they stop a sender's spans, and a way to forward requests that a receiver does not read.
//!
//! A server such as Sentry answers "nothing of this kind for 60 s" to a client that sends too much. Here the exporter
//! gets that answer, but the client that should stop talks to the receiver. So exporters publish each limit under a
//! key, and receivers look it up by the same key. The engine interprets neither keys nor texts.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use http::{Request, Response};
use hyper::body::Incoming;
use profbridge_model::envelope::RequestMeta;
use profbridge_net::BoxFuture;
use profbridge_net::client::PartlyReadBody;
use tokio::time::Instant;

/// Maximum number of keys. Beyond this number, the keys whose limits end first are dropped: the next answer of the
/// server renews their limits.
const MAX_KEYS: usize = 4096;

/// Maximum number of limits per key.
const MAX_LIMITS: usize = 64;

/// Forwards requests that a receiver does not read to a server of the same protocol.
pub trait RequestForwarder: std::fmt::Debug + Send + Sync {
    /// Whether requests can be forwarded to this server, `HOST` or `HOST:PORT`.
    fn knows(&self, server: &str) -> bool;

    /// Forwards a request to the server, or to the default server if none is named. The request's path is appended to
    /// the server's own. The answer is returned unchanged. Dropping the future cancels the request.
    ///
    /// # Errors
    ///
    /// No answer arrived, with the reason for a person; or the server is unknown.
    fn pass<'a>(
        &'a self,
        server: Option<&'a str>,
        request: Request<PartlyReadBody>,
    ) -> BoxFuture<'a, Result<Response<Incoming>, String>>;
}

/// Tells receivers whether an exporter would drop the spans of a sender, which the exporter may send in another form
/// than they came in, with other limits.
pub trait SpanLimits: std::fmt::Debug + Send + Sync {
    /// For how long the exporter drops spans of this sender; `None` if it sends them.
    fn blocked(&self, sender: &RequestMeta) -> Option<Duration>;
}

/// The limits that destinations have set, and what exporters offer to receivers. Cheap to clone; clones share them.
#[derive(Debug, Clone, Default)]
pub struct PeerLimits {
    by_key: Arc<Mutex<HashMap<Arc<str>, Vec<Limit>>>>,
    onward: Arc<Mutex<Vec<OfferedForwarder>>>,
    /// By the id of the exporter.
    spans: Arc<Mutex<HashMap<String, Arc<dyn SpanLimits>>>>,
}

/// A forwarder, with the id of the exporter that offers it.
type OfferedForwarder = (String, Arc<dyn RequestForwarder>);

#[derive(Debug, Clone)]
struct Limit {
    text: Arc<str>,
    until: Instant,
}

impl PeerLimits {
    /// Offers a forwarder to the receivers of this exporter's pipelines.
    pub fn offer_forwarder(&self, exporter: &str, onward: Arc<dyn RequestForwarder>) {
        self.onward.lock().unwrap_or_else(PoisonError::into_inner).push((exporter.to_owned(), onward));
    }

    /// The forwarder of the first of these exporters that offers one.
    pub fn forwarder_of<'a>(&self, exporters: impl IntoIterator<Item = &'a str>) -> Option<Arc<dyn RequestForwarder>> {
        let offered = self.onward.lock().unwrap_or_else(PoisonError::into_inner);
        let forwarder = |exporter| offered.iter().find(|(id, _)| id == exporter).map(|(_, onward)| Arc::clone(onward));
        exporters.into_iter().find_map(forwarder)
    }

    /// Offers the limits on spans of an exporter.
    pub fn offer_span_limits(&self, exporter: &str, limits: Arc<dyn SpanLimits>) {
        self.spans.lock().unwrap_or_else(PoisonError::into_inner).insert(exporter.to_owned(), limits);
    }

    /// For how long all of these exporters drop spans of this sender; `None` if one sends them, or has no limits.
    pub fn spans_blocked<'a>(
        &self,
        exporters: impl IntoIterator<Item = &'a str>,
        sender: &RequestMeta,
    ) -> Option<Duration> {
        let offered = self.spans.lock().unwrap_or_else(PoisonError::into_inner);
        let blocked = |exporter: &str| offered.get(exporter)?.blocked(sender);
        let times: Option<Vec<Duration>> = exporters.into_iter().map(blocked).collect();
        times?.into_iter().min()
    }

    /// Publishes a limit for senders with this key that lasts for `time`. The text is in the protocol's format, without
    /// the time. If the same text is published again, the later end counts.
    pub fn publish(&self, key: &str, text: &str, time: Duration) {
        let until = Instant::now() + time;
        let mut by_key = self.by_key.lock().unwrap_or_else(PoisonError::into_inner);
        if !by_key.contains_key(key) && by_key.len() >= MAX_KEYS {
            forget(&mut by_key);
        }
        let limits = by_key.entry(key.into()).or_default();
        let room = limits.len() < MAX_LIMITS;
        match limits.iter_mut().find(|limit| &*limit.text == text) {
            Some(limit) => limit.until = limit.until.max(until),
            None if room => limits.push(Limit { text: text.into(), until }),
            None => {}
        }
    }

    /// The limits for senders with this key, each with its remaining time.
    pub fn limits_for(&self, key: &str) -> Vec<(Arc<str>, Duration)> {
        let now = Instant::now();
        let mut by_key = self.by_key.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(limits) = by_key.get_mut(key) else { return Vec::new() };
        limits.retain(|limit| limit.until > now);
        let held = limits.iter().map(|limit| (Arc::clone(&limit.text), limit.until - now)).collect();
        if limits.is_empty() {
            by_key.remove(key);
        }
        held
    }
}

/// Drops expired limits; if there are none, drops the key whose limits end first.
fn forget(by_key: &mut HashMap<Arc<str>, Vec<Limit>>) {
    let now = Instant::now();
    let end = |limits: &Vec<Limit>| limits.iter().map(|limit| limit.until).max();
    by_key.retain(|_, limits| end(limits).is_some_and(|end| end > now));
    if by_key.len() >= MAX_KEYS
        && let Some(first) = by_key.iter().min_by_key(|(_, limits)| end(limits)).map(|(key, _)| Arc::clone(key))
    {
        by_key.remove(&first);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    /// Guarantees: a limit is returned for its key until it ends, the later of two ends counts, and expired limits are
    /// dropped.
    #[tokio::test(start_paused = true)]
    async fn limits_end() {
        let limits = PeerLimits::default();
        limits.publish("a", "error:key", 10 * SECOND);
        limits.publish("a", "error:key", 5 * SECOND);
        limits.publish("a", "", SECOND);
        assert_eq!(limits.limits_for("b"), []);
        assert_eq!(limits.limits_for("a"), [("error:key".into(), 10 * SECOND), ("".into(), SECOND)]);
        tokio::time::sleep(2 * SECOND).await;
        assert_eq!(limits.limits_for("a"), [("error:key".into(), 8 * SECOND)]);
        tokio::time::sleep(8 * SECOND).await;
        assert_eq!(limits.limits_for("a"), []);
        assert!(limits.by_key.lock().unwrap().is_empty());
    }

    #[derive(Debug)]
    struct Blocked(Option<Duration>);

    impl SpanLimits for Blocked {
        fn blocked(&self, _: &RequestMeta) -> Option<Duration> {
            self.0
        }
    }

    /// Guarantees: spans are blocked while each of the exporters drops them, until the first sends them again. One that
    /// has no limits takes them.
    #[test]
    fn spans_of_all_exporters() {
        let limits = PeerLimits::default();
        for (exporter, seconds) in [("a", Some(7)), ("b", Some(5)), ("open", None)] {
            limits.offer_span_limits(exporter, Arc::new(Blocked(seconds.map(Duration::from_secs))));
        }
        let blocked = |exporters: &[&str]| limits.spans_blocked(exporters.iter().copied(), &RequestMeta::default());
        assert_eq!((blocked(&["a"]), blocked(&["a", "b"])), (Some(7 * SECOND), Some(5 * SECOND)));
        assert_eq!((blocked(&["a", "open"]), blocked(&["a", "other"]), blocked(&[])), (None, None, None));
    }

    /// Attack: many keys and many texts use bounded memory; the limits that end first are dropped first.
    #[tokio::test(start_paused = true)]
    async fn bounded() {
        let limits = PeerLimits::default();
        for key in 0..=MAX_KEYS {
            limits.publish(&key.to_string(), "", SECOND * (1 + key as u32));
        }
        assert_eq!(limits.by_key.lock().unwrap().len(), MAX_KEYS);
        assert_eq!(limits.limits_for("0"), []);
        for text in 0..200 {
            limits.publish("1", &text.to_string(), SECOND);
        }
        assert_eq!(limits.limits_for("1").len(), MAX_LIMITS);
    }
}
