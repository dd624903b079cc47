//! What a sampler that was taken over might send: each is refused, and costs no more than the packet.

use std::fs::File;
use std::io::IoSlice;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use nix::sys::socket::{ControlMessage, MsgFlags, UnixAddr, sendmsg};
use prost::Message;

use super::socket::{Received, pair, receive, send};
use super::wire::{self, EventBody};
use super::*;
use crate::context::{MAX_KEY, MAX_RESOURCE_ATTRIBUTES, MAX_RESOURCE_TEXT, MAX_VALUE};
use crate::message::{
    Batch, Command, Context, Detached, Event, Function, FunctionKind, Location, Mapping, Problem, ProblemKind, Process,
    ProcessId, Rights, Sample, Select, Settings, Stack, Status, Stops, Target, TargetId, Thread,
};
use crate::runtime::{MAX_FILE, MAX_FUNCTIONS, MAX_NAME, MAX_TEXT};

fn decode(told: EventBody, file: Option<File>) -> Result<Event, Violation> {
    decode_event(&wire::EventPacket { body: Some(told) }.encode_to_vec(), file)
}

fn refused(told: EventBody) -> String {
    decode(told, None).unwrap_err().to_string()
}

fn batch() -> wire::Batch {
    wire::Batch {
        period_nano: 1,
        thread_ids: vec![1],
        thread_namespace_ids: vec![1],
        thread_names: vec!["a".into()],
        thread_pointers: vec![0],
        location_mappings: vec![0],
        location_addresses: vec![1],
        location_map_lengths: vec![0],
        stack_trusts: vec![0],
        stack_lengths: vec![1],
        stack_locations: vec![0],
        sample_threads: vec![0],
        sample_stacks: vec![0],
        sample_times: vec![5],
        sample_weights: vec![1],
        sample_observations: vec![1],
        sample_blocked: vec![false],
        sample_contexts: vec![0],
        ..wire::Batch::default()
    }
}

/// Adds a context with the beginning of these ids and with attributes of these keys and lengths.
fn context(batch: &mut wire::Batch, ids: &[u8], attributes: &[(u32, usize)]) {
    batch.context_ids.extend(ids);
    batch.context_ids.resize(24, 0);
    batch.context_lengths.push(attributes.len() as u32);
    for (key, length) in attributes {
        batch.context_keys.push(*key);
        batch.context_values.push("x".repeat(*length));
    }
}

/// Breaks a batch.
type Attack = fn(&mut wire::Batch);

/// Guarantees: no batch passes that refers to something that it has not, whose columns do not belong together, or whose
/// numbers make no sense.
#[test]
fn batches() {
    assert!(decode(EventBody::Batch(batch()), None).is_ok());
    let attacks: [(&str, Attack); 38] = [
        ("threads whose columns", |batch| batch.thread_ids.push(1)),
        ("threads whose columns", |batch| batch.thread_names.clear()),
        ("threads whose columns", |batch| batch.thread_pointers.clear()),
        ("threads whose columns", |batch| batch.thread_namespace_ids.push(1)),
        ("locations whose columns", |batch| batch.location_mappings.clear()),
        ("locations whose columns", |batch| batch.location_addresses.push(1)),
        ("locations whose columns", |batch| batch.location_map_lengths.clear()),
        ("stacks whose columns", |batch| batch.stack_trusts.push(1)),
        ("stacks whose columns", |batch| batch.stack_lengths.clear()),
        ("samples whose columns", |batch| batch.sample_threads.push(0)),
        ("samples whose columns", |batch| batch.sample_stacks.clear()),
        ("samples whose columns", |batch| batch.sample_times.clear()),
        ("samples whose columns", |batch| batch.sample_weights.push(0)),
        ("samples whose columns", |batch| batch.sample_observations.push(0)),
        ("samples whose columns", |batch| batch.sample_blocked.clear()),
        ("samples whose columns", |batch| batch.sample_contexts.clear()),
        ("contexts whose columns", |batch| batch.context_lengths.push(0)),
        ("contexts whose columns", |batch| batch.context_ids.push(0)),
        ("attributes whose columns", |batch| batch.context_keys.push(0)),
        ("a sample's context refers to 0", |batch| batch.sample_contexts[0] = 1),
        ("a span with a half of its ids", |batch| context(batch, &[1; 16], &[])),
        ("contexts with more attributes", |batch| {
            context(batch, &[1; 24], &[]);
            batch.context_lengths[0] = 1;
        }),
        ("the number of a context's attributes", |batch| {
            context(batch, &[1; 24], &[]);
            batch.context_lengths[0] = u32::MAX;
        }),
        ("attributes that belong to no context", |batch| {
            context(batch, &[1; 24], &[(0, 1)]);
            batch.context_lengths[0] = 0;
        }),
        ("attributes of a context that are not in order", |batch| context(batch, &[1; 24], &[(1, 1), (1, 1)])),
        ("the length of an attribute's value", |batch| context(batch, &[1; 24], &[(0, MAX_VALUE + 1)])),
        ("the size of a context's attributes", |batch| {
            context(batch, &[1; 24], &[(0, MAX_VALUE), (1, MAX_VALUE), (2, MAX_VALUE)]);
        }),
        ("a sample's thread refers to 1", |batch| batch.sample_threads[0] = 1),
        ("a sample's stack refers to 4294967295", |batch| batch.sample_stacks[0] = u32::MAX),
        ("a stack's location refers to 1", |batch| batch.stack_locations[0] = 1),
        ("stacks that are longer", |batch| batch.stack_lengths[0] = 2),
        ("the length of a stack is 4294967295", |batch| batch.stack_lengths[0] = u32::MAX),
        ("locations that belong to no stack", |batch| batch.stack_lengths[0] = 0),
        ("an unknown trust", |batch| batch.stack_trusts[0] = 4),
        ("a period", |batch| batch.period_nano = 0),
        ("a period", |batch| batch.period_nano = u64::MAX),
        ("more than a day", |batch| batch.sample_weights[0] = u64::MAX),
        ("the length of a thread's name", |batch| batch.thread_names[0] = "x".repeat(MAX_THREAD_NAME + 1)),
    ];
    for (message, attack) in attacks {
        let mut batch = batch();
        attack(&mut batch);
        let refusal = refused(EventBody::Batch(batch));
        assert!(refusal.contains(message), "{message}: {refusal}");
    }
}

