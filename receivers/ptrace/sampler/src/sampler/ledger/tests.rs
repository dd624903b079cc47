use proptest::prelude::*;

use super::*;

const MS: u64 = 1_000_000;
const RULES: SettleRules = SettleRules {
    period_nano: 10 * MS,
    kernel_nano: 0,
    duty_divisor: 1,
    pooled: false,
    cpu: false,
    ready: false,
    next: WhatFollows::Same,
    basis: TimeSource::COUNTERS,
};

fn sched(run: u64, wait: u64) -> SchedStat {
    SchedStat { run_nano: run * MS, wait_nano: wait * MS, timeslices: 1 }
}

fn after(start: Instant, ms: u64) -> Instant {
    start + Duration::from_millis(ms)
}

/// A ledger of a thread whose counters show 100 ms of running and 50 ms of waiting for a processor.
fn ledger(start: Instant) -> ThreadLedger {
    let mut ledger = ThreadLedger::new(start);
    ledger.note_counters(sched(100, 50));
    ledger
}

fn weights(settled: &Settled) -> Vec<u64> {
    settled.samples.iter().map(|(_, stretch)| stretch.nano / MS).collect()
}

/// The total of each kind of time without samples, in milliseconds.
fn without_samples(settled: &Settled) -> Vec<(Unsampled, u64)> {
    let mut sums: Vec<(Unsampled, u64)> = Vec::new();
    for (rest, stretch) in &settled.without_samples {
        match sums.iter_mut().find(|(of, _)| of == rest) {
            Some((_, sum)) => *sum += stretch.nano,
            None => sums.push((*rest, stretch.nano)),
        }
    }
    sums.into_iter().map(|(rest, sum)| (rest, sum / MS)).collect()
}

/// The beginning and end of each sample, and of each time without a sample, in milliseconds.
fn places(settled: &Settled, start: Instant) -> (Vec<[u64; 2]>, Vec<[u64; 2]>) {
    let place = |stretch: &TimeSpan| {
        let begins = nano(stretch.begins - start);
        [begins / MS, (begins + stretch.nano) / MS]
    };
    let samples = settled.samples.iter().map(|(_, stretch)| place(stretch)).collect();
    (samples, settled.without_samples.iter().map(|(_, stretch)| place(stretch)).collect())
}

/// Guarantees: a thread that works for 1 ms and waits for 4 gets a fifth of the time for its work, no matter how many
/// examinations found it blocked: processor time is never assigned to a stack that was read while the thread was
/// blocked.
#[test]
fn duty_cycle() {
    let start = Instant::now();
    let mut ledger = ledger(start);
    for sample in 0..8 {
        let at = u64::from(sample) * 62;
        ledger.on_cpu(sample * 2, after(start, at + 10), 10 * MS);
        ledger.blocked(sample * 2 + 1, after(start, at + 20), sched(0, 0));
    }
    let settled = ledger.settle(after(start, 500), Some(sched(200, 50)), RULES);
    // Each running sample covers 12.5 ms, each blocked one 50 ms.
    assert_eq!(weights(&settled), [12, 50].repeat(8));
    assert!(settled.without_samples.is_empty());
}

/// Guarantees: running time without a sample is reported as not sampled. Samples cover at most twice their periods, and
/// an insignificant remainder is carried over.
#[test]
fn unsampled() {
    let start = Instant::now();
    let mut ledger = ledger(start);
    let settled = ledger.settle(after(start, 100), Some(sched(200, 50)), RULES);
    assert_eq!(without_samples(&settled), [(Unsampled::NotSampled, 100)]);
    ledger.on_cpu(0, after(start, 110), 10 * MS);
    let settled = ledger.settle(after(start, 200), Some(sched(300, 50)), RULES);
    assert_eq!((weights(&settled), without_samples(&settled)), (vec![20], vec![(Unsampled::NotSampled, 80)]));
    for later in [210, 259] {
        let settled = ledger.settle(after(start, later), Some(sched(later + 100, 50)), RULES);
        assert!(settled.samples.is_empty() && settled.without_samples.is_empty());
    }
    let settled = ledger.settle(after(start, 260), Some(sched(360, 50)), RULES);
    assert_eq!(without_samples(&settled), [(Unsampled::NotSampled, 60)]);
}

