use profbridge_engine::budget::Budget;
use profbridge_engine::component::{ReceiverContext, Rejected, Retry, Running};
use profbridge_engine::config::Section;
use profbridge_engine::delivery::Overflow;
use profbridge_engine::telemetry::Metrics;
use profbridge_engine::testing::{Consumer, intake};
use profbridge_model::{Profiles, Telemetry, Value};
use profbridge_net::Trigger;
use profbridge_ptrace::message::{
    Batch, Location, Mode, Rights, Rung, Sample, Settings as Sampling, Stack, Status, Thread, Trust,
};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use super::*;
use crate::control::protocol::{Choice, Request, Response, SpanHeaders};
use crate::spans::ConnectionId;

const START: u64 = 1_767_225_600_000_000_000;
const SAMPLED: &str = "771a43a4192642f0b136d5159a501700-a1b2c3d4e5f60718-1";
const DEFERRED: &str = "771a43a4192642f0b136d5159a501700-a1b2c3d4e5f60718";

/// A sampler process that a test plays.
struct Played {
    commands: mpsc::Receiver<Command>,
    heard: mpsc::Sender<Heard>,
}

/// A driver between a sampler and pipelines that the test plays.
struct Rig {
    samplers: mpsc::Receiver<Played>,
    sampler: Played,
    control: mpsc::Sender<Control>,
    consumer: Consumer,
    trigger: Trigger,
    driver: JoinHandle<()>,
    couriers: JoinHandle<()>,
}

impl Rig {
    fn start(yaml: &str) -> Self {
        let yaml = format!("{{symbolize: {{enabled: false}}, targets: {yaml}}}");
        let settings = Settings::read(&Section::from_yaml(&yaml).unwrap()).unwrap_or_else(|p| panic!("{p}"));
        let (intake, consumer) = intake(1 << 30);
        let metrics = Metrics::new(Budget::new(1 << 30));
        let (trigger, shutdown) = Shutdown::pair();
        let transport = metrics.receiver("ptrace").transport("sampler");
        let limit = delivery_limit(&settings);
        let (delivery, couriers) = Delivery::new(intake.clone(), transport, shutdown.clone(), limit);
        let (started, mut samplers) = mpsc::channel(8);
        let mut launch: Launch = Box::new(move || {
            let (commands, waiting) = mpsc::channel(64);
            let (heard_sender, heard) = mpsc::channel(64);
            started.try_send(Played { commands: waiting, heard: heard_sender }).map_err(|error| error.to_string())?;
            Ok(Link { commands, heard })
        });
        let link = launch().unwrap();
        let sampler = samplers.try_recv().unwrap();
        let parts =
            Parts { id: "ptrace".to_owned(), intake, host: "node-1".to_owned(), symbolizer: None, delivery, launch };
        let (control, heard) = mpsc::channel(8);
        let driver = tokio::spawn(Driver::new(settings, parts).run(link, heard, shutdown));
        let couriers = tokio::spawn(couriers);
        Self { samplers, sampler, control, consumer, trigger, driver, couriers }
    }

    async fn command(&mut self) -> Command {
        self.sampler.commands.recv().await.unwrap()
    }

    async fn watched(&mut self) -> Target {
        match self.command().await {
            Command::Watch(target) => target,
            other => panic!("{other:?}"),
        }
    }

    /// What the driver tells about sampling a process.
    async fn sample(&mut self) -> (u64, bool) {
        match self.command().await {
            Command::Sample { process, on } => (process.0, on),
            other => panic!("{other:?}"),
        }
    }

    /// Whether the driver has nothing to say, after it has heard all that was said to it before.
    async fn is_silent(&mut self) -> bool {
        self.ask(1, None, Request::Status(Choice::default())).await;
        self.sampler.commands.try_recv().is_err()
    }

    async fn say(&self, event: Event) {
        self.sampler.heard.send(Heard::Event(Box::new(event))).await.unwrap();
    }

    async fn ask(&self, connection: u64, peer: Option<u32>, request: Request) -> Response {
        // What the sampler said before is heard before: the driver takes both from queues that are empty then.
        while self.sampler.heard.capacity() < self.sampler.heard.max_capacity() {
            tokio::task::yield_now().await;
        }
        let (answer, answered) = oneshot::channel();
        let heard = Control::Request { connection: ConnectionId(connection), peer, request, answer };
        self.control.send(heard).await.unwrap();
        answered.await.unwrap()
    }

    async fn profiles(&mut self) -> Profiles {
        match self.consumer.take().await.unwrap() {
            Telemetry::Profiles(profiles) => profiles,
            other => panic!("{other:?}"),
        }
    }

    /// Ends all, and says what the sampler is told at the end.
    async fn stop(mut self) -> Consumer {
        self.trigger.trigger();
        loop {
            match self.command().await {
                Command::Stop => break,
                Command::Sample { .. } => {}
                other => panic!("{other:?}"),
            }
        }
        drop(self.sampler.heard);
        self.driver.await.unwrap();
        self.couriers.await.unwrap();
        self.consumer
    }
}

