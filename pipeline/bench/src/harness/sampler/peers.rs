//! Beside other profilers: how much slower the same target gets, in turns.

use std::{
    cell::RefCell,
    path::Path,
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use profbridge_sampler::message::Settings;

use super::{
    super::{Error, procfs, report::Report, statistics},
    Options,
    session::Session,
    slowdown::cost,
    targets::{Programs, Target},
    turns::{self, Condition},
};

/// How long a profiler has for its start, before the target's work is counted.
const START: Duration = Duration::from_millis(1500);

/// How long a profiler may take to write what it has.
const END: Duration = Duration::from_secs(20);

/// What the turns share: the target, and the sampler where the library is compared.
struct State {
    target: Target,
    session: Option<Session>,
}

/// Another profiler: how it is started on a process.
struct Peer<'a> {
    name: &'a str,
    arguments: Box<dyn Fn(u32) -> Command + 'a>,
    /// Its processor time in the turns, in percent of a core.
    cpu: RefCell<Vec<f64>>,
}

pub(super) fn measure(options: &Options, programs: &Programs, report: &mut Report) -> Result<(), Error> {
    let target = programs.interpret("python3", "counting.py", &[])?;
    let time = Duration::from_secs_f64(options.turn);
    let folder = programs.folder().to_owned();
    let out = |name: &str| folder.join(name);
    let mut peers = Vec::new();
    if let Some(binary) = &options.binary {
        let binary = binary.canonicalize()?;
        peers.push(Peer::new("profbridge", move |pid| {
            let mut command = Command::new(&binary);
            command
                .args(["sample", "--pid", &pid.to_string(), "--duration", "60s", "-o"])
                .arg(out("profbridge.folded"));
            command
        }));
    }
    if works(&options.py_spy, "--version") {
        peers.push(Peer::new("py-spy --native", |pid| {
            let mut command = Command::new(&options.py_spy);
            command.args(["record", "--native", "--rate", "101", "--duration", "60", "--format", "raw"]);
            command.args(["--pid", &pid.to_string(), "--output"]).arg(folder.join("py-spy.raw"));
            command
        }));
    }
    if works(Path::new("perf"), "--version") {
        peers.push(Peer::new("perf record --call-graph dwarf", |pid| {
            let mut command = Command::new("perf");
            command.args(["record", "-q", "-F", "101", "-g", "--call-graph", "dwarf", "-p", &pid.to_string(), "-o"]);
            command.arg(folder.join("perf.data"));
            command
        }));
    }
    let session = match options.binary {
        Some(_) => None,
        None => Some(Session::start(target.pid(), Settings::default(), false)?),
    };
    let library = session.is_some();
    let mut state = State { target, session };
    let library_cpu = RefCell::new(Vec::new());
    let alone = |state: &mut State| {
        thread::sleep(START);
        state.alone(time)
    };
    let sampled = |state: &mut State| state.sampled(time, &library_cpu);
    let others: Vec<_> = peers.iter().map(|peer| move |state: &mut State| peer.turn(state, time)).collect();
    let mut conditions: Vec<Condition<'_, State>> = vec![("alone", &alone), ("alone once more", &alone)];
    if library {
        conditions.push(("profbridge", &sampled));
    }
    for (peer, turn) in peers.iter().zip(&others) {
        conditions.push((peer.name, turn));
    }
    let turns = turns::measure(options.turns, &mut state, &conditions)?;
    for (name, outcome) in &turns.outcomes {
        let name = if name == "alone once more" {
            "  control: not profiled either".to_owned()
        } else {
            format!("slowdown, {name}")
        };
        report.ratio(name, outcome, None);
    }
    compare(&turns, report);
    for (name, cpu) in peers.iter().map(|peer| (peer.name, &peer.cpu)).chain([("profbridge", &library_cpu)]) {
        if !cpu.borrow().is_empty() {
            report.figure(format!("  its processor time, {name}"), statistics::median(&cpu.borrow()), "%", None);
        }
    }
    Ok(())
}

