//! Packets that a compromised sampler might send: each is rejected, and costs no more than the packet.

use std::fs::File;
use std::io::IoSlice;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use nix::sys::socket::{ControlMessage, MsgFlags, UnixAddr, sendmsg};

use super::encode::encode;
use super::socket::{ReceivedPacket, pair, receive, send};
use super::*;
use crate::context::{MAX_ALLOWED, MAX_KEY, MAX_RESOURCE_ATTRIBUTES, MAX_RESOURCE_TEXT, MAX_VALUE};
use crate::message::{
    AttributeValue, Batch, Command, Context, Detached, Event, Function, FunctionKind, Location, Mapping, Problem,
    ProblemKind, Process, ProcessId, Rights, Sample, Select, Settings, SpanLink, Stack, Status, Target, TargetId,
    Thread,
};
use crate::runtime::{MAX_FILE, MAX_FOLDERS, MAX_FUNCTIONS, MAX_NAME, MAX_TEXT};

fn decode(packet: &Packet, file: Option<File>) -> Result<Event, Violation> {
    decode_event(&encode(packet), file)
}

fn refused(event: Event) -> String {
    decode(&Packet::Event(event), None).unwrap_err().to_string()
}

fn batch() -> Batch {
    Batch {
        process: ProcessId(0),
        period_nano: 1,
        threads: vec![Thread { id: 1, namespace_id: 1, name: "a".into(), pointer: 0 }],
        locations: vec![Location::Native { mapping: None, address: 1 }],
        stacks: vec![Stack { locations: vec![0], ..Stack::default() }],
        samples: vec![Sample { time_unix_nano: 5, weight_nano: 1, observations: 1, ..Sample::default() }],
        ..Batch::default()
    }
}

/// A context whose ids consist of these bytes, with attributes given by their keys and the lengths of their values.
fn context((trace, span): (u8, u8), attributes: &[(u32, usize)]) -> Context {
    let link = SpanLink { trace_id: [trace; 16], span_id: [span; 8] };
    let attributes = attributes.iter().map(|(key, length)| (*key, "x".repeat(*length))).collect();
    Context { link: Some(link), attributes }
}

/// A change that makes a batch invalid.
type Attack = fn(&mut Batch);

/// Guarantees: a batch is rejected if it refers to an entry that it does not have, or if numbers in it are implausible.
#[test]
fn batches() {
    let decoded = decode(&Packet::Event(Event::Batch(batch())), None).unwrap();
    assert!(matches!(decoded, Event::Batch(decoded) if decoded == batch()));
    let attacks: [(&str, Attack); 17] = [
        ("a sample's context refers to 0", |batch| batch.samples[0].context = Some(0)),
        ("a span without one of its ids", |batch| batch.contexts.push(context((1, 0), &[]))),
        ("a span without one of its ids", |batch| batch.contexts.push(context((0, 1), &[]))),
        ("a span without one of its ids", |batch| batch.contexts.push(context((0, 0), &[]))),
        ("the number of a context's attributes", |batch| {
            batch.contexts.push(context((1, 1), &[(0, 0); MAX_ALLOWED + 1]))
        }),
        ("attributes of a context that are not in order", |batch| {
            batch.contexts.push(context((1, 1), &[(1, 1), (1, 1)]));
        }),
        ("the length of an attribute's value", |batch| batch.contexts.push(context((1, 1), &[(0, MAX_VALUE + 1)]))),
        ("the size of a context's attributes", |batch| {
            batch.contexts.push(context((1, 1), &[(0, MAX_VALUE), (1, MAX_VALUE), (2, MAX_VALUE)]));
        }),
        ("a sample's thread refers to 1", |batch| batch.samples[0].thread = 1),
        ("a sample's stack refers to 4294967295", |batch| batch.samples[0].stack = u32::MAX),
        ("a stack's location refers to 1", |batch| batch.stacks[0].locations[0] = 1),
        ("the length of a stack is 2049", |batch| batch.stacks[0].locations = vec![0; MAX_STACK + 1]),
        ("a period", |batch| batch.period_nano = 0),
        ("a period", |batch| batch.period_nano = u64::MAX),
        ("more than a day", |batch| batch.samples[0].weight_nano = u64::MAX),
        ("the length of a thread's name", |batch| batch.threads[0].name = "x".repeat(MAX_THREAD_NAME + 1)),
        ("2262", |batch| batch.samples[0].time_unix_nano = i64::MAX as u64 + 1),
    ];
    for (message, attack) in attacks {
        let mut batch = batch();
        attack(&mut batch);
        let refusal = refused(Event::Batch(batch));
        assert!(refusal.contains(message), "{message}: {refusal}");
    }
}

