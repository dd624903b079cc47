//! Messages are the same after encoding, sending and decoding.

use std::fs::File;
use std::os::fd::AsFd;

use proptest::collection::{btree_map, vec};
use proptest::option;
use proptest::prelude::*;

use super::socket::{ReceivedPacket, pair, receive, send};
use super::*;
use crate::context::{MAX_ALLOWED, MAX_ATTRIBUTES, MAX_VALUE};
use crate::message::{
    Batch, Command, Context, Event, Function, FunctionKind, Location, Mapping, Mode, Problem, ProblemKind, Process,
    ProcessId, Rights, Sample, Select, Settings, SpanLink, Stack, Target, TargetId, Thread, Trust,
};
use crate::runtime::{MAX_FILE, MAX_NAME};

/// Sends an event through a real socket and returns the received one.
fn travel(event: Event) -> Event {
    let (owner, sampler) = pair().unwrap();
    let packet = encode_event(event);
    assert!(packet.bytes.len() <= MAX_PACKET);
    send(sampler.as_fd(), &packet.bytes, packet.descriptor()).unwrap();
    match receive(owner.as_fd()).unwrap() {
        ReceivedPacket::Packet { bytes, file, .. } => decode_event(&bytes, file).unwrap(),
        other => panic!("{other:?}"),
    }
}

fn same(event: Event) {
    let expected = format!("{event:?}");
    assert_eq!(format!("{:?}", travel(event)), expected);
}

/// Guarantees: a command is decoded as it was encoded, also with words that are not UTF-8.
#[test]
fn commands() {
    let words = vec!["a b".into(), "".into(), std::os::unix::ffi::OsStringExt::from_vec(vec![0xff, 0xfe])];
    let command = Command::Watch(Target {
        id: TargetId(9),
        select: Select::Command(words),
        settings: Settings { rate_hertz: 99.5, mode: Mode::Cpu, ..Settings::default() },
        environment: vec!["A".to_owned()],
        thread_attributes: vec!["a.b".to_owned(), String::new()],
        sample_at_once: true,
    });
    let decoded = decode_command(&encode_command(&command)).unwrap();
    assert_eq!(format!("{decoded:?}"), format!("{command:?}"));
}

fn process() -> Process {
    Process {
        id: ProcessId(3),
        target: TargetId(4),
        pid: 5,
        namespace_pid: 1,
        start_unix_nano: 1_700_000_000_000_000_000,
        exec_id: 0xfedc_ba98_7654_3210,
        executable: "/usr/bin/x".into(),
        arguments: vec!["x".into(), String::new()],
        user: 1000,
        control_group: Some("/a".into()),
        environment: vec![("A".into(), "b".into())],
        ..Process::default()
    }
}

fn mapping() -> Mapping {
    Mapping {
        process: ProcessId(3),
        index: 0,
        path: "/usr/bin/x".into(),
        start: 0x1000,
        end: 0x2000,
        file_offset: 0x1000,
        build_id: Some(vec![1; 20]),
        htlhash: Some([7; 16]),
        main: true,
        go: true,
        file: None,
    }
}

/// Guarantees: a process and its mappings are decoded as they were encoded, and files are received as the same files.
#[test]
fn files() {
    same(Event::Attached(Box::new(process())));
    same(Event::Mapping(mapping()));
    let path = std::env::current_exe().unwrap();
    let file = File::open(&path).unwrap();
    let arrived = travel(Event::Mapping(Mapping { file: Some(file), ..mapping() }));
    let Event::Mapping(Mapping { file: Some(arrived), .. }) = arrived else { panic!("{arrived:?}") };
    let inode = |file: &File| std::os::unix::fs::MetadataExt::ino(&file.metadata().unwrap());
    assert_eq!(inode(&arrived), inode(&File::open(&path).unwrap()));
    let map = travel(Event::PerfMap { process: ProcessId(3), file: arrived });
    assert!(matches!(map, Event::PerfMap { process: ProcessId(3), .. }));
    let root = nix::fcntl::open(
        "/",
        nix::fcntl::OFlag::O_PATH | nix::fcntl::OFlag::O_DIRECTORY,
        nix::sys::stat::Mode::empty(),
    )
    .unwrap();
    let arrived = travel(Event::Attached(Box::new(Process { root: Some(File::from(root)), ..process() })));
    assert!(matches!(arrived, Event::Attached(process) if process.root.is_some()));
}