fn process(id: u64, pid: u32) -> Process {
    Process {
        id: ProcessId(id),
        target: TargetId(0),
        pid,
        namespace_pid: pid,
        start_unix_nano: START + u64::from(pid) * 1_000_000_000,
        exec_id: u64::from(pid),
        executable: "/usr/bin/app".to_owned(),
        arguments: vec!["app".to_owned()],
        user: 0,
        control_group: None,
        container: None,
        environment: Vec::new(),
        root: None,
    }
}

fn attached(id: u64, pid: u32) -> Event {
    Event::Attached(Box::new(process(id, pid)))
}

fn batch(process: u64, samples: u32) -> Event {
    let sample = |n: u32| Sample {
        time_unix_nano: START + u64::from(n) * 10_000_000,
        weight_nano: 10_000_000,
        observations: 1,
        ..Sample::default()
    };
    Event::Batch(Batch {
        process: ProcessId(process),
        period_nano: 9_900_990,
        mode: Mode::Wall,
        threads: vec![Thread { id: 1, namespace_id: 1, name: "main".to_owned(), pointer: 0 }],
        locations: vec![Location { mapping: None, address: 1 }],
        stacks: vec![Stack { trust: Trust::Complete, locations: vec![0] }],
        samples: (0..samples).map(sample).collect(),
    })
}

fn start() -> Request {
    Request::Start(Choice::default())
}

fn stop() -> Request {
    Request::Stop(Choice::default())
}

fn span(header: &str) -> SpanHeaders {
    SpanHeaders { sentry_trace: Some(header.to_owned()), ..SpanHeaders::default() }
}

fn session_of(profiles: &Profiles) -> String {
    let resource = &profiles.resources()[0].resource.attributes;
    match profiles.find(resource, crate::session::SESSION_ATTRIBUTE) {
        Some(Value::String(id)) => profiles.dictionary().string(*id).to_owned(),
        other => panic!("{other:?}"),
    }
}

const WEB: &str = "{web: {executable: app}}";

/// Guarantees: the sampler is told what to look for and how, and to sample at once where nothing has to be asked.
#[tokio::test(start_paused = true)]
async fn watches_its_targets() {
    let mut rig = Rig::start(
        "{a: {pid: 7, rate: 50}, b: {executable: x, start_on_launch: false}, c: {pid: 8, profile_session_sample_rate: 0.5}}",
    );
    let first = rig.watched().await;
    assert_eq!((first.id, &first.select, first.sample_at_once), (TargetId(0), &Select::Pid(7), true));
    assert_eq!(first.settings, Sampling { rate_hertz: 50.0, ..Sampling::default() });
    assert!(first.environment.iter().any(|name| name == "OTEL_SERVICE_NAME"));
    assert!(!rig.watched().await.sample_at_once);
    assert!(!rig.watched().await.sample_at_once, "its session may not be sampled");
    rig.stop().await;
}

/// Guarantees: samples go to the pipelines at the interval, as one batch for each process, and a process without samples sends none.
#[tokio::test(start_paused = true)]
async fn exports_at_the_interval() {
    let mut rig = Rig::start(WEB);
    rig.watched().await;
    rig.say(attached(1, 7)).await;
    rig.say(attached(2, 8)).await;
    rig.say(batch(1, 3)).await;
    rig.say(batch(1, 2)).await;
    let before = Instant::now();
    let profiles = rig.profiles().await;
    assert_eq!(profiles.observations(), 5);
    assert_eq!(before.elapsed().as_secs(), 5);
    let resource = &profiles.resources()[0].resource.attributes;
    assert_eq!(profiles.find(resource, "process.pid"), Some(&Value::Int(7)));
    rig.say(batch(2, 1)).await;
    assert_eq!(rig.profiles().await.observations(), 1);
    let consumer = rig.stop().await;
    assert_eq!(consumer.totals().outbound.total(), 6);
}

/// Guarantees: what waits at the shutdown, and what the sampler says while it stops, still goes out.
#[tokio::test(start_paused = true)]
async fn a_shutdown_loses_nothing() {
    let mut rig = Rig::start(WEB);
    rig.watched().await;
    rig.say(attached(1, 7)).await;
    rig.say(batch(1, 3)).await;
    rig.ask(1, None, Request::Status(Choice::default())).await;
    rig.trigger.trigger();
    assert!(matches!(rig.command().await, Command::Stop));
    rig.say(batch(1, 4)).await;
    rig.say(Event::Detached { process: ProcessId(1), why: Detached::Asked }).await;
    rig.sampler.heard.send(Heard::Ended(None)).await.unwrap();
    assert_eq!(rig.profiles().await.observations(), 7);
    rig.driver.await.unwrap();
    rig.couriers.await.unwrap();
}