/// Guarantees: samples of a thread whose times are not in ascending order are rejected.
#[test]
fn times() {
    let two = |second| {
        let mut batch = batch();
        batch.samples.push(Sample { time_unix_nano: second, blocked: true, ..batch.samples[0] });
        Event::Batch(batch)
    };
    assert!(decode(&Packet::Event(two(5)), None).is_ok());
    assert!(refused(two(4)).contains("not in order"));
}

/// Guarantees: only generated code can be in a perf map, whatever the packet claims.
#[test]
fn perf_maps_of_other_code() {
    let locations =
        [(1 << 63, 5), (5, 0), (5, 6)].map(|(address, map_length)| Location::Compiled { address, map_length });
    let told = Packet::Event(Event::Batch(Batch { locations: locations.to_vec(), ..batch() }));
    let Event::Batch(decoded) = decode(&told, None).unwrap() else { panic!("another event") };
    let native = |address| Location::Native { mapping: None, address };
    assert_eq!(decoded.locations, [native(1 << 63), native(5), locations[2]]);
}

/// Guarantees: a resource is rejected if it exceeds the limits of process contexts, repeats a key or is empty.
#[test]
fn resources() {
    let attribute = |key: &str, value: &str| (key.to_owned(), AttributeValue::Text(value.to_owned()));
    let refusal = |attributes| refused(Event::Resource { process: ProcessId(1), attributes });
    let many = (0..=MAX_RESOURCE_ATTRIBUTES).map(|key| attribute(&key.to_string(), "")).collect();
    assert!(refusal(many).contains("the number of a resource's attributes is 129"));
    assert!(refusal(vec![attribute(&"k".repeat(MAX_KEY + 1), "")]).contains("an attribute's key"));
    assert!(refusal(vec![attribute("k", &"v".repeat(MAX_RESOURCE_TEXT + 1))]).contains("an attribute's value"));
    let large = |key: &str| attribute(key, &"v".repeat(MAX_RESOURCE_TEXT));
    assert!(refusal(["a", "b", "c", "d"].map(large).to_vec()).contains("the size of a resource"));
    assert!(refusal(vec![attribute("k", ""), attribute("k", "x")]).contains("said twice"));
    assert!(refusal(vec![attribute("", "x")]).contains("without a key"));
}

/// Guarantees: a packet whose lists claim to be longer than the packet is rejected, and so is one that is too long.
#[test]
fn amplification() {
    let empty = encode(&Packet::Event(Event::Batch(Batch::default())));
    let tables = empty.len() - 5;
    assert_eq!(empty[tables..], [0; 5]);
    for length in [&[0x80, 0x80, 4][..], &[0xff, 0xff, 0xff, 0xff, 0x0f], &[0xff; 9], &[0xff; 10]] {
        for table in 0..5 {
            let mut packet = empty[..tables + table].to_vec();
            packet.extend(length);
            packet.resize(MAX_PACKET, 0);
            assert!(decode_event(&packet, None).is_err());
        }
    }
    let long = vec![0; MAX_PACKET + 1];
    assert!(decode_event(&long, None).unwrap_err().to_string().contains("the length of a packet"));
}