/// Guarantees: times that no clock shows, or that run backwards within a thread, do not pass.
#[test]
fn times() {
    for first in [-1, i64::MIN] {
        assert!(refused(EventBody::Batch(wire::Batch { sample_times: vec![first], ..batch() })).contains("2262"));
    }
    let two = |times: Vec<i64>| wire::Batch {
        sample_threads: vec![0, 0],
        sample_stacks: vec![0, 0],
        sample_times: times,
        sample_weights: vec![1, 1],
        sample_observations: vec![1, 1],
        sample_blocked: vec![false, true],
        sample_contexts: vec![0, 0],
        ..batch()
    };
    assert!(decode(EventBody::Batch(two(vec![5, 0])), None).is_ok());
    assert!(refused(EventBody::Batch(two(vec![5, -1]))).contains("not in order"));
    assert!(refused(EventBody::Batch(two(vec![i64::MAX, 1]))).contains("2262"));
}

/// Guarantees: no resource passes that is larger than a process context may be, or says a thing twice or nothing.
#[test]
fn resources() {
    let attribute = |key: &str, value: &str| wire::Attribute {
        key: key.to_owned(),
        value: Some(wire::AttributeValue::Text(value.to_owned())),
    };
    let refusal = |attributes| refused(EventBody::Resource(wire::Resource { process: 1, attributes }));
    let many = (0..=MAX_RESOURCE_ATTRIBUTES).map(|key| attribute(&key.to_string(), "")).collect();
    assert!(refusal(many).contains("the number of a resource's attributes is 129"));
    assert!(refusal(vec![attribute(&"k".repeat(MAX_KEY + 1), "")]).contains("an attribute's key"));
    assert!(refusal(vec![attribute("k", &"v".repeat(MAX_RESOURCE_TEXT + 1))]).contains("an attribute's value"));
    let large = |key: &str| attribute(key, &"v".repeat(MAX_RESOURCE_TEXT));
    assert!(refusal(["a", "b", "c", "d"].map(large).to_vec()).contains("the size of a resource"));
    assert!(refusal(vec![attribute("k", ""), attribute("k", "x")]).contains("said twice"));
    assert!(refusal(vec![attribute("", "x")]).contains("without a key"));
    assert!(refusal(vec![wire::Attribute { key: "k".to_owned(), value: None }]).contains("without a value"));
}