/// Guarantees: whatever name a target has, and however long its arguments are, the sampler's messages about it break no
/// rule.
#[test]
fn what_is_too_long_is_cut() {
    let long = "\u{1F600}".repeat(3000);
    let huge = Process {
        executable: long.clone(),
        arguments: vec![long.clone(); 100],
        control_group: Some(long.clone()),
        container: Some(long.clone()),
        environment: vec![
            ("A".into(), "x".repeat(40_000)),
            ("B".into(), "y".repeat(30_000)),
            ("C".into(), "z".repeat(30_000)),
        ],
        ..process()
    };
    let Event::Attached(arrived) = travel(Event::Attached(Box::new(huge))) else { panic!() };
    assert_eq!(arrived.arguments, [long[..4096].to_owned()]);
    assert_eq!(arrived.executable, long[..4096]);
    let names: Vec<&str> = arrived.environment.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["B"]);
    let many = Process { arguments: vec![String::new(); 10_000], ..process() };
    let Event::Attached(arrived) = travel(Event::Attached(Box::new(many))) else { panic!() };
    assert_eq!(arrived.arguments.len(), MAX_ARGUMENT_COUNT);
    let Event::Mapping(arrived) =
        travel(Event::Mapping(Mapping { path: long.clone(), build_id: Some(vec![1; 65]), end: 0, ..mapping() }))
    else {
        panic!()
    };
    assert_eq!((arrived.path.len(), arrived.build_id, arrived.end), (4096, None, 0x1000));
    let Event::Problem(arrived) = travel(Event::Problem(Problem {
        target: TargetId(0),
        pid: None,
        kind: ProblemKind::Missing,
        message: long.clone(),
    })) else {
        panic!()
    };
    assert_eq!(arrived.message.len(), MAX_MESSAGE);
    let hints = vec![long; 20];
    let ready = encode_event(Event::Ready(Rights { hints, ..Rights::default() }));
    assert!(ready.bytes.len() <= MAX_PACKET && decode_event(&ready.bytes, None).is_ok());
}

fn batches() -> impl Strategy<Value = Batch> {
    // The kernel keeps 15 bytes of a name, and may cut a character in two.
    let name = prop_oneof!["[a-z]{0,15}".prop_map(String::into_bytes), vec(any::<u8>(), 0..16)];
    let name = name.prop_map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    let thread = (any::<u32>(), any::<u32>(), name, any::<u64>());
    let location = prop_oneof![
        (any::<Option<u16>>(), any::<u64>())
            .prop_map(|(mapping, address)| Location::Native { mapping: mapping.map(u32::from), address }),
        (0..1u64 << 47, 1u32..).prop_map(|(address, map_length)| Location::Compiled { address, map_length }),
        (0..1u32 << 31, any::<u32>()).prop_map(|(function, line)| Location::Interpreted { function, line }),
    ];
    let stack = (0..4u8, vec(any::<prop::sample::Index>(), 0..400));
    let ids = (any::<[u8; 16]>(), any::<[u8; 8]>());
    let link = ids.prop_filter("ids", |(trace, span)| *trace != [0; 16] && *span != [0; 8]);
    let link = option::of(link.prop_map(|(trace_id, span_id)| SpanLink { trace_id, span_id }));
    let attributes = btree_map(0..MAX_ALLOWED as u32, "[a-zä]{0,12}", 0..20);
    let context = (link, attributes)
        .prop_map(|(link, attributes)| Context { link, attributes: attributes.into_iter().collect() });
    let sample = (
        any::<prop::sample::Index>(),
        any::<prop::sample::Index>(),
        option::of(any::<prop::sample::Index>()),
        0..=MAX_WEIGHT,
        any::<u32>(),
        any::<bool>(),
    );
    let contexts = vec(context, 1..100);
    (vec(thread, 1..8), vec(location, 1..600), vec(stack, 1..200), contexts, vec(sample, 0..2000), any::<bool>())
        .prop_map(|(threads, locations, stacks, contexts, samples, cpu)| {
            Batch {
                process: ProcessId(1),
                period_nano: 10_000_000,
                mode: if cpu { Mode::Cpu } else { Mode::Wall },
                stacks: stacks
                    .into_iter()
                    .map(|(trust, places)| Stack {
                        trust: [Trust::Complete, Trust::Truncated, Trust::Guessed, Trust::MissingCallers]
                            [usize::from(trust)],
                        locations: places.iter().map(|place| place.index(locations.len()) as u32).collect(),
                    })
                    .collect::<Vec<_>>(),
                samples: Vec::new(),
                threads: threads
                    .into_iter()
                    .map(|(id, namespace_id, name, pointer)| Thread { id, namespace_id, name, pointer })
                    .collect(),
                locations,
                contexts,
            }
            .with_samples(samples)
        })
}

