//! The sampler's processor time beside that of `perf record`, and the ticks that it missed.

use std::{
    io::Write,
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use profbridge_sampler::message::Settings;

use super::{
    super::{
        Error, procfs,
        report::{Goal, Report},
        statistics::median,
    },
    Options,
    perf::Perf,
    session::Session,
    targets::Programs,
};

/// What is measured: the name, the arguments of `busy`, and the share of a core that the sampler may take beyond its
/// looks, in percent.
const CASES: [(&str, [&str; 2], f64); 4] = [
    ("1 busy", ["1", "0"], 0.5),
    ("8 busy on 2 CPUs", ["8", "0"], 0.6),
    ("64 busy on 2 CPUs", ["64", "0"], 0.6),
    ("8 busy of 2000 threads", ["8", "1992"], 1.0),
];

/// Sampling, resting and the others take turns, since a machine that is shared with others changes within seconds.
const TURNS: u32 = 5;

/// How long a turn waits for what the one before left to be done.
const SETTLE: Duration = Duration::from_millis(300);

/// How long a session runs before it counts, so that what comes once (unwind tables, the first stacks) does not.
const WARM_UP: Duration = Duration::from_millis(1500);

pub(super) fn measure(options: &Options, programs: &Programs, report: &mut Report) -> Result<(), Error> {
    let turn = Duration::from_secs_f64(options.seconds) / TURNS;
    let with_perf = Perf::works();
    for (name, arguments, goal) in CASES {
        let target = programs.start("busy", &arguments)?;
        let mut session = Session::start(target.pid(), Settings::default(), true)?;
        session.listen(WARM_UP)?;
        let (mut sampling, mut resting, mut perfs) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..TURNS {
            sampling.push(share(&mut session, turn)?);
            session.sample(false)?;
            session.listen(SETTLE)?;
            resting.push(share(&mut session, turn / 3)?);
            if with_perf {
                perfs.push(perf_share(programs, target.pid(), turn)?);
            }
            session.sample(true)?;
            session.listen(WARM_UP)?;
        }
        let status = session.status;
        let looks = looks(programs, &arguments, turn)?;
        let shares = |shares: &[Share], of: fn(&Share) -> f64| median(&shares.iter().map(of).collect::<Vec<f64>>());
        let sampler = shares(&sampling, |share| share.sampler);
        let row = format!("cpu of one core beyond looks, {name}: {sampler:.2} % in all");
        report.figure(row, (sampler - looks).max(0.0), "%", Some(Goal::AtMost(goal)));
        report.figure(format!("  looks: as many threads that are idle, {name}"), looks, "%", None);
        if with_perf {
            report.figure(format!("  perf record --call-graph dwarf,16384, {name}"), median(&perfs), "%", None);
        }
        report.figure(format!("  its owner (this program), {name}"), shares(&sampling, |share| share.owner), "%", None);
        let resting = shares(&resting, |share| share.sampler);
        report.figure(format!("  control: attached, not sampling, {name}"), resting, "%", None);
        report.figure(format!("  rate, {name}"), status.rate_hertz, "Hz", None);
        report.detail(name, format!("{status:?}"));
        if name.starts_with("8 busy on") {
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

/// What the sampler takes where there are as many threads, none of which runs: it looks at each of them at each tick.
fn looks(programs: &Programs, arguments: &[&str; 2], turn: Duration) -> Result<f64, Error> {
    let threads = arguments.iter().map(|count| count.parse::<u32>()).sum::<Result<u32, _>>()?;
    let target = programs.start("busy", &["0", &threads.to_string()])?;
    let mut session = Session::start(target.pid(), Settings::default(), true)?;
    session.listen(WARM_UP)?;
    let mut shares = Vec::new();
    for _ in 0..TURNS {
        shares.push(share(&mut session, turn)?.sampler);
    }
    Ok(median(&shares))
}

/// The share of a core that `perf record` takes for the same.
fn perf_share(programs: &Programs, pid: u32, time: Duration) -> Result<f64, Error> {
    let perf = Perf::start(programs.folder(), pid, Settings::default().rate_hertz, "dwarf,16384")?;
    let (before, started) = (procfs::exact_cpu(perf.pid())?, Instant::now());
    thread::sleep(time);
    let (after, took) = (procfs::exact_cpu(perf.pid())?, started.elapsed());
    perf.finish()?;
    Ok(100.0 * (after - before).as_secs_f64() / took.as_secs_f64())
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
