//! Failures of the peer, the input and the configuration.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use profbridge_testkit::{RequestBuilder, T0, ms};
use tonic_types::StatusExt as _;

use crate::backend::sentry::{Behaviour, KEY, Sentry};
use crate::client::{export, post, shift, status};
use crate::main_job::to_sentry;
use crate::process::{PATIENCE, Profbridge, command, eventually, run};

fn request(
    service: &str,
) -> opentelemetry_proto::tonic::collector::profiles::v1development::ExportProfilesServiceRequest {
    RequestBuilder::new().process(service, 1).on_cpu(20).sample(&["go!f", "go!main"], 1, &ms([0, 50, 100])).build()
}

/// How many Sentry samples [`request`] becomes: three observations, and the sample that ends them.
const SAMPLES: f64 = 4.0;

/// Immediate retries, so that tests do not wait for them.
const SOON: &str = ", retry_on_failure: {initial_interval: 10ms, max_interval: 10ms, randomization_factor: 0}";

/// Guarantees: after an outage (no answer, a closed connection, 500, 502, 503, 504) a chunk is retried until Sentry
/// accepts it, with the same chunk id, so it overwrites itself.
/// rule: differences#retry-5xx
#[test]
fn an_outage_is_retried() {
    for behaviour in [
        Behaviour::Close,
        Behaviour::Answer(500, vec![]),
        Behaviour::Answer(502, vec![]),
        Behaviour::Answer(503, vec![]),
        Behaviour::Answer(504, vec![]),
    ] {
        let sentry = Sentry::start();
        sentry.next(behaviour.clone());
        let profbridge = Profbridge::start(&to_sentry(&sentry.dsn(1), "{window: 0s}", SOON));
        export(profbridge.address("otlp/grpc"), request("checkout")).unwrap();
        let accepted = sentry.wait_for_chunks(1);
        let all: Vec<_> = sentry.received.all().iter().flat_map(|request| request.chunks()).collect();
        assert_eq!(all.len(), 2, "{behaviour:?}");
        assert_eq!(all[0]["chunk_id"], accepted[0]["chunk_id"], "{behaviour:?}");
        assert!(profbridge.stop().0.success());
    }
}

/// The load of [`an_outage_loses_nothing`]: the number of requests, and the observations in each, which take a second.
const OUTAGE: (u64, u64) = (160, 1000);

/// Exports a request like the Collector's exporter: it retries after a pause while the answer is UNAVAILABLE with
/// RetryInfo, and counts these answers. The pause is shorter than the answer asks for, so that tests do not wait.
fn export_patiently(
    address: std::net::SocketAddr,
    request: &opentelemetry_proto::tonic::collector::profiles::v1development::ExportProfilesServiceRequest,
    refused: &AtomicU64,
) {
    let deadline = Instant::now() + PATIENCE;
    while let Err(status) = export(address, request.clone()) {
        assert_eq!(status.code(), tonic::Code::Unavailable, "{status}");
        assert!(status.get_details_retry_info().is_some_and(|info| info.retry_delay.is_some()), "{status}");
        assert!(status.message().contains("the queue of exporter sentry is full"), "{status}");
        refused.fetch_add(1, Ordering::Relaxed);
        assert!(Instant::now() < deadline, "it was never taken");
        thread::park_timeout(Duration::from_millis(10));
    }
}