/// Guarantees: if the kernel may not be sampled, time known to have been spent in the kernel gets its share as if it
/// had been sampled; time without an open event is reported as not sampled, never as time in the kernel.
#[test]
fn in_the_kernel() {
    let start = Instant::now();
    let mut ledger = ledger(start);
    let hidden = |periods: u64| SettleRules { kernel_nano: periods * 10 * MS, ..RULES };
    // All of the time is spent in the kernel, as by a program that copies large files.
    let settled = ledger.settle(after(start, 100), Some(sched(200, 50)), hidden(10));
    assert_eq!((weights(&settled), without_samples(&settled)), (vec![], vec![(Unsampled::InTheKernel, 100)]));
    // A quarter of the time is spent in the kernel, and the counters show a little more than the samples.
    for sample in 0..6 {
        ledger.on_cpu(sample, after(start, 110 + 11 * u64::from(sample)), 10 * MS);
    }
    let settled = ledger.settle(after(start, 200), Some(sched(288, 50)), hidden(2));
    assert_eq!((weights(&settled), without_samples(&settled)), (vec![11; 6], vec![(Unsampled::InTheKernel, 22)]));
    // None of the time is spent in the kernel, and the thread had its event only briefly.
    let settled = ledger.settle(after(start, 300), Some(sched(388, 50)), hidden(0));
    assert_eq!(without_samples(&settled), [(Unsampled::NotSampled, 100)]);
    let settled = ledger.settle(after(start, 400), Some(sched(488, 50)), hidden(1));
    assert_eq!(without_samples(&settled), [(Unsampled::InTheKernel, 20), (Unsampled::NotSampled, 80)]);
}

/// Guarantees: if later samples must not cover the time so far, all of that time is settled, however short.
#[test]
fn other_samples() {
    let start = Instant::now();
    let mut ledger = ledger(start);
    let settled =
        ledger.settle(after(start, 30), Some(sched(130, 50)), SettleRules { next: WhatFollows::Other, ..RULES });
    assert_eq!(without_samples(&settled), [(Unsampled::NotSampled, 30)]);
    ledger.on_cpu(0, after(start, 40), 10 * MS);
    let settled = ledger.settle(after(start, 40), Some(sched(140, 50)), RULES);
    assert_eq!((weights(&settled), without_samples(&settled)), (vec![10], vec![]));
}

/// Guarantees: if an event is open for only a fifth of the time, its samples cover all of it.
#[test]
fn duty_divisor() {
    let start = Instant::now();
    let mut ledger = ledger(start);
    ledger.on_cpu(0, after(start, 10), 10 * MS);
    ledger.on_cpu(1, after(start, 20), 10 * MS);
    let settled = ledger.settle(after(start, 100), Some(sched(200, 50)), SettleRules { duty_divisor: 5, ..RULES });
    assert_eq!((weights(&settled), without_samples(&settled)), (vec![50, 50], vec![]));
    assert_eq!(places(&settled, start).0, [[0, 50], [50, 100]], "they stand for the time without it as well");
}

/// Guarantees: waiting for a processor is reported separately.
#[test]
fn queue() {
    let start = Instant::now();
    let mut ledger = ledger(start);
    ledger.on_cpu(0, after(start, 10), 10 * MS);
    ledger.blocked(1, after(start, 90), sched(120, 100));
    let settled = ledger.settle(after(start, 100), Some(sched(120, 100)), RULES);
    assert_eq!(
        (weights(&settled), without_samples(&settled)),
        (vec![20, 30], vec![(Unsampled::WaitingForProcessor, 50)])
    );
    assert_eq!(ledger.last_blocked(), Some((after(start, 90), sched(120, 100))));
}

