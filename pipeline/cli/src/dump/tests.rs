use profbridge_model::{Builder, Function as Named, Line, Location as Place, Mapping, Profile};
use profbridge_sampler::message::{Location, Sample, Stack, TargetId, Thread as Sampled};

use super::*;

/// No process has this id, so that everything known about its threads is from samples.
const PID: u32 = u32::MAX;

fn process() -> Process {
    Process {
        id: ProcessId(3),
        target: TargetId(0),
        pid: PID,
        namespace_pid: 7,
        start_unix_nano: 0,
        exec_id: 0,
        executable: "/usr/bin/python3".to_owned(),
        arguments: ["python3", "shop.py\u{1b}[2J"].map(str::to_owned).to_vec(),
        user: 0,
        control_group: None,
        container: None,
        environment: Vec::new(),
        root: None,
    }
}

/// A batch with a sample of this thread at a location.
fn batch(id: u32, namespace_id: u32, location: Location) -> Batch {
    batch_with(Trust::Complete, id, namespace_id, location)
}

fn batch_with(trust: Trust, id: u32, namespace_id: u32, location: Location) -> Batch {
    Batch {
        process: ProcessId(3),
        threads: vec![Sampled { id, namespace_id, ..Sampled::default() }],
        locations: vec![location],
        stacks: vec![Stack { trust, locations: vec![0] }],
        samples: vec![Sample::default()],
        ..Batch::default()
    }
}

/// A frame: its kind, the file with its machine code, its name, its source and its line.
type DumpedFrame<'a> = (&'a str, &'a str, &'a str, &'a str, i64);

/// A sample of a thread: its id, its name, its state, how much of the stack is known, its time, and its stack, leaf
/// first.
type DumpedSample<'a> = (i64, &'a str, &'a str, &'a str, u64, &'a [DumpedFrame<'a>]);

fn profiles(rows: &[DumpedSample<'_>]) -> Profiles {
    let mut builder = Builder::new();
    builder.resource(&[
        ("process.executable.path", "/usr/bin/python3".into()),
        ("process.pid", profbridge_model::builder::Any::Int(PID.into())),
    ]);
    let sample_type = builder.value_type("wall", "nanoseconds");
    builder.profile(Profile { sample_type, ..Profile::default() });
    for &(id, name, state, trust, time, frames) in rows {
        let mut locations = Vec::new();
        for &(kind, module, name, source, line) in frames {
            let filename = builder.string(module);
            let mapping = builder.mapping(Mapping { filename, memory_limit: 1 << 20, ..Mapping::default() });
            let mapping = mapping.filter(|_| !module.is_empty());
            let (name, filename) = (builder.string(name), builder.string(source));
            let function = builder.function(Named { name, filename, ..Named::default() });
            let attributes = builder.attributes(&[("profile.frame.type", kind.into())]);
            let place = Place { mapping, attributes, ..Place::default() };
            locations.push(builder.location(place, &[Line { function, line, column: 0 }]));
        }
        let stack = builder.stack(&locations);
        let attributes = builder.attributes(&[
            ("thread.id", profbridge_model::builder::Any::Int(id)),
            ("thread.name", name.into()),
            ("profbridge.thread.state", state.into()),
            (TRUST_ATTRIBUTE, trust.into()),
        ]);
        builder.sample(stack, attributes, None, &[time], &[10_000_000]);
    }
    builder.finish().unwrap()
}

const SELECT: DumpedFrame<'_> = ("cpython", "", "select", "/usr/lib/python3.11/selectors.py", 415);
const SERVE: DumpedFrame<'_> = ("cpython", "", "Shop.serve", "/srv/shop.py", 51);
const MODULE: DumpedFrame<'_> = ("cpython", "", "<module>", "/srv/shop.py", 90);
const EPOLL: DumpedFrame<'_> = ("native", "/usr/lib/libc.so.6", "epoll_wait", "", 0);
const TAKE_GIL: DumpedFrame<'_> = ("native", "/usr/bin/python3", "take_gil", "ceval_gil.h", 7);
const EVALUATE: DumpedFrame<'_> = ("native", "/usr/bin/python3", "_PyEval_EvalFrame", "ceval.c", 7);
const POLLING: DumpedFrame<'_> = ("native", "/usr/lib/python3.11/lib-dynload/select.so", "select_epoll_poll", "", 0);
const START: DumpedFrame<'_> = ("native", "/usr/lib/libc.so.6", "start_thread", "", 0);
const HASH: DumpedFrame<'_> = ("native", "/srv/venv/fast.so", "hash_rows", "", 0);
const KERNEL: DumpedFrame<'_> = ("kernel", "[kernel]", "vfs_read", "", 0);

/// The sampler's own frames have addresses beyond those of programs, as the kernel's.
fn placeholder(name: &str) -> DumpedFrame<'_> {
    ("kernel", "", name, "", 0)
}

