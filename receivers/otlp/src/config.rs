//! The configuration under `receivers: {otlp: ...}`.
//!
//! The keys are the Collector's (opentelemetry-collector `config/configgrpc/README.md`, `config/confighttp/README.md`).
//! The Collector's keys that have no meaning here are refused like any unknown key.

use std::time::Duration;

use http::Uri;
use profbridge_engine::body::LINGER;
use profbridge_engine::config::{
    ByteSize, Duration as Written, InsertedAttributes, Optional, Problem, Problems, Section,
};
use profbridge_engine::http_server::{check_connections, check_endpoint, check_positive};
use profbridge_net::body::BodyLimits;
use profbridge_net::server::ServerLimits;
use profbridge_net::tls::{HttpVersions, TlsServerConfig};
use serde::Deserialize;

/// The largest configurable request size in MiB: a protobuf message is smaller than 2 GiB.
const LARGEST_MIB: u32 = 2047;

/// The section as written.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    protocols: Protocols,
    resource: ResourceAdditions,
}

/// Attributes to add to resources that lack them.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct ResourceAdditions {
    local_host: bool,
    insert: InsertedAttributes,
}

impl Default for ResourceAdditions {
    fn default() -> Self {
        Self { local_host: true, insert: InsertedAttributes::default() }
    }
}

/// The protocols to serve: those that are listed, or both if none is.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Protocols {
    grpc: Optional<Grpc>,
    http: Optional<Http>,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Grpc {
    endpoint: String,
    max_recv_msg_size_mib: u32,
    max_concurrent_streams: u32,
    max_connections: usize,
    max_connections_per_peer: usize,
    keepalive: Keepalive,
    tls: Option<TlsServerConfig>,
    forward_unsupported: String,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Keepalive {
    server_parameters: ServerParameters,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct ServerParameters {
    max_connection_age: Written,
    max_connection_age_grace: Written,
    max_connection_idle: Written,
    time: Written,
    timeout: Written,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Http {
    endpoint: String,
    max_request_body_size: ByteSize,
    max_connections: usize,
    max_connections_per_peer: usize,
    idle_timeout: Written,
    tls: Option<TlsServerConfig>,
    forward_unsupported: String,
}

impl Default for Grpc {
    fn default() -> Self {
        Self {
            endpoint: "127.0.0.1:4317".to_owned(),
            // The size that opentelemetry-proto docs/specification.md recommends.
            max_recv_msg_size_mib: 64,
            max_concurrent_streams: ServerLimits::default().max_concurrent_streams,
            max_connections: ServerLimits::default().max_connections,
            max_connections_per_peer: ServerLimits::default().max_connections_per_peer,
            keepalive: Keepalive::default(),
            tls: None,
            forward_unsupported: String::new(),
        }
    }
}

impl Default for ServerParameters {
    fn default() -> Self {
        let limits = ServerLimits::default();
        Self {
            // Zero means no limit, as in the Collector.
            max_connection_age: limits.max_connection_age.unwrap_or_default().into(),
            max_connection_age_grace: limits.max_connection_age_grace.unwrap_or_default().into(),
            max_connection_idle: limits.idle_timeout.into(),
            time: limits.keepalive_interval.unwrap_or_default().into(),
            timeout: limits.keepalive_timeout.into(),
        }
    }
}

impl Default for Http {
    fn default() -> Self {
        Self {
            endpoint: "127.0.0.1:4318".to_owned(),
            max_request_body_size: ByteSize::from_mib(64),
            max_connections: ServerLimits::default().max_connections,
            max_connections_per_peer: ServerLimits::default().max_connections_per_peer,
            idle_timeout: ServerLimits::default().idle_timeout.into(),
            tls: None,
            forward_unsupported: String::new(),
        }
    }
}

/// The checked settings. At least one protocol is enabled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// OTLP over gRPC.
    pub grpc: Option<ProtocolSettings>,
    /// OTLP over HTTP.
    pub http: Option<ProtocolSettings>,
    /// Attributes to add to resources that lack them.
    pub resource: ResourceSettings,
}

/// Attributes to add to resources that lack them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResourceSettings {
    /// Whether resources of loopback peers that name no host get the id and name of this host.
    pub local_host: bool,
    /// The keys and values of attributes that are added to every resource without them.
    pub insert: Vec<(String, String)>,
}

/// The settings of one protocol.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProtocolSettings {
    /// `host:port`.
    pub endpoint: String,
    /// Limits on the size and duration of a message. The size limit applies before and after decompression.
    pub body: BodyLimits,
    /// The time for which the rest of a refused body is read and discarded, so that its sender reads the answer.
    pub linger: Duration,
    /// Limits on connections.
    pub server: ServerLimits,
    /// TLS, including the authority of client certificates.
    pub tls: Option<TlsServerConfig>,
    /// The server for requests of unsupported signals: scheme, host and port, and for HTTP the prefix of the signals'
    /// paths.
    pub forward_unsupported: Option<Uri>,
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
        let Protocols { grpc, http } = self.protocols;
        let (grpc, http) = match (grpc.into_option(), http.into_option()) {
            (None, None) => (Some(Grpc::default()), Some(Http::default())),
            written => written,
        };
        let mut problems = Vec::new();
        if let (Some(grpc), Some(http)) = (&grpc, &http)
            && grpc.endpoint == http.endpoint
            && !grpc.endpoint.ends_with(":0")
        {
            let message = format!("gRPC and HTTP cannot both listen on {}", grpc.endpoint);
            problems.push(section.problem("protocols.http.endpoint", message, "OTLP's ports are 4317 and 4318"));
        }
        let grpc = grpc.map(|grpc| grpc.check(section, &mut problems));
        let http = http.map(|http| http.check(section, &mut problems));
        let ResourceAdditions { local_host, insert } = self.resource;
        let insert = insert.check(section, "resource.insert", &mut problems);
        Problems::check(problems)?;
        Ok(Settings { grpc, http, resource: ResourceSettings { local_host, insert } })
    }
}

