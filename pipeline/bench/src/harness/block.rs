//! A block: a target under load for some seconds, and what arrived behind it for how much of its CPU time.

use std::{thread, time::Duration};

use super::{
    Error, HELPERS_CORE,
    children::{self, Sink},
    load::Sent,
    procfs,
    sink::Stats,
    target::Target,
};

/// A target with the sink behind it.
pub struct Side {
    /// What is measured.
    pub target: Target,
    /// Where it sends to.
    pub sink: Sink,
}

/// How long a block takes.
#[derive(Clone, Copy, Debug)]
pub struct Length {
    /// What precedes it, unmeasured, in seconds.
    pub warm_up: f64,
    /// The block itself, in seconds.
    pub seconds: f64,
}

/// What arrived in a block.
#[derive(Clone, Copy, Debug)]
pub struct Arrived {
    /// At the sink.
    pub stats: Stats,
    /// The CPU time of the target meanwhile.
    pub cpu: Duration,
}

impl Side {
    /// Sends each of `bodies` requests once, by these arguments of `load`, and returns what came out.
    ///
    /// # Errors
    /// A request was not taken, or the sink does not come to rest.
    pub fn once(&self, load: &[String], bodies: usize) -> Result<Stats, Error> {
        let before = self.sink.stats()?;
        let count = bodies.to_string();
        let arguments = with(load, &["--count", &count, "--seconds", "60"]);
        let sent: Sent = children::ask(HELPERS_CORE, &arguments)?;
        if sent.acknowledged != bodies as u64 {
            return Err(format!("not all requests were taken: {sent:?}").into());
        }
        let after = self.sink.settle(Duration::from_secs(1), Duration::from_secs(60))?;
        Ok(after.since(before))
    }

    /// One block of load by these arguments of `load`.
    ///
    /// # Errors
    /// A request was refused, or what arrived cannot be read.
    pub fn block(&self, load: &[String], length: Length) -> Result<Arrived, Error> {
        let Length { warm_up, seconds } = length;
        let seconds_of_load = (seconds + warm_up + 1.0).to_string();
        let arguments = with(load, &["--seconds", &seconds_of_load]);
        let mut load = children::start(children::myself(HELPERS_CORE, &arguments)?)?;
        thread::sleep(Duration::from_secs_f64(warm_up));
        let pid = self.target.process.pid();
        let (before, cpu_before) = (self.sink.stats()?, procfs::cpu(pid)?);
        thread::sleep(Duration::from_secs_f64(seconds));
        let (after, cpu_after) = (self.sink.stats()?, procfs::cpu(pid)?);
        let sent: Sent = load.wait_for("the end of the load", |line| serde_json::from_str(line).ok())?;
        if sent.failed + sent.later > 0 {
            return Err(format!("requests were refused: {sent:?}").into());
        }
        let stats = after.since(before);
        if stats.requests == 0 || stats.broken > 0 {
            return Err(format!("the sink cannot read what arrives: {stats:?}").into());
        }
        Ok(Arrived { stats, cpu: cpu_after - cpu_before })
    }
}

/// Options go before the bodies, which are the last arguments.
fn with<'a>(load: &'a [String], options: &[&'a str]) -> Vec<&'a str> {
    let load = load.iter().map(String::as_str);
    ["load"].into_iter().chain(options.iter().copied()).chain(load).collect()
}
