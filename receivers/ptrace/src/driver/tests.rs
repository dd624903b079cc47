//! Tests of the driver with a simulated sampler process and simulated pipelines.

use profbridge_engine::budget::Budget;
use profbridge_engine::component::{Rejected, Retry};
use profbridge_engine::config::Section;
use profbridge_engine::delivery::Overflow;
use profbridge_engine::peer_limits::PeerLimits;
use profbridge_engine::receiver::{ReceiverContext, RunningReceiver};
use profbridge_engine::telemetry::Metrics;
use profbridge_model::{Profiles, Reason, Telemetry, Value};
use profbridge_net::Trigger;
use profbridge_sampler::message::{
    self, AttributeValue, Batch, Detached, Event, Level, Location, Mode, ProblemKind, Process, Rights, Sample, Select,
    Settings as Sampling, Stack, Status, Target, Thread, Trust,
};
use profbridge_sampler::owner::Ending;
use profbridge_testkit::{Consumer, intake};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use self::log::{keep_log, logged};
use super::events::{MAX_DESCRIPTIONS, MAX_LOGGED_TEXT, one_line};
use super::*;
use crate::control::protocol::{Choice, ControlRequest, ControlResponse, SpanHeaders};
use crate::spans::ConnectionId;

mod control;
mod delivery;
mod gaps;
mod levels;
mod log;

const START: u64 = 1_767_225_600_000_000_000;
const SAMPLED: &str = "771a43a4192642f0b136d5159a501700-a1b2c3d4e5f60718-1";
const DEFERRED: &str = "771a43a4192642f0b136d5159a501700-a1b2c3d4e5f60718";

/// A sampler process simulated by a test.
struct SimulatedSampler {
    commands: mpsc::Receiver<Command>,
    notices: mpsc::Sender<Notice>,
}

/// Starts simulated sampler processes, and sends them to the test.
fn simulated() -> (Launch, mpsc::Receiver<SimulatedSampler>) {
    let (started, samplers) = mpsc::channel(8);
    let launch: Launch = Box::new(move || {
        let (commands, waiting) = mpsc::channel(64);
        let (notice_sender, notices) = mpsc::channel(64);
        started
            .try_send(SimulatedSampler { commands: waiting, notices: notice_sender })
            .map_err(|error| error.to_string())?;
        Ok(SamplerLink { commands, notices })
    });
    (launch, samplers)
}

/// A driver between a simulated sampler and simulated pipelines.
struct DriverHarness {
    samplers: mpsc::Receiver<SimulatedSampler>,
    sampler: SimulatedSampler,
    control: mpsc::Sender<ControlEvent>,
    consumer: Consumer,
    trigger: Trigger,
    driver: JoinHandle<()>,
    couriers: JoinHandle<()>,
}

impl DriverHarness {
    fn start(yaml: &str) -> Self {
        let yaml = format!("{{symbolize: {{enabled: false}}, targets: {yaml}}}");
        let settings = Settings::read(&Section::from_yaml(&yaml).unwrap()).unwrap_or_else(|p| panic!("{p}"));
        let (intake, consumer) = intake(1 << 30);
        let metrics = Metrics::new(Budget::new(1 << 30));
        let (trigger, shutdown) = Shutdown::pair();
        let telemetry = metrics.receiver("ptrace");
        let transport = telemetry.transport("sampler");
        let limit = delivery_limit(&settings);
        let (delivery, couriers) = Delivery::new(intake.clone(), transport, shutdown.clone(), limit);
        let (mut launch, mut samplers) = simulated();
        let link = launch().unwrap();
        let sampler = samplers.try_recv().unwrap();
        let parts = DriverParts {
            id: "ptrace".to_owned(),
            intake,
            host: "node-1".to_owned(),
            identity: profbridge_identity::Rules::default(),
            symbolizer: None,
            delivery,
            launch,
            telemetry,
        };
        let (control, events) = mpsc::channel(8);
        let driver = tokio::spawn(Driver::new(settings, parts).run(link, events, shutdown));
        let couriers = tokio::spawn(couriers);
        Self { samplers, sampler, control, consumer, trigger, driver, couriers }
    }

