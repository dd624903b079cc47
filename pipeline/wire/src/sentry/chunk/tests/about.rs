//! Tests of a chunk's metadata about its process.

use profbridge_model::{Builder, ProfilerId, Profiles};

use super::support::{BatchDraft, MS, START, convert, window};
use crate::sentry::chunk::Settings;

/// Guarantees: the smallest chunk equals one written by hand (Sentry's sample format V2).
/// rule: sample-format-v2#debug-meta, sample-format-v2#profiler-id, sample-format-v2#chunk-id
/// rule: sample-format-v2#client-sdk, sample-format-v2#environment, sample-format-v2#version, sample-format-v2#profile
/// rule: sample-format-v2#collecting-frames, sample-format-v2#collecting-stacks, sample-format-v2#collecting-samples
/// rule: sample-format-v2#sample-timestamp, sample-format-v2#sample-stack-id, sample-format-v2#stacks-unique
/// rule: sample-format-v2#reject-no-metadata, profiles-sdk#v2, profiles-sdk#v1-migrate, profiles-sdk#v2-version
/// rule: profiles-sdk#v2-profiler-id, profiles-sdk#v2-client-sdk, profiles-sdk#v2-profile, profiles-sdk#v2-samples
/// rule: profiles-sdk#stacks-unique, event-schema#frame-abs-path, event-schema#sdk-name, event-schema#sdk-version
#[test]
fn whole_chunk() {
    let mut batch = BatchDraft::new().on_cpu(20);
    let stack = [batch.builder.frame("work", "/app/shop.py", 3)];
    let stack = batch.builder.stack(&stack);
    let thread = batch.builder.attributes(&[("thread.id", 7.into()), ("thread.name", "main".into())]);
    batch.builder.sample(stack, thread, None, &[START, START + 50 * MS], &[]);
    let converted = batch.convert();
    let json = String::from_utf8(converted.collected.chunks[0].0.clone()).unwrap();
    let version = env!("CARGO_PKG_VERSION");
    let expected = format!(
        concat!(
            r#"{{"version":"2","platform":"python","client_sdk":{{"name":"profbridge.rust","version":"{}"}},"#,
            r#""profiler_id":"123456789abc4ef092345678 9abcdef0","release":"shop","environment":"production","#,
            r#""profile":{{"samples":[{{"stack_id":1,"thread_id":"7","timestamp":1760000000.000000}},"#,
            r#"{{"stack_id":1,"thread_id":"7","timestamp":1760000000.050000}},"#,
            r#"{{"stack_id":0,"thread_id":"7","timestamp":1760000000.100000}}],"stacks":[[],[0]],"#,
            r#""frames":[{{"function":"work","module":"shop","abs_path":"/app/shop.py","filename":"shop.py","lineno":3,"#,
            r#""in_app":true}}],"thread_metadata":{{"7":{{"name":"main"}}}}}},"chunk_id":"{}"}}"#
        ),
        version,
        converted.collected.chunks[0].1.chunk_id.simple(),
    );
    assert_eq!(json, expected.replace("5678 9abc", "56789abc"));
}

/// Guarantees: release and environment come from the resource, including the environment's older attribute name, or
/// else from the process's environment variables. The executable's name replaces a missing service name, and the
/// configured environment is the default (OpenTelemetry semantic conventions; Sentry's default is `production`).
/// rule: differences#release, sample-format-v2#release, sample-format-v2#release-unique, sample-format-v2#environment
/// rule: profiles-sdk#v2-release, profiles-sdk#v2-environment, event-schema#chunk-release
#[test]
fn release_and_environment() {
    let about = |attributes: &[(&str, &str)]| {
        let mut builder = Builder::new();
        let attributes: Vec<_> = attributes.iter().map(|&(key, value)| (key, value.into())).collect();
        builder.resource(&attributes);
        builder.scope("test", "1");
        let batch = BatchDraft { builder, window: window(60_000) }.on_cpu(20).at(7, &["work"], [0, 50]);
        let converted = batch.convert_with(Settings { environment: "lab".to_owned(), ..Settings::default() });
        let text = |key: &str| converted.chunk()[key].as_str().map(str::to_owned);
        (text("release"), text("environment"))
    };
    let some = |text: &str| Some(text.to_owned());
    assert_eq!(about(&[]), (None, some("lab")));
    assert_eq!(about(&[("service.name", "shop"), ("service.version", "1.2")]), (some("shop@1.2"), some("lab")));
    assert_eq!(about(&[("service.version", "1.2"), ("deployment.environment", "old")]), (None, some("old")));
    let both = [("deployment.environment", "old"), ("deployment.environment.name", "new"), ("service.name", "shop")];
    assert_eq!(about(&both), (some("shop"), some("new")));
    let unnamed = [("service.name", "unknown_service:python"), ("service.version", "1.2")];
    assert_eq!(about(&unnamed), (None, some("lab")), "a placeholder names no service");
    let configured = [("service.name", "shop"), ("service.version", "1.2"), ("sentry.release", "4f2a")];
    assert_eq!(about(&configured), (some("4f2a"), some("lab")), "what the process told Sentry's SDKs comes first");
    let list = "service.name=listed,service.version=2,deployment.environment.name=lane";
    let environment = [
        ("service.name", "unknown_service:python"),
        ("process.environment_variable.OTEL_SERVICE_NAME", "named"),
        ("process.environment_variable.OTEL_RESOURCE_ATTRIBUTES", list),
    ];
    assert_eq!(about(&environment), (some("named@2"), some("lane")), "what the process's environment says");
    assert_eq!(about(&environment[2..]), (some("listed@2"), some("lane")));
    let both = [environment[2], ("deployment.environment", "old"), ("service.version", "1")];
    assert_eq!(about(&both), (some("listed@1"), some("old")), "attributes come before the environment");
    let bare = [("process.executable.path", "/usr/sbin/nginx"), ("process.pid", "7")];
    assert_eq!(about(&bare), (some("nginx"), some("lab")), "a service without a name is called by its executable");
}