/// Guarantees: bytes that are not an event are rejected, whatever they are, and so is an event with trailing bytes.
#[test]
fn nonsense() {
    for bytes in [&b""[..], b"\x06", b"\xff\xff\xff\xff", b"\x0a\xff\xff\xff\xff\x0f", b"\x7a\x00", b"\x00\x00\x02"] {
        assert!(decode_event(bytes, None).is_err(), "{bytes:?}");
        assert!(decode_command(bytes).is_err(), "{bytes:?}");
    }
    let whole = encode(&Packet::Event(Event::Detached { process: ProcessId(300), why: Detached::Failed }));
    assert!(decode_event(&whole, None).is_ok());
    for end in 0..whole.len() {
        assert!(matches!(decode_event(&whole[..end], None), Err(Violation::Undecodable(_))));
    }
    assert!(decode_event(&[&whole[..], &[0]].concat(), None).unwrap_err().to_string().contains("behind its end"));
    // The last byte is the reason, of which there are four.
    let unknown = [&whole[..whole.len() - 1], &[4]].concat();
    assert!(matches!(decode_event(&unknown, None), Err(Violation::Undecodable(_))));
    for rate_hertz in [f64::NAN, f64::INFINITY, -1.0] {
        assert!(refused(Event::Status(Status { rate_hertz, ..Status::default() })).contains("a rate that is none"));
    }
    let Event::Attached(process) = attached(1, 1, None) else { unreachable!() };
    assert!(decode(&Packet::Event(attached(1, 1, None)), None).is_ok());
    for (pid, namespace_pid) in [(0, 1), (1, 0)] {
        let Event::Attached(process) = attached(1, 1, None) else { unreachable!() };
        let process = Process { pid, namespace_pid, ..*process };
        assert!(refused(Event::Attached(Box::new(process))).contains("process id of 0"));
    }
    let process = Process { start_unix_nano: u64::MAX, ..*process };
    assert!(refused(Event::Attached(Box::new(process))).contains("2262"));
    let broken = |end, index| {
        let Event::Mapping(whole) = mapping(1, index) else { unreachable!() };
        refused(Event::Mapping(Mapping { start: 2, end, ..whole }))
    };
    assert!(broken(1, 0).contains("ends before it starts"));
    assert!(broken(2, MAX_MAPPINGS).contains("the index of a mapping"));
}

/// Guarantees: the owner rejects files on which it could block, to which it could write, or which are of another kind.
#[test]
fn files() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("file");
    std::fs::write(&path, "x").unwrap();
    let mapping = Packet::Event(mapping(0, 0));
    let map = Packet::PerfMap(ProcessId(0));
    let root = Packet::Event(attached(0, 1, None));
    let open = |flags: nix::fcntl::OFlag, path: &std::path::Path| {
        File::from(nix::fcntl::open(path, flags, nix::sys::stat::Mode::empty()).unwrap())
    };
    let (reader, _writer) = std::io::pipe().unwrap();
    let pipe = || File::from(OwnedFd::from(reader.try_clone().unwrap()));
    let writable = || File::options().read(true).write(true).open(&path).unwrap();
    let path_only = || open(nix::fcntl::OFlag::O_PATH, &path);
    for told in [&mapping, &map] {
        assert!(decode(told, Some(File::open(&path).unwrap())).is_ok());
        for file in
            [pipe(), writable(), path_only(), File::open(folder.path()).unwrap(), File::open("/dev/zero").unwrap()]
        {
            assert!(matches!(decode(told, Some(file)), Err(Violation::File { .. })));
        }
    }
    assert!(decode(&mapping, None).is_ok());
    assert!(matches!(decode(&map, None), Err(Violation::File { .. })));
    assert!(decode(&root, Some(open(nix::fcntl::OFlag::O_PATH, folder.path()))).is_ok());
    for file in [pipe(), path_only(), File::open(folder.path()).unwrap()] {
        assert!(matches!(decode(&root, Some(file)), Err(Violation::File { .. })));
    }
    let other = Packet::Event(Event::Detached { process: ProcessId(0), why: Detached::Exited });
    assert!(matches!(decode(&other, Some(File::open(&path).unwrap())), Err(Violation::File { .. })));
}

