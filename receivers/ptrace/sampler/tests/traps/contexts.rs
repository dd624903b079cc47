//! The contexts that programs publish: of the process, and of its threads.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    process::Command as Program,
    time::Duration,
};

use profbridge_sampler::message::{AttributeValue, Context, Level, Settings, SpanLink, Stops};

use crate::{
    compile,
    runner::tests,
    session::{ObservedLife, TrapSession},
    target::RunningTarget,
};

tests![
    of_a_program,
    of_libraries,
    of_a_library_from_the_start,
    of_stopped_threads,
    torn_records,
    torn_records_of_stopped_threads,
    shown_late_and_again,
    forked_and_executed,
    ends_while_it_is_read,
];

/// The context that a thread has published.
#[derive(Debug)]
struct PublishedContext {
    link: SpanLink,
    name: String,
}

/// Parses the lines of a target: the contexts of its threads by thread id, and the thread without a context.
fn threads(lines: &[String]) -> (BTreeMap<u32, PublishedContext>, u32) {
    let bytes = |hex: &str| -> Vec<u8> {
        (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect()
    };
    let (mut threads, mut none) = (BTreeMap::new(), 0);
    for line in lines {
        match line.split(' ').collect::<Vec<_>>()[..] {
            ["thread", id, trace, span, name, _] => {
                let link =
                    SpanLink { trace_id: bytes(trace).try_into().unwrap(), span_id: bytes(span).try_into().unwrap() };
                threads.insert(id.parse().unwrap(), PublishedContext { link, name: name.to_owned() });
            }
            ["none", id] => none = id.parse().unwrap(),
            _ => panic!("{line}"),
        }
    }
    assert_eq!(threads.len(), 3);
    (threads, none)
}

fn start(program: &Path, library: Option<&Path>) -> (RunningTarget, BTreeMap<u32, PublishedContext>, u32) {
    let mut target = RunningTarget::launch(Program::new(program).args(library));
    let lines = target.lines_until("ready");
    let (threads, none) = threads(&lines);
    (target, threads, none)
}

/// How often a thread was sampled while blocked and while running, and how many of these samples have its span.
#[derive(Debug, Default)]
struct SampleCounts {
    blocked: [u32; 2],
    running: [u32; 2],
}

/// Asserts that samples have no other context than their thread has published, and that samples of blocked threads have
/// it: all of a thread that is examined during its wait, and nine tenths of a thread with many short waits.
fn check(life: &ObservedLife, threads: &BTreeMap<u32, PublishedContext>, none: u32) -> BTreeMap<String, SampleCounts> {
    let mut counts: BTreeMap<String, SampleCounts> = BTreeMap::new();
    for observed in life.samples.iter().filter(|observed| !observed.is_explained) {
        let Some(said) = threads.get(&observed.thread.id) else {
            assert_eq!(observed.context, None, "of a thread that shows nothing, {none}: {:?}", observed.thread);
            continue;
        };
        let counts = counts.entry(said.name.clone()).or_default();
        let [all, named] = if observed.sample.blocked { &mut counts.blocked } else { &mut counts.running };
        *all += observed.sample.observations;
        if let Some(Context { link, attributes }) = &observed.context {
            *named += observed.sample.observations;
            assert_eq!(*link, Some(said.link), "{:?}", observed.thread);
            assert_eq!(attributes, &[(1, said.name.clone())], "only what was asked for, under its number");
        }
    }
    for (name, SampleCounts { blocked: [all, named], .. }) in &counts {
        let unknown = if name == "blinker" { all / 10 + 1 } else { 0 };
        assert!(named <= all && named + unknown >= *all, "blocked samples of {name}: {counts:?}\n{}", life.top());
    }
    counts
}

/// Samples a program until all of its threads have enough samples, and checks them. Returns the counts and the level.
fn sample(
    target: &RunningTarget,
    threads: &BTreeMap<u32, PublishedContext>,
    none: u32,
    settings: Settings,
) -> (BTreeMap<String, SampleCounts>, Level) {
    let mut session = TrapSession::with(target.pid(), settings);
    session.until("samples of all threads", |seen| {
        let of = |life: &ObservedLife, id: u32| -> u32 {
            let samples = life.samples.iter().filter(|observed| observed.thread.id == id);
            samples.map(|observed| observed.sample.observations).sum()
        };
        let ids = || threads.keys().copied().chain([none]);
        seen.lives.last().is_some_and(|life| ids().all(|id| of(life, id) >= 100))
    });
    let seen = session.finish();
    let life = seen.last();
    assert_eq!(life.resources.len(), 1, "{:?}", life.resources);
    assert_eq!(name_of(&life.resources[0]), "first");
    assert_eq!(life.status.torn_contexts, 0, "{:?}", life.status);
    let counts = check(life, threads, none);
    assert!(counts["sleeper"].blocked[0] >= 50 && counts["blinker"].blocked[0] > 0, "{counts:?}");
    let named: u32 = counts.values().map(|counts| counts.blocked[1] + counts.running[1]).sum();
    assert!(life.status.contexts >= u64::from(named), "{named} {counts:?} {:?}", life.status);
    if life.status.level != Level::None {
        assert_eq!(life.status.stops, 0);
    }
    (counts, life.status.level)
}

fn name_of(resource: &[(String, AttributeValue)]) -> &str {
    match resource.iter().find(|(key, _)| key == "service.name") {
        Some((_, AttributeValue::Text(name))) => name,
        other => panic!("{other:?}"),
    }
}

fn program() -> PathBuf {
    compile::c_with("contexts", "contexts", &["-rdynamic"])
}

fn with_library() -> PathBuf {
    compile::c_with("contexts", "contexts-library", &["-DLIBRARY"])
}

/// Guarantees: each sample has the span that its thread has published and no other; samples of a thread without a
/// context have none. This includes samples of running threads, if the kernel copies the record with the stack. No
/// thread is stopped.
fn of_a_program() {
    let (target, threads, none) = start(&program(), None);
    let (counts, level) = sample(&target, &threads, none, Settings::default());
    if level != Level::None {
        for (name, SampleCounts { running: [all, named], .. }) in &counts {
            assert_eq!(all, named, "running samples of {name}: {counts:?}");
        }
        assert!(counts["spinner"].running[0] >= 10, "{counts:?}");
    }
}

/// Guarantees: the variable is found in a library that a program loads at run time: by the arguments for
/// `__tls_get_addr`; by its TLS descriptor, whether or not glibc placed it next to the thread pointer; and at a fixed
/// distance from the thread pointer.
fn of_libraries() {
    // If the variable is not at a `fixed` distance from the thread pointer, it is not copied with the stack, so samples
    // of running threads have a context only if the thread is proven not to have run during the read.
    for (name, options, fixed) in [
        ("context-dynamic", &["-ftls-model=global-dynamic", "-mtls-dialect=gnu"][..], false),
        ("context-descriptor", &["-mtls-dialect=gnu2"], true),
        ("context-descriptor-large", &["-mtls-dialect=gnu2", "-DLARGE"], false),
        ("context-fixed", &["-ftls-model=initial-exec"], true),
    ] {
        let library = compile::context_library(name, options);
        let (target, threads, none) = start(&with_library(), Some(&library));
        let (counts, level) = sample(&target, &threads, none, Settings::default());
        let [all, named] = counts.get("spinner").map(|counts| counts.running).unwrap_or_default();
        assert!(named <= all && (level == Level::None || !fixed || named == all), "{name}: {counts:?}");
    }
}

/// Guarantees: the variable is found in a library that was loaded at the start, whose TLS descriptor has the distance
/// from the thread pointer.
fn of_a_library_from_the_start() {
    let library = compile::context_library("context-descriptor", &["-mtls-dialect=gnu2"]);
    let mut command = Program::new(with_library());
    let mut target = RunningTarget::launch(command.arg(&library).env("LD_PRELOAD", &library));
    let (threads, none) = threads(&target.lines_until("ready"));
    sample(&target, &threads, none, Settings::default());
}

/// Guarantees: samples of stopped threads have their spans, wherever the record is.
fn of_stopped_threads() {
    let library = compile::context_library("context-dynamic", &["-ftls-model=global-dynamic", "-mtls-dialect=gnu"]);
    let (target, threads, none) = start(&with_library(), Some(&library));
    let settings = Settings { stops: Stops::Always, ..Settings::default() };
    let (counts, _) = sample(&target, &threads, none, settings);
    let [all, named] = counts["spinner"].running;
    assert!(all > 0 && all == named, "{counts:?}");
}

/// Samples a program that changes its records all the time, until there are enough changes and samples.
fn torn(settings: Settings) -> ObservedLife {
    let mut target = RunningTarget::start(&compile::c_with("torn_contexts", "torn_contexts", &["-rdynamic"]), &[]);
    let before = target.ask("changes");
    let mut session = TrapSession::with(target.pid(), settings);
    session.until("samples of both writers", |seen| {
        seen.lives.last().is_some_and(|life| {
            let linked = |function| life.with(function).filter(|observed| observed.context.is_some()).count();
            let seen = if life.status.level == Level::None && life.status.stops == 0 { 0 } else { 150 };
            linked("fast_writer") >= seen && linked("slow_writer") >= 50 && life.status.torn_contexts > 20
        })
    });
    target.ask_until("changes", before + 1_000_000);
    let mut seen = session.finish();
    let life = seen.lives.pop().unwrap();
    for observed in &life.samples {
        let Some(link) = observed.context.as_ref().and_then(|context| context.link) else { continue };
        let word = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().unwrap());
        let number = word(&link.trace_id[..8]);
        let whole = word(&link.trace_id[8..]) == !number && word(&link.span_id) == number.wrapping_mul(2_654_435_761);
        assert!(whole, "a torn record: {link:x?}");
    }
    life
}