/// Guarantees: a thread that was ready but not running whenever it was examined counts as waiting for a processor,
/// although the kernel counts the wait only when it ends; then it is not reported again. A thread that was never found
/// ready does not count as waiting for a processor.
#[test]
fn waits_that_have_not_ended() {
    let start = Instant::now();
    let ready = SettleRules { ready: true, ..RULES };
    let mut waiting = ledger(start);
    let settled = waiting.settle(after(start, 100), Some(sched(100, 50)), ready);
    assert_eq!(without_samples(&settled), [(Unsampled::WaitingForProcessor, 100)]);
    // The wait ends after 130 ms, and 20 ms of running follow.
    waiting.on_cpu(0, after(start, 140), 10 * MS);
    let settled = waiting.settle(after(start, 150), Some(sched(120, 180)), ready);
    assert_eq!((weights(&settled), without_samples(&settled)), (vec![20], vec![(Unsampled::WaitingForProcessor, 30)]));
    let settled = ledger(start).settle(after(start, 100), Some(sched(100, 50)), RULES);
    assert_eq!(without_samples(&settled), [(Unsampled::NotSeen, 100)]);
}

/// Guarantees: in cpu mode only processor time counts.
#[test]
fn cpu() {
    let start = Instant::now();
    let mut ledger = ledger(start);
    ledger.on_cpu(0, after(start, 40), 10 * MS);
    let settled = ledger.settle(after(start, 100), Some(sched(190, 90)), SettleRules { cpu: true, ..RULES });
    assert_eq!((weights(&settled), without_samples(&settled)), (vec![20], vec![(Unsampled::NotSampled, 70)]));
    ledger.on_cpu(0, after(start, 140), 10 * MS);
    ledger.on_cpu(1, after(start, 190), 10 * MS);
    let settled = ledger.settle(after(start, 200), Some(sched(210, 90)), SettleRules { cpu: true, ..RULES });
    assert_eq!((places(&settled, start), without_samples(&settled)), ((vec![[130, 140], [180, 190]], vec![]), vec![]));
}

/// Guarantees: a thread that has ended ran for the periods of its samples, and waited for the rest of the time up to
/// the middle between its last observation and the moment when it was found to have ended.
#[test]
fn gone() {
    let start = Instant::now();
    let mut ledger = ledger(start);
    ledger.on_cpu(0, after(start, 10), 10 * MS);
    ledger.blocked(1, after(start, 50), sched(110, 50));
    let settled = ledger.settle(after(start, 100), None, SettleRules { next: WhatFollows::Nothing, ..RULES });
    assert_eq!((weights(&settled), without_samples(&settled)), (vec![10, 65], vec![]));
}

/// Guarantees: a thread that has ended and was never found blocked has no waiting time; its running time at the last
/// reading of the counters is reported, the part beyond its samples as not sampled, and none of it after its end.
#[test]
fn gone_while_it_ran() {
    let start = Instant::now();
    let gone = SettleRules { next: WhatFollows::Nothing, ..RULES };
    let mut sampled = ledger(start);
    sampled.on_cpu(0, after(start, 10), 10 * MS);
    let settled = sampled.settle(after(start, 40), None, gone);
    assert_eq!((weights(&settled), without_samples(&settled)), (vec![10], vec![]));
    let mut unsampled = ledger(start);
    unsampled.note_counters(sched(106, 50));
    let settled = unsampled.settle(after(start, 20), None, gone);
    assert_eq!((weights(&settled), without_samples(&settled)), (vec![], vec![(Unsampled::NotSampled, 6)]));
    assert!(settled.without_samples.iter().all(|(_, stretch)| stretch.begins <= after(start, 10)));
    for ledger in [&mut sampled, &mut unsampled] {
        assert_eq!(ledger.unaccounted(sched(100, 50)), 0, "all is settled");
        assert_eq!(ledger.settle(after(start, 60), None, gone).ran_nano, 0);
    }
}

/// Guarantees: the total waiting time of waiting threads that live shorter than the interval between examinations
/// equals their total lifetime, no matter when they are examined.
#[test]
fn short_lives_add_up() {
    let start = Instant::now();
    let (period, life) = (10_000, 2_500);
    let micros = |micros: u64| start + Duration::from_micros(micros);
    let mut waited = 0;
    // One examination per period; one thread starts at each of these times.
    for begins in (period..2 * period).step_by(100) {
        for look in [2 * period, 3 * period].into_iter().filter(|look| (begins..begins + life).contains(look)) {
            let mut short = ThreadLedger::new(micros(look - period / 2));
            short.blocked(0, micros(look), sched(0, 0));
            let settled =
                short.settle(micros(look + period), None, SettleRules { next: WhatFollows::Nothing, ..RULES });
            waited += settled.samples.iter().map(|(_, stretch)| stretch.nano / 1_000).sum::<u64>();
        }
    }
    let lived = 100 * life;
    assert!(waited.abs_diff(lived) <= lived / 20, "{waited} us, and they lived {lived} us");
}

