//! A process in its own PID namespace, whose spans have the ids inside it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use opentelemetry_proto::tonic::common::v1::any_value::Value as Any;
use opentelemetry_proto::tonic::resource::v1::Resource;
use profbridge_testkit::{RequestBuilder, ms};
use serde_json::json;

use crate::backend::sentry::SentryBackend;
use crate::client::{export, shift};
use crate::linking::{pairs, send_spans};
use crate::live_contexts::{ExposedContext, span_of, threads, unix_nano};
use crate::process::{Profbridge, eventually, untested};
use crate::targets::{self, TargetProgram};

/// A cgroup named like a container's. Removed when dropped.
struct Container {
    id: String,
    group: PathBuf,
}

impl Container {
    /// `None` if the test has no permission to create one.
    fn new() -> Option<Self> {
        let id = format!("{:032x}{:032x}", std::process::id(), unix_nano());
        // The cgroup v2 hierarchy, alone or beside v1.
        let root = ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"].map(Path::new);
        let root = root.into_iter().find(|root| root.join("cgroup.procs").exists())?;
        let group = root.join(format!("docker-{id}.scope"));
        std::fs::create_dir(&group).ok()?;
        Some(Self { id, group })
    }

    /// A command in this cgroup that executes a program in its own PID namespace.
    fn command(&self, program: &Path) -> Command {
        let mut command = Command::new("sh");
        let script = "echo $$ > \"$0/cgroup.procs\" && exec unshare --pid --fork --kill-child --mount-proc \"$@\"";
        command.args(["-c", script]).arg(&self.group).arg(program);
        command
    }
}

impl Drop for Container {
    fn drop(&mut self) {
        // Its processes end soon, and the cgroup can only be removed after them.
        for _ in 0..1000 {
            if std::fs::remove_dir(&self.group).is_ok() {
                return;
            }
            std::thread::park_timeout(std::time::Duration::from_millis(5));
        }
    }
}

/// The child of a process.
fn child_of(pid: &str) -> String {
    let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap();
    children.split_whitespace().next().unwrap().to_owned()
}

/// The threads of a process: the id of each inside its namespace and outside.
fn ids(pid: &str) -> BTreeMap<String, String> {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    let both = threads.map(|thread| {
        let status = std::fs::read_to_string(thread.unwrap().path().join("status")).unwrap();
        let all = status.lines().find_map(|line| line.strip_prefix("NSpid:")).unwrap();
        let all: Vec<&str> = all.split_whitespace().collect();
        assert_eq!(all.len(), 2, "the outer one and the inner one");
        (all[1].to_owned(), all[0].to_owned())
    });
    both.collect()
}

/// The program in its own container; `None` if that cannot be created.
fn contained() -> Option<(Container, TargetProgram, BTreeMap<String, ExposedContext>)> {
    let made = Container::new().filter(|container| {
        let status = container.command(Path::new("true")).status();
        status.is_ok_and(|status| status.success())
    });
    let Some(container) = made else {
        untested("no PID namespace or control group can be made");
        return None;
    };
    let mut program = TargetProgram::start(&mut container.command(targets::contexts()));
    let threads = threads(&mut program);
    Some((container, program, threads))
}

/// Sends a span for each thread, with the inner ids and another host name. Returns when all are linked.
fn send(profbridge: &Profbridge, container: &Container, threads: &BTreeMap<String, ExposedContext>, during: [u64; 2]) {
    let text = |text: &str| Any::StringValue(text.to_owned());
    let attributes = pairs(&[
        ("container.id", text(&container.id)),
        ("host.name", text("inside")),
        // The first process of its namespace.
        ("process.pid", Any::IntValue(1)),
    ]);
    let of = |(at, (id, (_, _, name))): (usize, (&String, &ExposedContext))| {
        // Different from the span exposed in its thread's memory, which would also identify the thread.
        let ids = (format!("{:032x}", at + 1), format!("{:016x}", at + 1), name.clone());
        let mut spans = span_of(&ids, during);
        spans.resource = Some(Resource { attributes: attributes.clone(), ..Resource::default() });
        let id = ("thread.native_id", Any::IntValue(id.parse().unwrap()));
        spans.scope_spans[0].spans[0].attributes = pairs(&[id]);
        spans
    };
    send_spans(profbridge, threads.iter().enumerate().map(of).collect());
    eventually("the spans are linked", || {
        let linked = profbridge.metric("profbridge_notes_total", "note=\"spans_linked_by_native_id\"");
        (linked == threads.len() as f64).then_some(())
    });
}

