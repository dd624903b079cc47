//! What may be written, in the Collector's vocabulary (opentelemetry-collector `exporter/otlpexporter/README.md`,
//! `exporter/otlphttpexporter/README.md`).

use std::collections::BTreeMap;

use profbridge_codec::CompressionConfig;
use profbridge_codec::otlp::Encoding;
use profbridge_engine::config::{ByteSize, Duration, Secret};
use profbridge_engine::delivery::{QueueConfig, RetryConfig};
use profbridge_net::tls::TlsClientConfig;
use serde::Deserialize;

/// The section of an `otlp` or `otlp_http` exporter.
#[derive(Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// gRPC: `host:port`, with `http://` or `https://` in front or without. HTTP: the URL to which
    /// `/v1development/profiles` or `/v1/traces` is added.
    pub endpoint: String,
    /// HTTP only: the whole URL of profiles, taken as it is. Wins over `endpoint`.
    pub profiles_endpoint: String,
    /// HTTP only: the whole URL of traces, taken as it is. Wins over `endpoint`.
    pub traces_endpoint: String,
    /// What is spoken. The default follows from the exporter's type: gRPC for `otlp`, HTTP for `otlp_http`.
    pub protocol: Option<Protocol>,
    /// HTTP only: how messages are written.
    pub encoding: Encoding,
    /// How bodies are compressed.
    pub compression: CompressionConfig,
    /// TLS.
    pub tls: TlsClientConfig,
    /// Headers (gRPC: metadata) of every request.
    pub headers: BTreeMap<String, Secret>,
    /// HTTP only: whether the peer speaks HTTP/2 without being asked. Over TLS it is asked.
    pub http2_prior_knowledge: bool,
    /// How long one attempt may take.
    pub timeout: Duration,
    /// What may wait.
    pub sending_queue: QueueConfig,
    /// When another attempt is made.
    pub retry_on_failure: RetryConfig,
    /// The largest request, before compression.
    pub max_request_bytes: ByteSize,
    /// Whether `original_payload` is passed on, which happens with profiles that nobody changed only, and never where
    /// it is pprof.
    pub original_payload: bool,
    /// What is done with attributes that refer to the string table.
    pub attribute_references: AttributeReferences,
    /// Whether a profile without an id gets the hash of its content as one.
    pub fill_profile_id: bool,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            endpoint: String::new(),
            profiles_endpoint: String::new(),
            traces_endpoint: String::new(),
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

/// What is done with attributes of resources and scopes whose keys and values came as references to the string table
/// (opentelemetry-proto 1.10: `key_strindex`, `string_value_strindex`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AttributeReferences {
    /// They are written out. Peers that do not know them, such as Collectors up to 0.159 and Pyroscope, would read
    /// empty keys.
    Resolve,
    /// They are passed on: the peer knows them.
    Keep,
}

/// What is spoken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub enum Protocol {
    /// gRPC.
    #[serde(rename = "grpc")]
    Grpc,
    /// HTTP, with bodies as `encoding` says.
    #[serde(rename = "http/protobuf", alias = "http")]
    Http,
}
