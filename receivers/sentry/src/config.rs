//! The configuration under `receivers: {sentry: ...}`.

use std::collections::{BTreeMap, BTreeSet};

use profbridge_engine::config::{ByteSize, Duration as Written, Problems, Secret, Section};
use profbridge_engine::http_server::{check_connections, check_endpoint, check_positive, is_exposed_host};
use profbridge_net::body::BodyLimits;
use profbridge_net::server::ServerLimits;
use profbridge_net::tls::TlsServerConfig;
use profbridge_wire::sentry::{client_auth, envelope, item_limits};
use serde::Deserialize;

/// The section as written.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// The address to listen on.
    pub endpoint: String,
    /// The keys that clients may use: the part of their DSN before the `@`. Empty allows any key, which is refused if
    /// other machines can reach the endpoint.
    pub public_keys: Vec<Secret>,
    /// The origins whose web pages may send, such as `https://shop.example`; `*` stands for any characters.
    pub cors_origins: Vec<String>,
    /// How long a request waits for memory and queue room before it is refused. SDKs discard refused data.
    pub admission_timeout: Written,
    /// Whether to find the sending processes on this machine by their sockets.
    pub resolve_clients: bool,
    /// Whether to drop the spans that an SDK creates for its own posts to this receiver.
    pub drop_own_requests: bool,
    /// Maximum size of a body, before and after decompression.
    pub max_request_body_size: ByteSize,
    /// Maximum sizes of some item types, if Sentry's server has other limits than a default Relay.
    pub max_item_sizes: BTreeMap<String, ByteSize>,
    /// Maximum number of connections.
    pub max_connections: usize,
    /// Maximum number of connections from one address.
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
            // The default port of a Relay or of a self-hosted Sentry.
            endpoint: "127.0.0.1:9000".to_owned(),
            public_keys: Vec::new(),
            cors_origins: Vec::new(),
            // SDKs give up after 30 s (Python's urllib3 timeout) or wait forever (Node).
            admission_timeout: Written::from_secs(10),
            resolve_clients: false,
            drop_own_requests: true,
            max_request_body_size: ByteSize::new(envelope::MAX_BYTES as u64),
            max_item_sizes: BTreeMap::new(),
            max_connections: limits.max_connections,
            max_connections_per_peer: limits.max_connections_per_peer,
            idle_timeout: limits.idle_timeout.into(),
            tls: None,
        }
    }
}

/// The checked settings.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The address, `HOST:PORT`.
    pub endpoint: String,
    /// The keys that clients may use, in lower case; `None` allows any.
    pub keys: Option<BTreeSet<Box<str>>>,
    /// The origins whose web pages may send.
    pub cors_origins: Vec<String>,
    /// Maximum sizes of some item types, in bytes.
    pub max_item_sizes: BTreeMap<String, usize>,
    /// How long a request waits before it is refused.
    pub admission_timeout: std::time::Duration,
    /// Whether to find the sending processes on this machine.
    pub resolve_clients: bool,
    /// Whether to drop the spans that an SDK creates for its own posts to this receiver.
    pub drop_own_requests: bool,
    /// Limits on a body.
    pub body: BodyLimits,
    /// Limits on connections.
    pub server: ServerLimits,
    /// TLS.
    pub tls: Option<TlsServerConfig>,
}

impl Settings {
    /// Reads and checks a section.
    ///
    /// # Errors
    ///
    /// All broken rules, each at its key.
    pub fn read(section: &Section) -> Result<Self, Problems> {
        section.extract_checked(Config::check)
    }
}

impl Config {
    fn check(self, section: &Section) -> Result<Settings, Problems> {
        let mut problems = Vec::new();
        let hint = "such as `127.0.0.1:9000`, or `0.0.0.0:9000` for all interfaces";
        check_endpoint(section, "endpoint", &self.endpoint, hint, &mut problems);
        check_connections(section, "", [self.max_connections, self.max_connections_per_peer], &mut problems);
        check_positive(section, "idle_timeout", self.idle_timeout, &mut problems);
        // Positions in a body are 32-bit numbers.
        if !(1..=u64::from(u32::MAX)).contains(&self.max_request_body_size.get()) {
            let message = "the largest body is from 1 byte to less than 4GiB";
            problems.push(section.problem("max_request_body_size", message, "the default is 200MiB, as Sentry has it"));
        }
        for kind in self.max_item_sizes.keys() {
            if !item_limits::limited_types().any(|known| known == kind) {
                let hint = format!("these are: {}", item_limits::limited_types().collect::<Vec<_>>().join(", "));
                let path = format!("max_item_sizes.\"{kind}\"");
                problems.push(section.problem(&path, "no such type of items is limited", hint));
            }
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
            cors_origins: self.cors_origins,
            max_item_sizes: self.max_item_sizes.into_iter().map(|(kind, size)| (kind, size.as_usize())).collect(),
            admission_timeout: self.admission_timeout.get(),
            resolve_clients: self.resolve_clients,
            drop_own_requests: self.drop_own_requests,
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