/// Guarantees: while Sentry is down, senders are asked to retry as soon as the queue is full, with windows and without;
/// after it returns everything arrives, though it is many times what queue and windows can hold.
#[test]
fn an_outage_loses_nothing() {
    for (identity, chunk) in [("{window: 0s}", ""), ("{window: 60s}", "{max_observations: 3000}")] {
        let sentry = Sentry::start();
        sentry.always(Behaviour::Answer(503, vec![]));
        let exporter = format!(", sending_queue: {{queue_size: 4}}{SOON}");
        let config = to_sentry(&sentry.dsn(1), identity, &exporter);
        let profbridge = Profbridge::start(&config.replace("chunk: }", &format!("chunk: {chunk}}}")));
        let (requests, observations) = OUTAGE;
        let (next, refused) = (AtomicU64::new(0), AtomicU64::new(0));
        let address = profbridge.address("otlp/grpc");
        thread::scope(|senders| {
            for _ in 0..4 {
                senders.spawn(|| {
                    loop {
                        let number = next.fetch_add(1, Ordering::Relaxed);
                        if number >= requests {
                            return;
                        }
                        let times: Vec<u64> = (0..observations).map(|n| T0 + (number * 1000 + n) * 1_000_000).collect();
                        let request =
                            RequestBuilder::new().process("checkout", 1).on_cpu(1000).sample(&["go!main"], 1, &times);
                        export_patiently(address, &request.build(), &refused);
                    }
                });
            }
            // More refusals than senders: at least one sender retried and was refused again.
            crate::process::eventually("senders are refused", || (refused.load(Ordering::Relaxed) > 20).then_some(()));
            assert!(next.load(Ordering::Relaxed) < requests, "the total does not exceed what fits");
            sentry.always(Behaviour::Answer(200, vec![]));
        });
        let (exit, log) = profbridge.stop();
        assert!(exit.success() && !log.contains("dropped"), "{chunk}: {log}");
        assert!(log.contains(&format!("receiver otlp: {} observations", requests * observations)), "{chunk}: {log}");
        let mut times: Vec<u64> = Vec::new();
        for received in sentry.received.all().iter().filter(|received| received.status == 200) {
            for chunk in received.chunks() {
                let samples = chunk["profile"]["samples"].as_array().unwrap();
                times.extend(samples.iter().map(|sample| (sample["timestamp"].as_f64().unwrap() * 1e3).round() as u64));
            }
        }
        times.sort_unstable();
        times.dedup();
        let first = (T0 + shift()) / 1_000_000;
        let missing =
            (first..first + requests * observations).filter(|time| times.binary_search(time).is_err()).count();
        assert_eq!(missing, 0, "{chunk}: observations that did not arrive\n{log}");
    }
}

/// Guarantees: if shutdown finds a request partly taken in, because Sentry is down and the queue is full, the sender
/// gets success, over gRPC and over HTTP: all of it is delivered, so it must not be sent again.
#[test]
fn a_request_that_is_being_taken_in_is_taken() {
    let times: Vec<u64> = (0..40).map(|n| T0 + n * 100_000_000).collect();
    let request = RequestBuilder::new().process("checkout", 1).on_cpu(1000).sample(&["go!main"], 1, &times).build();
    let body = prost::Message::encode_to_vec(&request);
    for over_http in [false, true] {
        let sentry = Sentry::start();
        sentry.always(Behaviour::Answer(503, vec![]));
        let exporter = format!(", sending_queue: {{queue_size: 1}}{SOON}");
        let config =
            to_sentry(&sentry.dsn(1), "{window: 0s}", &exporter).replace("chunk: }", "chunk: {max_observations: 2}}");
        // The sender is answered after a tenth of this time, and the rest of the request is cut after another tenth:
        // enough for a busy machine.
        let config = config.replace("service:\n", "service:\n  shutdown_timeout: 40s\n");
        let profbridge = Profbridge::start(&config);
        let (grpc, http) = (profbridge.address("otlp/grpc"), profbridge.address("otlp/http"));
        thread::scope(|threads| {
            let sender = threads.spawn(|| {
                if over_http {
                    let headers = [("Content-Type", "application/x-protobuf")];
                    assert_eq!(status(&post(http, "/v1development/profiles", &headers, &body)), 200);
                } else {
                    export(grpc, request.clone()).unwrap();
                }
            });
            sentry.received.wait(1);
            profbridge.signal("TERM");
            sender.join().unwrap();
        });
        sentry.always(Behaviour::Answer(200, vec![]));
        let (exit, log, ..) = profbridge.ended();
        assert!(exit.success() && !log.contains("dropped") && !log.contains("cut"), "{log}");
        assert!(log.contains("receiver otlp: 40 observations"), "{log}");
    }
}