    /// A driver that was asked to watch its only target, and has one process of it (number 1, process id 7).
    async fn with_process(yaml: &str) -> Self {
        let mut rig = Self::start(yaml);
        rig.watched().await;
        rig.say(attached(1, 7)).await;
        rig
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

    /// The next command, which switches the sampling of a process: its number, and whether it is on.
    async fn sample(&mut self) -> (u64, bool) {
        match self.command().await {
            Command::Sample { process, on } => (process.0, on),
            other => panic!("{other:?}"),
        }
    }

    /// Waits until the driver has handled all messages. Returns whether it sent no command meanwhile.
    async fn is_silent(&mut self) -> bool {
        self.ask(1, None, ControlRequest::Status(Choice::default())).await;
        self.sampler.commands.try_recv().is_err()
    }

    async fn say(&self, event: Event) {
        self.sampler.notices.send(Notice::Event(event)).await.unwrap();
    }

    async fn ask(&self, connection: u64, peer: Option<u32>, request: ControlRequest) -> ControlResponse {
        // Events that the sampler sent before the request are received before it, since both queues were empty.
        while self.sampler.notices.capacity() < self.sampler.notices.max_capacity() {
            tokio::task::yield_now().await;
        }
        let (answer, answered) = oneshot::channel();
        let event = ControlEvent::Request { connection: ConnectionId(connection), peer, request, answer };
        self.control.send(event).await.unwrap();
        answered.await.unwrap()
    }

    async fn profiles(&mut self) -> Profiles {
        match self.consumer.take().await.unwrap() {
            Telemetry::Profiles(profiles) => profiles,
            other => panic!("{other:?}"),
        }
    }

    /// Kills the sampler process after its samples were sent. Another one starts and receives the targets.
    async fn die(&mut self) {
        self.replace_sampler().await;
        self.watched().await;
    }

    /// Kills the sampler process, and waits for another one.
    async fn replace_sampler(&mut self) {
        self.sampler.notices.send(Notice::Ended(Ending::Stopped)).await.unwrap();
        self.sampler = self.samplers.recv().await.unwrap();
    }

    /// Shuts the driver down, and checks the last commands to the sampler process.
    async fn stop(mut self) -> Consumer {
        self.trigger.trigger();
        loop {
            match self.command().await {
                Command::Stop => break,
                Command::Sample { .. } => {}
                other => panic!("{other:?}"),
            }
        }
        drop(self.sampler.notices);
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
        ..Process::default()
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
        locations: vec![Location::Native { mapping: None, address: 1 }],
        stacks: vec![Stack { trust: Trust::Complete, locations: vec![0] }],
        contexts: Vec::new(),
        samples: (0..samples).map(sample).collect(),
    })
}

fn start() -> ControlRequest {
    ControlRequest::Start(Choice::default())
}