/// Guarantees: each activity is placed at the time when the thread was observed in it, no matter what came before it in
/// the batch: a wait for a processor between two samples is placed between them.
#[test]
fn time_is_where_it_was_seen() {
    let start = Instant::now();
    // The thread runs from 10 to 30 ms, waits for a processor until 400 ms, and then runs again.
    let mut crowded = ledger(start);
    for (sample, at) in [10, 20, 30, 410, 420, 430, 440, 450, 460, 470, 480, 490, 500].into_iter().enumerate() {
        crowded.on_cpu(sample as u32, after(start, at), 10 * MS);
    }
    let settled = crowded.settle(after(start, 500), Some(sched(230, 420)), RULES);
    let (samples, without_samples) = places(&settled, start);
    assert_eq!(without_samples, [[30, 400]]);
    let ends = [10, 20, 30, 410, 420, 430, 440, 450, 460, 470, 480, 490, 500];
    assert_eq!(samples, ends.map(|end| [end - 10, end]));
    // A thread that is blocked at the beginning and at the end, and whose samples are read after a later examination.
    let mut blocked = ledger(start);
    for at in (10..=200).step_by(10) {
        blocked.blocked(0, after(start, at), sched(100, 50));
    }
    for at in (410..=500).step_by(10) {
        blocked.blocked(1, after(start, at), sched(280, 70));
    }
    for sample in 0..18 {
        blocked.on_cpu(2 + sample, after(start, 230 + 10 * u64::from(sample)), 10 * MS);
    }
    let settled = blocked.settle(after(start, 500), Some(sched(280, 70)), RULES);
    let (samples, without_samples) = places(&settled, start);
    assert_eq!((samples[0], samples[1], samples[18], samples[19]), ([0, 200], [220, 230], [390, 400], [400, 500]));
    assert_eq!((without_samples, settled.samples[19].0), (vec![[200, 220]], 1));
}

/// Guarantees: if records show the length of each wait, the thread waits for exactly that time and runs for the rest,
/// across batches, no matter what the counters say. The running time is divided among samples of the running thread;
/// what they cannot cover is carried over or reported as not sampled. A difference from the counters is not corrected
/// later.
#[test]
fn by_records() {
    let start = Instant::now();
    let records = |began, ended| SettleRules { basis: TimeSource::Records { began, ended }, ..RULES };
    let mut thread = ledger(start);
    thread.waited(0, after(start, 5), 30 * MS);
    thread.on_cpu(1, after(start, 50), 10 * MS);
    thread.waited(2, after(start, 60), 40 * MS);
    let settled = thread.settle(after(start, 100), Some(sched(128, 90)), records(None, false));
    assert_eq!((weights(&settled), without_samples(&settled)), (vec![30, 20, 40], vec![]));
    assert_eq!((settled.ran_nano, thread.unaccounted(sched(128, 90))), (18 * MS, 10 * i128::from(MS)));
    // 10 ms of running time are carried over.
    thread.waited(0, after(start, 100), 50 * MS);
    let settled = thread.settle(after(start, 200), None, records(None, false));
    assert_eq!((weights(&settled), without_samples(&settled)), (vec![50], vec![(Unsampled::NotSampled, 60)]));
    let settled = thread.settle(after(start, 300), Some(sched(278, 90)), records(None, true));
    assert_eq!(
        (without_samples(&settled), thread.unaccounted(sched(999, 90))),
        (vec![(Unsampled::NotSampled, 100)], 0)
    );
    // A thread that started after the threads were listed has no time before its start.
    let mut born = ThreadLedger::new(start);
    born.waited(0, after(start, 40), 10 * MS);
    let settled = born.settle(after(start, 55), None, records(Some(after(start, 40)), true));
    assert_eq!((places(&settled, start).0, without_samples(&settled)), (vec![[40, 50]], vec![]));
}

