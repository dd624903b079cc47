use proptest::prelude::*;

use super::*;

/// Guarantees: after a refusal no thread is asked to stop for five seconds, whether stops are rationed or not, and
/// another refusal restarts the five seconds.
#[test]
fn silence() {
    for rationed in [true, false] {
        let now = Instant::now();
        let mut rules = StopRules::new(rationed, now);
        assert!(rules.may_ask(now));
        rules.pause_stops(now);
        assert!(rules.is_silent(now) && !rules.may_ask(now));
        let later = now + Duration::from_secs(4);
        rules.pause_stops(later);
        assert!(!rules.may_ask(now + SILENCE));
        assert!(rules.may_ask(later + SILENCE) && !rules.is_silent(later + SILENCE));
    }
}

/// Guarantees: if stops are rationed, one thread is asked to stop at a time, otherwise any number.
#[test]
fn one_at_a_time() {
    let now = Instant::now();
    let mut rules = StopRules::new(true, now);
    rules.asked(now);
    assert!(!rules.may_ask(now));
    rules.stop_ended(now);
    assert!(rules.may_ask(now));
    let mut rules = StopRules::new(false, now);
    for _ in 0..100 {
        assert!(rules.may_ask(now));
        rules.asked(now);
    }
}

/// Guarantees: after a long stop, as on a busy machine, there are at most five seconds without stops.
#[test]
fn a_long_stop() {
    let now = Instant::now();
    let mut rules = StopRules::new(true, now);
    rules.asked(now);
    let end = now + Duration::from_secs(3600);
    assert!(!rules.may_ask(end));
    rules.stop_ended(end);
    assert!(!rules.may_ask(end + Duration::from_millis(4900)));
    assert!(rules.may_ask(end + Duration::from_millis(5100)));
}

proptest! {
    /// Guarantees: stops of ordinary length take no more than a hundredth of the time, plus the time saved up and the
    /// length of the last stop.
    #[test]
    fn a_hundredth_of_the_time(steps in prop::collection::vec((0u64..20_000, 1u64..5_000), 1..300)) {
        let start = Instant::now();
        let mut rules = StopRules::new(true, start);
        let (mut now, mut stopped, mut last) = (start, Duration::ZERO, Duration::ZERO);
        for (pause, length) in steps {
            now += Duration::from_micros(pause);
            if rules.may_ask(now) {
                let length = Duration::from_micros(length);
                rules.asked(now);
                now += length;
                rules.stop_ended(now);
                stopped += length;
                last = length;
            }
            prop_assert!(stopped <= now.duration_since(start) / PARTS + MOST_SAVED + last, "{stopped:?} of {:?}", now - start);
        }
    }
}