/// Guarantees: a packet of empty entries decodes into memory in proportion to the packet.
#[test]
fn amplification() {
    let names = vec![String::new(); 30_000];
    let packet = wire::EventPacket { body: Some(EventBody::Batch(wire::Batch { thread_names: names, ..batch() })) }
        .encode_to_vec();
    assert!(packet.len() <= MAX_PACKET);
    assert!(decode_event(&packet, None).is_err());
    let long = vec![0; MAX_PACKET + 1];
    assert!(decode_event(&long, None).unwrap_err().to_string().contains("the length of a packet"));
}

/// Guarantees: bytes that are no event are refused, whatever they are.
#[test]
fn nonsense() {
    for bytes in [&b""[..], b"\x00", b"\xff\xff\xff\xff", b"\x0a\xff\xff\xff\xff\x0f", b"\x7a\x00", b"\x0a\x05ab"] {
        assert!(decode_event(bytes, None).is_err(), "{bytes:?}");
        assert!(decode_command(bytes).is_err(), "{bytes:?}");
    }
    assert!(
        refused(EventBody::Problem(wire::Problem { kind: 14, ..wire::Problem::default() })).contains("unknown kind")
    );
    assert!(refused(EventBody::Detached(wire::Detached { process: 0, why: 4 })).contains("unknown reason"));
    assert!(refused(EventBody::Status(wire::Status::default())).contains("its counters"));
    let counters = super::status::encode_status(&Status::default()).counters.len();
    for rate in [f64::NAN, f64::INFINITY, -1.0] {
        let status = wire::Status {
            rate_hertz: rate,
            counters: vec![0; counters],
            stop_lengths: vec![0; 24],
            ..wire::Status::default()
        };
        assert!(refused(EventBody::Status(status)).contains("a rate that is none"));
    }
    let status =
        wire::Status { counters: vec![0; counters], stop_lengths: vec![0; 24], level: 5, ..wire::Status::default() };
    assert!(refused(EventBody::Status(status)).contains("a level"));
    for count in [23, 25] {
        let status = wire::Status { counters: vec![0; count], stop_lengths: vec![0; 24], ..wire::Status::default() };
        assert!(refused(EventBody::Status(status)).contains("its counters"));
    }
    for (read_behind, read_stopped) in [(31, 32), (33, 32), (32, 0)] {
        let (read_behind, read_stopped) = (vec![0; read_behind], vec![0; read_stopped]);
        let counters = vec![0; counters];
        let status =
            wire::Status { counters, stop_lengths: vec![0; 24], read_behind, read_stopped, ..wire::Status::default() };
        assert!(refused(EventBody::Status(status)).contains("classes of reading"));
    }
    let process = wire::Process { pid: 1, ..wire::Process::default() };
    assert!(refused(EventBody::Attached(process)).contains("process id of 0"));
    let process = wire::Process { pid: 1, namespace_pid: 1, start_unix_nano: u64::MAX, ..wire::Process::default() };
    assert!(refused(EventBody::Attached(process)).contains("2262"));
    let mapping = wire::Mapping { start: 2, end: 1, ..wire::Mapping::default() };
    assert!(refused(EventBody::Mapping(mapping)).contains("ends before it starts"));
    let mapping = wire::Mapping { htlhash: Some(vec![0; 15]), ..wire::Mapping::default() };
    assert!(refused(EventBody::Mapping(mapping)).contains("16 bytes"));
    let mapping = wire::Mapping { index: MAX_MAPPINGS, ..wire::Mapping::default() };
    assert!(refused(EventBody::Mapping(mapping)).contains("the index of a mapping"));
}

/// Guarantees: a choice of which threads are stopped that there is not is refused, and none is made of it: the harmless
/// one is what nothing says.
#[test]
fn choices_of_stops() {
    let watch = |stops| {
        let select = Some(wire::Select::Pid(1));
        let said = wire::CommandBody::Watch(wire::Target { select, stops, ..wire::Target::default() });
        decode_command(&wire::CommandPacket { body: Some(said) }.encode_to_vec())
    };
    for (stops, meant) in [(0, Stops::UserBound), (1, Stops::Never), (2, Stops::Always)] {
        assert!(matches!(watch(stops), Ok(Command::Watch(target)) if target.settings.stops == meant));
    }
    for stops in [3, 4, u32::MAX] {
        assert!(watch(stops).unwrap_err().to_string().contains("an unknown choice of stops"));
    }
    assert_eq!(Stops::default(), Stops::UserBound);
}

