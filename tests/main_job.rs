//! The main job: OTLP profiles in, Sentry chunks and OTLP out.

use std::collections::BTreeMap;

use profbridge_relay_rules::validate_json;
use profbridge_testkit::naive::{self, chunk::Chunk};
use profbridge_testkit::workload::{self, Shape};
use profbridge_testkit::{Frame, RequestBuilder, T0, fixture, ms};
use prost::Message;
use serde_json::Value;

use crate::backend::otlp::Otlp;
use crate::backend::sentry::{KEY, Sentry};
use crate::client::{export, post, recent, shift, status};
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
    let sentry = Sentry::start();
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

/// Guarantees: a profile with a time but no duration is shown at its time, as long as its values, with windows of a
/// minute as without windows, whatever arrived before.
#[test]
fn moments_stand_at_their_time() {
    for window in ["0s", "60s"] {
        let sentry = Sentry::start();
        let profbridge = Profbridge::start(&to_sentry(&sentry.dsn(1), &format!("{{window: {window}}}"), ""));
        let second = 1_000_000_000;
        let request = |at: u64, function: &str| {
            let profile = RequestBuilder::new().process("checkout", 42).profile("cpu", "nanoseconds");
            profile.range(T0 + at * second, 0).value(&[format!("go!{function}").as_str()], second as i64 / 2).build()
        };
        for (at, function) in [(4, "later"), (2, "sooner")] {
            export(profbridge.address("otlp/grpc"), request(at, function)).unwrap();
        }
        assert!(profbridge.stop().0.success());
        let chunks: Vec<Value> = sentry.received.all().iter().flat_map(|request| request.chunks()).collect();
        let mut seen: Vec<_> = chunks.iter().flat_map(observed).collect();
        seen.sort_by_key(|(_, micros, _)| *micros);
        let of = |function: &str| {
            let times = seen
                .iter()
                .filter(|(_, _, stack)| stack[0] == function)
                .map(|(_, micros, _)| *micros - (T0 + shift()) as i64 / 1000);
            (times.clone().min(), times.max())
        };
        for (function, at) in [("sooner", 2_000_000), ("later", 4_000_000)] {
            let (first, last) = of(function);
            assert_eq!(first, Some(at), "{window} {function}: {seen:?}");
            assert!(last.unwrap() < at + 500_000, "{window} {function}: {seen:?}");
        }
    }
}

/// Guarantees: for the fixture with the shapes of real data, the chunks in Sentry equal those of a second, independent
/// implementation of the rules.
#[test]
fn agrees_with_the_control() {
    let request = recent(fixture::request());
    let sentry = Sentry::start();
    let profbridge = Profbridge::start(&to_sentry(&sentry.dsn(1), "{window: 0s}", ""));
    export(profbridge.address("otlp/grpc"), request.clone()).unwrap();
    let wanted = naive::convert(&request, &naive::Options::default());
    let chunks = sentry.wait_for_chunks(wanted.len());
    let chunks: Vec<Chunk> = chunks.into_iter().map(|chunk| serde_json::from_value(chunk).unwrap()).collect();
    // Ids are generated differently, so chunks are compared by content. How a name is split into module and function is
    // tested elsewhere; here a frame is its place and whether it is the program's code.
    let by_content = |chunks: &[Chunk]| -> BTreeMap<String, usize> {
        let mut all = BTreeMap::new();
        for chunk in chunks {
            let mut samples = naive::canonical(chunk);
            for frame in samples.iter_mut().flat_map(|sample| &mut sample.stack) {
                (frame.function, frame.module) = (None, None);
                // The file name is shortened by the module.
                if frame.abs_path.is_some() {
                    frame.filename = None;
                }
            }
            *all.entry(format!("{:?} {samples:?}", naive::debug_ids(chunk))).or_default() += 1;
        }
        all
    };
    assert_eq!(by_content(&chunks), by_content(&wanted));
    assert!(profbridge.stop().0.success());
}

