//! Stacks that are difficult to read.

use std::{collections::BTreeMap, process::Command};

use profbridge_sampler::message::{Level, Settings, Stops, Trust};

use crate::{
    compile,
    runner::{Outcome, Untested, tests},
    session::{ObservedLife, ObservedSample, TrapSession, usual},
    target::RunningTarget,
};

tests![
    without_frame_pointers,
    in_signal_handlers,
    events_on_alternate_signal_stacks,
    on_coroutine_stacks,
    in_greenlets,
    go_programs,
    huge_frames,
    deeper_than_the_copy,
    pages_that_are_gone,
    pages_out_of_memory,
    libraries_that_come_and_go,
    waiting_in_late_libraries,
];

/// Samples a target until a function was observed this often.
fn sample(target: &RunningTarget, function: &str, count: u32, settings: Settings) -> crate::session::SeenEvents {
    let mut session = TrapSession::with(target.pid(), settings);
    session.observe(function, count);
    session.finish()
}

/// Asserts that at least this share of the stacks with a function have these callers, in this order, and are complete.
fn assert_chain(life: &ObservedLife, chain: &[&str], least: f64) {
    let (mut all, mut good) = (0, 0);
    for observed in life.with(chain[0]) {
        let names = life.names(observed);
        let from = names.iter().position(|name| name == chain[0]).unwrap();
        let found =
            chain.iter().zip(&names[from..]).all(|(wanted, name)| wanted == name) && names.len() >= from + chain.len();
        all += observed.sample.observations;
        if found && observed.trust == Trust::Complete && life.rooted(observed) {
            good += observed.sample.observations;
        }
    }
    let share = f64::from(good) / f64::from(all);
    assert!(share >= least, "{share} of {all} stacks are {chain:?} down to the root\n{}", life.top());
}

/// Guarantees: C code without frame pointers is unwound to the start of its thread, caller by caller, and the samples
/// of each thread cover all the time that passed.
fn without_frame_pointers() {
    let target = RunningTarget::start(&compile::c("busy"), &["1", "1"]);
    let seen = sample(&target, "leaf", 200, usual());
    assert_chain(seen.last(), &["leaf", "middle", "outer", "busy"], 0.995);
    assert_chain(seen.last(), &["wait_forever", "idle"], 0.995);
    seen.last().assert_accounted();
}

/// Guarantees: the stack of a signal handler leads through the signal frame to the interrupted function and on to the
/// root. This also holds if the handler runs on an alternate stack, and the thread is stopped while both stacks are
/// read.
fn in_signal_handlers() {
    let always = Settings { stops: Stops::Always, ..Settings::default() };
    for (kind, settings) in [("plain", usual()), ("alternate", always)] {
        let target = RunningTarget::start(&compile::c("handlers"), &[kind]);
        let seen = sample(&target, "inside_handler", 200, settings);
        let (life, (mut all, mut good)) = (seen.last(), (0, 0));
        for observed in life.with("inside_handler") {
            let names = life.names(observed);
            let place = |function: &str| names.iter().position(|name| name == function);
            let chain = ["inside_handler", "handler", "interrupted_work", "caller_of_work", "spin"].map(place);
            all += observed.sample.observations;
            let ordered = chain.is_sorted_by(|one, next| one < next);
            if ordered && observed.trust == Trust::Complete && life.rooted(observed) {
                good += observed.sample.observations;
            }
        }
        let share = f64::from(good) / f64::from(all);
        assert!(share >= 0.99, "{kind}: {share} of {all} lead through the handler\n{}", life.top());
    }
}

/// After at most this many samples, a stack is known to be longer than its copy, and its rest is read from memory.
const BEFORE_FOLLOWED: usize = 20;

