//! From an unmodified program to a chunk in Sentry: the receiver `ptrace`, the processor `chunk`, the exporter
//! `sentry`, and the commands that start and stop the profiler meanwhile.

use std::collections::HashMap;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::net::UnixStream;

use profbridge_relay_rules::validate_json;
use serde_json::{Value, json};

use crate::backend::sentry::SentryBackend;
use crate::process::{Finished, Profbridge, run, untested};
use crate::sample::{by_some_run, measured};
use crate::targets::TargetProgram;

/// Samples one process and sends it to Sentry, in windows of a second. The control socket is in `folder`.
fn configuration(dsn: &str, folder: &std::path::Path, target: &str) -> String {
    let socket = folder.join("control.sock");
    format!(
        "receivers:
  ptrace:
    targets: {{hot: {{{target}, service: {{name: hot, version: 1.2.3}}}}}}
    export_interval: 500ms
    control: {{socket: '{}'}}
processors: {{chunk: {{lateness: 1s}}}}
exporters: {{sentry: {{dsn: '{dsn}'}}}}
service:
  identity: {{window: 1s}}
  pipelines: {{profiles: {{receivers: [ptrace], processors: [chunk], exporters: [sentry]}}}}
",
        socket.display()
    )
}

/// The microseconds that Sentry assigns to the program's innermost function in each sample of a chunk's running thread:
/// a sample lasts until the next one of its thread.
fn by_own_function(chunk: &Value) -> HashMap<String, f64> {
    let profile = &chunk["profile"];
    let mut threads: HashMap<&str, Vec<(f64, usize)>> = HashMap::new();
    for sample in profile["samples"].as_array().unwrap() {
        let at = (sample["timestamp"].as_f64().unwrap(), sample["stack_id"].as_u64().unwrap() as usize);
        threads.entry(sample["thread_id"].as_str().unwrap()).or_default().push(at);
    }
    let mut leaves = HashMap::new();
    for (thread, samples) in &threads {
        // The program's other thread sleeps.
        if profile["thread_metadata"][thread]["name"] == "waiter" {
            continue;
        }
        for pair in samples.windows(2) {
            let stack = profile["stacks"][pair[0].1].as_array().unwrap();
            let mut frames = stack.iter().map(|frame| &profile["frames"][frame.as_u64().unwrap() as usize]).peekable();
            // How long and where the thread waits for a CPU depends on the machine.
            if frames.peek().is_some_and(|innermost| innermost["function"] == "[waiting for a processor]") {
                continue;
            }
            let Some(own) = frames.find(|frame| frame["in_app"] == true) else { continue };
            let name = own["function"].as_str().unwrap().to_owned();
            *leaves.entry(name).or_default() += (pair[1].0 - pair[0].0) * 1e6;
        }
    }
    leaves
}

/// How many samples the program needs: nine of ten are in one function, and this should not drop below eight by chance.
const SEEN: usize = 400;

/// Sends a request to the control socket in a folder.
fn ask(folder: &std::path::Path, request: &Value) -> Value {
    let mut stream = UnixStream::connect(folder.join("control.sock")).unwrap();
    stream.write_all(format!("{request}\n").as_bytes()).unwrap();
    let mut answer = String::new();
    BufReader::new(stream).read_line(&mut answer).unwrap();
    serde_json::from_str(&answer).unwrap()
}

/// Guarantees: a running Rust program is sampled without its cooperation, each chunk satisfies Relay's rules and names
/// the service, and the hot function is first with its share, as program code. The control socket and `profiler status`
/// give the profiler and thread ids of the chunks, for the program's own transactions.
#[test]
fn a_process() {
    by_some_run(sample_a_process);
}