/// Guarantees: what a process executes is a number of eight bytes, each of which may be anything; other kinds of fields
/// are refused.
#[test]
fn exec_ids() {
    let process = |exec_id| wire::Process { pid: 1, namespace_pid: 1, exec_id, ..wire::Process::default() };
    for id in [0, 1, u64::MAX] {
        let event = decode(EventBody::Attached(process(id)), None).unwrap();
        assert!(matches!(event, Event::Attached(process) if process.exec_id == id));
    }
    // Field 2 of the packet: a process whose ids are 1 and whose field 12 is a number of another kind, of other length,
    // or cut off.
    for field in [&[12 << 3, 1][..], &[12 << 3 | 2, 2, 1, 1], &[12 << 3 | 5, 1, 1, 1, 1], &[12 << 3 | 1, 1, 1, 1]] {
        let mut told = vec![3 << 3, 1, 4 << 3, 1];
        told.extend_from_slice(field);
        let mut packet = vec![2 << 3 | 2, told.len() as u8];
        packet.extend_from_slice(&told);
        assert!(matches!(decode_event(&packet, None), Err(Violation::Undecodable(_))), "{field:?}");
    }
}

/// Guarantees: the owner takes no file that it could be made to wait for, write to, or mistake for another kind.
#[test]
fn files() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("file");
    std::fs::write(&path, "x").unwrap();
    let mapping = || EventBody::Mapping(wire::Mapping::default());
    let map = || EventBody::PerfMap(0);
    let root = || EventBody::Attached(wire::Process { pid: 1, namespace_pid: 1, ..wire::Process::default() });
    let open = |flags: nix::fcntl::OFlag, path: &std::path::Path| {
        File::from(nix::fcntl::open(path, flags, nix::sys::stat::Mode::empty()).unwrap())
    };
    let (reader, _writer) = std::io::pipe().unwrap();
    let pipe = || File::from(OwnedFd::from(reader.try_clone().unwrap()));
    let writable = || File::options().read(true).write(true).open(&path).unwrap();
    let path_only = || open(nix::fcntl::OFlag::O_PATH, &path);
    for told in [mapping, map] {
        assert!(decode(told(), Some(File::open(&path).unwrap())).is_ok());
        for file in
            [pipe(), writable(), path_only(), File::open(folder.path()).unwrap(), File::open("/dev/zero").unwrap()]
        {
            assert!(matches!(decode(told(), Some(file)), Err(Violation::File { .. })));
        }
    }
    assert!(decode(mapping(), None).is_ok());
    assert!(matches!(decode(map(), None), Err(Violation::File { .. })));
    assert!(decode(root(), Some(open(nix::fcntl::OFlag::O_PATH, folder.path()))).is_ok());
    for file in [pipe(), path_only(), File::open(folder.path()).unwrap()] {
        assert!(matches!(decode(root(), Some(file)), Err(Violation::File { .. })));
    }
    let status = EventBody::Detached(wire::Detached::default());
    assert!(matches!(decode(status, Some(File::open(&path).unwrap())), Err(Violation::File { .. })));
}

/// Guarantees: many files in one packet are refused and none of them stays open.
#[test]
fn many_files() {
    let (owner, sampler) = pair().unwrap();
    let (mut reader, writer) = std::io::pipe().unwrap();
    for count in [2, 3, 200] {
        let numbers = vec![writer.as_raw_fd(); count];
        let rights = [ControlMessage::ScmRights(&numbers)];
        sendmsg::<UnixAddr>(sampler.as_raw_fd(), &[IoSlice::new(b"x")], &rights, MsgFlags::empty(), None).unwrap();
        let error = receive(owner.as_fd()).unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::InvalidData);
    }
    drop(writer);
    // Ends only if nobody holds the other end any more.
    assert_eq!(std::io::Read::read(&mut reader, &mut [0]).unwrap(), 0);
}

/// Guarantees: a packet that is too long is refused, not cut.
#[test]
fn long_packets() {
    let (owner, sampler) = pair().unwrap();
    send(sampler.as_fd(), &vec![0; MAX_PACKET + 1], None).unwrap();
    assert_eq!(receive(owner.as_fd()).unwrap_err().kind(), std::io::ErrorKind::InvalidData);
    send(sampler.as_fd(), &vec![1; MAX_PACKET], None).unwrap();
    assert!(matches!(receive(owner.as_fd()).unwrap(), Received::Packet { bytes, .. } if bytes.len() == MAX_PACKET));
}

fn checker() -> Checker {
    let mut checker = Checker::default();
    let target = Target {
        id: TargetId(1),
        select: Select::Pid(1),
        settings: Settings::default(),
        environment: vec!["ASKED".to_owned()],
        thread_attributes: vec!["a".into(), "b".into()],
        sample_at_once: true,
    };
    checker.note(&Command::Watch(target));
    checker
}

