use profbridge_engine::component::Exporter;
use profbridge_engine::config::Section;
use profbridge_model::TelemetryKind;
use profbridge_net::client::Proxies;
use profbridge_testkit::ManualClock;
use profbridge_wire::sentry::chunk::{LoneSamples, Prefer};

use super::{KEY, settings};
use crate::{FACTORY, SentryExporter};

/// Guarantees: an empty section is valid and sends nothing.
#[test]
fn defaults() {
    let settings = settings("");
    assert_eq!((settings.destinations.all().len(), settings.default), (0, None));
    assert_eq!(settings.chunk, profbridge_wire::sentry::chunk::Settings::default());
    assert_eq!(settings.delivery.timeout.as_secs(), 30);
    let needs = [(TelemetryKind::Profiles, "chunk")];
    assert_eq!((FACTORY.description.needs)(&Section::defaults()), needs);
    assert_eq!(FACTORY.description.takes, profbridge_model::TelemetryKind::ALL);
    assert!((FACTORY.create)(&Section::defaults()).is_ok());
}

/// Guarantees: every key has its effect, and a project named twice is one destination.
#[test]
fn every_key() {
    let dsn = |project: u64| format!("https://{KEY}@sentry.example/prefix/{project}");
    let yaml = format!(
        "dsn: {0}\nrouting: {{from_attribute: k8s.deployment.name, attribute_to_dsn: {{a: '{1}', b: '{0}'}}}}\n\
         compression: gzip\ntimeout: 7s\nsending_queue: {{sizer: bytes, queue_size: 1MiB}}\nretry_on_failure: {{enabled: false}}\n\
         tls: {{}}\nmax_gap: 2s\nmin_active_time: 1s\nlone_samples: drop\noff_cpu: true\nprefer: cpu\n\
         target_size: 1MiB\nenvironment: dev\nplatform: python\nin_app: {{include: [a], exclude: [b],
         source_roots: [/opt/shop]}}\n",
        dsn(1),
        dsn(2)
    );
    let settings = settings(&yaml);
    assert_eq!((settings.destinations.all().len(), settings.default), (2, Some(0)));
    assert_eq!((settings.routes["a"], settings.routes["b"]), (1, 0));
    assert_eq!(settings.from_attribute, "k8s.deployment.name");
    assert_eq!(settings.delivery.queue.queue_size, 1 << 20);
    assert!(!settings.delivery.retry.enabled);
    let chunk = settings.chunk;
    assert_eq!((chunk.max_gap.as_secs(), chunk.min_active_time.as_secs()), (2, 1));
    assert_eq!((chunk.target_bytes, chunk.off_cpu), (1 << 20, true));
    assert_eq!((chunk.environment.as_str(), chunk.platform.as_deref()), ("dev", Some("python")));
    assert_eq!((chunk.in_app.include.len(), chunk.in_app.exclude.len()), (1, 1));
    assert_eq!(chunk.in_app.source_roots, ["/opt/shop"]);
    assert_eq!((chunk.lone_samples, chunk.prefer), (LoneSamples::Drop, Prefer::Cpu));
}

/// Guarantees: a missing TLS file fails the start and is named, but only if a DSN uses TLS.
#[tokio::test]
async fn missing_files() {
    for (scheme, fails) in [("https", true), ("http", false)] {
        let yaml = format!("dsn: {scheme}://{KEY}@sentry.example/1\ntls: {{ca_file: /nonexistent/ca.pem}}");
        let exporter = SentryExporter::with(settings(&yaml), ManualClock::default().clock(), Proxies::none());
        match exporter.start(&profbridge_testkit::exporter_context("sentry")).await {
            Ok(()) => assert!(!fails),
            Err(error) => assert!(fails && error.to_string().contains("/nonexistent/ca.pem"), "{error}"),
        }
    }
}
