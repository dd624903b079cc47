//! The error messages for wrong configurations, by component: one snapshot with a section for each, the input above the
//! problems that `validate` prints. The messages of the loader are in `pipeline/engine/testdata/config/bad`.
//!
//! `INSTA_UPDATE=always` rewrites the snapshot.

use crate::process::{Finished, run};

/// Every secret in the inputs contains one of these, and no message does.
const SECRETS: [&str; 2] = ["hush", "abad1dea"];

/// The wrong configurations of each component, as one line after its name: one for each rule that the component's own
/// tests do not cover, and the most common mistakes.
const WRONG: &[(&str, &[&str])] = &[
    (
        "receivers.otlp",
        &[
            "{protocols: {grpc: {endpoint: 'http://a:1', max_recv_msg_size_mib: 2048, max_concurrent_streams: 0}}}",
            "{protocols: {http: {endpoint: localhost, max_request_body_size: 0, idle_timeout: 0s}}}",
            "{protocols: {grpc: {include_metadata: true}}}",
        ],
    ),
    (
        "receivers.ptrace",
        &[
            "",
            "{targets: {a: {}}}",
            "{targets: {a: {pid: 1, executable: b}}}",
            "{targets: {a: {pid: 0}}}",
            "{targets: {'a b': {pid: 1}}}",
            "{targets: {a: {command: []}}}",
            "{targets: {a: {executable: ''}}}",
            "{targets: {a: {cgroup: app}}}",
            "{targets: {a: {container: 0123}}}",
            "{targets: {a: {container: 0123456789xy}}}",
            "{targets: {a: {pid: 1, rate: 0}}}",
            "{targets: {a: {pid: 1, rate: .nan}}}",
            "{targets: {a: {pid: 1, profile_session_sample_rate: 1.1}}}",
            "{targets: {a: {pid: 1, max_cpu: 0}}}",
            "{targets: {a: {pid: 1, max_stopped: 2}}}",
            "{targets: {a: {pid: 1, max_stack: 1KiB}}}",
            "{targets: {a: {pid: 1, max_processes: 0}}}",
            "{targets: {a: {pid: 1, profile_lifecycle: sometimes}}}",
            "{targets: {a: {pid: 1, stops: seldom}}}",
            "{targets: {a: {pid: 1, stops: user_bound}}}",
            "{targets: {a: {pid: 1, stops: true}}}",
            "{targets: {a: {pid: 1, profile_lifecycle: trace, start_on_launch: true}}}",
            "{targets: {a: {pid: 1, profile_lifecycle: trace}}, control: {enabled: false}}",
            "{targets: {a: {pid: 1}}, export_interval: 0s}",
            "{targets: {a: {pid: 1}}, max_pending_bytes: 0}",
            "{targets: {a: {pid: 1}}, control: {max_connections: 0}}",
            "{targets: {a: {pid: 1}}, colour: red}",
            "{targets: {a: {pid: 1}}, control: {socket: /xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx}}",
            "{targets: {a: {pid: 0, rate: 0}, b: {}}}",
        ],
    ),
    (
        "receivers.pprof",
        &[
            "{push: {endpoint: localhost, max_request_body_size: 0, max_connections: 0, idle_timeout: 0s}}",
            "{scrape: {targets: {a: {}, b: {endpoint: 'h:1'}, c: {endpoint: 'http://h/x'}}}}",
            "{scrape: {targets: {a: {endpoint: 'http://user:hush@h'}}}}",
        ],
    ),
    (
        "receivers.sentry",
        &[
            "{endpoint: localhost, max_request_body_size: 0, idle_timeout: 0s}",
            "{public_keys: [hush, abad1dea]}",
            "{endpoint: '0.0.0.0:9000'}",
        ],
    ),
    (
        "processors.sample",
        &[
            "{traces_sample_rate: .nan, profile_session_sample_rate: 1.1, decision_wait: 0s, max_traces: 0, max_bytes: 1}",
            "{traces_rules: [{}, {sampled: true, sample_rate: 0.5}, {sample_rate: -1}, {rate_from: ''}]}",
        ],
    ),
    (
        "processors.dedup",
        &["{window: 11m, max_observations: 0, max_bytes: 1, resend_memory: 0s, max_resend_entries: 0}"],
    ),
    (
        "processors.symbolize",
        &[
            "{timeout: 61s, debug_folders: [debug], host_names: [''], cache_size: 1MiB, max_bytes: 1}",
            "{debuginfod: {urls: ['ftp://me:s3cr3t@host/path']}}",
        ],
    ),
    (
        "processors.chunk",
        &[
            "{max_observations: 0, max_window_bytes: 1, max_processes: 0, max_bytes: 0, max_dictionary_bytes: 3GiB}",
            "{latenes: 5s}",
        ],
    ),
    (
        "exporters.sentry",
        &[
            "{dsn: 'https://hush@sentry.example', routing: {attribute_to_dsn: {shop: 'https://hush@h/1', x: ''}}}",
            "{dsn: 'https://abad1deaabad1deaabad1deaabad1dea@sentry.example'}",
            "{max_gap: 0s, target_size: 1KiB}",
            "{environment: a b, platform: '', in_app: {source_roots: ['']}}",
            "{routing: {from_attribute: ''}}",
            "{compression: lz4}",
            "{dns: hush}",
            "{sending_queue: {queue_size: 64MiB, sizer: requests}}",
            "{sending_queue: {block_on_overflow: true, drop_on_overflow: true}}",
            "{retry_on_failure: {initial_interval: 0s}}",
        ],
    ),
    (
        "exporters.file",
        &[
            "",
            "{path: out, format: xml}",
            "{path: out, format: json, environment: production}",
            "{path: out, rotation: {max_files: 0}}",
            "{path: out, rotation: {max_size: 0}}",
            "{path: out, rotation: {max_backups: 3}}",
            "{path: out, rotation: {max_days: 3}}",
            "{path: out, environment: a/b}",
            "{path: out, max_gap: 0s}",
            "{path: out, target_size: 1KiB}",
            "{path: out, lone_samples: keep}",
            "{path: out, format: otlp, rotation: {max_files: 3}}",
            "{path: out, format: otlp, environment: production}",
            "{path: out, original_payload: true}",
            "{path: out/.., format: otlp}",
            "{format: otlp, rotation: {max_files: 3, max_size: 0}}",
        ],
    ),
    (
        "exporters.otlp",
        &[
            "",
            "{endpoint: 'ftp://collector'}",
            "{endpoint: 'collector:4317/v1'}",
            "{endpoint: 'c:1', profiles_endpoint: 'http://c'}",
            "{endpoint: 'c:1', protocol: http/json}",
            "{endpoint: 'c:1', encoding: json}",
            "{endpoint: 'c:1', compression: snappy}",
            "{endpoint: 'c:1', max_request_bytes: 12}",
            "{endpoint: 'c:1', max_request_bytes: 3GiB}",
            "{endpoint: 'c:1', timeout: 0s}",
            "{endpoint: 'c:1', headers: {'a b': x}}",
            "{endpoint: 'c:1', headers: {content-type: x}}",
            "{endpoint: 'c:1', headers: {grpc-timeout: 1S}}",
            "{endpoint: 'c:1', headers: {token-bin: x}}",
            "{endpoint: 'c:1', headers: {token: \"hush\\nhush\"}}",
            "{endpoint: 'c:1', max_request_size: 1}",
            "{endpoint: 'ftp://c', timeout: 0s, headers: {te: trailers}}",
        ],
    ),
    (
        "exporters.otlp_http",
        &[
            "",
            "{endpoint: 'collector:4318'}",
            "{endpoint: 'http://'}",
            "{endpoint: 'http:///base'}",
            "{endpoint: 'http://:4318'}",
            "{endpoint: 'http://c d'}",
            "{endpoint: 'http://c:99999'}",
            "{endpoint: 'http://c?token=hush'}",
            "{profiles_endpoint: 'http://user:hush@c/'}",
        ],
    ),
    ("exporters.debug", &["{verbosity: loud}", "{sampling_initial: 2}"]),
    (
        "service",
        &[
            "{limits: {memory: 1MiB}, shutdown_timeout: 10ms}",
            "{telemetry: {metrics: {readers: []}, logs: {level: loud}}}",
            "{identity: {window: 61s, session: 1s, attributes: []}}",
        ],
    ),
];

