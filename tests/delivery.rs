//! What arrives when a destination is slow, down or refuses, and how it is reported: concurrency, data left at
//! shutdown, loops, health and the exit status.

use std::net::TcpListener;
use std::path::Path;

use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, ScopeSpans, Span};
use profbridge_testkit::T0;
use prost::Message as _;
use serde_json::{Value, json};

use crate::backend::sentry::{Behaviour, KEY, SentryBackend, decompress};
use crate::client::{export, post, request, status};
use crate::linking::send_spans;
use crate::main_job::to_sentry;
use crate::process::{Profbridge, eventually, run};

/// A port without a listener.
fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// The number of envelopes in the folder of `on_shutdown`, and of the DSN files beside them.
fn kept(folder: &Path) -> (usize, usize) {
    let projects = std::fs::read_dir(folder).unwrap().map(|project| project.unwrap().path());
    let names: Vec<String> = projects
        .flat_map(|project| std::fs::read_dir(project).unwrap())
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    (names.iter().filter(|name| name.contains(".envelope")).count(), names.iter().filter(|name| *name == "dsn").count())
}

/// Guarantees: data that Sentry does not accept before shutdown is written to files, which is no failure and is
/// reported with the remedy; `send` delivers the files once Sentry is back, and reports success only then.
#[test]
fn kept_and_sent() {
    let sentry = SentryBackend::start();
    sentry.always(Behaviour::Answer(503, vec![]));
    let config = to_sentry(&sentry.dsn(1), "{window: 0s}", ", on_shutdown: unsent")
        .replace("service:\n", "service:\n  shutdown_timeout: 1s\n");
    let profbridge = Profbridge::start(&config);
    for service in ["a", "b", "c"] {
        export(profbridge.address("otlp/grpc"), request(service)).unwrap();
    }
    let (status, log, path, _folder) = profbridge.stop_and_keep();
    assert!(status.success() && log.contains("kept_on_disk") && log.contains("`profbridge send FOLDER`"), "{log}");
    assert_eq!(kept(&path.join("unsent")), (3, 1), "{log}");

    let finished = run(&path, &["send", "--delete", "unsent"]);
    assert_eq!(finished.status.code(), Some(1), "{}", finished.stderr);
    assert!(finished.stderr.contains("answers 503") && finished.stderr.contains("hint: "), "{}", finished.stderr);
    assert_eq!((&*finished.stdout, kept(&path.join("unsent")).0), ("0 of 3 envelopes delivered\n", 3));

    sentry.always(Behaviour::Answer(200, vec![]));
    let finished = run(&path, &["send", "--delete", "unsent"]);
    assert!(finished.status.success(), "{}", finished.stderr);
    assert_eq!((&*finished.stdout, kept(&path.join("unsent")).0), ("3 of 3 envelopes delivered\n", 0));
    assert_eq!(sentry.wait_for_chunks(3).len(), 3);
}

