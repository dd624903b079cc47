//! The configuration under `receivers: {pprof: ...}`.

use std::collections::BTreeMap;
use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue, Uri};
use profbridge_engine::config::{
    ByteSize, Duration as Written, InsertedAttributes, Optional, Problem, Problems, Secret, Section,
};
use profbridge_engine::http_server::{check_connections, check_endpoint, check_positive};
use profbridge_net::body::BodyLimits;
use profbridge_net::server::ServerLimits;
use profbridge_net::tls::{TlsClientConfig, TlsServerConfig};
use serde::Deserialize;

/// The largest configurable profile size in MiB: a protobuf message is smaller than 2 GiB.
const LARGEST_MIB: u32 = 2047;

/// The attribute with the name of a service.
pub(crate) const SERVICE: &str = "service.name";

/// The attribute that distinguishes the instances of a service, and so identifies a process.
pub(crate) const INSTANCE: &str = "service.instance.id";

/// The section as written.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    push: Optional<Push>,
    scrape: Scrape,
    resource: ResourceAdditions,
}

/// Attributes to add to resources that lack them.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct ResourceAdditions {
    insert: InsertedAttributes,
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Push {
    endpoint: String,
    max_request_body_size: ByteSize,
    max_connections: usize,
    max_connections_per_peer: usize,
    idle_timeout: Written,
    tls: Option<TlsServerConfig>,
}

