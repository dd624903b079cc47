//! The sampler's processor time, and the ticks that it missed.

use std::{
    io::Write,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use profbridge_ptrace::message::Settings;

use super::{
    super::{
        Error,
        report::{Goal, Report},
        statistics::median,
    },
    Options, floor,
    session::Session,
    targets::Programs,
};

/// What is measured: the name, the arguments of `busy`, and the share of a core that the sampler may take, in percent.
const CASES: [(&str, [&str; 2], f64); 4] = [
    ("1 busy", ["1", "0"], 1.5),
    ("1 busy + 63 idle", ["1", "63"], 3.0),
    ("8 busy on 2 CPUs", ["8", "0"], 2.0),
    ("2000 threads, 1 busy", ["1", "1999"], 10.0),
];

/// Sampling, resting and the floor take turns, since a machine that is shared with others changes within seconds.
const TURNS: u32 = 5;

/// How long a turn waits for what the one before left to be done.
const SETTLE: Duration = Duration::from_millis(300);

/// How long a session runs before it counts, so that what comes once (unwind tables, the first stacks) does not.
const WARM_UP: Duration = Duration::from_millis(1500);

pub(super) fn measure(options: &Options, programs: &Programs, report: &mut Report) -> Result<(), Error> {
    let time = Duration::from_secs_f64(options.seconds);
    for (name, arguments, goal) in CASES {
        let target = programs.start("busy", &arguments)?;
        let mut session = Session::start(target.pid(), Settings::default(), true)?;
        session.listen(WARM_UP)?;
        let (mut sampling, mut resting, mut floors) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..TURNS {
            sampling.push(share(&mut session, time / TURNS)?);
            session.sample(false)?;
            session.listen(SETTLE)?;
            resting.push(share(&mut session, time / TURNS / 3)?);
            if arguments == ["1", "0"] {
                floors.push(floor::share(target.pid(), time / TURNS)?);
            }
            // Threads count as idle only after a second.
            session.sample(true)?;
            session.listen(WARM_UP)?;
        }
        let status = session.status;
        let shares = |shares: &[Share], of: fn(&Share) -> f64| median(&shares.iter().map(of).collect::<Vec<f64>>());
        let sampler = shares(&sampling, |share| share.sampler);
        report.figure(format!("cpu of one core, {name}"), sampler, "%", Some(Goal::AtMost(goal)));
        report.figure(format!("  its owner (this program), {name}"), shares(&sampling, |share| share.owner), "%", None);
        let resting = shares(&resting, |share| share.sampler);
        report.figure(format!("  control: attached, not sampling, {name}"), resting, "%", None);
        if !floors.is_empty() {
            let floor = median(&floors);
            report.figure(format!("  floor: its system calls and nothing else, {name}"), floor, "%", None);
            report.figure(format!("  of the floor, {name}"), sampler / floor, "x", None);
        }
        report.figure(format!("  rate, {name}"), status.rate_hertz, "Hz", None);
        report.detail(name, format!("{status:?}"));
        if name.starts_with("8 busy") {
            let missed = 100.0 * status.missed_ticks as f64 / status.ticks.max(1) as f64;
            report.figure(format!("missed ticks with priority, {name}"), missed, "%", Some(Goal::AtMost(1.0)));
            drop(session);
            report.figure(
                format!("missed ticks without, {name}"),
                without_priority(target.pid(), options.seconds)?,
                "%",
                Some(Goal::AtMost(2.0)),
            );
        }
    }
    Ok(())
}

/// Shares of a core, in percent.
struct Share {
    sampler: f64,
    owner: f64,
}

fn share(session: &mut Session, time: Duration) -> Result<Share, Error> {
    let (before, started) = (session.cpu()?, Instant::now());
    session.listen(time)?;
    let (after, took) = (session.cpu()?, started.elapsed());
    let percent = |cpu: Duration| 100.0 * cpu.as_secs_f64() / took.as_secs_f64();
    Ok(Share { sampler: percent(after.0 - before.0), owner: percent(after.1 - before.1) })
}

/// The missed ticks of a sampler that may not raise its priority: this program once more, without the capability.
fn without_priority(pid: u32, seconds: f64) -> Result<f64, Error> {
    let mut command = Command::new("setpriv");
    command.args(["--bounding-set=-sys_nice", "--inh-caps=-sys_nice"]).arg(std::env::current_exe()?);
    command.args(["sampler-missed-once", &pid.to_string(), &seconds.to_string()]);
    let output = command.stderr(Stdio::inherit()).output()?;
    let text = String::from_utf8(output.stdout)?;
    Ok(text.trim().parse().map_err(|error| format!("{command:?} said {text:?}: {error}"))?)
}

/// Prints the share of missed ticks of a process that runs, in percent.
pub(super) fn missed_once(pid: u32, seconds: f64) -> Result<(), Error> {
    let mut session = Session::start(pid, Settings::default(), true)?;
    session.listen(WARM_UP + Duration::from_secs_f64(seconds))?;
    let status = session.status;
    writeln!(std::io::stdout(), "{}", 100.0 * status.missed_ticks as f64 / status.ticks.max(1) as f64)?;
    Ok(())
}