fn attached(id: u64, target: u32, variable: Option<&str>) -> Event {
    Event::Attached(Box::new(Process {
        id: ProcessId(id),
        target: TargetId(target),
        pid: 1,
        namespace_pid: 1,
        start_unix_nano: 0,
        exec_id: 0,
        executable: String::new(),
        arguments: Vec::new(),
        user: 0,
        control_group: None,
        container: None,
        environment: variable.map(|name| (name.to_owned(), String::new())).into_iter().collect(),
        root: None,
    }))
}

fn mapping(process: u64, index: u32) -> Event {
    Event::Mapping(Mapping {
        process: ProcessId(process),
        index,
        path: String::new(),
        start: 0,
        end: 0,
        file_offset: 0,
        build_id: None,
        htlhash: None,
        main: false,
        go: false,
        file: None,
    })
}

fn samples(process: u64, mapping: Option<u32>) -> Event {
    Event::Batch(Batch {
        process: ProcessId(process),
        period_nano: 1,
        threads: vec![Thread::default()],
        locations: vec![Location::Native { mapping, address: 1 }],
        stacks: vec![Stack { locations: vec![0], ..Stack::default() }],
        samples: vec![Sample::default()],
        ..Batch::default()
    })
}

/// Guarantees: nothing is said before the sampler is ready, about processes that are not attached or targets that were
/// not named, with mappings that were not announced, or under a number that was used before.
#[test]
fn stories_that_do_not_fit() {
    let mut checker = checker();
    assert!(checker.check(&attached(0, 1, None)).is_err());
    checker.check(&Event::Ready(Rights::default())).unwrap();
    assert!(checker.check(&Event::Ready(Rights::default())).is_err());
    for event in [
        samples(0, None),
        mapping(0, 0),
        Event::Status(Status { process: ProcessId(0), ..Status::default() }),
        Event::Detached { process: ProcessId(0), why: Detached::Exited },
        Event::PerfMap { process: ProcessId(0), file: tempfile::tempfile().unwrap() },
    ] {
        assert_eq!(checker.check(&event), Err(Violation::UnknownProcess(0)));
    }
    let problem = Problem { target: TargetId(2), pid: None, kind: ProblemKind::Missing, message: String::new() };
    assert_eq!(checker.check(&Event::Problem(problem)), Err(Violation::UnknownTarget(2)));
    assert_eq!(checker.check(&Event::CommandEnded { target: TargetId(2), code: 0 }), Err(Violation::UnknownTarget(2)));
    assert_eq!(checker.check(&attached(0, 2, None)), Err(Violation::UnknownTarget(2)));
    assert!(checker.check(&attached(0, 1, Some("PASSWORD"))).is_err());
    assert!(checker.check(&attached(u64::MAX, 1, None)).is_err());
    checker.check(&attached(4, 1, Some("ASKED"))).unwrap();
    assert!(checker.check(&attached(4, 1, None)).is_err());
    assert!(checker.check(&attached(3, 1, None)).is_err());
    assert!(checker.check(&samples(4, Some(0))).is_err());
    checker.check(&samples(4, None)).unwrap();
    assert!(checker.check(&mapping(4, 1)).is_err());
    checker.check(&mapping(4, 0)).unwrap();
    assert!(checker.check(&mapping(4, 0)).is_err());
    checker.check(&samples(4, Some(0))).unwrap();
    assert!(checker.check(&samples(4, Some(1))).is_err());
    checker.check(&Event::Detached { process: ProcessId(4), why: Detached::Exited }).unwrap();
    assert!(checker.check(&samples(4, None)).is_err());
    checker.note(&Command::Unwatch(TargetId(1)));
    // It was on its way when the target was forgotten.
    checker.check(&attached(5, 1, None)).unwrap();
}

fn functions(process: u64, first: u32, functions: &[(&str, &str)]) -> Event {
    let function = |(name, file): &(&str, &str)| Function {
        kind: FunctionKind::CPython,
        name: (*name).to_owned(),
        module: String::new(),
        file: (*file).to_owned(),
        line: 1,
    };
    Event::Functions { process: ProcessId(process), first, functions: functions.iter().map(function).collect() }
}