impl Grpc {
    fn check(self, section: &Section, problems: &mut Vec<Problem>) -> ProtocolSettings {
        endpoint(section, "protocols.grpc.endpoint", &self.endpoint, problems);
        if !(1..=LARGEST_MIB).contains(&self.max_recv_msg_size_mib) {
            let message = format!("the largest message is from 1 to {LARGEST_MIB} MiB");
            problems.push(section.problem("protocols.grpc.max_recv_msg_size_mib", message, "the default is 64"));
        }
        if self.max_concurrent_streams == 0 {
            let message = "a connection needs at least one stream";
            problems.push(section.problem("protocols.grpc.max_concurrent_streams", message, "the default is 64"));
        }
        let connections = [self.max_connections, self.max_connections_per_peer];
        check_connections(section, "protocols.grpc.", connections, problems);
        let ServerParameters { max_connection_age, max_connection_age_grace, max_connection_idle, time, timeout } =
            self.keepalive.server_parameters;
        let limit = |time: Written| Some(time.get()).filter(|time| !time.is_zero());
        let parameters = [("max_connection_idle", max_connection_idle), ("time", time), ("timeout", timeout)];
        for (name, value) in parameters {
            let path = format!("protocols.grpc.keepalive.server_parameters.{name}");
            check_positive(section, &path, value, problems);
        }
        let path = "protocols.grpc.forward_unsupported";
        let forward_unsupported = signal_forwarder(section, path, &self.forward_unsupported, problems);
        ProtocolSettings {
            endpoint: self.endpoint,
            body: BodyLimits::new(ByteSize::from_mib(self.max_recv_msg_size_mib).as_usize()),
            linger: LINGER,
            server: ServerLimits {
                versions: HttpVersions::Http2,
                max_connections: self.max_connections,
                max_connections_per_peer: self.max_connections_per_peer,
                max_concurrent_streams: self.max_concurrent_streams,
                max_connection_age: limit(max_connection_age),
                max_connection_age_grace: limit(max_connection_age_grace),
                idle_timeout: max_connection_idle.get(),
                keepalive_interval: Some(time.get()),
                keepalive_timeout: timeout.get(),
                ..ServerLimits::default()
            },
            tls: self.tls,
            forward_unsupported,
        }
    }
}

impl Http {
    fn check(self, section: &Section, problems: &mut Vec<Problem>) -> ProtocolSettings {
        endpoint(section, "protocols.http.endpoint", &self.endpoint, problems);
        if !(1..=ByteSize::from_mib(LARGEST_MIB).get()).contains(&self.max_request_body_size.get()) {
            let message = format!("the largest body is from 1 byte to {LARGEST_MIB}MiB");
            problems.push(section.problem("protocols.http.max_request_body_size", message, "the default is 64MiB"));
        }
        check_positive(section, "protocols.http.idle_timeout", self.idle_timeout, problems);
        let connections = [self.max_connections, self.max_connections_per_peer];
        check_connections(section, "protocols.http.", connections, problems);
        let path = "protocols.http.forward_unsupported";
        let forward_unsupported = signal_forwarder(section, path, &self.forward_unsupported, problems);
        ProtocolSettings {
            endpoint: self.endpoint,
            body: BodyLimits::new(self.max_request_body_size.as_usize()),
            linger: LINGER,
            server: ServerLimits {
                max_connections: self.max_connections,
                max_connections_per_peer: self.max_connections_per_peer,
                idle_timeout: self.idle_timeout.get(),
                ..ServerLimits::default()
            },
            tls: self.tls,
            forward_unsupported,
        }
    }
}

/// The server for unsupported signals, if one is configured.
fn signal_forwarder(section: &Section, path: &str, written: &str, problems: &mut Vec<Problem>) -> Option<Uri> {
    if written.is_empty() {
        return None;
    }
    let url = written.parse::<Uri>().ok().filter(|url| {
        let known = matches!(url.scheme_str(), Some("http" | "https"));
        let host = url.host().is_some_and(|host| !host.is_empty());
        let user = url.authority().is_some_and(|authority| authority.as_str().contains('@'));
        known && host && !user && url.query().is_none()
    });
    if url.is_none() {
        let hint = "write `http://HOST:PORT`, or `https://HOST:PORT`";
        problems.push(section.problem(path, "this is no URL of a server", hint));
    }
    url
}

fn endpoint(section: &Section, path: &str, endpoint: &str, problems: &mut Vec<Problem>) {
    let hint = "such as `127.0.0.1:4317`, or `0.0.0.0:4317` for all interfaces";
    check_endpoint(section, path, endpoint, hint, problems);
}
