use std::collections::HashMap;

use proptest::prelude::*;

use super::*;

const MS: u64 = 1_000_000;

fn after(start: Instant, micros: u64) -> Instant {
    start + Duration::from_micros(micros)
}

/// A beginning, and the moments this many milliseconds after it.
fn clock() -> (Instant, impl Fn(u64) -> Instant + Copy) {
    let start = Instant::now();
    (start, move |ms| after(start, ms * 1_000))
}

fn counters(run: u64, wait: u64, timeslices: u64) -> Option<SchedStat> {
    Some(SchedStat { run_nano: run * MS, wait_nano: wait * MS, timeslices })
}

/// Settles the time of a thread; `None` if its records are incomplete.
fn settle(thread: &mut ThreadTimeline<u32>, until: Instant, counters: Option<SchedStat>) -> Option<RecordedTime<u32>> {
    Some(thread.settle(until, counters)).filter(|recorded| recorded.is_whole)
}

/// The settled waits: cause, place and length in milliseconds.
fn waits(recorded: &RecordedTime<u32>) -> Vec<(Cause, Option<u32>, u64)> {
    recorded.waits.iter().map(|wait| (wait.cause, wait.place, wait.nano / MS)).collect()
}

/// Guarantees: time between switches has the state that the records show: running, preempted at a place, or blocked at
/// a place. A wait that lasts longer than the settled time continues in the next span, at the same place.
#[test]
fn states() {
    let (start, at) = clock();
    let mut thread = ThreadTimeline::new(start);
    assert_eq!(thread.latest(), Latest::Unknown);
    thread.switched_out(at(10), Cause::Preempted, Some(1));
    let waiting = Latest::Waiting { since: at(10), cause: Cause::Preempted, placed: true };
    assert_eq!(thread.latest(), waiting);
    thread.switched_in(at(15));
    thread.switched_out(at(20), Cause::Blocked, Some(2));
    let recorded = settle(&mut thread, at(50), None).unwrap();
    assert_eq!(waits(&recorded), [(Cause::Preempted, Some(1), 5), (Cause::Blocked, Some(2), 30)]);
    thread.switched_in(at(70));
    assert_eq!(thread.latest(), Latest::Running);
    let recorded = settle(&mut thread, at(90), None).unwrap();
    assert_eq!((waits(&recorded), recorded.ended), (vec![(Cause::Blocked, Some(2), 20)], None));
    assert_eq!(waits(&settle(&mut thread, at(99), None).unwrap()), []);
}

/// Guarantees: if the beginning of a running turn is reported only at its end, all time counts once, as running or as
/// waiting, even if a part of the turn was already settled as waiting; a turn that is reported twice counts once.
#[test]
fn turns_told_at_their_end() {
    let (start, at) = clock();
    let mut thread = ThreadTimeline::new(start);
    thread.switched_in(at(10));
    thread.switched_out(at(20), Cause::Blocked, Some(1));
    let recorded = settle(&mut thread, at(50), counters(0, 0, 0)).unwrap();
    assert_eq!(waits(&recorded), [(Cause::Blocked, Some(1), 10), (Cause::Blocked, Some(1), 30)]);
    thread.switched_in(at(40));
    thread.switched_in(at(40));
    thread.switched_out(at(70), Cause::Preempted, Some(2));
    let recorded = settle(&mut thread, at(90), counters(20, 0, 1)).unwrap();
    assert_eq!(waits(&recorded), [(Cause::Preempted, Some(2), 20)]);
}