/// Guarantees: however often a record is changed, no sample has ids from two different changes; a record whose thread
/// is blocked while it writes the record is counted as torn and not used.
fn torn_records() {
    let life = torn(Settings::default());
    if life.status.level != Level::None {
        assert_eq!(life.status.stops, 0);
    }
}

/// Guarantees: the same holds for threads that are stopped in the middle of a change.
fn torn_records_of_stopped_threads() {
    let life = torn(Settings { stops: Stops::Always, ..Settings::default() });
    assert!(life.status.stops > 0);
}

/// Guarantees: if a process publishes its context only after it was attached, the context is found, samples of its
/// blocked threads have their spans from then on although the threads have not run, and a changed context is reported.
fn shown_late_and_again() {
    let mut target = RunningTarget::launch(Program::new(program()).arg("quiet"));
    let (threads, none) = threads(&target.lines_until("ready"));
    let mut session = TrapSession::with(target.pid(), Settings::default());
    session.ticks(50);
    let before = session.seen.last().samples.len();
    assert!(session.seen.last().samples.iter().all(|observed| observed.context.is_none()));
    assert!(session.seen.last().resources.is_empty());
    target.say("show second");
    target.wait_for("shown");
    let sleeper = *threads.iter().find(|(_, said)| said.name == "sleeper").unwrap().0;
    session.until("a sample with a span of the thread that sleeps", |seen| {
        let mut later = seen.last().samples.iter().skip(before).filter(|observed| observed.thread.id == sleeper);
        later.any(|observed| observed.context.is_some())
    });
    target.say("show third");
    target.wait_for("shown");
    session.until("the third name", |seen| {
        seen.last().resources.last().is_some_and(|resource| name_of(resource) == "third")
    });
    let seen = session.finish();
    let names: Vec<&str> = seen.last().resources.iter().map(|resource| name_of(resource)).collect();
    assert_eq!(names, ["second", "third"]);
    for observed in seen.last().samples.iter().filter(|observed| observed.thread.id == none) {
        assert_eq!(observed.context, None);
    }
}

