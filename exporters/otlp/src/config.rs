//! The section as written, in the Collector's vocabulary (opentelemetry-collector `exporter/otlpexporter/README.md`,
//! `exporter/otlphttpexporter/README.md`).

use std::collections::BTreeMap;

use profbridge_codec::CompressionConfig;
use profbridge_codec::otlp::{Encoding, Signal};
use profbridge_engine::config::{ByteSize, Duration, Secret};
use profbridge_engine::delivery::{QueueConfig, RetryConfig};
use profbridge_net::tls::TlsClientConfig;
use serde::Deserialize;

/// The section of an `otlp` or `otlp_http` exporter.
#[derive(Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// gRPC: `host:port`, optionally with `http://` or `https://` in front. HTTP: the URL to which
    /// `/v1development/profiles` or `/v1/traces` is appended.
    pub endpoint: String,
    /// HTTP only: the complete URL for profiles. Overrides `endpoint`.
    pub profiles_endpoint: String,
    /// HTTP only: the complete URL for traces. Overrides `endpoint`.
    pub traces_endpoint: String,
    /// The signals that are sent.
    pub signals: Vec<SignalName>,
    /// The protocol. By default gRPC for `otlp` and HTTP for `otlp_http`.
    pub protocol: Option<Protocol>,
    /// HTTP only: encoding of messages.
    pub encoding: Encoding,
    /// How bodies are compressed.
    pub compression: CompressionConfig,
    /// TLS.
    pub tls: TlsClientConfig,
    /// Headers (gRPC: metadata) of every request.
    pub headers: BTreeMap<String, Secret>,
    /// HTTP only: whether to speak HTTP/2 without negotiation. TLS negotiates it.
    pub http2_prior_knowledge: bool,
    /// Timeout of one attempt.
    pub timeout: Duration,
    /// The queue of requests that wait to be sent.
    pub sending_queue: QueueConfig,
    /// When to retry.
    pub retry_on_failure: RetryConfig,
    /// Size of the largest request before compression.
    pub max_request_bytes: ByteSize,
    /// Whether `original_payload` is kept. This applies only to unchanged profiles, and never if the payload is pprof.
    pub original_payload: bool,
    /// What to do with attributes that refer to the string table.
    pub attribute_references: AttributeReferences,
    /// Whether profiles without an id get a hash of their content as id.
    pub fill_profile_id: bool,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            endpoint: String::new(),
            profiles_endpoint: String::new(),
            traces_endpoint: String::new(),
            signals: vec![SignalName::Profiles, SignalName::Traces],
            protocol: None,
            encoding: Encoding::Protobuf,
            compression: CompressionConfig::Gzip,
            tls: TlsClientConfig::default(),
            headers: BTreeMap::new(),
            http2_prior_knowledge: false,
            timeout: Duration::from_secs(30),
            sending_queue: QueueConfig::default(),
            retry_on_failure: RetryConfig::default(),
            max_request_bytes: ByteSize::from_mib(64),
            original_payload: false,
            attribute_references: AttributeReferences::Resolve,
            fill_profile_id: true,
        }
    }
}

/// What to do with resource and scope attributes whose keys and values are references to the string table
/// (opentelemetry-proto 1.10: `key_strindex`, `string_value_strindex`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AttributeReferences {
    /// Replace references by strings. Peers that do not support them, such as Collectors up to 0.159 and Pyroscope,
    /// would see empty keys.
    Resolve,
    /// Send references. The peer must support them.
    Keep,
}

impl Config {
    /// The key with the complete URL of a signal, and its value.
    pub(crate) fn signal_endpoint(&self, signal: Signal) -> (&'static str, &str) {
        match signal {
            Signal::Profiles => ("profiles_endpoint", &self.profiles_endpoint),
            Signal::Traces => ("traces_endpoint", &self.traces_endpoint),
        }
    }
}

/// A signal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SignalName {
    /// Profiles.
    Profiles,
    /// Spans.
    Traces,
}

impl From<SignalName> for Signal {
    fn from(name: SignalName) -> Self {
        match name {
            SignalName::Profiles => Self::Profiles,
            SignalName::Traces => Self::Traces,
        }
    }
}

/// The protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub enum Protocol {
    /// gRPC.
    #[serde(rename = "grpc")]
    Grpc,
    /// HTTP, with bodies encoded as `encoding` says.
    #[serde(rename = "http/protobuf", alias = "http")]
    Http,
}
