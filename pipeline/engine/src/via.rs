//! Detects telemetry that travels in a circle through several profbridge processes.
//!
//! Every process draws a random id at its start. An exporter sends this id in the header [`HEADER`] of each request,
//! together with the ids that arrived with requests to its pipelines' receivers. A receiver refuses a request that
//! contains its own process's id: that telemetry passed through this process before and came back, directly or through
//! others.
//!
//! Ids are stored per exporter and kind of telemetry, not per batch, because a pipeline merges the telemetry of all its
//! senders and gives it to all its exporters. There is no circle if one of two processes sends spans to the other and
//! gets profiles from it.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue};
use profbridge_model::TelemetryKind;
use tokio::time::Instant;

/// The name of the header. Its value is a list of ids, separated by commas. In gRPC it is metadata.
pub const HEADER: HeaderName = HeaderName::from_static("x-profbridge-via");

/// Maximum number of ids that are stored and sent: the latest ones. No real chain of processes is longer.
const MOST: usize = 16;

/// How long an exporter sends an id after the last request with it arrived.
const REMEMBERED: Duration = Duration::from_secs(600);

/// The ids that an exporter sends. Cheap to clone; clones share them.
#[derive(Debug, Clone)]
pub struct Via {
    own: u64,
    /// The ids in order of arrival, the latest one last.
    passed: Arc<Mutex<Vec<Passed>>>,
}

/// A process through which a request came.
#[derive(Debug)]
struct Passed {
    id: u64,
    /// The kind of the request. An envelope may contain all kinds, which processors may extract.
    kind: TelemetryKind,
    last: Instant,
}

impl Via {
    /// The ids for an exporter of the process with the id `own`, before any request arrived.
    pub fn new(own: u64) -> Self {
        Self { own, passed: Arc::default() }
    }

    /// The header's value for a request with this kind of telemetry.
    pub fn header(&self, kind: TelemetryKind) -> HeaderValue {
        let mut passed = self.passed.lock().unwrap_or_else(PoisonError::into_inner);
        passed.retain(|passed| passed.last.elapsed() < REMEMBERED);
        let is_its = |of: TelemetryKind| of == kind || [of, kind].contains(&TelemetryKind::Envelopes);
        let ids: Vec<u64> = passed.iter().filter(|passed| is_its(passed.kind)).map(|passed| passed.id).collect();
        header_of(latest(&ids).chain([self.own]))
    }

    /// Adds this process to the header of a request that is forwarded unread: such a request lists only the processes
    /// through which it came itself. Returns `false` if this process is one of them.
    pub(crate) fn add_to(&self, headers: &mut HeaderMap) -> bool {
        let ids = headers.get(HEADER).map(parse_ids).unwrap_or_default();
        let came_back = ids.contains(&self.own);
        headers.insert(HEADER, header_of(latest(&ids).chain([self.own])));
        !came_back
    }

    /// Stores the processes through which a request came. Returns `false` if this process is one of them.
    pub(crate) fn record_via(&self, ids: &[u64], kind: TelemetryKind) -> bool {
        if ids.contains(&self.own) {
            return false;
        }
        let mut passed = self.passed.lock().unwrap_or_else(PoisonError::into_inner);
        for id in latest(ids) {
            passed.retain(|known| (known.id, known.kind) != (id, kind));
            passed.push(Passed { id, kind, last: Instant::now() });
        }
        let more = passed.iter().filter(|passed| passed.kind == kind).count().saturating_sub(MOST);
        passed.extract_if(.., |passed| passed.kind == kind).take(more).for_each(drop);
        true
    }
}

/// The last ids of a list. They are those of the nearest processes, so that invented ids do not displace the ids of a
/// circle.
fn latest(ids: &[u64]) -> impl Iterator<Item = u64> {
    ids[ids.len().saturating_sub(MOST)..].iter().copied()
}

fn header_of(ids: impl Iterator<Item = u64>) -> HeaderValue {
    let ids: Vec<String> = ids.map(|id| format!("{id:016x}")).collect();
    // The text contains only digits, letters and commas.
    HeaderValue::try_from(ids.join(",")).unwrap_or(HeaderValue::from_static(""))
}

/// The ids in a header, as many as fit into a request's head. Invalid ids are skipped, because anybody may send the
/// header.
pub(crate) fn parse_ids(value: &HeaderValue) -> Vec<u64> {
    let text = value.to_str().unwrap_or_default();
    text.split(',').filter_map(|id| u64::from_str_radix(id.trim(), 16).ok()).collect()
}

/// Whether a request to `destination` arrives at a listener on `endpoint`, both `HOST:PORT`, judged by the texts only:
/// this machine's own names and addresses other than the loopback are not known here.
pub(crate) fn leads_to(destination: &str, endpoint: &str) -> bool {
    let split = |text: &str| {
        let (host, port) = text.rsplit_once(':')?;
        let host = host.trim_start_matches('[').trim_end_matches(']').to_ascii_lowercase();
        // The listener accepts connections to all addresses, and `destination` is an address of this machine.
        let everywhere = matches!(&*host, "" | "0.0.0.0" | "::");
        let address: Option<std::net::IpAddr> = host.parse().ok();
        let local = everywhere || host == "localhost" || address.is_some_and(|ip| ip.to_canonical().is_loopback());
        Some((host, port.parse::<u16>().ok()?, everywhere, local))
    };
    let (Some((to, port, to_any, to_local)), Some((host, listens, everywhere, local))) =
        (split(destination), split(endpoint))
    else {
        return false;
    };
    let same_loopback = to_local && local && (to_any || everywhere || to == "localhost" || host == "localhost");
    port != 0 && port == listens && (to == host || same_loopback)
}

