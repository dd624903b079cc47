use profbridge_model::thread::ThreadState;
use profbridge_model::{Profiles, Value};
use profbridge_sampler::message::{
    Batch, Context, Location, Mode, Process, ProcessId, Sample, Stack, TargetId, Thread, Trust,
};
use profbridge_symbolizer::{Settings, Symbolizer};

use super::{Collector, PartProfiles};
use crate::views::reading::AWAITED;

const T0: u64 = 1_790_000_000_000_000_000;
const SECOND: u64 = 1_000_000_000;

fn collector() -> Collector {
    Collector::new(Symbolizer::start(Settings::default()).unwrap(), false)
}

fn process(id: u64) -> Process {
    Process {
        id: ProcessId(id),
        target: TargetId(0),
        pid: 7,
        namespace_pid: 7,
        start_unix_nano: T0 - SECOND,
        exec_id: id,
        executable: format!("/srv/app{id}"),
        arguments: Vec::new(),
        user: 0,
        control_group: None,
        container: None,
        environment: vec![("OTEL_RESOURCE_ATTRIBUTES".to_owned(), "no pair".to_owned())],
        root: None,
    }
}

/// A thread that runs for a second and one that is blocked for two, at this second of the run.
fn batch(id: u64, second: u64) -> Batch {
    let sample = |thread, weight: u64, blocked| Sample {
        thread,
        stack: 0,
        context: None,
        time_unix_nano: T0 + second * SECOND,
        weight_nano: weight * SECOND,
        observations: 1,
        blocked,
    };
    Batch {
        process: ProcessId(id),
        period_nano: 10_000_000,
        mode: Mode::Wall,
        threads: vec![
            Thread { id: 7, namespace_id: 7, name: "main".to_owned(), pointer: 0 },
            Thread { id: 8, namespace_id: 8, name: "idle".to_owned(), pointer: 0 },
        ],
        locations: vec![Location::Native { mapping: None, address: 4096 }],
        stacks: vec![Stack { trust: Trust::Complete, locations: vec![0] }],
        contexts: Vec::new(),
        samples: vec![sample(0, 1, false), sample(1, 2, true)],
    }
}

/// The sum of all values of running and of blocked threads, in seconds.
fn seconds(profiles: &Profiles) -> (u64, u64) {
    let (mut running, mut waiting) = (0, 0);
    for sample in profiles.profiles().flat_map(|profile| profiles.samples(profile)) {
        let is_waiting = ThreadState::of(profiles.dictionary(), sample.attributes) == Some(ThreadState::Waiting);
        let sum = if is_waiting { &mut waiting } else { &mut running };
        *sum += sample.values().sum::<i64>().unsigned_abs() / SECOND;
    }
    (running, waiting)
}

fn parts(collector: &mut Collector) -> Vec<PartProfiles> {
    collector.ready(true).iter().map(|part| collector.assemble(part).unwrap()).collect()
}

/// The labels of the processes of a part.
fn labels(part: &PartProfiles) -> Vec<&str> {
    part.processes.iter().map(|(label, _)| &**label).collect()
}

/// Guarantees: running and blocked time are separate, and each process has its own resource.
#[test]
fn running_and_waiting() {
    let mut collector = collector();
    assert!(collector.is_empty());
    for id in [1, 2] {
        let complaint = collector.attached(process(id)).unwrap();
        assert!(complaint.contains("OTEL_RESOURCE_ATTRIBUTES"), "{complaint}");
        collector.batch(batch(id, 0));
    }
    // An unknown process, whose samples are ignored.
    collector.batch(Batch { process: ProcessId(9), ..batch(1, 0) });
    collector.cut();
    assert!(!collector.is_empty());
    let parts = self::parts(&mut collector);
    assert!(collector.is_empty() && parts.len() == 1);
    let part = &parts[0];
    assert_eq!((seconds(&part.profiles), labels(part)), ((2, 4), vec!["app1 (pid 7)", "app2 (pid 7)"]));
    let executables: Vec<_> = part
        .profiles
        .resources()
        .iter()
        .map(|resource| match part.profiles.find(&resource.resource.attributes, "process.executable.name") {
            Some(Value::String(name)) => part.profiles.dictionary().string(*name),
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(executables, ["app1", "app2"]);
}

/// Guarantees: what a thread was found to wait for is an attribute of the samples of that wait.
#[test]
fn awaited() {
    let mut collector = collector();
    collector.attached(process(1));
    let mut batch = batch(1, 0);
    batch.contexts = vec![Context { link: None, attributes: vec![(0, "pipe".to_owned())] }];
    batch.samples[1].context = Some(0);
    collector.batch(batch);
    collector.cut();
    let parts = self::parts(&mut collector);
    let profiles = &parts[0].profiles;
    let names = profiles.profiles().flat_map(|profile| profiles.samples(profile)).map(|sample| {
        match profiles.dictionary().find(sample.attributes, AWAITED) {
            Some(Value::String(name)) => profiles.dictionary().string(*name),
            _ => "",
        }
    });
    let mut names: Vec<&str> = names.collect();
    names.sort_unstable();
    assert_eq!(names, ["", "pipe"]);
}

/// Guarantees: a part contains the processes with samples in it, each once with all of them, in the order of their
/// discovery, in whatever order the samples arrive and however many processes there were before.
#[test]
fn many_processes() {
    let mut collector = collector();
    for id in 0..3_000 {
        collector.attached(process(id));
    }
    for second in 0..3 {
        for id in [2_999, 7, 1_500] {
            collector.batch(batch(id, second));
        }
    }
    collector.cut();
    let parts = self::parts(&mut collector);
    assert_eq!(labels(&parts[0]), ["app7 (pid 7)", "app1500 (pid 7)", "app2999 (pid 7)"]);
    assert_eq!((seconds(&parts[0].profiles), parts[0].profiles.resources().len()), ((9, 18), 3));
}

/// Guarantees: CPU time is running time, whatever the state of its thread by then.
#[test]
fn on_the_processor() {
    let mut collector = collector();
    collector.attached(process(1));
    collector.batch(Batch { mode: Mode::Cpu, ..batch(1, 0) });
    collector.cut();
    let parts = self::parts(&mut collector);
    assert_eq!(seconds(&parts[0].profiles), (3, 0));
}

/// Guarantees: a long run is split into parts that Sentry accepts as chunks, and each sample is in exactly one.
#[test]
fn long_run() {
    let mut collector = collector();
    collector.attached(process(1));
    for second in 0..100 {
        collector.batch(batch(1, second));
    }
    collector.cut();
    let parts = self::parts(&mut collector);
    let lengths: Vec<u64> = parts.iter().map(|part| seconds(&part.profiles).0).collect();
    assert_eq!(lengths, [45, 45, 10]);
}

/// Guarantees: equal process numbers of two sampler processes are not confused.
#[test]
fn numbers() {
    let mut collector = collector();
    collector.attached(process(1));
    collector.batch(batch(1, 0));
    collector.sampler_ended();
    collector.batch(batch(1, 1));
    collector.attached(Process { executable: "/srv/other".to_owned(), ..process(1) });
    collector.batch(batch(1, 2));
    collector.cut();
    let parts = self::parts(&mut collector);
    assert_eq!((labels(&parts[0]), seconds(&parts[0].profiles)), (vec!["app1 (pid 7)", "other (pid 7)"], (2, 4)));
}
