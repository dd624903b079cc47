//! Thread names, by which spans find their thread.

use profbridge_engine::component::Processor as _;
use profbridge_processor_link_spans::LinkSpans;

use crate::samples_brute_force::observations;
use crate::support::*;

/// A thread: its id, its name, and the milliseconds between which it was observed.
type NamedThread<'a> = (i64, &'a str, u64, u64);

/// Profiles of one process.
fn batch(threads: &[NamedThread<'_>]) -> profbridge_model::Profiles {
    let all: Vec<_> = threads.iter().map(|(id, name, from, to)| (*id, *name, ticks(*from, *to))).collect();
    let all: Vec<(i64, &str, &[u64])> = all.iter().map(|(id, name, times)| (*id, *name, &times[..])).collect();
    profiles(&web(7), &all)
}

/// A span that names its thread, in milliseconds.
fn named(name: &str, from: u64, to: u64) -> profbridge_model::Spans {
    spans(&traced(7), vec![span(1, from * MS, to * MS, &[("thread.name", text(name))])])
}

/// The thread linked with such a span; 0 if it is linked without one.
fn thread_of(processor: &mut LinkSpans, name: &str, from: u64, to: u64) -> i64 {
    let out = process(processor, named(name, from, to), at(10 * S));
    let [(_, Some(thread))] = &links(&out)[..] else { panic!("{:?}", out.notes) };
    thread.as_ref().map_or(0, |thread| thread.parse().unwrap())
}

/// Guarantees: a renamed thread is found by its new name only for spans that began after the end of the first batch
/// with that name. For earlier spans it is found by no name, and if one of its names matches theirs, no other thread is
/// found either.
#[test]
fn renamed_threads() {
    let mut processor = link_spans("{span_wait: 0s}");
    // Pool threads named after their current work, and one with a fixed name.
    process(&mut processor, batch(&[(12, "mail", 0, 900), (13, "pay", 0, 950), (14, "main", 0, 1000)]), at(S));
    for (name, thread) in [("mail", 12), ("pay", 13), ("main", 14)] {
        assert_eq!(thread_of(&mut processor, name, 100, 200), thread, "{name}");
    }
    process(
        &mut processor,
        batch(&[(12, "pay", 1000, 1900), (13, "mail", 1000, 1950), (14, "main", 1000, 2000)]),
        at(2 * S),
    );
    process(
        &mut processor,
        batch(&[(12, "pay", 2000, 3000), (13, "mail", 2000, 3000), (14, "main", 2000, 3000)]),
        at(3 * S),
    );
    for (name, behind) in [("mail", 13), ("pay", 12)] {
        for (from, to, expected) in [(100, 200, 0), (1500, 1600, 0), (1960, 2500, 0), (2010, 2500, behind)] {
            assert_eq!(thread_of(&mut processor, name, from, to), expected, "{name} {from}");
        }
    }
    assert_eq!(thread_of(&mut processor, "main", 100, 200), 14);
    // One of two threads with the same name was renamed: earlier spans may have run on either.
    process(&mut processor, batch(&[(15, "idle", 2000, 3000), (16, "idle", 2000, 3000)]), at(3 * S));
    process(&mut processor, batch(&[(15, "busy", 3050, 4000), (16, "idle", 3050, 5000)]), at(5 * S));
    assert_eq!(thread_of(&mut processor, "idle", 2100, 2200), 0);
    assert_eq!(thread_of(&mut processor, "idle", 5010, 5020), 16);
    // A late batch does not rename.
    process(&mut processor, batch(&[(16, "old", 2000, 2500)]), at(5 * S));
    assert_eq!(thread_of(&mut processor, "idle", 5010, 5020), 16);
}

/// Guarantees: if the profiler only observes running threads, a name of 15 bytes, to which the kernel cuts longer ones,
/// matches no thread, since another one of that name may not have been observed: neither for the same name nor for a
/// longer one. Shorter names match, and long ones that the profiler knows completely. If waiting threads are observed,
/// all match.
#[test]
fn names_that_may_be_cut() {
    let cut = "order-processor";
    for (kind, known, asked, expected) in [
        ("cpu", cut, "order-processor-2", 0),
        ("cpu", cut, cut, 0),
        ("wall", cut, "order-processor-2", 12),
        ("wall", cut, cut, 12),
        ("cpu", "order-processo", "order-processo", 12),
        ("cpu", "order-processor-2", "order-processor-2", 12),
        ("cpu", "order-processor-2", cut, 0),
    ] {
        let mut builder = profbridge_model::Builder::new();
        add_timed(&mut builder, &web(7), "", kind, &[(12, known, &[100, 300], 0)]);
        let mut processor = link_spans("{span_wait: 0s}");
        process(&mut processor, builder.finish().unwrap(), at(S));
        assert_eq!(thread_of(&mut processor, asked, 100, 200), expected, "{kind} {known} {asked}");
    }
}

/// Guarantees: samples of a thread are not linked with spans that have the thread's later name.
#[test]
fn samples_of_renamed_threads() {
    let mut processor = link_spans("{}");
    process(&mut processor, batch(&[(12, "mail", 0, 900)]), at(S));
    process(&mut processor, batch(&[(12, "pay", 950, 2000)]), at(2 * S));
    process(&mut processor, named("pay", 100, 200), at(2 * S));
    let again = observations(&process(&mut processor, batch(&[(12, "pay", 100, 200)]), at(2 * S)));
    assert!(again.iter().all(|(.., span)| *span == 0), "{again:?}");
}

/// Guarantees: the memory for changes of names is counted, and released with the threads and after a time.
#[test]
fn changes_of_names_are_forgotten() {
    let [mut renamed, mut same] = [link_spans("{}"), link_spans("{}")];
    let mut more = |second: u64, rename: bool| {
        let held = |processor: &mut LinkSpans, rename: bool| {
            let name = |id: i64| if rename && (id as u64 + second) % 2 == 1 { "other" } else { "one" };
            let times = [second * S];
            let threads: Vec<(i64, &str, &[u64])> = (100..1100).map(|id| (id, name(id), &times[..])).collect();
            process(processor, profiles(&web(7), &threads), at(second * S));
            processor.held().bytes as i64
        };
        held(&mut renamed, rename) - held(&mut same, false)
    };
    let most = (0..10).map(|second| more(second, true)).max().unwrap();
    assert!((50_000..70_000).contains(&most), "{most}");
    let last = (10..200).map(|second| more(second, false)).last().unwrap();
    assert!(last < 100, "{last}");
}
