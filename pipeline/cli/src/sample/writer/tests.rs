use std::fs;
use std::path::{Path, PathBuf};

use profbridge_codec::decode::{DecodeOptions, Findings, decode};
use profbridge_model::thread::{STATE, ThreadState};
use profbridge_model::{Builder, Profile, Profiles};
use profbridge_relay_rules::validate_json;
use profbridge_wire::folded::CountUnit;

use super::Writer;
use crate::destination::{self, Destination};
use crate::views::flamegraph::GraphStyle;

const T0: u64 = 1_790_000_000_000_000_000;

/// Two seconds of a process: a running thread and a waiting one.
fn process(builder: &mut Builder, (pid, name): (i64, &str), start: u64, running: bool) {
    builder.resource(&[
        ("host.name", "h".into()),
        ("process.pid", pid.into()),
        ("process.executable.name", name.into()),
    ]);
    let sample_type = builder.value_type("wall", "nanoseconds");
    let (time_unix_nano, duration_nano) = (start, 2_000_000_000);
    builder.profile(Profile { sample_type, period: 10_000_000, time_unix_nano, duration_nano, ..Profile::default() });
    let [hot, park] = ["hot", "park"].map(|name| builder.frame(name, "app.c", 1));
    let (hot, park) = (builder.stack(&[hot]), builder.stack(&[park]));
    let state = |state: ThreadState| (STATE, state.name().into());
    let runner =
        builder.attributes(&[("thread.id", 7.into()), ("thread.name", "runner".into()), state(ThreadState::Running)]);
    let sleeper = builder.attributes(&[("thread.id", 8.into()), state(ThreadState::Waiting)]);
    let times: Vec<u64> = (0..200).map(|tick| start + tick * 10_000_000).collect();
    if running {
        builder.sample(hot, runner, None, &times, &vec![10_000_000; 200]);
    }
    builder.sample(park, sleeper, None, &[start, start + 1_000_000_000], &[1_000_000_000, 990_000_000]);
}

fn part(start: u64) -> Profiles {
    let mut builder = Builder::new();
    process(&mut builder, (7, "app"), start, true);
    builder.finish().unwrap()
}

/// The same with another process that only waited for it.
fn part_with_wrapper(name: &str) -> Profiles {
    let mut builder = Builder::new();
    process(&mut builder, (6, "timeout"), T0, false);
    process(&mut builder, (7, name), T0, true);
    builder.finish().unwrap()
}

/// CPU time.
fn part_on_cpu() -> Profiles {
    let mut builder = Builder::new();
    builder.resource(&[("process.pid", 7.into()), ("process.executable.name", "app".into())]);
    let sample_type = builder.value_type("cpu", "nanoseconds");
    builder.profile(Profile { sample_type, time_unix_nano: T0, ..Profile::default() });
    let hot = builder.frame("hot", "app.c", 1);
    let (hot, runner) = (builder.stack(&[hot]), builder.attributes(&[("thread.name", "runner".into())]));
    builder.sample(hot, runner, None, &[T0], &[2_000_000_000]);
    builder.finish().unwrap()
}

/// A destination with the format of its file extension.
fn destination(path: PathBuf) -> Destination {
    let format = destination::format_of(&path).unwrap();
    Destination { path, format, graph: GraphStyle::default() }
}

fn write(folder: &Path, name: &str, parts: &[Profiles]) -> Vec<PathBuf> {
    let mut writer = Writer::open(destination(folder.join(name))).unwrap();
    for part in parts {
        writer.take(part).unwrap();
    }
    let files = writer.close("app").unwrap();
    for (path, size) in &files {
        assert_eq!(fs::metadata(path).unwrap().len(), *size);
    }
    assert!(writer.report.losses.is_none(), "{}", writer.report.losses);
    files.into_iter().map(|(path, _)| path).collect()
}

/// Guarantees: for wall time, running and waiting stacks have separate roots, then the thread; CPU time needs no such
/// roots.
#[test]
fn folded() {
    let folder = tempfile::tempdir().unwrap();
    let written = write(folder.path(), "a.folded", &[part(T0), part(T0 + 2_000_000_000)]);
    let text = fs::read_to_string(&written[0]).unwrap();
    assert_eq!(text, "[running];runner;hot 4000000000\n[waiting];thread 8;park 3980000000\n");
    let written = write(folder.path(), "b.folded", &[part_on_cpu()]);
    assert_eq!(fs::read_to_string(&written[0]).unwrap(), "runner;hot 2000000000\n");
}

/// Guarantees: with several processes each stack is below its own, and a process name cannot end a frame.
#[test]
fn several_processes() {
    let folder = tempfile::tempdir().unwrap();
    let written = write(folder.path(), "a.folded", &[part_with_wrapper("a;b")]);
    let text = fs::read_to_string(&written[0]).unwrap();
    let expected = "\
[running];a:b (pid 7);runner;hot 2000000000
[waiting];a:b (pid 7);thread 8;park 1990000000
[waiting];timeout (pid 6);thread 8;park 1990000000
";
    assert_eq!(text, expected);
    let written = write(folder.path(), "a.svg", &[part_with_wrapper("app")]);
    let svg = fs::read_to_string(&written[0]).unwrap();
    assert!(["timeout (pid 6)", "app (pid 7)"].iter().all(|name| svg.contains(name)), "{svg}");
}

