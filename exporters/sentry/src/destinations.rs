//! All destinations of an exporter: configured DSNs, and the projects of clients whose envelopes it forwards.

use std::collections::HashMap;
use std::fmt;
use std::str::FromStr;
use std::sync::{Arc, Mutex, PoisonError};

use profbridge_model::envelope::{PublicKey, RequestMeta};
use profbridge_net::client::host_and_port;
use profbridge_wire::sentry::Dsn;
use profbridge_wire::sentry::dsn::{DsnError, Scheme};

use crate::destination::Destination;

/// The most client projects and keys in memory. Beyond that, an idle one is evicted.
const MAX_CLIENTS: usize = 1024;

/// A placeholder key to check an upstream's address with.
const NO_KEY: &str = "00000000000000000000000000000000";

/// A Sentry server without a project: `https://o1.ingest.sentry.io`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Upstream {
    scheme: Scheme,
    /// Host, port and path.
    rest: Box<str>,
}

impl FromStr for Upstream {
    type Err = DsnError;

    fn from_str(text: &str) -> Result<Self, DsnError> {
        let text = text.trim().trim_end_matches('/');
        let (scheme, rest) = text.split_once("://").ok_or(DsnError::Scheme)?;
        if rest.contains('@') {
            return Err(DsnError::Host);
        }
        let dsn: Dsn = format!("{scheme}://{NO_KEY}@{rest}/1").parse()?;
        Ok(Self { scheme: dsn.scheme(), rest: rest.into() })
    }
}

impl Upstream {
    /// URL of a path on this server. `behind` is the path.
    pub(crate) fn url(&self, behind: &str) -> String {
        format!("{}://{}{behind}", self.scheme, self.rest)
    }

    /// Whether `server`, as `HOST` or `HOST:PORT`, is this upstream.
    fn is(&self, server: &str) -> bool {
        let (default, authority) = match self.scheme {
            Scheme::Https => (":443", self.authority()),
            Scheme::Http => (":80", self.authority()),
        };
        let plain = |authority: &'_ str| authority.strip_suffix(default).unwrap_or(authority).to_ascii_lowercase();
        plain(server) == plain(authority)
    }

    /// Host and port.
    fn authority(&self) -> &str {
        self.rest.split('/').next().unwrap_or_default()
    }

    fn dsn(&self, project: u64, key: &PublicKey) -> Result<Dsn, DsnError> {
        format!("{}://{}@{}/{project}", self.scheme, key.0, self.rest).parse()
    }
}

/// All destinations of an exporter.
pub struct Destinations {
    configured: Vec<Arc<Destination>>,
    upstreams: Vec<Upstream>,
    clients: Mutex<HashMap<ClientProject, Arc<Destination>>>,
}

/// A client's project: index of the upstream, project id and public key.
type ClientProject = (usize, u64, PublicKey);

impl Destinations {
    /// Creates the set from configured DSNs and from the upstreams for clients' envelopes.
    pub fn new(configured: Vec<Arc<Destination>>, upstreams: Vec<Upstream>) -> Self {
        Self { configured, upstreams, clients: Mutex::default() }
    }

    /// Whether nothing is configured.
    pub fn is_empty(&self) -> bool {
        self.configured.is_empty() && self.upstreams.is_empty()
    }

    /// Whether any destination uses TLS.
    pub fn is_encrypted(&self) -> bool {
        let upstreams = self.upstreams.iter().map(|upstream| upstream.scheme);
        self.configured.iter().map(|to| to.dsn.scheme()).chain(upstreams).any(|scheme| scheme == Scheme::Https)
    }

    /// The servers, as `HOST:PORT` each.
    pub fn addresses(&self) -> Vec<String> {
        // Any key and project will do for an upstream's address.
        let upstreams = self.upstreams.iter().filter_map(|upstream| upstream.dsn(1, &PublicKey(NO_KEY.into())).ok());
        let upstreams: Vec<Dsn> = upstreams.collect();
        let dsns = self.configured.iter().map(|to| &to.dsn).chain(&upstreams);
        dsns.filter_map(|dsn| Some(host_and_port(&dsn.envelope_url().parse().ok()?))).collect()
    }

    /// The configured DSN at an index.
    pub fn configured(&self, position: usize) -> &Arc<Destination> {
        &self.configured[position]
    }

    /// The upstream with the name `server`, or the first one without a name, and its index.
    pub(crate) fn upstream_of(&self, server: Option<&str>) -> Option<(usize, &Upstream)> {
        let mut all = self.upstreams.iter().enumerate();
        all.find(|(_, upstream)| server.is_none_or(|server| upstream.is(server)))
    }

    /// The destination of an envelope under its client's own project and key. `None` if there is no such upstream, or
    /// the client did not authenticate.
    ///
    /// # Errors
    ///
    /// If too many other clients' projects are in use.
    pub fn of_client(&self, meta: &RequestMeta) -> Option<Result<Arc<Destination>, TooMany>> {
        let (position, upstream) = self.upstream_of(meta.server.as_deref())?;
        let (project, key) = (meta.project_id?, meta.public_key.as_ref()?);
        let mut clients = self.clients.lock().unwrap_or_else(PoisonError::into_inner);
        let client = (position, project, key.clone());
        if let Some(known) = clients.get(&client) {
            return Some(Ok(Arc::clone(known)));
        }
        // Project and key were validated, so this is a valid DSN.
        let destination = Arc::new(Destination::new(upstream.dsn(project, key).ok()?).ok()?);
        if clients.len() >= MAX_CLIENTS {
            // A destination that only this map references has no request in flight. Prefer to evict one without pending
            // losses, but evict one with losses if necessary: a project that does not exist never receives its report,
            // and must not displace one that does exist.
            let idle = clients.iter().filter(|(_, to)| Arc::strong_count(to) == 1);
            let idle = idle.min_by_key(|(_, to)| !to.report().is_empty());
            let Some(idle) = idle.map(|(client, _)| client.clone()) else { return Some(Err(TooMany)) };
            clients.remove(&idle);
        }
        clients.insert(client, Arc::clone(&destination));
        Some(Ok(destination))
    }

