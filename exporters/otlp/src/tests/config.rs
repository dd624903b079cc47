use profbridge_codec::otlp::Signal;
use profbridge_engine::config::{Problems, Section};
use profbridge_net::compression::Compression;

use super::*;
use crate::FACTORIES;
use crate::settings::OtlpDestination;

fn problems(kind: &str, yaml: &str) -> String {
    let factory = FACTORIES.into_iter().find(|factory| factory.description.kind == kind).unwrap();
    let outcome = (factory.create)(&Section::from_yaml(yaml).unwrap());
    outcome.err().as_ref().map(Problems::to_string).unwrap_or_default()
}

fn target(settings: &Settings) -> String {
    match &settings.target {
        OtlpDestination::Grpc(config) => format!("grpc {}", config.endpoint),
        target => target.url(Signal::Profiles).unwrap().to_string(),
    }
}

/// Guarantees: sections from a Collector's configuration are accepted, with both names of both exporters.
#[test]
fn collector_sections() {
    for (kind, yaml) in [
        ("otlp", "{endpoint: 'collector:4317', tls: {insecure: true}}"),
        ("otlp_grpc", "{endpoint: 'https://collector:4317', headers: {api-key: x}, compression: zstd}"),
        ("otlp_http", "{endpoint: 'http://collector:4318', compression: none, timeout: 5s}"),
        ("otlphttp", "{profiles_endpoint: 'https://collector/profiles', sending_queue: {enabled: false}}"),
        ("otlphttp", "{endpoint: 'http://[::1]:4318/base/', retry_on_failure: {enabled: false}}"),
    ] {
        assert_eq!(problems(kind, yaml), "", "{yaml}");
    }
}

/// Guarantees: the type chooses the protocol unless `protocol` does, and a path is appended to an HTTP endpoint unless
/// the complete URL is given.
/// rule: otlp#send-http-path
#[test]
fn targets() {
    let http = "{endpoint: 'http://c:4318/base/'}";
    for (protocol, yaml, expected) in [
        (Protocol::Grpc, "{endpoint: 'c:4317'}", "grpc c:4317"),
        (Protocol::Grpc, "{endpoint: 'http://c', protocol: http/protobuf}", "http://c/v1development/profiles"),
        (Protocol::Http, http, "http://c:4318/base/v1development/profiles"),
        (Protocol::Http, "{endpoint: 'http://c', profiles_endpoint: 'http://d/p?q=1'}", "http://d/p?q=1"),
        (Protocol::Http, "{endpoint: 'c:4317', protocol: grpc}", "grpc c:4317"),
    ] {
        assert_eq!(target(&settings(protocol, yaml)), expected);
    }
}

/// Guarantees: the defaults are those of the README.
/// rule: otlp#send-compression
#[test]
fn defaults() {
    let settings = settings(Protocol::Grpc, "endpoint: collector:4317");
    assert_eq!(settings.compression, Compression::GZIP);
    assert_eq!(settings.timeout.as_secs(), 30);
    assert_eq!(settings.max_request_bytes, 64 << 20);
    assert!(settings.fill_profile_id && !settings.original_payload);
    assert_eq!(settings.peer.host, "collector:4317");
}

/// Guarantees: JSON is only for HTTP; gRPC supports only protobuf, and the message says so.
/// rule: otlp#send-http-type
#[test]
fn encodings() {
    for (kind, yaml) in [
        ("otlp_http", "{endpoint: 'http://c:1', encoding: json}"),
        ("otlp_http", "{endpoint: 'http://c:1', encoding: proto}"),
        ("otlp", "{endpoint: 'c:1', encoding: proto}"),
    ] {
        assert_eq!(problems(kind, yaml), "", "{yaml}");
    }
    let refused = problems("otlp", "{endpoint: 'c:1', encoding: json}");
    assert!(refused.contains("OTLP over gRPC is protobuf") && refused.contains("key: encoding"), "{refused}");
    assert!(problems("otlp_http", "{endpoint: 'http://c:1', encoding: xml}").contains("encoding"));
}

/// Guarantees: the debug output of settings does not contain header values.
#[test]
fn secrets_do_not_print() {
    let settings = settings(Protocol::Grpc, "{endpoint: 'c:1', headers: {authorization: 'Bearer hush'}}");
    assert!(!format!("{settings:?}").contains("hush"));
}
