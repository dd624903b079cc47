//! What may be written about the exporter ([`Config`]), and what it means ([`Settings`]).
//!
//! `routing` has the vocabulary of the Collector's own Sentry exporter (opentelemetry-collector-contrib
//! `exporter/sentryexporter`), with DSNs where that has projects.

use std::collections::BTreeMap;

use profbridge_engine::config::{ByteSize, Duration, Problems, Secret, Section};
use profbridge_engine::delivery::{DeliverySettings, QueueConfig, RetryConfig};
use profbridge_net::tls::TlsClientConfig;
use profbridge_wire::sentry::Dsn;
use profbridge_wire::sentry::chunk;
use serde::Deserialize;

use crate::destination::Destination;

/// The exporter's section, as it is written.
#[derive(Debug, Clone, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Where everything goes that `routing` sends nowhere else. Empty: nowhere.
    pub dsn: Secret,
    /// Which process's profiles go to which project.
    pub routing: Routing,
    /// How envelopes are compressed.
    pub compression: Compression,
    /// How long one attempt may take.
    pub timeout: Duration,
    /// What may wait.
    pub sending_queue: QueueConfig,
    /// When another attempt is made.
    pub retry_on_failure: RetryConfig,
    /// TLS, for DSNs with https.
    pub tls: TlsClientConfig,
    /// A chunk ends where the whole process is idle for longer than this.
    pub max_gap: Duration,
    /// A window in which the process was active for less than this is left out.
    pub min_active_time: Duration,
    /// What happens to the only observation of a thread in a chunk.
    pub lone_samples: chunk::LoneSamples,
    /// Whether blocked time is shown as well.
    pub off_cpu: bool,
    /// Which of wall and CPU time is shown where a process has both.
    pub prefer: chunk::Prefer,
    /// The size that a chunk's JSON should not exceed.
    pub target_size: ByteSize,
    /// The environment of processes that do not name one.
    pub environment: String,
    /// The platform of all chunks, instead of the one that the frames suggest.
    pub platform: Option<String>,
    /// Which frames are the user's own.
    pub in_app: chunk::InApp,
}

/// `routing`.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Routing {
    /// The resource attribute that decides; `service.name` where it is not written.
    pub from_attribute: Option<String>,
    /// The DSN for each of the attribute's values.
    pub attribute_to_dsn: BTreeMap<String, Secret>,
}

/// `compression`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Compression {
    /// zstd, and gzip for good where a server does not take that.
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
        let chunk = chunk::Settings::default();
        Self {
            dsn: Secret::default(),
            routing: Routing::default(),
            compression: Compression::Auto,
            timeout: Duration::from_secs(30),
            sending_queue: QueueConfig::default(),
            retry_on_failure: RetryConfig::default(),
            tls: TlsClientConfig::default(),
            max_gap: chunk.max_gap.into(),
            min_active_time: chunk.min_active_time.into(),
            lone_samples: chunk.lone_samples,
            off_cpu: chunk.off_cpu,
            prefer: chunk.prefer,
            target_size: ByteSize::new(chunk.target_bytes as u64),
            environment: chunk.environment,
            platform: chunk.platform,
            in_app: chunk.in_app,
        }
    }
}

/// What the section means.
#[derive(Debug)]
pub struct Settings {
    /// The exporter's id, for its log lines.
    pub id: String,
    /// The destinations; the others refer to them by their position. None where no DSN is written.
    pub destinations: Vec<Destination>,
    /// Where everything goes that is not routed.
    pub default: Option<usize>,
    /// The resource attribute that decides.
    pub from_attribute: String,
    /// Where each of its values goes.
    pub routes: BTreeMap<String, usize>,
    /// How envelopes are compressed.
    pub compression: Compression,
    /// TLS.
    pub tls: TlsClientConfig,
    /// The converter's settings.
    pub chunk: chunk::Settings,
    /// The queue's, the retries', and the time for an attempt.
    pub delivery: DeliverySettings,
}

impl Config {
    /// Checks all rules that types cannot express.
    ///
    /// # Errors
    ///
    /// Every rule that is broken, at its place.
    pub fn check(self, section: &Section) -> Result<Settings, Problems> {
        let mut problems = Vec::new();
        let mut destinations = Vec::new();
        let mut destination = |path: &str, dsn: &Secret| {
            let parsed = dsn.expose().parse::<Dsn>().map_err(|error| error.to_string());
            match parsed.and_then(|dsn| Destination::new(dsn).map_err(str::to_owned)) {
                Ok(new) => {
                    // One project is one destination, however often it is named: limits are the project's.
                    let known = destinations.iter().position(|known: &Destination| known.dsn() == new.dsn());
                    known.or_else(|| {
                        destinations.push(new);
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
        let chunk = self.chunk();
        for rule in chunk.broken_rules() {
            problems.push(section.problem(rule.key, rule.message, rule.hint));
        }
        Problems::check(problems)?;
        let key_path = section.key_path();
        Ok(Settings {
            id: key_path.strip_prefix("exporters.").unwrap_or("sentry").trim_matches('"').to_owned(),
            destinations,
            default,
            from_attribute,
            routes,
            compression,
            tls,
            chunk,
            delivery,
        })
    }

    fn chunk(self) -> chunk::Settings {
        chunk::Settings {
            max_gap: self.max_gap.get(),
            min_active_time: self.min_active_time.get(),
            lone_samples: self.lone_samples,
            off_cpu: self.off_cpu,
            target_bytes: self.target_size.as_usize(),
            environment: self.environment,
            platform: self.platform,
            in_app: self.in_app,
            prefer: self.prefer,
        }
    }
}