    /// All destinations.
    pub fn all(&self) -> Vec<Arc<Destination>> {
        let clients = self.clients.lock().unwrap_or_else(PoisonError::into_inner);
        self.configured.iter().chain(clients.values()).cloned().collect()
    }
}

impl fmt::Debug for Destinations {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Destinations").field("configured", &self.configured).finish_non_exhaustive()
    }
}

/// More than 1024 client projects have envelopes in flight.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TooMany;

#[cfg(test)]
mod tests {
    use profbridge_wire::sentry::Category;
    use profbridge_wire::sentry::client_report::Discarded;

    use super::*;

    fn meta(project: u64, key: &str) -> RequestMeta {
        RequestMeta { project_id: Some(project), public_key: Some(PublicKey(key.into())), ..RequestMeta::default() }
    }

    const KEY: &str = "0123456789abcdef0123456789abcdef";

    /// Guarantees: each client's project and key is one destination on the upstream server, with its own state. Without
    /// an upstream, or without a key, the client has no destination.
    /// rule: transport#rate-limits-dsn
    #[test]
    fn clients() {
        let upstream = "https://sentry.example:9000/prefix/".parse().unwrap();
        let destinations = Destinations::new(Vec::new(), vec![upstream]);
        let first = destinations.of_client(&meta(42, KEY)).unwrap().unwrap();
        assert_eq!(&first.url, "https://sentry.example:9000/prefix/api/42/envelope/");
        assert!(Arc::ptr_eq(&first, &destinations.of_client(&meta(42, KEY)).unwrap().unwrap()));
        assert!(!Arc::ptr_eq(&first, &destinations.of_client(&meta(43, KEY)).unwrap().unwrap()));
        assert!(destinations.of_client(&RequestMeta::default()).is_none());
        assert!(Destinations::new(Vec::new(), Vec::new()).of_client(&meta(42, KEY)).is_none());
        assert!(destinations.is_encrypted() && !destinations.is_empty());
    }

    /// Guarantees: with several upstreams, an envelope is sent to the one that its client names, even if another has
    /// the same project and key. The first receives envelopes that name none, and an unknown name has no destination.
    #[test]
    fn several_upstreams() {
        let upstreams = ["https://a.example", "http://b.example:9000/prefix"].map(|text| text.parse().unwrap());
        let destinations = Destinations::new(Vec::new(), upstreams.into());
        let of = |server: Option<&str>| {
            let meta = RequestMeta { server: server.map(Into::into), ..meta(42, KEY) };
            destinations.of_client(&meta).map(|found| found.unwrap().url.to_string())
        };
        assert_eq!(of(None).as_deref(), Some("https://a.example/api/42/envelope/"));
        assert_eq!(of(Some("A.example:443")), of(None));
        assert_eq!(of(Some("b.example:9000")).as_deref(), Some("http://b.example:9000/prefix/api/42/envelope/"));
        assert_eq!((of(Some("b.example")), of(Some("c.example"))), (None, None));
    }

    /// Attack: a client that invents projects does not make the exporter store all of them, nor evict one that has
    /// requests in flight.
    #[test]
    fn bounded() {
        let destinations = Destinations::new(Vec::new(), vec!["http://h".parse().unwrap()]);
        let mut held = Vec::new();
        for project in 0..MAX_CLIENTS as u64 {
            held.push(destinations.of_client(&meta(project, KEY)).unwrap().unwrap());
        }
        assert_eq!(destinations.of_client(&meta(5000, KEY)).unwrap().unwrap_err(), TooMany);
        held.truncate(MAX_CLIENTS - 1);
        destinations.of_client(&meta(5000, KEY)).unwrap().unwrap();
        assert_eq!(destinations.all().len(), MAX_CLIENTS);
        assert!(Arc::ptr_eq(&held[0], &destinations.of_client(&meta(0, KEY)).unwrap().unwrap()));
    }

    /// Attack: a client that invents projects, whose losses can never be reported, does not lock out others. If
    /// possible, a destination with pending losses is not evicted.
    #[test]
    fn invented_projects() {
        let destinations = Destinations::new(Vec::new(), vec!["http://h".parse().unwrap()]);
        let of = |project| destinations.of_client(&meta(project, KEY)).unwrap();
        for project in 0..MAX_CLIENTS as u64 {
            of(project).unwrap().report().record(Discarded::SendError, Category::Error, 1);
        }
        std::mem::take(&mut *of(7).unwrap().report());
        of(5000).unwrap();
        assert_eq!(destinations.all().iter().filter(|to| to.report().is_empty()).count(), 1, "it has the place of 7");
        of(5000).unwrap().report().record(Discarded::SendError, Category::Error, 1);
        of(5001).unwrap();
        assert_eq!(destinations.all().len(), MAX_CLIENTS);
    }

    /// Guarantees: anything but a server's address is refused, including a DSN.
    #[test]
    fn upstreams() {
        for text in ["", "sentry.io", "ftp://h", "https://", "https://k@h", "https://h?x"] {
            assert!(text.parse::<Upstream>().is_err(), "{text}");
        }
    }
}
