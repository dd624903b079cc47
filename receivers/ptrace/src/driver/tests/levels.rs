//! The status, metrics and log lines about how running threads are sampled.

use super::super::levels::MOST_LINES;
use super::*;

/// Guarantees: CPU time that was not sampled, the right that would show it, and the number of calls cut short are in
/// the status, in the metrics, and in the log when the process is detached.
#[tokio::test(start_paused = true)]
async fn what_is_not_sampled() {
    keep_log();
    let mut rig = DriverHarness::start(WEB);
    rig.watched().await;
    rig.say(attached(1, 4747)).await;
    let status = |not_sampled_nano, cut_calls| {
        let level = Level::None;
        Event::Status(Status { process: ProcessId(1), level, not_sampled_nano, cut_calls, ..Status::default() })
    };
    rig.say(status(1_000_000_000, 1)).await;
    rig.say(status(2_500_000_000, 3)).await;
    let response = rig.ask(1, None, ControlRequest::Status(Choice::default())).await;
    let process = &response.targets[0].processes[0];
    assert_eq!((process.not_sampled_millis, process.cut_calls), (2_500, 3));
    assert!(process.more.contains("CAP_PERFMON") && process.running.contains("user-bound"), "{process:?}");
    let notes = rig.consumer.totals().notes;
    assert!(notes.contains(&("sampler_not_sampled_nanoseconds", 2_500_000_000)), "{notes:?}");
    assert!(notes.contains(&("sampler_cut_calls", 3)), "{notes:?}");
    rig.say(Event::Detached { process: ProcessId(1), why: Detached::Exited }).await;
    rig.stop().await;
    let lines = logged("process 4747 of web ended");
    let [line] = &lines[..] else { panic!("{lines:?}") };
    for part in
        ["2.50 s of its processor time were not sampled", "CAP_PERFMON", "3 of its system calls came back early"]
    {
        assert!(line.contains(part), "{part}: {line}");
    }
}

impl DriverHarness {
    /// The number of processes on each level: unknown yet, none, user, kernel, processors.
    async fn levels(&self) -> Vec<u64> {
        self.ask(1, None, ControlRequest::Status(Choice::default())).await;
        let names = ["undecided", "without_events", "user_events", "kernel_events", "processor_events"];
        let levels = self.consumer.totals().levels;
        let level = |name: &str| levels.iter().find(|(known, _)| *known == format!("sampler_processes_{name}"));
        names.map(|name| level(name).unwrap().1).to_vec()
    }
}

/// A sampler's event that reports the level of a process.
fn on_level(process: u64, level: Level) -> Event {
    Event::Status(Status { process: ProcessId(process), level, ticks: 9, ..Status::default() })
}

/// Guarantees: metrics show how many sampled processes are on each level, with those of unknown level separately; a
/// process that is not sampled, has ended, or lost its sampler process, is counted in none of them.
#[tokio::test(start_paused = true)]
async fn processes_by_level() {
    let mut rig = DriverHarness::start(WEB);
    rig.watched().await;
    assert_eq!(rig.levels().await, [0; 5]);
    for number in 1..=5 {
        rig.say(attached(number, number as u32)).await;
    }
    assert_eq!(rig.levels().await, [5, 0, 0, 0, 0]);
    rig.say(Event::Status(Status { process: ProcessId(1), ..Status::default() })).await;
    for (number, level) in [(2, Level::None), (3, Level::User), (4, Level::Kernel), (5, Level::Processors)] {
        rig.say(on_level(number, level)).await;
    }
    assert_eq!(rig.levels().await, [1; 5], "without a tick nothing was asked for");
    rig.say(on_level(3, Level::Kernel)).await;
    assert_eq!(rig.levels().await, [1, 1, 0, 2, 1]);
    rig.ask(1, None, ControlRequest::Stop(Choice { target: None, pid: Some(5) })).await;
    assert_eq!(rig.levels().await, [1, 1, 0, 2, 0]);
    rig.ask(1, None, start()).await;
    rig.say(Event::Detached { process: ProcessId(2), why: Detached::Exited }).await;
    assert_eq!(rig.levels().await, [1, 0, 0, 2, 1]);
    rig.die().await;
    assert_eq!(rig.levels().await, [0; 5]);
    rig.stop().await;
}

