//! The thread of a pipeline: takes what arrives, does what is due, hands on what comes out.
//!
//! One thread, because processors hold state and one of them is enough for a core; a thread of its own and not a task,
//! because decoding and preparing take milliseconds, which would stall the sockets of everybody else.

use std::future::{pending, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use profbridge_model::{Reason, Telemetry};
use profbridge_net::Shutdown;
use tokio::runtime::Handle;
use tokio::sync::oneshot;

use super::{Chain, Counters, Host, Surroundings};
use crate::component::{Now, StartError};
use crate::delivery::Sink;
use crate::health::State;
use crate::intake::{Arrival, Arrivals};

/// At most this often processors are asked to put out what they hold because memory is short, so that a flood of
/// refused requests does not cut windows to pieces.
const BETWEEN_RELIEFS: Duration = Duration::from_millis(250);

/// What lives on the thread.
pub(super) struct Worker {
    pub(super) counters: Counters,
    pub(super) chain: Chain,
    pub(super) sinks: Vec<Arc<dyn Sink>>,
    pub(super) arrivals: Arrivals,
    pub(super) stopping: Shutdown,
    pub(super) around: Surroundings,
    /// The monotonic time of the last relief.
    pub(super) relieved: Option<u64>,
}

impl Worker {
    /// Starts the thread. The receiver completes when it ends.
    pub(super) fn spawn(self) -> Result<oneshot::Receiver<()>, StartError> {
        let (ended, end) = oneshot::channel();
        let id = Arc::clone(&self.counters.id);
        let host = self.around.host;
        let life = self.live(ended);
        match host {
            Host::Thread => {
                let runtime = Handle::current();
                let thread = std::thread::Builder::new().name(format!("pipeline {id}"));
                let spawned = thread.spawn(move || runtime.block_on(life));
                spawned.map_err(|error| StartError(format!("pipelines/{id}: cannot start a thread: {error}")))?;
            }
            #[cfg(test)]
            Host::Task => drop(tokio::spawn(life)),
        }
        Ok(end)
    }

    async fn live(mut self, ended: oneshot::Sender<()>) {
        // Processors and exporters are others' code: a defect in one ends its pipeline, and is not silent.
        let result = {
            let mut run = Box::pin(self.run());
            poll_fn(|context| {
                let poll = catch_unwind(AssertUnwindSafe(|| run.as_mut().poll(context)));
                poll.map_or_else(|panic| Poll::Ready(Err(panic)), |poll| poll.map(Ok))
            })
            .await
        };
        if let Err(panic) = result {
            self.fail(&message(&*panic));
        }
        // Closes the channel, so that receivers learn of it before anybody stops waiting for the thread.
        drop(self);
        ended.send(()).ok();
    }

    fn fail(&mut self, message: &str) {
        let health = &self.around.health;
        health.set("pipelines", &self.counters.id, State::Failed(format!("panicked: {message}")));
        let lost = self.counters.unsettled();
        self.counters.give_up(Reason::Internal);
        tracing::error!(pipeline = %self.counters.id, observations = lost, "the pipeline panicked and has ended: {message}");
    }

    async fn run(&mut self) {
        let mut pressure = self.around.budget.pressure();
        let mut stopping = false;
        loop {
            // Before anything else, so that a flood of arrivals cannot keep windows open.
            self.advance().await;
            let due = self.chain.due();
            let now = self.around.clock.now();
            let mut stop = self.stopping.clone();
            tokio::select! {
                biased;
                () = stop.wait(), if !stopping => {
                    stopping = true;
                    // What has been sent is still received; then the channel ends.
                    self.arrivals.close();
                }
                arrival = self.arrivals.recv() => match arrival {
                    Some(arrival) => self.take(arrival).await,
                    None => break,
                },
                // The budget, and with it the sender, lives as long as this.
                _ = pressure.changed() => {}
                () = until(due, now) => {}
            }
            self.relieve().await;
        }
        self.put_out(Chain::flush).await;
        self.around.health.set("pipelines", &self.counters.id, State::Stopped);
    }

    async fn take(&mut self, arrival: Arrival) {
        let Arrival { telemetry, permit, source, taken, .. } = arrival;
        let now = self.around.clock.now();
        let observations = telemetry.observations();
        let out = self.chain.process(telemetry, now);
        self.counters.edge.add_in(observations);
        if let Some(source) = source {
            source.add_in(observations);
            source.add_out(observations);
        }
        // From here on the pipeline answers for it. Whoever no longer waits for the answer does not change that.
        taken.send(Ok(())).ok();
        self.hand_on(out, now).await;
        // What processors hold is charged to them; what went on is prepared and charged to the queues.
        drop(permit);
    }

    async fn relieve(&mut self) {
        if !self.around.budget.is_short() || self.chain.held().bytes == 0 {
            return;
        }
        let now = self.around.clock.now();
        let again = self
            .relieved
            .is_none_or(|last| Duration::from_nanos(now.monotonic_nano.saturating_sub(last)) >= BETWEEN_RELIEFS);
        if again {
            self.relieved = Some(now.monotonic_nano);
            self.put_out(Chain::relieve).await;
        }
    }

    async fn advance(&mut self) {
        let now = self.around.clock.now();
        if self.chain.due().is_some_and(|due| due <= now.monotonic_nano) {
            self.put_out(Chain::advance).await;
        }
    }

    /// Lets processors put out what they hold. Until it is handed on it takes as much memory as before.
    async fn put_out(&mut self, call: fn(&mut Chain, Now) -> Vec<Telemetry>) {
        let now = self.around.clock.now();
        let before = self.chain.held().bytes;
        let out = call(&mut self.chain, now);
        let under_way = before.saturating_sub(self.chain.held().bytes);
        let memory = self.around.budget.charge(under_way);
        self.hand_on(out, now).await;
        drop(memory);
    }

    /// Hands on to every exporter, in order, when all of them have room. One that has none holds up the pipeline.
    async fn hand_on(&mut self, out: Vec<Telemetry>, now: Now) {
        for telemetry in out {
            for sink in &self.sinks {
                sink.room().await;
            }
            for sink in &self.sinks {
                sink.accept(&telemetry, now);
            }
            self.counters.edge.add_out(telemetry.observations());
        }
    }
}

/// Waits until the monotonic time `due`; for ever where there is none.
async fn until(due: Option<u64>, now: Now) {
    match due {
        Some(due) => tokio::time::sleep(Duration::from_nanos(due.saturating_sub(now.monotonic_nano))).await,
        None => pending().await,
    }
}

/// What a panic said.
fn message(panic: &(dyn std::any::Any + Send)) -> String {
    if let Some(text) = panic.downcast_ref::<&str>() {
        return (*text).to_owned();
    }
    panic.downcast_ref::<String>().cloned().unwrap_or_else(|| "no message".to_owned())
}