/// Guarantees: a complete request over HTTP/1 is delivered although its sender has closed its side of the connection,
/// and then answered, or has ended.
#[test]
fn senders_that_closed() {
    const EACH: usize = 10;
    let profbridge = Profbridge::start(
        "receivers: {otlp: {protocols: {http: {endpoint: '127.0.0.1:0'}}}, pprof: {push: {endpoint: '127.0.0.1:0'}}}
exporters: {debug: }
service: {pipelines: {profiles: {receivers: [otlp, pprof], exporters: [debug]}}}
",
    );
    // Large enough that it is decoded on another thread.
    let times: Vec<u64> = (0..20_000).map(|n| T0 + n * 1_000_000).collect();
    let request = RequestBuilder::new().process("checkout", 1).on_cpu(1000).sample(&["go!main"], 1, &times).encode();
    let otlp = ("otlp", "/v1development/profiles", "Content-Type: application/x-protobuf\r\n", request, 1);
    for (receiver, path, header, body, samples) in [otlp, ("pprof", "/api/pprof", "", crate::pprof::go_cpu(), 4)] {
        let length = body.len();
        let head = format!("POST {path} HTTP/1.1\r\nHost: localhost\r\n{header}Content-Length: {length}\r\n\r\n");
        for _ in 0..EACH {
            let mut ended = TcpStream::connect(profbridge.address(&format!("{receiver}/http"))).unwrap();
            ended.write_all(&[head.as_bytes(), &body].concat()).unwrap();
            drop(ended);
            let mut closed = TcpStream::connect(profbridge.address(&format!("{receiver}/http"))).unwrap();
            closed.write_all(&[head.as_bytes(), &body].concat()).unwrap();
            closed.shutdown(Shutdown::Write).unwrap();
            let mut answer = Vec::new();
            closed.read_to_end(&mut answer).unwrap();
            assert_eq!(status(&answer), 200);
        }
        let all = (2 * EACH * samples) as f64;
        eventually("all is delivered", || {
            let labels = format!("receiver=\"{receiver}\"");
            (profbridge.metric("otelcol_receiver_accepted_profile_samples", &labels) == all).then_some(())
        });
    }
    assert!(profbridge.stop().0.success());
}

/// Guarantees: a request that Sentry never answers times out and is retried.
#[test]
fn a_hanging_sentry_is_retried() {
    let sentry = Sentry::start();
    sentry.next(Behaviour::Hang);
    let exporter = format!(", timeout: 200ms{SOON}");
    let profbridge = Profbridge::start(&to_sentry(&sentry.dsn(1), "{window: 0s}", &exporter));
    export(profbridge.address("otlp/grpc"), request("checkout")).unwrap();
    assert_eq!(sentry.wait_for_chunks(1).len(), 1);
}

/// Guarantees: every other failure is final: sent once, counted, explained without the key, and the next chunk is sent.
/// rule: differences#retry-5xx
#[test]
fn a_refusal_is_final() {
    for (code, reason) in
        [(400, "rejected_by_peer"), (401, "rejected_by_peer"), (403, "rejected_by_peer"), (413, "too_large")]
    {
        let sentry = Sentry::start();
        sentry.next(Behaviour::Answer(code, vec![]));
        // A first 400 for zstd may mean that the server does not support it, so gzip is used to test a real refusal.
        let exporter = format!(", compression: gzip{SOON}");
        let profbridge = Profbridge::start(&to_sentry(&sentry.dsn(1), "{window: 0s}", &exporter));
        export(profbridge.address("otlp/grpc"), request("refused")).unwrap();
        sentry.received.wait(1);
        export(profbridge.address("otlp/grpc"), request("accepted")).unwrap();
        let accepted = sentry.wait_for_chunks(1);
        assert_eq!(accepted[0]["release"], "accepted", "{code}");
        let refused = || profbridge.metric("profbridge_dropped_observations_total", &format!("reason=\"{reason}\""));
        crate::process::eventually("the loss is counted", || (refused() == SAMPLES).then_some(()));
        let (exit, log) = profbridge.stop();
        assert!(exit.success(), "{log}");
        assert!(log.contains(&code.to_string()) && !log.contains(KEY), "{log}");
    }
}

/// Guarantees: after a 429 nothing is sent until the limit expires, data that arrives meanwhile is dropped and counted,
/// and client reports do not include what the server itself dropped.
#[test]
fn rate_limits_hold() {
    let sentry = Sentry::start();
    sentry.next(Behaviour::Answer(429, vec![("x-sentry-rate-limits", "600:profile_chunk:organization")]));
    let profbridge = Profbridge::start(&to_sentry(&sentry.dsn(1), "{window: 0s}", SOON));
    export(profbridge.address("otlp/grpc"), request("first")).unwrap();
    sentry.received.wait(1);
    let limited = || profbridge.metric("profbridge_dropped_observations_total", "reason=\"rate_limited\"");
    crate::process::eventually("the limit is known", || (limited() == SAMPLES).then_some(()));
    export(profbridge.address("otlp/grpc"), request("second")).unwrap();
    crate::process::eventually("the second is dropped", || (limited() == 2.0 * SAMPLES).then_some(()));
    let chunks: usize = sentry.received.all().iter().map(|request| request.chunks().len()).sum();
    assert_eq!(chunks, 1);
    // Nothing at all was sent.
    assert_eq!(profbridge.stop().0.code(), Some(1));
}