#[cfg(test)]
mod tests {
    use profbridge_model::TelemetryKind::{Envelopes, Profiles, Spans};

    use super::*;

    /// Guarantees: an exporter sends its own id and the ids that arrived, until they stop arriving; the id of its own
    /// process is detected, directly or through another process.
    #[tokio::test(start_paused = true)]
    async fn circles() {
        let (first, second) = (Via::new(0xa), Via::new(0xb));
        let came = |from: &Via, to: &Via| to.record_via(&parse_ids(&from.header(Spans)), Spans);
        assert_eq!(first.header(Spans), "000000000000000a");
        assert!(!came(&first, &first), "directly");
        assert!(came(&first, &second));
        assert_eq!(second.header(Spans), "000000000000000a,000000000000000b");
        assert!(!came(&second, &first), "through another");
        tokio::time::advance(REMEMBERED).await;
        assert!(came(&second, &first));
    }

    /// Guarantees: spans to another process and profiles from it are not a circle; envelopes, which contain both, are
    /// one.
    #[tokio::test]
    async fn kinds_travel_apart() {
        let (first, second) = (Via::new(0xa), Via::new(0xb));
        let came = |from: &Via, to: &Via, kind| to.record_via(&parse_ids(&from.header(kind)), kind);
        assert!(came(&first, &second, Spans) && came(&second, &first, Profiles) && came(&first, &second, Spans));
        assert!(!came(&second, &first, Envelopes));
        let third = Via::new(0xc);
        assert!(came(&first, &third, Envelopes) && !came(&third, &first, Profiles));
    }

    /// Attack: invented ids, in one request or in many, do not hide a circle.
    #[tokio::test]
    async fn invented_ids_hide_nothing() {
        let (first, second) = (Via::new(0xa), Via::new(0xb));
        let invented: Vec<u64> = (0x100..0x200).collect();
        assert!(first.record_via(&invented, Spans));
        invented.iter().for_each(|&id| assert!(second.record_via(&[id], Spans)));
        assert!(second.record_via(&parse_ids(&first.header(Spans)), Spans));
        assert!(!first.record_via(&parse_ids(&second.header(Spans)), Spans));
        assert!(!first.record_via(&[&[0xa], &invented[..]].concat(), Spans));
    }

    /// Guarantees: a forwarded request lists the processes through which it came, also after invented ids, and no
    /// others.
    #[tokio::test]
    async fn circles_of_forwarded_requests() {
        let (first, second) = (Via::new(0xa), Via::new(0xb));
        assert!(first.record_via(&[0xc], Spans), "another request");
        let mut headers = HeaderMap::new();
        assert!(first.add_to(&mut headers) && second.add_to(&mut headers));
        assert_eq!(headers[HEADER], "000000000000000a,000000000000000b");
        assert!(!first.add_to(&mut headers));
        headers.insert(HEADER, HeaderValue::from_str(&"f,".repeat(5 * MOST)).unwrap());
        assert!(first.add_to(&mut headers) && second.add_to(&mut headers) && !first.add_to(&mut headers));
    }

    /// Attack: whatever the header contains, no more than the maximum number of ids is remembered.
    #[tokio::test]
    async fn header_ids_are_bounded() {
        let via = Via::new(1);
        for text in ["", ",,,", "x", "\u{fe}\u{ff}", "ffffffffffffffffff", "-1", &"2,".repeat(5000)] {
            let Ok(value) = HeaderValue::from_bytes(text.as_bytes()) else { continue };
            assert!(via.record_via(&parse_ids(&value), Spans), "{text}");
        }
        for kind in [Spans, Profiles, Envelopes] {
            (0x100..0x200).for_each(|id| assert!(via.record_via(&[id], kind)));
            assert!(via.header(kind).len() <= 17 * (MOST + 1));
        }
        assert_eq!(via.passed.lock().unwrap().len(), 3 * MOST);
    }

    /// Guarantees: a destination that names a listener's own address in any form leads to it, and no other destination
    /// does.
    #[test]
    fn own_listeners() {
        for (to, listens) in [
            ("127.0.0.1:4318", "127.0.0.1:4318"),
            ("localhost:4318", "127.0.0.1:4318"),
            ("localhost:4318", "0.0.0.0:4318"),
            ("127.0.0.1:4318", "[::]:4318"),
            ("[::1]:4318", "localhost:4318"),
            ("0.0.0.0:4318", "127.0.0.1:4318"),
            ("10.0.0.1:4318", "10.0.0.1:4318"),
            ("Gateway:4318", "gateway:4318"),
        ] {
            assert!(leads_to(to, listens), "{to} {listens}");
        }
        for (to, listens) in [
            ("127.0.0.1:4317", "127.0.0.1:4318"),
            ("127.0.0.2:4318", "127.0.0.1:4318"),
            ("collector:4318", "0.0.0.0:4318"),
            ("10.0.0.1:4318", "127.0.0.1:4318"),
            ("localhost:0", "localhost:0"),
            ("nonsense", "nonsense"),
        ] {
            assert!(!leads_to(to, listens), "{to} {listens}");
        }
    }
}