/// Guarantees: before its first record a thread was in the state that this record ends; without any record nothing is
/// known, unless the thread was found waiting at a place.
#[test]
fn first_record() {
    let (start, at) = clock();
    let mut ran = ThreadTimeline::new(start);
    assert!(settle(&mut ran, at(10), None).is_none());
    ran.switched_out(at(20), Cause::Blocked, Some(1));
    assert_eq!(waits(&settle(&mut ran, at(30), None).unwrap()), [(Cause::Blocked, Some(1), 10)]);
    let mut waited = ThreadTimeline::<u32>::new(start);
    waited.switched_in(at(20));
    assert_eq!(waits(&settle(&mut waited, at(30), None).unwrap()), [(Cause::Blocked, None, 20)]);
    let mut ready = ThreadTimeline::<u32>::new(start);
    ready.ready();
    ready.switched_in(at(20));
    assert_eq!(waits(&settle(&mut ready, at(30), None).unwrap()), [(Cause::Preempted, None, 20)]);
    let mut note_place = ThreadTimeline::new(start);
    note_place.note_place(at(5), at(6), 7);
    assert_eq!(note_place.latest(), Latest::Waiting { since: at(5), cause: Cause::Blocked, placed: true });
    assert_eq!(waits(&settle(&mut note_place, at(30), None).unwrap()), [(Cause::Blocked, Some(7), 30)]);
}

/// Guarantees: records from before the beginning show the state at the beginning, but none of the time before it
/// counts.
#[test]
fn before_the_beginning() {
    let (_, at) = clock();
    let mut thread = ThreadTimeline::new(at(10));
    thread.switched_in(at(2));
    thread.switched_out(at(4), Cause::Blocked, Some(7));
    thread.switched_in(at(15));
    let recorded = settle(&mut thread, at(20), None).unwrap();
    assert_eq!(waits(&recorded), [(Cause::Blocked, Some(7), 5)]);
}

/// Guarantees: a place that was read from a thread is used only for a wait that lasted throughout the reading.
#[test]
fn looks() {
    let (start, at) = clock();
    let mut thread = ThreadTimeline::new(start);
    thread.switched_out(at(10), Cause::Blocked, None);
    assert_eq!(thread.latest(), Latest::Waiting { since: at(10), cause: Cause::Blocked, placed: false });
    thread.note_place(at(20), at(21), 1);
    assert_eq!(thread.latest(), Latest::Waiting { since: at(10), cause: Cause::Blocked, placed: true });
    assert_eq!(waits(&settle(&mut thread, at(25), None).unwrap()), [(Cause::Blocked, Some(1), 15)]);
    thread.switched_in(at(30));
    thread.switched_out(at(40), Cause::Preempted, Some(2));
    // The thread ran while its place was read: the records arrive after the examination.
    thread.note_place(at(45), at(47), 9);
    thread.switched_in(at(46));
    thread.switched_out(at(48), Cause::Preempted, Some(3));
    let recorded = settle(&mut thread, at(50), None).unwrap();
    let preempted = |place, ms| (Cause::Preempted, Some(place), ms);
    assert_eq!(waits(&recorded), [(Cause::Blocked, Some(1), 5), preempted(2, 6), preempted(3, 2)]);
}

/// Guarantees: time with missing records is not used: between two records of the same kind, if a record arrives after
/// later ones, and if records are lost. The time after that is used again.
#[test]
fn missing_records() {
    let (start, at) = clock();
    let thread = || {
        let mut thread = ThreadTimeline::new(start);
        thread.switched_out(at(10), Cause::Blocked, Some(1));
        settle(&mut thread, at(20), None).unwrap();
        thread
    };
    let [mut two_outs, mut two_ins, mut late, mut lost] = [thread(), thread(), thread(), thread()];
    two_outs.switched_out(at(30), Cause::Blocked, Some(2));
    two_ins.switched_in(at(30));
    two_ins.switched_in(at(35));
    two_ins.switched_out(at(36), Cause::Blocked, Some(2));
    late.switched_in(at(9));
    lost.lost();
    lost.switched_in(at(25));
    lost.switched_out(at(36), Cause::Blocked, Some(2));
    for (what, mut thread) in [("outs", two_outs), ("ins", two_ins), ("late", late), ("lost", lost)] {
        assert!(settle(&mut thread, at(40), None).is_none(), "{what}");
        thread.switched_in(at(50));
        let recorded = settle(&mut thread, at(60), None).unwrap();
        let place = if what == "late" { 1 } else { 2 };
        assert_eq!(waits(&recorded), [(Cause::Blocked, Some(place), 10)], "{what}");
    }
}

