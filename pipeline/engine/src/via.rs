//! Through which processes telemetry has come, so that a circle is noticed.
//!
//! Every process has an id, drawn when it starts. An exporter names it in the header [`HEADER`] of each request, with
//! the ids that came with requests to the receivers of its pipelines. A receiver refuses a request that names its own
//! process: what it has taken once went out again, and came back directly or through others.
//!
//! Ids are known of an exporter and not of a batch: what a pipeline takes goes to all of its exporters, merged with
//! what others sent.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use http::{HeaderName, HeaderValue};
use tokio::time::Instant;

/// The header: ids between commas. gRPC has it as metadata.
pub const HEADER: HeaderName = HeaderName::from_static("x-profbridge-via");

/// The most ids that are read of a request, and remembered. More than so many processes in a row are none.
const MOST: usize = 16;

/// For so long an id is named after a request came through its process.
const REMEMBERED: Duration = Duration::from_secs(600);

/// The ids that an exporter names. Cheap to clone; clones share them.
#[derive(Debug, Clone)]
pub struct Via {
    own: u64,
    passed: Arc<Mutex<Vec<(u64, Instant)>>>,
}

impl Via {
    /// Of an exporter of the process with this id, to which nothing has come yet.
    pub fn new(own: u64) -> Self {
        Self { own, passed: Arc::default() }
    }

    /// The header's value.
    pub fn header(&self) -> HeaderValue {
        let mut passed = self.passed.lock().unwrap_or_else(PoisonError::into_inner);
        passed.retain(|(_, last)| last.elapsed() < REMEMBERED);
        let ids = passed.iter().map(|(id, _)| *id).chain([self.own]).map(|id| format!("{id:016x}"));
        // Digits, letters and commas.
        HeaderValue::try_from(ids.collect::<Vec<_>>().join(",")).unwrap_or(HeaderValue::from_static(""))
    }

    /// Takes note of the processes that a request came through. `false` where its own is among them.
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

/// The ids of a header. What is none is passed over: anybody may send it.
pub(crate) fn ids_of(value: &HeaderValue) -> Vec<u64> {
    let text = value.to_str().unwrap_or_default();
    text.split(',').filter_map(|id| u64::from_str_radix(id.trim(), 16).ok()).take(MOST).collect()
}

/// Whether a request to `destination` arrives at who listens at `endpoint`, both `HOST:PORT`, as far as their words
/// tell: this machine's own names and addresses beyond the loopback are not known here.
pub(crate) fn leads_to(destination: &str, endpoint: &str) -> bool {
    let split = |text: &str| {
        let (host, port) = text.rsplit_once(':')?;
        let host = host.trim_start_matches('[').trim_end_matches(']').to_ascii_lowercase();
        // Listening there is to listen everywhere, and a connection to it goes to this machine.
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

    /// Guarantees: an exporter names its own process behind those that something came through, and no longer than they
    /// send; what came through the own process is known, directly or through another.
    #[tokio::test(start_paused = true)]
    async fn circles() {
        let (first, second) = (Via::new(0xa), Via::new(0xb));
        let came = |from: &Via, to: &Via| to.came_through(&ids_of(&from.header()));
        assert_eq!(first.header(), "000000000000000a");
        assert!(!came(&first, &first), "directly");
        assert!(came(&first, &second));
        assert_eq!(second.header(), "000000000000000a,000000000000000b");
        assert!(!came(&second, &first), "through another");
        tokio::time::advance(REMEMBERED).await;
        assert!(came(&second, &first));
    }

    /// Attack: whatever stands in the header, no more is remembered than a row of processes may have.
    #[tokio::test]
    async fn any_header() {
        let via = Via::new(1);
        for text in ["", ",,,", "x", "\u{fe}\u{ff}", "ffffffffffffffffff", "-1", &"2,".repeat(5000)] {
            let Ok(value) = HeaderValue::from_bytes(text.as_bytes()) else { continue };
            assert!(ids_of(&value).len() <= MOST && via.came_through(&ids_of(&value)), "{text}");
        }
        (0x100..0x200).for_each(|id| assert!(via.came_through(&[id])));
        assert!(via.header().len() <= 17 * (MOST + 1));
    }

    /// Guarantees: a destination that names a listener's own address in any of its forms leads to it, and no other.
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
