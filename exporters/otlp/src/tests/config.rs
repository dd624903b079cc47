use profbridge_engine::config::{Problems, Section};
use profbridge_net::compression::Compression;

use super::*;
use crate::FACTORIES;
use crate::settings::Target;

fn problems(kind: &str, yaml: &str) -> String {
    let factory = FACTORIES.into_iter().find(|factory| factory.description.kind == kind).unwrap();
    let outcome = (factory.create)(&Section::from_yaml(yaml).unwrap());
    outcome.err().as_ref().map(Problems::to_string).unwrap_or_default()
}

fn target(settings: &Settings) -> String {
    match &settings.target {
        Target::Grpc(config) => format!("grpc {}", config.endpoint),
        Target::Http { url, .. } => url.to_string(),
    }
}

/// Guarantees: sections as they stand in a Collector's configuration are taken, by both names of both exporters.
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

/// Guarantees: the type says what is spoken, `protocol` may say otherwise, and a path is added to an HTTP endpoint
/// unless the whole URL is given.
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
#[test]
fn defaults() {
    let settings = settings(Protocol::Grpc, "endpoint: collector:4317");
    assert_eq!(settings.compression, Compression::GZIP);
    assert_eq!(settings.timeout.as_secs(), 30);
    assert_eq!(settings.max_request_bytes, 64 << 20);
    assert!(settings.fill_profile_id && !settings.original_payload);
    assert_eq!(settings.host, "collector:4317");
}

/// Guarantees: what cannot work is refused with the rule and where it is broken, every problem at once, and no secret
/// is shown.
#[test]
fn problems_name_the_rule() {
    for (kind, yaml, rule) in [
        ("otlp", "", "the key `endpoint` is missing"),
        ("otlp", "{endpoint: 'ftp://collector'}", "the scheme is not http, https or dns"),
        ("otlp", "{endpoint: 'collector:4317/v1'}", "gRPC has no path"),
        ("otlp", "{endpoint: 'c:1', profiles_endpoint: 'http://c'}", "there is no such key for it"),
        ("otlp", "{endpoint: 'c:1', protocol: http/json}", "unknown value"),
        ("otlp", "{endpoint: 'c:1', compression: snappy}", "unknown value"),
        ("otlp", "{endpoint: 'c:1', max_request_bytes: 12}", "limited to 1024 to 2147483647 bytes"),
        ("otlp", "{endpoint: 'c:1', max_request_bytes: 3GiB}", "limited to 1024 to 2147483647 bytes"),
        ("otlp", "{endpoint: 'c:1', timeout: 0s}", "without time"),
        ("otlp", "{endpoint: 'c:1', headers: {'a b': x}}", "no name of a header"),
        ("otlp", "{endpoint: 'c:1', headers: {content-type: x}}", "written by the exporter itself"),
        ("otlp", "{endpoint: 'c:1', headers: {grpc-timeout: 1S}}", "written by the exporter itself"),
        ("otlp", "{endpoint: 'c:1', headers: {token-bin: x}}", "binary metadata"),
        ("otlp", "{endpoint: 'c:1', headers: {token: \"hush\\nhush\"}}", "characters that headers cannot have"),
        ("otlp", "{endpoint: 'c:1', max_request_size: 1}", "unknown key `max_request_size`"),
        ("otlp_http", "", "the key `endpoint` is missing"),
        ("otlp_http", "{endpoint: 'collector:4318'}", "does not begin with http:// or https://"),
        ("otlp_http", "{endpoint: 'http://'}", "the host is missing"),
        ("otlp_http", "{endpoint: 'http:///base'}", "the host is missing"),
        ("otlp_http", "{endpoint: 'http://:4318'}", "endpoint cannot be used"),
        ("otlp_http", "{endpoint: 'http://c d'}", "it is not a URL"),
        ("otlp_http", "{endpoint: 'http://c:99999'}", "the port"),
        ("otlp_http", "{endpoint: 'http://c?token=hush'}", "a query belongs into `profiles_endpoint`"),
        ("otlp_http", "{profiles_endpoint: 'http://user:hush@c/'}", "user information belongs into a header"),
    ] {
        let text = problems(kind, yaml);
        assert!(text.contains(rule), "{yaml}: {text}");
        assert!(!text.contains("hush"), "{yaml}: {text}");
    }
    let all = problems("otlp", "{endpoint: 'ftp://c', timeout: 0s, headers: {te: trailers}}");
    assert!(all.contains("3 errors"), "{all}");
}

/// Guarantees: settings that cannot be printed with their headers.
#[test]
fn secrets_do_not_print() {
    let settings = settings(Protocol::Grpc, "{endpoint: 'c:1', headers: {authorization: 'Bearer hush'}}");
    assert!(!format!("{settings:?}").contains("hush"));
}