/// Guarantees: functions have to come in order, no location may refer to one that was not announced, and neither their
/// number nor their text may exceed the limits.
#[test]
fn functions_that_do_not_fit() {
    let mut checker = checker();
    checker.check(&Event::Ready(Rights::default())).unwrap();
    assert_eq!(checker.check(&functions(4, 0, &[])), Err(Violation::UnknownProcess(4)));
    checker.check(&attached(4, 1, None)).unwrap();
    let named = |function| {
        let Event::Batch(batch) = samples(4, None) else { unreachable!() };
        Event::Batch(Batch { locations: vec![Location::Interpreted { function, line: 1 }], ..batch })
    };
    assert!(matches!(checker.check(&named(0)), Err(Violation::Dangling { .. })));
    assert!(checker.check(&functions(4, 1, &[("f", "/f.py")])).is_err());
    checker.check(&functions(4, 0, &[("f", "/f.py"), ("g", "/f.py")])).unwrap();
    assert!(checker.check(&functions(4, 0, &[("f", "/f.py")])).is_err());
    checker.check(&named(1)).unwrap();
    assert!(matches!(checker.check(&named(2)), Err(Violation::Dangling { .. })));
    checker.check(&functions(4, 2, &vec![("", ""); MAX_FUNCTIONS - 3])).unwrap();
    let last = MAX_FUNCTIONS as u32 - 1;
    assert!(matches!(checker.check(&functions(4, last, &[("", ""); 2])), Err(Violation::TooMuch { .. })));
    let long = "x".repeat(MAX_TEXT + 1);
    assert!(matches!(checker.check(&functions(4, last, &[(&long, "")])), Err(Violation::TooMuch { .. })));
    checker.check(&functions(4, last, &[("", "")])).unwrap();
    assert!(checker.check(&functions(4, last + 1, &[("", "")])).is_err());
}

/// Guarantees: no context says an attribute that was not asked for, and no resource is of a process that is not
/// attached.
#[test]
fn contexts_that_do_not_fit() {
    let mut checker = checker();
    checker.check(&Event::Ready(Rights::default())).unwrap();
    let resource = Event::Resource { process: ProcessId(4), attributes: Vec::new() };
    assert_eq!(checker.check(&resource), Err(Violation::UnknownProcess(4)));
    checker.check(&attached(4, 1, None)).unwrap();
    checker.check(&resource).unwrap();
    let with = |key| {
        let Event::Batch(batch) = samples(4, None) else { unreachable!() };
        let context = Context { link: None, attributes: vec![(key, String::new())] };
        Event::Batch(Batch { contexts: vec![context], ..batch })
    };
    checker.check(&with(1)).unwrap();
    assert!(matches!(checker.check(&with(2)), Err(Violation::Dangling { .. })));
}

/// Guarantees: columns of different lengths, texts that are too long, unknown kinds and lines that do not fit are
/// refused, and control characters arrive as spaces.
#[test]
fn malformed_functions() {
    let whole = wire::Functions {
        process: 1,
        first: 0,
        kinds: vec![0],
        names: vec!["a\u{1b}[2Jb\nc\u{85}d".to_owned()],
        files: vec!["/f.py".to_owned()],
        lines: vec![3],
        modules: vec!["m\n".to_owned()],
    };
    let decode = |functions| decode(EventBody::Functions(functions), None);
    let Ok(Event::Functions { functions, .. }) = decode(whole.clone()) else { panic!("refused") };
    assert_eq!((functions[0].name.as_str(), functions[0].module.as_str()), ("a [2Jb c d", "m "));
    for broken in [
        wire::Functions { kinds: vec![u32::MAX], ..whole.clone() },
        wire::Functions { kinds: vec![0, 0], ..whole.clone() },
        wire::Functions { lines: Vec::new(), ..whole.clone() },
        wire::Functions { modules: Vec::new(), ..whole.clone() },
        wire::Functions { modules: vec!["x".repeat(MAX_NAME + 1)], ..whole.clone() },
        wire::Functions { names: vec!["x".repeat(MAX_NAME + 1)], ..whole.clone() },
        wire::Functions { files: vec!["x".repeat(MAX_FILE + 1)], ..whole },
    ] {
        assert!(decode(broken).is_err());
    }
}

/// Guarantees: the owner's memory of processes is bounded.
#[test]
fn endless_processes() {
    let mut checker = checker();
    checker.check(&Event::Ready(Rights::default())).unwrap();
    for id in 0..MAX_PROCESSES as u64 {
        checker.check(&attached(id, 1, None)).unwrap();
    }
    assert!(matches!(checker.check(&attached(MAX_PROCESSES as u64, 1, None)), Err(Violation::TooMuch { .. })));
}