/// The thread, stack, context, weight and observations of a sample, and whether it was blocked.
type ArbitrarySample = (prop::sample::Index, prop::sample::Index, Option<prop::sample::Index>, u64, u32, bool);

trait WithSamples {
    fn with_samples(self, samples: Vec<ArbitrarySample>) -> Self;
}

impl WithSamples for Batch {
    fn with_samples(mut self, samples: Vec<ArbitrarySample>) -> Self {
        let (threads, stacks, contexts) = (self.threads.len(), self.stacks.len(), self.contexts.len());
        self.samples = samples
            .into_iter()
            .enumerate()
            .map(|(place, (thread, stack, context, weight_nano, observations, blocked))| Sample {
                thread: thread.index(threads) as u32,
                stack: stack.index(stacks) as u32,
                context: context.map(|context| context.index(contexts) as u32),
                time_unix_nano: 1_700_000_000_000_000_000 + place as u64 * 9_900_990,
                weight_nano,
                observations,
                blocked,
            })
            .collect();
        self
    }
}

/// The thread, trust, locations, context, time, weight and observations of a sample, and whether it was blocked.
type SampleContents = (Thread, Trust, Vec<Location>, Option<Context>, u64, u64, u32, bool);

/// The contents of samples, without the indices.
fn meanings(batches: &[Batch]) -> Vec<SampleContents> {
    let mut meanings = Vec::new();
    for batch in batches {
        for sample in &batch.samples {
            let stack = &batch.stacks[sample.stack as usize];
            meanings.push((
                batch.threads[sample.thread as usize].clone(),
                stack.trust,
                stack.locations.iter().map(|place| batch.locations[*place as usize]).collect(),
                sample.context.map(|context| batch.contexts[context as usize].clone()),
                sample.time_unix_nano,
                sample.weight_nano,
                sample.observations,
                sample.blocked,
            ));
        }
    }
    meanings
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Guarantees: after a batch is split and sent, its samples have the same contents and order, and each part fits
    /// into a packet.
    #[test]
    fn batches_keep_their_meaning(batch in batches()) {
        let mut arrived = Vec::new();
        for part in split(&batch) {
            let packet = encode_event(Event::Batch(part));
            prop_assert!(packet.bytes.len() <= MAX_PACKET);
            match decode_event(&packet.bytes, None) {
                Ok(Event::Batch(part)) => arrived.push(part),
                other => prop_assert!(false, "{:?}", other),
            }
        }
        prop_assert_eq!(meanings(&arrived), meanings(&[batch]));
    }
}

/// Guarantees: however many functions there are and however long they are, each packet fits, and together they contain
/// all functions in their order and with their numbers.
#[test]
fn many_functions() {
    let kind = FunctionKind::CPython;
    let function = |line: u32| Function {
        kind,
        name: "n".repeat(line as usize % (MAX_NAME + 1)),
        module: "m".repeat(line as usize % (MAX_NAME + 1)),
        file: "f".repeat(line as usize % (MAX_FILE + 1)),
        line,
    };
    let functions: Vec<Function> = (0..5000).map(function).collect();
    let mut arrived = Vec::new();
    for (first, functions) in split_functions(7, functions.clone()) {
        assert_eq!(first as usize, 7 + arrived.len());
        let packet = encode_event(Event::Functions { process: ProcessId(1), first, functions });
        assert!(packet.bytes.len() <= MAX_PACKET);
        let Ok(Event::Functions { first: said, functions, .. }) = decode_event(&packet.bytes, None) else { panic!() };
        assert_eq!(said, first);
        arrived.extend(functions);
    }
    assert_eq!(arrived, functions);
}

