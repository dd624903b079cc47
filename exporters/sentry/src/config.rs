//! Configuration of the exporter: as written ([`Config`]), and checked ([`Settings`]).
//!
//! `routing` uses the vocabulary of the Collector's own Sentry exporter (opentelemetry-collector-contrib
//! `exporter/sentryexporter`), with DSNs in place of projects.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use profbridge_codec::sentry::ChunkConfig;
use profbridge_engine::config::{Duration, Problems, Secret, Section};
use profbridge_engine::delivery::{DeliverySettings, QueueConfig, RetryConfig};
use profbridge_net::tls::TlsClientConfig;
use profbridge_wire::sentry::Dsn;
use profbridge_wire::sentry::chunk;
use serde::Deserialize;

use crate::destination::Destination;
use crate::destinations::{Destinations, Upstream};

/// The exporter's section, as written.
#[derive(Debug, Clone, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// The DSN for everything that `routing` does not send elsewhere. Empty: none.
    pub dsn: Secret,
    /// The server that receives envelopes of SDKs under their own project and key, such as
    /// `https://o1.ingest.sentry.io`. Several are separated by commas: the `dsn` in an envelope's header selects one,
    /// and the first receives envelopes that name none. Empty: envelopes are sent to `dsn`, under its key.
    pub upstream: String,
    /// Whether profiles of sample format V1 in envelopes are converted to chunks and linked to their transaction.
    /// Otherwise they are forwarded unchanged.
    pub upgrade_v1: bool,
    /// How spans that were received as OTLP are sent.
    pub spans: SpanMode,
    /// Maps processes to projects.
    pub routing: Routing,
    /// How envelopes are compressed.
    pub compression: EnvelopeCompression,
    /// Timeout of one attempt.
    pub timeout: Duration,
    /// The queue of requests that wait to be sent.
    pub sending_queue: QueueConfig,
    /// When to retry.
    pub retry_on_failure: RetryConfig,
    /// TLS, for DSNs with https.
    pub tls: TlsClientConfig,
    /// Whether to speak HTTP/2 without negotiation. TLS negotiates it.
    pub http2_prior_knowledge: bool,
    /// The folder for requests that are unsent at shutdown. Empty: they are lost.
    pub on_shutdown: PathBuf,
    /// How profiles become chunks. These keys are part of the same section.
    #[serde(skip)]
    pub chunk: ChunkConfig,
}

/// `routing`.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Routing {
    /// The resource attribute that selects the project; `service.name` by default.
    pub from_attribute: Option<String>,
    /// The DSN for each value of the attribute.
    pub attribute_to_dsn: BTreeMap<String, Secret>,
}

/// `spans`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SpanMode {
    /// Transactions if the processor `transactions` grouped them, else OTLP; transactions too for a server without an
    /// OTLP endpoint.
    #[default]
    Auto,
    /// OTLP, to Sentry's own endpoint.
    Otlp,
    /// Containers of spans, as Sentry's SDKs stream them.
    Streamed,
    /// Transactions.
    Transactions,
}

/// `compression`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum EnvelopeCompression {
    /// zstd; gzip for servers that refuse zstd.
    #[default]
    Auto,
    /// zstd.
    Zstd,
    /// gzip.
    Gzip,
    /// None.
    None,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            dsn: Secret::default(),
            upstream: String::new(),
            upgrade_v1: false,
            spans: SpanMode::Auto,
            routing: Routing::default(),
            compression: EnvelopeCompression::Auto,
            timeout: Duration::from_secs(30),
            sending_queue: QueueConfig::default(),
            retry_on_failure: RetryConfig::default(),
            tls: TlsClientConfig::default(),
            http2_prior_knowledge: false,
            on_shutdown: PathBuf::new(),
            chunk: ChunkConfig::default(),
        }
    }
}

/// The checked configuration.
#[derive(Debug)]
pub struct Settings {
    /// The exporter's id, for its log lines.
    pub id: String,
    /// All destinations. The fields below refer to configured DSNs by index.
    pub destinations: Arc<Destinations>,
    /// Whether V1 profiles are converted to chunks.
    pub upgrade_v1: bool,
    /// How spans that were received as OTLP are sent.
    pub spans: SpanMode,
    /// The DSN for everything that is not routed.
    pub default: Option<usize>,
    /// The resource attribute that selects the project.
    pub from_attribute: String,
    /// The DSN for each value of the attribute.
    pub routes: BTreeMap<String, usize>,
    /// How envelopes are compressed.
    pub compression: EnvelopeCompression,
    /// TLS.
    pub tls: TlsClientConfig,
    /// Whether to speak HTTP/2 without negotiation.
    pub http2_prior_knowledge: bool,
    /// The folder for requests that are unsent at shutdown.
    pub on_shutdown: Option<PathBuf>,
    /// The converter's settings.
    pub chunk: chunk::Settings,
    /// Queue, retries, and timeout of an attempt.
    pub delivery: DeliverySettings,
}