/// Guarantees: a setting that cannot work, or would have no effect, is refused at its position with the rule and the
/// remedy; all problems of a section are reported at once, and no secret is shown.
/// rule: profiles-sdk#session-sample-rate
#[test]
fn of_components() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
    let pipeline = "{receivers: [otlp/base], exporters: [debug/base]}";
    let base = "receivers: {otlp/base: }\nexporters: {debug/base: }\n";
    write("base.yaml", &format!("{base}service: {{pipelines: {{profiles: {pipeline}}}}}\n"));
    let mut text = String::new();
    for (component, sections) in WRONG {
        let (section, kind) = component.split_once('.').unwrap_or((component, ""));
        for written in *sections {
            let kind = if kind.is_empty() { String::new() } else { format!("\n  {kind}:") };
            write("config.yaml", &format!("{section}:{kind}\n    {written}\n"));
            let finished = run(folder.path(), &["validate", "--config", "base.yaml", "--config", "config.yaml"]);
            assert_eq!(finished.status.code(), Some(1), "{written}");
            text += &format!("=== {component}: {written}\n{}", in_short(&without_warnings(&finished.stderr)));
        }
    }
    insta::assert_snapshot!(text);
}

/// Each problem with its place, key, message and hint, without the lines of the file, which the engine's tests have.
fn in_short(problems: &str) -> String {
    let problems = problems.split("\n\n").filter_map(|problem| problem.strip_prefix("error: "));
    let line = |problem: &str| {
        let after = |start: &str| problem.lines().find_map(|line| line.trim_start().strip_prefix(start)).unwrap_or("");
        let (message, _) = problem.split_once("\n  --> ").unwrap_or((problem, ""));
        format!("{} {}: {message}\n    {}\n", after("--> config.yaml:"), after("= key: "), after("= hint: "))
    };
    problems.map(line).collect()
}