impl Default for Push {
    fn default() -> Self {
        let limits = ServerLimits::default();
        Self {
            // The default port of Pyroscope.
            endpoint: "127.0.0.1:4040".to_owned(),
            max_request_body_size: ByteSize::from_mib(64),
            max_connections: limits.max_connections,
            max_connections_per_peer: limits.max_connections_per_peer,
            idle_timeout: limits.idle_timeout.into(),
            tls: None,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Scrape {
    interval: Written,
    duration: Written,
    timeout: Written,
    max_profile_size: ByteSize,
    targets: BTreeMap<String, ScrapeTarget>,
}

impl Default for Scrape {
    fn default() -> Self {
        Self {
            interval: Written::from_secs(60),
            duration: Written::from_secs(10),
            timeout: Written::from_secs(10),
            max_profile_size: ByteSize::from_mib(16),
            targets: BTreeMap::new(),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct ScrapeTarget {
    endpoint: String,
    path: String,
    attributes: InsertedAttributes,
    headers: BTreeMap<String, Secret>,
    tls: TlsClientConfig,
}

impl Default for ScrapeTarget {
    fn default() -> Self {
        Self {
            endpoint: String::new(),
            path: "/debug/pprof/profile".to_owned(),
            attributes: InsertedAttributes::default(),
            headers: BTreeMap::new(),
            tls: TlsClientConfig::default(),
        }
    }
}

/// The checked settings. At least one of listener and targets is configured.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The listener, if enabled.
    pub push: Option<PushSettings>,
    /// The targets to scrape.
    pub scrape: ScrapeSettings,
    /// Attributes to add to resources that lack them.
    pub insert: Vec<(String, String)>,
}

/// The listener.
#[derive(Debug, Clone)]
pub struct PushSettings {
    /// The address, `HOST:PORT`.
    pub endpoint: String,
    /// Limits on a body. The size limit applies before and after decompression.
    pub body: BodyLimits,
    /// Limits on connections.
    pub server: ServerLimits,
    /// TLS.
    pub tls: Option<TlsServerConfig>,
}

/// Which programs to scrape, and how often.
#[derive(Debug, Clone)]
pub struct ScrapeSettings {
    /// The time from the start of one profile to the start of the next.
    pub interval: Duration,
    /// The duration of one profile, in whole seconds.
    pub duration: Duration,
    /// The maximum time to wait for the answer after `duration`.
    pub timeout: Duration,
    /// The maximum size of a profile in bytes, before and after decompression.
    pub max_bytes: usize,
    /// The programs to scrape.
    pub targets: Vec<TargetSettings>,
}

/// A program that serves profiles.
#[derive(Debug, Clone)]
pub struct TargetSettings {
    /// The program's name in the configuration.
    pub name: String,
    /// The URL of the program's profile, including the number of seconds.
    pub url: Uri,
    /// The program's host and port.
    pub host: String,
    /// The attributes of the program's profiles.
    pub attributes: Vec<(String, String)>,
    /// The headers of each request to the program.
    pub headers: HeaderMap,
    /// TLS settings.
    pub tls: TlsClientConfig,
}

impl Settings {
    /// Reads and checks a section.
    ///
    /// # Errors
    ///
    /// Every broken rule, with its position in `section`.
    pub fn read(section: &Section) -> Result<Self, Problems> {
        section.extract_checked(Config::check)
    }
}

impl Config {
    fn check(self, section: &Section) -> Result<Settings, Problems> {
        let mut problems = Vec::new();
        let push = match self.push.into_option() {
            None if self.scrape.targets.is_empty() => Some(Push::default()),
            written => written,
        };
        let push = push.map(|push| push.check(section, &mut problems));
        let scrape = self.scrape.check(section, &mut problems);
        let insert = self.resource.insert.check(section, "resource.insert", &mut problems);
        Problems::check(problems)?;
        Ok(Settings { push, scrape, insert })
    }
}

fn check_size(section: &Section, path: &str, size: ByteSize, hint: &str, problems: &mut Vec<Problem>) {
    if !(1..=ByteSize::from_mib(LARGEST_MIB).get()).contains(&size.get()) {
        problems.push(section.problem(path, format!("the largest size is from 1 byte to {LARGEST_MIB}MiB"), hint));
    }
}

impl Push {
    fn check(self, section: &Section, problems: &mut Vec<Problem>) -> PushSettings {
        let hint = "such as `127.0.0.1:4040`, or `0.0.0.0:4040` for all interfaces";
        check_endpoint(section, "push.endpoint", &self.endpoint, hint, problems);
        check_connections(section, "push.", [self.max_connections, self.max_connections_per_peer], problems);
        check_positive(section, "push.idle_timeout", self.idle_timeout, problems);
        let (path, hint) = ("push.max_request_body_size", "the default is 64MiB");
        check_size(section, path, self.max_request_body_size, hint, problems);
        PushSettings {
            endpoint: self.endpoint,
            body: BodyLimits::new(self.max_request_body_size.as_usize()),
            server: ServerLimits {
                max_connections: self.max_connections,
                max_connections_per_peer: self.max_connections_per_peer,
                idle_timeout: self.idle_timeout.get(),
                ..ServerLimits::default()
            },
            tls: self.tls,
        }
    }
}

impl Scrape {
    fn check(self, section: &Section, problems: &mut Vec<Problem>) -> ScrapeSettings {
        let (interval, duration) = (self.interval.get(), self.duration.get());
        if duration.is_zero() || duration.subsec_nanos() > 0 {
            let message = "a program is asked for a profile of whole seconds, at least one";
            problems.push(section.problem("scrape.duration", message, "the default is 10s"));
        }
        if interval < duration {
            let message = "the next profile would begin before one is over, and a program makes one at a time";
            problems.push(section.problem("scrape.interval", message, "at least `scrape.duration`"));
        }
        check_positive(section, "scrape.timeout", self.timeout, problems);
        let hint = "the default is 16MiB";
        check_size(section, "scrape.max_profile_size", self.max_profile_size, hint, problems);
        let seconds = duration.as_secs();
        let targets = self.targets.into_iter();
        let targets = targets.filter_map(|(name, target)| target.check(section, name, seconds, problems)).collect();
        let max_bytes = self.max_profile_size.as_usize();
        ScrapeSettings { interval, duration, timeout: self.timeout.get(), max_bytes, targets }
    }
}

impl ScrapeTarget {
    fn check(
        self,
        section: &Section,
        name: String,
        seconds: u64,
        problems: &mut Vec<Problem>,
    ) -> Option<TargetSettings> {
        let place = format!("scrape.targets.\"{name}\"");
        let key = |key: &str| format!("{place}.{key}");
        let before = problems.len();
        let url = self.url(seconds).map_err(|(which, message)| {
            let hint =
                "write `endpoint: http://host:6060`; the path is `/debug/pprof/profile` unless `path` names another";
            problems.push(section.problem(&key(which), message, hint));
        });
        let mut headers = HeaderMap::new();
        for (header, value) in &self.headers {
            match (HeaderName::try_from(header.as_str()), HeaderValue::try_from(value.expose())) {
                (Ok(header), Ok(mut value)) => {
                    value.set_sensitive(true);
                    headers.insert(header, value);
                }
                _ => problems.push(section.problem(&key(&format!("headers.\"{header}\"")), "this is no header", "")),
            }
        }
        let mut attributes = self.attributes.check(section, &key("attributes"), problems);
        let url = url.ok().filter(|_| problems.len() == before)?;
        let host = url.authority().map(ToString::to_string).unwrap_or_default();
        for (attribute, value) in [(SERVICE, &name), (INSTANCE, &host)] {
            if !attributes.iter().any(|(metadata, _)| metadata == attribute) {
                attributes.push((attribute.to_owned(), value.clone()));
            }
        }
        Some(TargetSettings { name, url, host, attributes, headers, tls: self.tls })
    }

    /// The URL to fetch, or the key with a wrong value and the reason.
    fn url(&self, seconds: u64) -> Result<Uri, (&'static str, &'static str)> {
        if self.endpoint.is_empty() {
            return Err(("endpoint", "the key `endpoint` is missing"));
        }
        let base: Uri = self.endpoint.parse().map_err(|_| ("endpoint", "this is not a URL"))?;
        if !matches!(base.scheme_str(), Some("http" | "https")) {
            return Err(("endpoint", "the URL does not begin with http:// or https://"));
        }
        let authority = base.authority().filter(|authority| !authority.host().is_empty());
        let authority = authority.ok_or(("endpoint", "the host is missing"))?;
        if authority.as_str().contains('@') {
            return Err(("endpoint", "user information belongs into a header"));
        }
        if base.path() != "/" || base.query().is_some() {
            return Err(("endpoint", "a path belongs into `path`"));
        }
        if !self.path.starts_with('/') {
            return Err(("path", "a path begins with `/`"));
        }
        let separator = if self.path.contains('?') { '&' } else { '?' };
        let rest = format!("{}{separator}seconds={seconds}", self.path);
        let mut parts = base.into_parts();
        parts.path_and_query = Some(rest.parse().map_err(|_| ("path", "this is not a path"))?);
        Uri::from_parts(parts).map_err(|_| ("endpoint", "this is not a URL"))
    }
}