/// Guarantees: if the kernel copies a handler's alternate stack, the stack leads to the interrupted function, which is
/// on another stack, and on to the root if the thread did not run until that stack was read; otherwise it ends there.
fn events_on_alternate_signal_stacks() -> Outcome {
    let target = RunningTarget::start(&compile::c("handlers"), &["alternate"]);
    let seen = sample(&target, "inside_handler", 200, usual());
    let life = seen.last();
    if life.status.level < Level::User {
        return Err(Untested("no events are permitted".to_owned()));
    }
    let (mut all, mut whole) = (0, 0);
    for observed in life.with("inside_handler").skip(BEFORE_FOLLOWED) {
        let names = life.names(observed);
        let place = |function: &str| names.iter().position(|name| name == function);
        let others = [place("caller_of_work"), place("spin")];
        if observed.trust == Trust::Complete {
            let interrupted = place("interrupted_work");
            assert!(place("inside_handler") < place("handler") && place("handler") < interrupted, "{names:?}");
            assert!(interrupted < others[0] && others[0] < others[1], "{names:?}");
        } else {
            assert_eq!(others, [None, None], "{names:?}\n{}", life.top());
        }
        all += 1;
        whole += u32::from(observed.trust == Trust::Complete);
    }
    assert!(f64::from(whole) >= 0.9 * f64::from(all), "{whole} of {all} lead to the root\n{}", life.top());
    Ok(())
}

/// Guarantees: the stack of a coroutine, which belongs to no thread, is unwound to the coroutine's first function and
/// ends there, without data from the memory beyond it.
fn on_coroutine_stacks() {
    let target = RunningTarget::start(&compile::c("coroutines"), &[]);
    let seen = sample(&target, "in_coroutine", 200, usual());
    let life = seen.last();
    for observed in life.with("in_coroutine") {
        let names = life.names(observed);
        let body = names.iter().position(|name| name == "coroutine_body");
        assert!(body.is_some_and(|body| names.len() <= body + 2), "{names:?}\n{}", life.top());
    }
    // The last frame is the C library's function that starts a context.
    let share = life.complete_share(life.with("in_coroutine"));
    assert!(share >= 0.99, "{share}\n{}", life.top());
}

/// Guarantees: the stack of a Python greenlet is complete and ends at the function that started the greenlet, also if
/// another greenlet has overwritten the stack above it; while a greenlet is being started, its callers are shown.
fn in_greenlets() {
    const BEGIN: &str = "_ZN8greenlet12UserGreenlet13g_initialstubEPv";
    let target = RunningTarget::start(&compile::c_with("greenlets", "greenlets", &["-rdynamic"]), &[]);
    let mut session = TrapSession::with(target.pid(), usual());
    session.observe("in_greenlet", 150);
    session.observe("still_starting", 150);
    let seen = session.finish();
    let life = seen.last();
    let (mut all, mut complete) = (0, 0);
    for observed in life.with("in_greenlet") {
        assert_eq!(life.names(observed).last().unwrap(), BEGIN, "{}", life.top());
        all += observed.sample.observations;
        complete += u32::from(observed.trust == Trust::Complete) * observed.sample.observations;
    }
    assert!(f64::from(complete) >= 0.99 * f64::from(all), "{complete} of {all}\n{}", life.top());
    assert_chain(life, &["still_starting", BEGIN, "starter"], 0.99);
}

/// Guarantees: a Go program is recognized, its goroutines are sampled, and its own handling of signals is not
/// disturbed.
fn go_programs() -> Outcome {
    let mut target = RunningTarget::start(&compile::go("go")?, &[]);
    let seen = sample(&target, "main.goLeaf", 150, usual());
    assert!(target.lives());
    assert!(seen.last().mappings.iter().all(|(mapping, _)| mapping.go == mapping.main));
    Ok(())
}