fn stop() -> ControlRequest {
    ControlRequest::Stop(Choice::default())
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

/// Guarantees: the sampler receives which processes to look for and how to sample them, and is asked to sample at once
/// if no lifecycle has to decide.
#[tokio::test(start_paused = true)]
async fn watches_its_targets() {
    let mut rig = DriverHarness::start(
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

/// Guarantees: the functions of a process take a bounded number of bytes; those beyond the limit, and all later ones,
/// are counted.
#[tokio::test(start_paused = true)]
async fn endless_functions() {
    let rig = DriverHarness::with_process(WEB).await;
    let (each, count) = (1 << 20, 20);
    for first in 0..count {
        let kind = message::FunctionKind::CPython;
        let function =
            message::Function { kind, name: "x".repeat(each), module: String::new(), file: String::new(), line: first };
        rig.say(Event::Functions { process: ProcessId(1), first, functions: vec![function] }).await;
    }
    rig.ask(1, None, ControlRequest::Status(Choice::default())).await;
    let fitting = MAX_DESCRIPTIONS.0 / (each + size_of::<message::Function>()) as u64;
    assert!(rig.consumer.totals().notes.contains(&("sampler_functions_left_out", u64::from(count) - fitting)));
    rig.stop().await;
}

/// Guarantees: the mappings of a process take a bounded number of bytes; those beyond the limit, and all later ones,
/// are counted.
#[tokio::test(start_paused = true)]
async fn endless_paths() {
    let rig = DriverHarness::with_process(WEB).await;
    let mapping = |index, length| {
        let path = "x".repeat(length);
        Event::Mapping(message::Mapping { process: ProcessId(1), index, path, end: 1, ..message::Mapping::default() })
    };
    let each = 4096;
    let fitting = (MAX_DESCRIPTIONS.0 / (2 * each as u64 + 2 * size_of::<message::Mapping>() as u64)) as u32;
    for index in 0..fitting + 5 {
        rig.say(mapping(index, each)).await;
    }
    // This mapping would fit, but an earlier one was left out, and indices must have no gaps.
    rig.say(mapping(fitting + 5, 0)).await;
    rig.ask(1, None, ControlRequest::Status(Choice::default())).await;
    assert!(rig.consumer.totals().notes.contains(&("sampler_mappings_left_out", 6)));
    rig.stop().await;
}

/// Guarantees: the context that a process publishes is in the resource of batches sent after it, and is replaced when
/// the process publishes another one.
#[tokio::test(start_paused = true)]
async fn shown_resources() {
    let mut rig = DriverHarness::with_process("{a: {pid: 7, service: {version: '1'}}}").await;
    let name = |profiles: &Profiles| {
        let resource = &profiles.resources()[0].resource;
        let text = |key| match profiles.find(&resource.attributes, key) {
            Some(Value::String(id)) => Some(profiles.dictionary().string(*id).to_owned()),
            _ => None,
        };
        (text("service.name"), text("service.version"))
    };
    let text = |text: &str| Some(text.to_owned());
    for (shown, expected) in [(None, None), (text("one"), text("one")), (text("two"), text("two")), (text(""), None)] {
        if let Some(shown) = shown {
            let attributes = [("service.name", shown), ("service.version", "9".to_owned())]
                .map(|(key, value)| (key.to_owned(), AttributeValue::Text(value)));
            rig.say(Event::Resource { process: ProcessId(1), attributes: attributes.to_vec() }).await;
        }
        rig.say(batch(1, 2)).await;
        assert_eq!(name(&rig.profiles().await), (expected, text("1")));
    }
    rig.stop().await;
}

/// Guarantees: other events of the sampler (hints, problems, the end of a command, unknown processes) are handled
/// without an answer.
#[tokio::test(start_paused = true)]
async fn takes_anything() {
    let mut rig = DriverHarness::start(WEB);
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

/// Guarantees: the receiver starts through its contract, with a control socket that answers, and stops at the
/// shutdown.
#[tokio::test]
async fn as_a_receiver() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("p").join("control.sock");
    let yaml = format!("{{targets: {{web: {{executable: app}}}}, control: {{socket: '{}'}}}}", socket.display());
    let settings = Settings::read(&Section::from_yaml(&yaml).unwrap()).unwrap();
    let (intake, _consumer) = intake(1 << 30);
    let metrics = Metrics::new(Budget::new(1 << 30));
    let (trigger, shutdown) = Shutdown::pair();
    let context = ReceiverContext {
        allowed_hosts: std::sync::Arc::default(),
        id: "ptrace".to_owned(),
        next: intake,
        shutdown,
        telemetry: metrics.receiver("ptrace"),
        peer_limits: PeerLimits::default(),
        identity: profbridge_identity::Rules::default(),
    };
    let (launch, mut samplers) = simulated();
    let RunningReceiver { stopped, .. } =
        crate::receiver::start(settings, context, launch, "h".to_owned()).await.unwrap();
    let running = tokio::spawn(stopped);
    let sampler = samplers.recv().await.unwrap();
    let path = socket.clone();
    let status = tokio::task::spawn_blocking(move || {
        crate::control::client::request(&path, &ControlRequest::Status(Choice::default())).unwrap()
    });
    assert_eq!(status.await.unwrap().targets[0].target, "web");
    trigger.trigger();
    drop(sampler);
    running.await.unwrap();
    assert!(!socket.exists(), "the socket goes with its owner");
}

/// Guarantees: text from a compromised sampler process cannot add lines, or long ones, to the log.
#[test]
fn log_lines() {
    assert_eq!(one_line("a\nERROR b\u{1b}[2J"), "a ERROR b [2J");
    assert_eq!(one_line(&"x".repeat(100_000)).len(), MAX_LOGGED_TEXT);
}