fn sample_a_process() -> Result<(), String> {
    let folder = tempfile::tempdir().unwrap();
    let mut program = TargetProgram::hot("600");
    program.write_line();
    let sentry = SentryBackend::start();
    let target = format!("pid: {}", program.pid());
    let profbridge = Profbridge::start(&configuration(&sentry.dsn(1), folder.path(), &target));
    let computing = |chunk: &Value| {
        let profile = &chunk["profile"];
        let waits = |sample: &&Value| {
            profile["thread_metadata"][sample["thread_id"].as_str().unwrap()]["name"] == "waiter"
                || profile["stacks"][sample["stack_id"].as_u64().unwrap() as usize].as_array().unwrap().is_empty()
        };
        profile["samples"].as_array().unwrap().iter().filter(|sample| !waits(sample)).count()
    };
    let chunks =
        sentry.wait_for_chunks_until(|chunks| chunks.len() >= 4 && chunks.iter().map(computing).sum::<usize>() >= SEEN);
    let pid: u32 = program.pid().parse().unwrap();
    let told = ask(folder.path(), &json!({ "command": "profiler", "pid": pid, "thread": pid }));
    let no_thread = ask(folder.path(), &json!({ "command": "profiler", "pid": pid, "thread": 1 }));
    let said = run(folder.path(), &["profiler", "status", "--socket", "control.sock"]).stdout;
    let (status, log) = profbridge.stop();
    assert!(status.success(), "{log}");
    assert_eq!(told["profiler_id"], chunks[0]["profiler_id"], "{told}");
    assert!(said.contains(told["profiler_id"].as_str().unwrap()), "{said}");
    let thread = told["thread_id"].as_str().unwrap();
    assert!(chunks.iter().any(|chunk| chunk["profile"]["thread_metadata"][thread].is_object()), "{told}");
    assert_eq!((&no_thread["ok"], &no_thread["error"]["place"]), (&json!(false), &json!("thread")));
    assert!(program.is_alive(), "it goes on as if nothing had happened");
    program.end();
    let mut leaves: HashMap<String, f64> = HashMap::new();
    for chunk in &chunks {
        let payload = serde_json::to_vec(chunk).unwrap();
        validate_json(&payload).unwrap_or_else(|violations| panic!("{violations:?}"));
        assert_eq!(chunk["profiler_id"], chunks[0]["profiler_id"], "one life of a process is one session");
        assert_eq!(chunk["release"], "hot@1.2.3");
        assert!(!chunk["debug_meta"]["images"].as_array().unwrap().is_empty());
        for (name, time) in by_own_function(chunk) {
            *leaves.entry(name).or_default() += time;
        }
        // A very short chunk, such as the first one, may have only other frames.
        let frames = chunk["profile"]["frames"].as_array().unwrap();
        let hot = frames.iter().filter(|frame| frame["function"].as_str().unwrap().contains("hot_function"));
        for frame in hot {
            assert_eq!(frame["in_app"], true);
        }
    }
    let all: f64 = leaves.values().sum();
    let (name, time) = leaves.iter().max_by(|left, right| left.1.total_cmp(right.1)).unwrap();
    assert!(name.contains("hot_function"), "{leaves:?}");
    measured!(time / all > 0.8, "{leaves:?}");
    Ok(())
}

/// A number from `/proc/PID/task/TID/status` for each thread of a process (proc(5)).
fn of_threads(pid: &str, name: &str) -> Vec<u64> {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    let of = |thread: std::path::PathBuf| {
        let status = std::fs::read_to_string(thread.join("status")).unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap_or("0");
        u64::from_str_radix(line.trim_start_matches(':').trim(), 16).unwrap()
    };
    threads.map(|thread| of(thread.unwrap().path())).collect()
}

/// Whether each thread of a process may trace other users' processes (capabilities(7)).
fn may_trace(pid: &str) -> Vec<bool> {
    of_threads(pid, "CapEff").iter().map(|mask| mask & 1 << 19 != 0).collect()
}

/// Whether the test itself has the capability that profbridge has to drop; prints a note if not.
fn tests_may_trace() -> bool {
    let may = may_trace(&std::process::id().to_string()).iter().all(|may| *may);
    if !may {
        untested("the tests themselves may not trace");
    }
    may
}

