//! The thread of a pipeline: receives arrivals, does due work, hands output on.
//!
//! One thread is enough, because processors have state and need no more than one core. It is a thread and not a task,
//! because decoding and preparing take milliseconds, which would delay all sockets of the runtime.

use std::future::{pending, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, OnceLock};
use std::task::Poll;
use std::time::Duration;

use profbridge_model::{Quantities, Reason, Telemetry};
use profbridge_net::Shutdown;
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep};

use super::chain::FlushProgress;
use super::{Chain, PipelineContext, PipelineCounters, RunsOn};
use crate::budget::Permit;
use crate::component::{Now, Rejected, StartError};
use crate::delivery::Sink;
use crate::health::ComponentState;
use crate::intake::{Arrival, Arrivals};
use crate::telemetry::Edge;

/// Minimum time between two flushes because of memory pressure, so that a flood of refused requests does not cut
/// windows into pieces.
const MIN_BETWEEN_FLUSHES: Duration = Duration::from_millis(250);

/// If no request arrives for this long, freed memory is returned to the system.
const IDLE_BEFORE_RETURNING_MEMORY: Duration = Duration::from_millis(100);

/// The state of the thread.
pub(super) struct Worker {
    pub(super) counters: PipelineCounters,
    pub(super) chain: Chain,
    pub(super) sinks: Vec<Arc<dyn Sink>>,
    pub(super) arrivals: Arrivals,
    pub(super) end: ThreadEnd,
    pub(super) context: PipelineContext,
    /// The request that the processors are absorbing.
    pub(super) absorbing: Option<AbsorbedRequest>,
    /// Whether a flush because of memory pressure is in progress.
    pub(super) flushing: bool,
    /// The monotonic time at which the last flush because of memory pressure began.
    pub(super) last_flush: Option<u64>,
    /// Whether any data was absorbed since the last flush.
    pub(super) absorbed: bool,
}

/// How the thread is stopped.
pub(super) struct ThreadEnd {
    pub(super) stopping: Shutdown,
    /// Data that is left at this time is lost. Set before `stopping`.
    pub(super) deadline: Arc<OnceLock<Instant>>,
}

/// A request that the processors are absorbing.
pub(super) struct AbsorbedRequest {
    /// The request's memory. Held data is charged to the processors.
    _permit: Arc<Permit>,
    /// Notified when the processors have the whole request.
    taken: Option<oneshot::Sender<Result<(), Rejected>>>,
}

/// The next step of a pipeline.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum NextStep {
    /// Does due work, or absorbs the rest of a request.
    Advance,
    /// Flushes because of memory pressure.
    FlushForMemory,
}

impl Worker {
    /// Starts the thread. The returned receiver completes when the thread ends.
    pub(super) fn spawn(self) -> Result<oneshot::Receiver<()>, StartError> {
        let (ended, end) = oneshot::channel();
        let id = Arc::clone(&self.counters.id);
        let host = self.context.host;
        let life = self.run_to_end(ended);
        match host {
            RunsOn::Thread => {
                let runtime = Handle::current();
                let thread = std::thread::Builder::new().name(format!("pipeline {id}"));
                let spawned = thread.spawn(move || runtime.block_on(life));
                spawned.map_err(|error| StartError(format!("pipelines/{id}: cannot start a thread: {error}")))?;
            }
            #[cfg(test)]
            RunsOn::Task => drop(tokio::spawn(life)),
        }
        Ok(end)
    }

    async fn run_to_end(mut self, ended: oneshot::Sender<()>) {
        // Processors and exporters may have bugs: a panic ends only this pipeline, and is reported.
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
        // Closes the channel before the thread's end is announced, so that receivers notice the closed channel first.
        drop(self);
        ended.send(()).ok();
    }

    fn fail(&mut self, message: &str) {
        let health = &self.context.health;
        health.set("pipelines", &self.counters.id, ComponentState::Failed(format!("panicked: {message}")));
        self.count_abandoned();
        let lost = self.counters.unsettled();
        self.counters.give_up(Reason::Internal);
        tracing::error!(
            pipeline = %self.counters.id,
            %lost,
            "the pipeline panicked and has ended: {message}"
        );
    }

