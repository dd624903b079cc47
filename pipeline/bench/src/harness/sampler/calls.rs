//! What sampling does to the system calls of threads that run: whether all of what was asked for is moved, and nothing
//! fails.

use std::{fs, process::Command, thread, time::Duration};

use profbridge_sampler::message::{Settings, Stops};

use super::{
    super::{
        Error,
        report::{Goal, Report},
    },
    Options, matrix,
    perf::Perf,
    session::Session,
    targets::{Programs, Target},
};

/// What `dd` writes.
const DD: u64 = 3 * (512 << 20);

/// How often the calls that wait are made under each observer.
const ROUNDS: u32 = 3;

/// How long each of these waits, in milliseconds, and how much its thread computes first: some tens of milliseconds.
const WAIT: f64 = 200.0;
const COMPUTES: &str = "20000000";

/// How long an observer has before the calls begin.
const START: Duration = Duration::from_millis(500);

/// Who observes.
#[derive(Clone, Copy, Debug)]
enum Observer {
    Nobody,
    Perf,
    Sampler(f64),
    /// The sampler without perf events: what the figures look like where calls are cut.
    Stopping,
}

const OBSERVERS: [(&str, Observer); 5] = [
    ("at 101 Hz", Observer::Sampler(101.0)),
    ("at 997 Hz", Observer::Sampler(997.0)),
    ("  perf record at 997 Hz", Observer::Perf),
    ("  control: stopped at 997 Hz", Observer::Stopping),
    ("  control: alone", Observer::Nobody),
];

/// What was found under one observer.
#[derive(Clone, Copy, Debug, Default)]
struct Found {
    /// Bytes that `dd` did not write.
    missing: u64,
    /// Long calls that moved less than they were asked to, or failed; and all.
    shorter: f64,
    calls: f64,
    /// Calls that wait and ended differently than alone; and all.
    odd: usize,
    waits: usize,
    /// Numbers out of order in a stream, and its length in MiB.
    breaks: f64,
    mebibytes: f64,
    /// Short waits that failed with EINTR; and all.
    interrupted: f64,
    short_waits: f64,
    /// Threads that were stopped.
    stops: u64,
}

/// An observer of one process.
enum Watcher {
    Nobody,
    Perf(Perf),
    Sampler(Box<Session>),
}

pub(super) fn measure(options: &Options, programs: &Programs, report: &mut Report) -> Result<(), Error> {
    let alone = matrix(programs, Observer::Nobody, &mut 0)?;
    let perf = Perf::works();
    let mut all = Vec::new();
    for (name, observer) in OBSERVERS {
        if perf || !matches!(observer, Observer::Perf) {
            let found = under(observer, options, programs, &alone)?;
            report.detail(&format!("calls, {}", name.trim()), format!("{found:?}"));
            all.push((name, observer, found));
        }
    }
    let mut rows = |what: &str, value: fn(&Found) -> f64, of: fn(&Found) -> String| {
        for (name, observer, found) in &all {
            let goal = matches!(observer, Observer::Sampler(_)).then_some(Goal::AtMost(0.0));
            let name = match name.strip_prefix("  ") {
                Some(control) => format!("  {control}: {}", of(found)),
                None => format!("{what} {name}: {}", of(found)),
            };
            report.figure(name, value(found), "", goal);
        }
    };
    rows("bytes that dd did not write", |found| found.missing as f64, |_| format!("of {DD}"));
    rows("long calls short or failed", |found| found.shorter, |found| format!("of {}", found.calls));
    rows("waits of busy threads failed or short", |found| found.odd as f64, |found| format!("of {}", found.waits));
    rows("breaks in a stream", |found| found.breaks, |found| format!("of {} MiB", found.mebibytes));
    rows("EINTR in short waits", |found| found.interrupted, |found| format!("of {}", found.short_waits));
    rows("threads stopped meanwhile", |found| found.stops as f64, |_| "in all".to_owned());
    Ok(())
}