/// Guarantees: spans that Sentry does not accept before shutdown are kept as OTLP, also more of a trace than a
/// transaction may have, and `send` delivers all of them. For a server without an OTLP endpoint it sends transactions,
/// and reports which spans these lack.
#[test]
fn kept_spans() {
    let span = |id: u64| Span {
        trace_id: vec![1; 16],
        span_id: id.to_be_bytes().to_vec(),
        parent_span_id: if id == 1 { Vec::new() } else { 1_u64.to_be_bytes().to_vec() },
        start_time_unix_nano: T0 + id,
        end_time_unix_nano: T0 + 5_000_000,
        ..Span::default()
    };
    for has_otlp in [true, false] {
        let sentry = SentryBackend::start();
        sentry.always(Behaviour::Answer(503, vec![]));
        let config = to_sentry(&sentry.dsn(1), "{window: 0s}", ", on_shutdown: unsent, environment: staging")
            .replace("service:\n", "service:\n  shutdown_timeout: 1s\n");
        let profbridge =
            Profbridge::start(&format!("{config}    traces: {{receivers: [otlp], exporters: [sentry]}}\n"));
        let scope_spans = vec![ScopeSpans { spans: (1..=1500).map(span).collect(), ..ScopeSpans::default() }];
        send_spans(&profbridge, vec![ResourceSpans { scope_spans, ..ResourceSpans::default() }]);
        let (status, log, path, _folder) = profbridge.stop_and_keep();
        assert!(status.success() && log.contains("dropped 1500 spans kept_on_disk"), "{log}");

        sentry.always(Behaviour::Answer(200, vec![]));
        if !has_otlp {
            sentry.next(Behaviour::Answer(404, vec![]));
        }
        let finished = run(&path, &["send", "--delete", "unsent"]);
        assert_eq!(
            (finished.status.code(), &*finished.stdout),
            (Some(0), "1 of 1 files delivered\n"),
            "{}",
            finished.stderr
        );
        let accepted: Vec<_> = sentry.received.all().into_iter().filter(|received| received.status == 200).collect();
        let [accepted] = &accepted[..] else { panic!("{accepted:?}") };
        if has_otlp {
            assert_eq!(accepted.path, "/api/1/integration/otlp/v1/traces/");
            let request = decompress(&accepted.headers, &accepted.body);
            let request = ExportTraceServiceRequest::decode(&request[..]).unwrap();
            assert_eq!(request.resource_spans[0].scope_spans[0].spans.len(), 1500);
        } else {
            let transaction: Value = serde_json::from_slice(&accepted.items[0].1).unwrap();
            assert_eq!(transaction["environment"], "staging");
            assert_eq!(transaction["spans"].as_array().unwrap().len(), 1000);
            assert!(finished.stderr.contains("499 spans limit_exceeded are lost"), "{}", finished.stderr);
        }
    }
}

/// Guarantees: `send` reports which files it cannot send and why, sends the rest, and exits with 1; an explicit DSN
/// takes precedence.
#[test]
fn files_that_cannot_be_sent() {
    let sentry = SentryBackend::start();
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
    write("good.envelope", "{}\n{\"type\":\"session\",\"length\":2}\n{}\n");
    write("bad.envelope", "no JSON\n");
    let files = ["good.envelope", "bad.envelope", "missing.envelope"];
    let dsn = sentry.dsn(1);
    let with_dsn = [&["send", "--dsn", &dsn][..], &files].concat();
    let finished = run(folder.path(), &with_dsn);
    assert_eq!((finished.status.code(), &*finished.stdout), (Some(1), "1 of 3 envelopes delivered\n"));
    for part in ["bad.envelope: this is no envelope", "missing.envelope: No such file"] {
        assert!(finished.stderr.contains(part), "no `{part}`: {}", finished.stderr);
    }
    assert_eq!(sentry.received.all().len(), 1);
    let finished = run(folder.path(), &["send", "good.envelope"]);
    assert!(!finished.status.success() && finished.stderr.contains("it names no DSN"), "{}", finished.stderr);
}

/// Guarantees: a DSN, an endpoint or a server for other signals that is a receiver of the same process is an error in
/// `validate` and at the start.
#[test]
fn own_listener() {
    let folder = tempfile::tempdir().unwrap();
    for (exporter, listens) in [
        (format!("sentry: {{dsn: 'http://{KEY}@localhost:9311/1'}}"), "sentry: {endpoint: '127.0.0.1:9311'}"),
        (
            "otlp: {endpoint: 'http://127.0.0.1:9312'}".to_owned(),
            "otlp: {protocols: {grpc: {endpoint: '0.0.0.0:9312'}}}",
        ),
        (
            "otlp_http: {endpoint: 'http://[::1]:9313'}".to_owned(),
            "otlp: {protocols: {http: {endpoint: '[::1]:9313'}}}",
        ),
        (
            "debug: {}".to_owned(),
            "otlp: {protocols: {http: {endpoint: '127.0.0.1:9314', forward_unsupported: 'http://localhost:9314'}}}",
        ),
    ] {
        let [to, from] = [&exporter, listens].map(|text| text.split(':').next().unwrap());
        let pipeline =
            format!("{{all: {{receivers: [{from}], processors: [chunk, transactions], exporters: [{to}]}}}}");
        let config = format!(
            "receivers: {{{listens}}}\nprocessors: {{chunk: , transactions: }}\nexporters: {{{exporter}}}\nservice: {{pipelines: {pipeline}}}\n"
        );
        std::fs::write(folder.path().join("config.yaml"), config).unwrap();
        for command in ["validate", "run"] {
            let finished = run(folder.path(), &[command]);
            assert_eq!(finished.status.code(), Some(1), "{}", finished.stderr);
            assert!(finished.stderr.contains("of this very process: a circle"), "{}", finished.stderr);
        }
    }
}

