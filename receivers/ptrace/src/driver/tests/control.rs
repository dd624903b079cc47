//! Requests of users and programs: start, stop, spans, sessions.

use super::*;

/// Guarantees: start and stop reach the sampler; a request without effect says why and sends nothing to the sampler.
/// rule: profiles-sdk#lifecycle-manual, profiles-sdk#start-on-app-start, profiles-sdk#start-profiler
/// rule: profiles-sdk#stop-profiler
#[tokio::test(start_paused = true)]
async fn manual_control() {
    let mut rig = DriverHarness::start("{web: {executable: app, start_on_launch: false}}");
    rig.watched().await;
    let nobody = rig.ask(1, None, start()).await;
    assert!(nobody.ok && nobody.changed == 0 && nobody.message.unwrap().contains("no process"));
    rig.say(attached(1, 7)).await;
    assert!(rig.is_silent().await, "it is not sampled until told so");
    let started = rig.ask(1, None, start()).await;
    assert_eq!((started.ok, started.changed, started.processes[0].profiling), (true, 1, true));
    assert_eq!(rig.sample().await, (1, true));
    let again = rig.ask(1, None, start()).await;
    assert_eq!((again.changed, &*again.processes[0].message), (0, "the profiler runs already"));
    assert_eq!(rig.ask(1, None, stop()).await.changed, 1);
    assert_eq!(rig.sample().await, (1, false));
    assert_eq!(&*rig.ask(1, None, stop()).await.processes[0].message, "the profiler does not run");
    assert!(rig.is_silent().await);
    rig.stop().await;
}

/// Guarantees: only configured targets and their processes can be named in requests.
#[tokio::test(start_paused = true)]
async fn only_what_is_configured() {
    let rig = DriverHarness::with_process(WEB).await;
    let named = |target: Option<&str>, pid| Choice { target: target.map(str::to_owned), pid };
    let fault = rig.ask(1, None, ControlRequest::Stop(named(Some("db"), None))).await.error.unwrap();
    assert_eq!((&*fault.place, fault.rule.contains("web")), ("target", true));
    let fault = rig.ask(1, None, ControlRequest::Stop(named(None, Some(9)))).await.error.unwrap();
    assert_eq!(&*fault.place, "pid");
    assert_eq!(rig.ask(1, None, ControlRequest::Stop(named(Some("web"), Some(7)))).await.changed, 1);
    rig.stop().await;
}

/// Guarantees: in lifecycle `trace` a process is sampled from its first to its last sampled root span; start and stop
/// do nothing and say why; a closed connection ends its spans.
/// rule: profiles-sdk#lifecycle, profiles-sdk#lifecycle-trace, profiles-sdk#start-profiler
#[tokio::test(start_paused = true)]
async fn trace_lifecycle() {
    let mut rig = DriverHarness::start("{web: {executable: app, profile_lifecycle: trace}}");
    assert!(!rig.watched().await.sample_at_once);
    rig.say(attached(1, 7)).await;
    let refused = rig.ask(1, None, start()).await;
    assert!(refused.changed == 0 && refused.processes[0].message.contains("trace"));
    let deferred = rig.ask(1, Some(7), ControlRequest::SpanStart(span(DEFERRED))).await;
    assert!(deferred.ok && deferred.message.unwrap().contains("deferred"));
    assert!(rig.is_silent().await);
    assert_eq!(rig.ask(1, Some(7), ControlRequest::SpanStart(span(SAMPLED))).await.changed, 1);
    assert_eq!(rig.sample().await, (1, true));
    assert_eq!(rig.ask(2, Some(7), ControlRequest::SpanStart(span(SAMPLED))).await.changed, 0);
    assert_eq!(rig.ask(1, Some(7), ControlRequest::SpanEnd(span(DEFERRED))).await.changed, 0, "another one is open");
    assert!(rig.is_silent().await);
    rig.control.send(ControlEvent::Closed(ConnectionId(2))).await.unwrap();
    assert_eq!(rig.sample().await, (1, false));
    let unknown = rig.ask(1, Some(7), ControlRequest::SpanEnd(span(SAMPLED))).await;
    assert!(unknown.ok && unknown.message.unwrap().contains("no such span"));
    rig.stop().await;
}

/// Guarantees: a span that is announced before its process was found counts once the process is found; a span for a
/// target counts for all its processes; malformed headers are rejected with the position of the error.
#[tokio::test(start_paused = true)]
async fn spans_of_others() {
    let mut rig = DriverHarness::start("{web: {executable: app, profile_lifecycle: trace}}");
    rig.watched().await;
    let early = rig.ask(1, Some(7), ControlRequest::SpanStart(span(SAMPLED))).await;
    assert!(early.message.unwrap().contains("not attached"));
    rig.say(attached(1, 7)).await;
    assert_eq!(rig.sample().await, (1, true));
    rig.say(attached(2, 8)).await;
    let of_target = SpanHeaders { target: Some("web".to_owned()), ..span(SAMPLED) };
    assert_eq!(rig.ask(2, Some(99), ControlRequest::SpanStart(of_target)).await.changed, 1);
    assert_eq!(rig.sample().await, (2, true));
    let fault = rig.ask(3, Some(7), ControlRequest::SpanStart(span("771a-1"))).await.error.unwrap();
    assert_eq!((&*fault.place, fault.rule.contains("at byte 4")), ("sentry-trace", true));
    let fault = rig.ask(3, Some(7), ControlRequest::SpanStart(SpanHeaders::default())).await.error.unwrap();
    assert!(fault.rule.contains("either"));
    let fault = rig.ask(3, None, ControlRequest::SpanStart(span(SAMPLED))).await.error.unwrap();
    assert!(fault.rule.contains("PID namespace"));
    rig.stop().await;
}