fn under(observer: Observer, options: &Options, programs: &Programs, alone: &[matrix::Call]) -> Result<Found, Error> {
    let mut found = Found { missing: DD.saturating_sub(dd(programs, observer, &mut 0)?), ..Found::default() };
    let time = Duration::from_secs_f64(options.seconds);

    let mut target = programs.start("transfers", &[&options.seconds.to_string()])?;
    let watcher = Watcher::start(observer, &target, programs)?;
    let mut line = target.ask("go")?;
    while line != "done" {
        found.calls += behind(&line, "calls")?;
        found.shorter += behind(&line, "short")? + behind(&line, "failed")?;
        line = target.line()?;
    }
    found.stops += watcher.end()?;
    drop(target);

    for _ in 0..ROUNDS {
        let calls = matrix(programs, observer, &mut found.stops)?;
        found.waits += calls.len();
        found.odd += matrix::differing(alone, &calls, WAIT).len();
    }

    let mut target = programs.start("stream", &[])?;
    let mut watcher = Watcher::start(observer, &target, programs)?;
    watcher.listen(time)?;
    let answer = target.ask("")?;
    found.breaks = behind(&answer, "breaks")? + behind(&answer, "failed")?;
    found.mebibytes = behind(&answer, "mebibytes")?;
    found.stops += watcher.end()?;
    drop(target);

    let mut target = programs.start("short_waits", &[])?;
    let mut watcher = Watcher::start(observer, &target, programs)?;
    let before = target.ask("")?;
    watcher.listen(time)?;
    let after = target.ask("")?;
    let grown = |name| Ok::<_, Error>(behind(&after, name)? - behind(&before, name)?);
    (found.short_waits, found.interrupted) = (grown("calls")?, grown("interrupted")?);
    found.stops += watcher.end()?;
    Ok(found)
}

/// The calls that wait, of threads that have just computed.
fn matrix(programs: &Programs, observer: Observer, stops: &mut u64) -> Result<Vec<matrix::Call>, Error> {
    let mut target = programs.start("matrix", &[&WAIT.to_string(), COMPUTES])?;
    let watcher = Watcher::start(observer, &target, programs)?;
    let calls = matrix::go(&mut target)?;
    *stops += watcher.end()?;
    Ok(calls)
}

/// How many bytes `dd` writes with blocks of half a GiB.
fn dd(programs: &Programs, observer: Observer, stops: &mut u64) -> Result<u64, Error> {
    let file = programs.folder().join("dd");
    let script = "echo ready; read -r line; exec dd if=/dev/zero of=\"$0\" bs=512M count=3 2>&1";
    let mut target = Target::start(Command::new("sh").args(["-c", script]).arg(&file))?;
    let watcher = Watcher::start(observer, &target, programs)?;
    let mut line = target.ask("go")?;
    while !line.contains("bytes") {
        line = target.line()?;
    }
    *stops += watcher.end()?;
    let written = fs::metadata(&file)?.len();
    fs::remove_file(&file)?;
    Ok(written)
}

impl Watcher {
    fn start(observer: Observer, target: &Target, programs: &Programs) -> Result<Self, Error> {
        let settings =
            |rate_hertz, stops| Settings { rate_hertz, max_cpu: 1.0, max_stopped: 1.0, stops, ..Settings::default() };
        let settings = match observer {
            Observer::Nobody => return Ok(Self::Nobody),
            Observer::Perf => return Ok(Self::Perf(Perf::start(programs.folder(), target.pid(), 997.0, "fp")?)),
            Observer::Sampler(rate) => settings(rate, Stops::default()),
            Observer::Stopping => settings(997.0, Stops::Always),
        };
        let mut session = Session::start(target.pid(), settings, true)?;
        session.listen(START)?;
        Ok(Self::Sampler(Box::new(session)))
    }

    /// Lets time pass.
    fn listen(&mut self, time: Duration) -> Result<(), Error> {
        match self {
            Self::Sampler(session) => session.listen(time),
            _ => {
                thread::sleep(time);
                Ok(())
            }
        }
    }

    /// Ends it, and returns how often it stopped a thread.
    fn end(self) -> Result<u64, Error> {
        match self {
            Self::Nobody => Ok(0),
            Self::Perf(perf) => perf.finish().map(|_| 0),
            Self::Sampler(mut session) => {
                session.finish()?;
                Ok(session.total(|status| status.stops))
            }
        }
    }
}

/// The number behind a word.
fn behind(line: &str, name: &str) -> Result<f64, Error> {
    let number = line.split(' ').skip_while(|word| *word != name).nth(1);
    Ok(number.ok_or_else(|| format!("no {name} in {line:?}"))?.parse()?)
}