/// Guarantees: stacks that are too deep for a packet lose the frames farthest from the leaf, and are marked as
/// truncated.
#[test]
fn deep_stacks_are_cut() {
    let locations = (0..5000)
        .map(|address| Location::Native { mapping: Some((1 << 31) - 2), address: u64::MAX - address })
        .collect();
    let stacks =
        [Trust::Complete, Trust::Guessed].map(|trust| Stack { trust, locations: (0..5000).collect() }).to_vec();
    let samples = (0..2).map(|stack| Sample { stack, ..Sample::default() }).collect();
    let batch =
        Batch { period_nano: 1, threads: vec![Thread::default()], locations, stacks, samples, ..Batch::default() };
    let parts = split(&batch);
    let trusts: Vec<Trust> = parts.iter().flat_map(|part| &part.stacks).map(|stack| stack.trust).collect();
    assert_eq!(trusts, [Trust::Truncated, Trust::Guessed]);
    for part in parts {
        assert_eq!(part.stacks[0].locations.len(), MAX_STACK);
        assert_eq!(part.locations[0].address(), u64::MAX);
        let packet = encode_event(Event::Batch(part));
        assert!(packet.bytes.len() <= MAX_PACKET && decode_event(&packet.bytes, None).is_ok());
    }
}

/// Guarantees: as many contexts as allowed, each of maximum size and with a stack of maximum size, fit into packets.
#[test]
fn large_contexts() {
    let value =
        |key: usize| if key < 2 { "x".repeat(MAX_VALUE) } else { "x".repeat((MAX_ATTRIBUTES - 2 * MAX_VALUE) / 30) };
    let link = SpanLink { trace_id: [1; 16], span_id: [2; 8] };
    let attributes: Vec<_> = (0..MAX_ALLOWED).map(|key| (key as u32, value(key))).collect();
    let contexts = vec![Context { link: Some(link), attributes }; 300];
    let locations =
        (0..MAX_STACK as u64).map(|address| Location::Native { mapping: Some((1 << 31) - 2), address: !address });
    let stacks = vec![Stack { trust: Trust::Complete, locations: (0..MAX_STACK as u32).collect() }; 300];
    let samples = (0..300).map(|index| Sample { stack: index, context: Some(index), ..Sample::default() }).collect();
    let batch = Batch {
        period_nano: 1,
        threads: vec![Thread::default()],
        locations: locations.collect(),
        stacks,
        contexts,
        samples,
        ..Batch::default()
    };
    let mut arrived = 0;
    for part in split(&batch) {
        let packet = encode_event(Event::Batch(part));
        assert!(packet.bytes.len() <= MAX_PACKET);
        let Ok(Event::Batch(part)) = decode_event(&packet.bytes, None) else { panic!() };
        assert!(part.samples.iter().all(|sample| part.contexts[sample.context.unwrap() as usize] == batch.contexts[0]));
        arrived += part.samples.len();
    }
    assert_eq!(arrived, 300);
}

/// Guarantees: samples with invalid references are left out; they are neither sent nor cause a panic.
#[test]
fn dangling_batches_are_left_out() {
    let samples = vec![Sample { thread: 1, stack: 9, ..Sample::default() }];
    assert_eq!(split(&Batch { samples, ..Batch::default() }), []);
}

/// Guarantees: the end of the connection is reported after everything that the other side sent before.
#[test]
fn the_end_comes_last() {
    let (owner, sampler) = pair().unwrap();
    send(sampler.as_fd(), b"last", None).unwrap();
    drop(sampler);
    assert!(matches!(receive(owner.as_fd()).unwrap(), ReceivedPacket::Packet { bytes, .. } if bytes == b"last"));
    assert!(matches!(receive(owner.as_fd()).unwrap(), ReceivedPacket::End));
    assert!(send(owner.as_fd(), b"x", None).is_err());
}