/// Guarantees: a thread with an endless number of switches takes a limited amount of memory, and its records are used
/// again later.
#[test]
fn too_many_records() {
    let start = Instant::now();
    let mut thread = ThreadTimeline::new(start);
    for round in 0..3 * MOST_RECORDS as u64 {
        thread.switched_out(after(start, 2 * round + 1), Cause::Blocked, Some(1));
        thread.switched_in(after(start, 2 * round + 2));
        assert!(thread.events.len() <= MOST_RECORDS);
    }
    let end = 6 * MOST_RECORDS as u64;
    assert!(settle(&mut thread, after(start, end), None).is_none());
    thread.switched_out(after(start, end + 5), Cause::Blocked, Some(1));
    assert_eq!(settle(&mut thread, after(start, end + 10), None).unwrap().waits.len(), 1);
}

/// Guarantees: if records are missing, the comparison with the kernel's counters shows it, whichever of the three sums
/// (running, preempted, switches) is affected; differences within the delay of the counters are accepted.
#[test]
fn compared_with_counters() {
    let (start, at) = clock();
    let settled = |run: u64, wait: u64, timeslices: u64| {
        let mut thread = ThreadTimeline::new(start);
        thread.switched_in(at(1));
        assert!(settle(&mut thread, at(10), counters(100, 50, 1_000)).is_some());
        // 40 times 5 ms of running, 3 ms preempted and 2 ms blocked.
        for turn in 1..=40 {
            thread.switched_out(at(10 * turn + 5), Cause::Preempted, Some(1));
            thread.switched_in(at(10 * turn + 8));
            thread.switched_out(after(start, (10 * turn + 8) * 1_000 + 1), Cause::Blocked, Some(1));
            thread.switched_in(at(10 * turn + 10));
        }
        settle(&mut thread, at(410), counters(100 + run, 50 + wait, 1_000 + timeslices))
    };
    for (run, wait, timeslices) in [(200, 120, 80), (190, 120, 80), (200, 125, 82)] {
        assert!(settled(run, wait, timeslices).is_some(), "{run}, {wait}, {timeslices}");
    }
    for (run, wait, timeslices) in [(300, 120, 80), (200, 60, 80), (200, 120, 160)] {
        assert!(settled(run, wait, timeslices).is_none(), "{run}, {wait}, {timeslices}");
    }
}

/// Guarantees: if the counters show more waiting for a processor than the preempted waits, the rest is assigned to the
/// blocked waits that have ended, in proportion to their lengths; a wait that continues gets none.
#[test]
fn queued_behind_a_wake() {
    let (start, at) = clock();
    let mut thread = ThreadTimeline::new(start);
    thread.switched_in(at(0));
    settle(&mut thread, at(0), counters(0, 0, 1));
    thread.switched_out(at(100), Cause::Preempted, Some(1));
    thread.switched_in(at(200));
    thread.switched_out(at(300), Cause::Blocked, Some(2));
    thread.switched_in(at(400));
    thread.switched_out(at(500), Cause::Blocked, Some(3));
    thread.switched_in(at(800));
    thread.switched_out(at(900), Cause::Blocked, Some(4));
    // 100 ms preempted, plus a quarter of 400 ms blocked.
    let recorded = settle(&mut thread, at(1_000), counters(400, 200, 4)).unwrap();
    let queued: Vec<_> = recorded.waits.iter().map(|wait| (wait.nano / MS, wait.queued_nano / MS)).collect();
    assert_eq!(queued, [(100, 0), (100, 25), (300, 75), (100, 0)]);
}

/// Guarantees: a thread that starts first waits for a processor, and one that has ended does nothing more.
#[test]
fn began_and_ended() {
    let (start, at) = clock();
    let mut thread = ThreadTimeline::<u32>::new(start);
    thread.started(at(100));
    thread.switched_in(at(103));
    thread.switched_out(at(110), Cause::Blocked, Some(1));
    thread.switched_in(at(120));
    thread.ended(at(125));
    assert_eq!(thread.latest(), Latest::Ended);
    let recorded = settle(&mut thread, at(200), None).unwrap();
    assert_eq!((recorded.began, recorded.ended), (Some(at(100)), Some(at(125))));
    assert_eq!(waits(&recorded), [(Cause::Preempted, None, 3), (Cause::Blocked, Some(1), 10)]);
    let recorded = settle(&mut thread, at(300), None).unwrap();
    assert_eq!((waits(&recorded), recorded.began, recorded.ended), (vec![], None, Some(at(125))));
}