    async fn run(&mut self) {
        let mut pressure = self.context.budget.pressure();
        let mut stopping = false;
        loop {
            // Does one step before the next arrival, so that a flood of arrivals cannot keep windows open; only one, so
            // that senders get answers while much data is emitted.
            let now = self.context.clock.now();
            let step = self.next_step(now);
            let goes_on = step.is_some() && self.have_room();
            if let Some(step) = step.filter(|_| goes_on) {
                self.run_step(step, now);
            }
            if stopping && self.is_over() {
                break;
            }
            // While there is work, freed memory is soon reused, unless memory is short.
            if self.flushing || self.context.budget.is_short() {
                self.context.budget.give_back_freed();
            } else if step.is_none() {
                self.context.budget.give_back_between_requests();
            }
            let has_freed = step.is_none() && self.context.budget.has_freed_much();
            let due = self.chain.due().filter(|_| step.is_none());
            let mut stop = self.end.stopping.clone();
            tokio::select! {
                biased;
                () = stop.wait(), if !stopping => {
                    stopping = true;
                    // Requests that were already sent are still received; then the channel ends.
                    self.arrivals.close();
                }
                arrival = self.arrivals.recv(), if self.absorbing.is_none() && !self.chain.is_absorbing() => match arrival {
                    Some(arrival) => self.absorb_arrival(arrival).await,
                    None => break,
                },
                () = tokio::task::yield_now(), if goes_on => {}
                () = room(&self.sinks), if step.is_some() && !goes_on => {}
                // `self` owns the budget and with it the sender, so the channel never closes.
                _ = pressure.changed() => {}
                () = until(due, now) => {}
                () = sleep(IDLE_BEFORE_RETURNING_MEMORY), if has_freed => self.context.budget.give_back_freed(),
            }
        }
        self.flush().await;
        self.context.health.set("pipelines", &self.counters.id, ComponentState::Stopped);
    }

    /// The next step to do, apart from arrivals.
    fn next_step(&mut self, now: Now) -> Option<NextStep> {
        let budget = &self.context.budget;
        if !self.flushing && self.chain.held().bytes > 0 {
            let since = |last| Duration::from_nanos(now.monotonic_nano.saturating_sub(last));
            let again = self.last_flush.is_none_or(|last| since(last) >= MIN_BETWEEN_FLUSHES);
            // If a request is too large for the remaining memory, older data is flushed while the request is absorbed.
            let at_once = self.absorbed && self.chain.is_absorbing() && budget.is_exceeded();
            self.flushing = budget.is_short() && (again || at_once);
            if self.flushing {
                (self.last_flush, self.absorbed) = (Some(now.monotonic_nano), false);
            }
        }
        if self.flushing {
            return Some(NextStep::FlushForMemory);
        }
        let is_due = self.chain.is_absorbing() || self.chain.due().is_some_and(|due| due <= now.monotonic_nano);
        is_due.then_some(NextStep::Advance)
    }

    fn run_step(&mut self, step: NextStep, now: Now) {
        let out = match step {
            NextStep::Advance => {
                self.absorbed = true;
                self.chain.advance(now)
            }
            NextStep::FlushForMemory => {
                let FlushProgress { out, more } = self.chain.on_memory_pressure(now);
                self.flushing = more;
                out
            }
        };
        self.answer();
        self.hand_on(out, now, 0);
        self.release_request();
    }

    async fn absorb_arrival(&mut self, arrival: Arrival) {
        let Arrival { telemetry, permit, source, taken, .. } = arrival;
        let now = self.context.clock.now();
        let quantities = telemetry.quantities();
        let charged = permit.bytes();
        self.absorbing = Some(AbsorbedRequest { _permit: permit, taken: Some(taken) });
        self.absorbed = true;
        let out = self.chain.process(telemetry, now);
        self.count_in(quantities, source);
        self.answer();
        if out.is_some() {
            // A batch that passed through all processors can only wait here.
            room(&self.sinks).await;
        }
        self.hand_on(out, now, charged);
        self.release_request();
    }