/// Guarantees: the same arrives over HTTP, plain or gzipped, and the answer has the content type of the request.
/// rule: otlp#http-answer-type
#[test]
fn over_http() {
    let sentry = Sentry::start();
    let profbridge = Profbridge::start(&to_sentry(&sentry.dsn(1), "{window: 0s}", ""));
    let body = checkout().build().encode_to_vec();
    let protobuf = ("Content-Type", "application/x-protobuf");
    let address = profbridge.address("otlp/http");
    let answer = post(address, "/v1development/profiles", &[protobuf], &body);
    assert_eq!(status(&answer), 200);
    assert!(String::from_utf8_lossy(&answer).to_lowercase().contains("content-type: application/x-protobuf"));
    assert_eq!(observed(&sentry.wait_for_chunks(1)[0]).len(), 5);

    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    let later = RequestBuilder::new().process("cart", 1).on_cpu(20).sample(&["go!f", "go!main"], 1, &ms([0, 50]));
    std::io::Write::write_all(&mut gzip, &later.build().encode_to_vec()).unwrap();
    let body = gzip.finish().unwrap();
    let answer = post(address, "/v1development/profiles", &[protobuf, ("Content-Encoding", "gzip")], &body);
    assert_eq!(status(&answer), 200);
    assert_eq!(sentry.wait_for_chunks(2).len(), 2);
}