impl Settings {
    /// Parses and checks a section.
    ///
    /// # Errors
    ///
    /// Everything that is wrong with it, each with its place.
    pub fn read(section: &Section) -> Result<Self, Problems> {
        section.extract_checked_parts(|own: Config, chunk, section| Config { chunk, ..own }.check(section))
    }
}

impl Config {
    /// Parses a section.
    ///
    /// # Errors
    ///
    /// If there are unknown keys or values of the wrong type.
    pub fn read(section: &Section) -> Result<Self, Problems> {
        let (own, chunk) = section.extract_parts::<Self, ChunkConfig>()?;
        Ok(Self { chunk, ..own })
    }

    /// Checks all rules that types cannot express.
    ///
    /// # Errors
    ///
    /// Every broken rule, with its place.
    pub fn check(self, section: &Section) -> Result<Settings, Problems> {
        let mut problems = Vec::new();
        let mut destinations = Vec::new();
        let mut destination = |path: &str, dsn: &Secret| {
            let parsed = dsn.expose().parse::<Dsn>().map_err(|error| error.to_string());
            match parsed.and_then(|dsn| Destination::new(dsn).map_err(str::to_owned)) {
                Ok(new) => {
                    // DSNs that are written several times share one destination, since rate limits apply to a project.
                    let known = destinations.iter().position(|known: &Arc<Destination>| known.dsn == new.dsn);
                    known.or_else(|| {
                        destinations.push(Arc::new(new));
                        Some(destinations.len() - 1)
                    })
                }
                Err(error) => {
                    let hint = "copy it from Sentry: Settings > Projects > (project) > Client Keys (DSN)";
                    problems.push(section.problem(path, error, hint));
                    None
                }
            }
        };
        let default = match self.dsn.expose().trim() {
            "" => None,
            _ => destination("dsn", &self.dsn),
        };
        let mut routes = BTreeMap::new();
        for (value, dsn) in &self.routing.attribute_to_dsn {
            let path = format!("routing.attribute_to_dsn.\"{value}\"");
            if let Some(position) = destination(&path, dsn) {
                routes.insert(value.clone(), position);
            }
        }
        let mut upstreams = Vec::new();
        for written in self.upstream.split(',').map(str::trim).filter(|written| !written.is_empty()) {
            match written.parse::<Upstream>() {
                Ok(upstream) => upstreams.push(upstream),
                Err(_) => {
                    let message = "is no server's address: a scheme and a host, with neither key nor project";
                    problems.push(section.problem("upstream", message, "such as `https://o1.ingest.sentry.io`"));
                }
            }
        }
        if section.has("routing.from_attribute") && self.routing.attribute_to_dsn.is_empty() {
            let hint = "name DSNs under `attribute_to_dsn`, or delete `routing`";
            problems.push(section.problem("routing", "`from_attribute` is written, but no DSN for its values", hint));
        }
        let from_attribute = self.routing.from_attribute.clone().unwrap_or_else(|| "service.name".to_owned());
        if from_attribute.is_empty() {
            problems.push(section.problem(
                "routing.from_attribute",
                "the attribute has no name",
                "write `service.name`",
            ));
        }
        let (compression, tls) = (self.compression, self.tls.clone());
        let delivery =
            DeliverySettings { queue: self.sending_queue, retry: self.retry_on_failure, timeout: self.timeout.get() };
        let chunk = self.chunk.check(section, &mut problems);
        Problems::check(problems)?;
        let key_path = section.key_path();
        Ok(Settings {
            id: key_path.strip_prefix("exporters.").unwrap_or("sentry").trim_matches('"').to_owned(),
            destinations: Arc::new(Destinations::new(destinations, upstreams)),
            upgrade_v1: self.upgrade_v1,
            spans: self.spans,
            default,
            from_attribute,
            routes,
            compression,
            tls,
            http2_prior_knowledge: self.http2_prior_knowledge,
            on_shutdown: Some(self.on_shutdown).filter(|folder| !folder.as_os_str().is_empty()),
            chunk,
            delivery,
        })
    }
}