/// Asserts that each transaction names the profiler of a chunk with its thread, and the thread by this id.
fn assert_linked(sentry: &SentryBackend, threads: impl Iterator<Item = (String, String)>) {
    let chunks = sentry.received.all().iter().flat_map(|request| request.chunks()).collect::<Vec<_>>();
    let transactions = sentry.transactions();
    for (name, id) in threads {
        let contexts = &transactions[&name]["contexts"];
        assert_eq!(contexts["trace"]["data"]["thread.id"], json!(id), "{contexts}");
        let mut of = chunks.iter().filter(|chunk| chunk["profiler_id"] == contexts["profile"]["profiler_id"]);
        assert!(of.any(|chunk| chunk["profile"]["thread_metadata"].get(&id).is_some()), "{contexts}");
    }
}

/// Guarantees: spans of a process in its own PID namespace, with the ids inside, get the profiler of the sampler
/// outside and the right thread of its chunks.
#[test]
fn the_sampler_outside() {
    let Some((container, program, threads)) = contained() else { return };
    let start = unix_nano();
    let sentry = SentryBackend::start();
    let profbridge = Profbridge::start(&format!(
        "receivers:
  otlp: {{protocols: {{http: {{endpoint: 127.0.0.1:0}}}}}}
  ptrace: {{targets: {{shown: {{pid: {}}}}}, export_interval: 500ms, control: {{enabled: false}}}}
processors: {{link_spans: {{span_wait: 1m}}, chunk: {{lateness: 1s}}, transactions: {{wait: 1s}}}}
exporters: {{sentry: {{dsn: '{}'}}}}
service:
  pipelines: {{all: {{receivers: [otlp, ptrace], processors: [link_spans, chunk, transactions], exporters: [sentry]}}}}
",
        child_of(&program.pid()),
        sentry.dsn(1)
    ));
    let seen = || profbridge.metric("profbridge_notes_total", "note=\"sampler_contexts\"") > 0.0;
    eventually("threads are sampled", || seen().then_some(()));
    send(&profbridge, &container, &threads, [start, unix_nano()]);
    let (exit, log) = profbridge.stop();
    assert!(exit.success(), "{log}");
    program.end();
    assert_linked(&sentry, threads.into_iter().map(|(id, (_, _, name))| (name, id)));
}

/// Guarantees: the same if profiles only have the host's ids, as from the eBPF profiler: the inner ids are read from
/// `/proc`.
#[test]
fn a_profiler_that_says_the_machines_ids() {
    let Some((container, program, threads)) = contained() else { return };
    let outer = child_of(&program.pid());
    let ids = ids(&outer);
    let sentry = SentryBackend::start();
    let profbridge = Profbridge::start(&format!(
        "receivers: {{otlp: {{protocols: {{grpc: {{endpoint: 127.0.0.1:0}}, http: {{endpoint: 127.0.0.1:0}}}}}}}}
processors: {{link_spans: {{span_wait: 1m}}, chunk: , transactions: {{wait: 1s}}}}
exporters: {{sentry: {{dsn: '{}'}}}}
service:
  pipelines: {{all: {{receivers: [otlp], processors: [link_spans, chunk, transactions], exporters: [sentry]}}}}
",
        sentry.dsn(1)
    ));
    let times: [u64; 20] = ms(std::array::from_fn(|tick| tick as u64 * 50));
    let seen = RequestBuilder::new().resource().attr("process.pid", outer.parse::<i64>().unwrap());
    let seen = seen.attr("container.id", container.id.as_str()).attr("host.name", "machine").on_cpu(20);
    let seen = ids.values().fold(seen, |seen, id| seen.sample(&["work", "main"], id.parse().unwrap(), &times));
    export(profbridge.address("otlp/grpc"), seen.build()).unwrap();
    send(&profbridge, &container, &threads, ms([100, 800]).map(|time| time + shift()));
    let (exit, log) = profbridge.stop();
    assert!(exit.success(), "{log}");
    program.end();
    assert_linked(&sentry, threads.into_iter().map(|(id, (_, _, name))| (name, ids[&id].clone())));
}