/// Guarantees: at an interval and at the shutdown any number of processes may be due in one moment; what they have to say all arrives.
#[tokio::test(start_paused = true)]
async fn many_processes_are_due_at_once() {
    let mut rig = Rig::start(WEB);
    rig.watched().await;
    for number in 0..100 {
        rig.say(attached(number, 1000 + number as u32)).await;
        rig.say(batch(number, 3)).await;
    }
    rig.ask(1, None, Request::Status(Choice::default())).await;
    for _ in 0..100 {
        assert_eq!(rig.profiles().await.observations(), 3);
    }
    for number in 0..100 {
        rig.say(batch(number, 2)).await;
    }
    rig.ask(1, None, Request::Status(Choice::default())).await;
    rig.trigger.trigger();
    assert!(matches!(rig.command().await, Command::Stop));
    rig.sampler.heard.send(Heard::Ended(None)).await.unwrap();
    let mut pids = Vec::new();
    for _ in 0..100 {
        let profiles = rig.profiles().await;
        assert_eq!(profiles.observations(), 2);
        let Some(Value::Int(pid)) = profiles.find(&profiles.resources()[0].resource.attributes, "process.pid") else {
            panic!()
        };
        pids.push(*pid);
    }
    pids.dedup();
    assert_eq!(pids.len(), 100);
    rig.driver.await.unwrap();
    rig.couriers.await.unwrap();
    assert!(rig.consumer.totals().dropped.is_none());
}

/// Guarantees: start and stop reach the sampler, and what does nothing says why and tells the sampler nothing.
#[tokio::test(start_paused = true)]
async fn manual_control() {
    let mut rig = Rig::start("{web: {executable: app, start_on_launch: false}}");
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

/// Guarantees: only configured targets and their processes can be named.
#[tokio::test(start_paused = true)]
async fn only_what_is_configured() {
    let mut rig = Rig::start(WEB);
    rig.watched().await;
    rig.say(attached(1, 7)).await;
    let named = |target: Option<&str>, pid| Choice { target: target.map(str::to_owned), pid };
    let fault = rig.ask(1, None, Request::Stop(named(Some("db"), None))).await.error.unwrap();
    assert_eq!((&*fault.place, fault.rule.contains("web")), ("target", true));
    let fault = rig.ask(1, None, Request::Stop(named(None, Some(9)))).await.error.unwrap();
    assert_eq!(&*fault.place, "pid");
    assert_eq!(rig.ask(1, None, Request::Stop(named(Some("web"), Some(7)))).await.changed, 1);
    rig.stop().await;
}

/// Guarantees: in `trace` a process is sampled from its first to its last sampled root span; start and stop do nothing and say why;
/// a connection that closes ends its spans.
#[tokio::test(start_paused = true)]
async fn trace_lifecycle() {
    let mut rig = Rig::start("{web: {executable: app, profile_lifecycle: trace}}");
    assert!(!rig.watched().await.sample_at_once);
    rig.say(attached(1, 7)).await;
    let refused = rig.ask(1, None, start()).await;
    assert!(refused.changed == 0 && refused.processes[0].message.contains("trace"));
    let deferred = rig.ask(1, Some(7), Request::SpanStart(span(DEFERRED))).await;
    assert!(deferred.ok && deferred.message.unwrap().contains("deferred"));
    assert!(rig.is_silent().await);
    assert_eq!(rig.ask(1, Some(7), Request::SpanStart(span(SAMPLED))).await.changed, 1);
    assert_eq!(rig.sample().await, (1, true));
    assert_eq!(rig.ask(2, Some(7), Request::SpanStart(span(SAMPLED))).await.changed, 0);
    assert_eq!(rig.ask(1, Some(7), Request::SpanEnd(span(DEFERRED))).await.changed, 0, "another one is open");
    assert!(rig.is_silent().await);
    rig.control.send(Control::Closed(ConnectionId(2))).await.unwrap();
    assert_eq!(rig.sample().await, (1, false));
    let unknown = rig.ask(1, Some(7), Request::SpanEnd(span(SAMPLED))).await;
    assert!(unknown.ok && unknown.message.unwrap().contains("no such span"));
    rig.stop().await;
}

/// Guarantees: a span that is announced before its process was found counts when it is; one of a target counts for all its
/// processes; malformed headers are refused at their place.
#[tokio::test(start_paused = true)]
async fn spans_of_others() {
    let mut rig = Rig::start("{web: {executable: app, profile_lifecycle: trace}}");
    rig.watched().await;
    let early = rig.ask(1, Some(7), Request::SpanStart(span(SAMPLED))).await;
    assert!(early.message.unwrap().contains("not attached"));
    rig.say(attached(1, 7)).await;
    assert_eq!(rig.sample().await, (1, true));
    rig.say(attached(2, 8)).await;
    let of_target = SpanHeaders { target: Some("web".to_owned()), ..span(SAMPLED) };
    assert_eq!(rig.ask(2, Some(99), Request::SpanStart(of_target)).await.changed, 1);
    assert_eq!(rig.sample().await, (2, true));
    let fault = rig.ask(3, Some(7), Request::SpanStart(span("771a-1"))).await.error.unwrap();
    assert_eq!((&*fault.place, fault.rule.contains("at byte 4")), ("sentry-trace", true));
    let fault = rig.ask(3, Some(7), Request::SpanStart(SpanHeaders::default())).await.error.unwrap();
    assert!(fault.rule.contains("either"));
    let fault = rig.ask(3, None, Request::SpanStart(span(SAMPLED))).await.error.unwrap();
    assert!(fault.rule.contains("PID namespace"));
    rig.stop().await;
}

/// Guarantees: a span for a process of a target counts for that process of that target only; a process of another target is refused with
/// its target's name.
#[tokio::test(start_paused = true)]
async fn spans_of_a_process_of_a_target() {
    let mut rig = Rig::start(
        "{web: {executable: app, profile_lifecycle: trace}, worker: {executable: x, profile_lifecycle: trace}}",
    );
    rig.watched().await;
    rig.watched().await;
    let of = |pid, target: &str| {
        Request::SpanStart(SpanHeaders { pid: Some(pid), target: Some(target.to_owned()), ..span(SAMPLED) })
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
    rig.control.send(Control::Closed(ConnectionId(3))).await.unwrap();
    assert_eq!(rig.sample().await, (1, false));
    rig.stop().await;
}

/// Guarantees: a session that is not sampled is never profiled, whoever asks.
#[tokio::test(start_paused = true)]
async fn unsampled_sessions() {
    let mut rig = Rig::start("{web: {executable: app, profile_session_sample_rate: 0}}");
    assert!(!rig.watched().await.sample_at_once);
    rig.say(attached(1, 7)).await;
    let answer = rig.ask(1, None, start()).await;
    assert!(answer.changed == 0 && answer.processes[0].message.contains("profile_session_sample_rate"));
    let status = rig.ask(1, None, Request::Status(Choice::default())).await;
    assert!(!status.targets[0].processes[0].sampled);
    assert!(rig.is_silent().await);
    rig.stop().await;
}

/// Guarantees: a process that starts again, or executes another program, is another session; stop and start within one life are the
/// same session.
#[tokio::test(start_paused = true)]
async fn sessions_follow_lives() {
    let mut rig = Rig::start(WEB);
    rig.watched().await;
    rig.say(attached(1, 7)).await;
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

/// Guarantees: when the sampler process dies, what it said goes out, another one starts after a pause and is told the same, and
/// what was switched by hand stays as it was.
#[tokio::test(start_paused = true)]
async fn a_dead_sampler_is_replaced() {
    let mut rig = Rig::start(WEB);
    rig.watched().await;
    rig.say(attached(1, 7)).await;
    rig.say(batch(1, 2)).await;
    rig.ask(1, None, stop()).await;
    let before = Instant::now();
    rig.sampler.heard.send(Heard::Ended(Some("signal 9 ended it".to_owned()))).await.unwrap();
    assert_eq!(rig.profiles().await.observations(), 2);
    rig.sampler = rig.samplers.recv().await.unwrap();
    assert_eq!(before.elapsed().as_secs(), 1);
    assert!(rig.watched().await.sample_at_once);
    // The numbers of the new one start over.
    rig.say(attached(1, 7)).await;
    assert_eq!(rig.sample().await, (1, false), "it was stopped by hand");
    let status = rig.ask(1, None, Request::Status(Choice::default())).await;
    assert_eq!(status.targets[0].processes.len(), 1);
    rig.stop().await;
}

/// Samples of threads: id, start and length of each, in milliseconds.
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
        locations: vec![Location { mapping: None, address: 1 }],
        stacks: vec![Stack { trust: Trust::Complete, locations: vec![0] }],
        samples: samples.iter().enumerate().map(sample).collect(),
    })
}