/// Guarantees: no thread of either process keeps capabilities it does not use: the sampler has the one to trace, and
/// runs under a system call filter and `no_new_privs` unless it starts commands; without a sampler the pipeline process
/// is restricted like this.
#[test]
fn only_the_sampler_may_trace() {
    if !tests_may_trace() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let mut program = TargetProgram::hot("600");
    program.write_line();
    let sentry = SentryBackend::start();
    let target = format!("pid: {}", program.pid());
    let profbridge = Profbridge::start(&configuration(&sentry.dsn(1), folder.path(), &target));
    sentry.wait_for_chunks(1);
    let pid = profbridge.pid().to_string();
    assert!(may_trace(&pid).iter().all(|may| !may), "{:?}", may_trace(&pid));
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    let children = |thread: std::path::PathBuf| std::fs::read_to_string(thread.join("children")).unwrap_or_default();
    let sampler: String = threads.map(|thread| children(thread.unwrap().path())).collect();
    // DAC_READ_SEARCH, IPC_LOCK, SYS_PTRACE, SYS_NICE, PERFMON, CHECKPOINT_RESTORE.
    let sampling = [2, 14, 19, 23, 38, 40].iter().fold(0, |mask, right| mask | 1 << right);
    // DAC_OVERRIDE, DAC_READ_SEARCH, FOWNER, NET_BIND_SERVICE, SYSLOG.
    let serving = [1, 2, 3, 10, 34].iter().fold(0, |mask, right| mask | 1 << right);
    let beyond = |pid: &str, kept: u64| of_threads(pid, "CapPrm").iter().any(|mask| mask & !kept != 0);
    let confined =
        |pid: &str| [of_threads(pid, "Seccomp"), of_threads(pid, "NoNewPrivs")].map(|all| all.iter().copied().min());
    let sampler = sampler.trim();
    assert!(may_trace(sampler).iter().all(|may| *may), "the sampler {sampler} has it");
    assert!(!beyond(sampler, sampling) && !beyond(&pid, serving));
    assert_eq!(confined(sampler), [Some(2), Some(1)]);
    assert!(profbridge.stop().0.success());
    program.end();
    let config = "receivers: {otlp: {protocols: {http: {endpoint: '127.0.0.1:0'}}}}
exporters: {debug: }
service: {pipelines: {profiles: {receivers: [otlp], exporters: [debug]}}}
";
    let profbridge = Profbridge::start(config);
    let pid = profbridge.pid().to_string();
    assert!(!beyond(&pid, serving));
    assert_eq!(confined(&pid), [Some(2), Some(1)]);
    assert!(profbridge.stop().0.success());
}

/// Guarantees: commands stop and start the profiler of a running profbridge, a command without effect says why, and the
/// status is updated.
#[test]
fn control() {
    let folder = tempfile::tempdir().unwrap();
    let mut program = TargetProgram::hot("600");
    program.write_line();
    let sentry = SentryBackend::start();
    let target = format!("pid: {}, start_on_launch: false", program.pid());
    let profbridge = Profbridge::start(&configuration(&sentry.dsn(1), folder.path(), &target));
    let ask = |action: &str| -> Finished {
        let finished = run(folder.path(), &["profiler", action, "--socket", "control.sock"]);
        assert!(finished.status.success(), "{action}: {}", finished.stderr);
        finished
    };
    crate::process::eventually("it is attached", || ask("status").stdout.contains("not profiling").then_some(()));
    assert!(ask("stop").stdout.contains("does not run"));
    ask("start");
    assert!(ask("start").stdout.contains("runs already"));
    let status = ask("status").stdout;
    assert!(status.contains(&format!("pid {}", program.pid())) && !status.contains("not profiling"), "{status}");
    sentry.wait_for_chunks(1);
    ask("stop");
    assert!(ask("status").stdout.contains("not profiling"));
    let unknown = run(folder.path(), &["profiler", "start", "nobody", "--socket", "control.sock"]);
    assert_eq!(unknown.status.code(), Some(1));
    assert!(unknown.stderr.contains("nobody") || unknown.stderr.contains("target"), "{}", unknown.stderr);
    let (status, log) = profbridge.stop();
    assert!(status.success(), "{log}");
    program.end();
}
