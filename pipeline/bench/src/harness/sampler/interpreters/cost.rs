//! What names cost: processor time of the sampler, and time for which threads stand still.

use std::{
    cell::RefCell,
    io::{BufRead, BufReader},
    path::Path,
    process::{Child, Command, Stdio},
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

use profbridge_sampler::message::{READ_CLASSES, Settings, Stops, read_class_begins};

use super::{
    super::{
        super::{
            Error, procfs,
            report::{Goal, Report},
        },
        Options,
        session::Session,
        targets::{Programs, Target},
        turns::{self, Condition},
    },
    shares,
    versions::{Kind, Version},
};

/// What passes between the beginning of sampling and that of a measurement.
const SETTLE: Duration = Duration::from_millis(300);

/// How long another profiler may take to begin.
const PATIENCE: Duration = Duration::from_secs(10);

pub(super) fn measure(
    version: &Version,
    options: &Options,
    programs: &Programs,
    report: &mut Report,
) -> Result<(), Error> {
    if version.kind != Kind::Python {
        return over_native(version, &shares::start(version, programs)?, options, report);
    }
    let python = version.program.to_string_lossy();
    let target = programs.interpret(&python, "deep.py", &[])?;
    over_native(version, &target, options, report)?;
    stops(version, &target, options, report)?;
    drop(target);
    if works(&options.py_spy) {
        beside_py_spy(version, &programs.interpret(&python, "functions.py", &["mixed"])?, options, report)?;
    }
    Ok(())
}

fn turn(options: &Options) -> Duration {
    Duration::from_secs_f64(options.turn)
}

/// The sampler's processor time in a turn, in percent of a core. It samples for this turn alone, and its counters come
/// when that ends.
fn own_cpu(session: &mut Session, time: Duration) -> Result<f64, Error> {
    session.sample(true)?;
    session.listen(SETTLE)?;
    let (before, start) = (session.cpu()?.0, Instant::now());
    session.listen(time)?;
    let used = percent(session.cpu()?.0 - before, start);
    session.sample(false)?;
    session.listen(Duration::from_millis(60))?;
    Ok(used)
}

fn percent(used: Duration, since: Instant) -> f64 {
    100.0 * used.as_secs_f64() / since.elapsed().as_secs_f64()
}

/// Processor time with names over that without any, and how long after a sample frames are read.
fn over_native(version: &Version, target: &Target, options: &Options, report: &mut Report) -> Result<(), Error> {
    struct Both {
        named: Session,
        native: Session,
        behind: Vec<[u64; READ_CLASSES]>,
    }
    let start = |interpreters| Session::start(target.pid(), Settings { interpreters, ..Settings::default() }, false);
    let mut both = Both { named: start(true)?, native: start(false)?, behind: Vec::new() };
    for session in [&mut both.named, &mut both.native] {
        own_cpu(session, SETTLE)?;
    }
    let time = turn(options);
    let named = |both: &mut Both| {
        let before = both.named.status.read_behind;
        let used = own_cpu(&mut both.named, time)?;
        both.behind.push(difference(&both.named.status.read_behind, &before));
        Ok(used)
    };
    let native = |both: &mut Both| own_cpu(&mut both.native, time);
    let conditions: [Condition<'_, Both>; 2] = [("named", &named), ("native", &native)];
    let costs = turns::costs(options.turns, &mut both, &conditions)?;
    let more: Vec<_> = costs[0].iter().zip(&costs[1]).map(|(named, native)| named - native).collect();
    let name = &version.name;
    report.turns(format!("{name}: processor time at 101 Hz"), &costs[0], "% of a core", None);
    report.turns(format!("{name}:   over native frames alone"), &more, "points", Some(Goal::AtMost(0.8)));
    if version.kind == Kind::Python {
        let goal = if version.minor() >= 11 { 60.0 } else { 80.0 };
        let row = format!("{name}, 10 frames: from a sample to the captured frames, p50");
        medians(row, &both.behind, goal, report);
    }
    Ok(())
}

/// How much longer threads stand still where stops are chosen.
fn stops(version: &Version, target: &Target, options: &Options, report: &mut Report) -> Result<(), Error> {
    let settings = Settings { stops: Stops::Always, ..Settings::default() };
    let mut session = Session::start(target.pid(), settings, false)?;
    own_cpu(&mut session, SETTLE)?;
    let mut turns = Vec::new();
    for _ in 0..options.turns {
        let before = session.status.read_stopped;
        own_cpu(&mut session, turn(options))?;
        turns.push(difference(&session.status.read_stopped, &before));
    }
    let goal = if version.minor() >= 11 { 10.0 } else { 25.0 };
    let row = format!("{}, 10 frames: added to a stop where stops are chosen, p50", version.name);
    medians(row, &turns, goal, report);
    Ok(())
}

/// Adds the median of the times that turns have counted, in microseconds.
fn medians(row: String, turns: &[[u64; READ_CLASSES]], goal: f64, report: &mut Report) {
    let mut all = [0; READ_CLASSES];
    for (sum, more) in turns.iter().flat_map(|turn| turn.iter().enumerate()).map(|(at, more)| (at, *more)) {
        all[sum] += more;
    }
    let count: u64 = all.iter().sum();
    let each: Vec<_> = turns.iter().filter_map(median).collect();
    let value = median(&all).unwrap_or(f64::INFINITY);
    report.spread(format!("{row}, of {count}"), value, &each, "us", Some(Goal::AtMost(goal)));
}

fn difference(after: &[u64; READ_CLASSES], before: &[u64; READ_CLASSES]) -> [u64; READ_CLASSES] {
    std::array::from_fn(|class| after[class] - before[class])
}

/// The median in microseconds, by its place within its class; `None` of nothing, infinite in the last class, which has
/// no end.
fn median(classes: &[u64; READ_CLASSES]) -> Option<f64> {
    let all: u64 = classes.iter().sum();
    let mut rank = all as f64 / 2.0;
    for (class, &count) in classes.iter().enumerate().filter(|(_, count)| **count > 0) {
        if rank <= count as f64 {
            if class == READ_CLASSES - 1 {
                return Some(f64::INFINITY);
            }
            let [begin, end] = [class, class + 1].map(|class| read_class_begins(class) as f64 / 1e3);
            return Some(begin + (end - begin) * rank / count as f64);
        }
        rank -= count as f64;
    }
    None
}

/// Processor time at 101 Hz beside that of py-spy at the same rate.
fn beside_py_spy(version: &Version, target: &Target, options: &Options, report: &mut Report) -> Result<(), Error> {
    let (time, pid) = (turn(options), target.pid().to_string());
    let session = RefCell::new(Session::start(target.pid(), Settings::default(), false)?);
    own_cpu(&mut session.borrow_mut(), SETTLE)?;
    let theirs = |native: &'static [&'static str]| {
        let mut command = Command::new(&options.py_spy);
        command.args(["record", "--rate", "101", "--duration", "600", "--format", "raw", "--output", "/dev/null"]);
        command.args(native).args(["--pid", &pid]);
        recorded(&mut command, time)
    };
    let own = |(): &mut ()| own_cpu(&mut session.borrow_mut(), time);
    let py_spy = |(): &mut ()| theirs(&[]);
    let with_native = |(): &mut ()| theirs(&["--native"]);
    let conditions: [Condition<'_, ()>; 3] = [("own", &own), ("py-spy", &py_spy), ("native", &with_native)];
    let costs = turns::costs(options.turns, &mut (), &conditions)?;
    let name = &version.name;
    report.turns(format!("{name}, 1 busy thread: processor time at 101 Hz"), &costs[0], "% of a core", None);
    for (place, other, goal) in [(1, "py-spy", 0.5), (2, "py-spy --native", 0.25)] {
        let ratios: Vec<_> = costs[0].iter().zip(&costs[place]).map(|(own, theirs)| own / theirs).collect();
        report.turns(format!("{name}:   that of {other}"), &costs[place], "% of a core", None);
        report.turns(format!("{name}:   by that of {other}"), &ratios, "x", Some(Goal::AtMost(goal)));
    }
    Ok(())
}

/// The processor time of a py-spy that records for some time, in percent of a core.
fn recorded(command: &mut Command, time: Duration) -> Result<f64, Error> {
    let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?;
    let mut child = Ending(child);
    let output = child.0.stdout.take().ok_or("no pipe")?;
    let (told, begun) = mpsc::channel();
    thread::spawn(move || {
        for line in BufReader::new(output).lines().map_while(Result::ok) {
            // Fails only if nobody waits any more.
            told.send(line).ok();
        }
    });
    let end = Instant::now() + PATIENCE;
    while !begun.recv_timeout(end.saturating_duration_since(Instant::now()))?.contains("Sampling process") {}
    thread::sleep(SETTLE);
    let (before, start) = (procfs::exact_cpu_with_children(child.0.id())?, Instant::now());
    thread::sleep(time);
    Ok(percent(procfs::exact_cpu_with_children(child.0.id())? - before, start))
}

/// A profiler that ends with this.
struct Ending(Child);

impl Drop for Ending {
    fn drop(&mut self) {
        // It has ended already, or is asked to end.
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

/// Whether a program can be started.
fn works(program: &Path) -> bool {
    Command::new(program).arg("--version").output().is_ok_and(|output| output.status.success())
}

#[cfg(test)]
mod tests {
    use super::*;
    use profbridge_sampler::message::read_class;

    /// Guarantees: a median lies in the class of the time in the middle, nothing has none, and what is beyond all
    /// classes is not made small.
    #[test]
    fn medians_of_classes() {
        let mut classes = [0; READ_CLASSES];
        assert_eq!(median(&classes), None);
        classes[read_class(10_000)] = 4;
        classes[read_class(50_000)] = 9;
        classes[read_class(400_000)] = 5;
        assert_eq!(median(&classes).map(|micros| read_class((micros * 1e3) as u64)), Some(read_class(50_000)));
        classes[READ_CLASSES - 1] = 100;
        assert_eq!(median(&classes), Some(f64::INFINITY));
    }
}
