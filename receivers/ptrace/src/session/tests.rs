use profbridge_sampler::message::ProcessId;
use proptest::prelude::*;

use super::*;

fn process() -> Process {
    Process {
        pid: 7,
        namespace_pid: 7,
        start_unix_nano: 1_767_225_600_000_000_000,
        exec_id: 5,
        executable: "/usr/bin/app".to_owned(),
        arguments: vec!["app".to_owned(), "--serve".to_owned()],
        ..Process::default()
    }
}

/// Guarantees: the session of a process is always the same, even if the process rewrites its command line or the wall
/// clock is set, and differs for another exec, process or host.
/// rule: profiles-sdk#session-sample-rate, profiles-sdk#session
#[test]
fn sessions_are_lives() {
    let of = |process: &Process| ProfilerSession::of("host", process, 1.0).id;
    let one = of(&process());
    assert_eq!(one, of(&Process { id: ProcessId(9), user: 0, ..process() }), "numbers of the sampler say nothing");
    assert_eq!(ProfilerSession { id: one, sampled: true }.attribute(), format!("{one:016x}"));
    for same in [
        Process { start_unix_nano: 1, ..process() },
        Process { arguments: vec!["postgres: idle".to_owned()], ..process() },
        Process { executable: "/usr/bin/app.old".to_owned(), ..process() },
    ] {
        assert_eq!(of(&same), one);
    }
    let others = [
        of(&Process { exec_id: 6, ..process() }),
        of(&Process { pid: 8, ..process() }),
        ProfilerSession::of("other", &process(), 1.0).id,
    ];
    for (position, other) in others.iter().enumerate() {
        assert_ne!(*other, one, "{position}");
    }
}

/// Guarantees: the share of sampled sessions is the configured one, within three standard deviations: 0 samples no
/// session and 1 all of them.
/// rule: profiles-sdk#session-sample-rate
#[test]
fn the_rate_holds() {
    for rate in [0.0, 0.1, 0.5, 0.9, 1.0] {
        let sampled =
            (0..10_000u32).filter(|&pid| ProfilerSession::of("h", &Process { pid, ..process() }, rate).sampled).count();
        let sigma = (10_000.0 * rate * (1.0 - rate)).sqrt();
        assert!((sampled as f64 - 10_000.0 * rate).abs() <= 3.0 * sigma, "{sampled} of 10000 at {rate}");
    }
}

proptest! {
    /// Guarantees: a session that is sampled at some rate is sampled at every higher one.
    #[test]
    fn higher_rates_keep_sessions(pid: u32, low in 0.0f64..1.0, high in 0.0f64..1.0) {
        let (low, high) = if low <= high { (low, high) } else { (high, low) };
        let process = Process { pid, ..process() };
        prop_assert!(!ProfilerSession::of("h", &process, low).sampled || ProfilerSession::of("h", &process, high).sampled);
    }
}
