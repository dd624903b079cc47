//! The sampler's processor time compared with that of `perf record`, and its missed ticks.

use std::time::Duration;

use profbridge_sampler::message::Settings;

use super::SamplerBenchOptions;
use super::peers::perf_cpu;
use super::session::{Session, WARM_UP};
use super::targets::Programs;
use crate::Error;
use crate::report::{Goal, Report};
use crate::statistics::median;

/// The cases: the name, the arguments of `busy` (numbers of running and waiting threads), and the share of a core, in
/// percent, that the sampler may take in addition to polling waiting threads.
const CASES: [(&str, [u32; 2], f64); 4] = [
    ("1 busy", [1, 0], 0.5),
    ("8 busy on 2 CPUs", [8, 0], 0.6),
    ("64 busy on 2 CPUs", [64, 0], 0.6),
    ("8 busy of 2000 threads", [8, 1992], 1.0),
];

/// Sampling, not sampling and the other profilers alternate, since the load of a shared machine changes within seconds.
const TURNS: u32 = 5;

pub(super) fn measure(options: &SamplerBenchOptions, programs: &Programs, report: &mut Report) -> Result<(), Error> {
    let turn = Duration::from_secs_f64(options.seconds) / TURNS;
    for (name, [busy, waiting], goal) in CASES {
        let target = programs.start("busy", &[&busy.to_string(), &waiting.to_string()])?;
        let mut session = Session::start(target.pid(), Settings::default(), true)?;
        session.listen(WARM_UP)?;
        let (mut sampling, mut resting, mut perf) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..TURNS {
            sampling.push(session.cpu(turn)?);
            session.sample(false)?;
            session.listen(Duration::from_millis(300))?;
            resting.push(session.cpu(turn / 3)?);
            perf.extend(perf_cpu(programs, target.pid(), turn)?);
            session.sample(true)?;
            session.listen(WARM_UP)?;
        }
        let status = session.status;
        drop((session, target));
        let looks = looks(programs, busy + waiting, turn)?;
        let sampler = median(&sampling);
        let row = format!("cpu of one core beyond looks, {name}: {sampler:.2} % in all");
        report.figure(row, (sampler - looks).max(0.0), "%", Some(Goal::AtMost(goal)));
        report.figure(format!("  looks: as many threads that are idle, {name}"), looks, "%", None);
        if !perf.is_empty() {
            report.figure(format!("  perf record --call-graph dwarf,16384, {name}"), median(&perf), "%", None);
        }
        report.figure(format!("  control: attached, not sampling, {name}"), median(&resting), "%", None);
        report.detail(name, format!("{status:?}"));
        if name.starts_with("8 busy on") {
            let missed = 100.0 * status.missed_ticks as f64 / status.ticks.max(1) as f64;
            report.figure(format!("missed ticks, {name}"), missed, "%", Some(Goal::AtMost(1.0)));
        }
    }
    Ok(())
}

/// Measures the sampler's processor time for this many waiting threads, each of which it polls at every tick.
fn looks(programs: &Programs, threads: u32, turn: Duration) -> Result<f64, Error> {
    let target = programs.start("busy", &["0", &threads.to_string()])?;
    let mut session = Session::start(target.pid(), Settings::default(), true)?;
    session.listen(WARM_UP)?;
    let shares: Vec<f64> = (0..TURNS).map(|_| session.cpu(turn)).collect::<Result<_, _>>()?;
    Ok(median(&shares))
}