/// Guarantees: a message in a loop of two processes passes each once and no more; both report the loop.
#[test]
fn circle_of_two() {
    let [first, second] = [free_port(), free_port()];
    let start = |own: u16, other: u16| {
        Profbridge::start(&format!(
            "receivers: {{sentry: {{endpoint: '127.0.0.1:{own}'}}}}
exporters: {{sentry: {{upstream: 'http://127.0.0.1:{other}'}}}}
service: {{pipelines: {{envelopes: {{receivers: [sentry], exporters: [sentry]}}}}}}
"
        ))
    };
    let (one, mut two) = (start(first, second), start(second, first));
    let auth = format!("Sentry sentry_key={KEY}");
    let body = b"{}\n{\"type\":\"session\",\"length\":2}\n{}\n";
    let answer = post(one.address("sentry/http"), "/api/1/envelope/", &[("X-Sentry-Auth", &auth)], body);
    assert_eq!(status(&answer), 200);
    two.wait_for_log("answers 508");
    let (_, log) = one.stop();
    assert!(log.contains("receiver sentry: 1 item in 1 requests, 1 requests refused"), "{log}");
    let (exit, log) = two.stop();
    assert_eq!(exit.code(), Some(1), "it sent nothing: {log}");
    assert!(log.contains("receiver sentry: 1 item in 1 requests\n"), "{log}");
}

/// Guarantees: while Sentry refuses everything, health reports it with the error and the remedy, and recovers once
/// something is accepted; if one exporter of a run delivered nothing, the exit status is not 0.
#[test]
fn health_and_status() {
    let (good, bad) = (SentryBackend::start(), SentryBackend::start());
    bad.always(Behaviour::Answer(401, vec![]));
    let config = to_sentry(&good.dsn(1), "{window: 0s}", "")
        .replace(
            "\nservice:\n",
            &format!(
                "\n  sentry/b: {{dsn: '{}'}}\nservice:\n  telemetry: {{health: {{failing_after: 0s}}}}\n",
                bad.dsn(2)
            ),
        )
        .replace("exporters: [sentry]", "exporters: [sentry, sentry/b]");
    let profbridge = Profbridge::start(&config);
    let health = || {
        let answer = profbridge.get("health/telemetry", "/");
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        (head.starts_with("HTTP/1.1 200"), serde_json::from_str::<Value>(body).unwrap())
    };
    assert!(health().0);
    export(profbridge.address("otlp/grpc"), request("shop")).unwrap();
    good.wait_for_chunks(1);
    let answer = eventually("health says it", || Some(health()).filter(|(is_well, _)| !is_well)).1;
    assert_eq!(
        (&answer["status"], &answer["components"]["exporters/sentry"]["state"]),
        (&json!("unavailable"), &json!("running"))
    );
    let trouble = &answer["components"]["exporters/sentry/b"];
    assert!(trouble["error"].as_str().unwrap().contains("answers 401"), "{answer}");
    assert!(trouble["remedy"].as_str().unwrap().contains("the DSN or token is wrong"), "{answer}");
    let (status, log) = profbridge.stop();
    assert_eq!(status.code(), Some(1), "{log}");
    assert!(log.contains("exporter sentry/b sent nothing of what it was given"), "{log}");
}

/// Guarantees: a run that sent no profile because none was to be sent exits with 0.
#[test]
fn nothing_was_to_be_sent() {
    let sentry = SentryBackend::start();
    let config = to_sentry(&sentry.dsn(1), "{window: 0s}", "")
        .replace("processors: {", "processors: {sample: {profile_lifecycle: trace, profile_wait: 1s}, ")
        .replace("processors: [", "processors: [sample, ");
    let config = config.replace("    profiles: {", "    all: {");
    let config = config.replace("chunk: }", "chunk: , transactions: }").replace("chunk]", "chunk, transactions]");
    let profbridge = Profbridge::start(&config);
    export(profbridge.address("otlp/grpc"), request("shop")).unwrap();
    let (status, log) = profbridge.stop();
    assert!(status.success() && log.contains("no_sampled_span"), "{status}: {log}");
}