/// Guarantees: a flame graph shows the functions below the state of their threads, and names its subject.
#[test]
fn svg() {
    let folder = tempfile::tempdir().unwrap();
    let written = write(folder.path(), "a.svg", &[part(T0)]);
    let svg = fs::read_to_string(&written[0]).unwrap();
    assert!(
        ["hot", "park", "<title>running\n", "<title>waiting\n", "app"].iter().all(|name| svg.contains(name)),
        "{svg}"
    );
}

/// Guarantees: of several processes the one with the most samples is in the named file, and none is lost.
#[test]
fn pprof() {
    let folder = tempfile::tempdir().unwrap();
    let mut builder = Builder::new();
    for (pid, name, samples) in [(6, "wrapper", 2), (7, "worker", 50)] {
        builder.resource(&[("host.name", "h".into()), ("process.pid", pid.into()), ("service.name", name.into())]);
        let sample_type = builder.value_type("wall", "nanoseconds");
        builder.profile(Profile { sample_type, time_unix_nano: T0, duration_nano: 1_000, ..Profile::default() });
        let frame = builder.frame(name, "app.c", 1);
        let stack = builder.stack(&[frame]);
        let thread = builder.attributes(&[("thread.id", pid.into())]);
        let times: Vec<u64> = (0..samples).map(|tick| T0 + tick).collect();
        builder.sample(stack, thread, None, &times, &vec![1; times.len()]);
    }
    let written = write(folder.path(), "a.pb.gz", &[builder.finish().unwrap()]);
    let functions = written.iter().map(|path| {
        let (mut functions, mut findings) = (Vec::new(), Findings::default());
        let options = DecodeOptions { limit: usize::MAX, counted: CountUnit::default() };
        decode("", fs::read(path).unwrap().into(), options, &mut findings, |telemetry| {
            for profiles in telemetry.profiles() {
                let dictionary = profiles.dictionary();
                let names = dictionary.tables().functions.iter().map(|function| dictionary.string(function.name));
                functions.extend(names.filter(|name| !name.is_empty()).map(str::to_owned));
            }
        })
        .unwrap();
        functions
    });
    assert_eq!(functions.collect::<Vec<_>>(), [["worker"], ["wrapper"]]);
}

/// Guarantees: parts become one OTLP message that contains every observation.
#[test]
fn otlp() {
    let folder = tempfile::tempdir().unwrap();
    let written = write(folder.path(), "a.otlp", &[part(T0), part(T0 + 2_000_000_000)]);
    let bytes = fs::read(&written[0]).unwrap();
    profbridge_testkit::profcheck::assert_valid(&bytes);
    let decoded = profbridge_wire::otlp::decode(bytes.into(), &profbridge_wire::otlp::Limits::default()).unwrap();
    assert_eq!(decoded.profiles.observations(), 2 * 202);
}

/// Guarantees: however long a run is, each process is one pprof profile, and all of them one OTLP message.
#[test]
fn long_run() {
    let folder = tempfile::tempdir().unwrap();
    let many = |start: u64| {
        let mut builder = Builder::new();
        builder.resource(&[("host.name", "h".into()), ("process.pid", 7.into()), ("service.name", "app".into())]);
        let sample_type = builder.value_type("wall", "nanoseconds");
        let times: Vec<u64> = (0..700_000).map(|tick| start + tick).collect();
        let (time_unix_nano, duration_nano) = (start, 700_000);
        builder.profile(Profile { sample_type, time_unix_nano, duration_nano, ..Profile::default() });
        let frame = builder.frame("hot", "app.c", 1);
        let stack = builder.stack(&[frame]);
        builder.sample(stack, None, None, &times, &vec![1; times.len()]);
        builder.finish().unwrap()
    };
    let parts = [many(T0), many(T0 + 700_000), many(T0 + 1_400_000)];
    assert_eq!(write(folder.path(), "a.pprof", &parts).len(), 1);
    let written = write(folder.path(), "a.otlp", &parts);
    let bytes = fs::read(&written[0]).unwrap();
    let decoded = profbridge_wire::otlp::decode(bytes.into(), &profbridge_wire::otlp::Limits::default()).unwrap();
    assert_eq!(decoded.profiles.observations(), 2_100_000);
}

/// Guarantees: each part is a separate envelope beside the first, and each satisfies Relay's rules.
#[test]
fn envelopes() {
    let folder = tempfile::tempdir().unwrap();
    let written = write(folder.path(), "a.envelope", &[part(T0), part(T0 + 2_000_000_000)]);
    let names: Vec<_> = written.iter().map(|path| path.file_name().unwrap().to_str().unwrap()).collect();
    assert_eq!(names, ["a.envelope", "a-2.envelope"]);
    for path in &written {
        let bytes = fs::read(path).unwrap();
        let payload = bytes.split(|&byte| byte == b'\n').nth(2).unwrap();
        validate_json(payload).unwrap();
    }
}

/// Guarantees: without samples no empty file is left, and the message names the file that was not written.
#[test]
fn nothing() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["a.svg", "a.envelope"] {
        let destination = destination(folder.path().join(name));
        let crate::Failure(why) = Writer::open(destination).unwrap().close("app").unwrap_err();
        assert!(why.contains(name) && why.contains("not a single"), "{why}");
    }
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
}
