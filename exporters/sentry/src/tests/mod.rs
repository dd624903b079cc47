//! Tests the exporter against a misbehaving server. Shared helpers are here.

mod answers;
mod config;
mod delivery;
mod encodings;
mod forwarding;
mod limits;
mod logs;
mod otlp;
mod preparing;
mod sampled_out;
mod server;
mod transactions;

use std::time::Duration;

use profbridge_engine::component::{Exporter, Now, Prepared, Request};
use profbridge_engine::config::Section;
use profbridge_model::{Builder, IdentityStrength, ProcessWindow, ProfilerId, Profiles, Telemetry};
use profbridge_net::client::Proxies;
use profbridge_testkit::{ManualClock, START_UNIX_NANO};

use crate::prepare::Meta;
use crate::{Config, SentryExporter, Settings};

use server::Server;

pub(crate) const KEY: &str = "0123456789abcdef0123456789abcdef";
pub(crate) const SECRET: &str = "5ec2e75ec2e75ec2e75ec2e75ec2e75e";

pub(crate) fn settings(yaml: &str) -> Settings {
    let section = Section::from_yaml(yaml).unwrap();
    Config::read(&section).unwrap().check(&section).unwrap()
}

/// A started exporter with a stopped clock and without a proxy.
pub(crate) async fn exporter(yaml: &str, clock: &ManualClock) -> SentryExporter {
    logs::install();
    let exporter = SentryExporter::with(settings(yaml), clock.clock(), Proxies::none());
    exporter.start(&profbridge_testkit::exporter_context("sentry")).await.unwrap();
    exporter
}

/// An exporter whose DSN points to a server.
pub(crate) async fn exporter_to(server: &Server, more: &str) -> SentryExporter {
    exporter(&format!("dsn: {}\n{more}", server.dsn(42)), &ManualClock::default()).await
}

/// Four observations of one thread, 50 ms apart, in one process and window.
pub(crate) fn batch(service: &str) -> Profiles {
    observed(service, &[0, 50, 100, 150])
}

/// One thread of a process, observed at these milliseconds of its window.
pub(crate) fn observed(service: &str, millis: &[u64]) -> Profiles {
    let mut builder = Builder::new();
    builder.resource(&[("service.name", service.into()), ("service.version", "1.0".into())]);
    builder.scope("test", "");
    builder.on_cpu(20);
    let (leaf, root) = (builder.frame("leaf", "/app/a.py", 7), builder.frame("root", "/app/b.py", 8));
    let stack = builder.stack(&[leaf, root]);
    let thread = builder.attributes(&[("thread.id", 1.into()), ("thread.name", "main".into())]);
    let times: Vec<u64> = millis.iter().map(|millis| START_UNIX_NANO + millis * 1_000_000).collect();
    builder.sample(stack, thread, None, &times, &[]);
    let mut profiles = builder.finish().unwrap();
    profiles.window = Some(ProcessWindow {
        profiler_id: ProfilerId::from_hash(7),
        strength: IdentityStrength::Strong,
        start_unix_nano: START_UNIX_NANO,
        end_unix_nano: START_UNIX_NANO + Duration::from_secs(60).as_nanos() as u64,
    });
    profiles
}

pub(crate) fn prepare(exporter: &SentryExporter, telemetry: impl Into<Telemetry>) -> Prepared<Meta> {
    exporter.prepare(&telemetry.into(), Now { monotonic_nano: 0, unix_nano: START_UNIX_NANO })
}

/// The only request made from a batch.
pub(crate) fn request(exporter: &SentryExporter) -> Request<Meta> {
    let mut requests = prepare(exporter, batch("shop")).requests;
    assert_eq!(requests.len(), 1);
    requests.remove(0)
}