const UNKNOWN: DumpedFrame<'_> = ("kernel", "", CALLERS_NOT_KNOWN, "", 0);

/// A dump of these samples of the threads 7, 8, ... of a PID namespace, which are 107, 108, ... outside of it.
fn dump(native: bool, rows: &[DumpedSample<'_>]) -> Dump {
    let mut dump = Dump { native, ..Dump::default() };
    dump.attached(&process());
    for &(id, ..) in rows {
        let id = u32::try_from(id).unwrap();
        dump.arrived(&batch(id + 100, id, Location::Native { mapping: None, address: 1 }));
    }
    dump.take(&profiles(rows), Duration::ZERO);
    dump.close();
    dump
}

/// Guarantees: each thread has one paragraph with its state, what it waits for, and its frames with their lines,
/// innermost first, including recursive calls. The interpreter's machine code is left out only of interpreted threads,
/// and that of extension modules only while these wait. No name controls the terminal.
#[test]
fn threads() {
    let rows: &[DumpedSample<'_>] = &[
        (
            7,
            "MainThread",
            "waiting",
            "",
            1,
            &[EPOLL, POLLING, EVALUATE, SELECT, EVALUATE, SERVE, EVALUATE, MODULE, START],
        ),
        (8, "recursive", "running", "", 1, &[HASH, SERVE, ("cpython", "", "Shop.serve", "/srv/shop.py", 53), MODULE]),
        (9, "native", "running", "", 1, &[KERNEL, ("native", "/usr/bin/python3", "work", "", 0), START]),
    ];
    let text = dump(false, rows).text();
    let expected = "\
python3 (pid 4294967295): python3 shop.py [2J, 3 threads, ended meanwhile
thread 107 \"MainThread\": waiting for events
    select (selectors.py:415)
    Shop.serve (shop.py:51)
    <module> (shop.py:90)
thread 108 \"recursive\": running
    hash_rows (fast.so)
    Shop.serve (shop.py:51)
    Shop.serve (shop.py:53)
    <module> (shop.py:90)
thread 109 \"native\": running
    work (python3)
    start_thread (libc.so.6)";
    assert_eq!(text, expected, "\n{text}");
    let native = dump(true, rows).text();
    let all =
        "    epoll_wait (libc.so.6)\n    select_epoll_poll (select.so)\n    _PyEval_EvalFrame (python3)\n    select (";
    assert!(native.contains(all), "{native}");
    assert!(native.contains("    vfs_read ([kernel])\n    work (python3)\n"), "{native}");
}

/// Guarantees: the latest sample of a thread counts, in whatever order they arrive, unless an earlier one shows more:
/// where the thread was, or its callers.
#[test]
fn latest() {
    let waiting = &[placeholder("[waiting for a processor]")][..];
    let text = dump(
        false,
        &[
            (7, "main", "running", "", 2, &[SERVE]),
            (7, "main", "waiting", "", 1, &[EPOLL, SELECT]),
            (8, "busy", "running", "", 1, &[SERVE]),
            (8, "busy", "waiting", "", 2, waiting),
            (9, "starved", "waiting", "", 2, waiting),
            (10, "cut", "running", "", 1, &[SERVE, MODULE]),
            (10, "cut", "running", "guessed", 2, &[HASH, SERVE]),
            (10, "cut", "running", "missing_callers", 3, &[HASH, UNKNOWN]),
            (10, "cut", "waiting", "", 4, waiting),
        ],
    )
    .text();
    let (_, text) = text.split_once('\n').unwrap();
    let expected = "\
thread 107 \"main\": running
    Shop.serve (shop.py:51)
thread 108 \"busy\": running
    Shop.serve (shop.py:51)
thread 109 \"starved\": waiting for a processor
thread 110 \"cut\": running
    Shop.serve (shop.py:51)
    <module> (shop.py:90)";
    assert_eq!(text, expected, "\n{text}");
}

/// Guarantees: callers that are not known, and those that were guessed, are shown as such, also of threads without any
/// interpreted function, and a stopped thread as stopped.
#[test]
fn not_known() {
    let rows: &[DumpedSample<'_>] = &[
        (7, "", "running", "missing_callers", 1, &[SERVE, placeholder(CALLERS_NOT_KNOWN)]),
        (8, "", "waiting", "truncated", 1, &[placeholder("[stopped]"), EPOLL]),
        (9, "", "running", "guessed", 1, &[HASH]),
        (10, "", "waiting", "missing_callers", 1, &[TAKE_GIL, UNKNOWN, EVALUATE, UNKNOWN]),
        (11, "", "running", "missing_callers", 1, &[SERVE, UNKNOWN, EVALUATE, UNKNOWN]),
    ];
    let text = dump(false, rows).text();
    let (_, text) = text.split_once('\n').unwrap();
    let expected = "\
thread 107: running
    Shop.serve (shop.py:51)
    [callers not known]
thread 108: stopped
    epoll_wait (libc.so.6)
    [callers not known]
thread 109: running
    hash_rows (fast.so)
    [some of these callers are guesses]
thread 110: waiting for the GIL
    take_gil (python3)
    [callers not known]
    _PyEval_EvalFrame (python3)
    [callers not known]
thread 111: running
    Shop.serve (shop.py:51)
    [callers not known]";
    assert_eq!(text, expected, "\n{text}");
}

/// Guarantees: sampling ends early only once all requested processes were found and of each of their threads a stack
/// with all callers. Threads that were not seen are listed as such, and those that ended are not.
#[test]
fn unseen() {
    let look = RunSnapshot {
        title: "",
        elapsed: Duration::ZERO,
        duration: None,
        status: Default::default(),
        threads: 0,
        rate_hertz: None,
        is_naming: false,
    };
    let pid = std::process::id();
    let mut dump = Dump { asked: vec![pid], ..Dump::default() };
    assert!(!dump.look(&look));
    dump.attached(&Process { pid, ..process() });
    let threads = &mut dump.processes.get_mut(&pid).unwrap().threads;
    // Other tests run on threads of their own.
    threads.retain(|id, _| *id == pid);
    threads.insert(PID, DumpedThread::default());
    assert!(!dump.look(&look));
    dump.arrived(&batch(pid, 0, Location::WAITING_FOR_PROCESSOR));
    assert!(!dump.look(&look));
    let place = Location::Native { mapping: None, address: 1 };
    for trust in [Trust::MissingCallers, Trust::Truncated] {
        dump.arrived(&batch_with(trust, pid, 0, place));
        assert!(!dump.look(&look), "{trust:?}");
    }
    dump.arrived(&batch(pid, 0, place));
    assert!(dump.look(&look));
    dump.asked.push(PID);
    assert!(!dump.look(&look));
    dump.close();
    let text = dump.text();
    assert!(text.lines().nth(1).unwrap().starts_with(&format!("thread {pid} \"")), "{text}");
    assert!(text.contains("\": not seen, ") && text.ends_with(" s of processor time so far"), "{text}");
    assert!(!text.contains(&PID.to_string()) && !text.contains("ended meanwhile"), "{text}");
}
