use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::sync_channel;

use rustix::thread::CapabilitySet;

use super::*;
use crate::address_space::AddressSpace;
use crate::elf::ObjectCache;
use crate::message::Settings;
use crate::perf::ring::tests::{ring_of, switches};
use crate::process_files::ProcessFiles;
use crate::sampler::active::{Active, Recording};
use crate::sampler::attached::Attached;
use crate::sampler::seizing::Seizing;
use crate::sampler::shortfall::tests::throttled_and_lost;
use crate::sampler::timeline::Cause;

const SECOND: Duration = Duration::from_secs(1);
const RECORDED: Switches = Switches::Recorded;

/// The usage during one second in which no other process ran.
fn alone() -> Usage {
    Usage { elapsed: SECOND, own: SECOND, group: Some(SECOND), machine: SECOND, switches: 0, threads: 1 }
}

/// The state of the review, and the last coverage.
struct Reviewed {
    review: Review,
    coverage: Coverage,
}

impl Reviewed {
    fn new(now: Instant, started: bool) -> Self {
        Self { review: Review::new(now, started), coverage: Coverage::Threads }
    }
}

/// Reviews the coverage if only `opening` can be opened. Returns the new coverage, and which coverages were tried.
fn look(review: &mut Reviewed, usage: Option<Usage>, now: Instant, opening: &[Coverage]) -> (Coverage, Vec<Coverage>) {
    look_as(review, usage, true, now, opening)
}

/// The same as [`look`], with or without the right to see everything on the machine.
fn look_as(
    Reviewed { review, coverage }: &mut Reviewed,
    usage: Option<Usage>,
    visible: bool,
    now: Instant,
    opening: &[Coverage],
) -> (Coverage, Vec<Coverage>) {
    let mut asked = Vec::new();
    *coverage = review.choose(*coverage, usage, visible, now, |wanted| {
        asked.push(wanted);
        opening.contains(&wanted)
    });
    (*coverage, asked)
}

/// Guarantees: if the events of the control group cannot be opened, a command keeps those of the machine, which are
/// used at its start; and the group is tried again after a minute, not every second.
#[test]
fn groups_that_do_not_open() {
    let (group, machine) = (Coverage::Group, Coverage::Machine);
    let start = Instant::now();
    let mut review = Reviewed::new(start, true);
    review.review.membership = Membership::at(Path::new("/"));
    assert_eq!(look(&mut review, None, start, &[machine]), (machine, vec![machine]));
    for second in 1..=60 {
        let asked = if second == 1 { vec![group, machine] } else { vec![machine] };
        let looked = look(&mut review, Some(alone()), start + second * SECOND, &[machine]);
        assert_eq!(looked, (machine, asked), "{second}");
    }
    assert_eq!(look(&mut review, Some(alone()), start + 61 * SECOND, &[machine, group]), (group, vec![group]));
}

/// Guarantees: for a process that is in no control group, events of a group are never tried, even if it was sampled
/// with such events before.
#[test]
fn no_group() {
    let now = Instant::now();
    let mut review = Reviewed::new(now, false);
    review.coverage = Coverage::Group;
    assert_eq!(look(&mut review, None, now, &[Coverage::Group]), (Coverage::Threads, vec![]));
    assert_eq!(
        look(&mut review, Some(alone()), now, &[Coverage::Machine]),
        (Coverage::Machine, vec![Coverage::Machine])
    );
}

/// A set of events that cover a group or the machine, on these processors, for a process.
fn set(group: Option<&str>, online: &[u32], process: u32) -> Processors {
    Processors {
        group: group.map(|path| ControlGroup::at(Path::new(path))),
        switches: RECORDED,
        period_nano: 1,
        rings: Vec::new(),
        varied: Instant::now(),
        online: online.to_vec(),
        processes: vec![(ProcessId(process.into()), process)],
    }
}

