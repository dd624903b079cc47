//! The configuration and its meaning.

use profbridge_net::tls::HttpVersions;

use super::*;
use crate::config::ProtocolSettings;

fn endpoints(yaml: &str) -> (Option<String>, Option<String>) {
    let Settings { grpc, http, .. } = settings(yaml);
    (grpc.map(|grpc| grpc.endpoint), http.map(|http| http.endpoint))
}

/// Guarantees: by default both protocols are served on loopback with OTLP's ports and limits; if one is configured,
/// even without any keys, only that one is served.
/// rule: otlp#ports, otlp#size
#[test]
fn defaults() {
    let grpc = Some("127.0.0.1:4317".to_owned());
    let http = Some("127.0.0.1:4318".to_owned());
    for yaml in ["", "{protocols: }", "{protocols: {}}", "{protocols: {grpc: , http: }}"] {
        assert_eq!(endpoints(yaml), (grpc.clone(), http.clone()), "{yaml}");
    }
    assert_eq!(endpoints("{protocols: {grpc: }}"), (grpc, None));
    assert_eq!(endpoints("{protocols: {http: {}}}"), (None, http));

    let Settings { grpc: Some(grpc), http: Some(http), resource } = settings("") else { panic!("both") };
    assert_eq!((resource.local_host, resource.insert), (true, Vec::new()));
    assert_eq!((grpc.body.max_bytes, http.body.max_bytes), (64 << 20, 64 << 20));
    assert_eq!((grpc.server.versions, http.server.versions), (HttpVersions::Http2, HttpVersions::Both));
    assert_eq!((grpc.tls, http.tls), (None, None));
    assert_eq!(grpc.server.max_concurrent_streams, 64);
    for server in [grpc.server, http.server] {
        assert_eq!((server.max_connections, server.max_connections_per_peer, server.replace_idle), (768, 384, false));
    }
}

/// Guarantees: every key has the Collector's meaning.
#[test]
fn written() {
    let yaml = "
protocols:
  grpc:
    endpoint: 0.0.0.0:14317
    max_recv_msg_size_mib: 8
    max_concurrent_streams: 5
    max_connections: 6
    max_connections_per_peer: 7
    keepalive: {server_parameters: {max_connection_idle: 11s, time: 12s, timeout: 13s}}
    tls: {cert_file: a.pem, key_file: a.key, client_ca_file: ca.pem}
  http:
    endpoint: '[::1]:14318'
    max_request_body_size: 20971520
    idle_timeout: 14s
    max_connections: 8
    max_connections_per_peer: 9
resource: {local_host: false, insert: {host.id: node-3}}
";
    let Settings { grpc, http, resource } = settings(yaml);
    assert_eq!((resource.local_host, resource.insert), (false, vec![("host.id".to_owned(), "node-3".to_owned())]));
    let ProtocolSettings { endpoint, body, server, tls, .. } = grpc.unwrap();
    assert_eq!((endpoint.as_str(), body.max_bytes, server.max_concurrent_streams), ("0.0.0.0:14317", 8 << 20, 5));
    assert_eq!((server.max_connections, server.max_connections_per_peer), (6, 7));
    let times = [server.idle_timeout, server.keepalive_interval.unwrap(), server.keepalive_timeout];
    assert_eq!(times.map(|time| time.as_secs()), [11, 12, 13]);
    assert_eq!(tls.unwrap().client_ca_file.unwrap().to_str(), Some("ca.pem"));
    let ProtocolSettings { endpoint, body, server, tls, .. } = http.unwrap();
    assert_eq!((endpoint.as_str(), body.max_bytes, server.idle_timeout.as_secs()), ("[::1]:14318", 20 << 20, 14));
    assert_eq!((server.max_connections, server.max_connections_per_peer), (8, 9));
    assert_eq!(tls, None);
}

/// Guarantees: all broken rules are reported together, each with its key.
#[test]
fn broken_rules() {
    let section = Section::from_yaml(
        "{protocols: {grpc: {endpoint: 'http://a:1', max_recv_msg_size_mib: 2048, max_concurrent_streams: 0, \
         max_connections: 0, max_connections_per_peer: 0, \
         keepalive: {server_parameters: {max_connection_idle: 0s, time: 0s, timeout: 0s}}}, \
         http: {endpoint: localhost, max_request_body_size: 0, idle_timeout: 0s, \
         max_connections: 0, max_connections_per_peer: 0}}, resource: {insert: {host.id: ''}}}",
    );
    let problems = Settings::read(&section.unwrap()).unwrap_err();
    let mut paths: Vec<&str> = problems.as_slice().iter().map(|problem| problem.key_path.as_str()).collect();
    paths.sort_unstable();
    let expected = [
        "protocols.grpc.endpoint",
        "protocols.grpc.keepalive.server_parameters.max_connection_idle",
        "protocols.grpc.keepalive.server_parameters.time",
        "protocols.grpc.keepalive.server_parameters.timeout",
        "protocols.grpc.max_concurrent_streams",
        "protocols.grpc.max_connections",
        "protocols.grpc.max_connections_per_peer",
        "protocols.grpc.max_recv_msg_size_mib",
        "protocols.http.endpoint",
        "protocols.http.idle_timeout",
        "protocols.http.max_connections",
        "protocols.http.max_connections_per_peer",
        "protocols.http.max_request_body_size",
        "resource.insert.\"host.id\"",
    ];
    assert_eq!(paths, expected);
    let scheme = problems.as_slice().iter().find(|problem| problem.key_path == "protocols.grpc.endpoint").unwrap();
    assert!(scheme.message.contains("leave the scheme out"), "{scheme}");
}