/// Guarantees: a packet with several files is rejected, and none of them stays open.
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
    // This read ends only if nobody has the other end open any more.
    assert_eq!(std::io::Read::read(&mut reader, &mut [0]).unwrap(), 0);
}

/// Guarantees: a packet that is too long is rejected, not truncated.
#[test]
fn long_packets() {
    let (owner, sampler) = pair().unwrap();
    send(sampler.as_fd(), &vec![0; MAX_PACKET + 1], None).unwrap();
    assert_eq!(receive(owner.as_fd()).unwrap_err().kind(), std::io::ErrorKind::InvalidData);
    send(sampler.as_fd(), &vec![1; MAX_PACKET], None).unwrap();
    assert!(
        matches!(receive(owner.as_fd()).unwrap(), ReceivedPacket::Packet { bytes, .. } if bytes.len() == MAX_PACKET)
    );
}

fn checker() -> PacketChecker {
    let mut checker = PacketChecker::default();
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
        environment: variable.map(|name| (name.to_owned(), String::new())).into_iter().collect(),
        ..Process::default()
    }))
}

fn mapping(process: u64, index: u32) -> Event {
    Event::Mapping(Mapping { process: ProcessId(process), index, ..Mapping::default() })
}

fn samples(process: u64, mapping: Option<u32>) -> Event {
    let locations = vec![Location::Native { mapping, address: 1 }];
    Event::Batch(Batch { process: ProcessId(process), locations, ..batch() })
}

/// Guarantees: events are rejected if they arrive before the sampler is ready, are about processes that are not
/// attached or unknown targets, refer to mappings that were not announced, or reuse a process id.
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
    // The event was sent before the sampler received the command to drop the target.
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

/// Guarantees: functions have to be announced in order, no location may refer to a function that was not announced, and
/// neither their number nor their text may exceed the limits.
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
    let long = "x".repeat(MAX_TEXT + MAX_FOLDERS + 1);
    assert!(matches!(checker.check(&functions(4, last, &[(&long, "")])), Err(Violation::TooMuch { .. })));
    checker.check(&functions(4, last, &[("", "")])).unwrap();
    assert!(checker.check(&functions(4, last + 1, &[("", "")])).is_err());
}

/// Guarantees: a context cannot have an attribute that was not requested, and a resource has to belong to an attached
/// process.
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

/// Guarantees: texts of functions that are too long are rejected, and control characters are replaced by spaces.
#[test]
fn malformed_functions() {
    let whole = Function {
        kind: FunctionKind::CPython,
        name: "a\u{1b}[2Jb\nc\u{85}d".to_owned(),
        module: "m\n".to_owned(),
        file: "/f.py".to_owned(),
        line: 3,
    };
    let told = |function| Event::Functions { process: ProcessId(1), first: 0, functions: vec![function] };
    let decoded = decode(&Packet::Event(told(whole.clone())), None);
    let Ok(Event::Functions { functions, .. }) = decoded else { panic!("refused") };
    assert_eq!((functions[0].name.as_str(), functions[0].module.as_str()), ("a [2Jb c d", "m "));
    for broken in [
        Function { name: "x".repeat(MAX_NAME + 1), ..whole.clone() },
        Function { module: "x".repeat(MAX_NAME + 1), ..whole.clone() },
        Function { file: "x".repeat(MAX_FILE + 1), ..whole },
    ] {
        assert!(refused(told(broken)).contains("the length of a function's"));
    }
}

/// Guarantees: the owner's memory for processes is bounded.
#[test]
fn endless_processes() {
    let mut checker = checker();
    checker.check(&Event::Ready(Rights::default())).unwrap();
    for id in 0..MAX_PROCESSES as u64 {
        checker.check(&attached(id, 1, None)).unwrap();
    }
    assert!(matches!(checker.check(&attached(MAX_PROCESSES as u64, 1, None)), Err(Violation::TooMuch { .. })));
}
