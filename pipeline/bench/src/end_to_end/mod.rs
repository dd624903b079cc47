//! Puts a target under load for some seconds, and measures its CPU time per observation or span that arrived.

pub(crate) mod control;
mod count;
mod load;
mod sink;
pub(crate) mod target;

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use clap::Args;

use crate::Error;
use crate::machine::{self, HELPERS_CORE, TARGET_CORE};
use crate::pairs::{self, PairComparison};

pub(crate) use count::{active_samples, decompress};
pub(crate) use load::{Load, Protocol, RequestCompression};
pub(crate) use sink::{Sink, Stats};
use target::BenchTarget;

/// How often and for how long to measure.
#[derive(Args, Clone, Debug)]
pub(crate) struct Blocks {
    /// Pairs of blocks
    #[arg(long, default_value_t = 8)]
    pub(crate) pairs: usize,
    /// The length of a block
    #[arg(long, default_value_t = 5.0)]
    seconds: f64,
    /// The time before each block that is not measured
    #[arg(long, default_value_t = 1.5)]
    warm_up: f64,
}

/// A measured program and the sink that it sends to.
pub(crate) struct Side {
    pub(crate) target: BenchTarget,
    pub(crate) sink: Sink,
}

/// How long sending each request once may take.
const PATIENCE: Duration = Duration::from_secs(60);

impl Blocks {
    /// The cost of B divided by that of A, pair by pair.
    pub(crate) fn pairs(&self, pairs: usize, load: &Arc<Load>, a: &Side, b: &Side) -> Result<PairComparison, Error> {
        let calibrate = || machine::on(TARGET_CORE, machine::calibrate);
        pairs::measure(pairs, calibrate, || self.block(load, a), || self.block(load, b))
    }

    /// One block: the CPU time per observation or span that arrived, in nanoseconds.
    fn block(&self, load: &Arc<Load>, side: &Side) -> Result<f64, Error> {
        let (count, cpu) = self.arrived(load, side)?;
        Ok(cpu.as_nanos() as f64 / count as f64)
    }

    /// How many observations or spans arrive per second.
    pub(crate) fn rate(&self, load: &Arc<Load>, side: &Side) -> Result<f64, Error> {
        Ok(self.arrived(load, side)?.0 as f64 / self.seconds)
    }

    /// The observations and spans that arrive within a block, and the CPU time for them.
    fn arrived(&self, load: &Arc<Load>, side: &Side) -> Result<(u64, Duration), Error> {
        let length = Duration::from_secs_f64(self.seconds + self.warm_up + 1.0);
        let sent = side.send(load, length, u64::MAX)?;
        thread::sleep(Duration::from_secs_f64(self.warm_up));
        let pid = side.target.process.pid();
        let (before, cpu_before) = (side.sink.stats(), machine::cpu(pid)?);
        thread::sleep(Duration::from_secs_f64(self.seconds));
        let (after, cpu_after) = (side.sink.stats(), machine::cpu(pid)?);
        side.sink.runtime.block_on(sent)??;
        let arrived = after.since(before);
        let count = arrived.observations + arrived.spans;
        if count == 0 || arrived.broken > 0 {
            return Err(format!("the sink cannot read what arrives: {arrived:?}").into());
        }
        Ok((count, cpu_after - cpu_before))
    }
}

impl Side {
    /// Sends each request of a load once, and returns the amounts that arrived.
    pub(crate) fn once(&self, load: &Arc<Load>) -> Result<Stats, Error> {
        let before = self.sink.stats();
        let sent = self.send(load, PATIENCE, load.len())?;
        self.sink.runtime.block_on(sent)??;
        Ok(self.sink.settle(Duration::from_secs(1), PATIENCE)?.since(before))
    }

    /// Starts to send a load for this time, or until `most` requests were sent. It fails if one is refused.
    fn send(
        &self,
        load: &Arc<Load>,
        length: Duration,
        most: u64,
    ) -> Result<tokio::task::JoinHandle<Result<(), Error>>, Error> {
        let target = match load.protocol {
            Protocol::Grpc => self.target.grpc,
            Protocol::Http => self.target.http.ok_or("the target does not take HTTP")?,
        };
        let load = Arc::clone(load);
        Ok(self.sink.runtime.spawn(async move { load.send(target, Instant::now() + length, most).await }))
    }
}

/// Pins this thread, with the load and the sinks that it starts, to the helpers' core.
pub(crate) fn begin() -> Result<tempfile::TempDir, Error> {
    machine::pin(HELPERS_CORE)?;
    Ok(tempfile::tempdir()?)
}