/// Guarantees: a run that lost everything it accepted ends with an error status; a run that accepted nothing, or sent
/// anything, does not.
#[test]
fn losing_everything_is_an_exit_status() {
    for (answers, requests, expected) in [(vec![], 0, 0), (vec![401], 1, 1), (vec![401, 200], 2, 0)] {
        let sentry = Sentry::start();
        answers.iter().for_each(|&answer| sentry.next(Behaviour::Answer(answer, vec![])));
        let exporter = format!(", compression: gzip{SOON}");
        let profbridge = Profbridge::start(&to_sentry(&sentry.dsn(1), "{window: 0s}", &exporter));
        for number in 0..requests {
            export(profbridge.address("otlp/grpc"), request(&format!("service-{number}"))).unwrap();
            sentry.received.wait(number + 1);
        }
        let (exit, log) = profbridge.stop();
        assert_eq!(exit.code(), Some(expected), "{answers:?}: {log}");
        assert_eq!(log.contains("sent nothing of what it was given"), expected == 1, "{answers:?}: {log}");
    }
}

/// Guarantees: refused requests are logged: the first of each reason per minute with its sender and the answer, the
/// others not. If traces are sent here because of a variable that applies to every signal, the answer names the right
/// variable.
#[test]
fn what_is_not_taken_is_in_the_log() {
    let sentry = Sentry::start();
    let profbridge = Profbridge::start(&to_sentry(&sentry.dsn(1), "{window: 0s}", ""));
    let address = profbridge.address("otlp/http");
    let protobuf = ("Content-Type", "application/x-protobuf");
    let began = Instant::now();
    for _ in 0..20 {
        assert_eq!(status(&post(address, "/v1development/profiles", &[protobuf], b"\xff\xff\xff")), 400);
        let answer = post(address, "/v1/traces", &[protobuf], b"");
        assert_eq!(status(&answer), 404);
        let text = String::from_utf8_lossy(&answer);
        assert!(text.contains("set OTEL_EXPORTER_OTLP_TRACES_ENDPOINT to where traces go"), "{text}");
    }
    let (exit, log) = profbridge.stop();
    assert!(exit.success(), "{log}");
    for (reason, says) in [("malformed", "request: "), ("other_signal", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")] {
        let lines: Vec<&str> = log.lines().filter(|line| line.contains(&format!("({reason})"))).collect();
        // Just one on a machine that needs less than a minute for this.
        assert!((1..=1 + began.elapsed().as_secs() / 60).contains(&(lines.len() as u64)), "{log}");
        let line = lines[0];
        assert!(
            line.contains("1 request was not taken") && line.contains("from 127.0.0.1") && line.contains(says),
            "{line}"
        );
        assert!(line.contains("was told not to send the same again"), "{line}");
    }
    assert!(log.contains("20 requests failed"), "{log}");
}

/// Guarantees: a server without zstd support gets the same chunk as gzip, and all later ones too.
#[test]
fn falls_back_to_gzip() {
    let sentry = Sentry::start();
    sentry.next(Behaviour::Answer(415, vec![]));
    let profbridge = Profbridge::start(&to_sentry(&sentry.dsn(1), "{window: 0s}", SOON));
    export(profbridge.address("otlp/grpc"), request("first")).unwrap();
    sentry.wait_for_chunks(1);
    export(profbridge.address("otlp/grpc"), request("second")).unwrap();
    sentry.wait_for_chunks(2);
    let encodings: Vec<_> = sentry
        .received
        .all()
        .iter()
        .map(|request| request.headers["content-encoding"].to_str().unwrap().to_owned())
        .collect();
    assert_eq!(encodings, ["zstd", "gzip", "gzip"]);
}

/// Guarantees: while Sentry is down, SIGTERM still ends the process within its deadline, and the exit report shows what
/// was not sent.
#[test]
fn shutdown_has_a_deadline() {
    let sentry = Sentry::start();
    sentry.always(Behaviour::Hang);
    let config = to_sentry(&sentry.dsn(1), "{window: 0s}", "").replace("service:", "service:\n  shutdown_timeout: 1s");
    let profbridge = Profbridge::start(&config);
    export(profbridge.address("otlp/grpc"), request("stuck")).unwrap();
    sentry.received.wait(1);
    let (_, log) = profbridge.stop();
    assert!(log.contains(&format!("{SAMPLES} shutdown")), "{log}");
    assert!(!log.contains("unaccounted"), "{log}");
}

/// Guarantees: invalid requests are refused as the protocol defines it, and the next request is served.
#[test]
fn bad_requests_are_answered() {
    let sentry = Sentry::start();
    let profbridge = Profbridge::start(&to_sentry(&sentry.dsn(1), "{window: 0s}", ""));
    let address = profbridge.address("otlp/http");
    let protobuf = ("Content-Type", "application/x-protobuf");
    let path = "/v1development/profiles";
    assert_eq!(status(&post(address, path, &[protobuf], b"\xff\xff\xff")), 400);
    assert_eq!(status(&post(address, path, &[("Content-Type", "application/json")], b"{")), 400);
    assert_eq!(status(&post(address, path, &[("Content-Type", "text/plain")], b"{}")), 415);
    assert_eq!(status(&post(address, path, &[protobuf, ("Content-Encoding", "compress")], b"")), 415);
    assert_eq!(status(&post(address, "/v1/profiles", &[protobuf], b"")), 404);
    let mut bomb = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    std::io::copy(&mut std::io::Read::take(std::io::repeat(0), 65 << 20), &mut bomb).unwrap();
    let bomb = bomb.finish().unwrap();
    assert_eq!(status(&post(address, path, &[protobuf, ("Content-Encoding", "gzip")], &bomb)), 413);

    let mut broken = request("broken");
    let dictionary = broken.dictionary.as_mut().unwrap();
    dictionary.location_table.last_mut().unwrap().lines[0].function_index = -5;
    let error = export(profbridge.address("otlp/grpc"), broken).unwrap_err();
    assert_eq!(error.code(), tonic::Code::InvalidArgument);
    assert!(error.message().contains("function_index"), "{error}");

    let mut partial = request("partial");
    partial.resource_profiles[0].scope_profiles[0].profiles.push(
        opentelemetry_proto::tonic::profiles::v1development::Profile {
            samples: vec![opentelemetry_proto::tonic::profiles::v1development::Sample {
                stack_index: 4_000,
                timestamps_unix_nano: vec![1],
                ..Default::default()
            }],
            ..Default::default()
        },
    );
    let answer = export(profbridge.address("otlp/grpc"), partial).unwrap();
    let refused = answer.partial_success.unwrap();
    assert_eq!(refused.rejected_profiles, 1);
    assert!(refused.error_message.contains("stack_index"), "{}", refused.error_message);
    assert_eq!(sentry.wait_for_chunks(1)[0]["release"], "partial", "the good profile went through");
    assert!(profbridge.stop().0.success());
}

/// Guarantees: a full disk only loses what could not be written: the pipeline's other exporter gets everything, and the
/// loss has its reason.
#[test]
fn a_full_disk_hurts_nobody_else() {
    let sentry = Sentry::start();
    let config = to_sentry(&sentry.dsn(1), "{window: 0s}", "")
        .replace(
            "exporters:\n",
            "exporters:\n  file: {path: /dev/full, format: otlp, retry_on_failure: {enabled: false}}\n",
        )
        .replace("exporters: [sentry]", "exporters: [sentry, file]");
    let profbridge = Profbridge::start(&config);
    export(profbridge.address("otlp/grpc"), request("checkout")).unwrap();
    sentry.wait_for_chunks(1);
    let lost = || profbridge.metric("profbridge_dropped_observations_total", "reason=\"write_failed\"");
    crate::process::eventually("the loss is counted", || (lost() == 3.0).then_some(()));
    let (_, log) = profbridge.stop();
    assert!(log.contains("No space left on device"), "{log}");
}

/// Guarantees: if a port is in use, the start fails with the address and the remedy.
#[test]
fn a_taken_port_is_named() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let folder = tempfile::tempdir().unwrap();
    let config = to_sentry("http://key@127.0.0.1:1/1", "", "").replacen("127.0.0.1:0", &address, 1);
    let config = config.replace("http://key@", &format!("http://{KEY}@"));
    std::fs::write(folder.path().join("config.yaml"), config).unwrap();
    let sets = ["metrics", "health"].map(|name| format!("service.telemetry.{name}.address=127.0.0.1:0"));
    let output = command(folder.path(), &["run", "--set", &sets[0], "--set", &sets[1]]).output().unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success());
    assert!(stderr.contains(&address) && stderr.contains("in use"), "{stderr}");
    assert!(!stderr.contains(KEY));
}

