use proptest::prelude::*;

use super::*;

fn ticks(user: u64, kernel: u64) -> ProcessorTicks {
    ProcessorTicks { user, kernel }
}

/// Guarantees: a thread that stays in its own code may be stopped after two seconds of processor time since the first
/// reading, and not earlier.
#[test]
fn two_seconds() {
    let (mut rule, now) = (UserBound::default(), Instant::now());
    assert!(!rule.note_ticks(ticks(10_000, 0), now));
    assert!(!rule.note_ticks(ticks(10_199, 0), now));
    assert!(rule.note_ticks(ticks(10_200, 0), now));
    assert!(rule.note_ticks(ticks(10_200, 0), now));
}

/// Guarantees: after a stop ended a call of a thread early, the thread is not stopped for a minute whatever it does,
/// and then its history starts again.
#[test]
fn after_a_cut() {
    let (mut rule, now) = (UserBound::default(), Instant::now());
    rule.note_ticks(ticks(0, 0), now);
    assert!(rule.note_ticks(ticks(300, 0), now));
    rule.cut(now);
    assert!(rule.is_barred(now) && !rule.note_ticks(ticks(5_000, 0), now));
    let later = now + AFTER_A_CUT;
    assert!(rule.is_barred(later - Duration::from_nanos(1)) && !rule.is_barred(later));
    assert!(!rule.note_ticks(ticks(5_000, 0), later) && !rule.note_ticks(ticks(5_199, 0), later));
    assert!(rule.note_ticks(ticks(5_200, 0), later));
}

/// Guarantees: if counters decrease, the earlier history is not used.
#[test]
fn counters_that_go_back() {
    let (mut rule, now) = (UserBound::default(), Instant::now());
    rule.note_ticks(ticks(0, 10), now);
    assert!(rule.note_ticks(ticks(300, 10), now));
    assert!(!rule.note_ticks(ticks(299, 10), now) && !rule.note_ticks(ticks(499, 9), now));
    assert!(rule.note_ticks(ticks(699, 9), now));
}

/// An event in the life of a thread.
#[derive(Debug, Clone, Copy)]
enum ThreadStep {
    /// The thread uses this much processor time, in ticks in its own code and in the kernel, while this many
    /// milliseconds pass; then its counters are read.
    Runs(u64, u64, u64),
    /// A stop ends a call of the thread early.
    Cut,
}

fn steps() -> impl Strategy<Value = Vec<ThreadStep>> {
    let runs = (0u64..150, prop_oneof![4 => Just(0u64), 1 => 0u64..20], 0u64..20_000);
    let step = prop_oneof![
        30 => runs.prop_map(|(user, kernel, wait)| ThreadStep::Runs(user, kernel, wait)),
        1 => Just(ThreadStep::Cut),
    ];
    prop::collection::vec(step, 1..200)
}

proptest! {
    /// Guarantees: whatever a thread does and however seldom its counters are read, it may be stopped only if, for two
    /// seconds of processor time up to some reading and since the last call that was ended early, at most two
    /// hundredths of its time were in the kernel; never within a minute after such a call; and never after a span
    /// between two readings with more time in the kernel than that.
    #[test]
    fn open_only_with_a_history(steps in steps()) {
        let start = Instant::now();
        let (mut rule, mut now, mut at, mut cut) = (UserBound::default(), start, ticks(7, 3), None);
        let mut readings: Vec<ProcessorTicks> = Vec::new();
        for step in steps {
            match step {
                ThreadStep::Cut => {
                    rule.cut(now);
                    cut = Some(now);
                    readings.clear();
                }
                ThreadStep::Runs(user, kernel, wait) => {
                    at = ticks(at.user + user, at.kernel + kernel);
                    now += Duration::from_millis(wait);
                    let may_stop = rule.note_ticks(at, now);
                    if cut.is_some_and(|cut| now < cut + AFTER_A_CUT) {
                        prop_assert!(!may_stop);
                        continue;
                    }
                    let before = readings.last().copied().unwrap_or(at);
                    readings.push(at);
                    if !may_stop {
                        continue;
                    }
                    let share = |from: ProcessorTicks, to: ProcessorTicks| {
                        let kernel = to.kernel - from.kernel;
                        (kernel, kernel + to.user - from.user)
                    };
                    let (kernel, all) = share(before, at);
                    prop_assert!(kernel * KERNEL_PARTS <= all.max(SHORTEST), "{kernel} of {all}");
                    let history = readings.iter().enumerate().any(|(place, &from)| {
                        readings[place..].iter().any(|&to| {
                            let (kernel, all) = share(from, to);
                            all >= HISTORY && kernel * KERNEL_PARTS <= all
                        })
                    });
                    prop_assert!(history);
                }
            }
        }
    }
}
