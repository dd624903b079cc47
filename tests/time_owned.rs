//! The time that Sentry assigns to a thread equals its sampled time: from the sampler's batches through the receiver's
//! assembler, windows of a minute and the conversion to chunks.

use std::collections::HashMap;

use profbridge_engine::component::{Now, Outbox, flush_all, process_all};
use profbridge_engine::config::Section;
use profbridge_identity::Rules;
use profbridge_model::{Profiles, Telemetry};
use profbridge_receiver_ptrace::assemble::{AssembledProcess, Assembler, Attribute, Nameless, ResourceValue};
use profbridge_sampler::message::{Batch, Location, Mode, ProcessId, Sample, Stack, Thread, Trust};
use profbridge_testkit::ExportProfilesServiceRequest;
use profbridge_testkit::naive::chunk::NaiveChunk;
use profbridge_testkit::owned::{sampled, shown as shown_of};
use profbridge_wire::sentry::chunk::{Collected, Converter, Settings};
use prost::Message;

use crate::backend::sentry::split_envelope;
use crate::process::run;
use crate::sample::stops;
use crate::targets::turns;

/// An odd start time, so that nothing fits by chance.
const START: u64 = 1_790_000_000_123_456_789;
const SECOND: u64 = 1_000_000_000;
const LENGTH: u64 = 180 * SECOND;
const PERIOD: u64 = SECOND / 101;

const BLOCKED: &str = "1";
const BUSY: &str = "2";

/// The sampler's batch of half a second from a tick on: one sample of the waiting thread, and one per tick of the
/// running thread.
fn batch(ticks: std::ops::Range<u64>) -> Batch {
    let sample = |thread: u32, stack: u32, tick: u64, ticks: u64| Sample {
        thread,
        stack,
        context: None,
        time_unix_nano: START + tick * PERIOD,
        weight_nano: ticks * PERIOD,
        observations: ticks as u32,
        blocked: thread == 0,
    };
    let running = ticks.clone().map(|tick| sample(1, 1 + (tick % 3) as u32, tick, 1));
    Batch {
        process: ProcessId(1),
        period_nano: PERIOD,
        mode: Mode::Wall,
        threads: [1, 2].map(|id| Thread { id, namespace_id: id, ..Thread::default() }).to_vec(),
        locations: (0..4).map(|n| Location::Native { mapping: None, address: 0x1000 + n }).collect(),
        stacks: (0..4).map(|n| Stack { trust: Trust::Complete, locations: vec![n] }).collect(),
        contexts: Vec::new(),
        samples: std::iter::once(sample(0, 0, ticks.start, ticks.end - ticks.start)).chain(running).collect(),
    }
}

/// The profiles of these batches of a process.
fn assembled(pid: i64, batches: &[Batch]) -> Profiles {
    let text =
        |key: &'static str, text: &str| Attribute { key: key.into(), value: ResourceValue::Text(text.to_owned()) };
    let resource = [text("host.name", "h"), Attribute { key: "process.pid".into(), value: ResourceValue::Int(pid) }];
    let mut assembler = Assembler::default();
    assembler.process(
        AssembledProcess {
            resource: &resource,
            mappings: &[],
            functions: &[],
            thread_attributes: &[],
            names: &Nameless,
        },
        batches,
    );
    assembler.finish().unwrap().profiles
}

/// The exports of the receiver for a process, one every five seconds.
fn exports(pid: i64) -> Vec<Profiles> {
    let mut batches = Vec::new();
    let mut tick = 0;
    while tick * PERIOD < LENGTH {
        batches.push(batch(tick..tick + 50));
        tick += 50;
    }
    batches.chunks(10).map(|batches| assembled(pid, batches)).collect()
}

/// The time that Sentry shows by thread, after cutting windows by these rules, and the number of chunks.
fn shown(identity: &Rules, exports: Vec<Profiles>) -> (HashMap<String, f64>, usize) {
    let mut chunk = (profbridge_processor_chunk::FACTORY.create)(&Section::defaults(), identity).unwrap();
    let mut converter = Converter::new(Settings::default());
    let mut out = Outbox::default();
    let mut end = START;
    for profiles in exports {
        end = ends(&profiles).unwrap();
        let now = Now { monotonic_nano: end - START, unix_nano: end };
        process_all(&mut *chunk, profiles.into(), now, &mut out);
    }
    flush_all(&mut *chunk, Now { monotonic_nano: end - START, unix_nano: end }, &mut out);
    assert!(out.losses.is_none(), "{}", out.losses);
    let (mut threads, mut chunks) = (HashMap::new(), 0);
    for telemetry in out.telemetry {
        let Telemetry::Profiles(profiles) = telemetry else { panic!("no profiles") };
        let mut collected = Collected::default();
        assert!(converter.convert(&profiles, &mut collected).losses.is_none());
        for (json, _) in collected.chunks {
            chunks += 1;
            owned(&serde_json::from_slice(&json).unwrap(), &mut threads);
        }
    }
    (threads, chunks)
}

/// The end of the last profile.
fn ends(profiles: &Profiles) -> Option<u64> {
    profiles.profiles().map(|profile| profile.time_unix_nano + profile.duration_nano).max()
}

/// The nanoseconds that Sentry assigns to each thread of a chunk: a sample lasts until the next one of its thread
/// (`vroomrs` 0.1.24), and one without frames does not count.
fn owned(chunk: &serde_json::Value, threads: &mut HashMap<String, f64>) {
    let profile = &chunk["profile"];
    let mut samples: HashMap<&str, Vec<(f64, bool)>> = HashMap::new();
    for sample in profile["samples"].as_array().unwrap() {
        let stack = &profile["stacks"][sample["stack_id"].as_u64().unwrap() as usize];
        let at = (sample["timestamp"].as_f64().unwrap(), !stack.as_array().unwrap().is_empty());
        samples.entry(sample["thread_id"].as_str().unwrap()).or_default().push(at);
    }
    for (thread, samples) in samples {
        let time: f64 = samples.windows(2).filter(|pair| pair[0].1).map(|pair| pair[1].0 - pair[0].0).sum();
        *threads.entry(thread.to_owned()).or_default() += time * SECOND as f64;
    }
}