/// Guarantees: a process counts as covered only if events are open for exactly the processors that are online; events
/// of another process or of another group do not count.
#[test]
fn processors_that_are_switched() {
    let mut events = Events::new(None).unwrap();
    events.processors = vec![set(None, &[0, 1], 1), set(None, &[0], 2), set(Some("/"), &[0, 1], 3)];
    for (online, covered) in
        [(&[0, 1][..], [true, false, true]), (&[0], [false, true, false]), (&[0, 1, 2], [false; 3]), (&[1], [false; 3])]
    {
        events.machine.online = online.to_vec();
        let root = ControlGroup::at(Path::new("/"));
        let covers =
            [(1, None), (2, None), (3, Some(&root))].map(|(id, group)| events.covers(ProcessId(id), group, RECORDED));
        assert_eq!(covers, covered, "{online:?}");
    }
    events.machine.online = vec![0, 1];
    for (id, group) in [(1, Some("/")), (3, None), (3, Some("/proc"))] {
        let group = group.map(|path| ControlGroup::at(Path::new(path)));
        assert!(!events.covers(ProcessId(id), group.as_ref(), RECORDED), "{id} {group:?}");
    }
}

/// Guarantees: without the right to see everything on the machine, events of the machine are not tried, not even for a
/// command that starts; events of the group are. When the right is lost, the events of the machine are closed.
#[test]
fn without_the_right_to_see_all() {
    let (group, machine, threads) = (Coverage::Group, Coverage::Machine, Coverage::Threads);
    let now = Instant::now();
    let mut review = Reviewed::new(now, true);
    assert_eq!(look_as(&mut review, None, false, now, &[machine]), (threads, vec![]));
    assert_eq!(look_as(&mut review, Some(alone()), false, now, &[machine]), (threads, vec![]));
    review.coverage = machine;
    assert_eq!(look_as(&mut review, Some(alone()), false, now, &[machine]), (threads, vec![]));
    review.review.membership = Membership::at(Path::new("/"));
    assert_eq!(look_as(&mut review, Some(alone()), false, now, &[group]), (group, vec![group]));
}

/// An engine that samples one process by events.
pub(in crate::sampler) fn engine(pid: u32, wake: &dyn Fn(), now: Instant, started: bool) -> Engine<'_> {
    let files = Arc::new(ProcessFiles::open(pid).unwrap());
    let space = Arc::new(AddressSpace::load(&*files, None, &mut ObjectCache::default()).unwrap());
    let mut process = Active::new(Attached::new(ProcessId(1), files, space, Settings::default(), now), started, now);
    process.watch = RunningThreadMethod::Threads { kernel: true };
    // Nobody receives the outputs of this engine.
    let mut engine = Engine::new(sync_channel(16).0, wake, Seizing::start().unwrap(), Events::new(None).ok());
    engine.processes.push(process);
    engine
}

/// Reviews the coverage as if this state of the machine had just been read.
fn look_with(engine: &mut Engine<'_>, machine: MachineUsage, at: Instant) {
    engine.events.as_mut().unwrap().machine = MachineUsage { read: Some(at), ..machine };
    engine.review_coverage(0, at);
}

/// Guarantees: events that do not cover exactly the processors online are replaced at the next review, and are closed;
/// others stay.
#[test]
fn events_follow_the_processors() {
    let now = Instant::now();
    let mut engine = engine(std::process::id(), &|| {}, now, true);
    let all = online_processors().unwrap();
    let mut look = |online: &[u32], second: u32| {
        let machine = MachineUsage { online: online.to_vec(), visible: true, ..MachineUsage::default() };
        look_with(&mut engine, machine, now + second * SECOND);
        let sets = engine.events.iter().flat_map(|events| &events.processors);
        sets.map(|set| (set.online.clone(), set.rings[0].event.as_raw_fd(), set.processes.clone())).collect::<Vec<_>>()
    };
    let before = look(&all[..1], 0);
    let [(online, _, processes)] = &before[..] else {
        eprintln!("untested here: no events of processors are permitted");
        return;
    };
    assert_eq!((&online[..], processes.len()), (&all[..1], 1));
    assert_eq!(look(&all[..1], 1), before);
    let after = look(&all, 2);
    assert_eq!(after.len(), 1);
    assert_eq!((&after[0].0, &after[0].2), (&all, processes));
}

