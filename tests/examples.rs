//! The configurations in `examples/`: each is valid unchanged, and sends profiles where its walk-through says.

use std::collections::BTreeSet;
use std::path::PathBuf;

use profbridge_relay_rules::validate_json;
use profbridge_testkit::{RequestBuilder, ms};

use crate::backend::otlp::OtlpBackend;
use crate::backend::sentry::{KEY, SentryBackend, split_envelope};
use crate::client::export;
use crate::pprof;
use crate::process::{Profbridge, command, eventually, run};
use crate::sentry_envelopes::Sent;

fn examples() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../examples")
}

/// The folders of the examples.
fn stories() -> BTreeSet<String> {
    let entries = std::fs::read_dir(examples()).unwrap().map(Result::unwrap);
    entries.filter(|entry| entry.path().is_dir()).map(|entry| entry.file_name().into_string().unwrap()).collect()
}

fn text(path: &str) -> String {
    std::fs::read_to_string(examples().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// An example's configuration with some of its text replaced; the old text must exist.
fn adapted(path: &str, replaced: &[(&str, &str)]) -> String {
    replaced.iter().fold(text(path), |text, (old, new)| {
        assert!(text.contains(old), "{path} has no {old}");
        text.replace(old, new)
    })
}

/// Replaces fixed ports by ports that the system chooses.
const PORTS: [(&str, &str); 1] = [("127.0.0.1:4317", "127.0.0.1:0")];
const BOTH_PORTS: [(&str, &str); 2] = [PORTS[0], ("127.0.0.1:4318", "127.0.0.1:0")];

/// Two processes with a second of work each.
fn two_services() -> RequestBuilder {
    let times: [u64; 20] = ms(std::array::from_fn(|tick| tick as u64 * 50));
    let checkout = RequestBuilder::new().process("checkout", 42).on_cpu(20).sample(&["handle", "main"], 7, &times);
    checkout.process("batch", 43).on_cpu(20).sample(&["work", "main"], 8, &times)
}

/// Sends a profile through a configuration that ends in Sentry. Returns the destination of each release.
fn through_sentry(config: &str, sentry: &SentryBackend, environment: &[(&str, &str)]) -> BTreeSet<(String, String)> {
    let profbridge = Profbridge::start_with(config, environment);
    export(profbridge.address("otlp/grpc"), two_services().build()).unwrap();
    // The window is flushed at exit.
    let (exit, log) = profbridge.stop();
    assert!(exit.success() && !log.contains(KEY), "{log}");
    for chunk in sentry.wait_for_chunks(2) {
        validate_json(&serde_json::to_vec(&chunk).unwrap()).unwrap();
    }
    let received = sentry.received.all().into_iter();
    received
        .flat_map(|request| request.chunks().into_iter().map(move |chunk| (request.path.clone(), chunk)))
        .map(|(path, chunk)| (path, chunk["release"].as_str().unwrap().to_owned()))
        .collect()
}

/// Guarantees: no example sends every signal of a service to a profbridge that only accepts profiles, which would lose
/// its traces.
#[test]
fn no_example_breaks_tracing() {
    let mut profiles = 0;
    for story in stories() {
        for file in std::fs::read_dir(examples().join(&story)).unwrap().map(|file| file.unwrap().path()) {
            let text = std::fs::read_to_string(&file).unwrap_or_default();
            for set in
                ["OTEL_EXPORTER_OTLP_ENDPOINT=", "OTEL_EXPORTER_OTLP_ENDPOINT:", "name: OTEL_EXPORTER_OTLP_ENDPOINT,"]
            {
                assert!(!text.contains(set), "{} sets {set}", file.display());
            }
            profiles += text.matches("OTEL_EXPORTER_OTLP_PROFILES_ENDPOINT").count();
        }
    }
    assert!(profiles > 0, "no example says where profiles go");
}

/// Guarantees: every example has a walk-through and is listed, and everything listed exists.
#[test]
fn all_are_listed() {
    let list = text("README.md");
    let listed: BTreeSet<String> =
        list.lines().filter_map(|line| line.strip_prefix("| [`")?.split('`').next()).map(str::to_owned).collect();
    assert_eq!(listed, stories());
    for story in stories() {
        for file in ["README.md", "config.yaml"] {
            assert!(examples().join(&story).join(file).is_file(), "{story} has no {file}");
        }
    }
}

/// Guarantees: every configuration, including those of agents, is valid unchanged once its variables are set, and gives
/// no warning.
#[test]
fn all_are_valid() {
    let dsn = format!("https://{KEY}@sentry.example/1");
    let variables = [
        ("SENTRY_DSN", dsn.as_str()),
        ("SENTRY_DSN_CHECKOUT", &dsn),
        ("SENTRY_DSN_CART", &dsn),
        ("SENTRY_UPSTREAM", "https://sentry.example"),
        ("BACKEND_ENDPOINT", "backend.example:4317"),
        ("BACKEND_TOKEN", "0123456789"),
    ];
    let configurations = stories().into_iter().map(|story| (story, "config.yaml"));
    let others = [("gateway", "agent.yaml"), ("linking", "sampled.yaml"), ("linking", "sentry-sdk.yaml")];
    for (story, file) in configurations.chain(others.map(|(story, file)| (story.to_owned(), file))) {
        let folder = examples().join(&story);
        let output = command(&folder, &["validate", "--config", file]).envs(variables).output().unwrap();
        let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success() && stdout.contains("is valid"), "{story}/{file}: {stderr}");
        assert_eq!(stderr, "", "{story}/{file}");
    }
}

/// Guarantees: the sidecar, the node agent and the configuration behind a Collector send profiles to the project of
/// their DSN; the node agent sends those of a service with its own project to that project.
#[test]
fn to_sentry() {
    assert!(text("collector/collector.yaml").contains("endpoint: profbridge:14317"));
    for (file, replaced, of_checkout) in [
        ("sidecar/config.yaml", &[("}:4317", "}:0"), ("}:4318", "}:0")][..], "/api/1/envelope/"),
        ("node-agent/config.yaml", &PORTS, "/api/2/envelope/"),
        ("collector/config.yaml", &[("}:14317", "}:0")], "/api/1/envelope/"),
    ] {
        let sentry = SentryBackend::start();
        let dsns = [sentry.dsn(1), sentry.dsn(2), sentry.dsn(3)];
        let names = ["SENTRY_DSN", "SENTRY_DSN_CHECKOUT", "SENTRY_DSN_CART"];
        let environment: Vec<_> = names.into_iter().zip(dsns.iter().map(String::as_str)).collect();
        let went = through_sentry(&adapted(file, replaced), &sentry, &environment);
        let expected = [(of_checkout, "checkout"), ("/api/1/envelope/", "batch")];
        assert_eq!(went, expected.map(|(path, release)| (path.to_owned(), release.to_owned())).into(), "{file}");
    }
}

/// Guarantees: profiles from an agent reach both destinations of the gateway. TLS needs certificates, so it is left to
/// the tests of receiver and exporter.
#[test]
fn gateway() {
    let (sentry, backend) = (SentryBackend::start(), OtlpBackend::start());
    let gateway = text("gateway/config.yaml");
    let (before, rest) = gateway.split_once("        tls:\n").unwrap();
    let (_, after) = rest.split_once("\nprocessors:").unwrap();
    let plain = format!("{before}\nprocessors:{after}")
        .replace("0.0.0.0:4317", "127.0.0.1:0")
        .replace("    headers:\n", "    tls: {insecure: true}\n    headers:\n");
    let (dsn, address) = (sentry.dsn(1), backend.address().to_string());
    let environment = [("SENTRY_DSN", dsn.as_str()), ("BACKEND_ENDPOINT", &address), ("BACKEND_TOKEN", "0123456789")];
    let gateway = Profbridge::start_with(&plain, &environment);

    let agent = text("gateway/agent.yaml");
    let (before, rest) = agent.split_once("    tls:\n").unwrap();
    let (_, after) = rest.split_once("    # What waits").unwrap();
    let plain = format!("{before}    tls: {{insecure: true}}\n    # What waits{after}")
        .replace("${env:GATEWAY:-gateway.internal}:4317", &gateway.address("otlp/grpc").to_string())
        .replace("127.0.0.1:4317", "127.0.0.1:0")
        .replace("127.0.0.1:4318", "127.0.0.1:0");
    let agent = Profbridge::start(&plain);
    export(agent.address("otlp/grpc"), two_services().build()).unwrap();
    assert!(agent.stop().0.success());
    let (exit, log) = gateway.stop();
    assert!(exit.success() && !log.contains(KEY), "{log}");
    assert_eq!(sentry.wait_for_chunks(2).len(), 2);
    let received = backend.received.wait(1);
    assert_eq!(received.iter().map(|request| request.resource_profiles.len()).sum::<usize>(), 2);
}

/// Guarantees: the relay merges the requests of a window and drops a resend.
#[test]
fn otlp_relay() {
    let backend = OtlpBackend::start();
    let address = backend.address().to_string();
    let environment = [("BACKEND_ENDPOINT", address.as_str()), ("BACKEND_INSECURE", "true")];
    let profbridge = Profbridge::start_with(&adapted("otlp-relay/config.yaml", &BOTH_PORTS), &environment);
    let later =
        RequestBuilder::new().process("checkout", 42).on_cpu(20).sample(&["handle", "main"], 7, &ms([2000, 2050]));
    for request in [two_services().build(), two_services().build(), later.build()] {
        export(profbridge.address("otlp/grpc"), request).unwrap();
    }
    assert_eq!(profbridge.metric("profbridge_dropped_observations_total", "reason=\"resent\""), 40.0);
    let (exit, log) = profbridge.stop();
    assert!(exit.success(), "{log}");
    let received = backend.received.wait(1);
    assert_eq!(received.len(), 1, "one request for the window");
    let scopes = received[0].resource_profiles.iter().flat_map(|resource| &resource.scope_profiles);
    let samples = scopes.flat_map(|scope| &scope.profiles).flat_map(|profile| &profile.samples);
    assert_eq!(samples.map(|sample| sample.timestamps_unix_nano.len()).sum::<usize>(), 42);
}

/// Guarantees: envelopes and a capture are written where the walk-through says, and its conversions work on them.
#[test]
fn files() {
    let profbridge = Profbridge::start(&adapted("files/config.yaml", &BOTH_PORTS));
    export(profbridge.address("otlp/grpc"), two_services().build()).unwrap();
    let (exit, log, _, folder) = profbridge.stop_and_keep();
    assert!(exit.success(), "{log}");
    let folder = folder.path();
    let envelopes = |path: &str| -> Vec<PathBuf> {
        std::fs::read_dir(folder.join(path)).unwrap().map(|entry| entry.unwrap().path()).collect()
    };
    let written = envelopes("out/envelopes");
    assert_eq!(written.len(), 2, "{written:?}");
    for path in &written {
        assert_eq!(path.extension().unwrap(), "envelope");
        let (_, items) = split_envelope(&std::fs::read(path).unwrap());
        validate_json(&items[0].1).unwrap();
    }
    let convert = |arguments: &[&str]| {
        let finished = run(folder, &[&["convert"], arguments].concat());
        assert!(finished.status.success(), "{arguments:?}: {}", finished.stderr);
    };
    let read = |path: &str| std::fs::read_to_string(folder.join(path)).unwrap();
    convert(&["out/capture.otlp", "-o", "out/flame.svg", "--to", "svg"]);
    assert!(read("out/flame.svg").contains("handle"));
    convert(&["out/capture.otlp", "-o", "out/stacks.txt", "--to", "folded"]);
    assert!(read("out/stacks.txt").contains("main;work "));
    convert(&["out/capture.otlp", "-o", "out/again", "--to", "sentry"]);
    assert_eq!(envelopes("out/again").len(), 2);
    let names: Vec<_> = written.iter().map(|path| path.to_str().unwrap()).collect();
    convert(&[names.as_slice(), &["-o", "out/profiles.otlp", "--to", "otlp"]].concat());
    assert!(folder.join("out/profiles.otlp").is_file());
}

/// Guarantees: SDK envelopes sent to the sidecar arrive in Sentry unchanged, in their own project, and their profiles
/// at the OTLP backend.
#[test]
fn sentry_sidecar() {
    let (sentry, backend) = (SentryBackend::start(), OtlpBackend::start());
    let config = adapted("sentry-sidecar/config.yaml", &[("127.0.0.1:9000", "127.0.0.1:0")]);
    let (upstream, address) = (sentry.url(), backend.address().to_string());
    let environment =
        [("SENTRY_UPSTREAM", upstream.as_str()), ("BACKEND_ENDPOINT", &address), ("BACKEND_INSECURE", "true")];
    let profbridge = Profbridge::start_with(&config, &environment);
    for name in ["python-2.75-profile_chunk", "python-2.75-transaction"] {
        let sent = Sent::capture(name);
        assert_eq!(sent.to(profbridge.address("sentry/http")).status(), 200);
        let received = sentry.received.wait_until(|all| all.iter().any(|received| received.body == sent.body));
        assert!(received.iter().all(|received| received.path == "/api/42/envelope/"));
    }
    let (exit, log) = profbridge.stop();
    assert!(exit.success() && !log.contains(KEY), "{log}");
    assert_eq!(backend.received.wait(1).len(), 1);
}

/// Guarantees: profiles of a Go service are fetched and those of another are received; both arrive in Sentry under
/// their names.
#[test]
fn go_pprof() {
    let sentry = SentryBackend::start();
    let replaced =
        [("127.0.0.1:4040", "127.0.0.1:0"), ("interval: 60s", "interval: 1s"), ("duration: 10s", "duration: 1s")];
    let shop = pprof::serve(pprof::go_cpu());
    let (dsn, address) = (sentry.dsn(1), shop.to_string());
    let environment = [("SENTRY_DSN", dsn.as_str()), ("SHOP", &address)];
    let profbridge = Profbridge::start_with(&adapted("go-pprof/config.yaml", &replaced), &environment);
    let query = "service.name=batch&service.instance.id=batch-1";
    assert_eq!(pprof::post(profbridge.address("pprof/http"), &format!("/api/pprof?{query}"), &pprof::go_cpu()), 200);
    eventually("a profile was fetched", || {
        let labels = "receiver=\"pprof\",transport=\"scrape\",outcome=\"success\"";
        (profbridge.metric("otelcol_receiver_requests", labels) >= 1.0).then_some(())
    });
    let (exit, log) = profbridge.stop();
    assert!(exit.success() && !log.contains(KEY), "{log}");
    let chunks = sentry.wait_for_chunks(2);
    let releases: BTreeSet<&str> = chunks.iter().map(|chunk| chunk["release"].as_str().unwrap()).collect();
    assert_eq!(releases, BTreeSet::from(["batch", "shop"]));
    for chunk in &chunks {
        validate_json(&serde_json::to_vec(chunk).unwrap()).unwrap();
    }
}

/// Guarantees: the sampler finds the running program by the configuration, and gets its spans from the example's
/// client: the chunks under `out/` have the names from the configuration and the program's work during spans.
#[cfg(target_os = "linux")]
#[test]
fn sampler() {
    let runtime = tempfile::tempdir().unwrap();
    let environment = ("XDG_RUNTIME_DIR", runtime.path().to_str().unwrap());
    let profbridge = Profbridge::start_with(&text("sampler/config.yaml"), &[environment]);
    let mut app = std::process::Command::new("python3");
    // Finding the program takes up to two seconds. The program works in rounds of a second; every second round is
    // sampled.
    let app = app.arg(examples().join("sampler/app.py")).arg("6").envs([environment]).status().unwrap();
    assert!(app.success());
    let (exit, log, _, folder) = profbridge.stop_and_keep();
    assert!(exit.success(), "{log}");
    let entries = std::fs::read_dir(folder.path().join("out")).unwrap_or_else(|error| panic!("{error}: {log}"));
    let mut has_work = false;
    for entry in entries {
        let (_, items) = split_envelope(&std::fs::read(entry.unwrap().path()).unwrap());
        validate_json(&items[0].1).unwrap();
        let chunk: serde_json::Value = serde_json::from_slice(&items[0].1).unwrap();
        assert_eq!((&chunk["release"], &chunk["environment"]), (&"sampler-example@1.0".into(), &"development".into()));
        has_work |= chunk["profile"]["frames"].as_array().unwrap().iter().any(|frame| frame["function"] == "work");
    }
    assert!(has_work, "{log}");
}
