use proptest::prelude::*;

use super::*;

const MS: u64 = 1_000_000;
const RULES: Rules =
    Rules { period_nano: 10 * MS, kernel_nano: 0, duty_divisor: 1, cpu: false, ready: false, next: Next::Same };

fn sched(run: u64, wait: u64) -> SchedStat {
    SchedStat { run_nano: run * MS, wait_nano: wait * MS, timeslices: 1 }
}

fn after(start: Instant, ms: u64) -> Instant {
    start + Duration::from_millis(ms)
}

/// A ledger of a thread whose counters were 100 and 50 ms.
fn ledger(start: Instant) -> Ledger {
    let mut ledger = Ledger::new(start);
    ledger.saw(sched(100, 50));
    ledger
}

fn weights(settled: &Settled) -> Vec<u64> {
    settled.samples.iter().map(|(_, stretch)| stretch.nano / MS).collect()
}

fn rests(settled: &Settled) -> Vec<(Rest, u64)> {
    settled.rests.iter().map(|(rest, stretch)| (*rest, stretch.nano / MS)).collect()
}

/// Guarantees: a thread that works for 1 ms and waits for 4 has a fifth of the time at its work, whatever the number of
/// looks that met it blocked: the processor's time never goes to a stack that was read while it was blocked.
#[test]
fn duty_cycle() {
    let start = Instant::now();
    let mut ledger = ledger(start);
    for sample in 0..8 {
        ledger.on_cpu(sample * 2, 10 * MS);
        ledger.blocked(sample * 2 + 1, after(start, 50), sched(0, 0));
    }
    let settled = ledger.settle(after(start, 500), Some(sched(200, 50)), RULES);
    // 12.5 and 50 ms.
    assert_eq!(weights(&settled), [12, 50].repeat(8));
    assert!(settled.rests.is_empty());
}

/// Guarantees: what ran without a sample is said as not sampled. Samples never stand for it beyond twice what they were
/// taken for, and a share too small to mean anything waits.
#[test]
fn unsampled() {
    let start = Instant::now();
    let mut ledger = ledger(start);
    let settled = ledger.settle(after(start, 100), Some(sched(200, 50)), RULES);
    assert_eq!(rests(&settled), [(Rest::NotSampled, 100)]);
    ledger.on_cpu(0, 10 * MS);
    let settled = ledger.settle(after(start, 200), Some(sched(300, 50)), RULES);
    assert_eq!((weights(&settled), rests(&settled)), (vec![20], vec![(Rest::NotSampled, 80)]));
    for later in [210, 259] {
        let settled = ledger.settle(after(start, later), Some(sched(later + 100, 50)), RULES);
        assert!(settled.samples.is_empty() && settled.rests.is_empty());
    }
    let settled = ledger.settle(after(start, 260), Some(sched(360, 50)), RULES);
    assert_eq!(rests(&settled), [(Rest::NotSampled, 60)]);
}

/// Guarantees: where the kernel may not be seen, what is known to have been spent there has its part of the time, as if
/// it had been sampled; what an event was not there for is not sampled, and never said to be time in the kernel.
#[test]
fn in_the_kernel() {
    let start = Instant::now();
    let mut ledger = ledger(start);
    let hidden = |periods: u64| Rules { kernel_nano: periods * 10 * MS, ..RULES };
    // All of it, as for a program that copies large files.
    let settled = ledger.settle(after(start, 100), Some(sched(200, 50)), hidden(10));
    assert_eq!((weights(&settled), rests(&settled)), (vec![], vec![(Rest::InTheKernel, 100)]));
    // A quarter, of a thread whose counters say somewhat more than the samples.
    for sample in 0..6 {
        ledger.on_cpu(sample, 10 * MS);
    }
    let settled = ledger.settle(after(start, 200), Some(sched(288, 50)), hidden(2));
    assert_eq!((weights(&settled), rests(&settled)), (vec![11; 6], vec![(Rest::InTheKernel, 22)]));
    // None, of a thread that had its event for a moment only.
    let settled = ledger.settle(after(start, 300), Some(sched(388, 50)), hidden(0));
    assert_eq!(rests(&settled), [(Rest::NotSampled, 100)]);
    let settled = ledger.settle(after(start, 400), Some(sched(488, 50)), hidden(1));
    assert_eq!(rests(&settled), [(Rest::InTheKernel, 20), (Rest::NotSampled, 80)]);
}

/// Guarantees: before samples that do not stand for the time until then, all of that time is settled, however little it
/// is.
#[test]
fn other_samples() {
    let start = Instant::now();
    let mut ledger = ledger(start);
    let settled = ledger.settle(after(start, 30), Some(sched(130, 50)), Rules { next: Next::Other, ..RULES });
    assert_eq!(rests(&settled), [(Rest::NotSampled, 30)]);
    ledger.on_cpu(0, 10 * MS);
    let settled = ledger.settle(after(start, 40), Some(sched(140, 50)), RULES);
    assert_eq!((weights(&settled), rests(&settled)), (vec![10], vec![]));
}