/// The output of `validate` without warnings. Asserts that it contains no secret.
fn without_warnings(said: &str) -> String {
    assert!(SECRETS.iter().all(|secret| !said.contains(secret)), "{said}");
    said.split("\n\n").filter(|paragraph| !paragraph.starts_with("warning: ")).collect::<Vec<_>>().join("\n\n")
}

/// Guarantees: problems between components are also reported at their position, each once and in the order of the file;
/// something merely useless is a warning, and a configuration with warnings is valid.
#[test]
fn of_pipelines() {
    const COMPONENTS: &str = "\
receivers: {otlp: }
processors: {dedup: , chunk: , chunk/unused: }
exporters:
  sentry: {dsn: 'https://abad1deaabad1deaabad1deaabad1dea@sentry.example/1'}
  sentry/off: {dsn: ''}
  debug:
service:
  pipelines:
";
    let folder = tempfile::tempdir().unwrap();
    let mut text = String::new();
    for (position, pipelines) in [
        "profiles: {receivers: [otlp], processors: [dedup, chunk], exporters: [sentry, sentry/off, debug]}",
        "profiles: {receivers: [otlp], exporters: [sentry]}",
        "profiles: {receivers: [otlp], processors: [chunk, dedup, chunk], exporters: [debug, debug]}",
        "profiles: {receivers: [jaeger], processors: [latenes], exporters: [debug]}",
        "profiles: {receivers: [otlp], processors: [chunk], exporters: [sentry/off]}",
        "traces: {receivers: [otlp], exporters: [debug]}",
        "metrics: {receivers: [otlp], exporters: [debug]}",
    ]
    .into_iter()
    .enumerate()
    {
        std::fs::write(folder.path().join("config.yaml"), format!("{COMPONENTS}    {pipelines}\n")).unwrap();
        let Finished { status, stdout, stderr } = run(folder.path(), &["validate"]);
        let code = status.code().unwrap();
        // Components that no pipeline uses are shown once.
        let stderr = if position == 0 { stderr } else { without_warnings(&stderr) };
        text += &format!("=== {pipelines}\n\n{stderr}{stdout}(exit status {code})\n\n");
    }
    insta::assert_snapshot!(text);
}
