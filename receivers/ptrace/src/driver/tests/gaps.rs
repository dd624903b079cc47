//! Tests with sampler processes that die, and of the time without one.

use super::*;

/// Guarantees: when the sampler process dies, its samples are sent, another one starts after a pause and receives the
/// same commands, and profilers switched by request stay in the same state.
#[tokio::test(start_paused = true)]
async fn a_dead_sampler_is_replaced() {
    let mut rig = DriverHarness::with_process(WEB).await;
    rig.say(batch(1, 2)).await;
    rig.ask(1, None, stop()).await;
    let before = Instant::now();
    rig.sampler.notices.send(Notice::Ended(Ending::Killed(9))).await.unwrap();
    assert_eq!(rig.profiles().await.observations(), 2);
    rig.sampler = rig.samplers.recv().await.unwrap();
    assert_eq!(before.elapsed().as_secs(), 1);
    assert!(rig.watched().await.sample_at_once);
    // The new sampler process numbers processes from 1 again.
    rig.say(attached(1, 7)).await;
    assert_eq!(rig.sample().await, (1, false), "it was stopped by hand");
    let status = rig.ask(1, None, ControlRequest::Status(Choice::default())).await;
    assert_eq!(status.targets[0].processes.len(), 1);
    rig.stop().await;
}

/// An event with samples of threads: id, start and length of each, in milliseconds.
fn samples(process: u64, mode: Mode, samples: &[(u32, u64, u64)]) -> Event {
    const MS: u64 = 1_000_000;
    let sample = |(thread, &(_, start, length)): (usize, &(u32, u64, u64))| Sample {
        thread: thread as u32,
        time_unix_nano: START + start * MS,
        weight_nano: length * MS,
        observations: 1,
        ..Sample::default()
    };
    let thread = |&(id, ..): &(u32, u64, u64)| Thread { id, namespace_id: id, ..Thread::default() };
    Event::Batch(Batch {
        process: ProcessId(process),
        period_nano: 10 * MS,
        mode,
        threads: samples.iter().map(thread).collect(),
        locations: vec![Location::Native { mapping: None, address: 1 }],
        stacks: vec![Stack { trust: Trust::Complete, locations: vec![0] }],
        contexts: Vec::new(),
        samples: samples.iter().enumerate().map(sample).collect(),
    })
}

/// The samples of a batch that explain a time without a sampler: thread, start and length of each, in milliseconds.
fn without_sampler(profiles: &Profiles) -> Vec<(i64, u64, i64)> {
    let (dictionary, mut found) = (profiles.dictionary(), Vec::new());
    for sample in profiles.profiles().flat_map(|profile| profiles.samples(profile)) {
        let locations = dictionary.stack(sample.stack).flatten().map(|id| dictionary.location(id));
        let functions = locations.flat_map(|location| dictionary.lines(location)).filter_map(|line| line.function);
        let names: Vec<&str> = functions.map(|id| dictionary.string(dictionary.function(id).name)).collect();
        if names != ["[no sampler process]"] {
            continue;
        }
        let Some(&Value::Int(thread)) = dictionary.find(sample.attributes, "thread.id") else { panic!("{names:?}") };
        let times = sample.timestamps().map(|time| (time - START) / 1_000_000);
        found.extend(times.zip(sample.values()).map(|(time, weight)| (thread, time, weight / 1_000_000)));
    }
    found.sort_unstable();
    found
}

/// Guarantees: each thread that was sampled both before a sampler process died and by a later one has a sample that
/// explains the time in between, in the same session, even if a sampler process in between died before it found the
/// process; in cpu mode it has none, since it is unknown how much of that time the thread ran.
#[tokio::test(start_paused = true)]
async fn a_death_is_explained() {
    for (mode, deaths) in [(Mode::Wall, 1), (Mode::Wall, 2), (Mode::Cpu, 1)] {
        let mut rig = DriverHarness::with_process(WEB).await;
        rig.say(samples(1, mode, &[(7, 0, 100), (8, 0, 50), (9, 0, 90)])).await;
        for _ in 0..deaths {
            rig.die().await;
        }
        let before = rig.profiles().await;
        assert_eq!(without_sampler(&before), []);
        rig.say(attached(1, 7)).await;
        rig.say(samples(1, mode, &[(7, 400, 10), (8, 410, 10), (11, 400, 10)])).await;
        rig.say(samples(1, mode, &[(7, 410, 10), (9, 420, 10)])).await;
        let after = rig.profiles().await;
        assert_eq!(session_of(&after), session_of(&before));
        let expected: &[_] = if mode == Mode::Wall { &[(7, 100, 300), (8, 50, 360), (9, 90, 330)] } else { &[] };
        assert_eq!(without_sampler(&after), expected, "{mode:?} {deaths}");
        rig.stop().await;
    }
}