/// Guarantees: whether everything on the machine may be seen is checked again at each review.
#[test]
fn right_to_see_the_machine() {
    let now = Instant::now();
    let mut machine = MachineUsage::default();
    machine.refresh(now);
    assert_eq!(machine.visible, may_see_all());
    std::thread::spawn(move || {
        crate::capability::keep(!(CapabilitySet::PERFMON | CapabilitySet::SYS_ADMIN)).unwrap();
        machine.refresh(now + SECOND);
        assert!(!machine.visible);
    })
    .join()
    .unwrap();
}

/// Guarantees: samples that a processor's ring reports as missing are counted for each process that is sampled with it,
/// and for no other.
#[test]
fn what_a_processor_misses() {
    let now = Instant::now();
    let mut engine = engine(std::process::id(), &|| {}, now, false);
    let [throttled, lost] = throttled_and_lost();
    let rings = [&[&throttled[..], &lost, &throttled][..], &[&lost]];
    let events = engine.events.as_mut().unwrap();
    events.processors = rings
        .iter()
        .zip(1..)
        .map(|(records, process)| {
            let nothing = std::fs::File::open("/dev/null").unwrap().into();
            Processors {
                rings: vec![ProcessorEvent {
                    switches: None,
                    event: nothing,
                    ring: ring_of(records),
                    varying: Varying::new(1, 1),
                    pace: Pace::default(),
                    sampled: None,
                    last_switch: None,
                }],
                ..set(None, &[0], process)
            }
        })
        .collect();
    engine.drain_processors();
    let status = engine.processes[0].attached.status;
    assert_eq!((status.missed_ticks, status.lost_samples), (2, 7));
}

/// A process that computes, and two control groups between which it is moved. Dropping this ends the process.
struct MovedProcess {
    process: std::process::Child,
    groups: [PathBuf; 2],
}

impl MovedProcess {
    /// Starts the process; `None` if no control group can be created.
    fn start() -> Option<Self> {
        let path = |name| ControlGroup::path_of(&format!("profbridge-{name}-{}", std::process::id()));
        let groups = [path("before")?, path("after")?];
        for group in &groups {
            std::fs::create_dir(group).ok()?;
        }
        let process = std::process::Command::new("/bin/sh").args(["-c", "while :; do :; done"]).spawn().unwrap();
        Some(Self { process, groups })
    }

    fn pid(&self) -> u32 {
        self.process.id()
    }

    fn enter(&self, group: usize) {
        std::fs::write(self.groups[group].join("cgroup.procs"), self.pid().to_string()).unwrap();
    }

    /// Waits until the process has used more processor time than an idle one.
    fn work(&self) {
        let used = || time::cpu_of(self.pid()).unwrap();
        let before = used();
        while used() - before < 100_000_000 {
            std::thread::yield_now();
        }
    }
}

impl Drop for MovedProcess {
    fn drop(&mut self) {
        self.process.kill().ok();
        self.process.wait().ok();
        for group in &self.groups {
            while std::fs::remove_dir(group).is_err_and(|error| error.kind() == std::io::ErrorKind::ResourceBusy) {
                std::thread::yield_now();
            }
        }
    }
}