/// What a batch explains by there having been no sampler process: thread, start and length of each, in milliseconds.
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

impl Rig {
    /// The sampler process dies, and what it said goes out. Another one is there and knows the targets.
    async fn die(&mut self) {
        self.sampler.heard.send(Heard::Ended(None)).await.unwrap();
        self.sampler = self.samplers.recv().await.unwrap();
        self.watched().await;
    }
}

/// Guarantees: each thread that was sampled before a sampler process died and is sampled by the next one has a sample that explains the time
/// between, under the same session, whether the next one found the process or died itself before; in mode cpu, where nobody knows how
/// much of that time a thread ran, it has none.
#[tokio::test(start_paused = true)]
async fn a_death_is_explained() {
    for (mode, deaths) in [(Mode::Wall, 1), (Mode::Wall, 2), (Mode::Cpu, 1)] {
        let mut rig = Rig::start(WEB);
        rig.watched().await;
        rig.say(attached(1, 7)).await;
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

/// Guarantees: nothing is explained by a sampler process's death where samples were not wanted for a part of the time: the profiler was stopped by
/// hand before or after it, or the last span was closed meanwhile. What comes behind a stop begins nothing either.
#[tokio::test(start_paused = true)]
async fn a_pause_is_no_death() {
    let first = &[(7, 0, 100)];
    for (stopped_before, started_before) in [(true, true), (true, false), (false, false)] {
        let mut rig = Rig::start(WEB);
        rig.watched().await;
        rig.say(attached(1, 7)).await;
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
        let mut rig = Rig::start("{web: {executable: app, profile_lifecycle: trace}}");
        rig.watched().await;
        rig.ask(1, Some(7), Request::SpanStart(span(SAMPLED))).await;
        rig.say(attached(1, 7)).await;
        rig.say(samples(1, Mode::Wall, first)).await;
        rig.die().await;
        if closed {
            rig.ask(1, Some(7), Request::SpanEnd(span(SAMPLED))).await;
            rig.ask(1, Some(7), Request::SpanStart(span(SAMPLED))).await;
        }
        rig.say(attached(1, 7)).await;
        assert_eq!(rig.sample().await, (1, true));
        rig.profiles().await;
        rig.say(samples(1, Mode::Wall, &[(7, 400, 10)])).await;
        assert_eq!(without_sampler(&rig.profiles().await).is_empty(), closed);
        drop(rig);
    }
}

/// Guarantees: what was switched by hand outlasts a sampler process that dies before it has found the process again, and what the next
/// one sampled before it was told goes nowhere.
#[tokio::test(start_paused = true)]
async fn a_stop_outlasts_two_deaths() {
    let mut rig = Rig::start(WEB);
    rig.watched().await;
    rig.say(attached(1, 7)).await;
    rig.say(attached(2, 8)).await;
    rig.ask(1, None, Request::Stop(Choice { target: None, pid: Some(7) })).await;
    assert_eq!(rig.sample().await, (1, false));
    for _ in 0..2 {
        rig.sampler.heard.send(Heard::Ended(None)).await.unwrap();
        rig.sampler = rig.samplers.recv().await.unwrap();
        assert!(rig.watched().await.sample_at_once);
    }
    rig.say(attached(1, 7)).await;
    assert_eq!(rig.sample().await, (1, false));
    rig.say(attached(2, 8)).await;
    rig.say(batch(1, 5)).await;
    rig.say(batch(2, 3)).await;
    assert_eq!(rig.profiles().await.observations(), 3, "only of the process that runs");
    // From the start on its samples are wanted, also those that come behind another stop.
    rig.ask(1, None, start()).await;
    rig.ask(1, None, stop()).await;
    rig.say(batch(1, 2)).await;
    assert_eq!(rig.profiles().await.observations(), 2);
    let consumer = rig.stop().await;
    assert!(consumer.totals().notes.contains(&("sampler_unwanted_samples", 5)));
    assert!(consumer.totals().dropped.is_none());
}

/// Guarantees: what the files of a process take is bounded in bytes; those beyond, and all behind them, are counted.
#[tokio::test(start_paused = true)]
async fn endless_paths() {
    let mut rig = Rig::start(WEB);
    rig.watched().await;
    rig.say(attached(1, 7)).await;
    let mapping = |index, length| {
        Event::Mapping(message::Mapping {
            process: ProcessId(1),
            index,
            path: "x".repeat(length),
            start: 0,
            end: 1,
            file_offset: 0,
            build_id: None,
            htlhash: None,
            main: false,
            go: false,
            file: None,
        })
    };
    let each = 4096;
    let fitting = (MAX_MAPPINGS.0 / (2 * each as u64 + 2 * size_of::<crate::assemble::FileMapping>() as u64)) as u32;
    for index in 0..fitting + 5 {
        rig.say(mapping(index, each)).await;
    }
    // It would fit, but it is not the next one.
    rig.say(mapping(fitting + 5, 0)).await;
    rig.ask(1, None, Request::Status(Choice::default())).await;
    assert!(rig.consumer.totals().notes.contains(&("sampler_mappings_left_out", 6)));
    rig.stop().await;
}

/// Guarantees: a command is started once: a new sampler process is told to look for its process, and lets go of a stranger that has
/// got its id; when the command has ended, nothing is looked for.
#[tokio::test(start_paused = true)]
async fn commands_are_started_once() {
    let mut rig = Rig::start("{job: {command: [job]}}");
    assert!(matches!(rig.watched().await.select, Select::Command(_)));
    rig.say(attached(1, 7)).await;
    rig.sampler.heard.send(Heard::Ended(None)).await.unwrap();
    rig.sampler = rig.samplers.recv().await.unwrap();
    assert_eq!(rig.watched().await.select, Select::Pid(7));
    // The wall clock was set: it is the same process all the same.
    rig.say(Event::Attached(Box::new(Process { start_unix_nano: START, ..process(1, 7) }))).await;
    assert!(rig.is_silent().await);
    rig.sampler.heard.send(Heard::Ended(None)).await.unwrap();
    rig.sampler = rig.samplers.recv().await.unwrap();
    assert_eq!(rig.watched().await.select, Select::Pid(7));
    rig.say(Event::Attached(Box::new(Process { exec_id: 70, start_unix_nano: 1, ..process(1, 7) }))).await;
    assert!(matches!(rig.command().await, Command::Unwatch(TargetId(0))));
    rig.sampler.heard.send(Heard::Ended(None)).await.unwrap();
    rig.sampler = rig.samplers.recv().await.unwrap();
    assert!(rig.is_silent().await);
    rig.stop().await;
}

/// Guarantees: what a pipeline refuses for a while is offered again and not lost; what it refuses for good is counted under its reason.
#[tokio::test(start_paused = true)]
async fn refusals() {
    let mut rig = Rig::start(WEB);
    rig.watched().await;
    rig.say(attached(1, 7)).await;
    rig.say(batch(1, 3)).await;
    let rejected = |retry| Rejected {
        component: "chunk".to_owned(),
        reason: Reason::MemoryLimit,
        retry,
        message: "full".to_owned(),
    };
    for retry in [Retry::Later, Retry::After(Duration::from_secs(60))] {
        assert!(rig.consumer.reject(rejected(retry)).await.is_some());
    }
    assert_eq!(rig.profiles().await.observations(), 3);
    rig.say(batch(1, 2)).await;
    rig.consumer.reject(rejected(Retry::Never)).await;
    let consumer = rig.stop().await;
    let totals = consumer.totals();
    assert_eq!(
        (totals.dropped.get(Reason::MemoryLimit).total(), totals.inbound.total(), totals.outbound.total()),
        (2, 5, 3)
    );
}

/// Guarantees: a pipeline that never takes anything costs a bounded time, and what is given up is counted.
#[tokio::test(start_paused = true)]
async fn patience_ends() {
    let mut rig = Rig::start(WEB);
    rig.watched().await;
    rig.say(attached(1, 7)).await;
    rig.say(batch(1, 3)).await;
    let why = Rejected {
        component: "chunk".to_owned(),
        reason: Reason::MemoryLimit,
        retry: Retry::Later,
        message: "full".to_owned(),
    };
    let before = Instant::now();
    while rig.consumer.totals().dropped.is_none() {
        let offered = tokio::time::timeout(Duration::from_secs(10), rig.consumer.reject(why.clone())).await;
        assert!(offered.is_ok() || !rig.consumer.totals().dropped.is_none());
    }
    assert!(before.elapsed() < Duration::from_secs(60), "{:?}", before.elapsed());
    assert_eq!(rig.consumer.totals().dropped.get(Reason::MemoryLimit).total(), 3);
    rig.stop().await;
}

/// Guarantees: while the queue of an exporter is full, samples wait here, however long that lasts, and none is lost; at the
/// end of a shutdown, whose time is short, what still waits is counted.
#[tokio::test(start_paused = true)]
async fn a_full_queue_is_waited_for() {
    let mut rig = Rig::start(WEB);
    rig.watched().await;
    rig.say(attached(1, 7)).await;
    rig.consumer.set_full(Some(Overflow::Refuse));
    rig.say(batch(1, 3)).await;
    tokio::time::sleep(Duration::from_secs(1800)).await;
    assert!(rig.consumer.totals().dropped.is_none());
    rig.consumer.set_full(None);
    assert_eq!(rig.profiles().await.observations(), 3);

    rig.consumer.set_full(Some(Overflow::Refuse));
    rig.say(batch(1, 2)).await;
    let totals = rig.stop().await.totals();
    assert_eq!(
        (totals.dropped.get(Reason::QueueFull).total(), totals.inbound.total(), totals.outbound.total()),
        (2, 5, 3)
    );
}

/// Guarantees: what waits for the pipelines has a bound; what is beyond it is counted, and what the sampler lost itself is, too.
#[tokio::test(start_paused = true)]
async fn losses_are_counted() {
    let mut rig = Rig::start(WEB);
    rig.watched().await;
    rig.say(attached(1, 7)).await;
    let lost = |lost_observations| {
        Event::Status(Status { process: ProcessId(1), lost_observations, ticks: 9, ..Status::default() })
    };
    rig.say(lost(2)).await;
    rig.say(lost(5)).await;
    rig.ask(1, None, Request::Status(Choice::default())).await;
    assert_eq!(rig.consumer.totals().dropped.get(Reason::QueueFull).total(), 5);
    assert!(rig.consumer.totals().notes.contains(&("sampler_ticks", 9)));
    // 32 MiB at 12 bytes or more a sample, and nobody takes any.
    for _ in 0..400 {
        rig.say(batch(1, 20_000)).await;
    }
    rig.ask(1, None, Request::Status(Choice::default())).await;
    let dropped = rig.consumer.totals().dropped.get(Reason::QueueFull).total();
    assert!(dropped > 5 && dropped < 300 * 20_000, "{dropped}");
    drop(rig);
}

/// Guarantees: how much processor time was not sampled, what would show it, and how many calls were cut stands in the status, in the metrics, and in the log when the
/// process is let go.
#[tokio::test(start_paused = true)]
async fn what_is_not_sampled() {
    keep_log();
    let mut rig = Rig::start(WEB);
    rig.watched().await;
    rig.say(attached(1, 4747)).await;
    let status = |not_sampled_nano, cut_calls| {
        Event::Status(Status { process: ProcessId(1), not_sampled_nano, cut_calls, ..Status::default() })
    };
    rig.say(status(1_000_000_000, 1)).await;
    rig.say(status(2_500_000_000, 3)).await;
    let response = rig.ask(1, None, Request::Status(Choice::default())).await;
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

impl Rig {
    /// How many processes are said to be on each rung: nothing known yet, none, user, kernel, processors.
    async fn rungs(&self) -> Vec<u64> {
        self.ask(1, None, Request::Status(Choice::default())).await;
        let names = ["undecided", "without_events", "user_events", "kernel_events", "processor_events"];
        let levels = self.consumer.totals().levels;
        let level = |name: &str| levels.iter().find(|(known, _)| *known == format!("sampler_processes_{name}"));
        names.map(|name| level(name).unwrap().1).to_vec()
    }
}

/// What a sampler says of a process whose running threads are on a rung.
fn on_rung(process: u64, rung: Rung) -> Event {
    Event::Status(Status { process: ProcessId(process), rung, ticks: 9, ..Status::default() })
}

/// Guarantees: it is a metric how many of the processes that are sampled are on each rung, those of which it is not known yet apart; one that is not
/// sampled, has ended, or lost its sampler process, is none of them.
#[tokio::test(start_paused = true)]
async fn processes_by_rung() {
    let mut rig = Rig::start(WEB);
    rig.watched().await;
    assert_eq!(rig.rungs().await, [0; 5]);
    for number in 1..=5 {
        rig.say(attached(number, number as u32)).await;
    }
    assert_eq!(rig.rungs().await, [5, 0, 0, 0, 0]);
    rig.say(Event::Status(Status { process: ProcessId(1), ..Status::default() })).await;
    for (number, rung) in [(2, Rung::None), (3, Rung::User), (4, Rung::Kernel), (5, Rung::Processors)] {
        rig.say(on_rung(number, rung)).await;
    }
    assert_eq!(rig.rungs().await, [1; 5], "without a tick nothing was asked for");
    rig.say(on_rung(3, Rung::Kernel)).await;
    assert_eq!(rig.rungs().await, [1, 1, 0, 2, 1]);
    rig.ask(1, None, Request::Stop(Choice { target: None, pid: Some(5) })).await;
    assert_eq!(rig.rungs().await, [1, 1, 0, 2, 0]);
    rig.ask(1, None, start()).await;
    rig.say(Event::Detached { process: ProcessId(2), why: Detached::Exited }).await;
    assert_eq!(rig.rungs().await, [1, 0, 0, 2, 1]);
    rig.die().await;
    assert_eq!(rig.rungs().await, [0; 5]);
    rig.stop().await;
}

/// Guarantees: what is seen of running threads is in the log once for each process, again when it changes, and not each second; a process
/// of which it was not found out is not there.
#[tokio::test(start_paused = true)]
async fn a_rung_is_logged() {
    keep_log();
    let mut rig = Rig::start(WEB);
    rig.watched().await;
    rig.say(attached(1, 5001)).await;
    rig.say(attached(2, 5002)).await;
    rig.say(Event::Status(Status { process: ProcessId(2), ..Status::default() })).await;
    for second in 0..200 {
        let rung = if second == 0 { Rung::User } else { Rung::Processors };
        rig.say(on_rung(1, rung)).await;
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

/// Guarantees: where the rungs of many processes are found out within a short time, one line sums up all but the first; one that changes all the time has
/// two lines a minute, one that changes back none, and one that is let go before its turn is said with that.
#[tokio::test(start_paused = true)]
async fn many_rungs_are_summed_up() {
    keep_log();
    let mut rig = Rig::start("{many: {executable: app}}");
    rig.watched().await;
    let all = rungs::MOST_LINES as u64 + 300;
    for number in 1..=all {
        rig.say(attached(number, 6000 + number as u32)).await;
        rig.say(on_rung(number, if number % 2 == 0 { Rung::Kernel } else { Rung::None })).await;
    }
    rig.say(Event::Detached { process: ProcessId(all), why: Detached::Exited }).await;
    // They are said already: to and fro, and for good.
    rig.say(on_rung(2, Rung::Processors)).await;
    rig.say(on_rung(2, Rung::Kernel)).await;
    rig.say(on_rung(4, Rung::Processors)).await;
    rig.ask(1, None, Request::Status(Choice::default())).await;
    assert_eq!(logged("running threads of process 6").len(), rungs::MOST_LINES);
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
        rig.say(on_rung(6, if second % 2 == 0 { Rung::Processors } else { Rung::Kernel })).await;
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    let lines = logged("running threads of process 6006 of many").len();
    assert!((2..=23).contains(&lines), "{lines}");
    assert_eq!(logged("running threads of process 6002 of many").len(), 1);
    assert_eq!(logged("more processes").len(), 1);
    rig.stop().await;
}

/// Guarantees: what the sampler says besides (hints, problems, the end of a command, unknown processes) needs no answer.
#[tokio::test(start_paused = true)]
async fn takes_anything() {
    let mut rig = Rig::start(WEB);
    rig.watched().await;
    rig.say(Event::Ready(Rights { hints: vec!["set ptrace_scope".to_owned()], ..Rights::default() })).await;
    for pid in [None, Some(7)] {
        let kind = ProblemKind::Permission;
        let message = "no".to_owned();
        rig.say(Event::Problem(message::Problem { target: TargetId(9), pid, kind, message })).await;
    }
    rig.say(Event::CommandEnded { target: TargetId(9), code: 1 }).await;
    rig.say(Event::Attached(Box::new(Process { target: TargetId(9), ..process(5, 7) }))).await;
    rig.say(batch(77, 2)).await;
    rig.say(Event::Detached { process: ProcessId(77), why: Detached::Failed }).await;
    assert!(rig.is_silent().await);
    let consumer = rig.stop().await;
    assert_eq!(consumer.totals().dropped.get(Reason::Internal).total(), 2);
}

/// Guarantees: the receiver starts through its contract, with a control socket that answers, and stops at the shutdown.
#[tokio::test]
async fn as_a_receiver() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("p").join("control.sock");
    let yaml = format!("{{targets: {{web: {{executable: app}}}}, control: {{socket: '{}'}}}}", socket.display());
    let settings = Settings::read(&Section::from_yaml(&yaml).unwrap()).unwrap();
    let (intake, _consumer) = intake(1 << 30);
    let metrics = Metrics::new(Budget::new(1 << 30));
    let (trigger, shutdown) = Shutdown::pair();
    let context =
        ReceiverContext { id: "ptrace".to_owned(), next: intake, shutdown, telemetry: metrics.receiver("ptrace") };
    let (started, mut samplers) = mpsc::channel(1);
    let launch: Launch = Box::new(move || {
        let (commands, waiting) = mpsc::channel(64);
        let (heard_sender, heard) = mpsc::channel(64);
        started.try_send(Played { commands: waiting, heard: heard_sender }).map_err(|error| error.to_string())?;
        Ok(Link { commands, heard })
    });
    let Running { stopped, .. } = crate::receiver::start(settings, context, launch, "h".to_owned()).await.unwrap();
    let running = tokio::spawn(stopped);
    let sampler = samplers.recv().await.unwrap();
    let path = socket.clone();
    let status = tokio::task::spawn_blocking(move || {
        crate::control::client::request(&path, &Request::Status(Choice::default())).unwrap()
    });
    assert_eq!(status.await.unwrap().targets[0].target, "web");
    trigger.trigger();
    drop(sampler);
    running.await.unwrap();
    assert!(!socket.exists(), "the socket goes with its owner");
}

/// Guarantees: a shutdown while the sampler process is gone waits for nobody.
#[tokio::test(start_paused = true)]
async fn stop_without_a_sampler() {
    let rig = Rig::start("{app: {pid: 7}}");
    let start = Instant::now();
    rig.sampler.heard.send(Heard::Ended(None)).await.unwrap();
    while !rig.sampler.commands.is_closed() {
        tokio::task::yield_now().await;
    }
    rig.trigger.trigger();
    rig.driver.await.unwrap();
    assert!(start.elapsed() < Duration::from_millis(100), "{:?}", start.elapsed());
}

thread_local! {
    /// What is logged on this thread, on which a test's runtime lives.
    static LOG: std::cell::RefCell<Vec<u8>> = const { std::cell::RefCell::new(Vec::new()) };
}

/// Writes to the log of the thread.
struct ThreadLog;

impl std::io::Write for ThreadLog {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        LOG.with_borrow_mut(|log| log.extend_from_slice(bytes));
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// The lines of this thread's log with a text in it.
fn logged(text: &str) -> Vec<String> {
    let log = LOG.with_borrow(|log| String::from_utf8(log.clone()).unwrap());
    log.lines().filter(|line| line.contains(text)).map(str::to_owned).collect()
}

/// Keeps the lines of all threads apart. One subscriber serves all tests: with one for each, a line that another thread reaches first is
/// switched off for all.
fn keep_log() {
    static ONCE: std::sync::Once = std::sync::Once::new();
    ONCE.call_once(|| {
        let subscriber = tracing_subscriber::fmt().with_writer(|| ThreadLog).with_ansi(false).finish();
        tracing::subscriber::set_global_default(subscriber).unwrap();
    });
}

/// Guarantees: a target whose spans nobody announces is named once in the log, a minute after its first process was found, with the
/// socket and the way out; one for which a span was announced, even an unsampled one, or that waits for no spans, is not.
#[tokio::test(start_paused = true)]
async fn nobody_announces() {
    keep_log();
    let yaml = "{silent: {executable: a, profile_lifecycle: trace}, heard: {executable: b, profile_lifecycle: trace}, \
                 manual: {executable: c}, none: {executable: d, profile_lifecycle: trace}}";
    let mut rig = Rig::start(yaml);
    for _ in 0..4 {
        rig.watched().await;
    }
    // Targets are in order of their names.
    for (id, target) in [(1, 3), (2, 0), (3, 1)] {
        let process = Process { target: TargetId(target), ..process(id, 40 + id as u32) };
        rig.say(Event::Attached(Box::new(process))).await;
    }
    let unsampled = SAMPLED.replace("-1", "-0");
    let headers = SpanHeaders { sentry_trace: Some(unsampled), ..SpanHeaders::default() };
    rig.ask(1, Some(42), Request::SpanStart(headers)).await;
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

/// Guarantees: what a sampler process that was taken over says cannot write lines of its own into the log, nor long ones.
#[test]
fn log_lines() {
    assert_eq!(one_line("a\nERROR b\u{1b}[2J"), "a ERROR b [2J");
    assert_eq!(one_line(&"x".repeat(100_000)).len(), MAX_SAID);
}