/// Guarantees: the level of each process is logged once, and again when it changes, but not every second; a process of
/// unknown level is not logged.
#[tokio::test(start_paused = true)]
async fn a_level_is_logged() {
    keep_log();
    let mut rig = DriverHarness::start(WEB);
    rig.watched().await;
    rig.say(attached(1, 5001)).await;
    rig.say(attached(2, 5002)).await;
    rig.say(Event::Status(Status { process: ProcessId(2), ..Status::default() })).await;
    for second in 0..200 {
        let level = if second == 0 { Level::User } else { Level::Processors };
        rig.say(on_level(1, level)).await;
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert_eq!(logged("running threads of process 5001 of web are").len(), if second == 0 { 1 } else { 2 });
    }
    let lines = logged("running threads of process 5001 of web are");
    let [first, second] = &lines[..] else { panic!("{lines:?}") };
    assert!(first.contains("INFO") && first.ends_with("are sampled by perf events, without their time in the kernel"));
    assert!(
        second.ends_with("are now sampled by perf events of processors, with their time in the kernel"),
        "{second}"
    );
    assert!(logged("running threads of process 5002").is_empty());
    rig.stop().await;
}

/// Guarantees: if the levels of many processes become known within a short time, one line sums up all but the first. A
/// level that keeps changing has two lines a minute, a level that changes back has none, and if a process is detached
/// before its line is due, the line about the detaching includes it.
#[tokio::test(start_paused = true)]
async fn many_levels_are_summed_up() {
    keep_log();
    let mut rig = DriverHarness::start("{many: {executable: app}}");
    rig.watched().await;
    let all = MOST_LINES as u64 + 300;
    for number in 1..=all {
        rig.say(attached(number, 6000 + number as u32)).await;
        rig.say(on_level(number, if number % 2 == 0 { Level::Kernel } else { Level::None })).await;
    }
    rig.say(Event::Detached { process: ProcessId(all), why: Detached::Exited }).await;
    // Both processes already have a log line: one changes its level and changes it back, the other keeps its new level.
    rig.say(on_level(2, Level::Processors)).await;
    rig.say(on_level(2, Level::Kernel)).await;
    rig.say(on_level(4, Level::Processors)).await;
    rig.ask(1, None, ControlRequest::Status(Choice::default())).await;
    assert_eq!(logged("running threads of process 6").len(), MOST_LINES);
    assert_eq!(logged("more processes"), [""; 0]);
    let ended = logged(&format!("process {} of many ended", 6000 + all));
    assert!(ended[0].contains("; its running threads were sampled by perf events, with their time in the kernel"));
    tokio::time::sleep(Duration::from_secs(61)).await;
    let lines = logged("more processes");
    let [line] = &lines[..] else { panic!("{lines:?}") };
    for part in [
        "running threads of 300 more processes: those of 1 are sampled by perf events of processors, with",
        "; those of 149 are sampled by perf events, with",
        "; those of 150 are sampled by stopping those that stay in their own code",
    ] {
        assert!(line.contains(part), "{part}: {line}");
    }
    for second in 0..600 {
        rig.say(on_level(6, if second % 2 == 0 { Level::Processors } else { Level::Kernel })).await;
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    let lines = logged("running threads of process 6006 of many").len();
    assert!((2..=23).contains(&lines), "{lines}");
    assert_eq!(logged("running threads of process 6002 of many").len(), 1);
    assert_eq!(logged("more processes").len(), 1);
    rig.stop().await;
}
