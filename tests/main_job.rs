//! The main job: OTLP profiles in, Sentry chunks and OTLP out.

use profbridge_relay_rules::validate_json;
use profbridge_testkit::workload::{self, Shape};
use profbridge_testkit::{RequestBuilder, T0, ms};
use serde_json::Value;

use crate::backend::otlp::OtlpBackend;
use crate::backend::sentry::{KEY, SentryBackend};
use crate::client::{export, recent, shift};
use crate::process::{Profbridge, eventually};

/// A configuration with one pipeline from the OTLP receiver to Sentry, and this `service.identity`.
pub(crate) fn to_sentry(dsn: &str, identity: &str, exporter: &str) -> String {
    format!(
        "receivers:
  otlp: {{protocols: {{grpc: {{endpoint: '127.0.0.1:0'}}, http: {{endpoint: '127.0.0.1:0'}}}}}}
processors: {{dedup: , chunk: }}
exporters:
  sentry: {{dsn: '{dsn}'{exporter}}}
service:
  identity: {identity}
  pipelines:
    profiles: {{receivers: [otlp], processors: [dedup, chunk], exporters: [sentry]}}
"
    )
}

fn checkout() -> RequestBuilder {
    RequestBuilder::new()
        .process("checkout", 42)
        .attr("service.version", "1.2.3")
        .on_cpu(20)
        .sample(&["cpython!handle@/srv/app/views.py:12", "cpython!main@/srv/app/main.py:3"], 7, &ms([0, 50, 100]))
        .thread_name("worker")
        .sample(&["cpython!render@/srv/app/views.py:40", "cpython!main@/srv/app/main.py:3"], 7, &ms([150, 200]))
}

/// The non-idle samples of a chunk, resolved: (thread, microseconds, functions from the leaf).
fn observed(chunk: &Value) -> Vec<(String, i64, Vec<String>)> {
    let profile = &chunk["profile"];
    let mut all = Vec::new();
    for sample in profile["samples"].as_array().unwrap() {
        let stack = profile["stacks"][sample["stack_id"].as_u64().unwrap() as usize].as_array().unwrap();
        if stack.is_empty() {
            continue;
        }
        let functions = stack
            .iter()
            .map(|frame| profile["frames"][frame.as_u64().unwrap() as usize]["function"].as_str().unwrap().to_owned())
            .collect();
        let time = (sample["timestamp"].as_f64().unwrap() * 1e6).round() as i64;
        all.push((sample["thread_id"].as_str().unwrap().to_owned(), time, functions));
    }
    all.sort();
    all
}

/// Guarantees: profiles sent over gRPC arrive in Sentry as a chunk that satisfies Relay's rules, with every
/// observation, and all counts are consistent.
/// rule: differences#rejections, sample-format-v2#stack-order, sample-format-v2#envelope, profiles-sdk#stack-order
/// rule: profiles-sdk#v2-item-platform
#[test]
fn otlp_to_sentry() {
    let sentry = SentryBackend::start();
    let mut profbridge = Profbridge::start(&to_sentry(&sentry.dsn(7), "{window: 0s}", ""));
    let answer = export(profbridge.address("otlp/grpc"), checkout().build()).unwrap();
    assert_eq!(answer.partial_success, None, "full success leaves it unset");
    let chunks = sentry.wait_for_chunks(1);
    let [chunk] = chunks.as_slice() else { panic!("{} chunks", chunks.len()) };
    let json = serde_json::to_vec(chunk).unwrap();
    validate_json(&json).unwrap();
    assert_eq!(chunk["platform"], "python");
    assert_eq!(chunk["release"], "checkout@1.2.3");
    assert_eq!(chunk["environment"], "production");
    assert_eq!(chunk["client_sdk"]["name"], "profbridge.rust");
    assert_eq!(chunk["profile"]["thread_metadata"]["7"]["name"], "worker");
    let micros = |offset: i64| (T0 + shift()) as i64 / 1000 + offset * 1000;
    let stack = |leaf: &str| vec![leaf.to_owned(), "main".to_owned()];
    let wanted: Vec<_> = [(0, "handle"), (50, "handle"), (100, "handle"), (150, "render"), (200, "render")]
        .into_iter()
        .map(|(offset, leaf)| ("7".to_owned(), micros(offset), stack(leaf)))
        .collect();
    assert_eq!(observed(chunk), wanted);

    let request = &sentry.received.all()[0];
    assert_eq!(request.path, "/api/7/envelope/");
    assert!(request.headers["x-sentry-auth"].to_str().unwrap().contains(KEY), "authenticated by header");
    assert_eq!(request.headers["content-encoding"], "zstd");
    assert_eq!(request.header["sdk"]["name"], "profbridge.rust");
    assert_eq!(request.items.len(), 1, "one profile item in an envelope");
    assert_eq!(request.items[0].0["platform"], chunk["platform"]);

    profbridge.wait_for_log("accepted for processing");
    assert_eq!(profbridge.metric("otelcol_receiver_accepted_profile_samples", "receiver=\"otlp\""), 2.0);
    let sent = || profbridge.metric("otelcol_exporter_sent_profile_samples", "exporter=\"sentry\"");
    eventually("the samples are counted", || (sent() == 2.0).then_some(()));
    assert_eq!(profbridge.metric("profbridge_dropped_observations_total", ""), 0.0);
    assert!(profbridge.get("health/telemetry", "/").starts_with("HTTP/1.1 200"));
    let (exit, log) = profbridge.stop();
    assert!(exit.success(), "{log}");
    assert!(!log.contains(KEY) && !log.contains("unaccounted"), "{log}");
}