/// Guarantees: an event that is open for a fifth of the time only has samples that stand for all of it.
#[test]
fn duty_divisor() {
    let start = Instant::now();
    let mut ledger = ledger(start);
    ledger.on_cpu(0, 10 * MS);
    ledger.on_cpu(1, 10 * MS);
    let settled = ledger.settle(after(start, 100), Some(sched(200, 50)), Rules { duty_divisor: 5, ..RULES });
    assert_eq!((weights(&settled), rests(&settled)), (vec![50, 50], vec![]));
}

/// Guarantees: waiting for a processor is a part of its own.
#[test]
fn queue() {
    let start = Instant::now();
    let mut ledger = ledger(start);
    ledger.on_cpu(0, 10 * MS);
    ledger.blocked(1, after(start, 90), sched(120, 100));
    let settled = ledger.settle(after(start, 100), Some(sched(120, 100)), RULES);
    assert_eq!((weights(&settled), rests(&settled)), (vec![20, 30], vec![(Rest::WaitingForProcessor, 50)]));
    assert_eq!(ledger.last_blocked(), Some((after(start, 90), sched(120, 100))));
}

/// Guarantees: a thread that was ready whenever it was looked at and did not run waits for a processor, although the
/// kernel counts that only when the wait ends; what was said of it is not said once more then. One that was never
/// looked at while it was ready is not taken to wait for one.
#[test]
fn waits_that_have_not_ended() {
    let start = Instant::now();
    let ready = Rules { ready: true, ..RULES };
    let mut waiting = ledger(start);
    let settled = waiting.settle(after(start, 100), Some(sched(100, 50)), ready);
    assert_eq!(rests(&settled), [(Rest::WaitingForProcessor, 100)]);
    // The wait ends after 130 ms, and 20 ms of running follow.
    waiting.on_cpu(0, 10 * MS);
    let settled = waiting.settle(after(start, 150), Some(sched(120, 180)), ready);
    assert_eq!((weights(&settled), rests(&settled)), (vec![20], vec![(Rest::WaitingForProcessor, 30)]));
    let settled = ledger(start).settle(after(start, 100), Some(sched(100, 50)), RULES);
    assert_eq!(rests(&settled), [(Rest::NotSeen, 100)]);
}

/// Guarantees: the processor's time alone is what counts in mode cpu.
#[test]
fn cpu() {
    let start = Instant::now();
    let mut ledger = ledger(start);
    ledger.on_cpu(0, 10 * MS);
    let settled = ledger.settle(after(start, 100), Some(sched(190, 90)), Rules { cpu: true, ..RULES });
    assert_eq!((weights(&settled), rests(&settled)), (vec![20], vec![(Rest::NotSampled, 70)]));
}

/// Guarantees: a thread that is gone leaves what its samples were taken for, and its waits the rest.
#[test]
fn gone() {
    let start = Instant::now();
    let mut ledger = ledger(start);
    ledger.on_cpu(0, 10 * MS);
    ledger.blocked(1, after(start, 50), sched(110, 50));
    let settled = ledger.settle(after(start, 100), None, Rules { next: Next::Nothing, ..RULES });
    assert_eq!((weights(&settled), rests(&settled)), (vec![10, 90], vec![]));
}

proptest! {
    /// Guarantees: run, queue and blocked are the time that passed, to the nanosecond, however samples and looks fall
    /// and however late the counters are; samples follow each other without gaps.
    #[test]
    fn all_time_is_accounted_for(
        batches in prop::collection::vec((
            1u64..600, 0u64..100, 0u64..100, prop::collection::vec(any::<bool>(), 0..12), 0u64..12, 1u64..4, any::<bool>(),
            any::<bool>(),
        ), 1..12),
    ) {
        let start = Instant::now();
        let mut ledger = ledger(start);
        let (mut now, mut run, mut wait, mut sample, mut sum) = (start, 100, 50, 0, 0);
        let mut end = start;
        let last = batches.len() - 1;
        for (number, (wall, ran, queued, entries, periods, duty_divisor, ready, other)) in batches.into_iter().enumerate() {
            now += Duration::from_millis(wall);
            run += wall * ran / 100;
            wait += (wall - wall * ran / 100) * queued / 100;
            for on_cpu in entries {
                if on_cpu {
                    ledger.on_cpu(sample, 10 * MS);
                } else {
                    ledger.blocked(sample, now, sched(run, wait));
                }
                sample += 1;
            }
            let next = match (number == last, other) {
                (true, _) => Next::Nothing,
                (_, true) => Next::Other,
                _ => Next::Same,
            };
            let rules = Rules { kernel_nano: periods * 10 * MS, duty_divisor, ready, next, ..RULES };
            let settled = ledger.settle(now, Some(sched(run, wait)), rules);
            prop_assert!(ledger.is_empty());
            let rests = settled.rests.iter().map(|(_, stretch)| *stretch);
            for stretch in settled.samples.iter().map(|(_, stretch)| *stretch).chain(rests) {
                prop_assert_eq!(stretch.begins, end);
                end += Duration::from_nanos(stretch.nano);
                sum += stretch.nano;
            }
            prop_assert!(end <= now);
        }
        prop_assert_eq!(end, now);
        prop_assert_eq!(u128::from(sum), (now - start).as_nanos());
    }
}