/// Guarantees: a stack with a frame of 150 KiB and 100 calls below it is unwound to the root. A frame that is larger
/// than the copy is skipped, since only the words that unwinding needs are read; if that is impossible, the stack is
/// marked as truncated, and never guessed.
fn huge_frames() {
    let small_copy = Settings { max_stack: 64 << 10, ..usual() };
    for (frame, depth, settings, least) in
        [("150", "100", usual(), 0.95), ("1000", "10", small_copy, 0.0), ("6144", "10", usual(), 0.0)]
    {
        let target = RunningTarget::start(&compile::c("huge"), &[frame, depth]);
        let seen = sample(&target, "at_the_bottom", 200, settings);
        let life = seen.last();
        let levels = depth.parse::<usize>().unwrap() + 1;
        for observed in life.with("at_the_bottom") {
            let names = life.names(observed);
            assert_eq!(names.iter().filter(|name| *name == "one_level").count(), levels, "{}", life.top());
            match observed.trust {
                Trust::Complete => assert!(life.rooted(observed), "{}", life.top()),
                trust => assert_eq!(trust, Trust::Truncated, "{frame}\n{}", life.top()),
            }
        }
        let share = life.complete_share(life.with("huge_frame").skip(BEFORE_FOLLOWED));
        assert!(share >= least, "{frame}: {share}\n{}", life.top());
    }
}

/// Guarantees: if a recursion is deeper than the copy of its stack, the frames of its stacks are right, the stacks are
/// marked as truncated, and they are not longer than the limit.
fn deeper_than_the_copy() {
    let target = RunningTarget::start(&compile::c("huge"), &["1", "200000"]);
    let settings = Settings { max_stack: 64 << 10, ..usual() };
    let seen = sample(&target, "at_the_bottom", 20, settings);
    let life = seen.last();
    for observed in life.with("at_the_bottom") {
        let names = life.names(observed);
        let from = names.iter().position(|name| name == "at_the_bottom").unwrap() + 1;
        assert!(names.len() > 100, "{}", names.len());
        assert!(names.len() < 20_000, "{}", names.len());
        assert!(names[from..].iter().all(|name| name == "one_level"), "{:?}", names.last());
        assert_eq!(observed.trust, Trust::Truncated);
    }
}

/// How many calls `absent_page` makes between its two functions outside of the absent page.
const LEVELS: usize = 50;

/// The number of calls between the two functions of `absent_page` in a stack, and whether the stack leads to the outer
/// one. Asserts that the stack has no other frames.
fn levels(life: &ObservedLife, observed: &ObservedSample) -> (usize, bool) {
    let names = life.names(observed);
    let from = names.iter().position(|name| name == "below").unwrap() + 1;
    let levels = names[from..].iter().take_while(|name| *name == "one_level").count();
    let beyond: Vec<&str> = names[from + levels..].iter().map(String::as_str).collect();
    assert!(beyond.is_empty() || beyond[..2] == ["above", "spin"], "{names:?}\n{}", life.top());
    (levels, !beyond.is_empty())
}

/// Guarantees: if a page of a stack is unmapped, the stack is right up to that page, ends there, and is marked as
/// truncated.
fn pages_that_are_gone() {
    let target = RunningTarget::start(&compile::c("absent_page"), &["unmapped"]);
    for settings in [usual(), Settings { stops: Stops::Always, ..Settings::default() }] {
        let seen = sample(&target, "below", 100, settings);
        let life = seen.last();
        for observed in life.with("below") {
            let (levels, whole) = levels(life, observed);
            // A page has fewer than eight frames, and the absent one is the second or third above the stack pointer.
            assert!((4..LEVELS - 8).contains(&levels) && !whole, "{levels}\n{}", life.top());
            assert_eq!(observed.trust, Trust::Truncated, "{}", life.top());
        }
    }
}

/// Guarantees: if a page of a stack is not in memory when the kernel copies the stack, the stack is either complete,
/// since the page was read later, or right up to that page and marked as truncated; and nothing waits for the page
/// forever.
fn pages_out_of_memory() -> Outcome {
    let mut target = RunningTarget::launch(Command::new(compile::c("absent_page")).arg("written-back"));
    if target.line() == "resident" {
        return Err(Untested("the kernel takes no page of a file out of memory".to_owned()));
    }
    let seen = sample(&target, "below", 200, usual());
    let life = seen.last();
    for observed in life.with("below") {
        let (levels, whole) = levels(life, observed);
        let right = if whole { levels == LEVELS } else { (4..LEVELS).contains(&levels) };
        assert!(right, "{levels}\n{}", life.top());
        assert_eq!(observed.trust == Trust::Complete, whole, "{:?}\n{}", observed.trust, life.top());
        assert!(whole || observed.trust == Trust::Truncated, "{:?}\n{}", observed.trust, life.top());
    }
    Ok(())
}