/// Guarantees: if records are missing, an unfinished wait for a processor is not assigned to blocked stacks, and is not
/// reported again when the kernel counts it.
#[test]
fn waits_without_all_records() {
    let start = Instant::now();
    let preempted = |ms: u64| SettleRules { basis: TimeSource::Counters { preempted_nano: ms * MS }, ..RULES };
    let mut thread = ledger(start);
    thread.waited(0, after(start, 10), 10 * MS);
    let settled = thread.settle(after(start, 100), Some(sched(120, 60)), preempted(40));
    assert_eq!((weights(&settled), without_samples(&settled)), (vec![30], vec![(Unsampled::WaitingForProcessor, 50)]));
    let settled = thread.settle(after(start, 200), Some(sched(120, 190)), preempted(0));
    assert_eq!(without_samples(&settled), [(Unsampled::WaitingForProcessor, 90)]);
}

/// A thread in a batch: the length of the batch, the share in which the thread ran, the share of the rest in which it
/// waited for a processor, the times of its samples and whether it ran at each, time in the kernel, whether its event
/// was open for only a part of the time, whether it was ready, and what follows.
type Drawn = (u64, u64, u64, Vec<(u64, bool)>, u64, u64, bool, bool);

proptest! {
    /// Guarantees: running, waiting for a processor and being blocked add up to the elapsed time, to the nanosecond, no
    /// matter when samples and examinations are taken and how late the counters are; and they follow each other without
    /// overlap and without a gap, across batches. In cpu mode nothing overlaps.
    #[test]
    fn all_time_is_accounted_for(
        batches in prop::collection::vec((
            1u64..600, 0u64..100, 0u64..100, prop::collection::vec((0u64..100, any::<bool>()), 0..12), 0u64..12, 1u64..4,
            any::<bool>(), any::<bool>(),
        ), 1..12),
        cpu: bool,
    ) {
        let start = Instant::now();
        let mut ledger = ledger(start);
        let (mut now, mut run, mut wait, mut sum) = (start, 100, 50, 0);
        let last = batches.len() - 1;
        for (number, batch) in batches.into_iter().enumerate() {
            let (wall, ran, queued, entries, periods, duty_divisor, ready, other): Drawn = batch;
            let since = ledger.since;
            let begins = now;
            now += Duration::from_millis(wall);
            run += wall * ran / 100;
            wait += (wall - wall * ran / 100) * queued / 100;
            let mut taken: Vec<(Instant, bool)> = entries
                .into_iter()
                .filter(|(_, on_cpu)| *on_cpu || !cpu)
                .map(|(part, on_cpu)| (begins + Duration::from_micros(wall * part * 10), on_cpu))
                .collect();
            for (sample, (at, on_cpu)) in taken.iter().enumerate() {
                match on_cpu {
                    true => ledger.on_cpu(sample as u32, *at, 10 * MS),
                    false => ledger.blocked(sample as u32, *at, sched(run, wait)),
                }
            }
            taken.sort_by_key(|(at, _)| *at);
            let next = match (number == last, other) {
                (true, _) => WhatFollows::Nothing,
                (_, true) => WhatFollows::Other,
                _ => WhatFollows::Same,
            };
            let rules = SettleRules { kernel_nano: periods * 10 * MS, duty_divisor, ready, next, cpu, ..RULES };
            let settled = ledger.settle(now, Some(sched(run, wait)), rules);
            prop_assert!(ledger.is_empty());
            prop_assert_eq!(settled.samples.len(), taken.len());
            let mut all: Vec<TimeSpan> = settled.samples.iter().map(|(_, stretch)| *stretch).collect();
            all.extend(settled.without_samples.iter().map(|(_, stretch)| *stretch));
            sum += all.iter().map(|stretch| stretch.nano).sum::<u64>();
            all.sort_by_key(|stretch| (stretch.begins, stretch.nano));
            let mut end = since;
            for stretch in all {
                prop_assert!(stretch.begins == end || cpu && stretch.begins > end);
                end = stretch.begins + Duration::from_nanos(stretch.nano);
            }
            prop_assert!(end == ledger.since || cpu && end < ledger.since);
        }
        if !cpu {
            prop_assert_eq!(u128::from(sum), (now - start).as_nanos());
        }
    }
}