/// Says whether profbridge slows the target less than the others do, pair by pair: the others' cost by its own.
fn compare(turns: &turns::Turns, report: &mut Report) {
    use super::super::{pairs::Outcome, report::Goal};
    let Some((_, own)) = turns.outcomes.iter().find(|(name, _)| name == "profbridge") else { return };
    for (name, other) in
        turns.outcomes.iter().filter(|(name, _)| name.starts_with("py-spy") || name.starts_with("perf"))
    {
        let ratios: Vec<f64> = other.ratios.iter().zip(&own.ratios).map(|(other, own)| other / own).collect();
        let outcome = Outcome {
            ratio: statistics::median(&ratios),
            interval: statistics::interval(&ratios),
            ratios,
            a: own.b,
            b: other.b,
            ..other.clone()
        };
        // Less than py-spy; against perf, intervals that overlap count as equal: the upper end must reach one.
        let goal = name.starts_with("py-spy").then_some(Goal::AtLeast(1.0));
        report.ratio(format!("cost with {name} by cost with profbridge"), &outcome, goal);
        if name.starts_with("perf") {
            let overlaps = own.interval.0 <= other.interval.1;
            report.figure(
                format!("  not above {name} (1: the intervals overlap)"),
                f64::from(u8::from(overlaps)),
                "",
                Some(Goal::AtLeast(1.0)),
            );
        }
    }
}

fn works(program: &Path, argument: &str) -> bool {
    Command::new(program).arg(argument).output().is_ok_and(|output| output.status.success())
}

impl State {
    /// A turn without a profiler.
    fn alone(&mut self, time: Duration) -> Result<f64, Error> {
        let Self { target, session } = self;
        cost(target, || rest(session, time))
    }

    /// A turn under this program's own sampler.
    fn sampled(&mut self, time: Duration, cpu: &RefCell<Vec<f64>>) -> Result<f64, Error> {
        let Self { target, session: Some(session) } = self else { return Err("no sampler".into()) };
        session.sample(true)?;
        session.listen(START)?;
        let (before, started) = (session.cpu()?, Instant::now());
        let cost = cost(target, || session.listen(time))?;
        let after = session.cpu()?;
        cpu.borrow_mut().push(100.0 * (after.0 - before.0).as_secs_f64() / started.elapsed().as_secs_f64());
        session.sample(false)?;
        session.listen(Duration::from_millis(100))?;
        Ok(cost)
    }
}

impl<'a> Peer<'a> {
    fn new(name: &'a str, arguments: impl Fn(u32) -> Command + 'a) -> Self {
        Self { name, arguments: Box::new(arguments), cpu: RefCell::new(Vec::new()) }
    }

    /// A turn under this profiler.
    fn turn(&self, state: &mut State, time: Duration) -> Result<f64, Error> {
        let mut command = (self.arguments)(state.target.pid());
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut profiler = Running(command.spawn().map_err(|error| format!("{}: {error}", self.name))?);
        thread::sleep(START);
        let pid = profiler.0.id();
        if profiler.0.try_wait()?.is_some() {
            return Err(format!("{command:?} ended at once").into());
        }
        let (before, started) = (procfs::exact_cpu_with_children(pid)?, Instant::now());
        let State { target, session } = state;
        let cost = cost(target, || rest(session, time))?;
        let cpu = procfs::exact_cpu_with_children(pid)? - before;
        self.cpu.borrow_mut().push(100.0 * cpu.as_secs_f64() / started.elapsed().as_secs_f64());
        kill(Pid::from_raw(i32::try_from(pid)?), Signal::SIGINT)?;
        let end = Instant::now() + END;
        while profiler.0.try_wait()?.is_none() {
            if Instant::now() > end {
                return Err(format!("{} does not end", self.name).into());
            }
            thread::sleep(Duration::from_millis(20));
        }
        Ok(cost)
    }
}

/// Lets time pass, and takes what a sampler says meanwhile.
fn rest(session: &mut Option<Session>, time: Duration) -> Result<(), Error> {
    match session {
        Some(session) => session.listen(time),
        None => {
            thread::sleep(time);
            Ok(())
        }
    }
}

/// A profiler that ends with this.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // It has ended already, or is asked to end.
        self.0.kill().ok();
        self.0.wait().ok();
    }
}