/// Guarantees: if a library replaces another one at the same addresses, that is noticed within as many ticks as there
/// are in five seconds, and from then on no stack has the old library's code with the new library's caller.
fn libraries_that_come_and_go() {
    const MOMENTS: u32 = 500;
    let libraries = ["spin_a", "spin_b"].map(|function| compile::library(function).display().to_string());
    let mut target = RunningTarget::launch(std::process::Command::new(compile::c("loader")).args(&libraries));
    let place = target.wait_for("at");
    let mut session = TrapSession::of(target.pid());
    session.observe("spin_a", 60);
    target.say("");
    assert_eq!(target.wait_for("at"), place, "the other library came to lie elsewhere");
    session.observe("spin_b", 60);
    let seen = session.finish();
    let life = seen.last();
    let wrong = |caller, other| {
        let times = life.with(caller).filter(move |observed| life.names(observed).iter().any(|name| name == other));
        times.map(|observed| observed.sample.time_unix_nano).max()
    };
    let first = |function| life.with(function).map(|observed| observed.sample.time_unix_nano).min().unwrap();
    assert_eq!(wrong("call_a", "spin_b"), None, "{}", life.top());
    let noticed = first("spin_b");
    // Ticks are counted, not time: on a busy machine the sampler may have to wait for a processor.
    let before = life.with("call_b").filter(|observed| observed.sample.time_unix_nano < noticed);
    let before: u32 = before.map(|observed| observed.sample.observations).sum();
    assert!(before < MOMENTS, "noticed after {before} observations\n{}", life.top());
    // Times of samples are exact to one period, so two neighbours may be in the wrong order.
    const PERIOD_NANO: u64 = 10_000_000;
    assert!(wrong("call_b", "spin_a") < Some(noticed + PERIOD_NANO), "{}", life.top());
}

/// Guarantees: threads that wait forever in libraries that were just loaded have complete stacks as soon as the
/// libraries are known, although the threads do not run any more.
fn waiting_in_late_libraries() {
    let libraries = ["late_a", "late_b", "late_c", "late_d", "late_e", "late_f"];
    let paths = libraries.map(|function| compile::library(function).display().to_string());
    let mut target = RunningTarget::launch(std::process::Command::new(compile::c("late_libraries")).args(&paths));
    target.wait_for("ready");
    let mut session = TrapSession::of(target.pid());
    session.ticks(20);
    target.say("");
    target.wait_for("waiting");
    let main = target.pid();
    let waits_completely = |life: &ObservedLife, observed: &ObservedSample| {
        observed.trust == Trust::Complete && life.names(observed).iter().any(|name| name == "wait_in_library")
    };
    session.until("the last stack of each thread is complete", |seen| {
        let Some(life) = seen.lives.last() else { return false };
        let last = newest(life, main);
        last.len() == libraries.len() && last.values().all(|observed| waits_completely(life, observed))
    });
    // The stacks stay complete.
    session.ticks(100);
    let seen = session.finish();
    let life = seen.last();
    for observed in newest(life, main).values() {
        assert!(waits_completely(life, observed), "{:?} {:?}", observed.trust, life.names(observed));
    }
}

/// The newest sample of each thread except one.
fn newest(life: &ObservedLife, other_than: u32) -> BTreeMap<u32, &ObservedSample> {
    let mut last = BTreeMap::new();
    for observed in life.samples.iter().filter(|observed| observed.thread.id != other_than) {
        let newest = last.entry(observed.thread.id).or_insert(observed);
        if observed.sample.time_unix_nano >= newest.sample.time_unix_nano {
            *newest = observed;
        }
    }
    last
}