/// Guarantees: an invalid DSN is refused before anything starts, with its place in the configuration but not its
/// content.
#[test]
fn a_wrong_dsn_is_explained() {
    let folder = tempfile::tempdir().unwrap();
    for dsn in ["https://sentry.example/1", "not a dsn", &format!("https://{KEY}@sentry.example/")] {
        std::fs::write(folder.path().join("config.yaml"), to_sentry(dsn, "", "")).unwrap();
        let finished = run(folder.path(), &["run"]);
        assert!(!finished.status.success());
        assert!(
            finished.stderr.contains("config.yaml:5:") && finished.stderr.contains("exporters.sentry.dsn"),
            "{}",
            finished.stderr
        );
        assert!(!finished.stderr.contains(KEY), "{}", finished.stderr);
    }
}

/// Guarantees: an empty DSN disables the exporter with one log line, and the pipeline's other exporters run.
#[test]
fn an_empty_dsn_switches_sentry_off() {
    let config = to_sentry("", "{window: 0s}", "")
        .replace("exporters:\n", "exporters:\n  file: {path: envelopes}\n")
        .replace("exporters: [sentry]", "exporters: [sentry, file]");
    let profbridge = Profbridge::start(&config);
    export(profbridge.address("otlp/grpc"), request("checkout")).unwrap();
    assert!(profbridge.log().contains("switched off"), "{}", profbridge.log());
    let (exit, log, path, _folder) = profbridge.stop_and_keep();
    assert!(exit.success(), "{log}");
    assert_eq!(std::fs::read_dir(path.join("envelopes")).unwrap().count(), 1);
}