/// Guarantees: a span for a process of a target counts for that process of that target only; a process of another
/// target is rejected with the name of its target.
#[tokio::test(start_paused = true)]
async fn spans_of_a_process_of_a_target() {
    let mut rig = DriverHarness::start(
        "{web: {executable: app, profile_lifecycle: trace}, worker: {executable: x, profile_lifecycle: trace}}",
    );
    rig.watched().await;
    rig.watched().await;
    let of = |pid, target: &str| {
        ControlRequest::SpanStart(SpanHeaders { pid: Some(pid), target: Some(target.to_owned()), ..span(SAMPLED) })
    };
    let early = rig.ask(1, Some(99), of(8, "web")).await;
    assert!(early.ok && early.message.unwrap().contains("process 8 is not attached for web"));
    rig.say(attached(1, 7)).await;
    rig.say(attached(2, 8)).await;
    assert_eq!(rig.sample().await, (2, true));
    let fault = rig.ask(2, Some(99), of(7, "worker")).await.error.unwrap();
    assert_eq!((&*fault.place, &*fault.rule), ("pid", "is a process of web, and not of worker"));
    assert!(rig.is_silent().await);
    assert_eq!(rig.ask(3, Some(99), of(7, "web")).await.changed, 1);
    assert_eq!(rig.sample().await, (1, true));
    rig.control.send(ControlEvent::Closed(ConnectionId(3))).await.unwrap();
    assert_eq!(rig.sample().await, (1, false));
    rig.stop().await;
}

/// Guarantees: a session that is not sampled is never profiled, whoever asks for it.
/// rule: profiles-sdk#session-sample-rate, profiles-sdk#start-profiler
#[tokio::test(start_paused = true)]
async fn unsampled_sessions() {
    let mut rig = DriverHarness::start("{web: {executable: app, profile_session_sample_rate: 0}}");
    assert!(!rig.watched().await.sample_at_once);
    rig.say(attached(1, 7)).await;
    let answer = rig.ask(1, None, start()).await;
    assert!(answer.changed == 0 && answer.processes[0].message.contains("profile_session_sample_rate"));
    let status = rig.ask(1, None, ControlRequest::Status(Choice::default())).await;
    assert!(!status.targets[0].processes[0].sampled);
    assert!(rig.is_silent().await);
    rig.stop().await;
}

/// Guarantees: a process that is started again, or executes another program, begins a new session; stopping and
/// starting the profiler does not.
#[tokio::test(start_paused = true)]
async fn sessions_follow_lives() {
    let mut rig = DriverHarness::with_process(WEB).await;
    rig.say(batch(1, 1)).await;
    let first = session_of(&rig.profiles().await);
    rig.ask(1, None, stop()).await;
    rig.ask(1, None, start()).await;
    rig.say(batch(1, 1)).await;
    assert_eq!(session_of(&rig.profiles().await), first);
    rig.say(Event::Detached { process: ProcessId(1), why: Detached::Executed }).await;
    let other = Process { exec_id: 70, executable: "/usr/bin/other".to_owned(), ..process(2, 7) };
    rig.say(Event::Attached(Box::new(other))).await;
    rig.say(batch(2, 1)).await;
    let second = session_of(&rig.profiles().await);
    rig.say(Event::Detached { process: ProcessId(2), why: Detached::Exited }).await;
    rig.say(Event::Attached(Box::new(Process { exec_id: 71, start_unix_nano: 1, ..process(3, 7) }))).await;
    rig.say(batch(3, 1)).await;
    let third = session_of(&rig.profiles().await);
    assert!(first != second && second != third && first != third);
    rig.stop().await;
}

/// Guarantees: a target for which nobody announces spans is logged once, a minute after its first process was found,
/// with the socket and the remedy; a target for which a span was announced, even an unsampled one, or that needs no
/// spans, is not logged.
/// rule: profiles-sdk#lifecycle-trace-warning
#[tokio::test(start_paused = true)]
async fn nobody_announces() {
    keep_log();
    let yaml = "{silent: {executable: a, profile_lifecycle: trace}, heard: {executable: b, profile_lifecycle: trace}, \
                 manual: {executable: c}, none: {executable: d, profile_lifecycle: trace}}";
    let mut rig = DriverHarness::start(yaml);
    for _ in 0..4 {
        rig.watched().await;
    }
    // Targets are sorted by name.
    for (id, target) in [(1, 3), (2, 0), (3, 1)] {
        let process = Process { target: TargetId(target), ..process(id, 40 + id as u32) };
        rig.say(Event::Attached(Box::new(process))).await;
    }
    let unsampled = SAMPLED.replace("-1", "-0");
    let headers = SpanHeaders { sentry_trace: Some(unsampled), ..SpanHeaders::default() };
    rig.ask(1, Some(42), ControlRequest::SpanStart(headers)).await;
    tokio::time::sleep(announcers::PATIENCE - Duration::from_secs(1)).await;
    assert_eq!(logged("has announced"), [""; 0]);
    tokio::time::sleep(Duration::from_secs(2)).await;
    let lines = logged("has announced");
    let [line] = &lines[..] else { panic!("{lines:?}") };
    for part in ["WARN", "nothing of silent is sampled", "60 s", "control.sock", "profile_lifecycle: manual"] {
        assert!(line.contains(part), "{part}: {line}");
    }
    rig.say(Event::Attached(Box::new(Process { target: TargetId(3), ..process(4, 50) }))).await;
    tokio::time::sleep(3 * announcers::PATIENCE).await;
    assert_eq!(logged("has announced").len(), 1);
    rig.stop().await;
}
