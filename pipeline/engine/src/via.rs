//! Detects telemetry that travels in a circle through several profbridge processes.
//!
//! Every process draws an id at its start. An exporter sends it in the header [`HEADER`] of each request, together with
//! the ids that arrived with requests to its pipelines' receivers. A receiver refuses a request that contains its own
//! process's id: that telemetry passed through this process before and came back, directly or through others.
//!
//! Ids are kept per exporter and not per batch, because a pipeline merges the telemetry of all its senders and gives it
//! to all its exporters.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue};
use tokio::time::Instant;

/// The header: ids separated by commas. In gRPC it is metadata.
pub const HEADER: HeaderName = HeaderName::from_static("x-profbridge-via");

/// Maximum number of ids that are read from a request and remembered. No chain of processes is longer.
const MOST: usize = 16;

/// For this long an exporter sends an id after a request with it arrived.
const REMEMBERED: Duration = Duration::from_secs(600);

/// The ids that an exporter sends. Cheap to clone; clones share them.
#[derive(Debug, Clone)]
pub struct Via {
    own: u64,
    passed: Arc<Mutex<Vec<(u64, Instant)>>>,
}

impl Via {
    /// The ids for an exporter of the process with this id, to which nothing was sent yet.
    pub fn new(own: u64) -> Self {
        Self { own, passed: Arc::default() }
    }

    /// The header's value.
    pub fn header(&self) -> HeaderValue {
        let mut passed = self.passed.lock().unwrap_or_else(PoisonError::into_inner);
        passed.retain(|(_, last)| last.elapsed() < REMEMBERED);
        header_of(passed.iter().map(|(id, _)| *id).chain([self.own]))
    }

    /// Adds this process to the header of a request that is forwarded by itself: only the processes that it came
    /// through concern it. Returns `false` if this process is one of them.
    pub(crate) fn add_to(&self, headers: &mut HeaderMap) -> bool {
        let ids = headers.get(HEADER).map(parse_ids).unwrap_or_default();
        let came_back = ids.contains(&self.own);
        // The oldest ids go first, so that invented ones do not displace those of a circle.
        let latest = ids.into_iter().rev().take(MOST - 1).rev();
        headers.insert(HEADER, header_of(latest.chain([self.own])));
        !came_back
    }

    /// Remembers the processes that a request came through. Returns `false` if its own process is one of them.
    pub(crate) fn came_through(&self, ids: &[u64]) -> bool {
        if ids.contains(&self.own) {
            return false;
        }
        let mut passed = self.passed.lock().unwrap_or_else(PoisonError::into_inner);
        for &id in ids {
            if let Some((_, last)) = passed.iter_mut().find(|(known, _)| *known == id) {
                *last = Instant::now();
            } else if passed.len() < MOST {
                passed.push((id, Instant::now()));
            }
        }
        true
    }
}

fn header_of(ids: impl Iterator<Item = u64>) -> HeaderValue {
    let ids: Vec<String> = ids.map(|id| format!("{id:016x}")).collect();
    // Contains only digits, letters and commas.
    HeaderValue::try_from(ids.join(",")).unwrap_or(HeaderValue::from_static(""))
}

/// The ids in a header. Invalid ones are skipped, because anybody may send the header.
pub(crate) fn parse_ids(value: &HeaderValue) -> Vec<u64> {
    let text = value.to_str().unwrap_or_default();
    text.split(',').filter_map(|id| u64::from_str_radix(id.trim(), 16).ok()).take(MOST).collect()
}

/// Whether a request to `destination` arrives at a listener on `endpoint`, both `HOST:PORT`, as far as the texts show:
/// this machine's own names and addresses other than the loopback are not known here.
pub(crate) fn leads_to(destination: &str, endpoint: &str) -> bool {
    let split = |text: &str| {
        let (host, port) = text.rsplit_once(':')?;
        let host = host.trim_start_matches('[').trim_end_matches(']').to_ascii_lowercase();
        // This listener accepts connections to all addresses, and a connection to this address goes to this machine.
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
    use super::*;

    /// Guarantees: an exporter sends its own id followed by those that arrived, and for no longer than they arrive; an
    /// id of the own process is detected, directly or through another.
    #[tokio::test(start_paused = true)]
    async fn circles() {
        let (first, second) = (Via::new(0xa), Via::new(0xb));
        let came = |from: &Via, to: &Via| to.came_through(&parse_ids(&from.header()));
        assert_eq!(first.header(), "000000000000000a");
        assert!(!came(&first, &first), "directly");
        assert!(came(&first, &second));
        assert_eq!(second.header(), "000000000000000a,000000000000000b");
        assert!(!came(&second, &first), "through another");
        tokio::time::advance(REMEMBERED).await;
        assert!(came(&second, &first));
    }

    /// Guarantees: a forwarded request lists the processes that it came through, also behind invented ids, and no others.
    #[tokio::test]
    async fn circles_of_forwarded_requests() {
        let (first, second) = (Via::new(0xa), Via::new(0xb));
        assert!(first.came_through(&[0xc]), "another request");
        let mut headers = HeaderMap::new();
        assert!(first.add_to(&mut headers) && second.add_to(&mut headers));
        assert_eq!(headers[HEADER], "000000000000000a,000000000000000b");
        assert!(!first.add_to(&mut headers));
        headers.insert(HEADER, HeaderValue::from_str(&"f,".repeat(MOST)).unwrap());
        assert!(first.add_to(&mut headers) && second.add_to(&mut headers) && !first.add_to(&mut headers));
    }

    /// Attack: whatever the header contains, no more than the maximum number of ids is remembered.
    #[tokio::test]
    async fn header_ids_are_bounded() {
        let via = Via::new(1);
        for text in ["", ",,,", "x", "\u{fe}\u{ff}", "ffffffffffffffffff", "-1", &"2,".repeat(5000)] {
            let Ok(value) = HeaderValue::from_bytes(text.as_bytes()) else { continue };
            assert!(parse_ids(&value).len() <= MOST && via.came_through(&parse_ids(&value)), "{text}");
        }
        (0x100..0x200).for_each(|id| assert!(via.came_through(&[id])));
        assert!(via.header().len() <= 17 * (MOST + 1));
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
