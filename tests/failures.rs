//! Failures of the peer, the input and the configuration.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use profbridge_testkit::{RequestBuilder, T0};
use tonic_types::StatusExt as _;

use crate::backend::sentry::{Behaviour, SentryBackend};
use crate::client::{export, request, shift, status};
use crate::main_job::to_sentry;
use crate::process::{PATIENCE, Profbridge, eventually};

/// How many Sentry samples [`request`] becomes: three observations and a closing sample.
const SAMPLES: f64 = 4.0;

/// Immediate retries, so that tests do not wait for them.
const SOON: &str = ", retry_on_failure: {initial_interval: 10ms, max_interval: 10ms, randomization_factor: 0}";

/// The load of [`an_outage_loses_nothing`]: the number of requests, and the number of observations in each request,
/// which covers a second.
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
        let sentry = SentryBackend::start();
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
            // If there are more refusals than senders, at least one sender has retried and was refused again.
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

/// Guarantees: a complete request over HTTP/1 is delivered and answered even if its sender has closed its side of the
/// connection; it is delivered even if the sender has ended.
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

/// Guarantees: while Sentry is down, SIGTERM still ends the process within its deadline, and the exit report shows what
/// was not sent.
#[test]
fn shutdown_has_a_deadline() {
    let sentry = SentryBackend::start();
    sentry.always(Behaviour::Hang);
    let config = to_sentry(&sentry.dsn(1), "{window: 0s}", "").replace("service:", "service:\n  shutdown_timeout: 1s");
    let profbridge = Profbridge::start(&config);
    export(profbridge.address("otlp/grpc"), request("stuck")).unwrap();
    sentry.received.wait(1);
    let (_, log) = profbridge.stop();
    assert!(log.contains(&format!("{SAMPLES} shutdown")), "{log}");
    assert!(!log.contains("unaccounted"), "{log}");
}

/// Guarantees: if clients open more connections than the limit of open files, health, metrics and exporters still have
/// their descriptors: they respond, and data from an earlier connection reaches Sentry.
#[cfg(target_os = "linux")]
#[test]
fn descriptors_are_reserved() {
    use std::io::Write as _;
    use std::net::TcpStream;
    let sentry = SentryBackend::start();
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