    fn count_in(&self, quantities: Quantities, source: Option<Edge>) {
        self.counters.ledger.write(|| {
            self.counters.edge.add_in(quantities);
            if let Some(source) = source {
                source.add_in(quantities);
                source.add_out(quantities);
            }
        });
    }

    /// Counts requests that this pipeline will not process although their senders got the answer that they are
    /// accepted, because another pipeline has started to process them. They are lost with the pipeline's held data.
    fn count_abandoned(&mut self) {
        self.arrivals.close();
        while let Some(arrival) = self.arrivals.next_abandoned() {
            self.count_in(arrival.telemetry.quantities(), arrival.source);
        }
    }

    /// Answers the sender once the processors have its request: the pipeline is now responsible for it, even if the
    /// sender no longer waits.
    fn answer(&mut self) {
        if let Some(absorbing) = self.absorbing.as_mut().filter(|_| !self.chain.is_absorbing())
            && let Some(taken) = absorbing.taken.take()
        {
            taken.send(Ok(())).ok();
        }
    }

    /// Releases the request's memory once the processors have the request and its output was handed on.
    fn release_request(&mut self) {
        if !self.chain.is_absorbing() {
            self.absorbing = None;
        }
    }

    fn have_room(&self) -> bool {
        self.sinks.iter().all(|sink| sink.has_room() && sink.has_memory())
    }

    /// Whether the shutdown's deadline has passed.
    fn is_over(&self) -> bool {
        self.end.deadline.get().is_some_and(|&deadline| Instant::now() >= deadline)
    }

    /// Flushes the processors and hands the output on, until the deadline.
    async fn flush(&mut self) {
        loop {
            room(&self.sinks).await;
            if self.is_over() {
                self.count_abandoned();
                let lost = self.counters.unsettled();
                self.counters.give_up(Reason::Shutdown);
                if !lost.is_none() {
                    let pipeline = &*self.counters.id;
                    tracing::warn!(
                        pipeline,
                        %lost,
                        "the shutdown's deadline has passed: held data is lost"
                    );
                }
                return;
            }
            let now = self.context.clock.now();
            let FlushProgress { out, more } = self.chain.flush(now);
            self.answer();
            self.hand_on(out, now, 0);
            if !more {
                return;
            }
            self.context.budget.give_back_freed();
            tokio::task::yield_now().await;
        }
    }

    /// Reports to every exporter the data that sampling removed, then hands over the batch. The batch, except for
    /// `charged` bytes, is charged to the budget until all exporters have it.
    fn hand_on(&mut self, out: Option<Telemetry>, now: Now, charged: u64) {
        for what in self.chain.take_sampled_out() {
            self.sinks.iter().for_each(|sink| sink.sampled_out(&what));
        }
        let Some(telemetry) = out else { return };
        let memory = self.context.budget.charge(telemetry.size_bytes().saturating_sub(charged));
        let quantities = telemetry.quantities();
        // If the pipeline was given up meanwhile, the batch is already counted as lost.
        if let Some(handover) = self.counters.ledger.begin_handover(quantities) {
            for sink in &self.sinks {
                sink.accept(&telemetry, now);
            }
            handover.complete(|| self.counters.edge.add_out(quantities));
        }
        drop(memory);
    }
}

/// Waits until every exporter has room for a batch.
async fn room(sinks: &[Arc<dyn Sink>]) {
    for sink in sinks {
        sink.room().await;
    }
}

/// Waits until the monotonic time `due`; forever if it is `None`.
async fn until(due: Option<u64>, now: Now) {
    match due {
        Some(due) => tokio::time::sleep(Duration::from_nanos(due.saturating_sub(now.monotonic_nano))).await,
        None => pending().await,
    }
}

fn message(panic: &(dyn std::any::Any + Send)) -> String {
    if let Some(text) = panic.downcast_ref::<&str>() {
        return (*text).to_owned();
    }
    panic.downcast_ref::<String>().cloned().unwrap_or_else(|| "no message".to_owned())
}
