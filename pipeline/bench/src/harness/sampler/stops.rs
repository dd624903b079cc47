//! How long running threads are stopped where that is chosen (`stops: always`): as the sampler counts it, and as a
//! thread that does nothing but read the clock sees it.

use std::time::Duration;

use profbridge_sampler::message::{Settings, Status, Stops};

use super::{
    super::{
        Error,
        report::{Goal, Report},
        statistics,
    },
    Options,
    session::Session,
    targets::{Programs, Target},
};

/// How a process is sampled here.
fn stopping() -> Settings {
    Settings { stops: Stops::Always, ..Settings::default() }
}

pub(super) fn measure(options: &Options, programs: &Programs, report: &mut Report) -> Result<(), Error> {
    let time = Duration::from_secs_f64(options.seconds);
    let mut target = programs.start("busy", &["1", "0"])?;
    let mut session = Session::start(target.pid(), stopping(), false)?;
    let quiet = gaps(&mut target, &mut session, time)?;
    session.sample(true)?;
    session.listen(Duration::from_millis(1500))?;
    let before = session.status;
    let sampled = gaps(&mut target, &mut session, time)?;
    let status = session.status;
    report.figure("stop of a running thread, p50", quantile(&status, 0.5), "us", Some(Goal::AtMost(35.0)));
    report.figure("stop of a running thread, p99", quantile(&status, 0.99), "us", Some(Goal::AtMost(150.0)));
    let worst = status.longest_stop_nano as f64 / 1e3;
    report.figure("stop of a running thread, worst", worst, "us", Some(Goal::AtMost(1000.0)));
    report.detail("stop lengths", status.stop_lengths);
    // The target cannot tell a stop from anything else that takes the core. Of its gaps, as many as there were stops
    // are taken for stops, the longest ones: what it says is therefore an upper bound.
    let stops = usize::try_from(status.stops - before.stops)?;
    let (sampled, quiet) = (longest(sampled, stops), longest(quiet, stops));
    for (name, q) in [("p50", 0.5), ("p99", 0.99), ("worst", 1.0)] {
        let value = |gaps: &[f64]| statistics::quantile(gaps, q);
        report.figure(format!("  gaps as the target sees them, {name}"), value(&sampled), "us", None);
        report.figure(format!("  control: attached, not sampling, {name}"), value(&quiet), "us", None);
    }

    // On a crowded machine the sampler itself waits for a core, unless its priority is raised.
    let target = programs.start("busy", &["8", "0"])?;
    let mut session = Session::start(target.pid(), stopping(), true)?;
    session.listen(time)?;
    let status = session.status;
    report.figure("stop, 8 busy on 2 CPUs, p50", quantile(&status, 0.5), "us", Some(Goal::AtMost(35.0)));
    report.figure("stop, 8 busy on 2 CPUs, p99", quantile(&status, 0.99), "us", Some(Goal::AtMost(150.0)));
    let worst = status.longest_stop_nano as f64 / 1e3;
    report.figure("stop, 8 busy on 2 CPUs, worst", worst, "us", Some(Goal::AtMost(1000.0)));
    report.detail("stop lengths, 8 busy", status.stop_lengths);
    Ok(())
}

/// The gaps of a while, in microseconds.
fn gaps(target: &mut Target, session: &mut Session, time: Duration) -> Result<Vec<f64>, Error> {
    target.ask("gaps")?;
    session.listen(time)?;
    let answer = target.ask("gaps")?;
    let gaps = answer.split(' ').skip(1).map(|nano| Ok(nano.parse::<f64>()? / 1e3));
    gaps.collect()
}

/// The longest so many.
fn longest(mut gaps: Vec<f64>, count: usize) -> Vec<f64> {
    gaps.sort_by(|a, b| b.total_cmp(a));
    gaps.truncate(count);
    gaps
}

/// A quantile of the lengths of stops, in microseconds, by its place within a bucket.
fn quantile(status: &Status, q: f64) -> f64 {
    let all: u64 = status.stop_lengths.iter().sum();
    let mut rank = q * all as f64;
    for (power, &count) in (0_i32..).zip(&status.stop_lengths) {
        if rank <= count as f64 {
            let (low, high) = (if power == 0 { 0.0 } else { 2_f64.powi(power - 1) }, 2_f64.powi(power));
            return low + (high - low) * rank / count.max(1) as f64;
        }
        rank -= count as f64;
    }
    f64::INFINITY
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Guarantees: a quantile lies within the bucket of its rank, and nothing has none.
    #[test]
    fn quantiles() {
        let mut status = Status::default();
        status.stop_lengths[5] = 90;
        status.stop_lengths[7] = 10;
        assert!((16.0..=32.0).contains(&quantile(&status, 0.5)));
        assert!((64.0..=128.0).contains(&quantile(&status, 0.99)));
        assert_eq!(longest(vec![1.0, 3.0, 2.0], 2), [3.0, 2.0]);
    }
}