/// Guarantees: a process that is moved to another control group is sampled with the events of that group, not with
/// those of its former group.
#[test]
fn moved_to_another_group() {
    let untested = |why| eprintln!("untested here: {why}");
    let Some(moved) = MovedProcess::start() else { return untested("no control group can be made") };
    moved.enter(0);
    let start = Instant::now();
    let mut engine = engine(moved.pid(), &|| {}, start, false);
    let mut seconds = 0;
    let mut look = || {
        moved.work();
        seconds += 1;
        let machine =
            MachineUsage { cpu: Some(Duration::ZERO), online: online_processors().unwrap(), ..MachineUsage::default() };
        look_with(&mut engine, machine, start + seconds * SECOND);
        let sets = engine.events.iter().flat_map(|events| &events.processors);
        let groups: Vec<_> = sets.map(|set| set.group.clone()).collect();
        (engine.processes[0].watch.coverage().unwrap(), groups)
    };
    let in_group = |group: usize| (Coverage::Group, vec![Some(ControlGroup::at(&moved.groups[group]))]);
    assert_eq!(look(), (Coverage::Threads, vec![]));
    let before = look();
    if before.0 != Coverage::Group {
        return untested("no events of control groups are permitted");
    }
    assert_eq!(before, in_group(0));
    moved.enter(1);
    // The process's share of the new group's time is known only at the second review.
    assert_eq!(look(), (Coverage::Threads, vec![]));
    assert_eq!(look(), in_group(1));
}

/// Guarantees: if switches are sampled and not recorded, a thread was given its processor when the previous thread, of
/// any process, left it; a thread that leaves outside of a system call was preempted; and after lost records the
/// beginning of a turn is not known.
#[test]
fn turns_by_samples() {
    let (pid, thread) = (std::process::id(), nix::unistd::gettid().as_raw().unsigned_abs());
    for (in_call, cause) in [(true, Cause::Blocked), (false, Cause::Preempted)] {
        let now = Instant::now();
        let nano = Duration::from(nix::time::clock_gettime(nix::time::ClockId::CLOCK_MONOTONIC).unwrap()).as_nanos();
        let nano = u64::try_from(nano).unwrap();
        let mut engine = engine(pid, &|| {}, now, false);
        let process = &mut engine.processes[0];
        (process.watch, process.switches) = (RunningThreadMethod::Machine, Switches::Sampled);
        let index = process.find_or_add_thread(thread);
        process.threads[index].recording = Some(Box::new(Recording::new(now - Duration::from_millis(10))));
        let ring = switches(&[(pid + 1, 1, nano - 2_000_000, true), (pid, thread, nano - 1_000_000, in_call)]);
        let event = ProcessorEvent {
            switches: None,
            event: std::fs::File::open("/dev/null").unwrap().into(),
            ring,
            varying: Varying::new(1, 1),
            pace: Pace::default(),
            sampled: None,
            last_switch: None,
        };
        let set = set(None, &[0], pid);
        let processes = vec![(ProcessId(1), pid)];
        let events = engine.events.as_mut().unwrap();
        events.processors = vec![Processors { switches: Switches::Sampled, rings: vec![event], processes, ..set }];
        engine.drain_processors();
        assert_eq!(engine.events.as_ref().unwrap().processors[0].rings[0].last_switch, Some(nano - 1_000_000));
        let process = &mut engine.processes[0];
        process.apply_records();
        let recording = process.threads[index].recording.as_mut().unwrap();
        let recorded = recording.timeline.settle(now, None);
        let waits: Vec<_> = recorded.waits.iter().map(|wait| (wait.cause, wait.nano.div_ceil(100_000) / 10)).collect();
        assert_eq!((recorded.is_whole, waits), (true, vec![(Cause::Blocked, 8), (cause, 1)]));
    }
}

/// Guarantees: the switches of few threads are recorded, those of many threads are only sampled; a process with about
/// as many threads as the limit does not change back and forth.
#[test]
fn many_threads_are_recorded_less() {
    let now = Instant::now();
    let mut engine = engine(std::process::id(), &|| {}, now, false);
    let process = &mut engine.processes[0];
    let mut wanted = |threads: usize| {
        process.threads.clear();
        for id in 1..=u32::try_from(threads).unwrap() {
            process.find_or_add_thread(id);
        }
        process.switches = process.wanted_switches(now);
        process.switches
    };
    assert_eq!([1, THREADS, THREADS + 1].map(&mut wanted), [RECORDED, RECORDED, Switches::Sampled]);
    assert_eq!([THREADS, THREADS / 2].map(&mut wanted), [Switches::Sampled, RECORDED]);
}