/// Guarantees: a wait without a place gets the places of waits with the same cause and similar length, in proportion;
/// if there is no wait of the same cause, it stays without a place.
#[test]
fn places_of_like_waits() {
    let start = Instant::now();
    let mut thread = ThreadTimeline::new(start);
    let (mut now, mut sums) = (0, HashMap::<_, u64>::new());
    thread.switched_in(start);
    for turn in 0..400 {
        // Of waits of 4 ms, three in four are at place 1; those of 50 us are at place 2. The place of every eighth wait
        // is known.
        for (micros, place) in [(4_000, if turn % 4 == 0 { 3 } else { 1 }), (50, 2)] {
            let place = (turn / 4 % 8 == 0).then_some(place);
            thread.switched_out(after(start, now + 10), Cause::Blocked, place);
            thread.switched_in(after(start, now + 10 + micros));
            now += 10 + micros;
        }
    }
    thread.switched_out(after(start, now), Cause::Preempted, None);
    for wait in settle(&mut thread, after(start, now + 100), None).unwrap().waits {
        assert_eq!(wait.place.is_none(), wait.cause == Cause::Preempted);
        *sums.entry(wait.place).or_default() += wait.nano / 1_000;
    }
    assert_eq!((sums[&Some(2)], sums[&None]), (400 * 50, 100));
    let share = sums[&Some(3)] as f64 / (400.0 * 4_000.0);
    assert!((share - 0.25).abs() < 0.02, "{share}");
}

/// Guarantees: a wait without a place does not get one from a wait long before or long after it while other waits are
/// nearer in time; and none from a wait beyond the limit.
#[test]
fn places_of_about_that_time() {
    let (start, at) = clock();
    let mut thread = ThreadTimeline::new(start);
    thread.switched_in(start);
    // A wait of 4 ms every 10 ms; the place of every second one is known. Every 300 ms the thread moves to another
    // place.
    for turn in 0..400_u64 {
        let place = (turn % 2 == 0).then_some((turn / 30) as u32);
        thread.switched_out(at(turn * 10), Cause::Preempted, place);
        thread.switched_in(at(turn * 10 + 4));
    }
    let late = 4_000 + 2 * MOST_APART_PREEMPTED.as_millis() as u64;
    thread.switched_out(at(late), Cause::Preempted, None);
    let waits = settle(&mut thread, at(late + 4), None).unwrap().waits;
    for wait in &waits[..400] {
        let turn = (wait.begins - start).as_millis() as u64 / 10;
        let near = turn.saturating_sub(16) / 30..=(turn + 16) / 30;
        assert!(wait.place.is_some_and(|place| near.contains(&u64::from(place))), "{turn}: {:?}", wait.place);
    }
    assert_eq!(waits[400].place, None);
}