/// Guarantees: a real request in an older layout arrives at Sentry, as one chunk per process.
/// rule: otlp#layouts
#[test]
fn an_older_layout_is_delivered() {
    // A request in the layout of opentelemetry-proto 1.8: the sample's attribute indices are field 3.
    let shared = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/fixtures/otlp/ebpf-profiler.wire-1.8.otlp");
    let Ok(old) = std::fs::read(shared) else {
        std::io::Write::write_fmt(
            &mut std::io::stderr(),
            format_args!("untested here: ../shared/fixtures/otlp/ebpf-profiler.wire-1.8.otlp is absent\n"),
        )
        .ok();
        return;
    };
    let sentry = Sentry::start();
    let profbridge = Profbridge::start(&to_sentry(&sentry.dsn(1), "{window: 0s}", ""));
    let headers = [("Content-Type", "application/x-protobuf")];
    let answer = post(profbridge.address("otlp/http"), "/v1development/profiles", &headers, &old);
    assert_eq!(status(&answer), 200, "{}", String::from_utf8_lossy(&answer));
    let (exit, log) = profbridge.stop();
    assert!(exit.success() && log.contains("receiver otlp: 189 observations"), "{log}");
    assert!(sentry.received.all().iter().any(|received| !received.chunks().is_empty()));
}

/// Guarantees: if clients open more connections than the limit of open files, health, metrics and exporters still have
/// their descriptors: they respond, and data from an earlier connection reaches Sentry.
#[cfg(target_os = "linux")]
#[test]
fn descriptors_are_reserved() {
    use std::io::Write as _;
    use std::net::TcpStream;
    let sentry = Sentry::start();
    let mut profbridge = Profbridge::start_with_files(&to_sentry(&sentry.dsn(1), "{window: 0s}", SOON), "-n 80");
    let address = profbridge.address("otlp/http");
    let mut before = TcpStream::connect(address).unwrap();
    let body = prost::Message::encode_to_vec(&request("checkout"));
    let head = "POST /v1development/profiles HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/x-protobuf";
    write!(before, "{head}\r\ncontent-length: {}\r\n\r\n", body.len()).unwrap();
    let clients: Vec<_> = (0..200).map(|_| TcpStream::connect(address).unwrap()).collect();
    profbridge.wait_for_log("raise the limit (ulimit -n");
    assert!(profbridge.get("health/telemetry", "/").starts_with("HTTP/1.1 200"));
    assert!(profbridge.metric("profbridge_receiver_connections_total", "refused") > 0.0);
    before.write_all(&body).unwrap();
    sentry.wait_for_chunks(1);
    drop(clients);
    let (status, log) = profbridge.stop();
    assert!(status.success(), "{log}");
    assert!(!log.contains("os error 24"), "{log}");
}