/// Guarantees: timestamps are exact to the microsecond, and smaller digits are truncated.
/// rule: sample-format-v2#sample-timestamp, event-schema#chunk-timestamp
#[test]
fn microseconds() {
    let batch =
        BatchDraft::new().on_cpu(20).nanos(Some(7), &["work"], &[START + 1_000, START + 50_123_456_999 / 1_000], &[]);
    let json = String::from_utf8(batch.convert().collected.chunks[0].0.clone()).unwrap();
    for timestamp in ["\"timestamp\":1760000000.000001}", "\"timestamp\":1760000000.050123}"] {
        assert!(json.contains(timestamp), "{json}");
    }
}

/// Guarantees: threads with samples are listed, with a name if they have one, and without a priority (Relay rejects
/// negative ones).
/// rule: differences#thread-metadata, sample-format-v2#sample-thread-id, sample-format-v2#thread-metadata
/// rule: sample-format-v2#thread-name, sample-format-v2#thread-priority, sample-format-v2#threads-without-samples
/// rule: profiles-sdk#thread-metadata, profiles-sdk#v2-threads-without-samples
#[test]
fn thread_metadata() {
    let mut batch = BatchDraft::new().on_cpu(20).at(7, &["work"], [0, 50]);
    let stack = [batch.builder.frame("work", "", 0)];
    let stack = batch.builder.stack(&stack);
    let named = batch.builder.attributes(&[("thread.id", "8".into()), ("thread.name", "io \"1\"".into())]);
    let unnamed = batch.builder.attributes(&[("thread.id", 8.into())]);
    let unused = batch.builder.attributes(&[("thread.id", 9.into())]);
    let empty = batch.builder.stack(&[]);
    batch.builder.sample(stack, unnamed, None, &[START], &[]);
    batch.builder.sample(stack, named, None, &[START + 50 * MS], &[]);
    batch.builder.sample(empty, unused, None, &[START + 50 * MS], &[]);
    let converted = batch.convert();
    assert_eq!(
        converted.chunk()["profile"]["thread_metadata"],
        serde_json::json!({"7": {}, "8": {"name": "io \"1\""}})
    );
}

/// Guarantees: a thread with a name but no id gets a unique numeric id, the same in every window.
/// rule: sample-format-v2#sample-thread-id, sample-format-v2#thread-name
#[test]
fn named_threads_without_id() {
    let mut batch = BatchDraft::new().on_cpu(20);
    let stack = [batch.builder.frame("work", "", 0)];
    let stack = batch.builder.stack(&stack);
    for (at, name) in [(0, "io"), (50, "gc"), (100, "io")] {
        let thread = batch.builder.attributes(&[("thread.name", name.into())]);
        batch.builder.sample(stack, thread, None, &[START + at * MS, START + (at + 50) * MS], &[]);
    }
    let converted = batch.convert();
    let threads = converted.chunk()["profile"]["thread_metadata"].as_object().unwrap().clone();
    let found: Vec<_> = threads.iter().map(|(id, about)| (id.as_str(), about["name"].as_str().unwrap())).collect();
    assert_eq!(found, [("2944076482", "gc"), ("3954902823", "io")]);
}

/// Guarantees: a chunk's id only depends on profiler and content, so that sending it again overwrites it
/// (getsentry/vroom stores by organisation, project, profiler and chunk).
/// rule: differences#ids, sample-format-v2#chunk-id, profiles-sdk#v2-chunk-id
#[test]
fn chunk_id() {
    let batch = |millis| BatchDraft::new().on_cpu(20).at(7, &["work"], [0, millis]).finish();
    let id = |batch: &Profiles| convert(batch, Settings::default()).collected.chunks[0].1.chunk_id;
    assert_eq!(id(&batch(50)), id(&batch(50)));
    assert_ne!(id(&batch(50)), id(&batch(51)));
    let mut other = batch(50);
    other.window.as_mut().unwrap().profiler_id = ProfilerId::from_hash(1);
    assert_ne!(id(&batch(50)), id(&other));
    assert_eq!(id(&other).get_version_num(), 4);
}

/// Guarantees: a batch that was not cut into a process and window is counted as lost.
#[test]
fn not_cut() {
    let mut batch = BatchDraft::new().on_cpu(20).at(7, &["work"], [0, 50]).finish();
    batch.window = None;
    let converted = convert(&batch, Settings::default());
    assert_eq!(converted.report.losses.to_string(), "2 chunk_rule");
}