/// Guarantees: for a thread that waits for three minutes and one that runs meanwhile, Sentry shows all of their sampled
/// time, wherever the windows of their process end: within 2 in 10,000, and without any loss for the waiting thread at
/// window ends.
#[test]
fn time_owned_is_time_sampled() {
    for pid in 1..=20 {
        let exports = exports(pid);
        let end = exports.iter().filter_map(ends).max().unwrap();
        let (threads, chunks) = shown(&Rules::default(), exports);
        assert!(chunks >= 3, "{chunks} windows");
        let sampled = (end - START) as f64;
        // Timestamps in JSON are exact to less than a microsecond.
        assert!((threads[BLOCKED] - sampled).abs() < 20_000.0, "pid {pid}: {threads:?} of {sampled}");
        assert!((threads[BUSY] - sampled).abs() < sampled * 2e-4, "pid {pid}: {threads:?} of {sampled}");
    }
}

/// Guarantees: a thread sleeps in a loop and runs between two sleeps for less than the gap across which samples are
/// joined. Sentry shows all of its time to within a period: as written by `sample`, 45 seconds in one chunk, and as
/// converted from OTLP, in windows of a minute.
#[test]
fn a_loop_that_sleeps() {
    const MILLI: u64 = 1_000_000;
    let mut batches = Vec::new();
    let mut at = START;
    // Sleeps of 100 to 450 ms, which the sampler reports in parts of 250 ms.
    let (mut asleep, mut step) = (0, 0);
    while at < START + 45 * SECOND {
        let mut samples = Vec::new();
        let end = at + 250 * MILLI;
        while at < end {
            if asleep == 0 {
                step += 1;
                asleep = (100 + step * 37 % 350) * MILLI;
                let moment = (50 + step * 97 % 900) * 1_000;
                samples.push(Sample { stack: 1, time_unix_nano: at, weight_nano: moment, ..Sample::default() });
                at += moment;
            }
            let part = asleep.min(end.saturating_sub(at));
            samples.push(Sample { time_unix_nano: at, weight_nano: part, blocked: true, ..Sample::default() });
            (at, asleep) = (at + part, asleep - part);
        }
        samples.retain(|sample| sample.weight_nano > 0);
        batches.push(Batch { samples, ..batch(0..1) });
    }
    let sampled = (at - START) as f64;
    let whole = assembled(7, &batches);
    let sum: i64 =
        whole.profiles().flat_map(|profile| whole.samples(profile)).map(|one| one.values().sum::<i64>()).sum();
    assert_eq!(sum as f64, sampled);
    for window in [0, 60 * SECOND] {
        let (threads, chunks) = shown(&Rules { window, ..Rules::default() }, vec![whole.clone()]);
        let missing = (threads[BLOCKED] - sampled).abs();
        assert!(missing < PERIOD as f64 * chunks as f64, "{threads:?} of {sampled} in {chunks} chunks");
    }
}

/// Guarantees: for threads that alternately compute and wait for a few milliseconds, Sentry shows each function of each
/// thread with its sampled time: at most one in 1,000 of a thread's time is assigned to another function.
#[test]
fn short_turns() {
    let folder = tempfile::tempdir().unwrap();
    let inside = |name: &str| folder.path().join(name);
    let turns = turns().to_str().unwrap();
    let sample = [&["sample", "-o", "x.otlp"], stops(), &["--", turns, "4", "4"]].concat();
    for arguments in [&sample[..], &["convert", "x.otlp", "-o", "chunks", "--to", "sentry"]] {
        let finished = run(folder.path(), arguments);
        assert!(finished.status.success(), "{}", finished.stderr);
    }
    let otlp = std::fs::read(inside("x.otlp")).unwrap();
    let sampled = sampled(&ExportProfilesServiceRequest::decode(&otlp[..]).unwrap());
    let chunks = std::fs::read_dir(inside("chunks")).unwrap().map(|file| {
        let (_, items) = split_envelope(&std::fs::read(file.unwrap().path()).unwrap());
        serde_json::from_slice::<NaiveChunk>(&items[0].1).unwrap()
    });
    let shown = shown_of(&chunks.collect::<Vec<_>>(), &sampled);
    let functions = |name: &str| sampled.times.iter().filter(|((_, function), _)| function == name).count();
    assert!(functions("compute") >= 4 && functions("clock_nanosleep") >= 4, "{:?}", sampled.times);
    for thread in sampled.weights.keys() {
        let of = |times: &std::collections::BTreeMap<(Option<String>, String), u64>| -> HashMap<String, u64> {
            // Only chunks have a name for code outside of any file.
            let name = |name: &String| if name == "[]" { "[unknown]".to_owned() } else { name.clone() };
            times.iter().filter(|((of, _), _)| of == thread).map(|((_, of), time)| (name(of), *time)).collect()
        };
        let (before, after) = (of(&sampled.times), of(&shown.times));
        let all: u64 = before.values().sum();
        for name in before.keys().chain(after.keys()) {
            let [before, after] = [&before, &after].map(|times| times.get(name).copied().unwrap_or(0));
            let moved = before.abs_diff(after);
            // Chunks have a resolution of microseconds.
            assert!(
                moved <= all / 1_000 + 1_000,
                "{name} of thread {thread:?}: {after} ns are shown of {before}, of {all} in all"
            );
        }
    }
}