proptest! {
    /// Guarantees: no matter how records are divided into spans and shuffled within a span, running time and the time
    /// of each cause and place are exact to the nanosecond. The observations have the same sums, and are no more than
    /// the long waits plus the limit.
    #[test]
    fn all_time_is_where_it_was(
        // Each turn runs for this many microseconds and then waits, preempted or blocked, at a place.
        turns in prop::collection::vec((1u64..3_000, 1u64..20_000, any::<bool>(), 0u32..9), 1..120),
        stretches in prop::collection::vec(1u64..200_000, 1..12),
        most in 1usize..12,
        seed: u64,
    ) {
        let start = Instant::now();
        let mut thread = ThreadTimeline::new(start);
        let (mut records, mut truth, mut now) = (Vec::new(), HashMap::<_, u64>::new(), 0);
        let end: u64 = stretches.iter().sum();
        for &(run, wait, preempted, place) in turns.iter().cycle() {
            let cause = if preempted { Cause::Preempted } else { Cause::Blocked };
            let within = |from: u64, length: u64| 1_000 * (end.saturating_sub(from)).min(length);
            *truth.entry(None).or_default() += within(now, run);
            *truth.entry(Some((cause, place))).or_default() += within(now + run, wait);
            records.push((now + run, Some((cause, place))));
            now += run + wait;
            records.push((now, None));
            if now > end {
                break;
            }
        }
        truth.retain(|_, nano| *nano > 0);
        let mut records = records.into_iter().peekable();
        let (mut until, mut found, mut settled, mut state) = (0, HashMap::<_, u64>::new(), true, seed);
        for stretch in &stretches {
            until += stretch;
            let mut due = Vec::new();
            while let Some(record) = records.next_if(|(at, _)| *at <= until) {
                due.push(record);
            }
            // Records from several processors, in any order.
            for index in (1..due.len()).rev() {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                due.swap(index, (state >> 33) as usize % (index + 1));
            }
            for (at, out) in due {
                match out {
                    Some((cause, place)) => thread.switched_out(after(start, at), cause, Some(place)),
                    None => thread.switched_in(after(start, at)),
                }
            }
            let Some(recorded) = settle(&mut thread, after(start, until), None) else {
                settled = false;
                break;
            };
            let waits = recorded.waits;
            let waited: u64 = waits.iter().map(|wait| wait.nano).sum();
            let long = 5_000_000;
            let number = waits.iter().filter(|wait| wait.nano >= long).count();
            *found.entry(None).or_default() += stretch * 1_000 - waited;
            for wait in &waits {
                *found.entry(Some((wait.cause, wait.place.unwrap()))).or_default() += wait.nano;
            }
            let observations = condense(waits, long, most);
            prop_assert!(observations.len() <= number + most, "{} of {number} and {most}", observations.len());
            prop_assert!(observations.is_sorted_by_key(|observation| observation.at));
            prop_assert_eq!(observations.iter().map(|observation| observation.nano).sum::<u64>(), waited);
        }
        // Without any record, nothing is known.
        prop_assert!(settled || turns[0].0 > stretches[0]);
        if settled {
            found.retain(|_, nano| *nano > 0);
            prop_assert_eq!(found, truth);
        }
    }
}

/// A wait for a processor of this many nanoseconds.
fn preempted(begins: Instant, nano: u64, place: u64) -> Wait<u64> {
    Wait {
        begins,
        nano,
        queued_nano: 0,
        cause: Cause::Preempted,
        place: Some(place),
        shared: false,
        whole_nano: nano,
        ended: true,
    }
}

/// Guarantees: short waits at one place are added up only over a short time, so that each sum is near its waits; unless
/// all of them together are shorter than one long wait.
#[test]
fn near_sums() {
    let start = Instant::now();
    let of = |nano: u64| (0..500).map(|number| preempted(after(start, number * 1_000), nano, 0)).collect::<Vec<_>>();
    let observations = condense(of(500_000), 5 * MS, 64);
    assert_eq!(observations.iter().map(|observation| observation.nano).sum::<u64>(), 250 * MS);
    assert!(observations.iter().all(|observation| observation.nano <= 25 * MS), "{observations:?}");
    assert_eq!(condense(of(5_000), 5 * MS, 64).len(), 1);
}

/// Guarantees: if there are too many short waits, each place keeps its share of the time, as if the thread had been
/// examined `most` times.
#[test]
fn many_places() {
    let start = Instant::now();
    let mut waits = Vec::new();
    for number in 0..6_000u64 {
        // Half of the time is at place 0, the other half at as many places as there are waits.
        let place = if number % 2 == 0 { 0 } else { number };
        let (begins, nano) = (after(start, number * 10), 10_000);
        waits.push(preempted(begins, nano, place));
    }
    let observations = condense(waits, 5 * MS, 64);
    assert!(observations.len() <= 64);
    let all: u64 = observations.iter().map(|observation| observation.nano).sum();
    let at_one: u64 = observations.iter().filter(|of| of.place == Some(0)).map(|of| of.nano).sum();
    assert_eq!(all, 60 * MS);
    assert!(at_one.abs_diff(30 * MS) <= MS, "{at_one}");
}
