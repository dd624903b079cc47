//! The configuration and its meaning.

use profbridge_engine::registry::ReceiverFactory;
use profbridge_model::TelemetryKind;

use super::*;
use crate::FACTORY;

/// Guarantees: by default it listens on loopback at Relay's port, accepts every key and Relay's sizes, and lets a
/// request wait for ten seconds.
/// rule: transport#size
#[test]
fn defaults() {
    let settings = settings("");
    assert_eq!((settings.endpoint.as_str(), settings.keys), ("127.0.0.1:9000", None));
    assert_eq!((settings.body.max_bytes, settings.admission_timeout), (200 << 20, Duration::from_secs(10)));
    let ReceiverFactory { description, create } = FACTORY;
    assert_eq!(
        (description.kind, description.emits),
        ("sentry", &[TelemetryKind::Envelopes, TelemetryKind::Spans][..])
    );
    assert!(create(&Section::defaults()).is_ok());
}

/// Guarantees: every key has its documented meaning.
#[test]
fn written() {
    let settings = settings(&format!(
        "{{endpoint: '0.0.0.0:1', public_keys: [{OTHER_KEY}, ' {} '], admission_timeout: 1m, \
         max_request_body_size: 1MiB, max_connections: 6, max_connections_per_peer: 5, idle_timeout: 7s, \
         tls: {{cert_file: a.pem, key_file: a.key}}}}",
        KEY.to_uppercase()
    ));
    let keys: Vec<_> = settings.keys.iter().flatten().map(|key| &**key).collect();
    assert_eq!((settings.endpoint.as_str(), keys), ("0.0.0.0:1", vec![KEY, OTHER_KEY]));
    assert_eq!((settings.body.max_bytes, settings.admission_timeout), (1 << 20, Duration::from_secs(60)));
    let server = &settings.server;
    assert_eq!((server.max_connections, server.max_connections_per_peer, server.idle_timeout.as_secs()), (6, 5, 7));
    assert_eq!(settings.tls.unwrap().cert_file.to_str(), Some("a.pem"));
}

/// Guarantees: all broken rules are reported together, each at its key, without secret values; an endpoint that others
/// can reach requires keys.
#[test]
fn broken_rules() {
    let section = Section::from_yaml(
        "{endpoint: localhost, public_keys: [secretive, 0123456789abcdef0123456789abcdef], \
         max_request_body_size: 4GiB, max_item_sizes: {replay: 1MiB}, max_connections: 0, max_connections_per_peer: 0, idle_timeout: 0s}",
    );
    let problems = Settings::read(&section.unwrap()).unwrap_err().to_string();
    let keys = [
        "endpoint",
        "public_keys.0",
        "max_request_body_size",
        "max_item_sizes",
        "max_connections",
        "max_connections_per_peer",
        "idle_timeout",
    ];
    for key in keys {
        assert!(problems.contains(key), "{key}: {problems}");
    }
    assert!(!problems.contains("secretive") && !problems.contains(KEY), "{problems}");
    for endpoint in ["0.0.0.0:9000", "'[::]:9000'", "192.0.2.1:9000"] {
        let section = Section::from_yaml(&format!("endpoint: {endpoint}")).unwrap();
        let problems = Settings::read(&section).unwrap_err().to_string();
        assert!(problems.contains("any key would be taken"), "{problems}");
    }
}

/// Guarantees: the longest configurable duration works as a waiting time.
#[tokio::test]
async fn the_longest_patience() {
    let mut rig = SentryRig::start(&format!("{{{LOOPBACK}, admission_timeout: 800000h}}")).await;
    assert_eq!(rig.taken(post(SMALL)).await.0.status, 200);
}
