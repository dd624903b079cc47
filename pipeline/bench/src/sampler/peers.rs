//! Comparison with other profilers: the slowdown of the same target, and the profilers' processor time, in alternating
//! turns.

use std::cell::RefCell;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use profbridge_sampler::message::Settings;

use super::SamplerBenchOptions;
use super::session::{self, Session, WARM_UP};
use super::targets::{Programs, TargetChild};
use super::turns::{self, Condition};
use crate::report::{Goal, Report};
use crate::{Error, statistics};

/// How long a profiler may take to write its data.
const END: Duration = Duration::from_secs(20);

/// The state shared by the turns: the target, and profbridge's sampler, which stays attached.
type TurnState = (TargetChild, Session);

/// Another profiler: its name, the command that starts it on a process, and its processor times in the turns, in
/// percent of a core.
struct PeerProfiler<'a> {
    name: &'a str,
    command: RefCell<Command>,
    cpu: RefCell<Vec<f64>>,
}

pub(super) fn measure(options: &SamplerBenchOptions, programs: &Programs, report: &mut Report) -> Result<(), Error> {
    let target = programs.interpret(Path::new("python3"), "counting.py", &[])?;
    let session = Session::start(target.pid(), Settings::default(), false)?;
    let (time, pid) = (options.turn(), target.pid().to_string());
    let peer = |name, mut command: Command, file: &str| {
        command.arg(programs.file(file)).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        PeerProfiler { name, command: command.into(), cpu: RefCell::default() }
    };
    let mut peers = Vec::new();
    if works(&options.py_spy) {
        for (name, native) in [("py-spy", &[][..]), ("py-spy --native", &["--native"])] {
            let mut command = Command::new(&options.py_spy);
            command.args(["record", "--rate", "101", "--duration", "600", "--format", "raw", "--pid", &pid]);
            command.args(native).arg("--output");
            peers.push(peer(name, command, "py-spy.raw"));
        }
    }
    if works(Path::new("perf")) {
        let command = perf(&pid);
        peers.push(peer("perf record --call-graph dwarf", command, "perf.data"));
    }
    let own_cpu = RefCell::new(Vec::new());
    let alone = |(target, session): &mut TurnState| {
        session.listen(WARM_UP)?;
        cost(target, || session.listen(time))
    };
    let sampled = |(target, session): &mut TurnState| {
        session.sample(true)?;
        session.listen(WARM_UP)?;
        let cost = cost(target, || {
            own_cpu.borrow_mut().push(session.cpu(time)?);
            Ok(())
        })?;
        session.sample(false)?;
        session.listen(Duration::from_millis(100))?;
        Ok(cost)
    };
    let others: Vec<_> = peers.iter().map(|peer| move |state: &mut TurnState| peer.turn(state, time)).collect();
    let mut conditions: Vec<Condition<'_, TurnState>> =
        vec![("alone", &alone), ("nobody", &alone), ("profbridge", &sampled)];
    conditions.extend(peers.iter().zip(&others).map(|(peer, turn)| (peer.name, turn as _)));
    let turns = turns::measure(options.turns, &mut (target, session), &conditions)?;
    for (name, outcome) in &turns.outcomes {
        report.ratio(format!("slowdown, {name}"), outcome, None);
    }
    report.turns("processor time, profbridge", &own_cpu.borrow(), "% of a core", None);
    for peer in &peers {
        let cpu = peer.cpu.borrow();
        report.turns(format!("processor time, {}", peer.name), &cpu, "% of a core", None);
        let goal = match peer.name {
            "py-spy" => Some(Goal::AtMost(0.5)),
            "py-spy --native" => Some(Goal::AtMost(0.25)),
            _ => None,
        };
        let by = statistics::median(&own_cpu.borrow()) / statistics::median(&cpu);
        report.figure(format!("  profbridge's by that of {}", peer.name), by, "x", goal);
    }
    Ok(())
}

/// Returns a `perf record` command for a process at 101 Hz, without the output file.
fn perf(pid: &str) -> Command {
    let mut command = Command::new("perf");
    command.args(["record", "-q", "-e", "cpu-clock", "-F", "101", "--call-graph", "dwarf,16384", "-p", pid, "-o"]);
    command
}

/// The processor time of `perf record` over some time, in percent of a core; `None` if it is not installed.
pub(super) fn perf_cpu(programs: &Programs, pid: u32, time: Duration) -> Result<Option<f64>, Error> {
    if !works(Path::new("perf")) {
        return Ok(None);
    }
    let mut command = perf(&pid.to_string());
    command.arg(programs.file("perf.data")).stdout(Stdio::null()).stderr(Stdio::null());
    let running = Running::start(&mut command)?;
    let cpu = session::cpu(running.0.id(), || {
        thread::sleep(time);
        Ok(())
    })?;
    running.finish()?;
    Ok(Some(cpu))
}

/// Whether a program can be started.
pub(super) fn works(program: &Path) -> bool {
    Command::new(program).arg("--version").output().is_ok_and(|output| output.status.success())
}

/// Returns the seconds that a round of the target's work takes while `work` runs.
fn cost(target: &mut TargetChild, work: impl FnOnce() -> Result<(), Error>) -> Result<f64, Error> {
    let ([before], started) = (target.numbers(["work"])?, Instant::now());
    work()?;
    let ([after], took) = (target.numbers(["work"])?, started.elapsed());
    Ok(took.as_secs_f64() / (after - before).max(1.0))
}

impl PeerProfiler<'_> {
    /// Measures one turn with this profiler.
    fn turn(&self, (target, session): &mut TurnState, time: Duration) -> Result<f64, Error> {
        let running = Running::start(&mut self.command.borrow_mut())?;
        let pid = running.0.id();
        let cost = cost(target, || {
            self.cpu.borrow_mut().push(session::cpu(pid, || session.listen(time))?);
            Ok(())
        })?;
        running.finish()?;
        Ok(cost)
    }
}

/// A profiler that is killed when this is dropped.
struct Running(Child);

impl Running {
    /// Starts the profiler, and waits until it should be recording.
    fn start(command: &mut Command) -> Result<Self, Error> {
        let mut running = Self(command.spawn().map_err(|error| format!("{command:?}: {error}"))?);
        thread::sleep(WARM_UP);
        match running.0.try_wait()? {
            Some(_) => Err(format!("{command:?} ended at once").into()),
            None => Ok(running),
        }
    }

    /// Stops the profiler, and waits until it has written its data.
    fn finish(mut self) -> Result<(), Error> {
        kill(Pid::from_raw(i32::try_from(self.0.id())?), Signal::SIGINT)?;
        let end = Instant::now() + END;
        while self.0.try_wait()?.is_none() {
            if Instant::now() > end {
                return Err("a profiler does not end".into());
            }
            thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Errors mean that it has already ended.
        self.0.kill().ok();
        self.0.wait().ok();
    }
}