/// Guarantees: a forked child has its parent's memory but publishes no process context, so its samples have no spans;
/// after an exec, samples have no contexts of the previous program.
fn forked_and_executed() {
    let (mut target, before, none) = start(&program(), None);
    target.say("fork");
    let child: u32 = target.wait_for("child").parse().unwrap();
    let mut of_child = TrapSession::with(child, Settings::default());
    of_child.ticks(50);
    let seen = of_child.finish();
    assert!(seen.last().samples.iter().all(|observed| observed.context.is_none()) && seen.last().resources.is_empty());
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(child as i32), nix::sys::signal::Signal::SIGKILL).unwrap();
    let mut session = TrapSession::with(target.pid(), Settings::default());
    session.until("samples with spans", |seen| {
        seen.lives.first().is_some_and(|life| life.samples.iter().filter(|one| one.context.is_some()).count() > 5)
    });
    target.say("exec");
    let (after, other_none) = threads(&target.lines_until("ready"));
    session.until("samples with spans of the new program", |seen| {
        seen.lives.get(1).is_some_and(|life| life.samples.iter().filter(|one| one.context.is_some()).count() > 5)
    });
    let seen = session.finish();
    let [first, second] = &seen.lives[..] else { panic!("{} lives", seen.lives.len()) };
    check_links(first, &before);
    check_links(second, &after);
    assert_eq!((first.resources.len(), second.resources.len()), (1, 1));
    assert_ne!(none, other_none);
}

/// Asserts that samples have no other spans than these threads have published. The first thread is left out: it may
/// have the span of the fork.
fn check_links(life: &ObservedLife, threads: &BTreeMap<u32, PublishedContext>) {
    let main = life.process.pid;
    for observed in life.samples.iter().filter(|observed| observed.thread.id != main) {
        let Some(context) = &observed.context else { continue };
        assert_eq!(context.link, threads.get(&observed.thread.id).map(|said| said.link));
    }
}

/// Guarantees: a process that ends while its contexts are read is detached like any other.
fn ends_while_it_is_read() {
    for _ in 0..5 {
        let (mut target, threads, none) = start(&program(), None);
        let mut session = TrapSession::with(target.pid(), Settings { rate_hertz: 997.0, ..Settings::default() });
        session.until("samples", |seen| seen.lives.last().is_some_and(|life| life.samples.len() > 20));
        target.say("end");
        session.until("its end", |seen| seen.last().detached.is_some());
        session.listen(Duration::from_millis(1));
        let seen = session.finish();
        check(seen.last(), &threads, none);
    }
}