/// Guarantees: a gap is not attributed to the sampler process's death if samples were unwanted for a part of it: the
/// profiler was stopped by request before or after it, or the last span ended meanwhile. Samples that arrive after a
/// stop do not begin a gap either.
#[tokio::test(start_paused = true)]
async fn a_pause_is_no_death() {
    let first = &[(7, 0, 100)];
    for (stopped_before, started_before) in [(true, true), (true, false), (false, false)] {
        let mut rig = DriverHarness::with_process(WEB).await;
        rig.say(samples(1, Mode::Wall, first)).await;
        if stopped_before {
            rig.ask(1, None, stop()).await;
            rig.say(samples(1, Mode::Wall, &[(7, 100, 100)])).await;
        }
        if started_before {
            rig.ask(1, None, start()).await;
        }
        rig.die().await;
        rig.say(attached(1, 7)).await;
        if !stopped_before {
            rig.ask(1, None, stop()).await;
        }
        rig.ask(1, None, start()).await;
        rig.profiles().await;
        rig.say(samples(1, Mode::Wall, &[(7, 400, 10)])).await;
        assert_eq!(without_sampler(&rig.profiles().await), [], "{stopped_before} {started_before}");
        drop(rig);
    }
    for closed in [true, false] {
        let mut rig = DriverHarness::start("{web: {executable: app, profile_lifecycle: trace}}");
        rig.watched().await;
        rig.ask(1, Some(7), ControlRequest::SpanStart(span(SAMPLED))).await;
        rig.say(attached(1, 7)).await;
        rig.say(samples(1, Mode::Wall, first)).await;
        rig.die().await;
        if closed {
            rig.ask(1, Some(7), ControlRequest::SpanEnd(span(SAMPLED))).await;
            rig.ask(1, Some(7), ControlRequest::SpanStart(span(SAMPLED))).await;
        }
        rig.say(attached(1, 7)).await;
        assert_eq!(rig.sample().await, (1, true));
        rig.profiles().await;
        rig.say(samples(1, Mode::Wall, &[(7, 400, 10)])).await;
        assert_eq!(without_sampler(&rig.profiles().await).is_empty(), closed);
        drop(rig);
    }
}

/// Guarantees: profilers switched by request stay in that state even if a sampler process dies before it has found the
/// process again; samples that the next one took before it received the switch are dropped.
#[tokio::test(start_paused = true)]
async fn a_stop_outlasts_two_deaths() {
    let mut rig = DriverHarness::with_process(WEB).await;
    rig.say(attached(2, 8)).await;
    rig.ask(1, None, ControlRequest::Stop(Choice { target: None, pid: Some(7) })).await;
    assert_eq!(rig.sample().await, (1, false));
    for _ in 0..2 {
        rig.replace_sampler().await;
        assert!(rig.watched().await.sample_at_once);
    }
    rig.say(attached(1, 7)).await;
    assert_eq!(rig.sample().await, (1, false));
    rig.say(attached(2, 8)).await;
    rig.say(batch(1, 5)).await;
    rig.say(batch(2, 3)).await;
    assert_eq!(rig.profiles().await.observations(), 3, "only of the process that runs");
    // Samples taken after this start are wanted, even if they arrive after another stop.
    rig.ask(1, None, start()).await;
    rig.ask(1, None, stop()).await;
    rig.say(batch(1, 2)).await;
    assert_eq!(rig.profiles().await.observations(), 2);
    let consumer = rig.stop().await;
    assert!(consumer.totals().notes.contains(&("sampler_unwanted_samples", 5)));
    assert!(consumer.totals().dropped.is_none());
}

/// Guarantees: a command is started once: a new sampler process is asked to look for its process, and to detach from
/// another process that has reused its id; when the command has ended, the sampler process is not asked to look for it.
#[tokio::test(start_paused = true)]
async fn commands_are_started_once() {
    let mut rig = DriverHarness::start("{job: {command: [job]}}");
    assert!(matches!(rig.watched().await.select, Select::Command(_)));
    rig.say(attached(1, 7)).await;
    rig.replace_sampler().await;
    assert_eq!(rig.watched().await.select, Select::Pid(7));
    // The wall clock was set, but it is still the same process.
    rig.say(Event::Attached(Box::new(Process { start_unix_nano: START, ..process(1, 7) }))).await;
    assert!(rig.is_silent().await);
    rig.replace_sampler().await;
    assert_eq!(rig.watched().await.select, Select::Pid(7));
    rig.say(Event::Attached(Box::new(Process { exec_id: 70, start_unix_nano: 1, ..process(1, 7) }))).await;
    assert!(matches!(rig.command().await, Command::Unwatch(TargetId(0))));
    rig.replace_sampler().await;
    assert!(rig.is_silent().await);
    rig.stop().await;
}

/// Guarantees: with `subprocesses`, processes started by a command are sampled and are not mistaken for the command:
/// another sampler process is asked to look for the command.
#[tokio::test(start_paused = true)]
async fn what_a_command_started_is_not_the_command() {
    let mut rig = DriverHarness::start("{job: {command: [job], subprocesses: true}}");
    assert!(rig.watched().await.settings.subprocesses);
    rig.say(attached(1, 7)).await;
    rig.say(Event::Attached(Box::new(Process { exec_id: 70, start_unix_nano: 1, ..process(2, 8) }))).await;
    rig.say(batch(2, 3)).await;
    assert_eq!(rig.profiles().await.observations(), 3);
    rig.replace_sampler().await;
    assert_eq!(rig.watched().await.select, Select::Pid(7));
    rig.stop().await;
}

/// Guarantees: a shutdown while there is no sampler process does not wait.
#[tokio::test(start_paused = true)]
async fn stop_without_a_sampler() {
    let rig = DriverHarness::start("{app: {pid: 7}}");
    let start = Instant::now();
    rig.sampler.notices.send(Notice::Ended(Ending::Stopped)).await.unwrap();
    while !rig.sampler.commands.is_closed() {
        tokio::task::yield_now().await;
    }
    rig.trigger.trigger();
    rig.driver.await.unwrap();
    assert!(start.elapsed() < Duration::from_millis(100), "{:?}", start.elapsed());
}
