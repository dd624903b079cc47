use std::fs;
use std::path::Path;

use profbridge_model::{Builder, Profile, Profiles};
use profbridge_ptrace::message::Mode;
use profbridge_wire::sentry::relay_rules;

use super::{Sink, Written};
use crate::destination::{self, Destination};
use crate::sample::collect::Halves;

const T0: u64 = 1_790_000_000_000_000_000;

/// Two seconds of one process: a thread that runs, and another that waits.
fn profiles(start: u64, running: bool, waiting: bool) -> Profiles {
    let mut builder = Builder::new();
    builder.resource(&[("host.name", "h".into()), ("process.pid", 7.into()), ("service.name", "app".into())]);
    let sample_type = builder.value_type("wall", "nanoseconds");
    let (time_unix_nano, duration_nano) = (start, 2_000_000_000);
    builder.profile(Profile { sample_type, period: 10_000_000, time_unix_nano, duration_nano, ..Profile::default() });
    let [hot, park] = ["hot", "park"].map(|name| builder.frame(name, "app.c", 1));
    let (hot, park) = (builder.stack(&[hot]), builder.stack(&[park]));
    let runner = builder.attributes(&[("thread.id", 7.into()), ("thread.name", "runner".into())]);
    let sleeper = builder.attributes(&[("thread.id", 8.into())]);
    let times: Vec<u64> = (0..200).map(|tick| start + tick * 10_000_000).collect();
    if running {
        builder.sample(hot, runner, None, &times, &vec![10_000_000; 200]);
    }
    if waiting {
        builder.sample(park, sleeper, None, &[start, start + 1_000_000_000], &[1_000_000_000, 990_000_000]);
    }
    builder.finish().unwrap()
}

fn part(start: u64) -> Halves {
    let (running, waiting) = (Some(profiles(start, true, false)), Some(profiles(start, false, true)));
    Halves { whole: profiles(start, true, true), running, waiting, malformed: 0 }
}

fn write(folder: &Path, name: &str, mode: Mode, parts: &[Halves]) -> Written {
    let path = folder.join(name);
    let destination: Destination = destination::parse(path.to_str().unwrap()).unwrap();
    let mut written = Written::default();
    let mut sink = Sink::open(&destination, "app", mode).unwrap();
    for part in parts {
        sink.take(part, &mut written).unwrap();
    }
    sink.close(&mut written).unwrap();
    for (path, size) in &written.files {
        assert_eq!(fs::metadata(path).unwrap().len(), *size);
    }
    assert_eq!(written.losses.total(), 0, "{}", written.losses);
    written
}

/// Guarantees: on the wall clock running and waiting stacks have roots of their own, then the thread; on the
/// processor there is nothing to tell apart.
#[test]
fn folded() {
    let folder = tempfile::tempdir().unwrap();
    let written = write(folder.path(), "a.folded", Mode::Wall, &[part(T0), part(T0 + 2_000_000_000)]);
    let text = fs::read_to_string(&written.files[0].0).unwrap();
    assert_eq!(text, "[running];runner;hot 4000000000\n[waiting];thread 8;park 3980000000\n");
    let running = Halves { waiting: None, ..part(T0) };
    let written = write(folder.path(), "b.folded", Mode::Cpu, &[running]);
    assert_eq!(fs::read_to_string(&written.files[0].0).unwrap(), "runner;hot 2000000000\n");
}

/// Guarantees: a flame graph shows the functions under what their threads did, and says of what it is.
#[test]
fn svg() {
    let folder = tempfile::tempdir().unwrap();
    let written = write(folder.path(), "a.svg", Mode::Wall, &[part(T0)]);
    let svg = fs::read_to_string(&written.files[0].0).unwrap();
    assert!(["hot", "park", "[running]", "[waiting]", "app"].iter().all(|name| svg.contains(name)), "{svg}");
}

/// Guarantees: parts become one OTLP message with every observation in it.
#[test]
fn otlp() {
    let folder = tempfile::tempdir().unwrap();
    let written = write(folder.path(), "a.otlp", Mode::Wall, &[part(T0), part(T0 + 2_000_000_000)]);
    let bytes = fs::read(&written.files[0].0).unwrap();
    let decoded = profbridge_wire::otlp::decode(bytes.into(), &profbridge_wire::otlp::Limits::default()).unwrap();
    assert_eq!(decoded.profiles.observations(), 2 * 202);
}

/// Guarantees: each part is an envelope of its own beside the first, and each passes Relay's rules.
#[test]
fn envelopes() {
    let folder = tempfile::tempdir().unwrap();
    let written = write(folder.path(), "a.envelope", Mode::Wall, &[part(T0), part(T0 + 2_000_000_000)]);
    let names: Vec<_> = written.files.iter().map(|(path, _)| path.file_name().unwrap().to_str().unwrap()).collect();
    assert_eq!(names, ["a.envelope", "a-2.envelope"]);
    for (path, _) in &written.files {
        let bytes = fs::read(path).unwrap();
        let payload = bytes.split(|&byte| byte == b'\n').nth(2).unwrap();
        relay_rules::validate_json(payload).unwrap();
    }
}

/// Guarantees: where nothing was sampled no empty file is left, and it is said which one was not written.
#[test]
fn nothing() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["a.svg", "a.envelope"] {
        let destination = destination::parse(folder.path().join(name).to_str().unwrap()).unwrap();
        let crate::Failure(why) =
            Sink::open(&destination, "app", Mode::Wall).unwrap().close(&mut Written::default()).unwrap_err();
        assert!(why.contains(name) && why.contains("not a single"), "{why}");
    }
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
}
