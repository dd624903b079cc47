//! The configuration and its meaning.

use super::*;

/// Guarantees: every key has its documented meaning; by default a target's service name is its own name, and its
/// instance is its address.
#[test]
fn written() {
    let settings = settings(
        "{push: {endpoint: '0.0.0.0:1', max_request_body_size: 1MiB, max_connections: 6, max_connections_per_peer: 5, \
         idle_timeout: 7s, tls: {cert_file: a.pem, key_file: a.key}}, resource: {insert: {zone: a}}, \
         scrape: {interval: 30s, duration: 5s, timeout: 2s, max_profile_size: 2MiB, targets: {\
         shop: {endpoint: 'http://localhost:6060'}, \
         heap.all: {endpoint: 'https://h', path: '/debug/pprof/heap?gc=1', attributes: {service.name: cart, zone: b}, \
         headers: {authorization: secretive}}}}}",
    );
    let push = settings.push.unwrap();
    assert_eq!((push.endpoint.as_str(), push.body.max_bytes), ("0.0.0.0:1", 1 << 20));
    let server = &push.server;
    assert_eq!((server.max_connections, server.max_connections_per_peer, server.idle_timeout.as_secs()), (6, 5, 7));
    assert_eq!(push.tls.unwrap().cert_file.to_str(), Some("a.pem"));
    assert_eq!(settings.insert, [("zone".to_owned(), "a".to_owned())]);
    let scrape = settings.scrape;
    let times = [scrape.interval, scrape.duration, scrape.timeout].map(|time| time.as_secs());
    assert_eq!((times, scrape.max_bytes), ([30, 5, 2], 2 << 20));
    let [heap, shop] = &scrape.targets[..] else { panic!("two targets") };
    assert_eq!(heap.url, "https://h/debug/pprof/heap?gc=1&seconds=5");
    assert_eq!(shop.url, "http://localhost:6060/debug/pprof/profile?seconds=5");
    let said = |target: &crate::config::TargetSettings| {
        target.attributes.iter().map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>()
    };
    assert_eq!(said(heap), ["service.name=cart", "zone=b", "service.instance.id=h"]);
    assert_eq!(said(shop), ["service.name=shop", "service.instance.id=localhost:6060"]);
    assert_eq!(heap.headers["authorization"], "secretive");
    assert!(!format!("{heap:?}").contains("secretive"));
}

/// Guarantees: all broken rules are reported together, each with its key, but without header values.
#[test]
fn broken_rules() {
    let section = Section::from_yaml(
        "{push: {endpoint: localhost, max_request_body_size: 3GiB, max_connections: 0, max_connections_per_peer: 0, \
         idle_timeout: 0s}, resource: {insert: {'a b': c}}, \
         scrape: {interval: 1s, duration: 1500ms, timeout: 0s, max_profile_size: 0, targets: {\
         none: {}, ftp: {endpoint: 'ftp://h'}, user: {endpoint: 'http://secretive@h'}, at: {endpoint: 'http://h/x'}, \
         path: {endpoint: 'http://h', path: x}, header: {endpoint: 'http://h', headers: {'a b': secretive}}, \
         said: {endpoint: 'http://h', attributes: {x: ''}}}}}",
    );
    let problems = Settings::read(&section.unwrap()).unwrap_err().to_string();
    for key in [
        "push.endpoint",
        "push.max_request_body_size",
        "push.max_connections",
        "push.max_connections_per_peer",
        "push.idle_timeout",
        "resource.insert",
        "scrape.interval",
        "scrape.duration",
        "scrape.timeout",
        "scrape.max_profile_size",
        "scrape.targets.none.endpoint",
        "scrape.targets.ftp.endpoint",
        "scrape.targets.user.endpoint",
        "scrape.targets.at.endpoint",
        "scrape.targets.path.path",
        "scrape.targets.header.",
        "scrape.targets.said.attributes",
    ] {
        assert!(problems.contains(key), "{key}: {problems}");
    }
    assert!(!problems.contains("secretive"), "{problems}");
}

/// Guarantees: the receiver listens on loopback at Pyroscope's port, but not if only targets are configured.
#[test]
fn listens_unless_it_only_scrapes() {
    assert_eq!(settings("").push.unwrap().endpoint, "127.0.0.1:4040");
    assert!(settings("scrape: {targets: {shop: {endpoint: 'http://localhost:6060'}}}").push.is_none());
}