/// Guarantees: with a window, requests of one process become one chunk, a resend is dropped and counted, and SIGTERM
/// flushes the window.
#[test]
fn windows_and_resends() {
    let sentry = Sentry::start();
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

/// Guarantees: profiles are routed to projects by service, and all others to the default project.
#[test]
fn routes_by_service() {
    let sentry = Sentry::start();
    let routing = format!(", routing: {{attribute_to_dsn: {{checkout: '{}'}}}}", sentry.dsn(2));
    let profbridge = Profbridge::start(&to_sentry(&sentry.dsn(1), "{window: 0s}", &routing));
    let request = checkout().process("cart", 1).on_cpu(20).sample(&["f", "g"], 1, &ms([0, 50]));
    export(profbridge.address("otlp/grpc"), request.build()).unwrap();
    sentry.wait_for_chunks(2);
    let projects: BTreeMap<String, String> = sentry
        .received
        .all()
        .into_iter()
        .map(|request| (request.path.clone(), request.chunks()[0]["release"].as_str().unwrap().to_owned()))
        .collect();
    let wanted = [("/api/1/envelope/", "cart"), ("/api/2/envelope/", "checkout@1.2.3")];
    assert_eq!(projects, wanted.map(|(path, release)| (path.to_owned(), release.to_owned())).into());
}

/// Guarantees: local profiles without a host belong to one process of this machine across requests; those that a peer
/// forwards for several machines are not merged even if all their attributes are equal, and the log names the setting
/// for it.
#[test]
fn hosts_are_not_mixed_up() {
    let unnamed = |start: u64| {
        let builder = RequestBuilder::new().resource().attr("process.executable.path", "/usr/bin/python3");
        builder.attr("process.pid", 42).on_cpu(20).sample(&["f", "main"], 7, &[start, start + 50_000_000])
    };
    let ids = |chunks: &[Value]| -> std::collections::BTreeSet<String> {
        chunks.iter().map(|chunk| chunk["profiler_id"].to_string()).collect()
    };
    let sentry = Sentry::start();
    let profbridge = Profbridge::start(&to_sentry(&sentry.dsn(1), "{window: 0s}", ""));
    for start in [T0, T0 + 1_000_000_000] {
        export(profbridge.address("otlp/grpc"), unnamed(start).build()).unwrap();
    }
    assert_eq!(ids(&sentry.wait_for_chunks(2)).len(), 1);
    assert_eq!(profbridge.metric("profbridge_notes_total", "note=\"weak_identity\""), 0.0);
    let (exit, log) = profbridge.stop();
    assert!(exit.success() && !log.contains("several machines"), "{log}");

    let sentry = Sentry::start();
    let profbridge = Profbridge::start(&to_sentry(&sentry.dsn(1), "", ""));
    let named = ["web-2", "web-3"].into_iter().fold(unnamed(T0), |request, host| {
        request.resource().attr("host.name", host).attr("process.pid", 1).on_cpu(20).sample(&["g"], 1, &ms([0, 50]))
    });
    for request in [named.build(), unnamed(T0 + 1).build()] {
        export(profbridge.address("otlp/grpc"), request).unwrap();
    }
    // Two with a host, and two without: one per request.
    let (exit, log) = profbridge.stop();
    let chunks = sentry.wait_for_chunks(4);
    assert_eq!(ids(&chunks).len(), 4, "{log}");
    assert!(exit.success(), "{log}");
    assert!(log.contains("127.0.0.1 passes on the profiles of several machines") && log.contains("host.id"), "{log}");
}

/// Guarantees: processes from loopback that only differ in an attribute of their machine become two chunks: nodes of a
/// cluster, copies of one machine image with different names, and services. Only if no attribute names the machine does
/// the log name the setting for it.
#[test]
fn one_process_id_on_two_machines() {
    let image = [("host.id", "f00d")];
    for (common, key, warned) in
        [(&[][..], "k8s.node.name", false), (&image, "host.name", false), (&[], "service.name", true)]
    {
        let sentry = Sentry::start();
        let profbridge = Profbridge::start(&to_sentry(&sentry.dsn(1), "", ""));
        let request = ["one", "two"].into_iter().fold(RequestBuilder::new(), |request, value| {
            let request =
                request.resource().attr("process.pid", 42).attr("process.executable.path", "/usr/bin/python3");
            let request = common.iter().fold(request, |request, &(key, value)| request.attr(key, value));
            request.attr(key, value).on_cpu(20).sample(&[value, "main"], 7, &ms([0, 50]))
        });
        export(profbridge.address("otlp/grpc"), request.build()).unwrap();
        let (exit, log) = profbridge.stop();
        assert!(exit.success(), "{log}");
        let chunks = sentry.wait_for_chunks(2);
        let ids: std::collections::BTreeSet<_> = chunks.iter().map(|chunk| chunk["profiler_id"].to_string()).collect();
        assert_eq!((chunks.len(), ids.len()), (2, 2), "{key}: {log}");
        assert_eq!(log.contains("process 42 is of the service") && log.contains("host.id"), warned, "{key}: {log}");
    }
}

/// Guarantees: a process without a service name is named by its environment, else by its executable, and is routed by
/// that name.
#[test]
fn services_are_named_by_their_environment() {
    let sentry = Sentry::start();
    let routing = format!(", routing: {{attribute_to_dsn: {{shop: '{}', nginx: '{}'}}}}", sentry.dsn(2), sentry.dsn(3));
    let profbridge = Profbridge::start(&to_sentry(&sentry.dsn(1), "{window: 0s}", &routing));
    let list = "service.version=7,deployment.environment.name=lane";
    let request = RequestBuilder::new()
        .resource()
        .attr("process.pid", 1)
        .attr("process.executable.name", "python3")
        .attr("process.environment_variable.OTEL_SERVICE_NAME", "shop")
        .attr("process.environment_variable.OTEL_RESOURCE_ATTRIBUTES", list)
        .on_cpu(20)
        .sample(&["f"], 1, &ms([0, 50]))
        .resource()
        .attr("process.pid", 2)
        .attr("process.executable.path", "/usr/sbin/nginx")
        .on_cpu(20)
        .sample(&["f"], 2, &ms([0, 50]));
    export(profbridge.address("otlp/grpc"), request.build()).unwrap();
    sentry.wait_for_chunks(2);
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let chunks: BTreeMap<String, (String, String)> = sentry
        .received
        .all()
        .into_iter()
        .map(|request| (request.path.clone(), request.chunks()[0].clone()))
        .map(|(path, chunk)| (path, (text(&chunk["release"]), text(&chunk["environment"]))))
        .collect();
    let wanted = [("/api/2/envelope/", ("shop@7", "lane")), ("/api/3/envelope/", ("nginx", "production"))];
    let owned =
        |(path, (release, lane)): (&str, (&str, &str))| (path.to_owned(), (release.to_owned(), lane.to_owned()));
    assert_eq!(chunks, wanted.map(owned).into());
}

/// Guarantees: an OTLP backend gets the received profiles unchanged except for added profile ids, even if it was busy
/// at first.
/// rule: otlp#send-grpc
#[test]
fn otlp_to_otlp() {
    let backend = Otlp::start();
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

/// Guarantees: in a request with a thousand processes each process gets its own chunk, without mixing them up.
#[test]
fn many_processes() {
    let sentry = Sentry::start();
    let profbridge = Profbridge::start(&to_sentry(&sentry.dsn(1), "{window: 0s}", ""));
    let mut request = RequestBuilder::new();
    for pid in 1..=300 {
        let frame = Frame::from(format!("go!f{pid}").as_str());
        request = request.process("fleet", pid).on_cpu(20).sample(&[frame], pid, &ms([0, 50, 100]));
    }
    export(profbridge.address("otlp/grpc"), request.build()).unwrap();
    let chunks = sentry.wait_for_chunks(300);
    let mut seen = std::collections::BTreeSet::new();
    for chunk in &chunks {
        let observed = observed(chunk);
        let (thread, _, stack) = &observed[0];
        assert_eq!(observed.len(), 3);
        assert_eq!(stack[0], format!("f{thread}"));
        seen.insert((chunk["profiler_id"].to_string(), thread.clone()));
    }
    assert_eq!(seen.len(), 300);
}
