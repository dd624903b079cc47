//! What is written under `receivers: {sentry: ...}` and what it means.

use std::collections::BTreeSet;

use profbridge_engine::config::{ByteSize, Duration as Written, Problems, Secret, Section};
use profbridge_engine::http_server::{check_connections, check_endpoint, check_positive, is_exposed_host};
use profbridge_net::body::BodyLimits;
use profbridge_net::server::ServerLimits;
use profbridge_net::tls::TlsServerConfig;
use profbridge_wire::sentry::{client_auth, envelope};
use serde::Deserialize;

/// What is written.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// Where it listens.
    pub endpoint: String,
    /// The keys that clients may use: the part of their DSN before the `@`. None: any, which is refused where others
    /// than this machine can reach the endpoint.
    pub public_keys: Vec<Secret>,
    /// How long a request waits for memory, and for room in the queues behind it, before it is refused. SDKs discard
    /// what is refused.
    pub admission_timeout: Written,
    /// Whether the processes of this machine that send are looked for, by their sockets.
    pub resolve_clients: bool,
    /// The largest body, before and after decompression.
    pub max_request_body_size: ByteSize,
    /// Connections at the same time.
    pub max_connections: usize,
    /// Connections at the same time from one address.
    pub max_connections_per_peer: usize,
    /// How long a connection may stay open without a request.
    pub idle_timeout: Written,
    /// TLS.
    pub tls: Option<TlsServerConfig>,
}

impl Default for Config {
    fn default() -> Self {
        let limits = ServerLimits::default();
        Self {
            // The port of a Relay or of a self-hosted Sentry.
            endpoint: "127.0.0.1:9000".to_owned(),
            public_keys: Vec::new(),
            // SDKs give up after 30 s (Python's urllib3 timeout) or wait for ever (Node).
            admission_timeout: Written::from_secs(10),
            resolve_clients: false,
            max_request_body_size: ByteSize::new(envelope::MAX_BYTES as u64),
            max_connections: limits.max_connections,
            max_connections_per_peer: limits.max_connections_per_peer,
            idle_timeout: limits.idle_timeout.into(),
            tls: None,
        }
    }
}

/// What it means, checked.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The address, `HOST:PORT`.
    pub endpoint: String,
    /// The keys that clients may use, in lower case; `None`: any.
    pub keys: Option<BTreeSet<Box<str>>>,
    /// How long a request waits before it is refused.
    pub admission_timeout: std::time::Duration,
    /// Whether the processes of this machine that send are looked for.
    pub resolve_clients: bool,
    /// What a body may be.
    pub body: BodyLimits,
    /// What connections may cost.
    pub server: ServerLimits,
    /// TLS.
    pub tls: Option<TlsServerConfig>,
}

impl Settings {
    /// Reads and checks a section.
    ///
    /// # Errors
    ///
    /// All rules that are broken, each with its place.
    pub fn read(section: &Section) -> Result<Self, Problems> {
        section.extract::<Config>()?.check(section)
    }
}

impl Config {
    fn check(self, section: &Section) -> Result<Settings, Problems> {
        let mut problems = Vec::new();
        let hint = "such as `127.0.0.1:9000`, or `0.0.0.0:9000` for all interfaces";
        check_endpoint(section, "endpoint", &self.endpoint, hint, &mut problems);
        check_connections(section, "", [self.max_connections, self.max_connections_per_peer], &mut problems);
        check_positive(section, "idle_timeout", self.idle_timeout, &mut problems);
        if !(1..=envelope::MAX_BYTES as u64).contains(&self.max_request_body_size.get()) {
            let message = "the largest body is from 1 byte to 200MiB, which is Sentry's own limit";
            problems.push(section.problem("max_request_body_size", message, "the default is 200MiB"));
        }
        let mut keys = BTreeSet::new();
        for (position, key) in self.public_keys.iter().enumerate() {
            match client_auth::public_key(key.expose().trim()) {
                Ok(key) => {
                    keys.insert((*key.0).into());
                }
                Err(error) => {
                    let hint = "it is the part of a DSN between `://` and `@`";
                    problems.push(section.problem(&format!("public_keys.{position}"), error.to_string(), hint));
                }
            }
        }
        if self.public_keys.is_empty() && is_exposed_host(&self.endpoint) {
            let message = "others than this machine can reach the endpoint, and any key would be taken";
            let hint = "name the keys of your projects in `public_keys`, or listen on 127.0.0.1";
            problems.push(section.problem("endpoint", message, hint));
        }
        Problems::check(problems)?;
        Ok(Settings {
            endpoint: self.endpoint,
            keys: (!keys.is_empty()).then_some(keys),
            admission_timeout: self.admission_timeout.get(),
            resolve_clients: self.resolve_clients,
            body: BodyLimits::new(self.max_request_body_size.as_usize()),
            server: ServerLimits {
                max_connections: self.max_connections,
                max_connections_per_peer: self.max_connections_per_peer,
                idle_timeout: self.idle_timeout.get(),
                ..ServerLimits::default()
            },
            tls: self.tls,
        })
    }
}