/// Guarantees: with a window, requests of one process become one chunk, a resend is dropped and counted, and SIGTERM
/// flushes the window.
#[test]
fn windows_and_resends() {
    let sentry = SentryBackend::start();
    let profbridge = Profbridge::start(&to_sentry(&sentry.dsn(1), "", ""));
    let report = |start: u64| {
        let times: Vec<u64> = (0..20).map(|tick| start + tick * 50_000_000).collect();
        let builder = RequestBuilder::new().process("checkout", 42).on_cpu(20).range(start, 1_000_000_000);
        builder.sample(&["f", "main"], 7, &times).build()
    };
    // All requests lie within two of sixty seconds.
    for start in [T0, T0 + 1_000_000_000, T0 + 1_000_000_000] {
        export(profbridge.address("otlp/grpc"), report(start)).unwrap();
    }
    assert_eq!(profbridge.metric("profbridge_dropped_observations_total", "reason=\"resent\""), 20.0);
    let (exit, log) = profbridge.stop();
    assert!(exit.success(), "{log}");
    let chunks = sentry.wait_for_chunks(1);
    let total: usize = chunks.iter().map(|chunk| observed(chunk).len()).sum();
    assert_eq!(total, 40, "{log}");
    let ids: std::collections::BTreeSet<_> = chunks.iter().map(|chunk| chunk["profiler_id"].to_string()).collect();
    assert_eq!(ids.len(), 1, "one process is one profiler");
    assert!(log.contains("20 resent"), "{log}");
}

/// Guarantees: an OTLP backend gets the received profiles unchanged except for added profile ids, even if it was busy
/// at first.
/// rule: otlp#send-grpc
#[test]
fn otlp_to_otlp() {
    let backend = OtlpBackend::start();
    let config = format!(
        "receivers:
  otlp: {{protocols: {{grpc: {{endpoint: '127.0.0.1:0'}}}}}}
exporters:
  otlp:
    endpoint: '{}'
    tls: {{insecure: true}}
    retry_on_failure: {{initial_interval: 10ms, max_interval: 10ms, randomization_factor: 0}}
service:
  pipelines:
    profiles: {{receivers: [otlp], exporters: [otlp]}}
",
        backend.address()
    );
    // An overloaded backend tells when to retry, and then gets the refused data.
    backend.next(Err(tonic::Status::unavailable("busy")));
    let profbridge = Profbridge::start(&config);
    let request = recent(workload::request(Shape::Tiny));
    export(profbridge.address("otlp/grpc"), request.clone()).unwrap();
    let received = backend.received.wait(2);
    assert_eq!(received[0], received[1], "the retry says the same");
    let mut received = received[1].clone();
    for resource in &mut received.resource_profiles {
        for profile in resource.scope_profiles.iter_mut().flat_map(|scope| &mut scope.profiles) {
            assert_eq!(profile.profile_id.len(), 16, "filled in");
            profile.profile_id.clear();
        }
    }
    assert_eq!(received, request);
    assert!(profbridge.stop().0.success());
}
